"""A catalogue of hostile stores: well sealed, and not to be believed.

Each entry is a function that turns a copy of one good store into an attack. Seals and checksums
are right wherever the attack does not live from their being wrong, because whoever writes a whole
store can make them right.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard
from forge import load, reseal, seal_text

from tokenloom.store import format as fmt
from tokenloom.store import zarr

Attack = Callable[[Path], None]
ATTACKS: dict[str, Attack] = {}
BENIGN: set[str] = set()  # strange, but nothing that must be refused
ENDLESS: set[str] = set()  # not to be verified: every byte that is declared would be read
MARKER = "tokenloom-was-here"  # a file in the working directory that no attack may bring about


class Payload:
    """Unpickling this runs a command."""

    def __reduce__(self):
        return os.system, (f"touch {MARKER}",)


PICKLE = pickle.dumps(Payload())


def attack(name: str, *, benign: bool = False) -> Callable[[Attack], Attack]:
    def register(function: Attack) -> Attack:
        assert name not in ATTACKS, name
        ATTACKS[name] = function
        if benign:
            BENIGN.add(name)
        return function

    return register


def put(record, path, value):
    """Set a value deep inside plain JSON; a missing one is made, `GONE` removes it."""
    *way, last = path
    for step in way:
        record = record[step]
    if value is GONE:
        del record[last]
    else:
        record[last] = value


GONE = object()


def change_manifest(name, *changes, benign=False):
    def function(root):
        def change(record):
            for path, value in changes:
                put(record, path, value)

        reseal(root, manifest=change)

    attack(f"manifest {name}", benign=benign)(function)


def change_shard(name, *changes, benign=False):
    def function(root):
        def change(record):
            for path, value in changes:
                put(record, path, value)

        reseal(root, shard=change)

    attack(f"shard.json {name}", benign=benign)(function)


# -- values that cannot be meant -----------------------------------------------------------

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
for key in ("dtype", "length", "codec", "crc_first", "content"):
    for odd in (None, -7, 1 << 40, "object", "zstd"):
        change_shard(
            f"column {key} {odd!r}",
            (["columns", "input_ids", key], odd),
            benign=key == "content" and isinstance(odd, str),
        )
for dtype in ("float32", "uint32", "bool", "uint8", "int8", "float64"):
    change_shard(f"ids of dtype {dtype}", (["columns", "input_ids", "dtype"], dtype))
    change_shard(f"offsets of dtype {dtype}", (["columns", "offsets", "dtype"], dtype), benign=True)
change_shard("no loss_mask", (["columns", "loss_mask"], GONE))
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
            if name != "crc32c":
                column["length"] = (1 << 32) + 1 if name == "offsets" else (1 << 32) - 1
        record["columns"]["crc32c"]["length"] = 1 << 33
        for name, file in record["files"].items():
            if name.endswith("c/0"):
                file["bytes"] = 1 << 42

    def manifest(record):
        entry, other = record["shards"]
        entry["tokens"], entry["documents"] = (1 << 32) - 1, 1 << 32
        record["tokens"] = entry["tokens"] + other["tokens"]
        record["documents"] = entry["documents"] + other["documents"]
        record["inner"] = 1

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


def write_manifest(root, raw):
    (root / "manifest-000001.json").write_bytes(raw)


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
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink, compression="zstd", **options)
    reseal(root, files={"docs.parquet": sink.getvalue()})


@attack("docs.parquet: 20 million rows in one group")
def _(root):
    import pyarrow as pa

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
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq

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


INSIDE = set(ATTACKS)  # what follows leads out of the store, or to what is no file


# -- names that lead elsewhere -------------------------------------------------------------

for place in ("../../x", "/etc", "/etc/passwd", "shard-00000/../..", "..", "", "shard-0", "\x00"):
    change_manifest(f"a shard named {place!r}", (["shards", 0, "name"], place))
for place in ("../../secret.txt", "/etc/passwd", "inputs-000001.json/../x", "", "\x00", ".lock"):
    about = {"bytes": 6, "sha256": "0" * 64}
    change_manifest(f"a file named {place!r}", (["files", place], about))
    change_manifest(f"a shard file named {place!r}", (["shards", 0, "files", place], 6))
    change_manifest(f"a tokenizer in {place!r}", (["tokenizer", "file"], place), benign=not place)
    change_shard(f"a file named {place!r}", (["files", place], about))
    change_shard(f"a column named {place!r}", (["columns", place], {"dtype": "uint8"}))


def outside(root):
    """A directory beside the store, with a whole copy of its first shard and a secret."""
    other = root.parent / f"{root.name}.outside"
    other.mkdir()
    (other / "secret.txt").write_text("secret")
    shutil.copytree(root / "shard-00000", other / "shard-00000")
    return other


@attack("a shard that is a link out of the store")
def _(root):
    other = outside(root)
    shutil.rmtree(root / "shard-00000")
    os.symlink(other / "shard-00000", root / "shard-00000")


@attack("a column that is a link out of the store")
def _(root):
    other = outside(root)
    shutil.rmtree(root / "shard-00000/input_ids")
    os.symlink(other / "shard-00000/input_ids", root / "shard-00000/input_ids")


def linked(name, target):
    """A file that is a link, its size declared as what `lstat` says of it."""

    def function(root):
        place = root / name
        place.unlink()
        os.symlink(target(root), place)
        size = os.lstat(place).st_size
        _, _, rest = name.partition("/")

        def manifest(record):
            if rest:
                record["shards"][0]["files"][rest] = size
            else:
                record["files"][name]["bytes"] = size

        if name.startswith("manifest"):
            return
        reseal(root, manifest=manifest)

    return function


for name in (
    "shard-00000/input_ids/c/0",
    "shard-00000/shard.json",
    "shard-00000/docs.parquet",
    "inputs-000001.json",
):
    attack(f"{name} is a link out of the store")(
        linked(name, lambda root, n=name: outside(root) / "secret.txt")
    )
    attack(f"{name} is a link inside the store")(
        linked(name, lambda root: root / "shard-00001/shard.json")
    )


@attack("the manifest is a link out of the store")
def _(root):
    other = outside(root)
    shutil.move(root / "manifest-000001.json", other / "manifest-000001.json")
    os.symlink(other / "manifest-000001.json", root / "manifest-000001.json")


@attack("the manifest is a directory")
def _(root):
    (root / "manifest-000001.json").unlink()
    (root / "manifest-000001.json").mkdir()


@attack("the manifest is a pipe")
def _(root):
    (root / "manifest-000001.json").unlink()
    os.mkfifo(root / "manifest-000001.json")


def special(name, make):
    """A file of a shard that is no file, its size declared as what `lstat` says of it."""

    def function(root):
        place = root / "shard-00000" / name
        place.unlink()
        make(place)
        size = os.lstat(place).st_size

        def manifest(record):
            record["shards"][0]["files"][name] = size

        reseal(root, manifest=manifest)

    return function


for name in ("shard.json", "input_ids/c/0", "docs.parquet"):
    attack(f"{name} is a pipe")(special(name, os.mkfifo))
    attack(f"{name} is a directory")(special(name, os.mkdir))
