"""How many values of a loss column are not zero, in any stretch, by reading two pieces of it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import quick_folder
from toystore import random_shards, toy

import tokenloom as tl
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived.loss_counts import LossCounter, loss_counts
from tokenloom.testing import FaultSource
from tokenloom.testing.stores import write_store

COLUMNS = {
    "loss_mask": ("uint8", lambda ids: ids % 3 == 0),
    "loss_weights": ("float32", lambda ids: (ids % 4) / 8),
    "part": ("uint8", lambda ids: ids % 5),
}


@given(st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=8), st.integers(1, 7))
def test_a_column_in_any_pieces_has_the_counts_before_every_nth_value(pieces, step):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fmt, "COUNT_TOKENS", step)
        counter = LossCounter()
        found = [int(one) for piece in pieces for one in counter.append(np.array(piece, np.int8))]
    whole = list(itertools.chain(*pieces))
    assert found == [sum(v != 0 for v in whole[:i]) for i in range(0, len(whole), step)]
    assert counter.total == sum(v != 0 for v in whole)


@pytest.fixture(scope="module")
def large():
    """Four shards, one of them empty, of thousands of tokens: several counts a shard."""
    random = np.random.default_rng(5)
    shards = [
        [random.integers(0, 1000, 1500).tolist() for _ in range(count)] for count in (4, 2, 0, 3)
    ]
    shards[1] = [[7] * 1024, [8] * 1024]  # ends where a count ends
    with quick_folder() as folder:
        write_store(folder / "s", shards, columns=COLUMNS)
        yield tl.open(folder / "s", cache_bytes=0)


@pytest.mark.parametrize("column", ["loss_mask", "loss_weights"])
def test_the_counts_of_stretches_are_those_of_their_values(large, column):
    values = large.tokens(0, large.num_tokens, column)
    random = np.random.default_rng(6)
    edges = [0, large.num_tokens, *large.reader.first_token.tolist()]
    edges += [e + d for e in edges for d in (-1, 1, 1024) if 0 <= e + d <= large.num_tokens]
    edges += random.integers(0, large.num_tokens + 1, 200).tolist()
    pairs = random.permutation([sorted(pair) for pair in zip(edges, edges[::-1], strict=True)])
    found = loss_counts(large.reader, column, pairs[:, 0], pairs[:, 1])
    assert found.tolist() == [int(np.count_nonzero(values[a:b])) for a, b in pairs.tolist()]
    assert loss_counts(large.reader, column, pairs[:0, 0], pairs[:0, 1]).tolist() == []


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 50))
def test_counts_are_right_for_any_distance_of_counts_and_chunks(a, b, step):
    with pytest.MonkeyPatch.context() as patch, quick_folder() as folder:
        patch.setattr(fmt, "COUNT_TOKENS", step)
        store = toy(folder / "s", random_shards(8), columns=COLUMNS)
        start, stop = sorted(min(one, store.num_tokens) for one in (a, b))
        found = loss_counts(store.reader, "loss_mask", np.array([start]), np.array([stop]))
        expected = np.count_nonzero(store.tokens(start, stop, "loss_mask"))
        assert found.tolist() == [expected]


@pytest.mark.parametrize(
    ("start", "stop", "pieces"),
    [
        (0, 7_000_000, 1),  # one end on a count, in the middle of a chunk
        (1, 7_000_001, 2),
        (5_000_000, 5_000_400, 1),  # both in one chunk
        (1024, 10 * 1024, 0),
        (0, 8_000_000, 0),
        (3, 3, 1),
    ],
)
def test_a_count_reads_two_pieces_of_the_column_at_most(tmp_path_factory, start, stop, pieces):
    store = self_made(tmp_path_factory)
    source = FaultSource(LocalSource(store.path))
    reader = tl.open(store.path, cache_bytes=1 << 20, source=source).reader
    reader.shard(0)
    source.requests.clear()
    found = loss_counts(reader, "loss_mask", np.array([start]), np.array([stop]))
    assert found.tolist() == [(stop + 2) // 3 - (start + 2) // 3]
    asked = [one for request in source.requests for one in request]
    assert sum("loss_mask/c/0" in name for name, _, _ in asked) == pieces
    assert sum("loss_mask_counts" in name for name, _, _ in asked) <= 2
    assert not [name for name, _, _ in asked if "input_ids" in name]


def self_made(tmp_path_factory, made=[]):  # noqa: B006 - one store of 8 million tokens is enough
    if not made:
        from tokenloom.store.files import LOCAL
        from tokenloom.store.writer import ShardWriter, publish_manifest
        from tokenloom.testing.stores import first_manifest

        root = tmp_path_factory.mktemp("counts")
        writer = ShardWriter(LOCAL, root, 0, dtype="uint16", columns={"loss_mask": "uint8"})
        ids = np.zeros(8_000_000, np.uint16)
        mask = (np.arange(8_000_000) % 3 == 0).astype(np.uint8)
        writer.append(ids, np.array([8_000_000]), {"loss_mask": mask})
        entry = writer.commit(fingerprint="0" * 64, engine="none", progress={})
        manifest = first_manifest([entry], vocab_size=1, columns={"loss_mask": "uint8"})
        publish_manifest(LOCAL, root, manifest)
        made.append(tl.open(root))
    return made[0]


def test_a_store_without_that_loss_column_says_so(tmp_path):
    store = toy(tmp_path / "s", [[[1, 2]]], columns={"part": COLUMNS["part"]})
    one = np.array([0])
    with pytest.raises(tl.ConfigError, match=r"column 'loss_mask'.*no loss column"):
        loss_counts(store.reader, "loss_mask", one, one)
    store = toy(tmp_path / "t", [[[1, 2]]], columns=COLUMNS)
    with pytest.raises(tl.ConfigError, match="allowed: loss_mask, loss_weights"):
        loss_counts(store.reader, "part", one, one)


def test_verify_finds_counts_that_are_not_those_of_the_column(tmp_path, monkeypatch):
    right = LossCounter.append
    monkeypatch.setattr(LossCounter, "append", lambda self, values: right(self, values) + 1)
    toy(tmp_path / "s", random_shards(9), columns=COLUMNS)
    monkeypatch.setattr(LossCounter, "append", right)
    with pytest.raises(tl.StoreCorrupt, match="shard-00002/loss_weights_counts: its counts are"):
        tl.open(tmp_path / "s").verify()


def test_counts_that_run_backwards_are_refused(tmp_path, monkeypatch):
    right = LossCounter.append

    def wrong(self, values):
        return right(self, values)[::-1].copy()

    monkeypatch.setattr(LossCounter, "append", wrong)
    monkeypatch.setattr(fmt, "COUNT_TOKENS", 4)
    store = toy(tmp_path / "s", [[list(range(60))]], columns=COLUMNS, inner=128)
    with pytest.raises(tl.StoreCorrupt, match="loss_mask_counts: its counts run backwards"):
        loss_counts(store.reader, "loss_mask", np.array([1]), np.array([50]))
