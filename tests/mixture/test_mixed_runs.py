"""A mix as a dataset: its rows are the rows of its sources, and all laws of runs hold for it."""

import itertools
import json
import pickle

import numpy as np
import pytest
from slowmix import SEQ_LEN, lengths_of, loop_of, picks_of, toy, within

import tokenloom as tl
from tokenloom.batch.views.named import all_fields
from tokenloom.mixture.merge import Merge
from tokenloom.mixture.spec import MixSpec
from tokenloom.order import full
from tokenloom.order.run import SourceRun
from tokenloom.testing import assert_elastic, assert_resumable, tiny

ROWWISE = all_fields()[: all_fields().index("document_starts")]
RULES = ("least_consumed", "weights", "rounds", "random", "round_robin")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """uint16 and uint32, one with a loss column."""
    root = tmp_path_factory.mktemp("mixed")
    column = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)}
    return {
        "plain": toy(root / "plain", lengths_of(1, 20 * SEQ_LEN + 3)),
        "wide": toy(root / "wide", lengths_of(2, 170, most=12), first=70_000, vocab_size=90_000),
        "weighed": toy(root / "weighed", lengths_of(3, 150, most=9), columns=column),
        "long": toy(root / "long", lengths_of(4, 90, most=14), first=500),
    }


@pytest.fixture(scope="module")
def varied(stores):
    """Windows, packed and spliced rows, each rendered in its own way."""
    assert stores["plain"].dtype != stores["wide"].dtype
    return {
        "windows": stores["plain"].windows(SEQ_LEN, tail="keep").shuffle().epochs(2),
        "packed": stores["wide"].pack(SEQ_LEN).render(pad_id=7).shuffle(),
        "weighed": stores["weighed"].pack(SEQ_LEN, strategy="greedy").shuffle(),
        "spliced": stores["long"]
        .splice(SEQ_LEN, content_length=5, position_scheme="absolute", pad_id=909)
        .shuffle(),
    }


def mix_of(sources, **options):
    """A mix of stores with vocabularies of two sizes, and so of two dtypes."""
    return tl.mix(sources, different_tokenizers=True, **options)


@pytest.fixture(scope="module")
def simple(stores):
    return {
        "a": stores["plain"].windows(SEQ_LEN).shuffle(),
        "b": stores["weighed"].pack(SEQ_LEN).shuffle(),
        "c": stores["long"].windows(SEQ_LEN, tail="keep").shuffle().epochs(2),
    }


def alone_under(mixed, name):
    """A source by itself, with the name and the seed that it has in a mix."""
    told = mixed.describe()
    (source,) = [one for one in told["sources"] if one["name"] == name]
    head = {key: told[key] for key in ("format", "order_version")}
    return tl.from_config(head | source | {"epochs": None})


# -- rows ----------------------------------------------------------------------------------


def test_rows_of_a_mix_are_the_rows_of_its_sources(varied):
    mixed = mix_of(varied, weights={"spliced": 0.7}).seed(11)
    n = len(mixed)
    names, item = mixed.picked(np.arange(n))
    batch = mixed.batch(np.arange(n))
    assert batch.source == names
    assert set(names) == set(varied)
    for name in varied:
        here = np.flatnonzero(np.array(names) == name)
        lone = alone_under(mixed, name).batch(item[here])
        for array in ROWWISE:
            found, wanted = getattr(batch, array)[here], getattr(lone, array)
            assert found.dtype == wanted.dtype, (name, array)
            assert np.array_equal(found, wanted), (name, array)
        spans, own = mixed.spans(here), lone.spans
        for column in ("document", "start", "length", "at", "address", "flags", "row"):
            assert np.array_equal(getattr(spans, column), getattr(own, column)), (name, column)
    report = tl.check_batch(batch)
    assert report.ok, report


