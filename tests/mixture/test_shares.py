"""Shares hold at every prefix: the bounds that are promised, for few sources and for many."""

import numpy as np
import pytest
from slowmix import SEQ_LEN, lengths_of, toy

import tokenloom as tl
from tokenloom.layout.layout import Phases
from tokenloom.mixture.merge import Clock, Merge
from tokenloom.mixture.rounds import Rounds
from tokenloom.order.closed_costs import EqualCosts
from tokenloom.order.costs import Priced, SummedCosts


def merged(weights, *, midpoint=True, cost=1, seed=0):
    clocks = [Clock(f"s{i}", EqualCosts(cost, None), float(w)) for i, w in enumerate(weights)]
    return Merge(clocks, seed=seed, midpoint=midpoint)


def worst(source, first, counts, share, every=1):
    """The largest |rows - share * n| at any prefix of a stretch, and the counts after it."""
    most = 0.0
    steps = first + 1 + np.arange(len(source))
    for one, part in enumerate(share.tolist()):
        rows = counts[one] + np.cumsum(source == one)
        most = max(most, float(np.abs(rows - part * steps)[::every].max()))
    return most, counts + np.bincount(source, minlength=len(counts))


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        *((n, kind) for n in (3, 10, 50, 300) for kind in ("dirichlet", "sparse", "equal")),
        *((n, "zipf") for n in (3, 10, 50)),
        (3, "one large"),
    ],
)
def test_weights_are_within_three_rows_at_every_prefix(sources, kind):
    """And within one for three sources."""
    assert worst_of(sources, kind) <= (1.0 if sources == 3 else 3.0) + 1e-9


@pytest.mark.parametrize(
    ("sources", "kind", "least", "most"),
    [
        (10, "one large", 3, 5),
        (50, "one large", 20, 25),
        (300, "one large", 100, 150),
        (300, "zipf", 3, 8),
    ],
)
def test_many_small_equal_weights_come_in_a_burst(sources, kind, least, most):
    """A known limit, told in docs/mixing.md: such sources share their midpoints."""
    assert least < worst_of(sources, kind) <= most


def worst_of(sources, kind):
    """The worst error of the first 20,000 rows, for weights of a kind."""
    rng = np.random.default_rng(sources)
    weights = {
        "dirichlet": rng.dirichlet(np.ones(sources)) + 1e-9,
        "sparse": rng.dirichlet(np.full(sources, 0.2)) + 1e-6,
        "zipf": 1 / np.arange(1, sources + 1),
        "equal": np.ones(sources),
        "one large": np.r_[1000.0, np.ones(sources - 1)],
    }[kind]
    source, _ = merged(weights).items(0, 20_000)
    most, _ = worst(source, 0, np.zeros(sources, np.int64), weights / weights.sum())
    return most


def test_three_sources_are_within_one_row_whatever_their_weights():
    rng = np.random.default_rng(7)
    for _ in range(60):
        weights = rng.dirichlet(rng.choice([0.2, 1.0, 5.0], 3)) + 1e-6
        source, _ = merged(weights, seed=int(rng.integers(1000))).items(0, 3000)
        most, _ = worst(source, 0, np.zeros(3, np.int64), weights / weights.sum())
        assert most <= 1.0 + 1e-9, weights


def test_no_drift_over_ten_million_rows():
    """The error of the last million rows is that of the first."""
    weights = np.array([0.5, 0.3, 0.1000003, 0.0999997])
    merge, share, counts = merged(weights), weights / weights.sum(), np.zeros(4, np.int64)
    errors = []
    for first in range(0, 10**7, 10**6):
        source, _ = merge.items(first, first + 10**6)
        most, counts = worst(source, first, counts, share)
        errors.append(most)
    assert max(errors) <= 2.0
    assert max(errors[1:]) <= errors[0] + 0.5
    assert merged(weights).cut(10**7).tolist() == counts.tolist()


def test_no_drift_far_away():
    weights = np.array([0.6, 0.3, 0.1])
    for far in (10**9, 10**12, 10**14):
        counts = merged(weights).cut(far)
        assert counts.sum() == far
        assert np.abs(counts - weights * far).max() <= 1.1


class _Table(Priced):
    identity = None
    most = 1 << 13

    def __init__(self, table):
        self.table, self.phases = np.asarray(table, np.int64), Phases.constant(len(table))

    def prices(self, first, last):
        return self.table[np.arange(first, last) % len(self.table)]

    def is_steady(self, epoch):
        return True


