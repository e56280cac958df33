"""How files are read: what they are by name and first bytes, encodings, and how long records are.

One idea: nothing is guessed. A file is what its suffix says, and one whose first bytes contradict
it is refused. Text is UTF-8 unless other encodings are named, and what did not fit the first of
them is counted and reported.
"""

from __future__ import annotations

import codecs
import contextlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from tokenloom.arguments import Place, integer, one_of
from tokenloom.errors import ConfigError, InputError, MissingExtra

__all__ = [
    "MAX_RECORD_BYTES",
    "Compression",
    "Kind",
    "Reading",
    "check_magic",
    "decoder",
    "describes",
    "fits",
    "kind_of",
]

Kind = Literal["txt", "lines", "jsonl", "parquet", "hf", "table", "rows"]

Compression = Literal["none", "gz", "zst"]

TEXT_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("txt", "text", "md", "markdown", "rst", "adoc", "org", "tex", "py", "pyi"),
        *("c", "h", "cc", "cpp", "hpp", "cu", "java", "js", "ts", "go", "rs", "rb", "sh", "sql"),
        *("r", "jl", "scala", "kt", "swift", "php", "pl", "lua", "hs", "ml"),
    )
)

# what lies beside data and describes a tokenizer, a model or a dataset
DESCRIBING = frozenset(
    {
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
        *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.json"),
        *("config.json", "generation_config.json"),
        *("dataset_info.json", "dataset_infos.json", "dataset_dict.json"),
    }
)

JSON_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json"})

MAGIC: dict[Compression, re.Pattern[bytes]] = {
    "gz": re.compile(rb"\x1f\x8b"),
    # a zstd frame, or a skippable frame in front of one (seekable archives)
    "zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}

MAX_RECORD_BYTES = 128 << 20  # encoding takes about nine times that


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How inputs are read.

    Attributes:
        encodings: tried in order for the text of files; the first is reported if none fits.
        errors: what becomes of bytes that fit none: "strict", "replace" or "ignore".
        max_record_bytes: longer records are refused, and not read whole.
    """

    encodings: tuple[str, ...] = ("utf-8",)
    errors: str = "strict"
    max_record_bytes: int = MAX_RECORD_BYTES

    @classmethod
    def of(cls, encoding: str | Sequence[str], errors: str, max_record_bytes: int) -> Reading:
        """From the arguments of a build.

        >>> Reading.of("UTF8", "replace", 1000).encodings
        ('utf-8',)
        """
        names = (encoding,) if isinstance(encoding, str) else tuple(encoding)
        known = []
        for name in names:
            try:
                found = codecs.lookup(name)
                "a".encode(name)  # some codecs are not of text
            except (LookupError, TypeError, ValueError):
                raise ConfigError(
                    f"encoding: found {name!r}, allowed: names that Python knows, such as 'utf-8', "
                    "'utf-16' or 'cp1252'; several are tried in order."
                ) from None
            known.append(found.name)
        if not known:
            raise ConfigError("encoding: found none, allowed: one name, or several.")
        one_of("errors", errors, ("strict", "replace", "ignore"))
        limit = integer("max_record_bytes", max_record_bytes, 1, 1 << 30)
        return cls(encodings=tuple(known), errors=errors, max_record_bytes=limit)


def decoder(
    encodings: Sequence[str], errors: str, note: Callable[[str], None]
) -> Callable[[bytes], str]:
    r"""Bytes to text, in the first encoding that fits; what was not in the first one is noted.

    >>> decoder(["utf-8", "cp1252"], "strict", print)(b"caf\xe9")
    not valid utf-8, read as cp1252
    'café'
    """
    first, *others = encodings
    if not others and errors == "strict":
        return bytes.decode if first == "utf-8" else lambda data: data.decode(first)

    def decode(data: bytes) -> str:
        try:
            return data.decode(first)
        except UnicodeDecodeError:
            for name in others:
                with contextlib.suppress(UnicodeDecodeError):
                    text = data.decode(name)
                    note(f"not valid {first}, read as {name}")
                    return text
            text = data.decode(first, errors)
        done = {"replace": "replaced", "ignore": "left out"}[errors]
        note(f"not valid {first}, bytes {done}")
        return text

    return decode


# -- what a file is -------------------------------------------------------------------------
def _suffix_kind(path: Place) -> tuple[Kind | None, Compression]:
    compression: Compression = "none"
    name = PurePath(path.name)
    suffix = name.suffix.lower()
    if suffix in (".gz", ".zst"):
        compression = "gz" if suffix == ".gz" else "zst"
        suffix = PurePath(name.stem).suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return "txt", compression
    if suffix in JSON_SUFFIXES:
        return "jsonl", compression
    return ("parquet" if suffix == ".parquet" else None), compression


def fits(path: Place, kind: Kind | None) -> bool:
    """Whether the suffix of a file says that it is of a kind; None: of any that we know."""
    found, _ = _suffix_kind(path)
    return found is not None and (kind is None or found == ("txt" if kind == "lines" else kind))


def describes(path: Place) -> bool:
    """Whether a file by its name describes a tokenizer, a model or a dataset, and holds no text.

    >>> describes(PurePath("corpus/tokenizer.json")), describes(PurePath("corpus/texts.json"))
    (True, False)
    """
    return path.name in DESCRIBING


def kind_of(where: str, path: Place, kind: Kind | None) -> tuple[Kind, Compression]:
    """What a file is: `kind`, or what its suffix says, and how it is packed."""
    suffix_kind, compression = _suffix_kind(path)
    kind = kind or suffix_kind
    if kind is None:
        suffix = PurePath(path.name).suffix
        raise InputError(
            f"{where}: {str(path)!r} has the unknown suffix {suffix!r}. Say what it holds: "
            f"'txt:{path}' (one document), 'lines:{path}', 'jsonl:{path}' or 'parquet:{path}'."
        )
    return kind, compression


def check_magic(where: str, path: Place, kind: Kind, compression: Compression, head: bytes) -> None:
    """Refuses a file whose first bytes contradict its suffix, before hours of work start."""
    if kind == "parquet":
        if compression != "none":
            raise InputError(
                f"{where}: {path}: found {compression}, but parquet compresses itself. Unpack the "
                "file first."
            )
        if head != b"PAR1":
            raise InputError(
                f"{where}: {path} starts with {head!r}, a parquet file with b'PAR1'."
                " Remove it from the inputs, or name its kind, as in 'jsonl:PATH'."
            )
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtra(f"Reading {path}", "pyarrow", "parquet")
        return
    actual = next((name for name, magic in MAGIC.items() if magic.match(head)), "none")
    if actual != compression:
        said = {"none": "not compressed", "gz": "gzip", "zst": "zstd"}
        raise InputError(
            f"{where}: {path} is {said[compression]} by its name, and {said[actual]} by its first "
            f"bytes {head!r}. Rename it (.gz, .zst, or neither) or write it again."
        )
