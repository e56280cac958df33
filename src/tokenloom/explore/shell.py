"""What pages are made of: the values of a query, the frame around a page, and forms.

A query is text that somebody typed, or that a link carries. Every value is read by what it
must be (a whole number, one of some words, a short text), a missing or empty one has a default, and
anything else is refused with its name. Links are relative, so they carry the token of the address
without knowing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from tokenloom.errors import ConfigError, choices
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.page.document import head_of, theme_button
from tokenloom.page.markup import EMPTY, Markup, joined, tag

MOST_FIELDS = 64

LETTERS = 4096  # of a text

LARGEST = 1 << 62

_WHOLE = re.compile(r"[0-9]{1,19}")

_BETWEEN = re.compile(r"[\s,_'’]")  # people group digits

WAYS = (
    ("step", "Steps"),
    ("find", "Find"),
    ("compare", "Compare"),
    ("overview", "Overview"),
)

KEYS = (
    ("n p", "next and previous step"),
    ("j k", "next and previous row"),
    ("← →", "from token to token"),
    ("/", "go to"),
)

CELL, BOX = ' data-f="', ' id="go"'  # of a token that keys walk to, and of the box to go from


class Query:
    """The values of a query.

    >>> query = read_query("step=1,200&by=loss&text=")
    >>> query.whole("step", 0), query.word("by", ("source", "loss")), query.text("text")
    (1200, 'loss', '')
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)

    def has(self, name: str) -> bool:
        """Whether there is such a value, and it is not empty."""
        return bool(self.values.get(name, "").strip())

    def whole(self, name: str, default: int, most: int = LARGEST) -> int:
        """A whole number from 0 to `most`; digits may be grouped."""
        if not self.has(name):
            return default
        found = _BETWEEN.sub("", self.values[name])
        if not _WHOLE.fullmatch(found) or int(found) > most:
            raise ConfigError(
                f"{name}: found {self.values[name]!r:.60}, allowed: a whole number from 0 to "
                f"{most:,}."
            )
        return int(found)

    def word(self, name: str, allowed: Sequence[str]) -> str:
        """One of some words; the first is the default."""
        if not self.has(name):
            return allowed[0]
        found = self.values[name]
        if found not in allowed:
            raise ConfigError(
                f"{name}: found {found!r:.60}, allowed: {choices(found[:60], allowed)}"
            )
        return found

    def text(self, name: str) -> str:
        """A text, as it was typed."""
        found = self.values.get(name, "")
        if len(found) > LETTERS:
            raise ConfigError(f"{name}: found {len(found):,} letters, allowed: up to {LETTERS:,}.")
        return found


def read_query(text: str) -> Query:
    """The values of the part of a URL after its question mark.

    Raises:
        ConfigError: it is not text, or has too many values.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except (ValueError, UnicodeDecodeError):
        raise ConfigError(
            f"query: found {text!r:.60}, allowed: up to {MOST_FIELDS} values in UTF-8, NAME=VALUE."
        ) from None
    return Query(dict(pairs))


def link(page: str, **values: object) -> str:
    """A relative link to a page; None and empty values are left out.

    >>> link("row", index=5, by=None, text="a&b")
    'row?index=5&text=a%26b'
    """
    given = {name: str(one) for name, one in values.items() if one is not None and one != ""}
    return f"{page}?{urlencode(given)}" if given else page


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplorerPage:
    """A page.

    Attributes:
        title: what it shows.
        body: its content.
        heading: the title with names from data set apart; empty: the title as it is.
        way: which of the ways it belongs to.
        lead: one line below the title.
        status: 200, or that of an error.
        turns: links that keys follow: "next", "prev", "down", "up".
        run: number of the run that it shows.
    """

    title: str
    body: Markup
    heading: Markup = EMPTY
    way: str = ""
    lead: object = ""
    status: int = 200
    turns: tuple[tuple[str, str], ...] = ()
    run: int = 0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is wanted is on another page: a relative link."""

    to: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpReply:
    """A reply.

    Attributes:
        status: its number.
        body: what is sent.
        kind: media type of the body.
        headers: further headers.
    """

    status: int
    body: bytes
    kind: str = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def reply_of(session: Session, made: ExplorerPage | Elsewhere) -> HttpReply:
    """What is sent for a page, or a way to another one."""
    if isinstance(made, Elsewhere):
        return HttpReply(status=303, body=b"", headers=(("Location", made.to),))
    return HttpReply(status=made.status, body=_whole(session, made).encode())


