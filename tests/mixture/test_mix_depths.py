"""Mixes where several things meet: growth in growth, one cache for many runs, far places."""

import itertools
import threading

import numpy as np
import pytest
from toystore import keep_plans

import tokenloom as tl
from tokenloom.batch.trained import TrainedCount
from tokenloom.layout.layout import Phases
from tokenloom.limits import limits
from tokenloom.loader.state import read_state, write_state
from tokenloom.order import shuffle as shuffle_module
from tokenloom.order.costs import Priced, SummedCosts
from tokenloom.order.epochs import FreshEpochs
from tokenloom.order.prices import RunPrices
from tokenloom.streams.interleaved import interleave
from tokenloom.testing import tiny

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:edit.quarantine")


@pytest.fixture
def grown(tmp_path):
    """Snapshots of a store; token = number of the document."""
    names = itertools.count()

    def build(*parts, **options):
        folder, made, first = tmp_path / f"s{next(names)}", [], 0
        for lengths in parts:
            rows = [
                {"input_ids": [(first + i) % 250] * n, "id": str(first + i)}
                for i, n in enumerate(lengths)
            ]
            options = {"chunk_tokens": 64, "inner": 16, **options, "append": bool(made)}
            tl.build(
                rows,
                folder,
                tokenizer=None,
                vocab_size=256,
                id_key="id",
                progress=False,
                **options,
            )
            made.append(tl.open(folder))
            first += len(lengths)
        return made

    return build


def lengths(count, seed, low=1, high=60):
    return np.random.default_rng(seed).integers(low, high, count).tolist()


def wrong_rows(run):
    """Rows that a loader gives otherwise than the run itself."""
    wanted = run.batch(range(len(run))).tokens
    with tl.Loader(run, batch_size=1) as loader:
        return sum(int((b.tokens[0] != wanted[b.index[0]]).any()) for b in loader)


# -- caches ------------------------------------------------------------------------------------


def test_grown_parts_of_one_store_do_not_share_blocks(grown):
    old, new = grown([16] * 40, [16] * 20)
    half = old.split({"x": 0.5, "y": 0.5}, seed=1)
    sources = {name: half[name].windows(16).block_shuffle() for name in "xy"}
    run = tl.mix(sources).seed(1).edit(at=6, append={"x": new, "y": new})
    assert wrong_rows(run) == 0
    assert len({one.layout.line.identity for one in run.run.sources}) == 2


def test_runs_that_grew_from_different_snapshots_do_not_share_blocks(grown):
    first, second, last = grown([16] * 43, [16] * 12, [16] * 26)
    for store in (first, second):
        run = tl.mix({"w": store.windows(24).block_shuffle()}).seed(1)
        assert wrong_rows(run.edit(at=6, append={"w": last})) == 0


