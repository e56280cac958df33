"""What rows cost, added up at any place: closed forms, sums, what is remembered of them."""

import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.order.prices import RunPrices
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

SIZES = [[3, 9, 1, 5, 30], [7] * 12, [2, 40, 8]]


# -- tokens of runs ------------------------------------------------------------------------


def frame_tokens(ds, index):
    """Stored tokens in a frame, cell by cell."""
    spans, count = ds.spans([index]), 0
    for at, length, flags in zip(spans.at, spans.length, spans.flags, strict=True):
        begin = int(at) + int(flags & 1)
        count += sum(1 for cell in range(begin, begin + int(length)) if cell < ds.seq_len)
    return count


def test_a_far_count_asks_for_no_plan_of_a_group(monkeypatch):
    """A state in the middle of a packed epoch is counted without planning its rows again."""
    with ToyStore(numbered([[7] * 400])) as toy:
        ds = toy.store.pack(16, group_docs=10).shuffle()
        with tiny(cost_chunk_items=5):

            def planned(*args):
                raise AssertionError("a group was planned")

            rows = ds.run.rows
            whole = ds.tokens_in(rows)
            monkeypatch.setattr("tokenloom.layout.pack.rows.group_rows", planned)
            assert (whole, ds.tokens_in(rows // 2) > 0) == (2800, True)
            with pytest.raises(AssertionError):  # control: a batch does plan
                ds[0]


def test_tokens_far_into_many_epochs_are_not_walked_through(monkeypatch):
    """A small source that comes again and again: two rows, a million epochs."""
    with ToyStore(numbered([[7, 9, 3]])) as toy:
        ds = toy.store.pack(16).shuffle().epochs(None)
        rows, tokens = ds.run.rows, ds.tokens_in(ds.run.rows)
        asked = []
        inner = RunPrices.prices
        monkeypatch.setattr(
            RunPrices, "prices", lambda self, a, b: asked.append(b - a) or inner(self, a, b)
        )
        assert ds.tokens_in(10**6 * rows) == 10**6 * tokens
        assert ds.tokens_in(10**6 * rows + 1) == 10**6 * tokens + frame_tokens(ds, 10**6 * rows)
        assert sum(asked) <= 4 * rows


# -- remembered ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    with keep_plans(tmp_path / "cache", cost_stride_items=4) as made:
        yield made


def mixed(toy):
    sources = {"a": toy.store.pack(16).shuffle(), "b": toy.store.windows(16).shuffle()}
    return tl.mix({n: ds.epochs(None) for n, ds in sources.items()}, cost="loss_tokens").seed(1)


def test_another_order_version_finds_nothing_that_was_kept(folder, monkeypatch):
    """Ruling 18: the version is in the key of every plan cache, so no old rows are believed."""
    with ToyStore(numbered(SIZES)) as toy:
        first = mixed(toy).consumed(10**6)
        before = {path.name for path in folder.iterdir()}
        monkeypatch.setattr(plan_cache, "ORDER_VERSION", 10**6)
        assert mixed(toy).consumed(10**6) == first
        after = {path.name for path in folder.iterdir()} - before
        assert len(after) == len(before)
