"""The batched fast path of the tokenizers library: used only where its ids are the same."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.limits import limits
from tokenloom.tokenizer import encoders
from tokenloom.tokenizer.encoders import batches, reference_encoder
from tokenloom.tokenizer.spec import resolve


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the cat sat on the mat " * 20, "a théâtre of cats"], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return resolve(path)[0]


class Watched:
    """A tokenizer that records which functions encode, and may lie in the fast one."""

    def __init__(self, tokenizer, lie=None):
        self._tokenizer, self._lie, self.calls = tokenizer, lie, []

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __setattr__(self, name, value):
        if name == "encode_special_tokens":
            self._tokenizer.encode_special_tokens = value
        else:
            super().__setattr__(name, value)

    def encode_batch(self, texts, **options):
        self.calls.append(("slow", len(texts)))
        return self._tokenizer.encode_batch(texts, **options)

    def encode_batch_fast(self, texts, **options):
        self.calls.append(("fast", len(texts)))
        asked = [text.replace(self._lie, "x") if self._lie else text for text in texts]
        return self._tokenizer.encode_batch_fast(asked, **options)


def watched_encoder(monkeypatch, spec, lie=None):
    tokenizer = Watched(encoders.open_tokenizers(spec.payload), lie)
    monkeypatch.setattr(encoders, "open_tokenizers", lambda *_: tokenizer)
    return tokenizer, reference_encoder(spec)


def test_the_fast_path_is_chosen_where_it_agrees_and_many_texts_share_a_call(small, monkeypatch):
    tokenizer, encoder = watched_encoder(monkeypatch, small)
    assert encoder.path == "encode_batch_fast"
    tokenizer.calls.clear()
    encoder.encode(["the cat"] * 600)
    assert tokenizer.calls == [("fast", 256), ("fast", 256), ("fast", 88)]


@pytest.mark.parametrize("lie", ["\u00a0", "<|end|>"])
def test_a_fast_path_with_other_ids_is_refused_told_and_never_called_again(
    small, monkeypatch, caplog, lie
):
    with caplog.at_level(logging.WARNING, "tokenloom"):
        tokenizer, encoder = watched_encoder(monkeypatch, small, lie)
    assert encoder.path == "encode_batch"
    assert "encode_batch_fast gives other ids for 'a" in caplog.text
    tokenizer.calls.clear()
    ids, lengths = encoder.encode(["the\u00a0cat", "", "<|end|> x"])
    assert tokenizer.calls == [("slow", 3)]
    plain = reference_ids(small, ["the\u00a0cat", "", "<|end|> x"])
    assert np.split(ids, np.cumsum(lengths)[:-1])[0].tolist() == plain[0]
    assert lengths.tolist() == [len(one) for one in plain]


def test_a_library_without_the_fast_path_is_told_and_used(small, monkeypatch, caplog):
    class Old(Watched):
        def __getattribute__(self, name):
            if name == "encode_batch_fast":
                raise AttributeError(name)
            return super().__getattribute__(name)

        def __getattr__(self, name):
            if name == "encode_batch_fast":
                raise AttributeError(name)
            return super().__getattr__(name)

    tokenizer = Old(encoders.open_tokenizers(small.payload))
    monkeypatch.setattr(encoders, "open_tokenizers", lambda *_: tokenizer)
    encoder = reference_encoder(small)
    assert encoder.path == "encode_batch"
    assert "has no encode_batch_fast" in caplog.text
    assert encoder.encode(["cat"]).ids.tolist() == reference_ids(small, ["cat"])[0]


def reference_ids(spec, texts):
    """One text at a time with `encode`, which the encoder does not use."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(spec.payload.decode())
    tokenizer.encode_special_tokens = True
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=30))
def test_batches_give_the_ids_of_single_texts(small, texts):
    ids, lengths = reference_encoder(small).encode(texts)
    expected = reference_ids(small, texts)
    assert ids.tolist() == [one for part in expected for one in part]
    assert lengths.tolist() == [len(part) for part in expected]
    assert (ids.dtype, lengths.dtype) == (np.uint32, np.int64)


@given(st.lists(st.integers(0, 70_000), max_size=600))
def test_batches_cover_all_texts_and_hold_no_more_than_one_text_too_much(sizes):
    texts = ["x" * size for size in sizes]
    found = list(batches(texts))
    assert [i for some in found for i in range(some.start, some.stop)] == list(range(len(texts)))
    for some in found:
        assert 1 <= some.stop - some.start <= limits().encode_batch_texts
        assert sum(sizes[some.start : some.stop - 1]) < limits().encode_batch_characters
