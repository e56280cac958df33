"""A thousand sources: only those in a request cost anything, and those are asked together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.batch import together
from tokenloom.batch.read import RowReader
from tokenloom.documents.line import Line
from tokenloom.mixture import rows as tables
from tokenloom.order.run import SourceRun
from tokenloom.store.cache import BlockCache
from tokenloom.testing import tiny, write_store

SEQ = 4


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("many")
    made = []
    for number in range(48):
        sizes = np.random.default_rng(number).integers(1, 30, 12 + number)
        ids = [[(number * 97 + i) % 900 + 1] * int(size) for i, size in enumerate(sizes)]
        write_store(root / str(number), [ids], chunk_tokens=64, inner=16)
        made.append(tl.open(root / str(number)))
    return made


KINDS = {
    "stored": lambda store: store.windows(SEQ),
    "full": lambda store: store.windows(SEQ).shuffle(),
    "block": lambda store: store.windows(SEQ, tail="keep").block_shuffle(window_blocks=2),
    "lookahead": lambda store: store.windows(SEQ, lookahead=True).block_shuffle(window_blocks=2),
    "pack": lambda store: store.pack(SEQ).shuffle(),
    "align": lambda store: store.windows(SEQ, align=True).block_shuffle(window_blocks=2),
}


def mix_of(stores, kind, count=48, **options):
    some = {f"s{n}": KINDS[kind](one).epochs(None) for n, one in enumerate(stores[:count])}
    weights = np.random.default_rng(count).dirichlet(np.ones(count)) + 0.01
    shares = {name: float(w) for name, w in zip(some, weights, strict=True)}
    return tl.mix(some, weights=shares, **options).seed(5)


def placed_one_by_one(run, indices):
    """The obvious way: every source is asked for its own items."""
    source, item = run.pick(indices)
    out = np.empty((2, len(indices)), np.int64)
    for place, (number, one) in enumerate(zip(source.tolist(), item.tolist(), strict=True)):
        out[:, place] = [x[0] for x in run.sources[number].locate(np.array([one]))]
    return source, item, *out


@pytest.mark.parametrize("kind", ["stored", "full", "block", "pack"])
def test_rows_from_tables_are_those_of_each_source(stores, kind):
    run = mix_of(stores, kind).run
    random = np.random.default_rng(0)
    for first in (0, 100, 300, 290, 5000):
        for indices in (np.arange(first, first + 200), random.integers(first, first + 999, 150)):
            source, item, epoch, row = placed_one_by_one(run, indices)
            for part in run.placed(indices):
                assert (source[part.at] == part.number).all()
                assert part.at.tolist() == sorted(part.at.tolist())
                assert item[part.at].tolist() == part.item.tolist()
                assert epoch[part.at].tolist() == part.epoch.tolist()
                assert row[part.at].tolist() == part.row.tolist()
    assert run._rows._tables  # control: they were used


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 47), st.integers(0, 3000), st.integers(1, 9)), min_size=1),
    st.sampled_from(["full", "block"]),
)
def test_any_items_of_any_sources(stores, asked, kind):
    run = mix_of(stores, kind).run
    made = tables.RowTables(run.sources)
    wanted = {number: np.arange(first, first + count) for number, first, count in asked}
    for _ in range(2):  # from fresh tables, and from those that are there
        numbers = sorted(wanted)
        edges = np.cumsum([0, *(len(wanted[n]) for n in numbers)]).tolist()
        found = made.locate(numbers, edges, np.concatenate([wanted[n] for n in numbers]))
        for number, (epoch, row) in zip(numbers, found, strict=True):
            expected = run.sources[number].locate(wanted[number])
            assert epoch.tolist() == expected[0].tolist()
            assert row.tolist() == expected[1].tolist()


def test_sources_at_different_places_are_looked_up_in_tables(stores):
    """However far apart they are: only one that leaves its stretch is asked for single rows."""
    run = mix_of(stores, "full").run
    made = tables.RowTables(run.sources)
    asked = []

    class Asked:
        def __init__(self, number):
            self.number = number

        def __getattr__(self, name):
            asked.append((name, self.number))
            return getattr(run.sources[self.number], name)

    made._sources = [Asked(number) for number in range(len(run.sources))]
    stretch = int(made._size[0])
    places = [np.array([3, 5]), 2 * stretch + np.arange(4), np.array([stretch - 1, stretch])]
    found = made.locate([0, 1, 2], [0, 2, 6, 8], np.concatenate(places))
    for number, (epoch, row) in enumerate(found):
        expected = run.sources[number].locate(places[number])
        assert (epoch.tolist(), row.tolist()) == tuple(one.tolist() for one in expected)
    assert asked == [("rows_from", 0), ("rows_from", 1), ("locate", 2)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_batches_of_many_sources_are_those_of_the_run_itself(stores, kind):
    run = mix_of(stores, kind)
    every = run.batch(np.arange(480))
    for fetch in ("blocks", "rows", "auto"):
        loader = tl.Loader(run, batch_size=32, fetch=fetch)
        found = [next(loader) for _ in range(15)]
        assert np.concatenate([one.tokens for one in found]).tolist() == every.tokens.tolist()
        assert np.concatenate([one.index for one in found]).tolist() == list(range(480))
    arrays = tl.Loader(run, batch_size=96, fetch="blocks", fields=("labels", "segment_ids"))
    one = next(arrays)
    assert one.labels.tolist() == every.labels[:96].tolist()
    is_plain = kind in ("stored", "full", "block", "lookahead")
    reads = tl.Loader(run, batch_size=2, fetch="blocks")._maker.renderer._together
    assert (reads is not None) == is_plain


def test_a_hidden_document_is_read_source_by_source(stores):
    run = mix_of(stores, "full").edit(at=40, quarantine=[("s3", 1)])
    loader = tl.Loader(run, batch_size=32, fetch="blocks")
    assert loader._maker.renderer._together is None
    found = np.concatenate([next(loader).tokens for _ in range(9)])
    assert found.tolist() == run.batch(np.arange(288)).tokens.tolist()


@pytest.mark.parametrize("capacity", [0, 700, 1 << 20])
@pytest.mark.parametrize("kind", ["full", "block", "lookahead"])
def test_blocks_that_leave_the_cache_are_read_again(stores, kind, capacity):
    run, cache = mix_of(stores, kind), BlockCache(capacity)
    made, renderer = together.Together(run.run.sources, cache), run.renderer(by_blocks=True)
    width = run.run.width
    for first in (0, 50, 0, 600):
        plan = renderer.plan(np.arange(first, first + 90))
        for start, stop in ((0, 90), (20, 61), (7, 8)):
            found = made.fetched(plan, start, stop, "input_ids")
            cells = np.empty((stop - start, width), np.int32)
            found.copier().fill(cells, 0, stop - start, 0, 0)
            expected = renderer.batches(plan, [start, stop])[0].make()
            assert cells[:, : expected.tokens.shape[1]].tolist() == expected.tokens.tolist()
    assert made.at_hand(plan, 0, 90) == (capacity == 1 << 20)
    assert (cache.stats().evictions > 0) == (capacity == 700)


@pytest.mark.parametrize("kind", ["stored", "block", "lookahead"])
def test_what_is_read_together_is_what_each_source_would_read(stores, kind, monkeypatch):
    run, loaded = mix_of(stores, kind), []
    lines = {id(one.layout.line): number for number, one in enumerate(run.run.sources)}
    real = Line.load

    def load(self, start, stop, column):
        places = zip(start.tolist(), stop.tolist(), strict=True)
        loaded.extend((lines[id(self)], *place, column) for place in places)
        return real(self, start, stop, column)

    monkeypatch.setattr(Line, "load", load)
    made = together.Together(run.run.sources, BlockCache(1 << 20))
    plan = run.renderer(by_blocks=True).plan(np.arange(900))
    assert made.lacks(plan)
    made.fetched(plan, 0, 900, "input_ids")
    assert not made.lacks(plan)
    wanted = set()
    for number, row in zip(*(one.tolist() for one in plan.rows), strict=True):
        working = run.run.sources[number].working
        block = working.block_of(np.array([0]), np.array([row]))
        (first,), (last,) = (one.tolist() for one in working.stretch(block))
        wanted.add((number, first, last, "input_ids"))
    assert set(loaded) == wanted
    assert len(loaded) == len(wanted) > len(stores), "each block once, several of a source"
    loaded.clear()
    nothing = made.fetched(plan, 7, 7, "input_ids")
    assert (nothing.views, nothing.edges, len(nothing.cell)) == ([], [0], 0)
    assert not loaded
    assert not made.at_hand(plan, 7, 7)


@tiny(mix_chunk_items=1 << 16)
def test_small_sources_that_go_by_epochs_are_computed_in_smaller_chunks(stores):
    """512 epochs of the smallest at a time, but never fewer than 1,024 items."""
    rows = KINDS["block"](stores[0]).run.rows
    with tiny(mix_chunk_epochs=100):
        assert mix_of(stores, "full").run._chunk == 1 << 16, "all epochs of a full shuffle at once"
        assert mix_of(stores, "block", 2).run._chunk == 100 * rows > 1 << 10
        with tiny(mix_chunk_epochs=2):
            assert mix_of(stores, "block", 2).run._chunk == 1 << 10
            with tiny(mix_chunk_epochs=1 << 20):
                assert mix_of(stores, "block", 2).run._chunk == 1 << 16


def test_ranks_of_many_sources_share_every_step(stores):
    run = mix_of(stores, "block")
    every = run.batch(np.arange(300)).tokens
    loaders = [tl.Loader(run, 30, rank, 3, fetch="blocks") for rank in range(3)]
    found = [np.concatenate([next(one).tokens for one in loaders]) for _ in range(10)]
    assert np.concatenate(found).tolist() == every.tolist()


# -- counts: what doubles when the sources double, and what does not ------------------------------
def test_what_is_in_memory_is_looked_up_for_all_sources_at_once(stores, monkeypatch):
    run, asked = mix_of(stores, "block"), []
    real = RowReader.fetch_ahead

    def counting(self, *args, **options):
        asked.append(self)
        return real(self, *args, **options)

    monkeypatch.setattr(RowReader, "fetch_ahead", counting)
    renderer = run.renderer(by_blocks=True)
    plan = renderer.plan(np.arange(4000))
    renderer.batches(plan, [0, 4000])
    assert renderer.fetch_ahead(plan, ("tokens",)) == 0
    assert not asked
    renderer.cache.clear()
    assert renderer.fetch_ahead(plan, ("tokens",)) > 0  # control: then each source is asked
    assert len(asked) == len(plan.parts)


@pytest.fixture
def counted(monkeypatch):
    counts = dict.fromkeys(("locate", "rows_from", "fetched", "get_many"), 0)

    def count(owner, name):
        original = getattr(owner, name)

        def wrapped(*args, **options):
            counts[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    for owner, name in (
        (SourceRun, "locate"),
        (SourceRun, "rows_from"),
        (RowReader, "fetched"),
        (BlockCache, "get_many"),
    ):
        count(owner, name)
    return counts


def test_a_group_asks_the_cache_once_and_no_source(stores, counted):
    seen = []
    for sources in (24, 48):
        run = mix_of(stores, "full", sources)
        renderer = run.renderer(by_blocks=True)
        for first in (0, 400):  # everything near here is known then
            renderer.batches(renderer.plan(np.arange(first, first + 400)), [0, 400])
        before = dict(counted)
        renderer.batches(renderer.plan(np.arange(800, 1000)), [0, 100, 200])
        seen.append({name: counted[name] - before[name] for name in counted})
    for one in seen:
        assert one["fetched"] == 0
        assert one["get_many"] == 1
        assert one["locate"] + one["rows_from"] <= 12  # sources that entered another stretch


def test_control_few_sources_are_asked_one_by_one(stores, counted):
    run = mix_of(stores, "full", 5)
    renderer = run.renderer(by_blocks=True)
    renderer.batches(renderer.plan(np.arange(100)), [0, 100])
    assert counted["fetched"] == 5
    assert counted["locate"] == 5
    with tiny(min_mix_table_sources=2):
        run.run.placed(np.arange(100, 200))
        assert counted["rows_from"] >= 5


def test_sources_that_a_request_does_not_show_cost_nothing(stores, counted):
    run = mix_of(stores, "block")
    renderer = run.renderer(by_blocks=True)
    renderer.batches(renderer.plan(np.arange(7000, 7003)), [0, 3])
    assert counted["locate"] + counted["rows_from"] <= 3


@pytest.mark.parametrize("long", [1, 8, 256])
@pytest.mark.parametrize("kind", list(KINDS))
def test_rows_of_neighbours_are_those_of_any_items(stores, kind, long):
    with tiny(min_mapped_epoch_rows=long):
        run = KINDS[kind](stores[7]).epochs(None).seed(3).run
        for first, last in (
            (0, 0),
            (0, 1),
            (3, 3 * run.rows + 5),
            (run.rows, 2 * run.rows),
            (9, 11),
        ):
            epochs, rows = run.rows_from(first, last)
            expected = run.locate(np.arange(first, last))
            assert np.broadcast_to(epochs, len(rows)).tolist() == expected[0].tolist()
            assert rows.tolist() == expected[1].tolist()
            assert rows.dtype == np.int64
