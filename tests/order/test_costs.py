"""What rows cost, added up at any place: closed forms, sums, what is remembered of them."""

import itertools
import json
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.trained import TrainedCount
from tokenloom.limits import limits
from tokenloom.order.closed_costs import EqualCosts, ShortLastCosts
from tokenloom.order.costs import SummedCosts
from tokenloom.order.prices import RunPrices, TokenCount, costs_of, examples_for
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

SIZES = [[3, 9, 1, 5, 30], [7] * 12, [2, 40, 8]]


def summed(values):
    return [0, *itertools.accumulate(values)]


@given(
    usual=st.integers(1, 9),
    short=st.integers(0, 9),
    rows=st.integers(2, 6),
    places=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    n=st.none() | st.integers(0, 7),
)
def test_one_short_row_an_epoch_is_the_loop(usual, short, rows, places, n):
    """C(k), the items and the inverse equal a list, wherever the short row is."""
    short = min(short, usual)
    places = [place % rows for place in places]
    costs = ShortLastCosts(usual, short, rows, places.__getitem__, n)
    each = [short if i == place else usual for place in places for i in range(rows)]
    ends = summed(each)
    assert [costs.upto(k) for k in range(len(ends) - 1)] == ends[:-1]
    pairs = list(zip(ends, each, strict=False))
    assert [costs.one(k) for k in range(len(each))] == pairs
    for first in range(0, len(each), 3):
        assert costs.items(first, len(each)).tolist() == each[first:]
    most = len(each) if n is None else n
    for cost in [*range(ends[-2]), 0.5, 1.5, ends[-2] - 0.5]:
        wanted = sum(1 for end in ends[:-1] if end < cost)
        assert costs.before(cost) == costs.near(cost) == min(wanted, most), cost


@given(st.integers(1, 9), st.none() | st.integers(0, 7))
def test_rows_that_cost_the_same_are_the_loop(cost, n):
    costs, ends = EqualCosts(cost, n), [cost * k for k in range(20)]
    assert [costs.one(k) for k in range(20)] == [(end, cost) for end in ends]
    assert [costs.upto(k) for k in range(20)] == ends
    assert costs.items(3, 7).tolist() == [cost] * 4
    assert (costs.items(3, 3).tolist(), costs.mean, costs.most) == ([], cost, cost)
    most = 20 if n is None else n
    for asked in [-3, *range(18 * cost), 0.5, 1.5, cost - 0.25, cost + 0.25]:
        wanted = min(sum(end < asked for end in ends), most)
        assert costs.before(asked) == costs.near(asked) == wanted, asked


def test_that_the_short_row_matters():
    """Control: without it the sums are others."""
    costs = ShortLastCosts(10, 4, 3, lambda epoch: 1, None)
    assert costs.upto(2) == 14 != 2 * 10


# -- tokens of runs ------------------------------------------------------------------------

