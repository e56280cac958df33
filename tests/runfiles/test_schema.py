"""The schema is the signatures: every parameter is a key, every word is one the checks know."""

import dataclasses
import inspect
import json
import typing

import jsonschema
import pytest
import yaml
from test_wrong_files import GOOD, IN_SCHEMA

import tokenloom as tl
from tokenloom.runfiles import json_schema
from tokenloom.runfiles.json_schema import WORDS
from tokenloom.runfiles.schema import LAYOUTS, NONE, OMITTED, run_form
from tokenloom.runfiles.text import Written

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
