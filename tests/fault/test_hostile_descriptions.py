"""Descriptions come from files of others: whatever they hold, the answer is a ConfigError."""

import json
import random

import pytest
from refusals import refused
from spoiling import DEEP, JUNK, places, replaced, without

import tokenloom as tl


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rows = [{"text": "abc" * 50, "id": str(i)} for i in range(20)]
    a = tl.build(rows, folder / "a", tokenizer="bytes", id_key="id")
    b = tl.build(rows[:-1], folder / "b", tokenizer="bytes", id_key="id")
    x, y = a.windows(8).shuffle(), b.pack(8).shuffle()
    mixed = tl.mix({"x": x, "y": y}).seed(3)
    runs = {
        "windows": a.windows(8).shuffle().epochs(3).seed(7),
        "packed": a.pack(16).block_shuffle(window_blocks=2),
        "selected": a.select(num_docs=5).windows(8).take(10),
        "split": a.split({"a": 0.5, "b": 0.5})["a"].windows(8),
        "mixed": mixed,
        "edited": mixed.edit(at=10, weights={"x": 3}),
    }
    return {name: run.describe() for name, run in runs.items()}


def only_config_errors(config, context):
    try:
        run = tl.from_config(config)
        if run.is_finite:
            len(run)
    except tl.ConfigError as error:
        str(error).encode()  # a message that can be printed
    except tl.StoreError:
        assert any(key in context for key in ("path", "snapshot")), context


@pytest.mark.parametrize("name", ["windows", "packed", "selected", "split", "mixed", "edited"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_any_value_at_any_place_of_a_description_is_refused_or_understood(
    name, every, descriptions
):
    base = descriptions[name]
    trials = [(path, junk) for path in places(base) for junk in [*JUNK, without]]
    random.Random(name).shuffle(trials)
    assert len(trials) > 500
    for path, junk in trials[::every]:
        if junk is not without:
            only_config_errors(replaced(base, path, junk), f"{path} {type(junk).__name__}")
        elif path:
            only_config_errors(without(base, path), str(path))


@pytest.mark.parametrize(
    ("path", "junk", "named"),
    [
        (("store", "path"), "\ud800", "$.store.path: found '\\ud800'"),
        (("store", "path"), "a\0b", "$.store.path: found"),
        (("store", "path"), "a" * 256, "path: found 'aaa"),
        (("layout", "kind"), ["windows"], "$.layout.kind: found ['windows']"),
        (("seed",), 10**30, "$.seed: found"),
        (("epochs",), 2**62, "2^63"),
        (("layout", "seq_len"), float("nan"), "$.layout.seq_len: found nan"),
        (("render",), DEEP, "32"),
        ((), DEEP, "32"),
        ((), None, "$: found None"),
        ((), b"{}", "$: found b'{}'"),
    ],
)
def test_wrong_values_are_named_with_their_path(path, junk, named, descriptions):
    config = replaced(descriptions["windows"], path, junk)
    refused(lambda: tl.from_config(config), tl.ConfigError, named)


def test_good_descriptions_come_back_also_as_json(descriptions):
    for base in descriptions.values():
        run = tl.from_config(json.loads(json.dumps(base)))
        assert run.describe() == base