SPECIALS = {"add_bos": True, "bos_id": 1, "add_eos": True, "eos_id": 2}
WAYS = {
    "windows": lambda store: store.windows(8),
    "windows, tail kept": lambda store: store.windows(8, tail="keep"),
    "packed": lambda store: store.pack(16),
    "packed, specials": lambda store: store.pack(16, **SPECIALS),
    "packed, look-ahead": lambda store: store.pack(16, label_layout="shifted"),
    "sequential": lambda store: store.pack(16, strategy="sequential", label_layout="shifted"),
    "chosen": lambda store: store.select(doc_index=[3, 4, 9], num_docs=3).pack(16, group_docs=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["stored", "full", "block"])
@tiny(cost_chunk_items=5, cost_stride_items=4)
def test_tokens_of_the_first_examples_are_those_of_a_loop(way, order):
    """In whatever order they are asked for, over three epochs."""
    with ToyStore(numbered(SIZES)) as toy:
        ds = WAYS[way](toy.store).epochs(3)
        if order != "stored":
            ds = ds.shuffle() if order == "full" else ds.block_shuffle(window_blocks=2)
        each = [frame_tokens(ds, i) for i in range(len(ds))]
        wanted = summed(each)
        asked = [0, 3, 4, 11, 2, len(ds), len(ds) // 2, *range(len(ds) + 1)]
        assert [ds.tokens_in(k) for k in asked] == [wanted[k] for k in asked]
        fresh = [TokenCount(ds.run).upto(k) for k in range(len(ds) + 1)]
        assert fresh == wanted
        assert ds.take(tokens=wanted[7]).run.n == wanted.index(wanted[7])


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


def test_nothing_asked_is_nothing_counted():
    """Also where rows are found by floor sums, which once looped endlessly."""
    with ToyStore(numbered([[23, 9], [14, 3]])) as toy:
        ds = toy.store.splice(10, content_length=5, offset_jitter=3, alpha=0.8)
        assert ds.tokens_in(0) == 0
        assert len(ds.run.layout.costs(0, np.empty(0, np.int64))) == 0


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


class Asked(RunPrices):
    """Counts the rows whose price was asked for."""

    rows = 0

    def prices(self, first, last):
        self.rows += last - first
        return super().prices(first, last)

    def by_rows(self, epoch, stride, reach):
        found = super().by_rows(epoch, stride, reach)
        self.rows += 0 if found is None else self._run.rows
        return found


def sums_of(ds, epoch=0, **options):
    priced = Asked(ds.run, 1, **options)
    costs = SummedCosts(priced, None)
    return costs._sums_of(epoch).tolist(), priced.rows


class InOrder(RunPrices):
    """Prices that are added up in the order in which they come."""

    def by_rows(self, epoch, stride, reach):
        return None


@pytest.mark.parametrize("kind", ["shuffle", "block_shuffle", "stored"])
@pytest.mark.parametrize("least", [0, 1, 5])
@tiny(cost_chunk_items=5)
def test_sums_by_rows_are_the_sums_by_order(folder, kind, least):
    """Added up where rows lie together, or one after the other as they come: the same numbers."""
    with ToyStore(numbered(SIZES)) as toy:
        ds = toy.store.pack(16, overflow="split")
        ds = ds if kind == "stored" else getattr(ds, kind)().seed(4)
        reached = []
        for epoch in (0, 1, 7):
            wanted = SummedCosts(InOrder(ds.run, least), None)._added_up(epoch).tolist()
            priced = RunPrices(ds.run, least)
            assert SummedCosts(priced, None)._added_up(epoch).tolist() == wanted
            found = priced.by_rows(epoch, limits().cost_stride_items, reached.append)
            assert (found is None) == (kind == "block_shuffle"), "blocks keep rows together"
            if least < 2:
                assert ds.run.layout.total(least) == wanted[-1]
        assert set(reached[-1:]) <= {ds.run.rows}


def files(folder, kind):
    return sorted(folder.glob(f"{kind}-*.ints"))


@tiny(reproved_places=1)
def test_sums_are_worked_out_once_for_each_source_and_epoch(folder):
    """Ruling 23: by everything that decides them; random stretches are looked at again."""
    with ToyStore(numbered(SIZES)) as toy:
        ds = toy.store.pack(16).shuffle().seed(1)
        found, asked = sums_of(ds)
        assert asked == ds.run.rows
        again, looked_at = sums_of(ds)
        assert again == found
        assert 0 < looked_at <= 4
        assert len(files(folder, "sums")) == 1
        chosen = toy.store.select(doc_index=list(range(9)), num_docs=9)
        others = [
            sums_of(ds, 1),
            sums_of(ds.seed(2)),
            sums_of(ds.block_shuffle(window_blocks=1)),
            sums_of(toy.store.pack(16, strategy="greedy").shuffle().seed(1)),
            sums_of(chosen.pack(16).shuffle().seed(1)),
            sums_of(ds, count=TrainedCount(RenderSpec())),
            sums_of(ds, count=TrainedCount(RenderSpec(mask_boundary_loss=False))),
        ]
        assert len(files(folder, "sums")) == 1 + len(others)
        assert len(files(folder, "trained")) == 2


def test_another_order_version_finds_nothing_that_was_remembered(folder, monkeypatch):
    """Ruling 18: the version is in the key of every plan cache, so no old rows are believed."""
    with ToyStore(numbered(SIZES)) as toy:

        def names():
            for made in (toy.store.pack(16), toy.store.splice(8, edge="clip", fill="pack")):
                sums_of(made.shuffle().seed(1))
                sums_of(made.shuffle().seed(1), count=TrainedCount(RenderSpec()))
            return {path.name for path in folder.iterdir()}

        before = names()
        assert {name.split("-")[0] for name in before} >= {"sums", "trained", "pack", "packed"}
        assert names() == before
        monkeypatch.setattr(plan_cache, "ORDER_VERSION", 10**6)
        after = names() - before
        assert len(after) == len(before)


def test_a_mix_in_another_process_finds_its_sums(folder):
    """The same names, the same runs: nothing is added up twice."""
    with ToyStore(numbered(SIZES)) as toy:

        def mixed(seed=0):
            sources = {"a": toy.store.pack(16), "b": toy.store.windows(16)}
            return tl.mix({n: ds.shuffle().epochs(None) for n, ds in sources.items()}).seed(seed)

        mixed().picked(range(40))  # the first items need only their own prices
        assert not files(folder, "sums")
        far = range(10**6, 10**6 + 8)
        first = mixed().picked(far)
        before = files(folder, "sums")
        assert before
        again = mixed().picked(far)
        assert (again[0], again[1].tolist()) == (first[0], first[1].tolist())
        assert files(folder, "sums") == before
        mixed(seed=1).picked(far)  # control: another order has sums of its own
        assert len(files(folder, "sums")) > len(before)


def damaged_arrays(raw):
    head, body = raw.split(b"\n", 1)
    told = json.loads(head)

    def with_head(body=body, **fields):
        digest = plan_cache.hashlib.sha256(body).hexdigest()
        return json.dumps(told | {"sha256": digest} | fields).encode() + b"\n" + body

    more = np.frombuffer(body, told["kind"]) + 1
    return {
        "nothing": b"",
        "cut": raw[:-3],
        "no head": body,
        "no JSON": b"{\n" + body,
        "a flipped bit": raw[:-1] + bytes([raw[-1] ^ 1]),
        "another identity": with_head(identity="0" * 64),
        "another kind": with_head(kind="<f8"),
        "objects": with_head(kind="|O"),
        "fewer items": with_head(items=told["items"] - 1),
        "more items": with_head(items=told["items"] + 1),
        "negative": with_head(items=-1),
        "a text": with_head(items="9"),
        "summed again": with_head(more.tobytes()),
        "one item, summed again": with_head(body[: np.dtype(told["kind"]).itemsize], items=1),
    }


@pytest.mark.parametrize("kind", ["sums", "packed-tokens", "trained"])
def test_a_wrong_file_is_worked_out_again(folder, kind, caplog):
    with ToyStore(numbered(SIZES)) as toy:

        def found():
            ds = toy.store.pack(16).shuffle()
            options = {"count": TrainedCount(RenderSpec())} if kind == "trained" else {}
            costs = ds.run.layout.costs(0, np.arange(ds.run.rows)).tolist()
            return [*sums_of(ds, **options)[0], *costs]

        right = found()
        (path,) = files(folder, kind)
        raw = path.read_bytes()
        for name, wrong in damaged_arrays(raw).items():
            path.write_bytes(wrong)
            assert found() == right, name
            assert path.read_bytes() == raw, name


def test_where_nothing_can_be_kept_it_is_in_memory(folder, caplog):
    folder.write_text("in the way")
    with caplog.at_level(logging.INFO, "tokenloom"), ToyStore(numbered(SIZES)) as toy:
        ds = toy.store.pack(16).shuffle()
        assert ds.tokens_in(ds.run.rows) == sum(map(sum, SIZES))
        assert sums_of(ds)[0][-1] == sum(map(sum, SIZES))
    assert "kept in memory only" in caplog.text


def test_costs_are_closed_forms_where_rows_are_equal():
    """No sums for windows, kept tails included, however many rows."""
    with ToyStore(numbered(SIZES)) as toy:
        for options in ({}, {"tail": "keep"}):
            run = toy.store.windows(8, **options).shuffle().run
            assert not isinstance(costs_of(run, "tokens", None), SummedCosts)
        assert isinstance(costs_of(toy.store.pack(8).run, "tokens", None), SummedCosts)


@given(
    st.lists(st.integers(0, 9), max_size=20),
    st.integers(0, 120),
    st.none() | st.integers(0, 20),
    st.booleans(),
)
def test_examples_for_some_tokens_are_those_of_a_loop(prices, tokens, n, wide):
    """Prices are followed by ones; n examples at most."""
    sums = [0, *itertools.accumulate(prices)]

    def tokens_in(examples):
        return sums[min(examples, len(prices))] + max(0, examples - len(prices))

    wanted = 0
    while tokens_in(wanted) < tokens and (n is None or wanted < n):
        wanted += 1
    assert examples_for(np.int64(tokens) if wide else tokens, tokens_in, n) == wanted


@pytest.mark.parametrize("tokens", [-1, True, False, 1.0, "4", None, np.int64(-1)])
def test_what_is_no_number_of_tokens_is_refused(tokens):
    with pytest.raises(
        tl.ConfigError, match=r"take: found tokens=.*allowed: an integer, 0 or more"
    ):
        examples_for(tokens, lambda examples: examples, None)
