"""An edit before it is made: shares with and without it, and what stays as it is.

One idea: an edited run is another value, made in memory from the run and a few typed words; nothing
is kept and nothing is written. Its file is sent to the browser, which saves it where its reader
wants it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.errors import ConfigError, NotKept, TokenloomError
from tokenloom.explore.query import Query, link
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import Download, ExplorerPage, field, greyed
from tokenloom.explore.weights_in_force import told_weights
from tokenloom.page.figure import Numbers, code_block, numbers_html
from tokenloom.page.markup import EMPTY, Markup, tag
from tokenloom.page.numbers import plural, share
from tokenloom.runfiles.written import dumped, run_mapping

__all__ = ["edit_page", "edited", "shares_between"]

LOOKED = 4096  # examples that shares are counted in

FAR = (0, 16, 256)  # how many of these after the edit

PROVED, PROVED_CELLS = 64, 1 << 22  # examples before the edit whose plans are compared, at most

SHOWN_SOURCES = 30

MOST_LINES = 4096

NEW_LINES = 40  # of the run file that are shown

WHOLE_SOURCES = 50  # of a run whose whole file is shown


@dataclass(frozen=True, kw_only=True, slots=True)
class TypedEdit:
    """What was typed.

    Attributes:
        at: first example that may change.
        weights, remove, quarantine: as `Dataset.edit` takes them.
    """

    at: int
    weights: dict[str, float]
    remove: tuple[str, ...]
    quarantine: tuple[tuple[str, int], ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.weights or self.remove or self.quarantine)


def edit_page(session: Session, query: Query) -> ExplorerPage | Download:
    """The form of an edit, with its preview once something is typed; or the file of the new run."""
    explored = session.run(0)
    typed = any(query.has(name) for name in ("weights", "remove", "quarantine"))
    if not typed:
        words = tag(
            "p",
            "Type an edit: other weights, sources that end, or documents to leave out.",
            class_="soft",
        )
        return _page(explored, query, tag("section", words, id="preview"))
    try:
        change = read_typed(explored, query)
        made, warned = session.overheard.of(lambda: edited(explored, change))
        if query.has("save"):
            return Download(name=_file_name(explored), text=_file_text(explored, made))
        shown = _preview(explored, made, change, warned)
    except NotKept as missing:
        code = explored.keeping(missing, examples=(change.at + FAR[-1] * LOOKED,))
        shown = tag("section", greyed("What is missing", missing, code), id="preview")
    except (TokenloomError, IndexError) as error:
        shown = tag("section", tag("p", str(error), class_="reason", role="alert"), id="preview")
    return _page(explored, query, shown)


def _page(explored: ExploredRun, query: Query, shown: Markup) -> ExplorerPage:
    form = tag(
        "form",
        field(
            "at",
            "From example",
            query.text("at") or str(_earliest(explored)),
            inputmode="numeric",
            id="go",
        ),
        _area("weights", "Weights, one a line: NAME=NUMBER", query.text("weights")),
        _area("remove", "Sources that end, one a line", query.text("remove")),
        _area(
            "quarantine",
            "Documents to leave out, one a line: NAME:NUMBER",
            query.text("quarantine"),
        ),
        tag(
            "p",
            tag("button", "Preview"),
            " ",
            tag("button", "Save the run file", name="save", value="1"),
            class_="actions",
        ),
        method="post",
        action="edit",
        class_="edit",
        id="edit",
    )
    body = tag("div", form, shown, class_="sides")
    lead = told_weights(explored.run, _at(explored, query))
    return ExplorerPage(title="Edit", body=body, way="edit", lead=lead)


def _at(explored: ExploredRun, query: Query) -> int:
    """The example that was typed; the earliest if that is none."""
    try:
        return query.whole("at", _earliest(explored))
    except ConfigError:  # told beside the form
        return _earliest(explored)


def _earliest(explored: ExploredRun) -> int:
    """The first example that may still change: not before the last edit."""
    return max((one.at for one in explored.run.edits), default=0)


def _area(name: str, label: str, value: str) -> Markup:
    # a browser drops the line end after the tag, so that a text may start with one
    box = tag("textarea", "\n", value, name=name, rows=3, spellcheck="false", autocomplete="off")
    return tag("label", tag("span", label), box, class_="field tall")


def _lines(query: Query, name: str) -> list[str]:
    found = [one.strip() for one in query.text(name).splitlines() if one.strip()]
    if len(found) > MOST_LINES:
        raise ConfigError(f"{name}: found {len(found):,} lines, allowed: up to {MOST_LINES:,}.")
    return found


def read_typed(explored: ExploredRun, query: Query) -> TypedEdit:
    """The edit that was typed.

    Raises:
        ConfigError: a line is not what it must be.
    """
    return TypedEdit(
        at=query.whole("at", _earliest(explored)),
        weights=dict(_weight(one) for one in _lines(query, "weights")),
        remove=tuple(_lines(query, "remove")),
        quarantine=tuple(_document(one) for one in _lines(query, "quarantine")),
    )


def _weight(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise ConfigError(f"weights: found {text!r:.80}, allowed: NAME=NUMBER.") from None


def _document(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    if not (number.strip().isascii() and number.strip().isdigit()) or len(number) > 18:
        raise ConfigError(f"quarantine: found {text!r:.80}, allowed: NAME:NUMBER.")
    return name.strip() or "main", int(number)


def edited(explored: ExploredRun, change: TypedEdit) -> Dataset:
    """The run with the edit; in memory only."""
    if change.is_empty:
        raise ConfigError("edit: found no change, allowed: weights, sources, documents. Type one.")
    return explored.run.edit(
        at=change.at,
        weights=change.weights or None,
        remove=change.remove,
        quarantine=change.quarantine,
    )


def shares_between(run: Dataset, first: int, last: int) -> dict[str, int]:
    """Rows of each source among examples [first, last)."""
    names = run.run.names
    end = last if run.run.n is None else min(last, run.run.n)
    if first >= end:
        return {}
    source, _ = run.run.pick(np.arange(first, end))
    counts = np.bincount(source, minlength=len(names)).tolist()
    return dict(zip(names, counts, strict=True))


def _preview(explored: ExploredRun, made: Dataset, change: TypedEdit, warned: list[str]) -> Markup:
    at, old = change.at, explored.run
    first = max(0, at - min(PROVED, max(1, PROVED_CELLS // old.seq_len)))
    before, after = (one.plan_digest(first, at) for one in (old, made))
    if before == after:
        said = "nothing is before it" if not at else f"examples 0 to {at - 1:,} stay as they are"
        checked = (
            f"the plans of the last {at - first:,} have the same digest, {before[:16]}"
            if at
            else ""
        )
        kept = tag(
            "p",
            f"Unchanged: {said}" + (f"; {checked}." if checked else "."),
            class_="fine",
            role="status",
        )
    else:  # would be a bug of ours
        kept = tag(
            "p",
            f"Examples before {at:,} would change; this must not happen. Report it.",
            class_="reason",
            role="alert",
        )
    tables = [_shares(explored, made, at + far * LOOKED, at + (far + 1) * LOOKED) for far in FAR]
    ends = [one.run.n for one in (old, made)]
    lengths = " → ".join("endless" if n is None else plural(n, "example") for n in ends)
    step = explored.steps.step_of(at)
    where = tag("a", f"step {step:,}", href=link("step", step=step))
    return tag(
        "section",
        tag("h2", "Before it is made"),
        kept,
        *(tag("p", one, class_="reason") for one in warned),
        tag("p", "The edit begins in ", where, f". The run: {lengths}.", class_="soft"),
        *tables,
        *_new_file(explored, made),
        id="preview",
    )


def _new_file(explored: ExploredRun, made: Dataset) -> list[Markup]:
    """What is new in the run file, and the whole of it if it is not too long to be read."""
    old, new = explored.settings, _mapping(explored, made)
    lines = dumped(
        {
            name: _new_part(old.get(name), part)
            for name, part in new.items()
            if part != old.get(name)
        }
    ).splitlines()
    more = max(0, len(lines) - NEW_LINES)
    parts = [
        tag("h3", "New in the run file"),
        code_block("\n".join(lines[:NEW_LINES]), "new lines"),
        tag("p", f"and {plural(more, 'more line')}", class_="more") if more else EMPTY,
    ]
    if len(made.sources) <= WHOLE_SOURCES:
        whole = code_block(dumped(new), "new run file")
        parts.append(tag("details", tag("summary", "The whole file"), whole))
    else:
        said = f"The whole file has {plural(len(made.sources), 'source')}: save it to see it."
        parts.append(tag("p", said, class_="more"))
    return parts


def _new_part(old: Any, new: Any) -> Any:
    """What a list has in addition; anything else as a whole."""
    if isinstance(old, list) and isinstance(new, list) and new[: len(old)] == old:
        return new[len(old) :]
    return new


def _shares(explored: ExploredRun, made: Dataset, first: int, last: int) -> Markup | None:
    old, new = shares_between(explored.run, first, last), shares_between(made, first, last)
    if not old and not new:
        return None
    totals = [sum(one.values()) for one in (old, new)]
    names = sorted({*old, *new}, key=lambda name: -max(old.get(name, 0), new.get(name, 0)))
    rows = [
        (name, share(old.get(name, 0), totals[0]), share(new.get(name, 0), totals[1]))
        for name in names[:SHOWN_SOURCES]
    ]
    table = Numbers(
        head=("source", "share of rows now", "with the edit"),
        rows=tuple(rows),
        more=max(0, len(names) - SHOWN_SOURCES),
        caption=f"examples {first:,} to {first + max(totals) - 1:,}",
    )
    return numbers_html(table)


def _file_text(explored: ExploredRun, made: Dataset) -> str:
    """The run file of a run, to be saved beside the old one."""
    return dumped(_mapping(explored, made))


def _mapping(explored: ExploredRun, made: Dataset) -> dict[str, Any]:
    """The settings of an edited run; those of its sources stay as they are."""
    folder = os.path.dirname(explored.path)
    return run_mapping(made, folder=folder, known=explored.settings["sources"])


def _file_name(explored: ExploredRun) -> str:
    """A plain name for the new file."""
    stem = os.path.splitext(os.path.basename(explored.path))[0] or "run"
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in stem)[:60]
    return f"{plain.strip('-') or 'run'}-edited.yaml"
