"""Mixes where several things meet: growth in growth, one cache for many runs, far places."""

import itertools
import json

import numpy as np
import pytest
from toystore import keep_plans

import tokenloom as tl

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


def test_epochs_of_splices_train_other_numbers_of_tokens_if_a_column_says_which(tmp_path):
    """They have equally many tokens; a total of the first epoch once stood for all of them."""
    draw = np.random.default_rng(7)
    ids = [draw.integers(1, 900, n).tolist() for n in (5, 30, 9, 17, 23, 8, 12)]
    records = [{"input_ids": one, "loss_weights": [(t % 4) / 2 for t in one]} for one in ids]
    store = tl.build(records, tmp_path / "s", tokenizer=None, vocab_size=900, progress=False)
    splices = store.splice(8, content_length=3, fill="pack", sampler="stream", epoch_length=9)
    sources = {"a": store.windows(8), "b": splices}
    sources = {name: one.epochs(None) for name, one in sources.items()}

    def fresh():
        return tl.mix(sources, rule="weights", cost="loss_tokens", weights={"a": 2.5, "b": 1.0})

    names, items = fresh().picked(range(200))
    for index in range(0, 200, 3):
        alone = fresh().picked([index])
        assert (alone[0][0], int(alone[1][0])) == (names[index], int(items[index]))
        assert fresh().index(names[index], [items[index]]).tolist() == [index]


def test_a_source_without_items_has_no_lanes_and_a_size(grown):
    (a,), (b,) = grown([16] * 20), grown([16] * 50)
    none = a.windows(16).block_shuffle(lanes=2).epochs(0)
    assert len(tl.mix({"a": none, "b": b.windows(16)}, stop="all_exhausted")) == 50
    growing = a.select(num_docs=2).splice(16, content_length=8, doc_growth={0: 1, 1: 2})
    for other, tokens in ((none, 20 * 16), (growing, 18 * 8)):
        mixed = tl.mix({"a": other, "b": b.windows(16)}, temperature=1.0)
        assert mixed.describe()["mix"]["weights"] == {"a": tokens / 800, "b": 1.0}


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


def test_states_of_many_sources_are_json(grown):
    (store,) = grown([64] * 4)
    mixed = tl.mix({f"s{i}": store.windows(64) for i in range(1200)})
    with tl.Loader(mixed, batch_size=4, prefetch=0) as loader:
        next(loader)
        state = json.loads(json.dumps(loader.state_dict()))
    with tl.Loader(mixed, batch_size=4, prefetch=0) as loader:
        loader.load_state_dict(state)
        assert json.loads(json.dumps(loader.state_dict())) == state


# -- far, late, many ---------------------------------------------------------------------------


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
