"""Choosing and splitting a few documents at a time: the same documents as from a list of all."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.documents import split as split_module
from tokenloom.documents.select import choose, choose_streaming
from tokenloom.documents.spec import MODES, SelectSpec
from tokenloom.documents.split import SplitSpec, part_numbers
from tokenloom.errors import ConfigError
from tokenloom.random.keys import child, children, key, named_texts
from tokenloom.store.metadata import DocumentsReader, Texts
from tokenloom.store.reader import Reader


def in_pieces(lengths, piece):
    array = np.array(lengths, np.uint32)
    return (array[low : low + piece] for low in range(0, len(array), piece))


@given(
    st.lists(st.integers(0, 6), min_size=4, max_size=60),
    st.sampled_from(MODES),
    st.none() | st.integers(1, 9),
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(3, 6)),
    st.none() | st.integers(1, 90),
    st.integers(1, 20),
)
def test_a_few_at_a_time_are_chosen_as_from_all(lengths, mode, count, between, training, piece):
    spec = SelectSpec(
        num_docs=count,
        doc_select_mode=mode,
        min_doc_length=between[0],
        max_doc_length=between[1],
        training_tokens=training,
        seed=3,
    )
    found = choose_streaming(spec, in_pieces(lengths, piece), len(lengths), "store")
    try:
        wanted = choose(spec, np.array(lengths), digest="store")
    except ConfigError:
        wanted = None
    if found is None:  # left to `choose`: most documents are wanted, or too few qualify
        few = wanted is None or wanted.warning is not None or "for" in wanted.why
        assert few or (count or 1) * 4 > len(lengths) or "backfill" in wanted.why
        return
    assert wanted is not None
    assert found.documents.tolist() == wanted.documents.tolist()
    assert (found.why, found.warning) == (wanted.why, wanted.warning)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_best_of_many_pieces_are_the_best_of_all(mode, count):
    lengths = np.random.default_rng(count).integers(0, 500, 3000)
    spec = SelectSpec(num_docs=count, doc_select_mode=mode, min_doc_length=3)
    found = choose_streaming(spec, in_pieces(lengths, 30), 3000, "store")
    wanted = choose(spec, lengths, digest="store")
    assert found.documents.tolist() == wanted.documents.tolist()
    assert found.why == wanted.why


def test_documents_that_are_named_are_left_to_the_other_way():
    for options in ({"doc_index": 3}, {"doc_hash": "0" * 8}, {"documents": (1, 2)}):
        assert choose_streaming(SelectSpec(**options), in_pieces([1] * 40, 8), 40, "") is None
    assert choose_streaming(SelectSpec(), in_pieces([1] * 40, 8), 40, "") is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("documents", [100_000, 400_000])
def test_memory_of_a_choice_is_that_of_a_piece(mode, documents):
    """Four times the documents take no more; a list of their lengths would take 8 bytes each."""
    lengths = (np.arange(documents, dtype=np.uint32) * 7919) % 1009
    pieces = (lengths[low : low + 4096] for low in range(0, documents, 4096))
    tracemalloc.start()
    spec = SelectSpec(num_docs=50, doc_select_mode=mode)
    found = choose_streaming(spec, pieces, documents, "store")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.documents) == 50
    assert peak < 400_000


def test_a_store_is_not_listed_to_choose_a_few(monkeypatch):
    with ToyStore(numbered([[3, 9, 1, 5, 30, 2, 2, 4, 8, 8]])) as toy:

        def listed(self):
            raise AssertionError("all lengths were listed")

        monkeypatch.setattr(Reader, "lengths", listed)
        assert toy.store.select(num_docs=2).indices.tolist() == [4, 1]
        with pytest.raises(AssertionError, match="listed"):  # control: more than a quarter
            toy.store.select(num_docs=5)


# -- splits --------------------------------------------------------------------------------


def slow_part(spec, word):
    """The part of a hash by the rule: edges in units of 2^-64, the first one from the end."""
    begins = [min(int(sum(spec.shares[:i]) * 2.0**64), 2**64 - 1) for i in range(len(spec.shares))]
    return max(i for i, begin in enumerate(begins) if i == 0 or word >= begin)


@given(
    st.sampled_from([(1.0,), (0.5, 0.5), (0.25, 0.5, 0.25), (0.0, 1.0, 0.0), (0.875, 0.125)]),
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**62, 2**63, 2**64 - 1]), max_size=9),
)
def test_the_number_of_a_part_is_that_of_the_rule(shares, words):
    names = tuple("abc"[: len(shares)])
    spec = SplitSpec(names=names, shares=shares, part="a")
    found = part_numbers(spec, np.array(words, np.uint64))
    assert found.tolist() == [slow_part(spec, word) for word in words]


@given(st.lists(st.text(max_size=30) | st.text(max_size=3), max_size=12), st.integers(0, 99))
def test_texts_end_to_end_have_the_keys_of_their_names(names, parent):
    data = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    found = named_texts(parent, ends, np.frombuffer(b"".join(data), np.uint8))
    assert found.tolist() == [child(parent, name) for name in names]


def test_a_name_of_a_thousand_bytes_has_its_key():
    name = "tokenloom " * 100
    texts = Texts.of([name, None, 7])
    found = named_texts(5, texts.ends, texts.data)
    assert found.tolist() == [child(5, one) for one in (name, "", "7")]
    assert texts.absent.tolist() == [False, True, False]


IDS = {
    "texts": ["a", "é" * 9, None, "", "x" * 300],
    "numbers": [7, None, -3, 2**40, 0],
    "both": ["a", 7, None, True, 1.5],
    "floats": [0.5, None, 1e300, -0.0, 2.0],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_every_kind_are_split_by_their_text(kind, tmp_path):
    """As by a loop over the metadata, one document at a time."""
    ids = IDS[kind]
    rows = [{"text": "ab", **({} if one is None else {"id": one})} for one in ids]
    store = tl.build(rows, tmp_path / "toy", tokenizer="bytes")
    spec = SplitSpec(names=("a", "b"), shares=(0.5, 0.5), part="a", seed=2)
    parent, wanted = key(2, "split"), []
    for number in range(len(ids)):
        one = store.metadata(number).get("id")
        numbered = int(children(parent, np.array([number], np.uint64))[0])
        wanted.append(numbered if one is None else child(parent, str(one)))
    found = np.concatenate(list(split_module.id_hashes(store.reader, 2)))
    assert found.tolist() == wanted
    parts = [slow_part(spec, word) for word in wanted]
    split = store.split({"a": 0.5, "b": 0.5}, seed=2)
    assert split["a"].indices.tolist() == [i for i, part in enumerate(parts) if part == 0]
    assert split["b"].indices.tolist() == [i for i, part in enumerate(parts) if part == 1]


def test_all_parts_of_a_split_take_one_pass(monkeypatch, tmp_path):
    rows = [{"text": "ab", "id": f"d{i}"} for i in range(40)]
    store, passes = tl.build(rows, tmp_path / "toy", tokenizer="bytes"), []
    texts = DocumentsReader.texts

    def counted(self, name):
        passes.append(name)
        return texts(self, name)

    monkeypatch.setattr(DocumentsReader, "texts", counted)
    parts = store.split({"a": 0.5, "b": 0.25, "c": 0.25})
    every = np.concatenate([part.indices for part in parts.values()])
    assert sorted(every.tolist()) == list(range(40))
    assert passes == ["id"]
    other = store.split({"a": 0.5, "b": 0.25, "c": 0.25}, seed=1)
    assert other["a"].indices.tolist() != parts["a"].indices.tolist()
    assert passes == ["id", "id"]
