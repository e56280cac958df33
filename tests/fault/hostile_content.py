"""Hostile content: files with right checksums that hold code, bombs, nonsense, or lies."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from attacks import PICKLE, attack, write_manifest
from forge import load, reseal, seal_text

from tokenloom.store import format as fmt
from tokenloom.store import zarr

# -- pickles -------------------------------------------------------------------------------


@attack("a pickle as manifest")
def _(root):
    write_manifest(root, PICKLE)


@attack("a sealed pickle as manifest")
def _(root):
    write_manifest(root, seal_text(PICKLE))


@attack("a pickle as commit record")
def _(root):
    reseal(root, shard=lambda record: PICKLE)


@attack("a sealed pickle as commit record")
def _(root):
    reseal(root, shard=lambda record: seal_text(PICKLE))


def replace_root_file(root, prefix, data):
    """New bytes for a file beside the manifest, with the right sha256 in the manifest."""

    def manifest(record):
        name = next(n for n in record["files"] if n.startswith(prefix))
        (root / name).write_bytes(data)
        about = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        record["files"][name] = about
        if prefix == "tokenizer":
            kind = record["tokenizer"]["kind"].encode()
            record["tokenizer"]["sha256"] = hashlib.sha256(kind + b"\0" + data).hexdigest()

    reseal(root, manifest=manifest)


def replace_column(root, column, data, number=0):
    """New bytes for a payload whose own checksums are inside it."""
    reseal(root, files={f"{column}/c/0": data}, number=number)


for what, content in {
    "a pickle": PICKLE,
    "nothing": b"",
    "no list": b"7",
    "a list of numbers": b"[1, 2]",
    "nameless": b"[{}]",
    "too short a list": b"[]",
    "deep": b"[" * 100_000,
    "not UTF-8": b'["\xff"]',
}.items():
    attack(f"inputs: {what}")(lambda root, d=content: replace_root_file(root, "inputs", d))
for what, content in {
    "a pickle": PICKLE,
    "nothing": b"",
    "deep": b"[" * 100_000,
    "no tokenizer": b"{}",
    "other": json.dumps({"version": "1.0", "model": {"type": "BPE"}}).encode(),
}.items():
    attack(f"tokenizer: {what}")(lambda root, d=content: replace_root_file(root, "tokenizer", d))
for what, content in {
    "a pickle": PICKLE,
    "nothing": b"",
    "half": b"PAR1" + bytes(100) + b"PAR1",
    "huge footer": b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
}.items():
    attack(f"docs.parquet: {what}")(lambda root, d=content: reseal(root, files={"docs.parquet": d}))


# -- tokenizers that are code --------------------------------------------------------------


def callable_tokenizer(name):
    def function(root):
        def manifest(record):
            record["files"] = {k: v for k, v in record["files"].items() if "inputs" in k}
            digest = hashlib.sha256(b"callable\0" + name.encode()).hexdigest()
            record["tokenizer"] = {
                "kind": "callable",
                "name": name,
                "vocab_size": 256,
                "sha256": digest,
                "file": "",
            }

        reseal(root, manifest=manifest)

    attack(f"tokenizer is {name}")(function)


for reference in ("os:system", "builtins:eval", "builtins:exec", "antigravity:geohash", "this:c"):
    callable_tokenizer(reference)


# -- metadata ------------------------------------------------------------------------------


def replace_documents(root, rows, **options):
    """A Parquet file of other rows."""
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink, compression="zstd", **options)
    reseal(root, files={"docs.parquet": sink.getvalue()})


@attack("docs.parquet: 20 million rows in one group")
def _(root):
    zeros = pa.array(np.zeros(20_000_000, np.int64))
    replace_documents(root, {"_input": zeros, "_record": zeros}, row_group_size=20_000_000)


@attack("docs.parquet: one row")
def _(root):
    replace_documents(root, {"_input": [0], "_record": [0]})


@attack("docs.parquet: inputs that are not there")
def _(root):
    replace_documents(root, {"_input": [1 << 30] * 100, "_record": [0] * 100})


@attack("docs.parquet: inputs before the first")
def _(root):
    replace_documents(root, {"_input": [-1] * 100, "_record": [0] * 100})


@attack("docs.parquet: inputs that are words")
def _(root):
    replace_documents(root, {"_input": ["x"] * 100, "_record": [0] * 100})


@attack("docs.parquet: broken JSON in a column marked as JSON")
def _(root):
    schema = pa.schema(
        [
            pa.field("_input", pa.int32()),
            pa.field("_record", pa.int64()),
            pa.field("x", pa.string(), metadata={b"tokenloom": b"json"}),
        ]
    )
    rows = {"_input": [0] * 100, "_record": [0] * 100, "x": ["[" * 10_000] * 100}
    sink = io.BytesIO()
    pq.write_table(pa.table(rows, schema=schema), sink)
    reseal(root, files={"docs.parquet": sink.getvalue()})


def jsonl_documents(root, data):
    """Metadata as JSON lines instead of Parquet."""
    folder = root / "shard-00000"
    (folder / "docs.parquet").unlink()

    def shard(record):
        del record["files"]["docs.parquet"]

    def manifest(record):
        del record["shards"][0]["files"]["docs.parquet"]

    reseal(root, shard=shard, manifest=manifest, files={"docs.jsonl.zst": data})


def zstd_bomb(size):
    """A frame that does not say how long it is, and becomes `size` zeros: 4 bytes for 128 KiB."""
    blocks = size >> 17
    header = b"\x28\xb5\x2f\xfd" + b"\x00\x58"  # no content size, a window of 2 MiB
    middle = ((1 << 17 << 3) | 2).to_bytes(3, "little") + b"\x00"  # a run-length block
    last = ((1 << 17 << 3) | 3).to_bytes(3, "little") + b"\x00"
    return header + middle * (blocks - 1) + last


for what, content in {
    "a pickle": PICKLE,
    "nothing": b"",
    "no JSON": zstandard.compress(b"{\n{\n"),
    "numbers": zstandard.compress(b"1\n2\n" * 10),
    "deep": zstandard.compress(b"[" * 100_000),
    "cut": zstandard.compress(b'{"a":1}\n' * 1000)[:-5],
}.items():
    attack(f"docs.jsonl.zst: {what}")(lambda root, d=content: jsonl_documents(root, d))


@attack("docs.jsonl.zst: four gigabytes of zeros")
def _(root):
    jsonl_documents(root, zstd_bomb(4 << 30))


# -- compressed columns and their index ----------------------------------------------------


def split_column(root, column="loss_mask"):
    """(payload, index entries [chunk, (offset, bytes)]) of a compressed column."""
    raw = (root / f"shard-00000/{column}/c/0").read_bytes()
    length = load(root / "shard-00000/shard.json")["columns"][column]["length"]
    chunks = zarr.inner_chunks(length, 64)
    size = len(raw) - zarr.index_bytes(chunks)
    return raw[:size], np.frombuffer(raw[size:-4], "<u8").reshape(-1, 2).copy()


def with_index(payload, entries):
    raw = entries.astype("<u8").tobytes()
    return payload + raw + zarr.crc32c(raw).to_bytes(4, "little")


def index_attack(name, change):
    def function(root):
        for column in ("loss_mask", "crc32c"):
            payload, entries = split_column(root, column)
            change(entries, len(payload))
            replace_column(root, column, with_index(payload, entries))

    attack(f"index {name}")(function)


def _set(entries, row, column, value):
    entries[row, column] = value


index_attack("of 2^63 bytes", lambda e, n: _set(e, 0, 1, 1 << 63))
index_attack("of 2^64-1 bytes", lambda e, n: _set(e, 0, 1, (1 << 64) - 1))
index_attack("that wraps around", lambda e, n: _set(e, -1, 0, (1 << 64) - 8))
index_attack("beyond the file", lambda e, n: _set(e, -1, 1, n + 1))
index_attack("that overlaps", lambda e, n: _set(e, -1, 0, 0) if len(e) > 1 else _set(e, 0, 0, 1))
index_attack("with a gap", lambda e, n: _set(e, 0, 0, 1))
index_attack("of empty chunks", lambda e, n: e.fill(0))
index_attack("of missing chunks", lambda e, n: e.fill((1 << 64) - 1))


def zstd_chunks(root, frames):
    """Put these frames, with right checksums, where the chunks of the compressed column are."""
    _, entries = split_column(root)
    chunks = [frame + zarr.crc32c(frame).to_bytes(4, "little") for frame in frames(len(entries))]
    sizes = np.array([len(chunk) for chunk in chunks], np.int64)
    replace_column(root, "loss_mask", b"".join(chunks) + zarr.encode_index(sizes))


def frame_claiming(size):
    """A zstd frame whose header claims `size` bytes of content."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x03\x00\x00a" + bytes(4)