def test_different_ways_of_rendering_stand_in_one_batch(varied):
    mixed = mix_of(varied, rule="round_robin").seed(2)
    batch = mixed.batch(np.arange(len(mixed)))
    names = np.array(batch.source)
    spliced = names == "spliced"
    assert (batch.position_ids[spliced] == np.arange(SEQ_LEN)).all()
    filler = ~batch.attention_mask
    for name, pad in (("packed", 7), ("weighed", 0), ("spliced", 909), ("windows", 0)):
        cells = batch.tokens[names == name][filler[names == name]]
        assert cells.size
        assert (cells == pad).all()
    resets = batch.position_ids[names == "packed"][:, 1:] == 0
    assert resets.any()
    assert batch.tokens.dtype == np.int32
    assert batch.tokens.max() >= 70_000
    fractions = set(np.unique(batch.loss_weights).tolist())
    assert 0.5 in fractions, "stored weights of one source"
    others = batch.loss_weights[names != "weighed"]
    assert set(np.unique(others).tolist()) <= {0.0, 1.0}


def test_arrays_that_vary_in_shape_are_those_of_the_rows(varied):
    mixed = mix_of(varied, rule="weights").seed(2)
    indices = np.arange(len(mixed))
    batch = mixed.batch(indices)
    edges, cells = [], 0
    for index in indices.tolist():
        one = mixed[index]
        edges += (one.cu_seqlens[:-1] + cells).tolist()
        cells += SEQ_LEN
        begins = [at for at in batch.document_starts[index].tolist() if at >= 0]
        assert begins == [at for at in one.document_starts[0].tolist() if at >= 0]
        for array in ROWWISE:
            judged = ("labels", "loss_mask", "loss_weights")
            if array not in judged or one.trained().any():
                assert np.array_equal(getattr(batch, array)[index], getattr(one, array)[0]), array
    assert batch.cu_seqlens.tolist() == [*edges, cells]


@pytest.mark.parametrize("fetch", ["blocks", "rows"])
def test_the_loader_gives_the_same_rows_by_blocks_and_by_ranges(varied, fetch):
    mixed = mix_of(varied).seed(3)
    fields = ("tokens", "labels", "loss_weights", "segment_ids", "position_ids", "cu_seqlens")
    with tl.Loader(mixed, 12, fetch=fetch, fields=fields, end="pad") as loader:
        for batch in loader:
            real = batch.index >= 0
            alone = mixed.batch(batch.index[real])
            for array in fields[:-1]:
                assert np.array_equal(getattr(batch, array)[real], getattr(alone, array)), array
            assert not batch.loss_mask[~real].any()
            report = tl.check_batch(batch)
            assert report.ok, report


def test_any_list_of_indices_is_the_stack_of_singles(varied):
    mixed = mix_of(varied).seed(1)
    wanted = np.random.default_rng(0).integers(0, len(mixed), 40)
    batch = mixed.batch(wanted)
    for row, index in enumerate(wanted.tolist()):
        assert np.array_equal(batch.tokens[row], mixed[index].tokens[0])
        assert batch.source[row] == mixed[index].source[0]


def test_indices_out_of_the_run_are_refused(simple):
    mixed = tl.mix(simple)
    for wrong in (-1, len(mixed)):
        with pytest.raises(IndexError):
            mixed[wrong]


# -- costs of rows that differ between epochs ----------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"content_length": 5, "doc_growth": {0: 3, 1: 6, 3: 8}},
        {"content_length": 4, "sampler": "quota", "epoch_length": 17},
        {"edge": "clip", "content_length": 4, "fill": "pack", "sampler": "quota"},
        {"content_length": {0: 3, 25: 6}},
    ],
)
@pytest.mark.parametrize("rule", ["least_consumed", "weights"])
def test_sources_whose_epochs_differ_are_merged_as_the_loop_does(stores, rule, options):
    spliced = stores["long"].splice(SEQ_LEN, position_scheme="absolute", **options)
    sources = {
        "spliced": spliced.shuffle().epochs(None),
        "packed": stores["weighed"].pack(SEQ_LEN).shuffle().epochs(None),
    }
    mixed = tl.mix(sources, rule=rule, cost="tokens", weights={"spliced": 0.6}).seed(4)
    options = {"cost": "tokens", "weights": {"spliced": 0.6}, "seed": 4}
    picks = loop_of(mixed, rule, stop=None, most=200, **options).run(150)
    assert picks_of(mixed, 0, 150) == picks
    again = tl.mix(sources, rule=rule, cost="tokens", weights={"spliced": 0.6}).seed(4).take(900)
    for index in (149, 3, 77):
        assert picks_of(again, index, index + 1) == [picks[index]]
        place, item = picks[index]
        assert again.index(mixed.run.names[place], [item]).tolist() == [index]


