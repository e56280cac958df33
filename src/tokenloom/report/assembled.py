"""`report_on`: a page about a run, from its warnings to its certificate.

One idea: a report is a list of figures, each a pure function of the subject, between a head of
answers and a foot that says how it was made. A figure that does not apply is left out, one that
cannot be made says why, and none of them can stop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.page.figure import Figure, code_block, figure_html
from tokenloom.page.markup import Markup, tag
from tokenloom.page.sheet import document, theme_button
from tokenloom.report.figures.lengths import length_figure
from tokenloom.report.questions import what_is_trained
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.report.told import Answer, Caution, answers_html, cautions_html
from tokenloom.version import __version__

__all__ = ["Report", "report_on"]

QUESTIONS = (what_is_trained,)

# from top to bottom
FIGURES: tuple[Callable[[RunSubject], Figure | None], ...] = (length_figure,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A page about something.

    Attributes:
        title: what it is about.
        lead: one line about it: sizes and identities.
        cautions: warnings, the gravest first.
        answers: questions and answers.
        tree: the subject in words, several lines.
        figures: what is shown.
        command: how it was made.
    """

    title: str
    lead: str
    cautions: tuple[Caution, ...]
    answers: tuple[Answer, ...]
    tree: str
    figures: tuple[Figure, ...]
    command: str = ""

    @property
    def html(self) -> str:
        """The page: one file, without a network, under its own policy."""
        return document(f"{self.title}: tokenloom report", _body(self))


def report_on(run: Dataset, **settings: Any) -> Report:
    """A report on a run.

    Args:
        run: the run.
        settings: as `tokenloom.report.subject.Asked` has them, such as ``batch_size=64, ranks=8``.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     report = report_on(store.windows(2).shuffle(), batch_size=2)
    >>> report.answers[0].sentence
    '8 tokens in 4 rows of 2, 2 steps, from 1 source.'
    """
    asked = Asked(**settings)
    subject = RunSubject(dataset_of("report", run), asked)
    drawn = (figure(subject) for figure in FIGURES)
    return Report(
        title=asked.name,
        lead=_lead(subject),
        cautions=tuple(one for question in QUESTIONS for one in question.cautions(subject)),
        answers=tuple(question.answer(subject) for question in QUESTIONS),
        tree=repr(run),
        figures=tuple(one for one in drawn if one is not None),
        command=asked.command,
    )


def _lead(subject: RunSubject) -> str:
    n = subject.run.run.n
    rows = "endless" if n is None else f"{n:,} rows"
    return f"{rows} of {subject.run.seq_len:,} tokens · fingerprint {subject.run.fingerprint[:16]}"


def _body(report: Report) -> Markup:
    links = [("answers", "Answers"), ("tree", "The run in words")]
    links += [(one.name, one.title) for one in report.figures]
    items = (tag("li", tag("a", words, href=f"#{name}")) for name, words in links)
    contents = tag("nav", tag("ul", *items), class_="contents", aria_label="Contents")
    return tag(
        "div",
        tag("a", "Skip to the answers", href="#answers", class_="skip"),
        tag(
            "header",
            tag(
                "div", tag("span", "tokenloom report", class_="brand"), theme_button(), class_="top"
            ),
            tag("h1", report.title),
            tag("p", report.lead, class_="lead"),
        ),
        tag("div", contents, tag("main", *_sections(report)), class_="layout"),
        _foot(report),
        class_="page",
    )


def _sections(report: Report) -> list[Markup]:
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label="The run")
    return [
        cautions_html(report.cautions),
        answers_html(report.answers),
        tag("section", tag("h2", "The run in words"), tree, class_="figure", id="tree"),
        *(figure_html(one) for one in report.figures),
    ]


def _foot(report: Report) -> Markup:
    made = tag("p", f"Made by tokenloom {__version__}.", class_="soft")
    code = code_block(report.command, "command that made this page") if report.command else None
    return tag("footer", made, code, class_="figure")
