"""A document: its tokens page by page, what is kept about it, and where it is trained next."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import numpy as np

from tokenloom.api.store import Store
from tokenloom.errors import TokenloomError
from tokenloom.explore.cells import CELLS_OF_A_PAGE, cell_html, marked_cells, panel, range_words
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import (
    ExplorerPage,
    Query,
    button,
    link,
    listing,
    mark_form,
    number_form,
    pager,
    scrolled,
)
from tokenloom.explore.step_page import named_source
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural
from tokenloom.page.token_cells import LETTER_BYTES, directed, extra_classes, spelled, whole_letters
from tokenloom.trace.answers import Place
from tokenloom.trace.backward import Search, places_of

PLACES, MOST = 20, 500  # of a page; more only if they are of one example

WITHIN = 3  # epochs that are searched for them: each may need sums of its own

FACTS = ("offset", "text", "id")

MOST_KEYS, MOST_LETTERS = 100, 2000  # of metadata

HINT = "Point at a token, or walk with the arrow keys."


def document_page(session: Session, query: Query) -> ExplorerPage:
    """The page of a document."""
    explored = session.run(query.whole("run", 0, 1))
    source = named_source(explored, query.text("source"))
    store = explored.stores[source]
    number = query.whole("document", 0)
    if number >= store.num_documents:
        raise IndexError(
            f"document {number:,}: out of range, allowed in {source}: 0 to "
            f"{store.num_documents - 1:,}."
        )
    begin, end = (int(one[0]) for one in store.reader.bounds(np.array([number])))
    length = end - begin
    first = query.whole("first", 0)
    first = min(first, max(0, length - 1) // CELLS_OF_A_PAGE * CELLS_OF_A_PAGE)
    keep = {"source": source, "document": number, "run": explored.number or None}
    after = query.whole("after", 0) if query.has("after") else -1
    given = after if after >= 0 else None
    wanted = query.text("text")
    last = min(first + CELLS_OF_A_PAGE, length)
    found, cells = _cells(explored, source, (begin, end), first, last, wanted)
    said = f"{plural(found, 'token')} marked" if wanted else ""
    keep_all = {**keep, "first": first, "after": given}
    search = mark_form("document", wanted, said, keep_all)
    shown = tag(
        "div",
        tag("div", cells, class_="cells", role="group", aria_label="tokens"),
        panel(FACTS, None, HINT),
        class_="beside",
    )
    jump = None
    if length > CELLS_OF_A_PAGE:
        words = f"From token, 0 to {length - 1:,}"
        jump = number_form("document", "first", first, words, "Token", {**keep, "after": given})
    parts = [
        tag("div", search, jump, class_="tools"),
        shown if length else tag("p", "This document is empty.", class_="reason"),
        pager(
            "document",
            first,
            CELLS_OF_A_PAGE,
            length,
            "tokens",
            **keep,
            after=given,
            text=wanted,
        ),
        _places(explored, source, number, after, keep),
        _about(store, number),
    ]
    return ExplorerPage(
        title=f"Document {number:,} of {source}",
        heading=joined([f"Document {number:,} of ", tag("bdi", source)]),
        body=joined(parts),
        way="find",
        lead=joined([f"{plural(length, 'token')} · store ", tag("bdi", store.path)]),
        run=explored.number,
    )


def _cells(
    explored: ExploredRun,
    source: str,
    bounds: tuple[int, int],
    first: int,
    last: int,
    wanted: str,
) -> tuple[int, Markup]:
    """Tokens [first, last) of a document as cells, and how many of them are marked."""
    begin, end = bounds
    # letters may be spread over the edges of a page
    low = max(begin, begin + first - LETTER_BYTES + 1)
    high = min(end, begin + last + LETTER_BYTES - 1)
    ids = explored.stores[source].tokens(low, high)
    here = slice(begin + first - low, begin + last - low)
    around = explored.strings(source, ids)
    texts, letters, told = around[here], whole_letters(around)[here], spelled(around)[here]
    found = marked_cells(texts, wanted)
    lines = zip(letters, extra_classes(letters), told, ids[here].tolist(), strict=True)
    cells = (
        cell_html(
            letter or "·",
            ("found" if at in found else "plain") + extra,
            (f"{first + at:,}", text, str(token)),
        )
        for at, (letter, extra, text, token) in enumerate(lines)
    )
    return len(found), directed(cells, letters)


def _places(
    explored: ExploredRun, source: str, document: int, after: int, keep: dict[str, object]
) -> Markup:
    """Where the document is trained after an example."""
    title = "Where it is trained" if after < 0 else f"Where it is trained after example {after:,}"
    found, reason, later = next_places(explored, source, document, after, PLACES)
    parts: list[Markup] = []
    if found:
        number = explored.number or None
        names = ("step", "row", "cells", "tokens", "epoch", "remark")
        parts.append(listing(names, [_place(one, number) for one in found], "Places"))
    else:
        parts.append(tag("p", reason, class_="reason"))
    if later is not None:
        to = link("document", **keep, after=later)
        parts.append(button("later places ›", to))
    if after >= 0:
        parts.append(button("« from the start", link("document", **keep)))
    return tag("section", tag("h2", title), *parts, class_="figure", id="places")


def next_places(
    explored: ExploredRun, source: str, document: int, after: int, count: int
) -> tuple[list[Place], str, int | None]:
    """Some places of a document after an example, why there are none, and where to go on.

    About `count` of them: all places of an example are told together.
    """
    run = explored.run.run
    asked = Search(
        run=run,
        number=run.names.index(source),
        document=document,
        after=after,
        steps=explored.steps,
    )
    first = asked.first_epoch
    places = places_of(asked.over(range(first, first + WITHIN)))
    found: list[Place] = []
    for one in places:
        if len(found) >= count and (one.index != found[-1].index or len(found) > MOST):
            return found, "", found[-1].index
        found.append(one)
    reason = places.reason or ""
    later = found[-1].index if found and asked.reaches(first + WITHIN) else None
    return found, reason[:1].upper() + reason[1:], later


def _place(one: Place, number: int | None) -> tuple[object, ...]:
    step = tag("a", f"{one.step:,}", href=link("step", step=one.step, run=number))
    row = tag("a", f"{one.row:,}", href=link("row", index=one.index, cell=one.column, run=number))
    tokens = range_words(one.start, one.length)
    if one.inserted:
        tokens = "BOS" if one.start < 0 else "EOS"
    said = [word for word, holds in (("blank", one.blank), ("label only", one.label_only)) if holds]
    cells = range_words(one.column, one.length)
    return step, row, cells, tokens, f"{one.epoch:,}", ", ".join(said)


def _about(store: Store, number: int) -> Markup:
    """What is kept about a document."""
    try:
        (digest,) = store.document_hashes([number])
    except (TokenloomError, LookupError):
        digest = "not kept"
    rows = [("hash of its tokens", digest), *_metadata(store, number)]
    lines = (
        tag("tr", tag("th", name, scope="row"), tag("td", value, dir="auto"))
        for name, value in rows
    )
    table = scrolled(tag("table", tag("tbody", *lines)), "Metadata")
    return tag("section", tag("h2", "What is kept about it"), table, class_="figure")


def _metadata(store: Store, number: int) -> Iterable[tuple[str, str]]:
    try:
        found = store.metadata(number)
    except TokenloomError as error:
        return [("metadata", f"cannot be read: {error}")]
    return [(str(name), _short(found[name])) for name in itertools.islice(found, MOST_KEYS)]


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, str):
        text = value
    cut = f"… ({len(text):,} letters)" if len(text) > MOST_LETTERS else ""
    return text[:MOST_LETTERS] + cut
