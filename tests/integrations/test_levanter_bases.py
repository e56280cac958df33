"""Bases of other trainers: their shuffle reaches the splices, and validation text has a store."""

import json

import pytest

import tokenloom as tl
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    splice_from_config,
)

TRAIN = ["abcdefghijkl", "mnopqrst", "uvwxyz"]
HELD_OUT = ["0123456789", "98765"]
TEXT = TextLmDatasetFormat(text_key="body")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    for name, texts in (("train", TRAIN), ("validation", HELD_OUT)):
        lines = [json.dumps({"body": text}) for text in texts]
        (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "toy"
    tl.build([{"text": text} for text in TRAIN], path, tokenizer="bytes")
    return path


def spliced(store, base_shuffle=None, constructor=SpliceMultiDocumentLMConfig, **options):
    source = UrlDatasetSourceConfig(cache_dir=store)
    base = LMMixtureDatasetConfig(configs={"wiki": source}, shuffle=base_shuffle)
    many = {"num_docs": 3} if constructor is SpliceMultiDocumentLMConfig else {"doc_index": 0}
    return constructor(base=base, seq_len=8, content_length=4, **many, **options)


# -- a wrong shuffle -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window_block": 2}, r"shuffle\.window_block: "),
        ({"window_blocks": "2"}, r"shuffle\.window_blocks: found '2'"),
        ({"window_blocks": 0}, r"shuffle.*window_blocks: found 0"),
        ({"kind": "blocks"}, r"shuffle\.kind: found 'blocks'"),
        ("block", r"shuffle: found 'block'"),
        (-3, r"shuffle: found era length -3"),
    ],
)
def test_a_wrong_shuffle_is_refused_by_its_path(store, wrong, words):
    with pytest.raises(tl.ConfigError, match=r"^base\." + words):
        spliced(store, wrong)
    with pytest.raises(tl.ConfigError, match="^" + words):
        spliced(store, shuffle=wrong)
    data = {"type": "splice_multi_document", "base": str(store), "seq_len": 8, "shuffle": wrong}
    with pytest.raises(tl.ConfigError, match=r"^data\." + words):
        splice_from_config({"data": data})


# -- validation text ---------------------------------------------------------------


def configured(text, root, **fields):
    source = UrlDatasetSourceConfig(
        cache_dir=root / "wiki",
        train_urls=[str(text / "train.jsonl")],
        validation_urls=[str(text / "validation.jsonl")],
        format=TEXT,
    )
    return LMMixtureDatasetConfig(tokenizer="bytes", configs={"wiki": source}, **fields)


def test_what_is_not_here_is_refused_by_its_key(text, tmp_path):
    with pytest.raises(tl.ConfigError, match="split: found 'test'"):
        configured(text, tmp_path).build_caches("test")
    source = UrlDatasetSourceConfig(cache_dir=tmp_path / "w", validation_urls=["gs://a/b.jsonl"])
    with pytest.raises(tl.ConfigError, match=r"base\.validation_urls\[0\]: found 'gs://a/b.jsonl'"):
        source.build_caches("validation", tokenizer="bytes")
    missing = UrlDatasetSourceConfig(
        cache_dir=tmp_path / "w", validation_urls=[tmp_path / "no.txt"]
    )
    with pytest.raises(tl.InputError, match=r"base\.validation_urls"):
        missing.build_caches("validation", tokenizer="bytes")
