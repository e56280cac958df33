"""Searching by reading: some documents or rows at a time, and where to go on.

One idea: a store may have a billion documents, so a search is cut into chunks of bounded work. Each
answers what it found, and a cursor; whoever wants more asks again with that cursor, and whoever
stops asking has stopped the search. Long documents are cut into pieces that overlap by as many
tokens as the text has bytes, so nothing is missed between two pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.store import Store
from tokenloom.errors import ConfigError
from tokenloom.explore.session import ExploredRun
from tokenloom.store.reader import Reader
from tokenloom.trace.step_rows import examples_of_step

__all__ = [
    "Hit",
    "Scanned",
    "read_pieces",
    "scan_step",
    "scan_texts",
    "searched",
]

TOKENS = 1 << 16  # that a chunk decodes

DOCUMENTS = 4096  # of a chunk; there may be empty ones

MOST_HITS = 200  # of a chunk

AROUND = 40  # letters around what was found

SLACK = 8  # tokens of overlap beyond the bytes of the text

_CURSOR = re.compile(r"[0-9]{1,9}\.[0-9]{1,18}\.[0-9]{1,18}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A document, or a row, that has what is looked for.

    Attributes:
        source: name of its source.
        document: number of the document in its store.
        before, found, after: the text there, or nothing.
        index: the example, where rows are searched; else -1.
    """

    source: str
    document: int
    before: str = ""
    found: str = ""
    after: str = ""
    index: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """What a chunk found.

    Attributes:
        hits: in order.
        done: how much has been searched, with all chunks before.
        whole: how much there is.
        unit: what is counted.
        cursor: where to go on; empty at the end.
        unread: sources that cannot be searched, with the reason.
    """

    hits: tuple[Hit, ...]
    done: int
    whole: int
    unit: str
    cursor: str = ""
    unread: tuple[str, ...] = ()


def searched(explored: ExploredRun, source: str = "") -> list[str]:
    """The sources to search: one, or those with different stores."""
    if source:
        return [source]
    readers: dict[int, str] = {}
    for name, store in explored.stores.items():
        readers.setdefault(id(store.reader), name)
    return list(readers.values())


def _read_cursor(cursor: str, sources: Sequence[str]) -> tuple[int, int, int]:
    """Number of the source, document and token to go on with."""
    if not cursor:
        return 0, 0, 0
    if not _CURSOR.fullmatch(cursor):
        raise ConfigError(f"from: found {cursor!r:.60}, allowed: what an earlier answer gave.")
    number, document, token = (int(one) for one in cursor.split("."))
    if number >= len(sources):
        raise ConfigError(f"from: found source {number}, allowed: 0 to {len(sources) - 1}.")
    return number, document, token


def scan_texts(
    explored: ExploredRun, wanted: str, sources: Sequence[str], cursor: str = ""
) -> Scanned:
    """Documents with a text, among the next ones.

    Args:
        explored: the run.
        wanted: the text, letter by letter.
        sources: whose stores to search, one after the other.
        cursor: what the chunk before gave; empty for the first.
    """
    if not wanted:
        raise ConfigError("text: found nothing, allowed: at least one letter.")
    number, document, token = _read_cursor(cursor, sources)
    sizes = [explored.stores[name].num_documents for name in sources]
    store, name = explored.stores[sources[number]], sources[number]
    decoder = store.tokenizer
    if decoder is None or decoder.kind == "callable":
        why = f"{name}: it has ids and no tokenizer, so there is no text to search."
        done = sum(sizes[: number + 1])
        return Scanned(
            hits=(),
            done=done,
            whole=sum(sizes),
            unit="documents",
            cursor=_next(number + 1, sizes),
            unread=(why,),
        )
    overlap = len(wanted.encode("utf-8", "replace")) + SLACK
    pieces, after = _pieces(store, document, token, max(TOKENS, 4 * overlap), overlap)
    hits = []
    for place, ids in read_pieces(store.reader, pieces):
        text = decoder.decode(ids)
        at = text.find(wanted)
        if at >= 0:
            hits.append(_hit(name, place, text, at, len(wanted)))
    document, token = after
    if document >= sizes[number]:
        cursor = _next(number + 1, sizes)
        document = sizes[number]
    else:
        cursor = f"{number}.{document}.{token}"
    return Scanned(
        hits=tuple(hits[:MOST_HITS]),
        done=sum(sizes[:number]) + document,
        whole=sum(sizes),
        unit="documents",
        cursor=cursor,
    )


def _next(number: int, sizes: Sequence[int]) -> str:
    return f"{number}.0.0" if number < len(sizes) else ""


def _hit(source: str, document: int, text: str, at: int, size: int, index: int = -1) -> Hit:
    """What was found, with the letters around it."""
    return Hit(
        source=source,
        document=document,
        before=text[max(0, at - AROUND) : at],
        found=text[at : at + size],
        after=text[at + size : at + size + AROUND],
        index=index,
    )


def _pieces(
    store: Store, document: int, token: int, budget: int, overlap: int
) -> tuple[list[tuple[int, int, int]], tuple[int, int]]:
    """(document, first address, last) of the next pieces, and the document and token after them."""
    last = min(document + min(DOCUMENTS, MOST_HITS), store.num_documents)
    if document >= last:
        return [], (store.num_documents, 0)
    begin, end = store.reader.bounds(np.arange(document, last))
    found: list[tuple[int, int, int]] = []
    for place, low, high in zip(range(document, last), begin.tolist(), end.tolist(), strict=True):
        low = min(low + token, high)
        if high - low > budget:
            if not found:  # a piece of a long document
                found.append((place, low, low + budget))
                return found, (place, low + budget - overlap - int(begin[0]))
            return found, (place, token)
        found.append((place, low, high))
        budget, token = budget - (high - low), 0
    return found, (last, 0)


def read_pieces(
    reader: Reader, pieces: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """(name, tokens) of each of some pieces (name, first address, last), in one request."""
    begin = np.array([one[1] for one in pieces], np.int64)
    end = np.array([one[2] for one in pieces], np.int64)
    views = reader.read(begin, end)
    flat = np.concatenate([np.empty(0, np.int32), *views], dtype=np.int32, casting="unsafe")
    parts = np.split(flat, np.cumsum(end - begin)[:-1].tolist()) if len(pieces) else []
    yield from zip((one[0] for one in pieces), parts, strict=True)


def scan_step(explored: ExploredRun, wanted: str, step: int, cursor: str = "") -> Scanned:
    """Rows of a step with a text, among the next ones; what is quarantined is not shown there."""
    if not wanted:
        raise ConfigError("text: found nothing, allowed: at least one letter.")
    _, row, _ = _read_cursor(cursor, ["step"])
    line = examples_of_step(explored.run.run, explored.steps, step)
    some = line[row : row + max(1, TOKENS // explored.run.seq_len)]
    hits: list[Hit] = []
    for one in explored.run.at(some.tolist(), text=True) if len(some) else ():
        for span in one.spans:
            text = "" if span.blank or span.text is None else span.text
            at = text.find(wanted)
            if at >= 0:
                hits.append(_hit(span.source, span.document, text, at, len(wanted), one.index))
    done = row + len(some)
    return Scanned(
        hits=tuple(hits[:MOST_HITS]),
        done=done,
        whole=len(line),
        unit="rows",
        cursor=f"0.{done}.0" if done < len(line) else "",
    )
