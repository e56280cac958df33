"""What the user names becomes an ordered list of inputs.

`expand` turns paths, globs, spec strings and objects into `Input` records and reads no content
beyond the first bytes (`tokenloom.ingest.identity` does). The order is the order given, and sorted
inside a directory or a glob, so the same call gives the same list on any machine.

=================  ==========================================================================
``corpus/``        every supported file below, sorted; hidden files and directories are skipped, and
                   files of a tokenizer (`tokenizer.json` and its like), with a warning
``corpus/*.gz``    a glob, ``**`` allowed; kind by suffix
``txt:PATH``       one document per file
``lines:PATH``     one document per line
``jsonl:PATH``     one JSON object per line
``parquet:PATH``   one row per record
``s3://…``         an object, a folder or a glob in a bucket; also after ``jsonl:`` and its kin
``hf:PATH``        a dataset saved with ``save_to_disk``; ``hf:PATH:split`` for a ``DatasetDict``
objects            a ``datasets.Dataset``, a table (pandas, Arrow and whatever speaks Arrow), or a
                   list of mappings
iterators          generators and streaming datasets: spooled first (`tokenloom.ingest.spool`)
=================  ==========================================================================

A path that exists always wins over a spec or a glob of the same spelling. ``.gz`` and ``.zst`` on
top of any text suffix mean compressed. A file is what its suffix says, and one whose first bytes
contradict it is refused. Nothing is ever downloaded but the objects that a URL names, in ranges.
What a directory holds and is not taken is logged.
"""

from __future__ import annotations

import codecs
import difflib
import errno
import glob
import importlib.util
import io
import itertools
import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Literal, NoReturn, TypeVar, cast

from tokenloom.arguments import Place, Url, place
from tokenloom.errors import ConfigError, InputError, MissingExtra, choices, plural, warn
from tokenloom.ingest.spool import as_table, spool
from tokenloom.remote.objects import find_objects, first_bytes

log = logging.getLogger("tokenloom")

P = TypeVar("P", bound=Place)

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

SPEC_KINDS: tuple[Kind, ...] = ("txt", "lines", "jsonl", "parquet", "hf")

