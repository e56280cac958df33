"""Where documents end in files that have no index: at a token, at the end of a file, or a list.

One idea: only the user knows which token ends or starts a document, so it is said (`eos`, `bos`)
and never guessed. Without it, every file is one document, as the projects themselves read such
files, and that is told.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, StoreError
from tokenloom.foreign.described import Delimiter, damaged
from tokenloom.foreign.pieces import Piece, RawPiece
from tokenloom.foreign.places import ForeignPlace

__all__ = ["documents_by", "listed_lengths"]

Int64 = NDArray[np.int64]

WHOLE_FILES = (
    "no token that ends documents (eos=) or starts them (bos=) was named, so every file is one "
    "document"
)

BLOCK = 1 << 20  # bytes of a list that are taken apart together


def documents_by(
    place: ForeignPlace, pieces: Sequence[Piece]
) -> tuple[Callable[[], Int64] | Delimiter, tuple[str, ...]]:
    """How documents are told apart, and what to tell about it.

    Raises:
        ConfigError: the token that was named cannot be in these files.
    """
    said = place.said
    for name, one, at in (("eos", said.eos, "end"), ("bos", said.bos, "start")):
        if one is not None:
            _check_possible(place, pieces, name, one)
            return Delimiter(id=one, at=at), ()
    sizes = np.array([piece.elements for piece in pieces], np.int64)
    return lambda: sizes, (WHOLE_FILES,)


def _check_possible(place: ForeignPlace, pieces: Sequence[Piece], name: str, token: int) -> None:
    """Refuse a token that no id of the files can be: all of them would be one document."""
    stored = {np.dtype(piece.dtype) for piece in pieces if isinstance(piece, RawPiece)}
    widest = max(stored, key=lambda dtype: np.iinfo(dtype).max, default=np.dtype(np.int64))
    largest = int(np.iinfo(widest).max)
    if token > largest:
        raise ConfigError(
            f"{name}: found {token} for {place.path}, whose ids are stored as {widest.name}, "
            f"allowed: 0 to {largest}. Name the token of the tokenizer that wrote these files."
        )


def listed_lengths(place: ForeignPlace, name: str, tokens: int) -> Int64:
    """Lengths from a compressed list of documents, a line ``start,end,...`` each.

    Tokens after the last one are a document of their own.

    Args:
        place: where it is.
        name: the file.
        tokens: tokens of the file that it lists.
    """
    where = place.where(name)
    found, before = [np.empty(0, np.int64)], 0
    for rows in _rows(place, name):
        start, stop = rows[:, 0], rows[:, 1]
        expected = np.concatenate([[before], stop[:-1]])
        wrong = (start != expected) | (stop <= start) | (stop > tokens)
        if wrong.any():
            a, b = rows[int(wrong.argmax())].tolist()
            raise damaged(
                where,
                f"it lists a document from {a:,} to {b:,}, allowed: documents end to end, none of "
                f"them empty, in {tokens:,} tokens",
            )
        found.append(stop - start)
        before = int(stop[-1])
    if before < tokens:
        found.append(np.array([tokens - before]))
    return np.concatenate(found)


def _rows(place: ForeignPlace, name: str) -> Iterator[Int64]:
    """The first two numbers of every line, many lines at a time."""
    raw = place.bytes(name, 0, place.size(name) or 0)
    if not len(raw):
        raise damaged(place.where(name), "it is no list of documents (it is empty)")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw.tobytes())) as file:
            rest = b""
            while block := file.read(BLOCK):
                lines = (rest + block).split(b"\n")
                rest = lines.pop()
                if len(rest) > BLOCK:
                    raise damaged(place.where(name), f"a line of it has more than {BLOCK:,} bytes")
                yield from _parsed(lines)
            yield from _parsed([rest])
    except StoreError:
        raise
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise damaged(place.where(name), f"it is no list of documents ({error!s:.100})") from error


def _parsed(lines: list[bytes]) -> Iterator[Int64]:
    pairs = [line.split(b",", 2)[:2] for line in lines if line.strip()]
    if pairs:
        yield np.array([(int(a), int(b)) for a, b in pairs], np.int64)
