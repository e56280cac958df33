"""Levanter's orders to the bit, without JAX: vectors and orders that JAX and Levanter wrote.

``tests/golden/levanter_orders.json`` says how each was made. Levanter's ``feistel`` is `levanter`
here, its ``linear`` is `levanter_linear`.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.order import block, era, full
from tokenloom.random import levanter
from tokenloom.random.levanter import Words
from tokenloom.random.permute import LevanterFeistel, Linear, permutations

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/levanter_orders.json").read_text(encoding="utf-8")
)
PERM_TYPES = {"feistel": "levanter", "linear": "levanter_linear"}


def word(pair):
    return pair[0] << 32 | pair[1]


def name(case):
    return "-".join(str(value) for value in list(case.values())[:5])


def sha256(order):
    return hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()


def assert_golden(order, case):
    n = case["n"]
    rows = order.map(np.arange(n))
    assert len(order) == n
    if "order" in case:
        assert rows.tolist() == case["order"]
    else:
        assert rows[:64].tolist() == case["first64"]
        assert rows[-32:].tolist() == case["last32"]
    assert sha256(rows) == case["sha256_int64_le"]
    assert (order.inverse(rows) == np.arange(n)).all()
    assert (order.map(np.arange(n)[::-7]) == rows[::-7]).all()


@pytest.mark.parametrize("case", GOLDEN["jax_random_vectors"], ids=name)
def test_keys_split_and_fold_as_in_jax(case):
    key = word(case["key"])
    assert key == case["seed"]
    assert levanter.split(key) == [word(pair) for pair in case["split2"]]
    assert levanter.split(key, 3) == [word(pair) for pair in case["split3"]]
    for number, pair in case["fold_in"].items():
        assert levanter.fold_in(key, int(number)) == word(pair)
    numbers = np.array([int(number) for number in case["fold_in"]], np.uint64)
    assert levanter.folded(key, numbers).tolist() == [word(p) for p in case["fold_in"].values()]
    assert levanter.pcg64_seed(key) == case["randint_0_2pow30"]
    handed_out = []
    for _ in case["key_iterator_first4"]:
        key, subkey = levanter.split(key)
        handed_out.append(subkey)
    assert handed_out == [word(pair) for pair in case["key_iterator_first4"]]


@pytest.mark.parametrize("case", GOLDEN["full_feistel"] + GOLDEN["full_linear"], ids=name)
def test_full_orders_are_levanters(case):
    key = word(case["key"])
    assert levanter.pcg64_seed(key) == case["pcg64_seed"]
    assert_golden(full(case["n"], seed=key, perm_type=PERM_TYPES[case["perm_type"]]), case)


@pytest.mark.parametrize("case", GOLDEN["full_feistel"], ids=name)
def test_round_keys_are_levanters(case):
    made = permutations(case["n"], [word(case["key"])], "levanter")
    assert isinstance(made, LevanterFeistel)
    assert made._keys[:, 0].tolist() == case["round_keys"]
    assert int(made._half) == case["half_bits"]


@pytest.mark.parametrize("case", GOLDEN["full_linear"], ids=name)
def test_factors_are_levanters(case):
    made = permutations(case["n"], [word(case["key"])], "levanter_linear")
    assert isinstance(made, Linear)
    assert (made._a.tolist(), made._b.tolist()) == ([case["a"]], [case["b"]])


@pytest.mark.parametrize("case", GOLDEN["era"], ids=name)
def test_era_orders_are_levanters(case):
    key = word(case["key"])
    for number, pair in case["era_keys"].items():
        assert levanter.fold_in(key, int(number)) == word(pair)
    perm_type = PERM_TYPES[case["perm_type"]]
    assert_golden(era(case["n"], case["era_length"], seed=key, perm_type=perm_type), case)


@pytest.mark.parametrize("case", GOLDEN["block"], ids=name)
def test_block_orders_are_levanters(case):
    key = word(case["key"])
    names = ("block_key", "window_full_key", "window_tail_key")
    assert levanter.split(key, 3) == [word(case[name]) for name in names]
    order = block(
        case["n"],
        case["io_block_size"],
        case["window_blocks"],
        seed=key,
        perm_type=PERM_TYPES[case["perm_type"]],
    )
    assert_golden(order, case)


@given(
    st.integers(0, 2**30 - 1),
    st.lists(
        st.tuples(
            st.sampled_from([0, 1]),
            st.one_of(
                st.integers(2, 2**63 - 1),
                st.integers(1, 62).map(lambda k: 2**k),
                st.sampled_from([2**32 - 1, 2**32, 2**32 + 1, 3 * 2**30]),
            ),
        ),
        max_size=12,
    ),
)
def test_bounded_integers_are_those_of_the_installed_numpy(seed, ranges):
    words = Words(seed)
    numpy = np.random.Generator(np.random.PCG64(seed))
    for low, high in ranges:
        assert words.bounded(low, high) == int(numpy.integers(low, high))


@pytest.mark.parametrize(
    "make", [lambda epoch: full(64, seed=3, epoch=epoch, perm_type="levanter")]
)
def test_later_epochs_are_new_orders_though_levanter_repeats_the_first(make):
    orders = {tuple(make(epoch).map(range(64)).tolist()) for epoch in range(4)}
    assert len(orders) == 4
    folded = full(64, seed=levanter.fold_in(3, 2), perm_type="levanter")
    assert (make(2).map(range(64)) == folded.map(range(64))).all()


def test_lanes_are_refused_where_levanter_has_none():
    with pytest.raises(tl.ConfigError, match="lanes: found 2"):
        block(100, 10, lanes=2, seed=0, perm_type="levanter")


def test_the_published_read_counts_come_out():
    """20 requests of 2,048 indices of 16,384, wrapped; each run of neighbouring rows is a read."""
    table = GOLDEN["published_tables"]["reads"]
    parameters, n = table["parameters"], table["parameters"]["num_examples"]
    kinds = {"seed": 0, "perm_type": "levanter"}
    orders = {
        "full": full(n, **kinds),
        "era": era(n, parameters["era_length"], **kinds),
        "block": block(n, parameters["io_block_size"], parameters["window_blocks"], **kinds),
    }
    request = parameters["batch_size"] * parameters["prefetch_batches"]
    for strategy, order in orders.items():
        reads = 0
        for step in range(parameters["steps"]):
            rows = order.map((np.arange(request) + step * request) % n)
            reads += 1 + int((np.diff(np.unique(rows)) > 1).sum())
        assert reads == table["results"][strategy]["tensorstore_reads_issued"], strategy
