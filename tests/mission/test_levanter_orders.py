"""Levanter's orders to the bit, without JAX: vectors and orders that JAX and Levanter wrote.

``tests/golden/levanter_orders.json`` says how each was made. Levanter's ``feistel`` is `levanter`
here, its ``linear`` is `levanter_linear`.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.order import block, era, full

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


@pytest.mark.parametrize("case", GOLDEN["full_feistel"] + GOLDEN["full_linear"], ids=name)
def test_full_orders_are_levanters(case):
    key = word(case["key"])
    assert_golden(full(case["n"], seed=key, perm_type=PERM_TYPES[case["perm_type"]]), case)


@pytest.mark.parametrize("case", GOLDEN["era"], ids=name)
def test_era_orders_are_levanters(case):
    key = word(case["key"])
    perm_type = PERM_TYPES[case["perm_type"]]
    assert_golden(era(case["n"], case["era_length"], seed=key, perm_type=perm_type), case)


@pytest.mark.parametrize("case", GOLDEN["block"], ids=name)
def test_block_orders_are_levanters(case):
    key = word(case["key"])
    order = block(
        case["n"],
        case["io_block_size"],
        case["window_blocks"],
        seed=key,
        perm_type=PERM_TYPES[case["perm_type"]],
    )
    assert_golden(order, case)


def test_later_epochs_are_new_orders_though_levanter_repeats_the_first():
    for perm_type in ("levanter", "levanter_linear"):
        made = [full(64, seed=3, epoch=epoch, perm_type=perm_type) for epoch in range(4)]
        orders = [order.map(range(64)).tolist() for order in made]
        assert len(set(map(tuple, orders))) == 4
        assert orders[0] == full(64, seed=3, perm_type=perm_type).map(range(64)).tolist()


def test_lanes_are_refused_where_levanter_has_none():
    make = lambda: block(100, 10, lanes=2, seed=0, perm_type="levanter")  # noqa: E731
    refused(make, tl.ConfigError, "lanes", 2)


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


@pytest.mark.parametrize("perm_type", PERM_TYPES.values())
def test_places_of_many_epochs_are_those_asked_epoch_by_epoch(tmp_path, perm_type):
    """A few places in each of many epochs are looked up without a table of each epoch."""
    store = tl.build(
        [{"input_ids": list(range(68))}], tmp_path / "s", tokenizer=None, vocab_size=68
    )
    run = store.windows(4).shuffle(perm_type=perm_type).seed(5).epochs(400)
    scattered = run.batch(np.arange(3, 17 * 400, 17)).tokens
    for epoch in (0, 1, 7, 399):
        whole = run.batch(np.arange(17 * epoch, 17 * epoch + 17)).tokens
        assert scattered[epoch].tolist() == whole[3].tolist()
        assert sorted(whole[:, 0].tolist()) == list(range(0, 68, 4))
