"""Slow and obvious readers of exported folders, and the stores that tests export."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tensorstore as ts
from toystore import toy

COLUMNS = {
    "loss_mask": ("uint8", lambda ids: ids % 2),
    "loss_weights": ("float32", lambda ids: np.where(np.arange(len(ids)), ids / 8, 0)),
    "flag": ("bool", lambda ids: ids % 3 == 0),
}


def plain_store(root, *, vocab=1000, documents=12, empty=True, seed=1):
    """A store of random documents in two shards, without columns or metadata."""
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = rng.integers(0 if empty else 1, 40, documents)
    lists = [rng.integers(0, vocab, length).tolist() for length in lengths]
    return toy(root, [lists[: documents // 2], lists[documents // 2 :]], vocab_size=vocab)


def same(found, wanted):
    """Whether two lists of documents hold the same values."""
    pairs = [(np.asarray(a).tolist(), np.asarray(b).tolist()) for a, b in zip(found, wanted)]  # noqa: B905
    return len(list(found)) == len(list(wanted)) and all(a == b for a, b in pairs)


def documents_in(folder, to, column="input_ids"):
    """The values of every document in an exported folder."""
    return globals()[f"_{to}"](Path(folder), column)


def _split(flat, ends):
    return np.split(flat, ends[:-1]) if len(ends) else []


def _megatron(folder, column):
    raw = (folder / "text_document.idx").read_bytes()
    dtype = {8: "<u2", 4: "<i4"}[raw[17]]
    count = int.from_bytes(raw[18:26], "little")
    lengths = np.frombuffer(raw, "<i4", count, 34)
    starts = np.frombuffer(raw, "<i8", count, 34 + 4 * count)
    payload = (folder / "text_document.bin").read_bytes()
    item = np.dtype(dtype).itemsize
    return [
        np.frombuffer(payload[start : start + item * length], dtype)
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def _npy(folder, column):
    return _split(np.load(folder / f"{column}.npy"), np.load(folder / "document_ends.npy"))


def _parquet(folder, column):
    parts = sorted(folder.glob("part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part)[column].to_pylist()]


def _levanter(folder, column):
    leaf = {"loss_mask": "assistant_masks"}.get(column, column)

    def array(kind):
        kvstore = {"driver": "file", "path": str(folder / leaf / kind)}
        return ts.open({"driver": "zarr3", "kvstore": kvstore}, open=True, read=True).result()

    rows = int(array("offsets")[0].read().result())
    ends = array("offsets")[1 : rows + 1].read().result()
    assert json.loads((folder / "shard_ledger.json").read_text())["total_num_rows"] == rows
    flat = array("data")[: int(ends[-1]) if rows else 0].read().result()
    if column == "loss_weights":  # of the prediction after a token, there
        flat = np.concatenate([np.zeros(1), flat[:-1]])[: len(flat)]
    return _split(flat, ends)


def _mds(folder, column):
    found = []
    for shard in json.loads((folder / "index.json").read_text())["shards"]:
        raw = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert len(raw) == shard["raw_data"]["bytes"]
        count = int.from_bytes(raw[:4], "little")
        starts = np.frombuffer(raw, "<u4", count + 1, 4)
        for start in starts[:-1].tolist():
            names = shard["column_names"]
            sizes = np.frombuffer(raw, "<u4", len(names), start).tolist()
            place = names.index(column)
            low = start + 4 * len(names) + sum(sizes[:place])
            cell = raw[low : low + sizes[place]]
            found.append(_cell(cell, shard["column_encodings"][place]))
        assert int(starts[-1]) == len(raw)
    return found


def _cell(cell, encoding):
    if encoding == "json":
        return cell
    width = 1 << (cell[0] & 3)
    length = int.from_bytes(cell[1 : 1 + width], "little")
    values = np.frombuffer(cell[1 + width :], encoding.removeprefix("ndarray:"))
    assert (cell[0] >> 2, len(values)) == (1, length)
    return values
