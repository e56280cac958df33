"""All figures about what a model has learned, of one or several evaluations.

One idea: evaluations of one kind belong into one figure, so that sets and checkpoints are compared;
what is by document alone, such as a page of tokens, has a figure of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenloom.evaluate.token_page import TokenPage, surprise_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import joined
from tokenloom.report.evaluations.by_place import document_figure, loss_answer, place_figure
from tokenloom.report.evaluations.over_steps import learned_answer, learned_figures
from tokenloom.report.evaluations.pz_maps import pz_answer, pz_figures
from tokenloom.report.evaluations.read_back import Evaluated, evaluated
from tokenloom.report.report_file import Answer

MOST_PAGES, MOST_TOKENS = 4, 4000  # of pages of tokens, and of a page

HARDEST = 20  # tokens that are listed


def known_evaluations(given: Mapping[str, Any]) -> list[Evaluated]:
    """Answers by name, as what figures ask.

    Raises:
        ConfigError: one of them is something else.
    """
    return [evaluated(name, answer) for name, answer in given.items()]


def evaluation_figures(every: Sequence[Evaluated]) -> Iterator[Figure]:
    """What there is to show, from the whole to single tokens."""
    yield from pz_figures(every)
    for figure in (place_figure(every), document_figure(every)):
        if figure is not None:
            yield figure
    yield from learned_figures(every)
    pages = [(one, one.page) for one in every if one.page is not None]
    for number, (one, page) in enumerate(pages[:MOST_PAGES]):
        yield _tokens(one.name, page, "tokens" if not number else f"tokens-{number + 1}")


def evaluation_answers(every: Sequence[Evaluated]) -> Iterator[Answer]:
    """An answer to each question that was evaluated."""
    for answer in (loss_answer(every), pz_answer(every), learned_answer(every)):
        if answer is not None:
            yield answer


def _tokens(name: str, page: TokenPage, anchor: str) -> Figure:
    more = len(page.tokens) - MOST_TOKENS
    order = page.log_probs[1:].argsort()[:HARDEST] + 1
    rows = [
        (place, int(page.tokens[place]), page.strings[place], float(page.log_probs[place]))
        for place in order.tolist()
    ]
    head = ("place", "id", "token", "log probability in nats")
    return Figure(
        name=anchor,
        title=f"Every token of {name}",
        message=f"{page.words[:1].upper()}{page.words[1:]}.",
        drawing=joined([surprise_legend(), page.cells(MOST_TOKENS)]),
        numbers=(Numbers.of(head, rows, f"the {HARDEST} most surprising tokens"),),
        notes=(f"The first {MOST_TOKENS:,} tokens; {more:,} more follow.",) if more > 0 else (),
    )
