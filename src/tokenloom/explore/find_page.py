"""Finding documents: ids by their index, hashes at once, texts by reading, some at a time.

A store may have a billion documents, so a search for a text is cut into chunks of bounded work.
Each answers what it found, and a cursor to ask with again; who stops asking has stopped the search.
Long documents are cut into pieces that overlap by as many
tokens as the text has bytes, so nothing is missed between two pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenloom.api.store import Store
from tokenloom.errors import ConfigError
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import ExplorerPage, Query, field, link, select
from tokenloom.explore.step_page import named_source, read_pieces, source_field
from tokenloom.order.schedule import examples_of_step
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural, share

TOKENS = 1 << 16  # that a chunk decodes

DOCUMENTS = 200  # of a chunk, and so its hits

AROUND = 40  # letters around what was found

SLACK = 8  # tokens of overlap beyond the bytes of the text

_CURSOR = re.compile(r"[0-9]{1,9}\.[0-9]{1,18}\.[0-9]{1,18}")

KINDS = ("text", "id", "hash")

MOST = 200  # documents of an id, or a hash

HASH = re.compile("[0-9a-fA-F]{32}")


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
        cursor: where to continue; empty at the end.
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
    """Number of the source, document and token to continue with."""
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
            hits.append(_found_at(name, place, text, at, len(wanted)))
    document, token = after
    if document >= sizes[number]:
        cursor = _next(number + 1, sizes)
        document = sizes[number]
    else:
        cursor = f"{number}.{document}.{token}"
    return Scanned(
        hits=tuple(hits[:DOCUMENTS]),
        done=sum(sizes[:number]) + document,
        whole=sum(sizes),
        unit="documents",
        cursor=cursor,
    )


def _next(number: int, sizes: Sequence[int]) -> str:
    return f"{number}.0.0" if number < len(sizes) else ""


def _found_at(source: str, document: int, text: str, at: int, size: int, index: int = -1) -> Hit:
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
    last = min(document + DOCUMENTS, store.num_documents)
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


def scan_step(explored: ExploredRun, wanted: str, step: int, cursor: str = "") -> Scanned:
    """Rows of a step with a text, among the next ones; what is quarantined is not shown there."""
    _, row, _ = _read_cursor(cursor, ["step"])
    line = examples_of_step(explored.run.run, explored.steps, step)
    some = line[row : row + max(1, TOKENS // explored.run.seq_len)]
    hits: list[Hit] = []
    for one in explored.run.at(some.tolist(), text=True) if len(some) else ():
        for span in one.spans:
            text = "" if span.blank or span.text is None else span.text
            at = text.find(wanted)
            if at >= 0:
                hits.append(_found_at(span.source, span.document, text, at, len(wanted), one.index))
    done = row + len(some)
    return Scanned(
        hits=tuple(hits[:DOCUMENTS]),
        done=done,
        whole=len(line),
        unit="rows",
        cursor=f"0.{done}.0" if done < len(line) else "",
    )


def find_page(session: Session, query: Query) -> ExplorerPage:
    """The form, and what was found so far."""
    explored = session.run(query.whole("run", 0, 1))
    kind = query.word("kind", KINDS)
    wanted = query.text("wanted")
    source = query.text("source")
    if source:
        named_source(explored, source)
    step = query.whole("step", 0) if query.has("step") else None
    parts = [_form(explored, kind, wanted, source, step)]
    if wanted:
        parts.append(_results(explored, query, kind, wanted, source, step))
    return ExplorerPage(title="Find", body=joined(parts), way="find", run=explored.number)


def _form(explored: ExploredRun, kind: str, wanted: str, source: str, step: int | None) -> Markup:
    form = tag(
        "form",
        select("kind", "Find", list(KINDS), kind),
        field("wanted", "what", wanted, id="go", required=True),
        source_field(explored, "in", source, "all sources"),
        field("step", "only in step", "" if step is None else step, inputmode="numeric"),
        tag("input", type="hidden", name="run", value=explored.number),
        tag("button", "Find"),
        action="find",
        class_="goto",
    )
    note = (
        "Ids are looked up in the index of each store. A hash is compared with those of all "
        "documents, 16 bytes each. For a text, tokens are read, some at a time, until you stop it. "
        "A step limits a text to what that step shows."
    )
    return joined([form, tag("p", note, class_="soft")])


def _results(
    explored: ExploredRun,
    query: Query,
    kind: str,
    wanted: str,
    source: str,
    step: int | None,
) -> Markup:
    sources, cursor = searched(explored, source), query.text("from")
    if kind == "id":
        return _ids(explored, wanted, sources)
    if kind == "hash":
        return _hashes(explored, wanted, sources)
    if step is not None:
        found = scan_step(explored, wanted, step, cursor)
    else:
        found = scan_texts(explored, wanted, sources, cursor)
    keep = {"kind": kind, "wanted": wanted, "source": source, "step": step}
    more = None
    if found.cursor:
        to = link("find", **keep, run=explored.number or None, **{"from": found.cursor})
        more = tag("a", "go on ›", href=to, class_="button", id="more")
    stop = tag("button", "Stop", type="button", id="stop", hidden=True)
    whole = plural(found.whole, found.unit[:-1])
    said = f"{found.done:,} of {whole} searched, {share(found.done, found.whole)}"
    bar = tag("progress", value=found.done, max=found.whole or 1, id="bar", aria_label="searched")
    return tag(
        "section",
        tag("p", bar, " ", tag("output", said, id="said"), " ", stop, " ", more, class_="scan"),
        *(tag("p", one, class_="reason") for one in found.unread),
        tag("ol", *(_hit(explored, one) for one in found.hits), class_="hits", id="hits"),
        tag(
            "p",
            "Nothing was found yet." if found.cursor else "Nothing was found.",
            class_="soft",
            id="none",
            hidden=bool(found.hits),
        ),
        class_="figure",
        id="results",
    )


def _hit(explored: ExploredRun, one: Hit) -> Markup:
    number = explored.number or None
    keep = {"source": one.source, "document": one.document, "run": number}
    name = tag(
        "a", tag("bdi", one.source), f" document {one.document:,}", href=link("document", **keep)
    )
    place = None
    if one.index >= 0:
        place = tag(
            "a",
            f"example {one.index:,}",
            href=link("row", index=one.index, text=one.found, run=number),
        )
    text = None
    if one.found:
        text = tag("q", one.before, tag("mark", one.found), one.after, dir="auto")
    return tag("li", name, " " if place else None, place, " " if text else None, text)


def _ids(explored: ExploredRun, wanted: str, sources: list[str]) -> Markup:
    """Documents of an id, by the index of each store."""
    parts, hits = [], []
    for name in sources:
        store = explored.stores[name]
        if not store.reader.indexes_ids:
            why = (
                f"{name}: files of another project have no index of ids, so finding one reads all "
                f"of their metadata. This command does: tokenloom find {store.path} ID"
            )
            parts.append(tag("p", why, class_="reason"))
            continue
        hits += [Hit(source=name, document=one) for one in of_id(store, wanted)]
    return _listed(explored, f"id {wanted!r:.200}", hits, parts)


def _hashes(explored: ExploredRun, wanted: str, sources: list[str]) -> Markup:
    """Documents with a hash; those of all documents are read."""
    if not HASH.fullmatch(wanted.strip()):
        raise ConfigError(
            f"hash: found {wanted!r:.60}, allowed: all 32 hex digits, as on the page of a document."
        )
    hits = [
        Hit(source=name, document=one)
        for name in sources
        for one in explored.stores[name].find(hash=wanted.strip()).tolist()
    ]
    return _listed(explored, f"hash {wanted.strip()}", hits)


def _listed(
    explored: ExploredRun, what: str, hits: list[Hit], reasons: list[Markup] | None = None
) -> Markup:
    """Documents that were found at once."""
    items = (_hit(explored, one) for one in hits[:MOST])
    said = plural(len(hits), "document") + " with the "
    more = f", the first {MOST} are listed." if len(hits) > MOST else "."
    return tag(
        "section",
        tag("p", said, tag("bdi", what), more, role="status"),
        *(reasons or ()),
        tag("ol", *items, class_="hits", id="hits"),
        class_="figure",
        id="results",
    )


def of_id(store: Store, wanted: str) -> list[int]:
    """Documents of an id, which may be kept as a number."""
    found: list[int] = store.find(wanted).tolist()
    if not found:
        try:
            number = int(wanted)
        except ValueError:
            return found
        if abs(number) < 1 << 63:
            found = store.find(number).tolist()
    return found
