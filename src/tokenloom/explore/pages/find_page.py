"""Finding documents: ids by their index, hashes at once, texts by a scan that can be stopped."""

from __future__ import annotations

import re

from tokenloom.api.store import Store
from tokenloom.errors import ConfigError
from tokenloom.explore.pages.step_page import named_source, source_field
from tokenloom.explore.query import Query, link
from tokenloom.explore.scan import Hit, Scanned, scan_step, scan_texts, searched
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import ExplorerPage, field, select
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural, share

__all__ = ["find_page", "of_id"]

KINDS = ("text", "id", "hash")

MOST = 200  # documents of an id, or a hash

HASH = re.compile("[0-9a-fA-F]{32}")


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
        _list(explored, found),
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


def _list(explored: ExploredRun, found: Scanned) -> Markup:
    return tag("ol", *(_hit(explored, one) for one in found.hits), class_="hits", id="hits")


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