def test_the_way_back_in_an_endless_mix(simple):
    endless = tl.mix({name: ds.epochs(None) for name, ds in simple.items()})
    names, item = endless.picked([100])
    with within(1):
        assert endless.index(names[0], item).tolist() == [100]


def test_chunks_are_seams_that_nobody_sees(simple, monkeypatch):
    for rule in RULES:
        whole = tl.mix(simple, rule=rule, block=6)
        known = picks_of(whole)
        for chunk, few in ((1, 0), (7, 3), (16, 1000)):
            with tiny(mix_chunk_items=chunk, mix_single_items=few):
                pieces = tl.mix(simple, rule=rule, block=6)
                assert picks_of(pieces) == known
                order = np.random.default_rng(chunk).permutation(len(known))
                source, item = pieces.run.pick(order)
                assert [(int(s), int(i)) for s, i in zip(source, item, strict=True)] == [
                    known[index] for index in order.tolist()
                ]
        monkeypatch.undo()


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_is_refused_where_it_is_given(seed):
    with pytest.raises(tl.ConfigError, match=f"seed: found {seed}, allowed: an integer from 0"):
        MixSpec(weights={"a": 1.0}, seed=seed)
    assert MixSpec(weights={"a": 1.0}, seed=(1 << 64) - 1).seed == (1 << 64) - 1


def test_a_mix_that_is_shuffled_as_a_whole_has_the_first_order_of_a_source_called_mix(simple):
    drawn = picks_of(tl.mix(simple).seed(3))
    order = full(len(drawn), seed=3, epoch=0, source="mix").map(np.arange(len(drawn)))
    assert picks_of(tl.mix(simple).seed(3).shuffle()) == [drawn[index] for index in order.tolist()]


@pytest.mark.parametrize("steps", [[1], [5, 9], [9, 5], [0, 3]])
def test_what_a_shuffled_mix_has_consumed_is_counted_from_its_first_example(simple, steps):
    mixed = tl.mix(simple).shuffle().seed(3)
    drawn = [place for place, _ in picks_of(mixed)]
    run = tl.mix(simple).shuffle().seed(3).run  # which has counted nothing yet
    for examples in steps:
        found = [one.rows for one in run.consumed(examples)]
        assert found == [drawn[:examples].count(place) for place in range(len(found))]


def test_the_digest_of_a_state_follows_from_what_each_source_has_shown(simple, monkeypatch):
    asked = []
    monkeypatch.setattr(SourceRun, "plan_digests", lambda _, items: asked.append(items) or ())
    run = tl.mix(simple).run
    for examples in (1, 30):
        asked.clear()
        run.arrays_digest(examples)
        assert asked == [max(1, one.rows) for one in run.consumed(examples)]
    assert max(asked) > 1


def test_a_few_far_indices_are_computed_alone_and_those_in_a_row_together(simple, monkeypatch):
    asked = []
    really = Merge.items

    def items(self, first, last):
        asked.append((first, last))
        return really(self, first, last)

    monkeypatch.setattr(Merge, "items", items)
    with tiny(mix_chunk_items=64):
        run = tl.mix({name: one.epochs(None) for name, one in simple.items()}).run
        assert run._chunk == 64

        def asked_for(*indices):
            asked.clear()
            run.pick(np.array(indices))
            return list(asked)

        assert asked_for(640, 650) == [(640, 641), (650, 651)]
        assert asked_for(0) == [(0, 64)]
        assert asked_for(1, 40) == []
        assert asked_for(64) == [(64, 128)]
        assert asked_for(200) == [(200, 201)]


