"""The schema is the signatures: every parameter is a key, every word is one the checks know."""

import dataclasses
import inspect
import json
import typing

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from test_wrong_files import GOOD, IN_SCHEMA

import tokenloom as tl
from tokenloom.bind import BindError, bind
from tokenloom.runfiles import json_schema
from tokenloom.runfiles.json_schema import WORDS
from tokenloom.runfiles.schema import LAYOUTS, NONE, OMITTED, run_form
from tokenloom.runfiles.text import Written, read_settings

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def accepted(text):
    return VALIDATOR.is_valid(json.loads(json.dumps(yaml.safe_load(text))))


def test_the_schema_is_one_and_knows_the_good_file():
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert accepted(GOOD)


def kind(path):
    """The record at a path of the whole file."""
    found = run_form()
    for name in path.split("."):
        hint = typing.get_type_hints(found)[name]
        while not dataclasses.is_dataclass(hint):
            inside = typing.get_args(hint)
            hint = next(one for one in inside[::-1] if one not in (str, int, ...))
        found = hint
    return found


@pytest.mark.parametrize(
    ("path", "function", "besides"),
    [
        *((f"sources.{name}", getattr(tl.Store, name), set()) for name in LAYOUTS),
        ("sources.render", tl.Dataset.render, set()),
        ("sources.store", tl.open, {"digest"}),
        ("mix", tl.mix, {"shuffle"}),
        ("loader", tl.Loader.__init__, set()),
        ("build", tl.build, {"stores"}),
        ("edits", tl.Dataset.edit, set()),
        ("take", tl.Dataset.take, set()),
    ],
)
def test_every_parameter_is_a_key_or_is_left_out_for_a_reason(path, function, besides):
    keys = {one.name for one in dataclasses.fields(kind(path))}
    section = path.rpartition(".")[2]
    others = {name.partition(".")[2] for name in OMITTED if name.startswith(f"{section}.")}
    taken = {"self", "dataset", "sources", "inputs", "out"}
    assert keys - besides == set(inspect.signature(function).parameters) - taken - others


def test_every_key_of_the_schema_has_a_description():
    missing = [
        f"{name}.{key}"
        for name, record in json_schema()["$defs"].items()
        for key, one in record.get("properties", {}).items()
        if "description" not in one and name != "Shuffle"
    ]
    assert missing == []


FIELDS = {
    "Windows": lambda name, word: {"windows": {name: word}},
    "Pack": lambda name, word: {"pack": {name: word}},
    "Splice": lambda name, word: {"splice": {name: word}},
    "Render": lambda name, word: {"windows": 8, "render": {name: word}},
    "Select": lambda name, word: {"windows": 8, "select": {"num_docs": 2, name: word}},
}


def refusals(record, name, word):
    """What is said about a word in a file that has nothing else to complain about."""
    from tokenloom.runfiles.make import check_run

    source = FIELDS.get(record, lambda *_: {"windows": 8})(name, word)
    if record == "Split":
        source["split"] = {"shares": {"a": 1.0}, "part": "a", name: word}
    plain = {"seq_len": 8, "sources": {"a": {"store": "nowhere", **source}}}
    if record in ("Mix", "Loader"):
        plain[record.lower()] = {name: word}
    found = check_run(Written(plain=plain)).problems
    return [
        one for one in found if one.path.endswith(f".{name}") and f"found {word!r}" in one.words
    ]


@pytest.mark.parametrize("record", WORDS)
def test_the_words_of_the_schema_are_those_that_the_checks_allow(record):
    for name, words in WORDS[record].items():
        (wrong,) = refusals(record, name, "nonsense")
        assert all(str(word) in wrong.words for word in words if word != "bin"), wrong


def test_every_word_for_none_is_in_the_schema():
    source = {"store": "s", "splice": {"content_length": "fit", "eos_id": "none"}}
    source |= {"epochs": "endless", "shuffle": "none", "render": {"ignore_id": "none"}}
    build = {"tokenizer": "none", "bos": "none", "eos": "none", "pad": "none", "vocab_size": 9}
    plain = {"build": {**build, "stores": {"s": "a.jsonl"}}, "sources": {"a": source}}
    assert VALIDATOR.is_valid(plain)
    assert all(f"{name}: {word}" in yaml.safe_dump(plain) for name, word in NONE.items())
    for text in ("epochs: forever", "epochs: null", "epochs: 1.5"):
        assert not accepted(GOOD.replace("epochs: endless", text))


@pytest.mark.parametrize("case", IN_SCHEMA, ids=lambda case: case[1])
def test_the_schema_refuses_wrong_keys_types_and_null(case):
    """What it cannot know: what fits together, what is on disk, bounds of numbers."""
    assert not accepted(case[0])


# -- texts ---------------------------------------------------------------------------------------

PLAIN = st.recursive(
    st.integers(-9, 9) | st.booleans() | st.sampled_from(["a", "b c", "x: y", "é", "#"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain=st.dictionaries(st.sampled_from("abcd"), PLAIN, min_size=1, max_size=3))
def test_every_value_of_a_yaml_file_has_the_line_where_it_is(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("marks") / "run.yaml"
    path.write_text(yaml.safe_dump(plain, default_flow_style=False), encoding="utf-8")
    found = read_settings(path)
    assert found.plain == plain
    lines = path.read_text(encoding="utf-8").splitlines()
    level = [("", plain)]
    while level:
        here, value = level.pop()
        inner = value.items() if isinstance(value, dict) else ()
        inner = enumerate(value) if isinstance(value, list) else inner
        for key, one in inner:
            where = f"{here}[{key}]" if isinstance(key, int) else f"{here}.{key}".strip(".")
            line, column = found.marks[where]
            written = lines[line - 1][column - 1 :]
            if not isinstance(one, dict | list):
                shown = yaml.safe_dump(one).removesuffix("...\n").strip()
                assert written.startswith(shown)
            elif isinstance(key, str):
                assert written.startswith(f"{key}:")
            level.append((where, one))


def test_the_mark_of_what_is_missing_is_that_of_the_nearest_place_above():
    found = Written(plain={}, marks={"a": (1, 1), "a.b[0]": (2, 3)})
    assert found.mark("a.b[0].c.d") == (2, 3)
    assert found.mark("a.b[1]") == (1, 1)
    assert found.mark("x.y") is None


# -- several kinds of value ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    x: int = 0


@pytest.mark.parametrize(
    ("hint", "value", "named"),
    [
        (int | str, 1.5, ("$: found 1.5", "integer", "string")),
        (int | Inner, "a", ("$: found 'a'", "integer", "object")),
        (int | Inner, {"y": 3}, ("$.y: ", "x")),
        (int | tuple[int, ...], [1, "a"], ("$[1]: found 'a'", "integer")),
        (int | None, "a", ("$: found 'a'", "integer")),
    ],
)
def test_a_value_of_no_allowed_kind_is_named_with_what_is_allowed(hint, value, named):
    refused(lambda: bind(hint, value), BindError, *named)
