"""Levanter's loader asks a run for indices; orders go on where a run of Levanter stopped."""

import asyncio
import hashlib
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.integrations.levanter import async_dataset
from tokenloom.integrations.levanter.async_rows import LmRow
from tokenloom.testing import write_store

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/levanter_orders.json").read_text(encoding="utf-8")
)
PERM_TYPES = {"feistel": "levanter", "linear": "levanter_linear"}
FULL = [one for one in GOLDEN["full_feistel"] + GOLDEN["full_linear"] if one["n"] in (7, 1000)]
BLOCK = [one for one in GOLDEN["block"] if one["n"] in (7, 1000, 1537)]


def get(dataset, indices):
    return asyncio.run(dataset.get_batch(indices))


def numbered(root, n):
    """A store of n rows of two tokens; each holds the number of its row."""
    write_store(root, [[np.repeat(np.arange(n), 2).tolist()]])
    return tl.open(root).windows(2)


def run_of(root, case):
    rows, perm = numbered(root, case["n"]), PERM_TYPES[case["perm_type"]]
    if "io_block_size" not in case:
        return rows.shuffle(perm_type=perm).seed(case["seed"])
    sizes = case["io_block_size"], case["window_blocks"]
    return rows.block_shuffle(io_block_size=sizes[0], window_blocks=sizes[1], perm_type=perm).seed(
        case["seed"]
    )


@pytest.mark.parametrize("case", FULL + BLOCK, ids=lambda case: str(list(case.values())[:5]))
def test_a_run_goes_on_where_a_run_of_levanter_stopped(case, tmp_path):
    """Levanter trained up to `stop`; its order, stored by Levanter itself, says what comes next."""
    dataset, n = async_dataset(run_of(tmp_path / "store", case)), case["n"]
    assert asyncio.run(dataset.async_len()) == n
    stop = n // 3
    after = [int(row.tokens[0]) for row in get(dataset, range(stop, n))]
    known = case.get("order") or [*case["first64"], *[None] * (n - 96), *case["last32"]]
    for found, wanted in zip(after, known[stop:], strict=True):
        assert wanted is None or found == wanted
    before = [int(row.tokens[0]) for row in get(dataset, range(stop))]
    raw = np.array(before + after, "<i8").tobytes()
    assert hashlib.sha256(raw).hexdigest() == case["sha256_int64_le"]


def test_another_seed_is_another_order(tmp_path):
    case = next(one for one in FULL if one["n"] == 1000)
    dataset = async_dataset(run_of(tmp_path / "store", {**case, "seed": case["seed"] + 1}))
    found = [int(row.tokens[0]) for row in get(dataset, range(64))]
    assert found != case["first64"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("levanter") / "store", weights=True)


def slow_row(batch, row):
    """Levanter's arrays, cell by cell."""
    weights, segments = [], []
    for cell in range(8):
        segments.append(int(batch.segment_ids[row, cell]) - 1)
        weights.append(float(batch.loss_weights[row, cell]) if cell < 7 else 0.0)
    return batch.tokens[row].tolist(), weights, segments


def test_c_61_rows_have_levanters_segments_and_weights(store):
    run = store.pack(8, min_row_len=1).shuffle().seed(3)
    indices = [5, 0, 17, 5]
    batch = run.batch(indices)
    for k, row in enumerate(get(async_dataset(run), indices)):
        made = row.tokens.tolist(), row.loss_weight.tolist(), row.segment_ids.tolist()
        assert made == slow_row(batch, k)
        assert row.example == indices[k]
        assert row.loss_weight.dtype == np.float32
    every = get(async_dataset(run), range(len(run)))
    assert min(row.segment_ids.min() for row in every) == -1  # there is filler
    assert all((row.loss_weight[row.segment_ids == -1] == 0).all() for row in every)


def test_make_makes_the_items_and_tasks_may_ask_at_once(store):
    run = toy_run(store, epochs=None)
    dataset = async_dataset(run, lambda row: (row.example, row.tokens.tolist()))
    assert not dataset.is_finite()

    async def many():
        asked = [[k, 10**9 + k] for k in range(20)]
        return asked, await asyncio.gather(*map(dataset.get_batch, asked))

    asked, found = asyncio.run(many())
    for indices, items in zip(asked, found, strict=True):
        assert items == list(zip(indices, run.batch(indices).tokens.tolist(), strict=True))


def test_the_methods_are_those_that_levanter_asks_for(store):
    dataset = async_dataset(toy_run(store, epochs=1))

    async def asked():
        return (
            await dataset.async_len(),
            await dataset.get_batch([]),
            (await dataset.getitem_async(3)).example,
        )

    assert asyncio.run(asked()) == (37, [], 3)
    assert dataset.is_finite()
    assert isinstance(get(dataset, [0])[0], LmRow)
    with pytest.raises(IndexError):
        get(dataset, [37])


def test_rows_for_levanter_have_no_loader_and_what_a_file_says_about_it_is_logged(tmp_path, caplog):
    tl.build([{"text": "abcdefgh" * 10}], tmp_path / "toy", tokenizer="bytes")
    text = "sources: {toy: {store: toy, windows: 8}}\nloader: {batch_size: 4}\n"
    (tmp_path / "run.yaml").write_text(text)
    with caplog.at_level(logging.WARNING, "tokenloom"):
        dataset = async_dataset(tl.load(tmp_path / "run.yaml"))
    assert get(dataset, [0])[0].tokens.tolist() == list(b"abcdefgh")
    assert "loader.batch_size: found 4" in caplog.text


def test_a_target_for_the_last_cell_is_refused_because_levanter_has_none(store):
    with pytest.raises(ConfigError, match="lookahead"):
        async_dataset(store.windows(8, lookahead=True))
