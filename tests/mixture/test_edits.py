"""Edits: nothing before `at` changes, and what comes after is the loop with changed weights."""

import hashlib
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slowmix import (
    SEQ_LEN,
    begin,
    lengths_of,
    listed,
    loop_of,
    picks_of,
    slow_rounds,
    tokens_of,
    toy,
)

import tokenloom as tl
from tokenloom.batch import plan as plan_module
from tokenloom.errors import ConfigError
from tokenloom.testing import assert_elastic, assert_resumable, tiny

pytestmark = pytest.mark.filterwarnings("ignore:edit.quarantine")

RULES = ("least_consumed", "weights", "round_robin", "rounds", "random")
BLOCK = 10


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("edits")
    stores = {
        "wiki": toy(root / "wiki", lengths_of(1, 40 * SEQ_LEN)),
        "code": toy(root / "code", lengths_of(2, 15 * SEQ_LEN + 3), first=400),
        "books": toy(root / "books", lengths_of(3, 200, most=8), first=600),
        "web": toy(root / "web", lengths_of(4, 180, most=11), first=10),
    }
    return {
        "wiki": stores["wiki"].windows(SEQ_LEN).shuffle().epochs(2),
        "code": stores["code"].windows(SEQ_LEN, tail="keep").shuffle().epochs(2),
        "books": stores["books"].pack(SEQ_LEN).shuffle().epochs(2),
        "web": stores["web"].pack(SEQ_LEN).shuffle().epochs(2),
    }


@pytest.fixture(scope="module")
def three(datasets):
    return {name: datasets[name] for name in ("wiki", "code", "books")}


def cost_of(rule):
    return "tokens" if rule == "least_consumed" else "rows"


def digest(mixed, first, last):
    """Of all that is trained in a stretch."""
    batch = mixed.batch(np.arange(first, last))
    made = hashlib.sha256()
    for name in ("tokens", "labels", "segment_ids", "position_ids", "loss_weights"):
        made.update(getattr(batch, name).tobytes())
    made.update(json.dumps(batch.source).encode())
    return made.hexdigest()


def joining(edited, name, cost, weight=1.0, stop="restart"):
    """A source for the loop, which joins."""
    run = edited.run.sources[edited.run.names.index(name)]
    each = listed(tokens_of(run, 12_000)) if cost == "tokens" else listed([1])
    declared = edited.sources[name].config.epochs * run.rows
    return begin(name, each, declared if stop == "all_exhausted" else None, weight, declared)


KINDS = {
    "weights": lambda mixed, at, web: mixed.edit(at=at, weights={"wiki": 0.25, "books": 3}),
    "add": lambda mixed, at, web: mixed.edit(at=at, add={"web": web}, weights={"web": 2}),
    "add plain": lambda mixed, at, web: mixed.edit(at=at, add={"web": web}),
    "remove": lambda mixed, at, web: mixed.edit(at=at, remove=["code"]),
    "all": lambda mixed, at, web: mixed.edit(
        at=at, add={"web": web}, remove=["wiki"], weights={"web": 0.5, "code": 2}
    ),
    "nothing": lambda mixed, at, web: mixed.edit(at=at),
}


def edit_loop(loop, kind, web):
    """The same for the loop."""
    if kind == "weights":
        loop.edit(weights={"wiki": 0.25, "books": 3.0})
    elif kind in ("add", "add plain"):
        loop.edit(add=[web])
    elif kind == "remove":
        loop.edit(remove=["code"])
    elif kind == "all":
        loop.edit(add=[web], remove=["wiki"], weights={"code": 2.0})
    else:
        loop.edit()


WEB_WEIGHT = {"add": 2.0, "all": 0.5}
WEIGHTED = ("weights", "add", "all")


