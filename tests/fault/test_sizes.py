"""D10: nothing at all, one token, and addresses beyond 2^31, 2^32 and 2^40."""

import itertools

import numpy as np
import pytest
from kit import QUICK, read_everything
from virtual import VOCAB, VirtualStore, offset, value, write_sparse

import tokenloom as tl

LARGEST = (1 << 32) - 1  # tokens of a shard


# -- small ---------------------------------------------------------------------------------


@pytest.fixture
def empty(scratch):
    (scratch / "none.jsonl").write_text("")
    with pytest.warns(UserWarning, match="it has no documents"):
        return tl.build(scratch / "none.jsonl", scratch / "s", tokenizer="bytes", files=QUICK)


def test_d10_a_store_without_documents_is_a_store(empty):
    assert (empty.num_documents, empty.num_tokens) == (0, 0)
    assert empty.tokens(0, 0).tolist() == []
    assert empty.tokens(0, 0).dtype == np.int32
    assert empty.lengths.tolist() == []
    assert empty.documents([]) == []
    assert empty.verify(progress=False).ok
    for outside in (
        lambda: empty.document(0),
        lambda: empty.tokens(0, 1),
        lambda: empty.metadata(0),
    ):
        with pytest.raises(IndexError):
            outside()
    assert not read_everything(empty.path).errors


def test_d10_an_empty_store_can_be_appended_to(empty, scratch):
    store = tl.build([{"text": "ab"}], empty.path, tokenizer="bytes", append=True, files=QUICK)
    assert store.document(0).tolist() == [97, 98]
    assert not read_everything(empty.path).errors
    assert not read_everything(empty.path, snapshot=1).errors


def test_d10_nothing_can_be_appended_to_a_store(scratch):
    (scratch / "none.jsonl").write_text("")
    tl.build([{"text": "ab"}], scratch / "s", tokenizer="bytes", files=QUICK)
    with pytest.warns(UserWarning, match="it has no documents"):
        store = tl.build(scratch / "none.jsonl", scratch / "s", tokenizer="bytes", append=True)
    assert (store.snapshot, store.num_documents) == (2, 1)
    assert not read_everything(scratch / "s").errors


@pytest.mark.filterwarnings("ignore:.*nothing to train on")
@pytest.mark.parametrize("texts", [[""], ["", "", ""], ["a"], ["a", "b"], ["", "a", "", "b", ""]])
@pytest.mark.parametrize("inner", [1, 2, 64])
def test_d10_empty_and_one_token_documents_are_kept(texts, inner, scratch):
    rows = [{"text": text} for text in texts]
    store = tl.build(rows, scratch / "s", tokenizer="bytes", inner=inner, files=QUICK)
    assert store.num_documents == len(texts)
    assert store.lengths.tolist() == [len(text) for text in texts]
    assert [d.tolist() for d in store.documents(range(len(texts)))] == [
        list(text.encode()) for text in texts
    ]
    assert store.tokens(0, store.num_tokens).tolist() == list("".join(texts).encode())
    assert [store.metadata(i)["_record"] for i in range(len(texts))] == list(range(len(texts)))
    reading = read_everything(scratch / "s")
    assert not reading.errors


def test_d10_documents_end_exactly_at_shards_and_chunks(scratch):
    """Lengths around one chunk (64) and one shard (128), so that every border is hit exactly."""
    lengths = [63, 64, 65, 127, 128, 129, 0, 1, 128, 128, 0, 64, 64]
    rows = [{"input_ids": [i] * n} for i, n in enumerate(lengths)]
    store = tl.build(
        rows,
        scratch / "s",
        tokenizer=None,
        vocab_size=20,
        inner=64,
        shard_tokens=128,
        chunk_tokens=64,
        files=QUICK,
    )
    assert store.lengths.tolist() == lengths
    for i, n in enumerate(lengths):
        assert store.document(i).tolist() == [i] * n
    assert not read_everything(scratch / "s").errors


# -- large ---------------------------------------------------------------------------------


def check_tokens(store, places, around=5):
    """Ranges around these addresses, one by one and all together, against the formula."""
    ranges = []
    for place in places:
        for a, b in itertools.combinations(range(place - around, place + around + 1), 2):
            if 0 <= a <= b <= store.num_tokens:
                ranges.append((a, b))
    for a, b in ranges:
        assert store.tokens(a, b).tolist() == value(np.arange(a, b)).tolist(), (a, b)
    start, stop = np.array(ranges).T
    views = store.reader.read(start, stop)
    expected = np.concatenate([value(np.arange(a, b)) for a, b in ranges])
    assert np.concatenate(views).tolist() == expected.tolist()


