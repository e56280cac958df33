"""Shares hold at every prefix: the bounds that are promised, for few sources and for many."""

import numpy as np
import pytest

import tokenloom as tl


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of 4 tokens, endlessly; a source of any name, since names are all that keys see."""
    path = tmp_path_factory.mktemp("shares") / "s"
    store = tl.build([{"input_ids": [1] * 80}], path, tokenizer=None, vocab_size=9, progress=False)
    return store.windows(4).shuffle(False).epochs(None)


def mixed(rows, weights, seed=0, **options):
    shares = {f"s{i}": float(w) for i, w in enumerate(weights)}
    options = {"rule": "weights", "cost": "rows", **options}
    return tl.mix(dict.fromkeys(shares, rows), weights=shares, **options).seed(seed)


def picked(run, first, last):
    """The number of the source of each example."""
    return np.array([int(name[1:]) for name in run.picked(range(first, last))[0]])


def worst(source, first, counts, share):
    """The largest |rows - share * n| at any prefix of a stretch, and the counts after it."""
    most, steps = 0.0, first + 1 + np.arange(len(source))
    for one, part in enumerate(share.tolist()):
        found = counts[one] + np.cumsum(source == one)
        most = max(most, float(np.abs(found - part * steps).max()))
    return most, counts + np.bincount(source, minlength=len(counts))


def worst_of(rows, sources, kind):
    """The worst error of the first 20,000 rows, for weights of a kind."""
    rng = np.random.default_rng(sources)
    weights = {
        "dirichlet": lambda: rng.dirichlet(np.ones(sources)) + 1e-9,
        "sparse": lambda: rng.dirichlet(np.full(sources, 0.2)) + 1e-6,
        "zipf": lambda: 1 / np.arange(1, sources + 1),
        "equal": lambda: np.ones(sources),
        "one large": lambda: np.r_[1000.0, np.ones(sources - 1)],
    }[kind]()
    source = picked(mixed(rows, weights), 0, 20_000)
    return worst(source, 0, np.zeros(sources, np.int64), weights / weights.sum())[0]


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        *((n, kind) for n in (3, 10, 50, 300) for kind in ("dirichlet", "sparse", "equal")),
        *((n, "zipf") for n in (3, 10, 50)),
        (3, "one large"),
    ],
)
def test_weights_are_within_three_rows_at_every_prefix(rows, sources, kind):
    """And within one for three sources."""
    assert worst_of(rows, sources, kind) <= (1.0 if sources == 3 else 3.0) + 1e-9


@pytest.mark.parametrize(
    ("sources", "kind", "least", "most"),
    [(10, "one large", 3, 5), (50, "one large", 20, 25), (300, "zipf", 3, 8)],
)
def test_many_small_equal_weights_come_in_a_burst(rows, sources, kind, least, most):
    """A known limit, in docs/mixing.md: such sources share their midpoints."""
    assert least < worst_of(rows, sources, kind) <= most


def test_three_sources_are_within_one_row_whatever_their_weights(rows):
    rng = np.random.default_rng(7)
    for _ in range(60):
        weights = rng.dirichlet(rng.choice([0.2, 1.0, 5.0], 3)) + 1e-6
        source = picked(mixed(rows, weights, seed=int(rng.integers(1000))), 0, 3000)
        most, _ = worst(source, 0, np.zeros(3, np.int64), weights / weights.sum())
        assert most <= 1.0 + 1e-9, weights


def test_there_is_no_drift_over_millions_of_rows_and_far_away(rows):
    """The error of the last rows is that of the first."""
    weights = np.array([0.5, 0.3, 0.1000003, 0.0999997])
    run, share, counts = mixed(rows, weights), weights / weights.sum(), np.zeros(4, np.int64)
    errors = []
    for first in range(0, 10**6, 10**5):
        most, counts = worst(picked(run, first, first + 10**5), first, counts, share)
        errors.append(most)
    assert max(errors) <= 2.0
    assert max(errors[1:]) <= errors[0] + 0.5
    assert [one["rows"] for one in run.consumed(10**6)] == counts.tolist()
    weights = np.array([0.6, 0.3, 0.1])
    for far in (10**9, 10**12, 10**14):
        counts = np.array([one["rows"] for one in mixed(rows, weights).consumed(far)])
        assert counts.sum() == far
        assert np.abs(counts - weights * far).max() <= 1.1


def test_a_thousand_dirichlet_sources_in_blocks_of_2048(rows):
    """None is lost, no quota is negative, and the error at block ends stays within three rows."""
    weights = np.random.default_rng(1).dirichlet(np.full(1000, 0.3)) + 1e-7
    share = weights / weights.sum()
    run = mixed(rows, weights, rule="rounds", block=2048)
    counts = np.zeros(1000, np.int64)
    for block in range(20):
        found = picked(run, block * 2048, (block + 1) * 2048)
        counts += np.bincount(found, minlength=1000)
        assert np.abs(counts - share * (block + 1) * 2048).max() <= 3.0
    end = int(np.ceil(1 / share.min() / 2048) + 1) * 2048
    far = np.array([one["rows"] for one in run.consumed(end)])
    assert (far > 0).all(), "every source comes within one turn of its weight"
    assert np.abs(far - share * end).max() <= 3.0


@pytest.mark.parametrize("rule", ["rounds", "random"])
def test_quotas_of_all_blocks_differ_by_little(rows, rule):
    weights = np.array([0.7, 0.2, 0.0999, 0.0001])
    source = picked(mixed(rows, weights, seed=3, rule=rule, block=100), 0, 100 * 500)
    quotas = np.stack([(source == one).reshape(500, 100).sum(1) for one in range(4)])
    assert np.abs(quotas - 100 * weights[:, None]).max() <= 2.0
    assert quotas.sum(1)[3] in (4, 5, 6)


@pytest.mark.parametrize("sources", [2, 5, 12])
def test_the_spread_is_never_above_the_largest_sample(tmp_path, sources):
    """consumed / weight of any two sources, after every single draw."""
    rng = np.random.default_rng(sources)
    made, weights = {}, {}
    for number in range(sources):
        ids = [{"input_ids": [1] * int(n)} for n in rng.integers(1, 101, 200)]
        store = tl.build(ids, tmp_path / str(number), tokenizer=None, vocab_size=9, progress=False)
        made[f"s{number}"] = store.pack(100, strategy="one_doc").epochs(None)
        weights[f"s{number}"] = float(rng.choice([0.25, 1.0, 3.0]))
    run = tl.mix(made, weights=weights, different_tokenizers=True)
    batch = run.batch(range(2000))
    tokens, names = batch.attention_mask.sum(1), np.array(batch.source)
    time = np.stack([np.cumsum(np.where(names == n, tokens, 0)) / weights[n] for n in made])
    spread = (time.max(axis=0) - time.min(axis=0)).max()
    assert 0 < spread <= 100 / min(weights.values()) * (1 + 1e-12)
