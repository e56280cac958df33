"""Hostile records: manifests and commit records, well sealed, with impossible values."""

from __future__ import annotations

import os

from attacks import ENDLESS, GONE, attack, change_manifest, change_shard, write_manifest
from forge import load, reseal, seal_text

from tokenloom.store import format as fmt

# -- impossible values ---------------------------------------------------------------------

for key in ("tokens", "documents"):
    for number in (1 << 60, 1 << 63, 1 << 200, -1, 1.5, "7", None, [], {}):
        change_manifest(f"{key} {number!r:.12}", ([key], number))
        change_manifest(f"shard {key} {number!r:.12}", (["shards", 0, key], number))
for key in ("number", "dtype", "vocab_size", "chunk_tokens", "inner", "columns", "digest", "parts"):
    for odd in (GONE, None, -1, "../x", {"a": 1}, [1]):
        what = "gone" if odd is GONE else repr(odd)
        change_manifest(f"{key} {what}", ([key], odd), benign=key == "digest" and odd == "../x")
for key in ("format", "version", "files", "shards", "tokenizer", "parent"):
    change_manifest(f"{key} is a number", ([key], 3))
for key in ("digest", "groups"):
    for odd in ("0" * 64, ["0" * 64], ["0" * 64] * 2000, [7], ["zz"]):
        change_manifest(f"{key} {odd!r:.12} {len(odd)}", ([key], odd))
change_manifest("groups of nobody", (["groups"], []))
change_manifest("identity is a number", (["tokenizer", "identity"], 7))
change_manifest("inner 2^60", (["inner"], 1 << 60))
change_manifest("vocab 2^40", (["vocab_size"], 1 << 40))
change_manifest("dtype object", (["dtype"], "object"))
change_manifest("dtype big-endian", (["dtype"], ">u2"))
change_manifest("unknown keys", (["x"], {"deep": [1]}), benign=True)
change_manifest("a shard twice", (["shards", 1, "name"], "shard-00000"))
change_manifest("a column that is not there", (["columns", "ghost"], "uint8"))
change_manifest("a column of another dtype", (["columns", "loss_mask"], "float64"))
change_manifest("a reserved column", (["columns", "offsets"], "uint32"))
change_manifest("parts with other counts", (["parts", 0, "documents"], 0))
change_manifest("parts with huge counts", (["parts", 0, "documents"], 1 << 70))
change_manifest("a part of another snapshot", (["parts", 0, "manifest"], 77), benign=True)
for key in ("number", "documents", "tokens", "inner", "columns", "files"):
    for odd in (GONE, None, -1, 1 << 60, "x"):
        what = "gone" if odd is GONE else repr(odd)
        change_shard(f"{key} {what}", ([key], odd), benign=key == "number" and type(odd) is int)
for key in ("dtype", "length", "codec", "crc_first", "page_first"):
    for odd in (None, -7, 1 << 40, "object", "zstd"):
        change_shard(f"column {key} {odd!r}", (["columns", "input_ids", key], odd))
for dtype in ("float32", "uint32", "bool", "uint8", "int8", "float64"):
    change_shard(f"ids of dtype {dtype}", (["columns", "input_ids", "dtype"], dtype))
    change_shard(f"offsets of dtype {dtype}", (["columns", "offsets", "dtype"], dtype), benign=True)
for name in ("loss_mask", "doc_hash", "column_hash", "loss_mask_counts", "page_crc32c", "crc32c"):
    change_shard(f"no {name}", (["columns", name], GONE))
for name in ("doc_hash", "column_hash", "loss_mask_counts", "id_index", "page_crc32c"):
    for odd in (0, 1, 3, 1 << 20, 1 << 32):
        change_shard(f"{name} of {odd} elements", (["columns", name, "length"], odd))
    change_shard(f"{name} is compressed", (["columns", name, "codec"], "zstd"))
    change_shard(f"{name} of another dtype", (["columns", name, "dtype"], "int8"))
for name in ("doc_hash", "column_hash", "loss_mask_counts", "id_index"):
    for key in ("crc_first", "page_first"):
        change_shard(f"{name} {key} 2^30", (["columns", name, key], 1 << 30))
        change_shard(f"{name} {key} of another column", (["columns", name, key], 0))
change_shard("no id_index", (["columns", "id_index"], GONE))
change_shard("offsets are compressed", (["columns", "offsets", "codec"], "zstd"))
change_shard("checksums are plain", (["columns", "crc32c", "codec"], "none"))
change_shard("chunks of one element", (["inner"], 1))
change_shard("chunks of 2^24 elements", (["inner"], 1 << 24))
change_shard(
    "a file of 2^59 bytes",
    (["files", "loss_mask/c/0", "bytes"], 1 << 59),
    (["files", "docs.parquet", "bytes"], 1 << 59),
)


