"""Accelerators inside a build: the same ids, checked, and rejected loudly if they differ."""

import dataclasses
import logging

import numpy as np
import pytest
from toys import bpe_json, sources

import tokenloom as tl
from tokenloom.ingest import plan
from tokenloom.tokenizer.encoders import Encoded

TINY = {"block_bytes": 4000, "inner": 64, "shard_tokens": 3000}


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(bpe_json())
    return path


def rows():
    texts = [part for text in sources() for part in text.split("\n\n")][:300]
    texts[150] += " zebra"
    return [{"text": text} for text in texts]


def engines(store):
    records = [store.reader.shard(n).record for n in range(len(store.reader.manifest.shards))]
    return [record.engine.split()[0] for record in records]


def test_every_engine_gives_the_store_of_the_reference(tmp_path, tokenizer):
    digests = {}
    for engine in ("reference", "auto", "tiktoken", "fast"):
        options = {"engine": engine, "verify_all": engine == "fast", **TINY}
        store = tl.build(rows(), tmp_path / engine, tokenizer=tokenizer, **options)
        digests[engine] = store.digest
        assert store.tokenizer.eos is not None
        assert store.document(0)[-1] == store.tokenizer.eos
    assert len(set(digests.values())) == 1
    assert set(engines(tl.open(tmp_path / "auto"))) == {"tiktoken"}
    assert set(engines(tl.open(tmp_path / "fast"))) == {"fastokens"}


def test_engine_and_version_are_part_of_the_fingerprint(tmp_path, tokenizer):
    store = tl.build(rows()[:5], tmp_path / "s", tokenizer=tokenizer)
    assert store.reader.manifest.parts[0].settings["engine"].startswith("tiktoken ")
    with pytest.raises(tl.StoreExists, match=r"engine \('tiktoken .* there, 'tokenizers .* now\)"):
        tl.build(rows()[:5], tmp_path / "s", tokenizer=tokenizer, engine="reference")


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A fast engine that gets every text with a zebra wrong."""

    inner: object
    engine: str = "tiktoken"
    version: str = "0"

    def encode(self, texts):
        ids, lengths = self.inner.encode(texts)
        ids, ends = ids.copy(), np.cumsum(lengths)
        for i, text in enumerate(texts):
            if "zebra" in text:
                ids[ends[i] - 1] ^= 1
        return Encoded(ids, lengths)


@pytest.fixture
def wrong_engine(monkeypatch):
    choose = plan.choose_engine

    def chosen(*words, **options):
        encoder, reason = choose(*words, **options)
        return dataclasses.replace(encoder, fast=Wrong(encoder.fast)), reason

    monkeypatch.setattr(plan, "choose_engine", chosen)  # chooses and encodes in this process


def test_one_difference_rebuilds_the_shard_with_the_reference_loudly(
    tmp_path, tokenizer, wrong_engine, caplog
):
    right = tl.build(rows(), tmp_path / "right", tokenizer=tokenizer, engine="reference", **TINY)
    with caplog.at_level(logging.WARNING, "tokenloom"):
        store = tl.build(rows(), tmp_path / "s", tokenizer=tokenizer, verify_all=True, **TINY)
    assert store.digest == right.digest
    used = engines(store)
    assert "reference" in used
    assert "tiktoken" in used
    assert "is encoded again by the tokenizers library" in caplog.text
    assert "gives different ids" in caplog.text


def test_without_the_guard_the_wrong_ids_would_have_been_stored(tmp_path, tokenizer, wrong_engine):
    """The control: a sample that misses the document lets it through, as the docs say."""
    right = tl.build(rows(), tmp_path / "right", tokenizer=tokenizer, engine="reference", **TINY)
    store = tl.build(rows(), tmp_path / "s", tokenizer=tokenizer, **TINY)
    different = [
        i
        for i in range(store.num_documents)
        if not np.array_equal(store.document(i), right.document(i))
    ]
    assert different == [150] or engines(store).count("reference")


def test_text_that_spells_a_special_token_stays_text_unless_asked(tmp_path, tokenizer):
    row = [{"text": "a <|endoftext|> b"}]
    plain = tl.build(row, tmp_path / "a", tokenizer=tokenizer, add_eos=False)
    parsed = tl.build(row, tmp_path / "b", tokenizer=tokenizer, add_eos=False, parse_special=True)
    eos = plain.tokenizer.eos
    assert eos not in plain.document(0)
    assert eos in parsed.document(0)
    assert plain.tokenizer.decode(plain.document(0)) == row[0]["text"]


def test_a_tokenizer_is_kept_in_the_store_and_opens_without_its_file(tmp_path, tokenizer):
    store = tl.build(rows()[:3], tmp_path / "s", tokenizer=tokenizer)
    tokenizer.unlink()
    again = tl.open(tmp_path / "s")
    text = rows()[1]["text"]
    assert again.tokenizer.decode(again.document(1)[:-1]) == text
    assert again.tokenizer.encode(text).tolist() == store.document(1)[:-1].tolist()
    assert repr(again.tokenizer).startswith("StoredTokenizer('tokenizer.json', tokenizers")
