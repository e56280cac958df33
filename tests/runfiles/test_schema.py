"""The schema is the signatures: every parameter is a key."""

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
from tokenloom.runfiles.schema import LAYOUTS, NONE, OMITTED, run_form

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
