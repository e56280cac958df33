"""Every option of a build is checked before anything is read or written."""

import json

import numpy as np
import pytest
import yaml
from refusals import refused

import tokenloom as tl
from tokenloom import cluster

ROWS = [{"text": "abc", "lang": "en"}, {"text": "de", "lang": "fr"}]

IDS = [{"input_ids": [1, 2, 3], "score": [0.5, 1, 2]}]

WRONG = {
    "text_key": [None, ["text"]],
    "id_key": [True],
    "ids_key": [3],
    "metadata_keys": ["lang", {"lang": 1}, [1]],
    "columns": ["loss_mask", {"loss_mask": 1}, [1]],
    "vocab_size": [True, "300", 300.0, 0, 2**31 + 1],
    "bos": [True, b"x"],
    "eos": [1.5],
    "pad": [[1]],
    "add_bos": ["no", 1],
    "add_eos": [0],
    "strict": ["false"],
    "parse_special": [None],
    "engine": [None, "x"],
    "verify_all": ["no"],
    "filter": [3, "text", ["json:loads"]],
    "transform": [True],
    "chat": [1],
    "chat_template": [3, ["x"]],
    "train_on": ["all "],
    "template_args": ["x", [("a", 1)]],
    "on_error": [None, "SKIP"],
    "encoding": [None, ["utf-8", 3], [], "nope"],
    "errors": [None, "x"],
    "max_record_bytes": [True, 0, 1e6],
    "append": ["no"],
    "overwrite": [1],
    "workers": [True, "2", 0],
    "stretches": [0, 2.0, 10_001],
    "executor": [None, "x"],
    "progress": ["no"],
    "chunk_tokens": [True, 0, 2**27 + 1],
    "shard_tokens": [0, 2**27 + 1],
    "block_bytes": ["3", 0],
    "inner": [0, 2**24 + 1],
    "tokenizer": [3, b"bytes", ""],
}

CASES = [(name, value) for name, values in WRONG.items() for value in values]

NOT_OF_PARTS = {"executor", "stretches"}


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda one: repr(one)[:20])
def test_a_wrong_option_is_refused_by_its_name_and_nothing_is_written(tmp_path, name, value):
    options = {"tokenizer": "bytes"} | {name: value}
    refused(lambda: tl.build(ROWS, tmp_path / "s", **options), tl.ConfigError, name)
    if name not in NOT_OF_PARTS:
        parts = lambda: cluster.build_part(ROWS, tmp_path / "s", "1/2", **options)  # noqa: E731
        refused(parts, tl.ConfigError, name)
    assert not (tmp_path / "s").exists()


def test_all_wrong_types_are_reported_together(tmp_path):
    wrong = {"tokenizer": "bytes", "metadata_keys": "lang", "strict": "no"}
    refused(lambda: tl.build(ROWS, tmp_path / "s", **wrong), tl.ConfigError, *list(wrong)[1:])


def test_metadata_keys_are_a_list_and_never_characters_of_a_word_or_a_used_up_generator(tmp_path):
    for keys in ("lang", (key for key in ["lang"])):
        with pytest.raises(tl.ConfigError, match="metadata_keys"):
            tl.build(ROWS, tmp_path / "s", tokenizer="bytes", metadata_keys=keys)
    for number, keys in enumerate((["lang"], ("lang",))):
        store = tl.build(ROWS, tmp_path / str(number), tokenizer="bytes", metadata_keys=keys)
        assert store.metadata(1)["lang"] == "fr"


def test_numbers_of_numpy_are_numbers(tmp_path):
    numbers = {
        "vocab_size": np.int64(300),
        "eos": np.int32(3),
        "chunk_tokens": np.int64(64),
        "shard_tokens": np.int64(100),
        "block_bytes": np.uint32(1000),
        "inner": np.int16(32),
        "max_record_bytes": np.int64(1000),
        "workers": np.int64(1),
        "stretches": np.int64(2),
        "add_bos": np.bool_(False),
    }
    plain = {name: one.item() for name, one in numbers.items()}
    store = tl.build(ROWS, tmp_path / "a", tokenizer="bytes", **numbers)
    assert store.lengths.tolist() == [4, 3]
    again = tl.build(ROWS, tmp_path / "a", tokenizer="bytes", **plain)  # the same build
    assert again.digest == store.digest


@pytest.mark.parametrize("size", [True, "9", 9.0, 0, 2**31 + 1])
def test_the_vocab_size_of_ready_made_ids_and_functions_is_an_integer(tmp_path, size):
    with pytest.raises(tl.ConfigError, match="vocab_size"):
        tl.build(IDS, tmp_path / "a", tokenizer=None, vocab_size=size)
    with pytest.raises(tl.ConfigError, match="vocab_size"):
        tl.build(ROWS, tmp_path / "b", tokenizer=lambda text: [0] * len(text), vocab_size=size)
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_published_can_be_opened(tmp_path):
    ones = [{"input_ids": [0, 0, 0]}]  # ids that fit a vocabulary of one
    with pytest.raises(tl.ConfigError, match=r"vocab_size.*True"):
        tl.build(ones, tmp_path / "s", tokenizer=None, vocab_size=True)
    store = tl.build(ones, tmp_path / "s", tokenizer=None, vocab_size=1)
    assert tl.open(store.path).num_tokens == 3


def test_columns_are_names_or_names_with_a_dtype(tmp_path):
    for number, dtype in enumerate(("float32", np.str_("float32"))):
        store = tl.build(
            IDS, tmp_path / str(number), tokenizer=None, vocab_size=9, columns={"score": dtype}
        )
        assert store.document(0, column="score").tolist() == [0.5, 1, 2]
    for columns in ("score", (name for name in ["score"])):
        with pytest.raises(tl.ConfigError, match="columns"):
            tl.build(IDS, tmp_path / "s", tokenizer=None, vocab_size=9, columns=columns)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--vocab-size", "0"),
        ("--bos", "²"),
        ("--shard-tokens", "999999999999"),
        ("--workers", "0"),
        ("--template-args", "[1]"),
        ("--encoding", "nope"),
        ("--part", "3/2"),
        ("--part", "x"),
    ],
)
def test_a_wrong_option_of_the_command_is_refused_as_it_was_typed(tmp_path, cli, option, value):
    (tmp_path / "t.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    typed = ["build", tmp_path / "t.jsonl", "-o", tmp_path / "s", "-t", "bytes", option, value]
    assert option.removeprefix("--") in cli(*typed, code=2)
    assert not (tmp_path / "s").exists()


OF_PYTHON = {"filter", "transform", "append", "overwrite", "tokenizer"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name, (value, *_) in WRONG.items()
        if name not in OF_PYTHON and not isinstance(value, (set, bytes, tuple))
    ],
    ids=lambda one: repr(one)[:20],
)
def test_a_wrong_option_of_a_run_file_is_refused_by_its_path(tmp_path, name, value):
    (tmp_path / "t.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    own = {"inputs": "t.jsonl", name: value}
    file = tmp_path / "run.yaml"
    said = {
        "build": {"tokenizer": "bytes", "stores": {"s": own}},
        "sources": {"s": {"store": "s", "windows": 8}},
    }
    file.write_text(yaml.safe_dump(json.loads(json.dumps(said))))
    refused(lambda: tl.load(file), tl.ConfigError, "build.stores.s", name)
    assert not (tmp_path / "s").exists()
