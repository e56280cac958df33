"""Evaluations, in the report on a run and alone: what a model has learned.

Evaluations of one kind belong into one figure, so that sets and checkpoints are compared; what is
by document alone, such as a page of tokens, has a figure of its own. What nobody evaluated is not
mentioned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenloom.errors import ConfigError
from tokenloom.evaluate.token_page import TokenPage, surprise_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import joined
from tokenloom.page.numbers import plural
from tokenloom.report.evaluations.by_place import document_figure, loss_answer, place_figure
from tokenloom.report.evaluations.over_steps import learned_answer, learned_figures
from tokenloom.report.evaluations.pz_maps import pz_answer, pz_figures
from tokenloom.report.evaluations.read_back import Evaluated, evaluated
from tokenloom.report.report_file import Answer, Caution, Report

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


def evaluation_report(
    given: Mapping[str, Any], *, name: str = "evaluation", command: str = ""
) -> Report:
    """The report on evaluations, by name.

    Raises:
        ConfigError: there is none, or one of them is something else.
    """
    every = known_evaluations(given)
    if not every:
        raise ConfigError("evaluations: found none, allowed: at least one answer, by name.")
    return Report(
        title=name,
        about="evaluation",
        lead=" · ".join([plural(len(every), "evaluation"), *_models(every)]),
        cautions=tuple(evaluation_cautions(every)),
        answers=tuple(evaluation_answers(every)),
        tree="\n".join(line for one in every for line in _words(one)),
        figures=tuple(evaluation_figures(every)),
        command=command,
    )


def _settings(one: Evaluated) -> Mapping[str, Any]:
    for answer in (one.losses, one.windows, one.counted):
        found = answer.get("settings") if isinstance(answer, Mapping) else None
        found = getattr(answer, "settings", None) if found is None else found
        if isinstance(found, Mapping):
            return found
    return {}


def _models(every: list[Evaluated]) -> list[str]:
    told = {str(_settings(one).get("model", "")).partition(",")[0] for one in every}
    told |= {one.page.model for one in every if one.page is not None}
    return sorted(word[:80] for word in told if word)[:3]


def _words(one: Evaluated) -> Iterator[str]:
    """Its name and its parts, as a tree."""
    *parts, last = [*_parts(one)] or ["nothing that is known here"]
    yield one.name
    yield from (f"├─ {part}" for part in parts)
    yield f"└─ {last}"


def _parts(one: Evaluated) -> Iterator[str]:
    figures = one.overall
    if figures.get("tokens"):
        yield f"losses of {int(figures['tokens']):,} tokens"
    if one.windows is not None:
        documents = plural(len(one.windows.lengths), "document")
        yield f"{plural(len(one.windows), 'window')} of {documents}"
    elif one.counted is not None:
        yield f"P(z) of {plural(len(one.counted.get('documents', {})), 'document')}"
    if one.records:
        first, last = one.records[0]["step"], one.records[-1]["step"]
        yield f"{plural(len(one.records), 'checkpoint')}, step {first:,} to {last:,}"
    if one.page is not None:
        yield f"page of {plural(len(one.page.tokens), 'token')}"
    if one.control is not None:
        yield "beside documents that were held out"
    model = one.page.model if one.page is not None else _settings(one).get("model")
    if model:
        yield str(model)[:120]


def evaluation_cautions(every: list[Evaluated]) -> Iterator[Caution]:
    """What changes how the figures are read."""
    for one in every:
        figures = one.overall
        never = figures.get("never", 0)
        if never:
            yield Caution(
                words=f"{one.name}: {plural(int(never), 'token')} had probability 0, so its "
                "perplexity is infinite.",
                remedy="Look at the tokens: a masked vocabulary, or a wrong tokenizer.",
                figure="places",
            )
        elif figures.get("tokens") and math.isnan(float(figures.get("loss", math.nan))):
            yield Caution(
                words=f"{one.name}: its loss is no number.",
                remedy="Evaluate again, and look at the logits of the model.",
                figure="places",
            )
        if not one.is_whole:
            yield Caution(
                words=f"{one.name}: only a share of the rows was judged.",
                remedy="Put the shares of all ranks together with Losses.joined.",
                figure="places",
            )
        if one.windows is not None and not one.windows.is_whole:
            yield Caution(
                words=f"{one.name}: only a share of the windows was judged.",
                remedy="Put the shares of all ranks together with Extraction.joined.",
                figure="pz",
            )
