"""A chat template writes text of bounded length, and reaches nothing else."""

import importlib
import subprocess
import sys

import pytest
from kit import QUICK
from refusals import refused

import tokenloom as tl

CONTENTS = "{% for m in messages %}{{ m.content }}{% endfor %}"  # a template must write them
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


@pytest.fixture
def built(tmp_path):
    """Builds one conversation, of which every token is trained unless something else is said."""

    def build(template, limit=10_000, train_on="all", **arguments):
        options = {"tokenizer": "bytes", "chat_template": template, "train_on": train_on}
        options |= {"max_record_bytes": limit, "template_args": {"now": "2026-07-26", **arguments}}
        return tl.build(
            [{"messages": TALK}], tmp_path / "s", overwrite=True, files=QUICK, **options
        )

    return build


@pytest.fixture
def render(built):
    """What a template writes for `TALK`."""

    def render(template, **options):
        ids = built(template + CONTENTS, **options).document(0)
        return bytes(ids.tolist()).decode().removesuffix("hiyo")

    return render


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
def test_templates_have_the_helpers_of_transformers(render, template, text):
    assert render(template, bos_token="<s>") == text
    # the control: transformers itself, where it is not about the date
    if "strftime" not in template:
        utils = importlib.import_module("transformers.utils.chat_template_utils")
        theirs, _ = utils.render_jinja_template([TALK], chat_template=template, bos_token="<s>")
        assert theirs == [text]


def test_generation_blocks_are_found_where_they_are_written(built):
    store = built(
        "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}!{% endgeneration %}"
        "{% endfor %}",
        train_on="assistant",
    )
    ids, trained = store.document(0), store.document(0, column="loss_mask") == 1
    assert bytes(ids.tolist()).decode() == "<user>hi!<assistant>yo!"
    assert bytes(ids[trained].tolist()).decode() == "hi!yo!"
    late = "{% macro a() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ 'ab' ~ a() }}"
    refused(lambda: built(late, train_on="assistant"), tl.InputError, "record 0")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__ }}",
        "{{ messages['__class__'] }}",
        "{{ '' | attr('__class__') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ dict.__init__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
    ],
)
def test_what_a_template_must_not_reach_is_an_error_and_never_empty(built, template):
    refused(lambda: built(template), tl.InputError, "record 0", "chat template")


LOOP = "{% for i in range(MANY) %}{% for j in range(MANY) %}xxx{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        LOOP,
        "{% set a %}" + LOOP + "{% endset %}{{ a }}",
        "{% generation %}"
        + LOOP.replace("xxx", "{{ messages[0].content }}")
        + "{% endgeneration %}",
        "{{ 'a' * MANY ** 3 }}",
        "{{ 'a' | center(MANY ** 3) }}",
    ],
)
def test_what_a_template_writes_is_bounded(built, template):
    few, many = (template.replace("MANY", n) for n in ("2", "99"))
    built(few + CONTENTS)  # the control
    refused(lambda: built(many), tl.InputError, "record 0", "10000")


def test_bounds_are_in_bytes(built, render):
    assert len(render("{{ 'é' * 4998 }}")) == 4998
    refused(lambda: built("{{ 'é' * 4998 }}" + CONTENTS, limit=9999), tl.InputError, "9999")


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles') }}",
        "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
        "{% include 'x' %}",
        "{{ messages[7].content }}",
        "{{ lipsum() }}",  # it is random
    ],
)
def test_a_template_that_fails_makes_a_bad_record(built, template):
    refused(lambda: built(template), tl.InputError, "record 0", "chat template")


@pytest.mark.parametrize("template", ["{% if %}", "{{ [1] | random }}", "{% generation %}", "{{"])
def test_what_is_no_template_is_refused_with_its_line(built, template):
    refused(lambda: built(template), tl.ConfigError, "chat_template", "line 1")


def test_a_build_of_text_does_not_load_jinja2(tmp_path):
    code = (
        "import sys, tokenloom as tl\n"
        "tl.build([{'text': 'a'}], sys.argv[1], tokenizer='bytes')\n"
        "assert 'jinja2' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "s"], check=True, timeout=600)


def test_without_jinja2_the_extra_is_named(built, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refused(lambda: built(CONTENTS), ImportError, "tokenloom[build]")
