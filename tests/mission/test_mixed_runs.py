"""Mixes: rows of unlike sources in one batch, names and seeds, descriptions, states."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from mixtoys import SEQ_LEN, four_sources, lengths_of, picks_of, toy
from refusals import refused

import tokenloom as tl

ARRAYS = ("tokens", "labels", "loss_weights", "segment_ids", "position_ids", "attention_mask")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return four_sources(tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def three(four):
    return {name: four[name] for name in ("wiki", "code", "books")}


def again(run):
    """The run as it comes back from its description, by way of JSON text."""
    return tl.from_config(json.loads(json.dumps(run.describe(), allow_nan=False)))


def order_of(mixed, name, items=40):
    """(epoch, row) of the first items of a source."""
    epoch, row = mixed.locate(mixed.index(name, range(items)))
    return list(zip(epoch.tolist(), row.tolist(), strict=True))


def test_rows_of_sources_with_other_dtypes_columns_and_rendering_stand_in_one_batch(tmp_path):
    """uint16 and uint32 ids, stored weights, a pad id and positions of each source's own."""
    column = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)}
    wide = toy(tmp_path / "wide", lengths_of(2, 170, most=12), first=70_000, vocab_size=90_000)
    weighed = toy(tmp_path / "weighed", lengths_of(3, 150, most=9), columns=column)
    long = toy(tmp_path / "long", lengths_of(4, 90, most=14), first=500)
    sources = {
        "packed": wide.pack(SEQ_LEN).render(pad_id=7).shuffle(),
        "weighed": weighed.pack(SEQ_LEN, strategy="greedy").shuffle(),
        "spliced": long.splice(SEQ_LEN, content_length=5, position_scheme="absolute", pad_id=909),
    }
    assert wide.dtype != weighed.dtype
    mixed = tl.mix(sources, weights={"spliced": 0.7}, different_tokenizers=True).seed(11)
    described = mixed.describe()
    names, items = mixed.picked(range(len(mixed)))
    batch = mixed.batch(range(len(mixed)))
    assert set(names) == set(sources)
    head = {key: described[key] for key in ("format", "order_version")}
    for source in described["sources"]:  # each by itself, with its name and the seed of the mix
        alone = tl.from_config(head | source | {"epochs": None})
        here = np.flatnonzero(np.array(names) == source["name"])
        wanted = alone.batch(items[here])
        for name in ARRAYS:
            found = getattr(batch, name)[here]
            assert found.dtype == getattr(wanted, name).dtype
            assert np.array_equal(found, getattr(wanted, name)), (source["name"], name)
    assert tl.check_batch(batch).ok
    with tl.Loader(mixed, 12, fetch="rows", fields=ARRAYS) as loader:
        for some in loader:
            for name in ARRAYS:
                assert np.array_equal(getattr(some, name), getattr(batch, name)[some.index])


def test_rendering_a_mix_renders_all_its_sources(three):
    mixed = tl.mix(three).seed(1)
    other = mixed.render(position_scheme="absolute", pad_id=5)
    assert other.fingerprint == mixed.fingerprint
    batch = other.batch(range(60))
    assert (batch.position_ids == np.arange(SEQ_LEN)).all()
    assert (batch.tokens[~batch.attention_mask] == 5).all()


# -- names and seeds -----------------------------------------------------------------------


def test_other_sources_leave_the_order_of_a_source_alone(four, three):
    """Keys are by name."""
    mixes = [
        tl.mix(three).seed(3),
        tl.mix(four).seed(3),
        tl.mix({name: four[name] for name in ("web", "wiki")}, rule="weights").seed(3),
        tl.mix({name: four[name] for name in reversed(list(four))}).seed(3),
        tl.mix(three).seed(3).edit(at=4, add={"web": four["web"]}),
    ]
    orders = [order_of(mixed, "wiki") for mixed in mixes]
    assert all(order == orders[0] for order in orders)
    renamed = tl.mix({"other": four["wiki"]}).seed(3)
    assert order_of(renamed, "other") != orders[0]