def _whole(session: Session, page: ExplorerPage) -> str:
    name = session.run(page.run).name
    head = head_of(
        f"{page.title} · {name}",
        tag("link", rel="stylesheet", href="page.css"),
        tag("link", rel="icon", href="data:,"),
        tag("script", src="page.js", defer=True),
        tag("script", src="explore.js", defer=True),
        *(tag("link", rel=rel, href=to) for rel, to in page.turns),
    )
    body = tag(
        "div",
        tag("a", "Skip to the page", href="#main", class_="skip"),
        _top(session, page),
        tag(
            "main",
            tag("h1", page.heading or page.title),
            tag("p", page.lead, class_="lead") if page.lead else None,
            page.body,
            id="main",
        ),
        _foot(page),
        class_="page explorer",
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"


def _top(session: Session, page: ExplorerPage) -> Markup:
    number = page.run or None
    ways = (
        tag(
            "li",
            tag(
                "a",
                words,
                href=link(way, run=None if way == "compare" else number),  # of both
                aria_current="page" if way == page.way else None,
            ),
        )
        for way, words in WAYS
    )
    names = (_run_name(one, one.number == page.run) for one in session.runs)
    brand = tag("span", "tokenloom ", *names, class_="brand")
    nav = tag("nav", tag("ul", *ways), class_="ways", aria_label="Pages")
    return tag("header", brand, nav, theme_button(), class_="top")


def _run_name(one: ExploredRun, shown: bool) -> Markup:
    """The name of a run; it leads to the steps of the one that is not shown."""
    title = one.path or None
    if shown:
        return tag("b", tag("bdi", one.name), title=title)
    to = link("step", run=one.number or None)
    return tag("span", " ", tag("a", tag("bdi", one.name), href=to, title=title), " ")


def _foot(page: ExplorerPage) -> Markup | None:
    """The keys that do something on this page."""
    turns = {rel for rel, _ in page.turns}
    has = (turns & {"next", "prev"}, turns & {"down", "up"}, CELL in page.body, BOX in page.body)
    keys = [
        tag("li", *(tag("kbd", one) for one in key.split()), f" {what}")
        for (key, what), there in zip(KEYS, has, strict=True)
        if there
    ]
    return tag("footer", tag("ul", *keys, class_="keys"), class_="soft") if keys else None


def field(name: str, label: object, value: object = "", **more: object) -> Markup:
    """A labelled box for a line of text."""
    box = tag("input", name=name, value=value, autocomplete="off", spellcheck="false", **more)
    return tag("label", tag("span", label), box, class_="field")


def turns_of_steps(explored: ExploredRun, step: int) -> list[tuple[str, str]]:
    """Links that keys follow to the steps after and before one."""
    number, count = explored.number or None, explored.step_count
    found = []
    if count is None or step + 1 < count:
        found.append(("next", link("step", step=step + 1, run=number)))
    if step:
        found.append(("prev", link("step", step=step - 1, run=number)))
    return found


def number_form(
    page: str,
    name: str,
    value: object,
    words: str,
    said: str,
    keep: Mapping[str, object],
    **more: object,
) -> Markup:
    """The way to a number, in one line.

    Args:
        page: the page that it leads to.
        name: what the number is called in its query.
        value: the number that is shown.
        words: what stands before the box.
        said: the same for a screen reader.
        keep: the rest of the query.
        more: further attributes of the box.
    """
    about = {"inputmode": "numeric", "autocomplete": "off", "aria_label": said, **more}
    box = tag("input", name=name, value=value, **about)
    label = tag("span", words, class_="soft", aria_hidden="true")
    go = tag("button", "Go", aria_label=f"Go to this {said.lower()}")
    return tag("form", label, box, *hidden(keep), go, action=page, class_="brief")


def mark_form(page: str, wanted: str, said: str, keep: Mapping[str, object]) -> Markup:
    """The search in what a page shows, in one line.

    Args:
        page: the page.
        wanted: the text to mark.
        said: how much of it was found.
        keep: the rest of its query.
    """
    about = {"autocomplete": "off", "spellcheck": "false"}
    box = tag("input", name="text", value=wanted, **about)
    label = tag("label", tag("span", "Text on this page", class_="soft"), box)
    last = tag("output", said, class_="soft")
    return tag(
        "form", label, *hidden(keep), tag("button", "Mark"), last, action=page, class_="brief"
    )


def select(name: str, label: str, options: list[str], chosen: str, first: str = "") -> Markup:
    """A labelled choice; `first` is the words for none."""
    found = [tag("option", first, value="")] if first else []
    found += [tag("option", one, value=one, selected=one == chosen) for one in options]
    return tag("label", tag("span", label), tag("select", *found, name=name), class_="field")


def listing(head: Sequence[str], rows: Iterable[Iterable[object]], said: str) -> Markup:
    """A table with a line for each row, which scrolls by itself."""
    names = tag("tr", *(tag("th", one, scope="col") for one in head))
    lines = (tag("tr", *(tag("td", value) for value in row)) for row in rows)
    table = tag("table", tag("thead", names), tag("tbody", *lines), class_="ranges")
    return scrolled(table, said)


def scrolled(table: Markup, said: str) -> Markup:
    """A table that scrolls by itself, also by keyboard."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=said)


def hidden(values: Mapping[str, object]) -> list[Markup]:
    """Values that a form carries along; None is left out."""
    return [
        tag("input", type="hidden", name=name, value=one)
        for name, one in values.items()
        if one is not None
    ]


def button(words: str, to: str, *, there: bool = True, now: bool = False) -> Markup:
    """A link that looks like a button; dashed if there is nothing to go to."""
    if not there:
        return tag("span", words, class_="button off", aria_disabled="true")
    return tag("a", words, href=to, class_="button", aria_current="true" if now else None)


def pager(page: str, first: int, size: int, whole: int, unit: str, **values: object) -> Markup:
    """Ways to the other parts of something long.

    Args:
        page: the page.
        first: what it shows first.
        size: how many it shows.
        whole: how many there are.
        unit: what is counted, such as "cells".
        values: the rest of its query.
    """
    if whole <= size:
        return EMPTY
    last = (whole - 1) // size * size
    places = (
        ("« first", 0, first > 0),
        ("‹ before", max(0, first - size), first > 0),
        ("after ›", first + size, first + size < whole),
        ("last »", last, first < last),
    )
    ways = [
        button(words, link(page, **values, first=at or None), there=there)
        for words, at, there in places
    ]
    said = f"{unit} {first:,} to {min(first + size, whole) - 1:,} of {whole:,}"
    return tag(
        "nav", joined(ways), tag("span", said, class_="soft"), class_="pager", aria_label=unit
    )
