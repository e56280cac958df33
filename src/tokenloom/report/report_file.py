"""A report: warnings, answers and figures as a page, as plain values, and as a file.

Everything that a report says is kept as plain records, and the page is one way to show them, so a
script reads the same numbers that a person sees. The numbers of a sentence are kept beside it,
under names. A warning is a fact that changes a result, and a sentence that says what to do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from tokenloom.arguments import Place, place
from tokenloom.errors import ConfigError, StoreError
from tokenloom.page.document import document, theme_button
from tokenloom.page.figure import Figure, code_block, figure_html
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import plural
from tokenloom.remote.uploads import read_whole, write_whole
from tokenloom.version import __version__

TITLE = "tokenloom report"

ONLY_SHOWN = ("command", "drawing", "gravity", "headline")  # by the page, not in the JSON

MOST_BYTES = 64 << 20  # of a file that may be an earlier report


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A question and its answer.

    Attributes:
        name: a word for it, such as "trained".
        question: as a person would ask.
        sentence: the answer.
        numbers: the numbers in it, by name.
        figure: name of the figure that shows it; empty if none does.
        headline: the one number that stands above the sentence, and what it counts.

    >>> Answer(name="n", question="How many?", sentence="2 rows.", numbers={"rows": 2}).figure
    ''
    """

    name: str
    question: str
    sentence: str
    numbers: Mapping[str, float]
    figure: str = ""
    headline: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Caution:
    """A warning.

    Attributes:
        words: what is wrong, with its numbers.
        remedy: what to do.
        figure: name of the figure that shows it; empty if none does.
        gravity: 3: something else is trained than was meant, or nothing; 2: it changes what is
            learned; 1: it costs time or memory. The gravest come first.

    >>> Caution(words="The run has no step.", remedy="Use a smaller batch size.").remedy
    'Use a smaller batch size.'
    """

    words: str
    remedy: str
    figure: str = ""
    gravity: int = 2


def cautions_html(cautions: Sequence[Caution]) -> Markup:
    """The first section of a page."""
    if not cautions:
        return tag("p", "No warnings.", class_="fine", role="status")
    title = tag("h2", plural(len(cautions), "warning"), id="warnings-title")
    items = (
        tag("li", one.words, " ", tag("strong", one.remedy), " ", _link(one.figure, "See it."))
        for one in cautions
    )
    about = {"id": "warnings", "aria_labelledby": "warnings-title"}
    return tag("section", title, tag("ul", *items), class_="warnings", **about)


def answers_html(answers: Sequence[Answer]) -> Markup:
    """The second section: for each question its number, and the answer in a sentence."""
    cards = (
        tag(
            "li",
            tag("h3", one.question),
            _headline(one),
            tag("p", one.sentence),
            _link(one.figure, "See the figure"),
        )
        for one in answers
    )
    title = tag("h2", "Answers", class_="unseen", id="answers-title")
    about = {"id": "answers", "aria_labelledby": "answers-title"}
    return tag("section", title, tag("ul", *cards, class_="answers"), **about)


def said_html(report: Report, to: Mapping[str, str]) -> tuple[Markup, Markup]:
    """Both sections; `to` is where the figures that are there are, by name.

    A figure that does not apply is not there, so nothing leads to it.
    """
    cautions = [replace(one, figure=to.get(one.figure, "")) for one in report.cautions]
    answers = [replace(one, figure=to.get(one.figure, "")) for one in report.answers]
    return cautions_html(cautions), answers_html(answers)


def _headline(one: Answer) -> Markup | None:
    if one.headline is None:
        return None
    number, counted = one.headline
    return tag("p", tag("b", number), " ", counted, class_="headline")