# -- laws ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "cost", "stop"),
    [
        ("least_consumed", "tokens", "restart"),
        ("least_consumed", "rows", "all_exhausted"),
        ("weights", "tokens", "first_exhausted"),
        ("rounds", "rows", "restart"),
        ("random", "tokens", "all_exhausted"),
        ("round_robin", "rows", "first_exhausted"),
    ],
)
def test_resume_and_ranks(varied, rule, cost, stop):
    weights = None if rule == "round_robin" else {"packed": 2.0, "spliced": 0.5}
    mixed = mix_of(varied, rule=rule, cost=cost, stop=stop, weights=weights, block=9).seed(8)
    assert_resumable(mixed, batch_size=9, steps=3)
    assert_elastic(mixed, (1, 2, 9), batch_size=9, steps=3)


@pytest.mark.parametrize("rule", RULES)
def test_resume_at_every_index_is_the_continuous_run(simple, rule):
    """A fresh mix is asked for the rest from every index on."""
    options = {"rule": rule, "block": 7}
    known = picks_of(tl.mix(simple, **options))
    for index in range(len(known)):
        assert picks_of(tl.mix(simple, **options), index) == known[index:]


def test_lanes_in_one_source(stores, simple):
    lanes = stores["plain"].windows(SEQ_LEN).block_shuffle(window_blocks=1, lanes=3)
    mixed = tl.mix({"lanes": lanes, "b": simple["b"]}).seed(5)
    assert mixed.run.lanes == 3
    assert_elastic(mixed, (1, 2, 5, 8), batch_size=8, steps=4)
    assert_resumable(mixed, batch_size=6, steps=5)
    names, item = mixed.picked(np.arange(24))
    own = alone_under(mixed, "lanes").run
    fractions = [
        float(own.fractions(np.array([k]))[0])
        if name == "lanes"
        else (k * 0x9E3779B97F4A7C15 % 2**64) / 2**64
        for name, k in zip(names, item.tolist(), strict=True)
    ]
    with tl.Loader(mixed, 8, prefetch=0) as loader:
        for first in (0, 8, 16):
            wanted = sorted(range(first, first + 8), key=lambda i: (fractions[i], i))
            assert next(loader).index.tolist() == wanted


# -- identity ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_descriptions_and_pickles_give_the_same_run_back(varied, rule):
    mixed = mix_of(
        varied,
        rule=rule,
        max_epochs={"windows": 1.5},
        initial={"packed": 12},
        block=12,
        stop="first_exhausted",
    ).seed(9)
    told = json.loads(json.dumps(mixed.describe()))
    for again in (tl.from_config(told), pickle.loads(pickle.dumps(mixed))):
        assert again.fingerprint == mixed.fingerprint
        assert json.loads(json.dumps(again.describe())) == told
        assert picks_of(again) == picks_of(mixed)
        one, other = (ds.batch(np.arange(len(mixed))) for ds in (again, mixed))
        for array in ROWWISE:
            assert np.array_equal(getattr(one, array), getattr(other, array))


def test_a_moved_store_is_named_by_its_source(tmp_path, simple):
    extra = toy(tmp_path / "here", lengths_of(8, 100)).windows(SEQ_LEN)
    mixed = tl.mix({"a": simple["a"], "x": extra})
    told = mixed.describe()
    (tmp_path / "here").rename(tmp_path / "there")
    again = tl.from_config(told, path={"x": str(tmp_path / "there")})
    assert again.fingerprint == mixed.fingerprint
    assert np.array_equal(again.batch([0, 1, 2]).tokens.shape, (3, SEQ_LEN))
    with pytest.raises(tl.ConfigError, match="several stores"):
        tl.from_config(told, path=str(tmp_path / "there"))


