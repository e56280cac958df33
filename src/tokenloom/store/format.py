"""What a store is on disk: names, records, and the seal that makes a record trustworthy.

::

    <store>/
      manifest-000001.json     immutable snapshot, create-only; the highest number is current
      inputs-000001.json       what that snapshot's build read (names, kinds, sha256)
      tokenizer-1a2b3c4d.json  the tokenizer itself, when it has a file (also .model)
      shard-00000/
        shard.json             commit record, written last
        input_ids/zarr.json  input_ids/c/0     uint16 | uint32, codec none
        offsets/zarr.json    offsets/c/0       uint32 [documents + 1], cumulative in the shard
        <column>/...                           per-token columns, zstd + crc32c
        doc_hash/...                           uint64 [2 documents], see `store.hashes`
        column_hash/...                        the same for the per-token columns
        <loss column>_counts/...               see `store.loss_counts`
        id_index/...                           id → documents, see `store.id_index`
        crc32c/...                             one crc32c per inner chunk of every column
        page_crc32c/...                        and one per 4 KiB of each "none" column
        docs.parquet | docs.jsonl.zst          per-document metadata

Records are frozen dataclasses bound from JSON (`tokenloom.bind`). A *sealed* record ends with the
sha256 of every byte before that key, so any flipped byte is seen before a value is used. All
names are fixed by patterns: a manifest cannot point outside its store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tokenloom.bind import BindError, bind, unbind
from tokenloom.errors import StoreCorrupt, StoreError
from tokenloom.store import zarr

T = TypeVar("T")

FORMAT: Final = "tokenloom-store"
VERSION: Final = 2

INNER: Final = 32_768  # elements per inner chunk

MAX_INNER: Final = 1 << 24

CHUNK_TOKENS: Final = 262_144  # tokens per io block

SHARD_TOKENS: Final = 1 << 27  # tokens per shard, at most, unless one document is longer

SHARD_DOCUMENTS: Final = 1 << 24  # documents per shard, at most (empty documents have no tokens)

MAX_DOCUMENT_TOKENS: Final = (1 << 32) - 1  # offsets are uint32

MAX_ID: Final = (1 << 31) - 1  # ids must fit the int32 of a batch

MAX_RECORD_BYTES: Final = 1 << 28  # a manifest above this is refused unread

MAX_DEPTH: Final = 32  # levels of nesting in a record

_SIX: Final = "([0-9]{6}|[1-9][0-9]{6,8})"  # exactly what `manifest_name` and the others write
MANIFEST_NAME = re.compile(rf"manifest-{_SIX}\.json")

SHARD_NAME = re.compile(r"shard-([0-9]{5}|[1-9][0-9]{5,8})")

ROOT_FILE_NAME = re.compile(
    rf"(?:inputs|plan)-{_SIX}\.json|skipped-{_SIX}\.jsonl|stretch-{_SIX}-[0-9]{{5}}\.json"
    r"|tokenizer-([0-9a-f]{8})\.(json|model)"
)

SHARD_FILE_NAME = re.compile(
    r"([a-z][a-z0-9_]{0,62}/(zarr\.json|c/0)|(docs\.parquet|(docs|skipped)\.jsonl\.zst|shard\.json))"
)

COLUMN_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

HEX = re.compile(r"[0-9a-f]{64}")

LOSS_COLUMNS: Final = ("loss_mask", "loss_weights")

FIXED_DTYPES: Final = {
    "offsets": "uint32",
    "doc_hash": "uint64",
    "column_hash": "uint64",
    "id_index": "uint64",
    "crc32c": "uint32",
    "page_crc32c": "uint32",
    **{f"{name}_counts": "uint32" for name in LOSS_COLUMNS},
}

RESERVED_COLUMNS: Final = frozenset({"input_ids", *FIXED_DTYPES})

COLUMN_DTYPES: Final = ("bool", "uint8", "uint16", "uint32", "int8", "int32", "float32", "float64")

GROUP_DOCUMENTS: Final = 65_536  # documents under one digest

COUNT_TOKENS: Final = 1024  # tokens between two counts of a loss column

INDEX_WORDS: Final = 512  # uint64 of one page of the id index, 4 KiB

SMALL: Final = 8  # columns that are not read by token have chunks that much smaller


def manifest_name(number: int) -> str:
    """`manifest-000001.json` for 1."""
    return f"manifest-{number:06d}.json"


def inputs_name(number: int) -> str:
    """`inputs-000001.json` for 1."""
    return f"inputs-{number:06d}.json"


def shard_name(number: int) -> str:
    """`shard-00000` for 0."""
    return f"shard-{number:05d}"


def token_dtype(vocab_size: int) -> str:
    """The narrowest stored dtype: uint16 up to 65,536 ids, else uint32.

    >>> token_dtype(65_536), token_dtype(65_537)
    ('uint16', 'uint32')
    """
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def inner_of(name: str, inner: int) -> int:
    """Elements per inner chunk of a column of a shard whose tokens have `inner`.

    >>> inner_of("input_ids", 32_768), inner_of("doc_hash", 32_768), inner_of("id_index", 32_768)
    (32768, 4096, 512)
    """
    if name == "id_index":
        return INDEX_WORDS
    return max(1, inner // SMALL) if name in FIXED_DTYPES and name != "offsets" else inner


def group_count(documents: int) -> int:
    """The number of groups of `documents` documents; the last group may be short."""
    return -(-documents // GROUP_DOCUMENTS)


def unknown_groups(documents: int) -> tuple[str, ...]:
    """Zeros in place of the group digests until they are computed."""
    return ("0" * 64,) * group_count(documents)


def content_digest(groups: Sequence[str], documents: int) -> str:
    """Identity of the content of a store: over its group digests and the number of documents."""
    sha256 = hashlib.sha256(b"".join(map(bytes.fromhex, groups)))
    sha256.update(documents.to_bytes(8, "little"))
    return sha256.hexdigest()


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """Size and sha256 of one published file."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        _require(0 <= self.bytes < 1 << 60, f"bytes is {self.bytes}, allowed: 0 to 2^60")
        _require(bool(HEX.fullmatch(self.sha256)), "sha256 is not 64 hex digits")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One array of a shard.

    `crc_first` and `page_first` are the places of its first inner chunk in the crc32c column
    (-1 for the two columns of checksums) and of its first page in the page_crc32c column (codec
    "none" only, else -1).
    """

    dtype: str
    length: int
    codec: str
    crc_first: int = -1
    page_first: int = -1

    def __post_init__(self) -> None:
        allowed = (*COLUMN_DTYPES, "uint64")
        _require(self.dtype in allowed, f"dtype {self.dtype!r}, allowed: {allowed}")
        _require(self.codec in zarr.CODECS, f"codec {self.codec!r}, allowed: {list(zarr.CODECS)}")
        _require(0 <= self.length <= 1 << 33, f"length is {self.length}, allowed: 0 to 2^33")
        firsts = (self.crc_first, self.page_first)
        _require(all(-1 <= one < 1 << 33 for one in firsts), f"crc_first, page_first: {firsts}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """The commit record of one shard, `shard.json`; `snapshot` is whose it is (0: unknown)."""

    format: str = FORMAT
    version: int = VERSION
    number: int
    documents: int
    tokens: int
    inner: int
    fingerprint: str
    engine: str
    columns: dict[str, Column]
    files: dict[str, FileRecord]
    progress: dict[str, int]
    snapshot: int = 0

    def __post_init__(self) -> None:
        _require(self.format == FORMAT, f"format is {self.format!r}, allowed: {FORMAT!r}")
        _require(self.version == VERSION, f"version is {self.version}, this reader knows {VERSION}")
        _require(1 <= self.inner <= MAX_INNER, f"inner is {self.inner}, allowed: 1 to 2^24")
        for name in self.columns:
            _require(bool(COLUMN_NAME.fullmatch(name)), f"column name {name!r} is not allowed")
        for name in self.files:
            _require(bool(SHARD_FILE_NAME.fullmatch(name)), f"file name {name!r} is not allowed")
        own = self.columns.keys() - RESERVED_COLUMNS
        needed = {"input_ids", "offsets", "doc_hash", "crc32c", "page_crc32c"}
        needed |= {"column_hash"} if own else set()
        needed |= {f"{name}_counts" for name in own & set(LOSS_COLUMNS)}
        _require(needed <= self.columns.keys(), "a column is missing")
        surplus = (self.columns.keys() & RESERVED_COLUMNS) - needed - {"id_index"}
        _require(not surplus, f"column {', '.join(sorted(surplus))} belongs to no other column")
        pages = self.columns.get("id_index")
        _require(
            pages is None or (pages.length > 0 and pages.length % INDEX_WORDS == 0),
            f"id_index is not pages of {INDEX_WORDS} elements",
        )
        for name, column in self.columns.items():
            expected = self._length_of(name, len(own))
            _require(
                expected in (None, column.length),
                f"column {name} has {column.length} elements, expected {expected}",
            )
        files = {f"{name}/{part}" for name in self.columns for part in ("zarr.json", "c/0")}
        wrong = files ^ {name for name in self.files if not name.startswith(("docs.", "skipped."))}
        _require(not wrong, f"files {', '.join(sorted(wrong))} are missing or of no column")

    def _length_of(self, name: str, own: int) -> int | None:
        """Elements that a column must have; None where only its content can tell."""
        if name.endswith("_counts") and name in FIXED_DTYPES:
            return -(-self.tokens // COUNT_TOKENS) + 1
        fixed = {
            "offsets": self.documents + 1,
            "doc_hash": 2 * self.documents,
            "column_hash": 2 * own * self.documents,
            "crc32c": None,
            "page_crc32c": None,
            "id_index": None,
        }
        return fixed.get(name, self.tokens)

    def disagreement(self, manifest: Manifest, entry: ShardEntry) -> str | None:
        """What this record says otherwise than the manifest, or None."""
        if (self.documents, self.tokens) != (entry.documents, entry.tokens):
            return "its counts are not those of the manifest"
        sizes = {name: file.bytes for name, file in self.files.items()}
        if sizes != {name: size for name, size in entry.files.items() if name != "shard.json"}:
            return "its files are not those of the manifest"
        dtypes = {name: column.dtype for name, column in self.columns.items()}
        fixed = {name: FIXED_DTYPES[name] for name in dtypes.keys() & FIXED_DTYPES.keys()}
        fixed["input_ids"] = manifest.dtype
        if dtypes != {**manifest.columns, **fixed} or self.inner != manifest.inner:
            return "its columns are not those of the manifest"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardEntry:
    """A shard as its manifest knows it; `files` gives the size of each file in bytes."""

    name: str
    documents: int
    tokens: int
    sha256: str
    files: dict[str, int]

    def __post_init__(self) -> None:
        _require(bool(SHARD_NAME.fullmatch(self.name)), f"shard name {self.name!r} is not allowed")
        _require(0 <= self.documents <= 1 << 33, f"documents is {self.documents}")
        _require(0 <= self.tokens < 1 << 32, f"tokens is {self.tokens}, allowed: 0 to 2^32-1")
        for name, size in self.files.items():
            _require(bool(SHARD_FILE_NAME.fullmatch(name)), f"file name {name!r} is not allowed")
            _require(0 <= size < 1 << 60, f"size of {name} is {size}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerRecord:
    """What a store knows about the tokenizer that made it.

    `file` is empty when it has none; `identity` is that of its vocabulary and special ids (see
    `tokenloom.tokenizer.vocabulary`), empty for a function, whose vocabulary nobody knows.
    """

    kind: str
    name: str
    vocab_size: int
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    sha256: str = ""
    identity: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        _require(
            self.file == "" or bool(ROOT_FILE_NAME.fullmatch(self.file)),
            f"file name {self.file!r} is not allowed",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one build or one append added: whole shards, in order."""

    manifest: int
    fingerprint: str
    shards: int
    documents: int
    tokens: int
    skipped: int
    filtered: int
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """One immutable snapshot of a store.

    `digest` is the identity of the content and `groups` what it is made of: one sha256 for every
    `GROUP_DOCUMENTS` consecutive documents (see `tokenloom.store.hashes`).
    """

    format: str = FORMAT
    version: int = VERSION
    number: int
    parent: str | None
    dtype: str
    vocab_size: int
    chunk_tokens: int
    inner: int
    columns: dict[str, str]
    tokenizer: TokenizerRecord | None
    documents: int
    tokens: int
    digest: str
    groups: tuple[str, ...]
    parts: tuple[Part, ...]
    files: dict[str, FileRecord]
    shards: tuple[ShardEntry, ...]
    producer: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(self.format == FORMAT, f"format is {self.format!r}, allowed: {FORMAT!r}")
        _require(self.version == VERSION, f"version is {self.version}, this reader knows {VERSION}")
        _require(1 <= self.vocab_size <= MAX_ID + 1, f"vocab_size is {self.vocab_size}")
        _require(self.dtype in ("uint16", "uint32"), f"dtype is {self.dtype!r}")
        _require(1 <= self.inner <= MAX_INNER, f"inner is {self.inner}, allowed: 1 to 2^24")
        _require(
            1 <= self.chunk_tokens <= SHARD_TOKENS,
            f"chunk_tokens is {self.chunk_tokens}, allowed: 1 to {SHARD_TOKENS:,}",
        )
        _require(
            self.documents == sum(shard.documents for shard in self.shards)
            and self.tokens == sum(shard.tokens for shard in self.shards),
            "documents or tokens is not the sum over the shards",
        )
        _require(
            len(self.groups) == group_count(self.documents)
            and all(map(HEX.fullmatch, self.groups)),
            "groups are not one sha256 for every 65,536 documents",
        )
        _require(
            self.digest == content_digest(self.groups, self.documents),
            f"digest {self.digest!r:.80} is not that of the groups",
        )
        names = [shard.name for shard in self.shards]
        _require(len(set(names)) == len(names), "a shard is listed twice")
        _require(
            sum(part.shards for part in self.parts) == len(names)
            and sum(part.documents for part in self.parts) == self.documents
            and sum(part.tokens for part in self.parts) == self.tokens
            and all(min(p.shards, p.documents, p.tokens) >= 0 for p in self.parts),
            "parts do not add up to the shards",
        )
        order = [part.manifest for part in self.parts]
        _require(
            order == sorted(set(order)) and order[-1:] == [self.number],
            "parts are not in the order of their snapshots",
        )
        for name, dtype in self.columns.items():
            allowed = COLUMN_NAME.fullmatch(name) and name not in RESERVED_COLUMNS
            _require(bool(allowed), f"column name {name!r} is not allowed")
            _require(dtype in COLUMN_DTYPES, f"dtype {dtype!r} of {name} is not allowed")
        for name in self.files:
            _require(bool(ROOT_FILE_NAME.fullmatch(name)), f"file name {name!r} is not allowed")