for what, make_frame in {
    "claim 2^40 bytes": lambda: frame_claiming(1 << 40),
    "claim 2^64-1 bytes": lambda: frame_claiming((1 << 64) - 1),
    "claim nothing and hold a gigabyte": lambda: zstd_bomb(1 << 30),
    "claim 64 bytes and hold more": lambda: frame_claiming(64)[:-4] + bytes(200),
    "are garbage": lambda: b"garbage" * 9,
    "are empty": lambda: b"",
    "are of the wrong size": lambda: zstandard.compress(bytes(63)),
}.items():
    attack(f"zstd frames that {what}")(
        lambda root, make=make_frame: zstd_chunks(root, lambda n: [make()] * n)
    )


# -- columns that are derived, with right checksums over wrong values ---------------------------


def forge_column(root, name, change):
    """Change the payload of a plain column and make its checksums right again."""
    record = load(root / "shard-00000/shard.json")
    column, inner = record["columns"][name], fmt.inner_of(name, record["inner"])
    step = inner * np.dtype(column["dtype"]).itemsize
    raw = bytearray((root / f"shard-00000/{name}/c/0").read_bytes())
    chunks = zarr.inner_chunks(column["length"], inner)
    values = np.frombuffer(raw, column["dtype"], column["length"])
    change(values)
    payload = bytes(raw[: chunks * step])
    sums = {
        "crc32c": (column["crc_first"], step),
        "page_crc32c": (column["page_first"], 4096),
    }
    files = {f"{name}/c/0": bytes(raw)}
    for guard, (first, size) in sums.items():
        length = record["columns"][guard]["length"]
        found = read_guard(root, guard, length)
        parts = [payload[i : i + size] for i in range(0, len(payload), size)]
        found[first : first + len(parts)] = [zarr.crc32c(part) for part in parts]
        files[f"{guard}/c/0"] = write_guard(found, fmt.inner_of(guard, record["inner"]))
    reseal(root, files=files)