def test_everything_that_decides_is_in_the_fingerprint(simple):
    base = {"rule": "weights"}
    changes = [
        {},
        {"weights": {"a": 2}},
        {"rule": "least_consumed"},
        {"cost": "tokens"},
        {"stop": "all_exhausted"},
        {"max_epochs": 3},
        {"initial": {"a": 1}},
        {"rule": "rounds", "block": 16},
        {"rule": "rounds", "block": 32},
        {"stages": {5: {"a": 3}}},
    ]
    seen = {tl.mix(simple, **(base | change)).fingerprint for change in changes}
    seen.add(tl.mix(simple, **base).seed(1).fingerprint)
    seen.add(tl.mix(simple, **base).shuffle().fingerprint)
    seen.add(tl.mix(simple | {"a": simple["a"].epochs(2)}, **base).fingerprint)
    assert len(seen) == len(changes) + 3
    assert tl.mix(simple, **base).take(5).fingerprint in seen  # but not where it ends
    assert tl.mix(simple, **base).fingerprint == tl.mix(simple, **base).fingerprint


def own_order(mixed, name, items=40):
    run = mixed.run.sources[mixed.run.names.index(name)]
    return [column.tolist() for column in run.locate(np.arange(items))]


def test_other_sources_leave_a_source_s_own_order_alone(varied):
    """Keys are by name."""
    three = {name: varied[name] for name in ("windows", "packed", "weighed")}
    mixes = [
        mix_of(three).seed(3),
        mix_of(varied).seed(3),
        tl.mix({name: varied[name] for name in ("spliced", "windows")}, rule="weights").seed(3),
        mix_of({name: varied[name] for name in reversed(list(varied))}).seed(3),
        mix_of(three).seed(3).edit(at=4, add={"spliced": varied["spliced"]}),
    ]
    orders = [own_order(mixed, "windows") for mixed in mixes]
    assert all(order == orders[0] for order in orders)
    renamed = tl.mix({"other": varied["windows"]}).seed(3)
    assert own_order(renamed, "other") != orders[0]


def test_the_nearest_seed_wins(varied):
    """Ruling 8: an inner explicit seed, else that of the mix, else 0."""
    source = varied["windows"]

    def order(inner, outer):
        made = tl.mix({"windows": source if inner is None else source.seed(inner)})
        return own_order(made if outer is None else made.seed(outer), "windows")

    assert order(5, None) == order(None, 5) == order(5, 9) == order(5, 5)
    assert order(None, 9) != order(5, 9)
    assert order(None, None) == order(None, 0) == order(0, 7)
    alone = source.seed(5).run.locate(np.arange(40))
    assert order(5, None) != [column.tolist() for column in alone], "alone it is called main"


def test_the_seed_of_the_mix_decides_ties_even_if_sources_have_their_own(simple):
    seeded = {name: ds.seed(1) for name, ds in simple.items()}
    ties = {tuple(tl.mix(seeded, cost="rows").seed(s).picked(np.arange(30))[0]) for s in range(6)}
    assert len(ties) == 6


# -- states --------------------------------------------------------------------------------


def test_a_state_of_another_mix_is_refused_and_names_the_key(simple):
    with tl.Loader(tl.mix(simple, weights={"a": 2}), 8) as loader:
        next(loader)
        state = loader.state_dict()
    with pytest.raises(tl.StateError, match=r"mix.weights.a: the state has 2.0, this run has 3.0"):
        tl.Loader(tl.mix(simple, weights={"a": 3}), 8).load_state_dict(state)
    two = {name: simple[name] for name in ("a", "b")}
    with pytest.raises(tl.StateError, match="another run"):
        tl.Loader(tl.mix(two), 8).load_state_dict(state)


def rendered_otherwise(simple):
    with tl.Loader(tl.mix(simple), 8) as loader:
        next(loader)
        state = loader.state_dict()
    other = tl.mix(simple | {"b": simple["b"].render(pad_id=3)})
    with pytest.raises(tl.StateError, match="rendered otherwise") as refused:
        tl.Loader(other, 8).load_state_dict(state)
    return str(refused.value)


def test_other_masks_of_one_source_are_refused(simple):
    assert "allow_mismatch" in rendered_otherwise(simple)