def canonical(value: Any) -> bytes:
    """The one serialisation of a JSON value: sorted keys, one space of indent, no NaN."""
    text = json.dumps(unbind(value), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    return text.encode()


def read_json(raw: bytes) -> Any:
    """The JSON value of bytes from a store; a ValueError for what `canonical` never writes.

    That is: NaN and infinities, lone surrogates, another encoding, nesting that could exhaust a
    stack later.
    """
    if _SURROGATE.search(raw):
        raise ValueError("it holds half a character (a lone surrogate)")
    value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = [one for one in level if isinstance(one, (dict, list))]
        if not nested:
            return value
        level = [x for one in nested for x in (one.values() if isinstance(one, dict) else one)]
    raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_SEAL = b',\n "sha256": "%s"\n}\n'

_SEAL_BYTES = len(_SEAL % (b"0" * 64))


def seal(record: Any) -> bytes:
    """A record as JSON that ends with the sha256 of every byte before that key."""
    body = canonical(record).removesuffix(b"\n}")
    return body + _SEAL % hashlib.sha256(body).hexdigest().encode()


def unseal(cls: type[T], raw: bytes, path: str) -> T:
    """The record in sealed bytes.

    Raises:
        StoreCorrupt: naming `path`, when the seal is broken or a value is invalid.
    """
    if b'"%s"' % FORMAT.encode() not in raw:
        found = "it names no store format, so tokenloom did not write it, or it is damaged"
        raise StoreCorrupt(f"{path}: {found}. Restore it from a copy, or name another directory.")
    body = raw[:-_SEAL_BYTES]
    if raw != body + _SEAL % hashlib.sha256(body).hexdigest().encode():
        raise StoreCorrupt(
            f"{path}: its sha256 does not match its content. The file was changed or cut short "
            "after it was published; restore it from a copy, or build the store again."
        )
    try:
        plain = read_json(body + b"\n}")
        if isinstance(plain, dict) and (plain.get("format"), plain.get("version")) == (FORMAT, 1):
            raise StoreError(
                f"{path}: it is of store format 1, this version reads format {VERSION}; build the "
                "store again from its inputs."
            )
        return bind(cls, plain, path=path, unknown="ignore")
    except (ValueError, RecursionError) as error:
        lines = error.problems[:5] if isinstance(error, BindError) else [f"{path}: {error!r:.200}"]
        raise StoreCorrupt(
            "; ".join(lines) + ". This is not a store that tokenloom wrote, or it was made by a "
            "newer version; nothing was read from it. Update tokenloom, or build the store again."
        ) from error
