"""Where a mix ends: every stop rule, exact, against a loop; and what cannot be mixed."""

import math

import numpy as np
import pytest
from slowmix import SEQ_LEN, expected_of, picks_of, three_stores, toy

import tokenloom as tl

RULES = ("least_consumed", "weights", "rounds", "random", "round_robin")
STOPS = ("first_exhausted", "all_exhausted", "restart")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return three_stores(tmp_path_factory.mktemp("stops"))


def sources_of(stores, epochs=(1, 1, 1)):
    """12 equal rows, 6 rows of which one is short, and packed rows that differ."""
    wiki, code, books = epochs
    return {
        "wiki": stores["wiki"].windows(SEQ_LEN).shuffle().epochs(wiki),
        "code": stores["code"].windows(SEQ_LEN, tail="keep").shuffle().epochs(code),
        "books": stores["books"].pack(SEQ_LEN).shuffle().epochs(books),
    }


def rows_store(root, name, rows):
    return toy(root / name, [SEQ_LEN] * rows).windows(SEQ_LEN)


# -- exact ends ----------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [(2, 1, 3), (1, 4, 2)])
@pytest.mark.parametrize("cost", ["rows", "tokens"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_ends_where_the_loop_ends(stores, rule, stop, cost, epochs):
    sources = sources_of(stores, epochs)
    weights = None if rule == "round_robin" else {"wiki": 2.0, "books": 0.5}
    cost = "rows" if rule == "round_robin" else cost
    mixed = tl.mix(sources, rule=rule, stop=stop, cost=cost, weights=weights, block=7).seed(5)
    expected = expected_of(mixed, rule, block=7, seed=5, cost=cost, stop=stop, weights=weights)
    assert len(mixed) == len(expected)
    assert picks_of(mixed) == expected
    ends = [sum(place == source for place, _ in expected) for source in range(3)]
    assert [one["rows"] for one in mixed.consumed(len(mixed))] == ends
    if stop == "all_exhausted":
        assert ends == [len(ds) for ds in sources.values()]
    if stop == "restart" and rule == "least_consumed":
        assert all(end >= len(ds) for end, ds in zip(ends, sources.values(), strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stop", STOPS)
def test_counts_at_every_index_and_the_way_back(stores, rule, stop):
    mixed = tl.mix(sources_of(stores, (1, 2, 1)), rule=rule, stop=stop, block=5).seed(1)
    picks = picks_of(mixed)
    for index in range(len(mixed) + 1):
        rows = [one["rows"] for one in mixed.consumed(index)]
        assert rows == [sum(p == s for p, _ in picks[:index]) for s in range(3)]
    for place, name in enumerate(mixed.sources):
        here = [(item, index) for index, (source, item) in enumerate(picks) if source == place]
        items = [item for item, _ in here]
        assert mixed.index(name, items).tolist() == [index for _, index in here]
        if rule not in ("rounds", "random"):
            assert mixed.index(name, [max(items) + 1, 10**6]).tolist() == [-1, -1]


@pytest.mark.parametrize("rule", ["rounds", "random"])
@pytest.mark.parametrize(
    "stop",
    [
        "all_exhausted",
        "first_exhausted",
        "restart",
    ],
)
def test_items_behind_the_end_of_blocks_never_come(stores, rule, stop):
    mixed = tl.mix(sources_of(stores, (1, 2, 1)), rule=rule, stop=stop, block=5).seed(1)
    for one in mixed.consumed(len(mixed)):
        found = mixed.index(one["name"], [one["rows"], one["rows"] + 1, 10**6])
        assert found.tolist() == [-1, -1, -1]


def test_restart_goes_on_into_fresh_epochs(tmp_path):
    sources = {
        "a": rows_store(tmp_path, "a", 3).shuffle(),
        "b": rows_store(tmp_path, "b", 9).shuffle(),
    }
    mixed = tl.mix(sources, rule="round_robin").seed(2)
    epoch, row = mixed.locate(np.arange(len(mixed)))
    source, _ = mixed.run.pick(np.arange(len(mixed)))
    assert len(mixed) == 18
    of_a = list(zip(epoch[source == 0].tolist(), row[source == 0].tolist(), strict=True))
    assert [e for e, _ in of_a] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    rounds = [[r for e, r in of_a if e == number] for number in range(3)]
    assert all(sorted(one) == [0, 1, 2] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1, "every epoch has an order of its own"


@pytest.mark.parametrize("rule", RULES)
def test_an_endless_source(stores, rule):
    endless = sources_of(stores, (1, None, 1))
    forever = tl.mix(endless, rule=rule, block=7)
    assert not forever.is_finite
    with pytest.raises(TypeError, match="endless"):
        len(forever)
    assert forever.batch([10**6]).tokens.shape == (1, SEQ_LEN)
    ends = tl.mix(endless, rule=rule, stop="first_exhausted", block=7)
    cost = "tokens" if rule == "least_consumed" else "rows"
    expected = expected_of(ends, rule, block=7, cost=cost, stop="first_exhausted")
    assert picks_of(ends) == expected
    with pytest.raises(tl.ConfigError, match=r"stop: .*all_exhausted.*'code' is endless"):
        len(tl.mix(endless, rule=rule, stop="all_exhausted"))


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("caps", [{"code": 0.5}, {"code": 1.5, "books": 1}, {"wiki": 0.25}])
def test_max_epochs_ends_a_source(stores, stop, caps):
    sources = sources_of(stores, (2, 3, 2))
    weights = {"code": 4.0}
    mixed = tl.mix(sources, stop=stop, max_epochs=caps, weights=weights)
    expected = expected_of(
        mixed, "least_consumed", cost="tokens", stop=stop, weights=weights, caps=caps
    )
    assert picks_of(mixed) == expected
    for place, (name, run) in enumerate(zip(mixed.run.names, mixed.run.sources, strict=True)):
        shown = sum(source == place for source, _ in expected)
        assert shown <= caps.get(name, math.inf) * run.rows


def test_max_epochs_for_all_makes_a_run_of_endless_sources_end(stores):
    mixed = tl.mix(sources_of(stores, (None, None, None)), max_epochs=2)
    expected = expected_of(
        mixed,
        "least_consumed",
        cost="tokens",
        stop="restart",
        caps=dict.fromkeys(mixed.sources, 2),
    )
    assert picks_of(mixed) == expected
    rows = [one["rows"] for one in mixed.consumed(len(mixed))]
    assert all(r <= 2 * run.rows for r, run in zip(rows, mixed.run.sources, strict=True))


def test_max_epochs_does_not_repeat_what_all_exhausted_shows_once(stores):
    sources = sources_of(stores, (1, 1, 1))
    mixed = tl.mix(sources, stop="all_exhausted", max_epochs=3)
    assert len(mixed) == sum(len(ds) for ds in sources.values())


def test_max_epochs_is_a_decimal_number(tmp_path):
    assert len(tl.mix({"a": rows_store(tmp_path, "a", 100)}, max_epochs=0.29)) == 29


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("rule", RULES)
def test_initial_counts_with_weights(stores, rule, stop):
    initial = {"wiki": 3, "books": 20}
    weights = {} if rule == "round_robin" else {"wiki": 0.5, "books": 4.0}
    sources = sources_of(stores, (2, 2, 2))
    mixed = tl.mix(sources, rule=rule, stop=stop, initial=initial, weights=weights or None, block=7)
    cost = "tokens" if rule == "least_consumed" else "rows"
    expected = expected_of(
        mixed, rule, block=7, cost=cost, stop=stop, weights=weights, initial=initial
    )
    assert picks_of(mixed) == expected


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stop", STOPS)
def test_ranks_1_to_16_end_together_under_every_policy(stores, rule, stop):
    mixed = tl.mix(sources_of(stores, (1, 2, 1)), rule=rule, stop=stop, block=5)
    first = (RULES.index(rule) + STOPS.index(stop)) % 4
    for world in range(1 + first, 17, 4):  # each of them with several rules and stops
        check_ends(mixed, 16, world)


def check_ends(mixed, size, world):
    n = len(mixed)
    for end, steps in (("drop", n // size), ("pad", -(-n // size)), ("wrap", n // size + 2)):
        ranks = [tl.Loader(mixed, size, r, world, end=end, prefetch=0) for r in range(world)]
        found = []
        for _ in range(steps):
            found += [i for rank in ranks for i in next(rank).index.tolist()]
        if end == "wrap":
            assert found == [i % n for i in range(steps * size)]
        else:
            assert [next(rank, None) for rank in ranks] == [None] * world
            wanted = list(range(n)) if end == "pad" else list(range(steps * size))
            assert found == wanted + [-1] * (steps * size - len(wanted))


# -- what cannot be mixed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": {"wkii": 1}}, r"weights.wkii: no source named 'wkii'.*Did you mean 'wiki'"),
        ({"max_epochs": {"cod": 1}}, r"max_epochs.cod: .*Did you mean 'code'"),
        ({"initial": {"boks": 1}}, r"initial.boks: .*Did you mean 'books'"),
        ({"initial": {"books": -1}}, r"initial.books: found -1"),
        ({"max_epochs": 0}, r"max_epochs: found 0"),
        ({"max_epochs": math.nan}, r"max_epochs: found nan"),
        ({"rule": "round-robin"}, r"rule: found 'round-robin'.*Did you mean 'round_robin'"),
        ({"stop": "restrat"}, r"stop: .*Did you mean 'restart'"),
        ({"cost": "token"}, r"cost: .*Did you mean 'tokens'"),
        ({"block": 0, "rule": "rounds"}, r"block: found 0"),
        ({"temperature": -1.0}, r"temperature: found -1"),
        ({"temperature": math.nan}, r"temperature: found nan"),
        ({"temperature": 1.0, "weights": {"wiki": 1}}, r"temperature: found together with weights"),
        ({"stages": {10: {"wkii": 2}}}, r"weights.wkii: .*Did you mean 'wiki'"),
        ({"stages": {10: {"wiki": 0}}}, r"weights.wiki: found 0"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(stores, options, said):
    with pytest.raises(tl.ConfigError, match=f"(?s){said}"):
        tl.mix(sources_of(stores), **options)


def test_bad_sources_are_refused_with_the_reason(stores):
    wiki = stores["wiki"].windows(SEQ_LEN)
    with pytest.raises(tl.ConfigError, match="found no source"):
        tl.mix({})
    with pytest.raises(tl.ConfigError, match="allowed: a non-empty string"):
        tl.mix({"": wiki})
    with pytest.raises(tl.ConfigError, match="allowed: a non-empty string"):
        tl.mix({3: wiki})
    with pytest.raises(tl.ConfigError, match="differ in seq_len"):
        tl.mix({"a": wiki, "b": stores["code"].windows(4)})
    with pytest.raises(tl.ConfigError, match="differ in cells of a row"):
        tl.mix({"a": wiki, "b": stores["code"].windows(SEQ_LEN, lookahead=True)})
    with pytest.raises(tl.ConfigError, match="differ in label_layout"):
        tl.mix({"a": wiki, "b": stores["code"].windows(SEQ_LEN).render(label_layout="shifted")})
    with pytest.raises(tl.ConfigError, match="already a mix"):
        tl.mix({"a": tl.mix({"b": wiki})})
    with pytest.raises(tl.ConfigError, match=r"mix.a: it was cut by take\(3\)"):
        tl.mix({"a": wiki.take(3)})
    with pytest.raises(tl.ConfigError, match="not of a mix, which has those of its sources"):
        tl.mix({"a": wiki}).epochs(2)


def test_a_store_is_not_a_source(stores):
    with pytest.raises((tl.ConfigError, TypeError), match="wiki"):
        tl.mix({"wiki": stores["wiki"]})


def test_two_sources_of_one_name_in_a_description(stores):
    told = tl.mix(sources_of(stores)).describe()
    told["sources"][1]["name"] = "wiki"
    with pytest.raises(tl.ConfigError, match="two sources named 'wiki'"):
        tl.from_config(told)


def test_a_description_that_weighs_a_source_that_is_not_there(stores):
    told = tl.mix(sources_of(stores)).describe()
    told["mix"]["weights"]["wkii"] = told["mix"]["weights"].pop("wiki")
    with pytest.raises(tl.ConfigError, match="wkii"):
        tl.from_config(told)


@pytest.mark.parametrize(
    "stop",
    [
        "first_exhausted",
        "all_exhausted",
        "restart",
    ],
)
def test_a_source_without_rows_gives_nothing_or_is_refused(tmp_path, stop):
    """4 tokens make no row of 8."""
    empty = toy(tmp_path / "empty", [4]).windows(SEQ_LEN)
    assert len(empty) == 0
    sources = {"a": rows_store(tmp_path, "a", 5), "empty": empty}
    said = ""
    try:
        mixed = tl.mix(sources, stop=stop)
        found = mixed.batch(np.arange(len(mixed))).source if len(mixed) else []
    except tl.ConfigError as error:
        said = str(error)
    assert "empty" in said or found == ["a"] * (0 if stop == "first_exhausted" else 5)


def test_temperature_gives_weights_by_size(stores):
    sources = sources_of(stores)
    rows = {name: ds.run.rows for name, ds in sources.items()}
    for temperature in (0.0, 0.5, 1.0):
        mixed = tl.mix(sources, rule="weights", temperature=temperature)
        told = mixed.describe()["mix"]["weights"]
        for name in rows:
            wanted = (rows[name] / rows["wiki"]) ** temperature
            assert told[name] / told["wiki"] == pytest.approx(wanted, rel=1e-11)
            assert told[name] == float(f"{told[name]:.12g}")


def test_weights_have_twelve_digits(stores):
    told = tl.mix(sources_of(stores), weights={"wiki": 1 / 3}).describe()
    assert told["mix"]["weights"]["wiki"] == 0.333333333333


def test_round_robin_takes_turns_whatever_rows_cost(stores):
    """Ruling 11: rows cost 1 and all weights are equal, or else it is refused."""
    mixed = tl.mix(sources_of(stores, (None, None, None)), rule="round_robin")
    assert mixed.describe()["mix"]["cost"] == "rows"
    assert mixed.picked(np.arange(9))[0] == ["wiki", "code", "books"] * 3
    for options in ({"weights": {"wiki": 2}}, {"cost": "tokens"}):
        try:
            other = tl.mix(sources_of(stores, (None, None, None)), rule="round_robin", **options)
        except tl.ConfigError:
            continue
        assert other.picked(np.arange(9))[0] == ["wiki", "code", "books"] * 3
