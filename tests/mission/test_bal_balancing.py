"""How often each of several documents is spliced, at the values that the design works out."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from splicing import quota, splice, triples

import tokenloom as tl

LETTERS = [b"ABCDEFG", b"HIJKL", b"XYZ"]  # 7, 5 and 3 tokens
TEN = [45231, 43890, 42105, 38234, 35678, 33421, 31209, 29834, 28456, 27891]
FOUR = [(0, t, 4) for t in range(4)]  # the starts of ABCDEFG, for S = 8 and K = 4
TWO = [(1, 0, 4), (1, 1, 4)]  # those of HIJKL


@pytest.fixture
def three(shared_store_of):
    return shared_store_of(*LETTERS)


@pytest.fixture(scope="session")
def long(shared_store_of):
    """Opens stores by the lengths of their documents."""
    return lambda *lengths: shared_store_of(*[[n % 999 for n in range(size)] for size in lengths])


def spliced(documents, **options):
    return splice(documents, 8, **{"content_length": 4} | options)


def shares(documents, seq_len=8, content_length=4, **options):
    """P of each document, to within 1e-5: its part of an epoch of 100,000 rows."""
    options = {"content_length": content_length, "epoch_length": 100_000} | options
    return np.array(quota(splice(documents, seq_len, **options), len(documents))) / 100_000


def test_bal_01_by_coverage_is_one_example_for_each_start(shared_store_of):
    made = spliced(shared_store_of(*LETTERS[:2]), balance_mode="by_coverage")
    assert triples(made) == FOUR + TWO
    assert [Fraction(n, 6) for n in quota(made, 2)] == [Fraction(2, 3), Fraction(1, 3)]


def test_bal_02_c_16_by_document_repeats_short_ones_from_the_first_start_on(three):
    """A document without a start is not counted: 2 x 4 rows, not 3 x 4."""
    made = spliced(three, balance_mode="by_document", adaptive_k=False)
    assert triples(made) == FOUR + TWO + TWO
    assert len(made) == 8
    assert len(spliced(three, balance_mode="by_document")) == 12


@pytest.mark.parametrize(
    ("mode", "counts", "fractions", "duplicates"),
    [
        ("by_coverage", [10_000, 5_000, 2_000], [58.8, 29.4, 11.8], [0, 0, 0]),
        ("by_document", [10_000, 10_000, 10_000], [33.3, 33.3, 33.3], [0, 5_000, 8_000]),
    ],
)
def test_bal_03_proportions_of_10k_5k_and_2k_pairs(long, mode, counts, fractions, duplicates):
    made = splice(long(10_001, 5_001, 2_001), 8, content_length=2, balance_mode=mode)
    assert quota(made, 3) == counts
    assert len(made) == sum(counts)
    assert [round(100 * n / len(made), 1) for n in counts] == fractions
    unique = Counter(document for document, _, _ in {*triples(made)})
    assert [n - unique[document] for document, n in enumerate(counts)] == duplicates


def test_bal_04_by_temperature(long):
    store = long(10_000, 5_000, 2_000)
    found = shares(store, 4096, 4096, balance_mode="by_temperature", balance_tau=0.7)
    assert found == pytest.approx([0.5155, 0.3174, 0.1671], abs=6e-5)
    with pytest.raises(ValueError, match=r"balance_tau\b.*-0\.1"):
        splice(store, 4096, balance_tau=-0.1)


def test_bal_04_a_temperature_above_1_warns(three):
    with pytest.warns(UserWarning, match=r"balance_tau\b.*1\.5"):
        found = shares(three, balance_tau=1.5)
    assert found == pytest.approx([0.5307, 0.3204, 0.1489], abs=6e-5)


def test_bal_05_temperature_0_is_equal_and_1_in_proportion_to_length(three):
    assert shares(three, balance_tau=0.0) == pytest.approx([1 / 3] * 3, abs=6e-5)
    assert shares(three, balance_tau=1.0) == pytest.approx([0.4667, 0.3333, 0.2], abs=6e-5)


def test_bal_06_the_ten_documents_of_the_design(long):
    found = shares(long(*TEN), 4096, 4096, balance_tau=0.7)
    fractions = [0.1186, 0.1162, 0.1128, 0.1055, 0.1005, 0.0960, 0.0915, 0.0886, 0.0858, 0.0846]
    assert found == pytest.approx(fractions, abs=6e-5)
    assert sum(found) == pytest.approx(1)


def test_bal_07_equal_shares_by_temperature_0(three):
    made = spliced(three, epoch_length=12, balance_tau=0.0)
    assert quota(made, 3) == [4, 4, 4]
    assert [triple for triple in triples(made) if triple[0] == 0] == FOUR


def test_bal_08_c_11_by_starts_every_start_comes_exactly_once(three):
    starts = spliced(three, balance_measure="starts", balance_tau=1.0)
    assert quota(starts, 3) == [4, 2, 1]
    assert triples(starts) == [*FOUR, *TWO, (2, 0, 5)]
    assert triples(spliced(three, balance_mode="by_coverage")) == triples(starts)
    assert quota(spliced(three, balance_measure="length", balance_tau=1.0), 3) == [3, 2, 2]


def test_bal_09_both_older_modes(three, long):
    assert quota(spliced(three, balance_mode="by_document"), 3) == [4, 4, 4]
    assert quota(spliced(three, balance_mode="by_coverage"), 3) == [4, 2, 1]
    made = splice(long(30_000, 20_000, 10_000), 8, content_length=4, balance_mode="by_coverage")
    found = np.array(quota(made, 3)) / len(made)
    assert found == pytest.approx([3 / 6, 2 / 6, 1 / 6], abs=1e-3)


def test_bal_10_ties_go_to_the_lowest_index(shared_store_of):
    store = shared_store_of(LETTERS[1], LETTERS[1], LETTERS[1])
    assert quota(spliced(store, epoch_length=10), 3) == [4, 3, 3]
    assert quota(spliced(store, epoch_length=11), 3) == [4, 4, 3]


def largest_remainder(weights, total):
    """Whole parts first; what is left goes to the largest fractions, the lowest index first."""
    exact = [Fraction(total * weight, sum(weights)) for weight in weights]
    parts = [math.floor(share) for share in exact]
    rank = sorted(range(len(weights)), key=lambda i: (parts[i] - exact[i], i))
    for i in rank[: total - sum(parts)]:
        parts[i] += 1
    return parts


def test_bal_10_quotas_add_up_in_a_thousand_random_cases(shared_store_of):
    """In proportion to the lengths of some of these 60 documents."""
    draw = np.random.Generator(np.random.PCG64(7))
    lengths = [*draw.integers(2, 5, 30).tolist(), *draw.integers(2, 60, 30).tolist()]
    store = shared_store_of(*[[1] * length for length in lengths])
    for _ in range(1_000):
        chosen = sorted(draw.choice(60, int(draw.integers(1, 13)), replace=False).tolist())
        total = int(draw.integers(1, 200))
        made = splice(store.select(doc_index=chosen), 4, content_length=2, epoch_length=total)
        assert len(made) == total
        expected = largest_remainder([lengths[document] for document in chosen], total)
        assert np.array(quota(made, 60))[chosen].tolist() == expected


def test_bal_11_the_length_of_an_epoch_is_explicit(three):
    made = spliced(three, epoch_length=40, balance_tau=0.7)
    assert len(made) == 40
    assert len(made.epochs(3)) == 120
    with tl.Loader(made, 8) as loader:
        assert len(loader) == 5
    schedule = spliced(three, sampler="stream", balance_tau=0.7).take(64 * 100)
    with tl.Loader(schedule, 64) as loader:
        assert len(loader) == 100  # what a trainer asks for


# -- where the design contradicts itself ---------------------------------------------------


def test_c_10_by_temperature_1_is_the_default(three):
    default = spliced(three)
    assert default == spliced(three, balance_mode="by_temperature", balance_tau=1.0)
    assert default != spliced(three, balance_tau=0.7)
    assert quota(default, 3) == [3, 2, 2]
    for mode, expected in (("by_coverage", [4, 2, 1]), ("by_document", [4, 4, 4])):
        assert quota(spliced(three, balance_mode=mode), 3) == expected


def test_c_11_temperature_1_is_by_coverage_only_by_starts(three):
    length = spliced(three, balance_tau=1.0)
    starts = spliced(three, balance_tau=1.0, balance_measure="starts")
    coverage = spliced(three, balance_mode="by_coverage")
    assert [quota(made, 3) for made in (length, starts, coverage)] == [
        [3, 2, 2],
        [4, 2, 1],
        [4, 2, 1],
    ]
    assert triples(starts) == triples(coverage) != triples(length)
