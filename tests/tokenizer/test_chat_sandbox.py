"""A chat template writes text, within bounds, and reaches nothing else."""

import importlib
import subprocess
import sys

import pytest

from tokenloom.errors import ConfigError
from tokenloom.tokenizer.chat.sandbox import TemplateFailed, compile_template

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def render(template, limit=10_000, **variables):
    compiled = compile_template(template, limit=limit, now="2026-07-26")
    return compiled.render(TALK, variables=variables)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "{% for m in messages %}{{ m.role ~ 1 ~ none }} {% endfor %}",
            "user1None assistant1None ",
        ),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2026"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}", "x"),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ dict(b=3).b }}", "23"),
        ("{{ 'a' * 3 + 'b' }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ '%03d' % 7 }}", "aaab10243007"),
        ("{{ 'a' | center(5) }}|{{ '%s!' | format('x') }}", "  a  |x!"),
        ("  {% if true %}\nx\n  {% endif %}\n{{ bos_token }}", "x\n<s>"),
        ("{{ missing }}{{ missing is defined }}", "False"),
    ],
)
def test_templates_have_the_helpers_of_transformers(template, text):
    assert render(template, bos_token="<s>").text == text
    # the control: transformers itself, where it is not about the date
    if "strftime" not in template:
        utils = importlib.import_module("transformers.utils.chat_template_utils")
        theirs, _ = utils.render_jinja_template([TALK], chat_template=template, bos_token="<s>")
        assert theirs == [text]


def test_generation_blocks_are_found_where_they_are_written():
    found = render(
        "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}!{% endgeneration %}"
        "{% endfor %}"
    )
    assert found.text == "<user>hi!<assistant>yo!"
    assert [found.text[a:b] for a, b in found.generated] == ["hi!", "yo!"]
    assert not compile_template("{# {% generation %} #}", limit=9).marks
    late = "{% macro a() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ 'ab' ~ a() }}"
    with pytest.raises(TemplateFailed, match="not written in its place"):
        render(late)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__ }}",
        "{{ messages['__class__'] }}",
        "{{ '' | attr('__class__') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace(_x=1) }}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ dict.__init__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
    ],
)
def test_what_a_template_must_not_reach_is_an_error_and_never_empty(template):
    with pytest.raises(TemplateFailed, match="the sandbox stopped the chat template"):
        render(template)


LOOP = "{% for i in range(MANY) %}{% for j in range(MANY) %}xxx{% endfor %}{% endfor %}"

GROW = "{% set n = namespace(x=START) %}{% for i in range(MANY) %}{% set n.x = OP %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        LOOP,
        "{% set a %}" + LOOP + "{% endset %}{{ a }}",
        "{% generation %}"
        + LOOP.replace("xxx", "{{ messages[0].content }}")
        + "{% endgeneration %}",
        GROW.replace("START", "'a'").replace("OP", "n.x ~ n.x"),
        GROW.replace("START", "'a'").replace("OP", "n.x + n.x"),
        GROW.replace("START", "[1]").replace("OP", "n.x * 2"),
        "{{ 'a' * 10 ** MANY }}",
        "{{ MANY ** (10 ** MANY) }}",
        "{{ 'a'.center(10 ** MANY) }}",
        "{{ 'a' | center(10 ** MANY) }}",
        "{{ 'a' | indent(10 ** MANY) }}",
        "{{ '%1DIGITSd' % 1 }}",
        "{{ '%1DIGITSd' | format(1) }}",
    ],
)
def test_what_a_template_writes_is_bounded(template):
    few, many = (template.replace("MANY", n).replace("DIGITS", "0" * int(n)) for n in ("2", "99"))
    render(few)  # the control
    with pytest.raises(TemplateFailed, match="more than 10000 bytes"):
        render(many)


def test_bounds_are_in_bytes():
    assert len(render("{{ 'é' * 5000 }}").text) == 5000
    with pytest.raises(TemplateFailed, match="more than 9999 bytes"):
        render("{{ 'é' * 5000 }}", limit=9999)


def test_errors_of_a_template_are_told():
    for template, words in (
        ("{{ raise_exception('roles') }}", "raised TemplateError: roles"),
        ("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "calls itself too deeply"),
        ("{% include 'x' %}", "no loader"),
        ("{{ messages[7].content }}", "raised UndefinedError"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),  # it is random
    ):
        with pytest.raises(TemplateFailed, match=words):
            render(template)
    for template in ("{% if %}", "{{ [1] | random }}", "{% generation %}", "{{"):
        with pytest.raises(ConfigError, match="chat_template: line 1"):
            render(template)


def test_a_build_of_text_does_not_load_jinja2(tmp_path):
    code = (
        "import sys, tokenloom as tl\n"
        "tl.build([{'text': 'a'}], sys.argv[1], tokenizer='bytes')\n"
        "assert 'jinja2' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "s"], check=True, timeout=600)


def test_without_jinja2_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"tokenloom\[build\]"):
        compile_template("x", limit=9)