@attack("sizes that only the commit record claims")
def _(root):
    """2^33 checksums in chunks of one element: an index of 128 GiB, in a file of a few bytes."""

    def change(record):
        record["inner"] = 1
        record["columns"]["crc32c"]["length"] = 1 << 33
        record["files"]["crc32c/c/0"]["bytes"] = 1 << 40

    reseal(root, shard=change)


@attack("a large shard of which nothing is there")
def _(root):
    """Counts agree everywhere; only the files are small."""

    def shard(record):
        record["tokens"], record["documents"] = (1 << 32) - 1, 1 << 32
        record["inner"] = 1
        for name, column in record["columns"].items():
            column["length"] = {
                "crc32c": 1 << 33,
                "page_crc32c": 1 << 33,
                "offsets": (1 << 32) + 1,
                "doc_hash": 1 << 33,
                "column_hash": 1 << 33,
                "loss_mask_counts": (1 << 22) + 1,
                "id_index": 1 << 32,
            }.get(name, (1 << 32) - 1)
        for name, file in record["files"].items():
            if name.endswith("c/0"):
                file["bytes"] = 1 << 42

    def manifest(record):
        entry, other = record["shards"]
        entry["tokens"], entry["documents"] = (1 << 32) - 1, 1 << 32
        record["tokens"] = entry["tokens"] + other["tokens"]
        record["documents"] = entry["documents"] + other["documents"]
        record["inner"] = 1
        record["groups"] = ["0" * 64] * fmt.group_count(record["documents"])
        record["digest"] = fmt.content_digest(record["groups"], record["documents"])

    reseal(root, shard=shard, manifest=manifest)


ENDLESS |= {"sparse files of terabytes", "a sparse tokenizer of a terabyte"}


@attack("sparse files of terabytes")
def _(root):
    """Sizes that the file system confirms, and that cost nothing to make."""
    huge = 1 << 41
    for name in ("loss_mask/c/0", "docs.parquet"):
        os.truncate(root / "shard-00000" / name, huge)

    def shard(record):
        for name in ("loss_mask/c/0", "docs.parquet"):
            record["files"][name]["bytes"] = huge

    def manifest(record):
        for name in ("loss_mask/c/0", "docs.parquet"):
            record["shards"][0]["files"][name] = huge

    reseal(root, shard=shard, manifest=manifest)


@attack("a sparse tokenizer of a terabyte")
def _(root):
    def manifest(record):
        name = next(n for n in record["files"] if n.startswith("tokenizer"))
        os.truncate(root / name, 1 << 40)
        record["files"][name]["bytes"] = 1 << 40

    reseal(root, manifest=manifest)


# -- JSON ----------------------------------------------------------------------------------


def rewrite(root, old, new):
    """Replace text inside the manifest and seal it again."""
    raw = fmt.canonical(load(root / "manifest-000001.json"))
    assert old in raw, old
    write_manifest(root, seal_text(raw.replace(old, new, 1).removesuffix(b"\n}")))


def json_attack(name, old, new, benign=False):
    attack(f"json {name}", benign=benign)(lambda root: rewrite(root, old, new))


for word in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-0", b"1.0", b"9" * 5000, b"9" * 4000):
    json_attack(f"inner {word[:9].decode()} {len(word)}", b'"inner": 64', b'"inner": ' + word)
json_attack("NaN where anything goes", b'"settings": {', b'"settings": {"x": NaN,', benign=True)
json_attack("a key twice", b'"inner": 64', b'"inner": 64, "inner": 64', benign=True)
json_attack("another value twice", b'"inner": 64', b'"inner": 64, "inner": 0')
json_attack("a lone surrogate", b'"settings": {', b'"settings": {"\\ud800": 1,', benign=True)
json_attack("not UTF-8", b'"settings": {', b'"settings": {"\xff": 1,')
json_attack("a byte order mark", b'{\n "chunk', b'\xef\xbb\xbf{\n "chunk', benign=True)
json_attack("nothing but a list", b'{\n "chunk', b'[{\n "chunk')
for depth in (900, 100_000, 1_000_000):
    nested = b'"settings": {"x": ' + b"[" * depth + b"]" * depth + b","
    json_attack(f"{depth} deep", b'"settings": {', nested, benign=depth == 900)
    nested = b'"settings": {"x": ' + b'{"a":' * depth + b"1" + b"}" * depth + b","
    json_attack(f"{depth} deep in objects", b'"settings": {', nested, benign=depth == 900)


@attack("a manifest of 300 MB")
def _(root):
    os.truncate(root / "manifest-000001.json", 300 << 20)


@attack("a manifest of nothing")
def _(root):
    write_manifest(root, b"")


@attack("a manifest that is only a seal")
def _(root):
    write_manifest(root, seal_text(b""))


@attack("a manifest that is null")
def _(root):
    write_manifest(root, b"null")