def test_d10_a_shard_of_the_largest_size_is_read_right_around_every_border(scratch):
    virtual = VirtualStore([(3, LARGEST)])
    store = tl.open(virtual.write_manifest(scratch / "s"), source=virtual, verify="never")
    check_tokens(store, [0, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, LARGEST])
    start, stop = store.reader.bounds(np.arange(3))
    assert start.tolist() == offset([0, 1, 2], 3, LARGEST).tolist()
    assert stop.tolist() == offset([1, 2, 3], 3, LARGEST).tolist()


def test_d10_a_store_beyond_2_to_the_40_tokens_is_read_right_around_every_border(scratch):
    sizes = [LARGEST - number for number in range(260)]
    virtual = VirtualStore([(5, tokens) for tokens in sizes])
    store = tl.open(virtual.write_manifest(scratch / "s"), source=virtual, verify="never")
    edges = np.cumsum([0, *sizes]).tolist()
    assert store.num_tokens == edges[-1] > 1 << 40
    powers = [(1 << n) + d for n in (31, 32, 33, 40) for d in (-1, 0, 1)]
    check_tokens(store, [0, *powers, edges[1], edges[2], edges[128], edges[-2], edges[-1]], 2)
    # one range over two whole borders, and a document on each side of every one
    documents = np.array([4, 5, 639, 640, 1299])
    start, stop = store.reader.bounds(documents)
    shard, local = documents // 5, documents % 5
    for i in range(len(documents)):
        tokens = sizes[shard[i]]
        assert start[i] == edges[shard[i]] + int(offset(local[i], 5, tokens))
        assert stop[i] == edges[shard[i]] + int(offset(local[i] + 1, 5, tokens))
    last = edges[-1]
    assert store.tokens(last - 3, last).tolist() == value(np.arange(last - 3, last)).tolist()
    with pytest.raises(IndexError):
        store.tokens(last - 1, last + 1)


def test_d10_more_than_2_to_the_31_documents_in_one_shard(scratch):
    documents = (1 << 31) + 1
    virtual = VirtualStore([(documents, LARGEST)])
    store = tl.open(virtual.write_manifest(scratch / "s"), source=virtual, verify="never")
    assert store.num_documents == documents
    some = np.array([0, 1, (1 << 31) - 1, 1 << 31])
    start, stop = store.reader.bounds(some)
    assert start.tolist() == offset(some, documents, LARGEST).tolist()
    assert stop.tolist() == offset(some + 1, documents, LARGEST).tolist()
    assert int(stop[-1]) == LARGEST
    got = store.documents(some)
    for i, tokens in enumerate(got):
        assert tokens.tolist() == value(np.arange(int(start[i]), int(stop[i]))).tolist()
    with pytest.raises(IndexError, match=r"2147483649|2,147,483,649"):
        store.document(documents)


def test_d10_more_than_2_to_the_31_documents_over_many_shards(scratch):
    each = 1 << 24
    virtual = VirtualStore([(each, 1000 + number) for number in range(130)])
    store = tl.open(virtual.write_manifest(scratch / "s"), source=virtual, verify="never")
    assert store.num_documents > 1 << 31
    for document in ((1 << 31) - 1, 1 << 31, (1 << 31) + 1, store.num_documents - 1):
        shard, local = divmod(document, each)
        base = sum(1000 + number for number in range(shard))
        a = base + int(offset(local, each, 1000 + shard))
        b = base + int(offset(local + 1, each, 1000 + shard))
        assert store.document(document).tolist() == value(np.arange(a, b)).tolist()


def test_d10_a_sparse_file_of_2_to_the_32_tokens_is_read_through_the_disk(tmp_path):
    places = [0, (1 << 31) - 1, 1 << 31, (1 << 31) + (1 << 30), LARGEST]
    virtual = VirtualStore([(2, LARGEST)])
    write_sparse(virtual, tmp_path / "s", places)
    assert (tmp_path / "s/shard-00000/input_ids/c/0").stat().st_blocks < 1000
    store = tl.open(tmp_path / "s", verify="never", cache_bytes=0)
    for place in places:
        a, b = max(0, place - 30), min(place + 30, LARGEST)
        assert store.tokens(a, b).tolist() == value(np.arange(a, b)).tolist()
    assert store.vocab_size == VOCAB
    assert len(store.documents([])) == 0


def test_d10_the_writer_refuses_what_the_format_cannot_hold(scratch):
    with pytest.raises(tl.ConfigError, match="shard_tokens"):
        tl.build([{"text": "a"}], scratch / "s", tokenizer="bytes", shard_tokens=1 << 28)
    with pytest.raises(tl.ConfigError, match="vocab_size"):
        tl.build([{"input_ids": [1]}], scratch / "s", tokenizer=None, vocab_size=(1 << 31) + 1)