@pytest.mark.parametrize("cost", ["tokens", "loss_tokens"])
def test_runs_with_one_cache_folder_are_those_without(grown, cost, tmp_path):
    """Everything that decides a sum is in its name: cold, warm, and next to others."""
    first, second, last = grown([10] * 80, lengths(30, 3), lengths(37, 4))
    half = first.split({"x": 0.5, "y": 0.5}, seed=1)
    bases = {
        "first": {"w": first.pack(64).shuffle()},
        "second": {"w": second.pack(64).shuffle()},
        "x": {"w": half["x"].pack(64).shuffle()},
        "y": {"w": half["y"].pack(64).shuffle()},
        "stored": {"w": first.pack(64)},
        "blocks": {"w": first.pack(64, group_docs=7).block_shuffle(window_blocks=2)},
        "sequential": {"w": first.pack(64, strategy="sequential").shuffle()},
        "masked": {"w": first.pack(64, mask_boundary_loss=False).shuffle()},
    }

    def picks():
        found = {}
        for name, sources in bases.items():
            other = {"o": second.windows(64, tail="keep").shuffle()}
            run = tl.mix(sources | other, cost=cost).seed(1)
            for kind, made in {
                "plain": run,
                "grown": run.edit(at=6, append={"w": last}),
                "other seed": tl.mix(sources | other, cost=cost).seed(2),
            }.items():
                some = made.picked(range(len(made)))
                counted = made.consumed(len(made) // 2)
                found[name, kind] = some[0], some[1].tolist(), counted
        return found

    wanted = picks()
    with keep_plans(tmp_path / "cache") as folder:
        assert picks() == wanted
        files = len(list(folder.iterdir()))
        assert files > len(bases)
        assert picks() == wanted, "from files"
        assert len(list(folder.iterdir())) == files


# -- growth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [5, 6, 9, 29, 30, 33])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_store_grows_while_the_last_growth_is_under_way(grown, second, shuffle):
    """20 rows, 10 more at 5, and 10 more: every row once an epoch, and nothing before changes."""
    stores = grown([16] * 20, [16] * 10, [16] * 10)
    ds = stores[0].windows(16).epochs(2)
    run = tl.mix({"w": ds.shuffle() if shuffle else ds}).seed(1)
    once = run.edit(at=5, append={"w": stores[1]})
    assert len(once) == 60
    twice = once.edit(at=second, append={"w": stores[2]})
    joined = 40 if second < 30 else 30  # rows of the first epoch
    assert len(twice) == joined + 40
    before, after = once.batch(range(second)), twice.batch(range(second))
    assert np.array_equal(before.tokens, after.tokens)
    shown = twice.batch(range(len(twice))).tokens[:, 0].tolist()
    assert sorted(shown[:joined]) == list(range(joined))
    assert sorted(shown[joined:]) == list(range(40))
    epochs = [twice.consumed(k)[0]["epochs"] for k in range(len(twice) + 1)]
    assert epochs == [0] * joined + [1] * 40 + [2]
    _, item = twice.picked(range(len(twice)))
    assert twice.index("w", item).tolist() == list(range(len(twice)))


def test_a_state_from_before_an_append_goes_on_with_blocks(grown):
    """Ruling 18: the numbers of the shuffle stay those that it had."""
    old, new = grown(lengths(200, 1), lengths(50, 2), chunk_tokens=512, inner=64)
    run = tl.mix({"w": old.windows(64).block_shuffle()}).seed(1)
    loader = tl.Loader(run, batch_size=8, prefetch=0)
    next(loader)
    edited = run.edit(at=40, append={"w": new})
    told = [ds.describe()["sources"][0]["shuffle"] for ds in (run, edited)]
    assert told[0] == told[1]
    tl.Loader(edited, batch_size=8).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("kind", ["pack", "windows"])
def test_a_grown_run_comes_back_from_its_description(grown, kind, monkeypatch):
    monkeypatch.setattr(shuffle_module, "BAND_TOKENS", 1 << 13)  # for 128 Mi tokens
    old, new = grown(lengths(400, 1), [5] * 70, chunk_tokens=512, inner=64)
    ds = old.pack(64, group_docs=20) if kind == "pack" else old.windows(64)
    edited = tl.mix({"w": ds.block_shuffle()}).seed(1).edit(at=50, append={"w": new})
    again = tl.from_config(edited.describe())
    assert edited.fingerprint == again.fingerprint
    every = range(len(edited))
    assert np.array_equal(edited.batch(every).tokens, again.batch(every).tokens)
    assert wrong_rows(again) == 0


@pytest.mark.parametrize(
    ("cap", "at", "rows"), [(0.5, 5, 15), (1.5, 25, 35), (1.5, 5, 45), (2.25, 45, 47), (2, 25, 50)]
)
def test_a_cap_counts_epochs_that_grew(grown, cap, at, rows):
    """20 rows an epoch, 30 in the one that grows and later: a part of an epoch is one of those."""
    old, new = grown([16] * 20, [16] * 10)
    run = tl.mix({"a": old.windows(16).epochs(None)}, max_epochs=cap)
    assert len(run.edit(at=at, append={"a": new})) == rows


def test_epochs_of_a_grown_source_are_counted_far_away(grown):
    old, new = grown([16] * 20, [16] * 10)
    run = tl.mix({"a": old.windows(16).epochs(None)}).edit(at=5, append={"a": new})
    assert run.consumed(3 * 10**11)[0]["epochs"] == 10**10


def test_documents_that_give_no_row_may_be_appended(grown):
    old, new = grown([20] * 10, [3])
    edited = tl.mix({"w": old.pack(16, min_len=10)}).edit(at=2, append={"w": new})
    assert wrong_rows(edited) == 0
    assert len(edited) == len(old.pack(16, min_len=10))


# -- lanes and ranks ---------------------------------------------------------------------------


def test_a_source_with_lanes_that_joins_leaves_earlier_steps_as_they_were(grown):
    (a,), (b,) = grown(lengths(200, 1)), grown(lengths(200, 2))
    run = tl.mix({"a": a.windows(32).shuffle()}).seed(1)
    edited = run.edit(at=40, add={"b": b.windows(32).block_shuffle(lanes=4)})
    for rank in range(2):
        some = [tl.Loader(ds, 8, rank=rank, world_size=2, prefetch=0) for ds in (run, edited)]
        for _ in range(5):
            one, other = (next(loader) for loader in some)
            assert one.index.tolist() == other.index.tolist()
            assert np.array_equal(one.labels, other.labels)
    later = next(some[1]).index.tolist()
    assert later != sorted(later), "the control: lanes are in use after the edit"


def test_ruling_5_fractions_count_from_the_very_example_at_which_lanes_join(grown):
    (a,), (b,) = grown(lengths(200, 1)), grown(lengths(200, 2))
    run = tl.mix({"a": a.windows(32).shuffle()}).seed(1)
    assert run.run.fractions(np.arange(9)) is None
    for at in (40, 41, 42):
        edited = run.edit(at=at, add={"b": b.windows(32).block_shuffle(lanes=4)}).run
        found = edited.fractions(np.arange(at + 40)).tolist()
        assert found[:at] == [0.0] * at
        source, item = (one.tolist() for one in edited.pick(np.arange(at + 40)))
        laned = edited.sources[1]
        for k in range(at, at + 40):
            if source[k] == 0:
                assert found[k] == (item[k] * 0x9E3779B97F4A7C15 % 2**64) / 2**64 > 0
            else:
                assert (
                    found[k]
                    == laned.fractions(np.array(item[k : k + 1]))[0]
                    in (0, 1 / 4, 2 / 4, 3 / 4)
                )
    first = tl.mix({"b": b.windows(32).block_shuffle(lanes=4), "a": a.windows(32)}).run
    assert first.fractions(np.arange(8)).any(), "where lanes are there from the start"


def test_rows_of_a_bridge_are_spread_over_the_ranks(grown):
    """Ruling 5: a row without a lane is at its golden place."""
    old, new = grown(lengths(200, 1), lengths(100, 2))
    run = tl.mix({"c": old.windows(32).block_shuffle(lanes=4)}).edit(at=40, append={"c": new})
    found = run.run.fractions(np.arange(40, 80))
    wanted = [(k * 0x9E3779B97F4A7C15 % 2**64) / 2**64 for k in range(40, 80)]
    assert found.tolist() == pytest.approx(wanted)


def test_a_rank_whose_share_is_filler_alone_has_all_arrays(grown):
    (a,), (b,) = grown(lengths(40, 1)), grown(lengths(40, 2))
    mixed = tl.mix({"a": a.windows(64), "b": b.windows(64)})
    loader = tl.Loader(mixed.take(17), 8, rank=1, world_size=2, end="pad", prefetch=0)
    loader.seek(2)
    batch = next(loader)
    assert batch.labels.shape == (4, 64)
    assert not batch.loss_mask.any()
    assert not batch.segment_ids.any()
    assert len(mixed.spans([])) == 0


# -- counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "shuffled", "rounds", "plain"])
def test_tokens_of_any_prefix_are_those_of_its_examples(grown, kind):
    (a,), (b,) = grown(lengths(120, 1)), grown(lengths(120, 2))
    both = {"a": a.pack(64, strategy="one_doc"), "b": b.pack(64, strategy="one_doc")}
    run = {
        "random": lambda: tl.mix(both, rule="random", block=32).seed(1),
        "rounds": lambda: tl.mix(both, rule="rounds", block=32).seed(1),
        "shuffled": lambda: tl.mix(both, stop="all_exhausted").seed(1).shuffle(),
        "plain": lambda: tl.mix(both).seed(1),
    }[kind]()
    batch = run.batch(range(len(run)))
    each = (batch.segment_ids > 0).sum(axis=1).tolist()
    sums = [0, *itertools.accumulate(each)]
    assert [run.tokens_in(k) for k in range(len(run) + 1)] == sums
    for k in range(0, len(run), 17):
        rows = {one["name"]: one["rows"] for one in run.consumed(k)}
        assert rows == {name: batch.source[:k].count(name) for name in "ab"}
    cut = run.take(tokens=1000)
    assert len(cut) == next(k for k, total in enumerate(sums) if total >= 1000)


@pytest.mark.parametrize("options", [{}, {"add_bos": True}, {"add_eos": True}], ids=repr)
@pytest.mark.parametrize("stride", [0, 1, 5])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("layout", ["aligned", "shifted"])
def test_loss_tokens_are_those_that_are_trained(grown, options, stride, masked, layout):
    """Strides repeat cells; the first of them was no target in the first place."""
    (store,) = grown(lengths(60, 1, 20, 200))
    ids = {"bos_id": 254} if "add_bos" in options else {"eos_id": 255} if options else {}
    ds = store.pack(
        64, stride=stride, mask_boundary_loss=masked, label_layout=layout, **options, **ids
    )
    trained = ds.batch(range(len(ds))).loss_mask.sum(axis=1).tolist()
    assert (
        RunPrices(ds.run, 0, TrainedCount(ds.sources["main"].render)).prices(0, len(ds)).tolist()
        == trained
    )


def test_counts_that_are_not_worth_a_file_have_no_digest(grown):
    (store,) = grown(lengths(60, 1, 20, 200))
    for ds in (store.windows(64), store.pack(64)):
        priced = RunPrices(ds.run, 0, TrainedCount(ds.sources["main"].render))
        assert priced.prices(0, len(ds)).sum() > 0
        assert priced.digests == ()


def test_a_source_without_items_has_no_lanes_and_a_size(grown):
    (a,), (b,) = grown([16] * 20), grown([16] * 50)
    none = a.windows(16).block_shuffle(lanes=2).epochs(0)
    assert len(tl.mix({"a": none, "b": b.windows(16)}, stop="all_exhausted")) == 50
    growing = a.select(num_docs=2).splice(16, content_length=8, doc_growth={0: 1, 1: 2})
    for other in (none, growing):
        weights = tl.mix({"a": other, "b": b.windows(16)}, temperature=1.0).rule.weights
        assert weights == {"a": other.run.rows * (16 if other is none else 8) / 800, "b": 1.0}


# -- identity ----------------------------------------------------------------------------------


def test_what_decides_the_order_is_in_the_fingerprint(grown):
    (a,), (b,) = grown(lengths(200, 1)), grown(lengths(200, 2))
    base = tl.mix({"a": a.pack(64)}, cost="loss_tokens").seed(1)
    one, other = (
        base.edit(at=10, add={"b": b.pack(64, mask_boundary_loss=m)}) for m in (True, False)
    )
    assert one.picked(range(60))[0] != other.picked(range(60))[0]
    assert one.fingerprint != other.fingerprint
    (small,) = grown(lengths(100, 4), chunk_tokens=256, inner=64)
    (large,) = grown(lengths(100, 4), chunk_tokens=512, inner=64)
    assert small.digest == large.digest
    aligned = [
        s.windows(64, align=True).block_shuffle(window_blocks=2).seed(1) for s in (small, large)
    ]
    assert aligned[0].fingerprint != aligned[1].fingerprint
    told = aligned[0].describe()
    again = tl.from_config(told, path=str(large.path))
    assert np.array_equal(again.batch(range(20)).tokens, aligned[0].batch(range(20)).tokens)


def test_states_of_many_sources_can_be_written(grown, tmp_path):
    (store,) = grown([64] * 4)
    mixed = tl.mix({f"s{i}": store.windows(64) for i in range(1200)})
    state = tl.Loader(mixed, batch_size=4, prefetch=0).state_dict()
    assert read_state(write_state(state, tmp_path / "state.json")) == state


# -- far, late, many ---------------------------------------------------------------------------


def test_places_that_cannot_be_counted_are_refused(grown):
    (store,) = grown([20000] * 4)
    run = tl.mix({"a": store.windows(8192).epochs(None)})
    assert run.picked([10**12])[1].tolist() == [10**12]
    with pytest.raises(IndexError, match="out of range"):
        run.picked([3 * 10**14])
    with pytest.raises(tl.ConfigError, match="further than a run can be counted"):
        run.edit(at=3 * 10**14)


def test_a_heavy_source_that_begins_late_is_not_listed_whole(grown):
    """It has consumed before what it weighs: nothing of it for 100,000 examples, then only it."""
    (a,), (b,) = grown(lengths(200, 1)), grown(lengths(200, 2))
    sources = {"a": a.windows(64).epochs(None), "b": b.windows(64).epochs(None)}
    run = tl.mix(sources, cost="rows", weights={"b": 1e9}, initial={"b": 10**14})
    names, item = run.picked(np.arange(99_990, 100_012))
    assert names[:10] == ["a"] * 10
    assert names.count("b") >= 10
    assert item[-1] == names.count("b") - 1


def test_weights_at_both_ends_of_what_is_allowed(grown):
    (a,), (b,) = grown(lengths(200, 1)), grown(lengths(200, 2))
    sources = {"a": a.pack(64).shuffle(), "b": b.windows(64, tail="keep").shuffle()}
    run = tl.mix(sources, weights={"a": 1e-12, "b": 1e12}, stop="all_exhausted")
    names, _ = run.picked(range(len(run)))
    rows = len(sources["b"])
    first = names.index("a")
    assert names == ["b"] * first + ["a"] + ["b"] * (rows - first) + ["a"] * (len(run) - rows - 1)


class _Unsteady(Priced):
    """Epochs whose prices differ."""

    identity = None
    most = 9
    phases = Phases.constant(7)

    def prices(self, first, last):
        k = np.arange(first, last)
        return 1 + (k // 7 + k) % 9

    def is_steady(self, epoch):
        return False


def test_unsteady_sums_from_many_threads():
    """A dictionary that one thread fills while another iterates over it would raise."""
    costs, wrong = SummedCosts(_Unsteady(), None), []
    wanted = np.concatenate([[0], np.cumsum(_Unsteady().prices(0, 70_000))])

    def ask(seed):
        try:
            for k in np.random.default_rng(seed).integers(0, 70_000, 200).tolist():
                assert costs.upto(k) == wanted[k]
        except (RuntimeError, AssertionError) as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_epochs_that_differ_are_added_up_many_at_a_time():
    """A seek asks for as many prices as there are rows, in few requests."""
    priced, asked = _Unsteady(), []
    inner = priced.prices
    priced.prices = lambda a, b: asked.append(b - a) or inner(a, b)
    SummedCosts(priced, None).upto(700_000)
    assert len(asked) < 20
    assert sum(asked) < 710_000
    assert max(asked) <= limits().cost_chunk_items


@pytest.mark.parametrize("way", ["block", "lanes", "era", "linear"])
def test_a_small_request_of_a_small_source_asks_for_few_epochs(grown, way, monkeypatch):
    (a,), (b,) = grown([16] * 2), grown([16] * 50)
    ds = a.windows(16).epochs(None)
    ds = {
        "block": lambda: ds.block_shuffle(),
        "lanes": lambda: ds.block_shuffle(lanes=2),
        "era": lambda: ds.shuffle(2),
        "linear": lambda: ds.shuffle(perm_type="levanter_linear"),
    }[way]()
    run = tl.mix({"a": ds, "b": b.windows(16).epochs(None)}).seed(1)
    asked, inner = [], FreshEpochs.rows_at
    monkeypatch.setattr(
        FreshEpochs, "rows_at", lambda self, e, x: asked.append(len(set(e))) or inner(self, e, x)
    )
    small = run.picked(range(3000))
    assert max(asked, default=0) <= 512
    with tiny(mix_chunk_epochs=1 << 20):
        again = tl.from_config(run.describe()).picked(range(3000))
        assert (small[0], small[1].tolist()) == (again[0], again[1].tolist())


def test_small_sources_with_many_epochs_are_planned_at_once(grown):
    """Two rows, 30,000 epochs in a request: the rows are those of the epochs one by one."""
    (store,) = grown([10, 20, 30])
    run = tl.mix({"a": store.pack(32).shuffle().epochs(None)}).seed(3)
    rows = len(store.pack(32))
    epoch, row = run.locate(range(60_000))
    assert epoch.tolist() == [k // rows for k in range(60_000)]
    source = run.run.sources[0]
    for one in (0, 1, 777, 29_999):
        here = row[one * rows : (one + 1) * rows]
        assert here.tolist() == source.order(one).map(np.arange(rows)).tolist()
    assert sum(one["tokens"] for one in run.consumed(60_000)) == 60_000 // rows * 60


# -- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", ["loss_tokens", len])
def test_offsets_do_not_say_what_another_cost_was(cost):
    from tokenloom.streams.checkpoint import Offset

    sources = {"a": [[1, 2]] * 9, "b": [[3]] * 9}
    with pytest.raises(tl.ConfigError, match=r"^offsets: they count rows and tokens, but the cost"):
        interleave(sources, cost=cost, offsets={"a": Offset(rows=2, tokens=4), "b": Offset()})