def test_ruling_8_the_nearest_seed_wins(four):
    """An inner explicit seed, else that of the mix, else 0."""

    def order(inner, outer):
        source = four["wiki"] if inner is None else four["wiki"].seed(inner)
        mixed = tl.mix({"wiki": source})
        return order_of(mixed if outer is None else mixed.seed(outer), "wiki")

    assert order(5, None) == order(None, 5) == order(5, 9) == order(5, 5)
    assert order(None, 9) != order(5, 9)
    assert order(None, None) == order(None, 0) == order(0, 7)
    epoch, row = four["wiki"].seed(5).locate(range(40))
    alone = list(zip(epoch.tolist(), row.tolist(), strict=True))
    assert order(5, None) != alone, "alone it is called main"


def test_the_seed_of_the_mix_decides_ties_even_if_sources_have_their_own(three):
    seeded = {name: ds.seed(1) for name, ds in three.items()}
    ties = {tuple(tl.mix(seeded, cost="rows").seed(s).picked(range(30))[0]) for s in range(6)}
    assert len(ties) == 6


# -- settings ------------------------------------------------------------------------------

OPTIONS = {
    "temperature 0": {"temperature": 0},
    "a NumPy temperature": {"temperature": np.float32(0.5)},
    "weights of NumPy": {"weights": {"wiki": np.float32(2.5), "code": np.int64(3)}},
    "fractions": {"weights": {"wiki": Fraction(1, 3), "code": Decimal("0.3")}},
    "a cap": {"max_epochs": {"wiki": np.float64(1.5), "code": None}},
    "initial": {"initial": {"wiki": np.int64(7), "books": 1000}},
    "stages": {"stages": {20: {"wiki": 2}, 0: {"code": 3}}},
    "an empty stage": {"stages": {5: {}}},
    "a NumPy stage": {"stages": {np.int64(9): {"wiki": np.float64(0.1)}}},
    "blocks": {"rule": "rounds", "block": np.int64(4)},
    "random blocks": {"rule": "random", "block": 6, "stages": {12: {"wiki": 2}}},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_option_comes_back_from_the_description(three, options):
    run = tl.mix(three, **options)
    back = again(run)
    assert back.fingerprint == run.fingerprint
    assert back.describe() == json.loads(json.dumps(run.describe()))
    assert picks_of(back) == picks_of(run)


def test_numbers_of_other_types_are_the_same_settings(three):
    for one, other in (
        ({"temperature": 0.5}, {"temperature": Fraction(1, 2)}),
        ({"temperature": 0.5}, {"temperature": Decimal("0.5")}),
        ({"initial": {"wiki": 40}}, {"initial": {"wiki": np.int64(40)}}),
        ({"weights": {"wiki": 0.333333333333}}, {"weights": {"wiki": 1 / 3}}),  # 12 digits
    ):
        assert tl.mix(three, **one).fingerprint == tl.mix(three, **other).fingerprint


def test_temperature_gives_weights_by_size(three):
    rows = {name: len(ds.epochs(1)) for name, ds in three.items()}
    for temperature in (0.0, 0.5, 1.0):
        mixed = tl.mix(three, rule="weights", temperature=temperature)
        weights = mixed.describe()["mix"]["weights"]
        for name, count in rows.items():
            wanted = (count / rows["wiki"]) ** temperature
            assert weights[name] / weights["wiki"] == pytest.approx(wanted, rel=1e-11)


def test_max_epochs_is_a_decimal_number(tmp_path):
    """100 * 0.29 is 28.999… in binary."""
    hundred = toy(tmp_path, [SEQ_LEN] * 100).windows(SEQ_LEN)
    assert len(tl.mix({"a": hundred}, max_epochs=0.29)) == 29


def test_everything_that_decides_is_in_the_fingerprint(three):
    base = {"rule": "weights"}
    changes = [
        {},
        {"weights": {"wiki": 2}},
        {"rule": "least_consumed"},
        {"cost": "tokens"},
        {"stop": "all_exhausted"},
        {"max_epochs": 3},
        {"initial": {"wiki": 1}},
        {"rule": "rounds", "block": 16},
        {"rule": "rounds", "block": 32},
        {"stages": {5: {"wiki": 3}}},
    ]
    seen = {tl.mix(three, **(base | change)).fingerprint for change in changes}
    seen.add(tl.mix(three, **base).seed(1).fingerprint)
    seen.add(tl.mix(three, **base).shuffle().fingerprint)
    seen.add(tl.mix(three | {"wiki": three["wiki"].epochs(3)}, **base).fingerprint)
    assert len(seen) == len(changes) + 3
    assert tl.mix(three, **base).take(5).fingerprint in seen, "where it ends is no part of it"


def test_stages_are_edits_and_may_be_seeded(three):
    staged = tl.mix(three, rule="weights", stages={10: {"wiki": 3.0}, 30: {"code": 2.0}}).seed(7)
    edited = tl.mix(three, rule="weights").seed(7)
    edited = edited.edit(at=10, weights={"wiki": 3.0}).edit(at=30, weights={"code": 2.0})
    assert staged.fingerprint == edited.fingerprint
    assert picks_of(staged) == picks_of(edited)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"remove": ["wiki", "code"]}, {"remove": ["code", "wiki"]}),
        ({"remove": ["wiki"]}, {"remove": ["wiki", "wiki"]}),
        ({"quarantine": [("wiki", 0), ("code", 0)]}, {"quarantine": [("code", 0), ("wiki", 0)]}),
    ],
)
@pytest.mark.filterwarnings("ignore:edit.quarantine")
def test_the_order_in_which_names_are_listed_is_no_part_of_the_identity(three, one, other):
    """Else a set of names has another fingerprint in every process (PYTHONHASHSEED)."""
    run = tl.mix(three).seed(1)
    assert run.edit(at=5, **one).fingerprint == run.edit(at=5, **other).fingerprint


