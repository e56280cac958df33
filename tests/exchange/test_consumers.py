"""Exports opened by the library they are for, each in a process, and a peer in its own environment.

Each peer reads one export in test_recipes.py, in the process that also writes. One that cannot be
installed or imported is a failure with its reason, never a skip.
"""

import json
import sys
from pathlib import Path

import numpy as np
import peers
import pytest
from exports import COLUMNS
from toystore import toy

from tokenloom.exchange import export

sys.path.insert(0, str(Path(__file__).parent / "consumers"))
from told import summary

MASKS = {name: COLUMNS[name] for name in ("loss_mask", "loss_weights")}


def store_of(root, *, empty=True, columns=None, vocab=100_000):
    rng = np.random.Generator(np.random.PCG64(5))
    lengths = rng.integers(0 if empty else 1, 300, 40)
    documents = [rng.integers(0, vocab, length).tolist() for length in lengths]
    return toy(root, [documents[:25], documents[25:]], vocab_size=vocab, columns=columns)


def wanted(store, names=(), *, moved=False):
    everything = range(len(store))
    columns = {name: store.documents(everything, name) for name in names}
    if moved:  # Levanter's weights are those of the prediction after a token
        flat = np.append(store.tokens(0, store.num_tokens, "loss_weights")[1:], 0)
        columns["loss_weights"] = np.split(flat, np.cumsum(store.lengths)[:-1])
    return summary(store.documents(everything), columns)


def told(peer, script, *arguments):
    return json.loads(peers.run(peer, f"consumers/{script}.py", *arguments).splitlines()[-1])


@pytest.mark.parametrize("script", ["by_tensorstore", "by_zarr"])
def test_tensorstore_and_zarr_read_an_export_to_levanter(tmp_path, script):
    store = store_of(tmp_path / "s", columns=MASKS)
    export(store, tmp_path / "out", to="levanter")
    found = told(None, script, tmp_path / "out", "assistant_masks", "loss_weights")
    assert found == wanted(store, MASKS, moved=True)


def test_datasets_reads_an_export_to_parquet(tmp_path):
    store = store_of(tmp_path / "s", columns=MASKS)
    export(store, tmp_path / "out", to="parquet")
    assert told(None, "by_datasets", tmp_path / "out", tmp_path / "cache", *MASKS) == (
        wanted(store, MASKS)
    )


@pytest.mark.slow
def test_megatron_reads_an_export_of_16_bit(tmp_path):
    store = store_of(tmp_path / "s", vocab=1000)
    export(store, tmp_path / "out", to="megatron")
    assert told("megatron", "by_megatron", tmp_path / "out") == wanted(store)


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [1000, 100_000])
def test_datatrove_reads_the_raw_tokens_of_an_export_to_megatron(tmp_path, vocab):
    store = store_of(tmp_path / "s", vocab=vocab)
    export(store, tmp_path / "out", to="megatron")
    found = told("datatrove", "by_datatrove", tmp_path / "out", store.dtype.itemsize)
    assert found == summary([store.tokens(0, store.num_tokens)])


def test_a_consumer_that_fails_is_a_failure_with_its_reason(tmp_path):
    with pytest.raises(AssertionError, match=r"(?s)by_zarr.py of None:.*FileNotFoundError"):
        told(None, "by_zarr", tmp_path / "nothing")
