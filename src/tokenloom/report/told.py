"""What a report tells in words: answers and warnings.

One idea: the numbers of a sentence are kept beside it, under names, so that a test compares them
with what `simulate` and `audit` say, and a reader with the figure that shows them. A warning is a
fact that changes a result, and a sentence that says what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import plural

__all__ = ["Answer", "Caution", "answers_html", "cautions_html"]


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


def _headline(one: Answer) -> Markup | None:
    if one.headline is None:
        return None
    number, counted = one.headline
    return tag("p", tag("b", number), " ", counted, class_="headline")


def _link(figure: str, words: str) -> Markup | None:
    return tag("a", words, href=f"#{figure}") if figure else None