# -- moved, resumed, printed ---------------------------------------------------------------


def test_a_moved_store_is_named_by_its_source(tmp_path, three):
    extra = toy(tmp_path / "here", lengths_of(8, 100)).windows(SEQ_LEN)
    mixed = tl.mix({"wiki": three["wiki"], "x": extra})
    described = mixed.describe()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = str(tmp_path / "there")
    assert tl.from_config(described, path={"x": moved}).fingerprint == mixed.fingerprint
    refused(lambda: tl.from_config(described, path=moved), tl.ConfigError, "several stores")


def test_a_state_of_another_mix_is_refused_and_the_key_is_named(three):
    with tl.Loader(tl.mix(three, weights={"wiki": 2}), 8) as loader:
        next(loader)
        state = loader.state_dict()
    for other, named in (
        (tl.mix(three, weights={"wiki": 3}), ("mix.weights.wiki", "2.0", "3.0")),
        (tl.mix({name: three[name] for name in ("wiki", "code")}), ("books",)),
        (
            tl.mix(three | {"code": three["code"].render(pad_id=3)}, weights={"wiki": 2}),
            ("pad_id", "allow_mismatch"),
        ),
    ):
        refused(lambda run=other: tl.Loader(run, 8).load_state_dict(state), tl.StateError, *named)


def test_what_is_printed_names_sources_shares_and_seeds(four, three):
    mixed = tl.mix({**three, "code": three["code"].seed(5)}, weights={"wiki": 2}).seed(7)
    text = repr(mixed)
    for part in ("wiki: weight 2 (50.0%)", "code: weight 1 (25.0%)", "seed 7", "seed 5"):
        assert part in text
    assert "least_consumed by tokens" in text
    edited = mixed.edit(at=30, weights={"wiki": 6}).edit(at=40, remove=["code"])
    assert "wiki: weight 6 (85.7%)" in repr(edited)
    assert "removed at 40" in repr(edited)