def _link(figure: str, words: str) -> Markup | None:
    return tag("a", words, href=f"#{figure}") if figure else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A page about something.

    Attributes:
        title: what it is about.
        about: what the subject is: "run", "store", "certificate" or "evaluation".
        lead: one line about it: sizes and identities.
        cautions: warnings, the gravest first.
        answers: questions and answers.
        tree: the subject in words, several lines.
        figures: what is shown.
        command: how it was made.

    >>> about = {"title": "toy", "lead": "2 rows", "tree": "", "cautions": (), "answers": ()}
    >>> Report(**about, figures=()).to_dict()["lead"]
    '2 rows'
    """

    title: str
    about: str = "run"
    lead: str
    cautions: tuple[Caution, ...]
    answers: tuple[Answer, ...]
    tree: str
    figures: tuple[Figure, ...]
    command: str = ""

    @property
    def html(self) -> str:
        """The page: one file, without a network, under its own policy."""
        return document(f"{self.title}: {TITLE}", _body(self))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON: what it says and the numbers of every figure, no drawing."""
        found: dict[str, Any] = _plain(self)
        return {"warnings" if name == "cautions" else name: one for name, one in found.items()}

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the page; it appears whole or not at all.

        Args:
            path: a file, or an object of a bucket. An earlier report is replaced; anything else
                that is there is left alone.

        Returns:
            Its bytes.

        Raises:
            ConfigError: there is a file that is no report.
            StoreError: it cannot be written.

        >>> import tempfile
        >>> about = {"title": "toy", "lead": "", "tree": "", "cautions": (), "answers": ()}
        >>> report = Report(**about, figures=())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report.save(folder + "/report.html") == report.save(folder + "/report.html")
        True
        """
        target = place("path", path)
        _refuse_others(target)
        data = self.html.encode()
        try:
            write_whole(target, data)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise StoreError(
                f"{target}: the report cannot be written: {reason}. Choose another place."
            ) from error
        return len(data)


def _refuse_others(target: Place) -> None:
    """Refuse to replace what is no report: a run file typed by mistake would be gone."""
    try:
        there = read_whole(target, MOST_BYTES)
    except StoreError:
        there = b""
    if there is not None and f"{TITLE}</title>".encode() not in there[: 1 << 16]:
        raise ConfigError(
            f"{target}: there is something that is no report, allowed: a new name, or a report, "
            "which is replaced. Choose another name, or move it away."
        )


def _plain(value: Any) -> Any:
    """Records as plain JSON: numbers of NumPy become Python's, those that are not finite null."""
    if is_dataclass(value):
        shown = (one.name for one in fields(value) if one.name not in ONLY_SHOWN)
        return {name: _plain(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def _body(report: Report) -> Markup:
    return tag(
        "div",
        tag("a", "Skip to the answers", href="#answers", class_="skip"),
        tag(
            "header",
            tag("div", tag("span", TITLE, class_="brand"), theme_button(), class_="top"),
            tag("h1", report.title),
            tag("p", report.lead, class_="lead"),
        ),
        tag(
            "main",
            *said_html(report, {one.name: one.name for one in report.figures}),
            tag("div", _contents(report), _figures(report), class_="layout"),
        ),
        _foot(report),
        class_="page report",
    )


def _contents(report: Report) -> Markup:
    """Links to the figures; beside them on a desk, above them on a phone."""
    links = [(one.name, one.title) for one in report.figures]
    links += [("tree", _tree_title(report))] if report.tree else []
    items = (tag("li", tag("a", words, href=f"#{name}")) for name, words in links)
    return tag("nav", tag("ul", *items), class_="contents", aria_label="Contents")


def _figures(report: Report) -> Markup:
    """The figures, in two columns on a wide page."""
    parts = [figure_html(one) for one in report.figures]
    parts += [_words(report)] if report.tree else []
    return tag("div", *parts, class_="figures")


def _tree_title(report: Report) -> str:
    return f"The {report.about} in words"


def _words(report: Report) -> Markup:
    """The tree, folded: a mix of many sources is long, and the answers have what is asked most."""
    title = _tree_title(report)
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label=title)
    folded = tag("details", tag("summary", tag("h2", title)), tree)
    return tag("section", folded, class_="figure", id="tree")


def _foot(report: Report) -> Markup:
    made = tag("p", f"Made by tokenloom {__version__}.", class_="soft")
    code = code_block(report.command, "command that made this page") if report.command else None
    return tag("footer", made, code, class_="figure")