@pytest.mark.parametrize("weighted", [False, True])
def test_the_spread_is_never_above_the_largest_sample(weighted):
    """consumed / weight of any two sources, after every single draw."""
    rng = np.random.default_rng(4)
    for sources in (2, 5, 12):
        tables = [rng.integers(1, 101, int(rng.integers(1, 400))) for _ in range(sources)]
        weights = rng.choice([0.25, 1.0, 3.0], sources) if weighted else np.ones(sources)
        clocks = [
            Clock(f"s{i}", SummedCosts(_Table(t), None), float(w))
            for i, (t, w) in enumerate(zip(tables, weights, strict=True))
        ]
        count = 3000
        source, item = Merge(clocks, seed=1, midpoint=False).items(0, count)
        time = np.zeros((sources, count))
        for one, table in enumerate(tables):
            here = source == one
            time[one] = np.cumsum(np.where(here, table[item % len(table)], 0)) / weights[one]
        spread = (time.max(axis=0) - time.min(axis=0)).max()
        largest = max(t.max() / w for t, w in zip(tables, weights, strict=True))
        assert 0 < spread <= largest * (1 + 1e-12)


def test_a_thousand_dirichlet_sources_in_blocks_of_2048():
    """None is lost, no quota is negative, and the error at block ends stays within three rows."""
    weights = np.random.default_rng(1).dirichlet(np.full(1000, 0.3)) + 1e-7
    share = weights / weights.sum()
    rounds = Rounds(merged(weights), 2048, None, shuffled=False, seed=0)
    counts = np.zeros(1000, np.int64)
    for block in range(60):
        source, item = rounds.items(block * 2048, (block + 1) * 2048)
        for one in np.unique(source)[:5].tolist():  # items follow each other
            mine = item[source == one]
            assert mine.tolist() == list(range(counts[one], counts[one] + len(mine)))
        counts += np.bincount(source, minlength=1000)
        assert np.abs(counts - share * (block + 1) * 2048).max() <= 3.0
    smallest = share.min()
    end = int(np.ceil(1 / smallest / 2048) + 1) * 2048
    assert (rounds.cut(end) > 0).all(), "every source comes within one turn of its weight"
    assert np.abs(rounds.cut(end) - share * end).max() <= 3.0


@pytest.mark.parametrize("shuffled", [False, True])
def test_quotas_of_all_blocks_differ_by_little(shuffled):
    weights = np.array([0.7, 0.2, 0.0999, 0.0001])
    rounds = Rounds(merged(weights), 100, None, shuffled=shuffled, seed=3)
    source, _ = rounds.items(0, 100 * 500)
    quotas = np.stack([(source == one).reshape(500, 100).sum(1) for one in range(4)])
    assert np.abs(quotas - 100 * weights[:, None]).max() <= 2.0
    assert quotas.sum(1)[3] in (4, 5, 6)


# -- datasets ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("shares")
    return {
        "a": toy(root / "a", lengths_of(1, 400, most=8)).pack(SEQ_LEN).shuffle().epochs(None),
        "b": toy(root / "b", lengths_of(2, 300, most=7)).pack(SEQ_LEN).shuffle().epochs(None),
    }


def test_a_source_that_joins_has_its_share_within_one_sample(sources, tmp_path):
    """Shares of the two and of the new one, counted from the edit on, at every prefix."""
    third = toy(tmp_path / "c", lengths_of(5, 350, most=9)).pack(SEQ_LEN).shuffle().epochs(None)
    mixed = tl.mix(sources).seed(3)
    weights = {"a": 1.0, "b": 1.0, "c": 2.0}
    for at in (0, 1, 57, 200):
        edited = mixed.edit(at=at, add={"c": third}, weights={"c": 2.0})
        tokens = edited.batch(np.arange(at, at + 200)).attention_mask.sum(1)
        names = np.array(edited.batch(np.arange(at, at + 200)).source)
        since = {n: np.cumsum(np.where(names == n, tokens, 0)) / w for n, w in weights.items()}
        together = sum(np.cumsum(np.where(names == n, tokens, 0)) for n in weights) / 4
        # a and b may be one sample apart when it joins, c waits at the earlier one
        assert np.abs(since["c"] - together).max() <= SEQ_LEN
        assert np.abs(since["a"] - since["b"]).max() <= 2 * SEQ_LEN