_ALLOWED = (
    "allowed: a path, a directory, a glob, a URL, txt:PATH, lines:PATH, jsonl:PATH, parquet:PATH, "
    "hf:PATH, a datasets.Dataset, a DataFrame or Arrow table, a list of mappings, or an iterator "
    "of mappings"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One file, one saved dataset, or one object that records are read from.

    Attributes:
        kind: How records are found in it.
        name: What the store records: the path below the common parent of all inputs, with ``/``
            between its parts. Never absolute.
        path: Where it lies, absolute, or a URL; a directory for a saved dataset, None for objects.
        compression: What the bytes of the file are packed with.
        rows: A ``datasets.Dataset`` (kind ``hf``), an Arrow table (``table``), a sequence of
            mappings or a `Spool` (``rows``).
        size: Bytes of the file as stored; 0 for datasets and objects.
        sha256: Identity of the content, filled by `identify`; empty before.
        encoding: Of text, as `known_encoding` names it.
        errors: What becomes of bytes that do not fit it: "strict", "replace" or "ignore".
        max_record_bytes: Longer records are refused, and not read whole.
        etag: What the bucket called the content when it was listed; never recorded.
    """

    kind: Kind
    name: str
    path: Place | None
    compression: Compression = "none"
    rows: Any = field(default=None, repr=False, compare=False)
    size: int
    sha256: str = ""
    encoding: str = "utf-8"
    errors: str = "strict"
    max_record_bytes: int = MAX_RECORD_BYTES
    etag: str | None = None


def known_encoding(name: str) -> str:
    """The name by which Python knows an encoding of text.

    >>> known_encoding("UTF8")
    'utf-8'
    """
    try:
        "a".encode(name)  # some codecs are not of text
        return codecs.lookup(name).name
    except (LookupError, TypeError, ValueError):
        raise ConfigError(
            f"encoding: found {name!r}, allowed: names that Python knows, such as 'utf-8', "
            "'utf-16' or 'cp1252'."
        ) from None


def label(one: Input) -> str:
    """What an error message calls this input: its path, or the name of an object."""
    return str(one.path) if one.path is not None else one.name


def unreadable(path: object, error: OSError) -> InputError:
    """The error of an input file that the system does not give, with what helps."""
    advice = {
        errno.ENOENT: "Put it back and start again.",
        errno.EMFILE: "The file is fine: this process has too many open. Raise `ulimit -n`.",
        errno.ENFILE: "The file is fine: this machine has too many open. Close some.",
        errno.EIO: "The disk or the network failed, not the file's content. Start again.",
        errno.ESTALE: "The network file system lost it. Start again.",
    }.get(error.errno or 0, "Make it readable.")
    return InputError(f"{path}: {error.strerror or error}. {advice}")


def check_size(one: Input, size: int | None = None) -> None:
    """Raises if a file does not have the size that it had when it was listed.

    Args:
        one: An input with a path.
        size: Bytes seen; asked of the file system if None. Of an object, every read asks.
    """
    if size is None and isinstance(one.path, Url):
        return
    try:
        size = os.stat(label(one)).st_size if size is None else size
    except OSError as error:
        raise unreadable(label(one), error) from error
    if size != one.size:
        raise InputError(
            f"{label(one)}: {size} bytes now, {one.size} when it was listed. "
            "Wait until nothing writes to it and start again."
        )


# ---------------------------------------------------------------- what the user names
def expand(
    inputs: object,
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> list[Input]:
    """The inputs that one value or a sequence of values names, in order.

    Args:
        inputs: A path, directory, glob or spec string (see the module's table), a
            ``datasets.Dataset``, a table, a sequence or an iterator of mappings (the records
            themselves), or a sequence of any of these.
        encoding: See `Input`; so are the next two.
        errors: What becomes of bytes that do not fit the encoding.
        max_record_bytes: The longest record that is read.

    Raises:
        InputError: Something is missing, empty, of an unknown kind, or not what its suffix says.
        MissingExtra: An input needs ``pyarrow`` or ``datasets`` and it is not installed.
    """
    found = [one for where, item in _items(inputs) for one in _expand_one(where, item)]
    for one in found:
        _check_newline(one, encoding)
    trails = [_trail(one.path) for one in found if one.path is not None]
    roots = {url: _common(trails, url) for url in (False, True)}
    return [
        replace(
            one,
            name=_name(one, i, roots),
            encoding=encoding,
            errors=errors,
            max_record_bytes=max_record_bytes,
        )
        for i, one in enumerate(found)
    ]


def _trail(path: Place) -> tuple[bool, str]:
    """Whether it is a URL, and the path from which it gets its name."""
    return (True, f"{path.host}/{path.key}") if isinstance(path, Url) else (False, str(path))


def _common(trails: list[tuple[bool, str]], url: bool) -> str:
    parents = [os.path.dirname(trail) for is_url, trail in trails if is_url == url]
    return os.path.commonpath(parents) if parents else ""


def _check_newline(one: Input, encoding: str) -> None:
    """Lines are found by their newline, which must be the byte that it is in ASCII."""
    if one.kind in ("lines", "jsonl") and b"\n".decode(encoding, "replace") != "\n":
        raise InputError(
            f"{label(one)}: encoding {encoding!r} is for whole files (txt:), since a newline is "
            f"not one byte in it. Convert the file, as with: iconv -f {encoding} -t utf-8."
        )


def _name(one: Input, position: int, roots: dict[bool, str]) -> str:
    if one.path is None:
        kind = {"hf": "dataset", "table": "table"}.get(one.kind, "rows")
        return f"{kind}-{position}"
    url, trail = _trail(one.path)
    relative = os.path.relpath(trail, roots[url]).replace(os.sep, "/")
    # a file name need not be UTF-8, but what a store records must be
    return os.fsencode(relative).decode("utf-8", "backslashreplace")


def _items(inputs: object) -> list[tuple[str, object]]:
    """Each value with the path that an error message gives it."""
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Sequence):
        return [("inputs", inputs)]
    if not len(inputs):
        raise InputError(f"inputs: an empty {type(inputs).__name__}; {_ALLOWED}.")
    if any(isinstance(item, Mapping) for item in inputs):
        return [("inputs", inputs)]
    return [(f"inputs[{i}]", item) for i, item in enumerate(inputs)]


def _expand_one(where: str, item: object) -> list[Input]:
    if isinstance(item, str | os.PathLike):
        text = os.fspath(item)
        if isinstance(text, str):
            return _expand_text(where, text)
    if _is_dataset(item, "Dataset"):
        return [_object("hf", item)]
    if _is_dataset(item, "DatasetDict") or _is_dataset(item, "IterableDatasetDict"):
        splits = ", ".join(item) if isinstance(item, Mapping) else ""
        kind = type(item).__name__
        raise InputError(f"{where}: a {kind} (splits: {splits}). Pass one split, as d['…'].")
    if hasattr(item, "__arrow_c_stream__"):
        return [_object("table", as_table(where, item))]
    if isinstance(item, Mapping):
        item = [item]
    if isinstance(item, Sequence) and item and not isinstance(item, _BYTES):
        _check_rows(where, item)
        return [_object("rows", item)]
    if isinstance(item, Iterable) and not isinstance(item, (*_BYTES, Sequence, io.IOBase)):
        return _from_iterator(where, item)
    raise InputError(f"{where}: found {type(item).__name__}; {_ALLOWED}.")


_BYTES = (bytes, bytearray, memoryview)


def _check_rows(where: str, rows: Sequence[Any]) -> None:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(
                f"{where}[{i}]: found {type(row).__name__} among records, allowed: a mapping "
                f"such as {{'text': …}}. Give records and paths in lists of their own."
            )


def _from_iterator(where: str, item: Iterable[Any]) -> list[Input]:
    """Records that come once are kept in a temporary file; paths are a list of paths."""
    records = iter(item)
    first = next(records, None)
    if isinstance(first, str | os.PathLike):
        paths = [first, *records]
        return [one for i, path in enumerate(paths) for one in _expand_one(f"{where}[{i}]", path)]
    if first is None:
        raise InputError(f"{where}: the {type(item).__name__} gave nothing; {_ALLOWED}.")
    return [_object("rows", spool(where, type(item).__name__, first, records))]


def _object(kind: Kind, rows: Any) -> Input:
    return Input(kind=kind, name="", path=None, rows=rows, size=0)


def _is_dataset(item: object, name: str) -> bool:
    # whoever holds such an object has imported the library, so asking for it imports nothing
    kind = getattr(sys.modules.get("datasets"), name, None)
    return isinstance(kind, type) and isinstance(item, kind)


def _expand_text(where: str, text: str) -> list[Input]:
    if not text.strip():
        raise InputError(f"{where}: an empty string; {_ALLOWED}.")
    if os.path.lexists(text) or _ADDRESS.match(text):
        return _from_path(where, text, None)
    prefix, colon, rest = text.partition(":")
    kind = next((known for known in SPEC_KINDS if colon and known == prefix), None)
    if kind is not None:
        if not rest.strip():
            raise InputError(f"{where}: {text!r} names no path. Write {kind}:PATH.")
        return _from_hf(where, rest) if kind == "hf" else _from_path(where, rest, kind)
    if colon and re.fullmatch(r"[A-Za-z0-9_+-]+", prefix) and not glob.glob(text, recursive=True):
        close = difflib.get_close_matches(prefix.lower(), SPEC_KINDS, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}:{rest}'?" if close else ""
        raise InputError(
            f"{where}: no file {text!r}, and no kind named {prefix!r}. "
            f"Allowed: {', '.join(SPEC_KINDS)}.{hint}"
        )
    return _from_path(where, text, None)


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def _from_url(where: str, text: str, kind: Kind | None) -> list[Input]:
    """The objects of a URL, as `_from_path` finds files."""
    found, single = find_objects(where, cast(Url, place(where, text)))
    named = single or (kind is not None and glob.has_magic(text))
    taken = [one for one in found if named or fits(one.url, kind)]
    if not single:
        data = set(_data_files(text, [one.url for one in taken]))
        taken = [one for one in taken if one.url in data]
    if not taken:
        _refuse_others(where, text, kind, [one.url for one in found])
    heads = first_bytes(taken, 4)
    inputs = []
    for one, head in zip(taken, heads, strict=True):
        known, compression = kind_of(where, one.url, kind)
        check_magic(where, one.url, known, compression, head)
        inputs.append(
            Input(
                kind=known,
                name="",
                path=one.url,
                compression=compression,
                size=one.size,
                etag=one.etag,
            )
        )
    return inputs


def _from_path(where: str, text: str, kind: Kind | None) -> list[Input]:
    """The files of a path, a directory or a glob, of `kind` or of the kind each suffix says."""
    if _ADDRESS.match(text) and not os.path.lexists(text):
        return _from_url(where, text, kind)
    if os.path.isdir(text):
        if kind is None and _is_saved(Path(text)):
            raise InputError(
                f"{where}: {text!r} holds a dataset saved with save_to_disk. Write 'hf:{text}'."
            )
        hidden, linked = list[str](), list[str]()
        found = _walk(where, text, hidden, linked)
        candidates = sorted(found, key=lambda path: path.parts)
        # a spec on a directory still goes by suffix, else it would take in every README beside it
        paths = [path for path in candidates if fits(path, kind)]
        data = [path for path in paths if not describes(path)]
        _tell_of_directory(text, data, candidates, hidden, linked)
    elif os.path.lexists(text):
        return [_file(where, Path(text), kind)]
    elif glob.has_magic(text):
        fixed = itertools.takewhile(lambda part: not glob.has_magic(part), Path(text).parts)
        folder = Path(*fixed)
        if not folder.is_dir():
            _missing(where, str(folder))
        found_once = set(map(Path, glob.glob(text, recursive=True)))  # two ** find a file twice
        matches = sorted(found_once, key=lambda path: path.parts)
        candidates = [path for path in matches if not path.is_dir()]
        paths = [path for path in candidates if kind is not None or fits(path, None)]
    else:
        _missing(where, text)
    paths = _data_files(text, paths)
    if not paths:
        _refuse_others(where, text, kind, candidates)
    return [_file(where, path, kind) for path in paths]


def _data_files(text: str, paths: Sequence[P]) -> list[P]:
    """The files of a directory or a glob without those of a tokenizer, which earn a warning.

    The last part of a glob may name such a file, which is then meant.
    """
    if glob.has_magic(text) and not glob.has_magic(PurePath(text).name):
        return list(paths)
    skipped = [path for path in paths if describes(path)]
    if skipped:
        names = ", ".join(sorted({path.name for path in skipped}))
        warn(
            f"{text}: {plural(len(skipped), 'file')} skipped, which by name describe a tokenizer, "
            f"a model or a dataset: {names}. If one holds text, name it: {str(skipped[0])!r}."
        )
    return [path for path in paths if not describes(path)]


def _refuse_others(where: str, text: str, kind: Kind | None, seen: Sequence[Place]) -> NoReturn:
    others = sorted({PurePath(path.name).suffix or path.name for path in seen})[:5]
    advice = " Name another."
    if others:
        advice = f" Seen: {', '.join(others)}; other suffixes need KIND:GLOB, as 'txt:*.xyz'."
    raise InputError(
        f"{where}: {text!r} holds no {kind or 'supported'} file, at least one is needed.{advice}"
    )


def _tell_of_directory(
    text: str, taken: list[Path], seen: list[Path], hidden: list[str], linked: list[str]
) -> None:
    """One line about what a directory gave, and what was left out."""
    if not taken:
        return  # it is refused, with what was seen
    kinds = Counter("".join(path.suffixes[-2:]) or path.name for path in taken)
    readme = sum(path.name.upper().startswith("README") for path in taken)
    left = Counter(path.suffix or path.name for path in set(seen) - set(taken))
    parts = [", ".join(f"{count:,} {name}" for name, count in kinds.most_common(5))]
    parts += [f"README among them: {readme:,}"] if readme else []
    out = [f"{count:,} {name}" for name, count in left.most_common(5)]
    out += [f"{len(hidden):,} hidden"] if hidden else []
    out += [f"{len(linked):,} reached by links"] if linked else []
    parts += [f"left out: {', '.join(out)}"] if out else []
    log.info("%s: %s taken (%s)", text, plural(len(taken), "file"), "; ".join(parts))


def _walk(where: str, top: str, hidden: list[str], linked: list[str]) -> Iterator[Path]:
    """Every file below a directory; hidden ones and linked directories are noted instead."""

    def refuse(error: OSError) -> NoReturn:
        raise InputError(f"{where}: {error.filename}: {error.strerror}. Make it readable.")

    for folder, names, files in os.walk(top, onerror=refuse):
        hidden += [name for name in [*names, *files] if name.startswith(".")]
        names[:] = [name for name in names if not name.startswith(".")]
        linked += [name for name in names if os.path.islink(os.path.join(folder, name))]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


def _file(where: str, path: Path, kind: Kind | None) -> Input:
    kind, compression = kind_of(where, path, kind)
    if not path.is_file():
        what = "neither a file nor a directory" if path.exists() else "a link to nothing"
        raise InputError(f"{where}: {str(path)!r} is {what}, allowed: files and directories.")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise unreadable(f"{where}: {path}", error) from error
    check_magic(where, path, kind, compression, head)
    absolute = Path(os.path.abspath(path))
    return Input(kind=kind, name="", path=absolute, compression=compression, size=size)


def _missing(where: str, text: str) -> NoReturn:
    """Names the part of the path that is missing and what lies beside it."""
    path = Path(text)
    while not path.parent.is_dir() and path != path.parent:
        path = path.parent
    try:
        beside = sorted(os.listdir(path.parent))
    except OSError:
        beside = []
    close = difflib.get_close_matches(path.name, beside, n=3)
    hint = f" Did you mean {' or '.join(repr(str(path.parent / name)) for name in close)}?"
    part = "" if str(path) == str(Path(text)) else f" ({str(path)!r} is missing)"
    advice = hint if close else " Check the spelling, or, if it is a text, give [{'text': …}]."
    raise InputError(f"{where}: no file or directory {text!r:.200}{part:.200}.{advice}")


# ---------------------------------------------------------------- what a file is
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
    if kind == "jsonl" and importlib.util.find_spec("orjson") is None:
        raise MissingExtra(f"Reading {path}", "orjson", "build")
    actual = next((name for name, magic in MAGIC.items() if magic.match(head)), "none")
    if actual != compression:
        said = {"none": "not compressed", "gz": "gzip", "zst": "zstd"}
        raise InputError(
            f"{where}: {path} is {said[compression]} by its name, and {said[actual]} by its first "
            f"bytes {head!r}. Rename it (.gz, .zst, or neither) or write it again."
        )


# ---------------------------------------------------------------- datasets
def _is_saved(folder: Path) -> bool:
    """Whether `folder` was written by ``save_to_disk`` of a Dataset or a DatasetDict."""
    one = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return one or (folder / "dataset_dict.json").is_file()


def _from_hf(where: str, text: str) -> list[Input]:
    folder, split = text, ""
    if not os.path.isdir(folder) and ":" in text:
        folder, _, split = text.rpartition(":")
    if not os.path.isdir(folder):
        raise InputError(
            f"{where}: no directory {folder!r}. Nothing is downloaded: hf:PATH reads a dataset "
            "from disk. Save it once with load_dataset(…).save_to_disk(PATH)."
        )
    path = Path(os.path.abspath(folder))
    if not _is_saved(path):
        raise InputError(
            f"{where}: {folder!r} was not written by save_to_disk (no state.json). "
            f"Write 'parquet:{folder}' or 'jsonl:{folder}' for data files inside it."
        )
    if (path / "dataset_dict.json").is_file():
        path = path / _split(where, path, split)
    elif split:
        raise InputError(f"{where}: {folder!r} holds one dataset and no splits. Drop ':{split}'.")
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra(f"Reading hf:{text}", "datasets", "hf") from error
    try:
        rows = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{where}: {path}: not a readable dataset ({error}). Save it again."
        ) from error
    return [Input(kind="hf", name="", path=path, rows=rows, size=0)]


def _split(where: str, path: Path, split: str) -> str:
    try:
        splits = [str(s) for s in json.loads((path / "dataset_dict.json").read_bytes())["splits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: {path}/dataset_dict.json: {error!r}. Save it again.") from error
    if split not in splits:
        wrong = f"no split named {split!r}" if split else "a DatasetDict, so a split is needed"
        raise InputError(
            f"{where}: {path}: {wrong}. Splits: {choices(split, splits)} Write "
            f"'hf:{path.name}:SPLIT'."
        )
    return split