def read_guard(root, guard, length):
    import zarr as zarr_python

    return zarr_python.open_array(str(root / "shard-00000" / guard), mode="r")[:length].copy()


def write_guard(sums, inner):
    padded = np.zeros(zarr.inner_chunks(len(sums), inner) * inner, "<u4")
    padded[: len(sums)] = sums
    chunks = [chunk.tobytes() for chunk in padded.reshape(-1, inner)]
    chunks = [chunk + zarr.crc32c(chunk).to_bytes(4, "little") for chunk in chunks]
    return b"".join(chunks) + zarr.encode_index(np.array([len(chunk) for chunk in chunks]))


def _put(values, place, value):
    values[place] = value


for what, (name, change) in {
    "another hash": ("doc_hash", lambda v: _put(v, 3, 7)),
    "another hash of a column": ("column_hash", lambda v: _put(v, 3, 7)),
    "a count too many": ("loss_mask_counts", lambda v: _put(v, -1, 1 << 31)),
    "counts that run backwards": ("loss_mask_counts", lambda v: _put(v, 0, 1 << 30)),
    "an index of a million entries": ("id_index", lambda v: _put(v, 0, 1 << 20)),
    "an index that leads out": ("id_index", lambda v: _put(v, 0, (1 << 62) + 1)),
    "an index of other documents": ("id_index", lambda v: _put(v, slice(409, 511), 1 << 20)),
    "an empty index": ("id_index", lambda v: _put(v, slice(None), 0)),
}.items():
    attack(f"derived: {what}")(
        lambda root, name=name, change=change: forge_column(root, name, change)
    )


@attack("derived: checksums of pages that are not theirs")
def _(root):
    columns = load(root / "shard-00000/shard.json")["columns"]
    sums = read_guard(root, "page_crc32c", columns["page_crc32c"]["length"])
    reseal(root, files={"page_crc32c/c/0": write_guard(sums ^ 1, 8)})


@attack("derived: an index of chunks that only others read")
def _(root):
    for column in ("input_ids", "page_crc32c"):
        raw = bytearray((root / f"shard-00000/{column}/c/0").read_bytes())
        raw[-12:-4] = (7).to_bytes(8, "little")
        reseal(root, files={f"{column}/c/0": bytes(raw)})