@pytest.mark.parametrize("stop", ["restart", "first_exhausted", "all_exhausted"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_prefix_stays_and_the_rest_is_the_loop(datasets, three, kind, rule, stop):
    mixed = tl.mix(three, rule=rule, stop=stop, block=BLOCK).seed(3)
    cost = cost_of(rule)
    if rule == "round_robin" and kind in WEIGHTED:
        with pytest.raises(ConfigError, match=r"weights: found with rule='round_robin'"):
            KINDS[kind](mixed, 30, datasets["web"])
        return
    for at in (0, 40) if rule == "weights" else (30,):
        edited = KINDS[kind](mixed, at, datasets["web"])
        loop = loop_of(mixed, rule, cost=cost, stop=stop, seed=3)
        loop.run(at)
        web = None
        if "web" in edited.sources:
            web = joining(edited, "web", cost, WEB_WEIGHT.get(kind, 1.0), stop)
        edit_loop(loop, kind, web)
        picks = loop.run()
        if rule in ("rounds", "random"):
            picks = slow_rounds(picks, BLOCK, 4, shuffled=rule == "random", seed=3)
        assert len(edited) == len(picks)
        assert picks_of(edited) == picks
        if at:
            assert digest(edited, 0, at) == digest(mixed, 0, at)
        if kind == "nothing":
            assert picks_of(edited) == picks_of(mixed)
            assert digest(edited, 0, len(edited)) == digest(mixed, 0, len(mixed))
        else:
            assert picks_of(edited) != picks_of(mixed)


@settings(max_examples=12)
@given(
    st.sampled_from(["least_consumed", "weights"]),
    st.lists(
        st.tuples(
            st.integers(0, 25),
            st.dictionaries(
                st.sampled_from(["wiki", "code", "books"]),
                st.sampled_from([0.1, 1.0, 1 / 3, 2.0, 7.0]),
            ),
            st.sampled_from(["", "", "add", "code", "books"]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 5),
)
def test_several_edits_in_a_row_are_the_loop(datasets, three, rule, edits, seed):
    mixed = tl.mix(three, rule=rule).seed(seed)
    cost = cost_of(rule)
    loop = loop_of(mixed, rule, cost=cost, stop="restart", seed=seed)
    at, gone = 0, set()
    for further, weights, what in edits:
        if at + further > len(mixed):
            break
        at += further
        loop.run(further)
        options = {}
        if what == "add" and "web" not in mixed.sources:
            options["add"] = {"web": datasets["web"]}
        elif what in ("code", "books") and what not in gone:
            options["remove"] = [what]
            gone.add(what)
        fresh = {n: float(f"{w:.12g}") for n, w in weights.items() if n not in gone}
        options["weights"] = fresh
        before = picks_of(mixed, 0, at)
        mixed = mixed.edit(at=at, **options)
        added = [joining(mixed, "web", cost)] if "add" in options else []
        loop.edit(weights=fresh, add=added, remove=options.get("remove", ()))
        assert picks_of(mixed, 0, at) == before
    assert picks_of(mixed) == loop.run()
    items = list(range(0, 60, 7))
    wanted = {pick: index for index, pick in enumerate(loop.picks)}
    for place, name in enumerate(mixed.run.names):
        found = mixed.index(name, items).tolist()
        assert found == [wanted.get((place, item), -1) for item in items]
    for index in range(0, len(mixed) + 1, 11):
        rows = [one["rows"] for one in mixed.consumed(index)]
        drawn = [place for place, _ in loop.picks[:index]]
        assert rows == [drawn.count(place) for place in range(len(rows))]


def test_a_source_that_joins_late_does_not_catch_up(datasets, three):
    """After 150 examples it gets its share of the next ones, not all of them."""
    mixed = tl.mix({name: ds.epochs(None) for name, ds in three.items()})
    edited = mixed.edit(at=150, add={"web": datasets["web"].epochs(None)})
    names, _ = edited.picked(np.arange(150, 250))
    for n in range(1, 101):
        assert names[:n].count("web") <= n / 4 + 4
    assert 20 <= names.count("web") <= 45, "packed rows are shorter, so there are more of them"
    longest = max(len(run) for run in "".join(n[:3] for n in names).split("wik")) // 3
    assert longest < 20


def test_stages_are_edits(three):
    weights = {10: {"wiki": 3.0}, 30: {"wiki": 0.5, "code": 2.0}}
    staged = tl.mix(three, rule="weights", stages=weights)
    edited = tl.mix(three, rule="weights")
    for at, some in weights.items():
        edited = edited.edit(at=at, weights=some)
    assert staged.fingerprint == edited.fingerprint
    assert picks_of(staged) == picks_of(edited)


def test_laws_hold_for_an_edited_run(datasets, three):
    mixed = tl.mix(three, weights={"wiki": 2}).seed(1)
    edited = mixed.edit(at=13, weights={"books": 2}, quarantine=[("wiki", 2)])
    edited = edited.edit(at=27, add={"web": datasets["web"]}).edit(at=27, remove=["code"])
    assert_resumable(edited, batch_size=7, steps=7)
    assert_elastic(edited, (1, 3, 7), batch_size=7, steps=7)


@pytest.mark.parametrize("rule", RULES)
def test_what_comes_before_an_index_is_what_a_loop_has_drawn(datasets, three, rule):
    """Also of sources that are not there yet: they have shown nothing."""
    mixed = tl.mix(three, rule=rule, block=BLOCK).seed(5)
    assert mixed.run.n is not None  # made, so that an edit goes on from it
    edited = mixed.edit(at=20, add={"web": datasets["web"]}).edit(at=40, remove=["code"])
    for run in (edited.run, edited.take(33).run):
        n = run.n
        source, item = (one.tolist() for one in run.pick(np.arange(n)))
        places = {pair: index for index, pair in enumerate(zip(source, item, strict=True))}
        for number in range(len(run.sources)):
            came = sorted(k for one, k in places if one == number)
            for index in range(number % 2, n + 1, 3):
                first = next((k for k in came if places[number, k] >= index), len(came))
                found = run.items_before(number, index)
                assert found <= first
                if rule != "random":
                    assert found == first
            for k in range(len(came) + 2):
                later = [places[number, one] for one in came if one >= k]
                if later:
                    assert run.reaches(number, k)
                elif rule not in ("rounds", "random"):
                    assert not run.reaches(number, k)
                wanted = places.get((number, k), -1)
                assert run.index(number, np.array([k])).tolist() == [wanted]
        for index in range(n):
            later = [
                places[source[index], k]
                for k in range(item[index] + 1, item[index] + 40)
                if (source[index], k) in places
            ]
            assert min(later, default=n) >= min(run.settled(index), n)
        for examples in range(0, n + 1, 7):
            rows = [one.rows for one in run.consumed(examples)]
            assert rows == [source[:examples].count(s) for s in range(len(run.sources))]


@pytest.mark.parametrize("rule", RULES)
def test_items_that_never_come_have_no_index_in_a_run_shuffled_as_a_whole(three, rule):
    run = tl.mix(three, rule=rule, block=BLOCK, stop="first_exhausted").seed(5).shuffle().run
    source, item = (one.tolist() for one in run.pick(np.arange(run.n)))
    places = {pair: index for index, pair in enumerate(zip(source, item, strict=True))}
    for number in range(3):
        every = np.arange(run.n + 3)
        wanted = [places.get((number, k), -1) for k in every.tolist()]
        assert run.index(number, every).tolist() == wanted
        last = max(k for one, k in places if one == number)
        assert [run.reaches(number, k) for k in (0, last, last + BLOCK)] == [True, True, False]
        assert (run.items_before(number, 5), run.settled(5)) == (0, 0)


# -- quarantine ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wiki", "code", "books"])
def test_quarantined_documents_are_blank_from_there_on_and_only_there(three, name):
    mixed = tl.mix(three, rule="weights").seed(2)
    n, at = len(mixed), 60
    plain = mixed.batch(np.arange(n))
    spans = mixed.spans(np.arange(n))
    chosen = [2, 5]
    edited = mixed.edit(at=at, quarantine=[(name, document) for document in chosen])
    batch = edited.batch(np.arange(n))
    hidden = np.zeros((n, SEQ_LEN), bool)
    shown_before = 0
    for row, document, first, cells in zip(
        spans.row.tolist(),
        spans.document.tolist(),
        spans.at.tolist(),
        spans.cells.tolist(),
        strict=True,
    ):
        if plain.source[row] == name and document in chosen:
            if row >= at:
                hidden[row, first : first + cells] = True
            else:
                shown_before += 1
    assert hidden.any()
    assert shown_before
    assert np.array_equal(batch.tokens, np.where(hidden, 0, plain.tokens))
    assert np.array_equal(batch.attention_mask, plain.attention_mask & ~hidden)
    assert not (batch.labels[hidden] != -100).any()
    untouched = ~hidden.any(1)
    for array in ("tokens", "labels", "position_ids", "segment_ids", "loss_weights"):
        assert np.array_equal(getattr(batch, array)[untouched], getattr(plain, array)[untouched])
    assert picks_of(edited) == picks_of(mixed), "order stays"
    assert edited.consumed(n) == mixed.consumed(n), "counts and planned costs stay"
    report = tl.check_batch(batch)
    assert report.ok, report


def test_a_second_quarantine_does_not_lift_the_first(three):
    mixed = tl.mix(three, rule="weights")
    once = mixed.edit(at=20, quarantine=[("wiki", 3)])
    twice = once.edit(at=70, quarantine=[("wiki", 3), ("code", 1)])
    assert digest(once, 0, 70) == digest(twice, 0, 70)
    hidden = ~twice.batch(np.arange(70, len(twice))).attention_mask
    before = ~once.batch(np.arange(70, len(twice))).attention_mask
    assert (hidden & ~before).any()
    assert not (before & ~hidden).any()


def test_quarantine_through_the_loader_and_by_blocks(three):
    edited = tl.mix(three).edit(at=9, quarantine=[("books", 1), ("wiki", 0)])
    for fetch in ("blocks", "rows"):
        with tl.Loader(edited, 8, fetch=fetch, fields=("tokens", "labels", "loss_mask")) as loader:
            for batch in loader:
                alone = edited.batch(batch.index)
                assert np.array_equal(batch.tokens, alone.tokens)
                assert np.array_equal(batch.loss_mask, alone.loss_mask)


def test_few_documents_that_are_left_out_are_followed_to_their_rows(three, monkeypatch):
    monkeypatch.setattr(plan_module, "LOOKED_AT", 0)
    run, asked = three["books"].run, []
    inner = type(run.layout).spans
    count = lambda self, epoch, rows: asked.append(len(rows)) or inner(self, epoch, rows)  # noqa: E731
    monkeypatch.setattr(type(run.layout), "spans", count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tl.mix(three).edit(at=0, quarantine=[("books", 3)])
    assert 0 < sum(asked) < run.rows


def test_rows_that_are_wholly_blank_are_counted_and_warned_of(three):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        edited = tl.mix(three).edit(at=0, quarantine=[("books", d) for d in range(20)])
        batch = edited.batch(np.arange(len(edited)))
    assert (~batch.attention_mask.any(1)).any(), "they stay"
    assert any("blank" in str(one.message) for one in said)


@pytest.mark.parametrize(
    ("looked_at", "of", "followed"),
    [(1 << 22, "", 0), (17, " of the first 17", 0), (1 << 22, "", 64)],
)
def test_the_blank_rows_of_a_source_are_counted_to_the_row(
    three, monkeypatch, looked_at, of, followed
):
    monkeypatch.setattr(plan_module, "LOOKED_AT", looked_at)
    with tiny(followed_documents=followed, blank_chunk_rows=5):
        run = three["books"].run
        spans, hidden = run.layout.spans(0, np.arange(run.rows)), {*range(20), 40}
        rows = [set(spans.document[spans.row == row].tolist()) for row in range(run.rows)]
        blank = sum(documents <= hidden for documents in rows[:looked_at])
        assert 1 < blank < len(rows[:looked_at]), (
            "some rows of several blocks are blank, and not all"
        )
        with pytest.warns(
            UserWarning, match=f"quarantine: {blank} rows{of} of source 'books' will"
        ):
            tl.mix(three).edit(at=0, quarantine=[("books", d) for d in hidden])


# -- states --------------------------------------------------------------------------------


def state_of(mixed, steps, size=8):
    with tl.Loader(mixed, size, prefetch=0) as loader:
        for _ in range(steps):
            next(loader)
        return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_from_before_an_edit_goes_on_in_the_edited_run(datasets, three, kind):
    mixed = tl.mix(three).seed(4)
    state = state_of(mixed, 3)  # 24 examples
    for at in (24, 25, 60):
        edited = KINDS[kind](mixed, at, datasets["web"])
        later = edited.edit(at=80, weights={"books": 5})
        for run in (edited, later):
            with tl.Loader(run, 8, prefetch=0) as loader:
                loader.load_state_dict(state)
                assert loader.examples == 24
                for batch in list(loader)[:8]:
                    assert np.array_equal(batch.tokens, run.batch(batch.index).tokens)
        middle = state_of(edited, 9)
        with tl.Loader(later, 8) as loader:
            loader.load_state_dict(middle)
            assert loader.examples == 72


def test_a_state_that_an_edit_came_too_late_for_is_refused(three):
    mixed = tl.mix(three).seed(4)
    state = state_of(mixed, 3)
    edited = mixed.edit(at=23, weights={"wiki": 2})
    with pytest.raises(tl.StateError, match=r"(?s)edit.*23"):
        tl.Loader(edited, 8).load_state_dict(state)
    loader = tl.Loader(edited, 8)
    loader.load_state_dict(state, allow_mismatch=True)
    assert loader.examples == 24


def test_the_refusal_says_that_the_state_is_beyond_the_edit(three):
    mixed = tl.mix(three).seed(4)
    edited = mixed.edit(at=23, weights={"wiki": 2})
    with pytest.raises(tl.StateError) as refused:
        tl.Loader(edited, 8).load_state_dict(state_of(mixed, 3))
    assert "23" in str(refused.value)
    assert "24" in str(refused.value), "it says how far the state is"
    assert "this run has nothing" not in str(refused.value), "it has an edit"


def test_a_state_of_the_edited_run_is_refused_by_the_run_without_the_edit(three):
    mixed = tl.mix(three).seed(4)
    state = state_of(mixed.edit(at=16, weights={"wiki": 2}), 3)
    with pytest.raises(tl.StateError, match="edits"):
        tl.Loader(mixed, 8).load_state_dict(state)
    other = mixed.edit(at=16, weights={"wiki": 3})
    with pytest.raises(tl.StateError, match=r"edits.*wiki"):
        tl.Loader(other, 8).load_state_dict(state)


def test_other_masks_of_a_source_that_joined_before_the_state_are_refused(datasets, three):
    web = datasets["web"]
    state = state_of(tl.mix(three).edit(at=8, add={"web": web}), 3)
    other = tl.mix(three).edit(at=8, add={"web": web.render(mask_boundary_loss=False)})
    with pytest.raises(tl.StateError, match="rendered otherwise"):
        tl.Loader(other, 8).load_state_dict(state)


# -- what is refused -----------------------------------------------------------------------


def test_edits_that_cannot_be_are_refused_with_the_reason(datasets, three):
    mixed = tl.mix(three)
    n = len(mixed)
    with pytest.raises(tl.ConfigError, match="at=9 is before the last edit, at 10"):
        mixed.edit(at=10).edit(at=9)
    with pytest.raises(tl.ConfigError, match="after the end of the run"):
        mixed.edit(at=n + 1)
    assert len(mixed.edit(at=n)) == n
    with pytest.raises(tl.ConfigError, match=r"edit.at: found -1"):
        mixed.edit(at=-1)
    with pytest.raises(tl.ConfigError, match=r"edit.weights.wkii.*Did you mean 'wiki'"):
        mixed.edit(at=5, weights={"wkii": 1})
    with pytest.raises(tl.ConfigError, match=r"edit.remove.cod: .*Did you mean 'code'"):
        mixed.edit(at=5, remove=["cod"])
    with pytest.raises(tl.ConfigError, match=r"edit.quarantine.boks: .*Did you mean 'books'"):
        mixed.edit(at=5, quarantine=[("boks", 1)])
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(tl.ConfigError, match=r"edit.weights.wiki: found"):
            mixed.edit(at=5, weights={"wiki": wrong})
    for wrong in (-1, 10**6):
        with pytest.raises(IndexError, match=r"of wiki, allowed: 0 to \d+"):
            mixed.edit(at=5, quarantine=[("wiki", wrong)])
    with pytest.raises(tl.ConfigError, match="a source of that name already"):
        mixed.edit(at=5, add={"wiki": datasets["web"]})
    without = mixed.edit(at=5, remove=["code"])
    with pytest.raises(tl.ConfigError, match=r"edit.weights.code: no source"):
        without.edit(at=6, weights={"code": 2})
    with pytest.raises(tl.ConfigError, match=r"edit.remove.code: no source"):
        without.edit(at=6, remove=["code"])
    with pytest.raises(tl.ConfigError, match="differ in seq_len"):
        mixed.edit(at=5, add={"web": tl.open(datasets["web"].sources["main"].path).windows(4)})


def test_an_edit_behind_the_cut_is_refused(three):
    with pytest.raises(tl.ConfigError, match="after the end"):
        tl.mix(three).take(10).edit(at=20, weights={"wiki": 2})


def test_one_name_is_not_taken_for_its_letters(three):
    with pytest.raises((tl.ConfigError, TypeError), match="remove"):
        tl.mix({"w": three["wiki"], "k": three["code"]}).edit(at=5, remove="wk")


def test_an_edit_inside_a_block_is_refused_with_its_edges(three):
    """Ruling 13: at block edges only, for every kind of edit; the other rules take any index."""
    for rule in ("rounds", "random"):
        mixed = tl.mix(three, rule=rule, block=16)
        for at in range(16, 49):
            if at % 16:
                low = at // 16 * 16
                words = rf"inside a block of 16 .* its edges, {low} or {low + 16}\. The rules"
                with pytest.raises(tl.ConfigError, match=words):
                    mixed.edit(at=at, weights={"wiki": 2})
            else:
                edited = mixed.edit(at=at, weights={"wiki": 2})
                assert edited.picked(range(at))[0] == mixed.picked(range(at))[0]
        for change in ({"remove": ["code"]}, {"quarantine": [("wiki", 0)]}, {}):
            with pytest.raises(tl.ConfigError, match="inside a block"):
                mixed.edit(at=33, **change)
    for rule in ("weights", "least_consumed"):
        assert tl.mix(three, rule=rule, block=16).edit(at=33, weights={"wiki": 2}).is_finite


def test_a_mix_prints_the_seeds_and_the_weights_that_hold_after_its_edits(datasets, three):
    mixed = tl.mix({**three, "code": three["code"].seed(5)}, weights={"wiki": 2}).seed(7)

    def told(run):
        lines = repr(run).splitlines()
        found = {}
        for line in lines:
            words = line.lstrip("├└│─ ")
            name = words.split(":")[0]
            if name in run.sources:
                found[name] = words.split(": ", 1)[1].rpartition(", ")[0]
                last = name
            elif words.startswith("order"):
                found[last] += ", " + words.rpartition(", ")[2]
        return found

    assert told(mixed) == {
        "wiki": "weight 2 (50.0%), seed 7",
        "code": "weight 1 (25.0%), seed 5",
        "books": "weight 1 (25.0%), seed 7",
    }
    edited = mixed.edit(at=30, weights={"wiki": 6})
    assert told(edited)["wiki"] == "weight 6 (75.0%) from 30 on, seed 7"
    assert told(edited)["books"] == "weight 1 (12.5%) from 30 on, seed 7"
    joined = edited.edit(at=40, add={"web": datasets["web"]}, weights={"web": 2}, remove=["code"])
    assert told(joined) == {
        "wiki": "weight 6 (66.7%) from 40 on, seed 7",
        "code": "removed at 40, seed 5",
        "books": "weight 1 (11.1%) from 40 on, seed 7",
        "web": "weight 2 (22.2%) from 40 on, seed 7",
    }
    blank = joined.edit(at=50, quarantine=[("wiki", 0)])
    assert told(blank) == told(joined)


@pytest.mark.parametrize("wrong", [{"weights": {"wiki": 5}}, {"weights": {}}])
def test_weights_inside_weights_are_answered_with_what_to_write(three, wrong):
    inner = dict(wrong["weights"])
    with pytest.raises(ConfigError) as caught:
        tl.mix(three, stages={0: {"wiki": 1}, 40: wrong})
    assert str(caught.value).startswith(f"stages.40: weights: found {wrong}, allowed: the weights")
    assert f"themselves, {inner};" in str(caught.value)
    with pytest.raises(ConfigError, match=r"edit\.weights: found .* allowed: the weights them"):
        tl.mix(three).edit(at=40, weights=wrong)
    planned = tl.mix(three, stages={40: {"wiki": 5}, 0: {"wiki": 1}})
    assert planned == tl.mix(three).edit(at=0, weights={"wiki": 1}).edit(at=40, weights={"wiki": 5})


def test_an_endless_source_cannot_join_what_stops_when_all_are_exhausted(datasets, three):
    mixed = tl.mix(three, stop="all_exhausted")
    with pytest.raises(tl.ConfigError, match="'web' is endless"):
        mixed.edit(at=5, add={"web": datasets["web"].epochs(None)})


def test_a_seed_or_a_shuffle_after_an_edit_is_refused(three):
    edited = tl.mix(three).edit(at=5, weights={"wiki": 2})
    with pytest.raises(tl.ConfigError, match=r"seed: this run was edited.*before .edit"):
        edited.seed(3)
    with pytest.raises(tl.ConfigError, match="shuffle: this mix was edited"):
        edited.shuffle()


def test_a_run_that_is_shuffled_as_a_whole_refuses_edits(three):
    with pytest.raises(tl.ConfigError, match="shuffled as a whole"):
        tl.mix(three).shuffle().edit(at=5, weights={"wiki": 2})


def test_all_sources_gone_is_the_end(three):
    edited = tl.mix(three).edit(at=20, remove=list(three))
    assert len(edited) == 20
    with tl.Loader(edited, 8, end="pad") as loader:
        assert [batch.index.tolist()[-1] for batch in loader] == [7, 15, -1]


# -- what is written -----------------------------------------------------------------------


def test_edits_are_listed_in_the_description_and_come_back(datasets, three):
    mixed = tl.mix(three).seed(2)
    edited = mixed.edit(at=10, weights={"wiki": 2})
    edited = edited.edit(at=20, add={"web": datasets["web"]}, weights={"web": 1 / 3})
    edited = edited.edit(at=30, remove=["code"], quarantine=[("wiki", 4)])
    told = json.loads(json.dumps(edited.describe()))
    edits = told["mix"]["edits"]
    assert [edit["at"] for edit in edits] == [10, 20, 30]
    assert edits[0]["weights"] == {"wiki": 2.0}
    assert edits[1]["add"] == ["web"]
    assert edits[1]["weights"] == {"web": 0.333333333333}
    assert edits[2]["remove"] == ["code"]
    assert edits[2]["quarantine"] == [["wiki", 4]]
    again = tl.from_config(told)
    assert again.fingerprint == edited.fingerprint
    assert json.loads(json.dumps(again.describe())) == told
    assert digest(again, 0, len(again)) == digest(edited, 0, len(edited))
    further = again.edit(at=40, weights={"wiki": 1})
    assert digest(further, 0, 40) == digest(edited, 0, 40)
    assert "at 10" in repr(edited)


def test_every_edit_changes_the_fingerprint_and_a_path_does_not(datasets, three):
    mixed = tl.mix(three).seed(2)
    seen = {mixed.fingerprint}
    for kind in KINDS:
        for at in (5, 6):
            seen.add(KINDS[kind](mixed, at, datasets["web"]).fingerprint)
    seen.add(mixed.edit(at=5, quarantine=[("wiki", 1)]).fingerprint)
    seen.add(mixed.edit(at=5, quarantine=[("wiki", 2)]).fingerprint)
    assert len(seen) == 1 + 2 * len(KINDS) + 2


@tiny(mix_chunk_items=16, mix_single_items=0)
def test_an_edit_at_the_begin_of_a_later_chunk(three):
    """Stretches of 16 examples are computed together; edits lie on and next to their edges."""
    mixed = tl.mix(three).seed(1)
    loop = loop_of(mixed, "least_consumed", cost="tokens", stop="restart", seed=1)
    at = 0
    for further, weight in ((15, 2.0), (1, 3.0), (1, 0.5), (15, 1.0), (0, 4.0), (31, 0.1)):
        at += further
        loop.run(further)
        loop.edit(weights={"code": weight})
        mixed = mixed.edit(at=at, weights={"code": weight})
    picks = loop.run()
    assert picks_of(mixed) == picks
    for index in np.random.default_rng(0).permutation(len(picks))[:60].tolist():
        assert picks_of(mixed, index, index + 1) == [picks[index]]