def test_other_masks_of_one_source_are_told(simple):
    assert "pad_id" in rendered_otherwise(simple)


# -- the whole, shuffled and cut -----------------------------------------------------------


def test_an_endless_mix_cannot_be_shuffled_as_a_whole(simple):
    endless = tl.mix(simple | {"a": simple["a"].epochs(None)})
    with pytest.raises((TypeError, tl.ConfigError), match="endless"):
        len(endless.shuffle())


def test_take_cuts_the_mix(simple):
    mixed = tl.mix(simple).seed(1)
    cut = mixed.take(13)
    assert len(cut) == 13
    assert picks_of(cut) == picks_of(mixed)[:13]
    with pytest.raises(IndexError):
        cut[13]
    assert len(mixed.take(10**6)) == len(mixed)
    endless = tl.mix({name: ds.epochs(None) for name, ds in simple.items()})
    assert len(endless.take(29)) == 29
    assert tl.from_config(cut.describe()) == cut != mixed
    assert cut.fingerprint == mixed.fingerprint  # where it ends is no part of it


def test_the_way_back_knows_of_the_cut(simple):
    mixed = tl.mix(simple).seed(1)
    cut, place = mixed.take(13), {pick: i for i, pick in enumerate(picks_of(mixed)[:13])}
    for number, name in enumerate(simple):
        found = cut.index(name, np.arange(20)).tolist()
        assert found == [place.get((number, item), -1) for item in range(20)]


def test_the_way_back_knows_of_the_cut_of_a_run_shuffled_as_a_whole(simple):
    shuffled = tl.mix(simple).seed(1).shuffle()
    cut, place = shuffled.take(13), {p: i for i, p in enumerate(picks_of(shuffled)[:13])}
    assert picks_of(cut) == picks_of(shuffled)[:13]
    for number, name in enumerate(simple):
        found = cut.index(name, np.arange(20)).tolist()
        assert found == [place.get((number, item), -1) for item in range(20)]


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_ends_are_those_of_any_dataset(varied, end):
    """Rows of all ranks, 1 to 16, for rows that are rendered in different ways."""
    mixed = mix_of(varied, stop="first_exhausted").seed(2).take(39)
    size, n = 16, len(mixed)
    assert n == 39
    steps = {"drop": 2, "pad": 3, "wrap": 5}[end]
    line = {
        "drop": list(range(32)),
        "pad": [*range(39), *[-1] * 9],
        "wrap": [i % 39 for i in range(80)],
    }[end]
    whole = mixed.batch(np.arange(n))
    for world in range(1, 17):
        ranks = [tl.Loader(mixed, size, r, world, end=end, prefetch=0) for r in range(world)]
        batches = [next(rank) for _, rank in itertools.product(range(steps), ranks)]
        index = np.concatenate([batch.index for batch in batches])
        assert index.tolist() == line
        if end != "wrap":
            assert all(next(rank, None) is None for rank in ranks)
        real = index >= 0
        for array in ("tokens", "position_ids", "segment_ids", "loss_weights"):
            found = np.concatenate([getattr(batch, array) for batch in batches])
            assert np.array_equal(found[real], getattr(whole, array)[index[real]]), array
        weights = np.concatenate([batch.loss_weights for batch in batches])
        assert not weights[~real].any()


def test_render_of_a_mix_is_for_all_sources(simple):
    mixed = tl.mix(simple).seed(1)
    other = mixed.render(position_scheme="absolute", pad_id=5)
    assert other.fingerprint == mixed.fingerprint
    batch = other.batch(np.arange(20))
    assert (batch.position_ids == np.arange(SEQ_LEN)).all()
    assert (batch.tokens[~batch.attention_mask] == 5).all()


def test_what_is_shown_names_sources_and_shares(simple):
    shown = repr(tl.mix(simple, weights={"a": 2}))
    assert "a: weight 2 (50.0%), 20 rows an epoch" in shown
    assert "mix     least_consumed by tokens, stop=restart, seed 0" in shown
