"""Evaluations, in the report on a run and alone: what a model has learned.

Evaluations of one kind belong into one figure, so that sets and checkpoints are compared; what is
by document alone, such as a page of tokens, has a figure of its own. What nobody evaluated is not
mentioned.

A mean over all tokens hides where a model is good. The same losses by the position in the frame, by
the tokens before, and by document say whether the context is used, and which documents are not
learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokenloom.errors import ConfigError
from tokenloom.evaluate.token_page import TokenPage, surprise_legend
from tokenloom.page.charts import NARROW, SERIES, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.histogram import binned_lines, columns
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, exact, plural, share
from tokenloom.report.evaluations.over_steps import learned_answer, learned_figures
from tokenloom.report.evaluations.pz_maps import pz_answer, pz_figures
from tokenloom.report.evaluations.read_back import Evaluated, evaluated
from tokenloom.report.report_file import Answer, Caution, Report

AXES = {
    "position": "position in the frame, in tokens",
    "context": "tokens of the document before it",
    "index": "place in the document, in tokens",
    "start": "start of the stretch, in tokens",
}

MOST_DOCUMENTS = 100_000  # of an evaluation; of more, a keyed sample

HARDEST_DOCUMENTS = 20  # documents that are listed

FEW = 2  # evaluations whose documents are columns; of more, lines

Table = Mapping[str, Mapping[str, float]]


def loss_answer(every: Sequence[Evaluated]) -> Answer | None:
    """How well text is predicted; None without losses."""
    parts: list[str] = []
    numbers: dict[str, float] = {}
    headline = None
    for one in every:
        figures = one.overall
        if not figures.get("tokens"):
            continue
        perplexity, tokens = float(figures["perplexity"]), int(figures["tokens"])
        bits = figures.get("bits_per_byte")
        told = f", {exact(float(bits))} bits per byte" if bits is not None else ""
        parts.append(
            f"{one.name}: perplexity {exact(perplexity)} over {amount(tokens, 'token')}{told}"
        )
        numbers |= {f"{one.name}.perplexity": perplexity, f"{one.name}.tokens": float(tokens)}
        headline = headline or (exact(perplexity), f"perplexity of {one.name}")
    if not parts:
        return None
    rest = f"; and {len(parts) - 3} more" if len(parts) > 3 else ""
    places = any(one.table("position") or one.table("context") for one in every)
    return Answer(
        name="predicted",
        question="How well is it predicted?",
        sentence=f"{'; '.join(parts[:3])}{rest}.",
        numbers=numbers,
        figure="places" if places else "documents",
        headline=headline,
    )


def place_figure(every: Sequence[Evaluated]) -> Figure | None:
    """Perplexity along every axis of places that was evaluated."""
    found: dict[str, dict[str, Table]] = {}
    for axis in AXES:
        tables: dict[str, Table] = {one.name: one.table(axis) for one in every}
        known = {name: table for name, table in tables.items() if table}
        if known:
            found[axis] = dict(list(known.items())[:SERIES])
    if not found:
        return None
    first, shown = next(iter(found.items()))
    return Figure(
        name="places",
        title="Perplexity by position",
        message=_message(first, shown),
        drawing=_drawn(found),
        numbers=tuple(_numbers(axis, one) for axis, one in found.items()),
    )


def _message(axis: str, tables: Mapping[str, Table]) -> str:
    name, table = next(iter(tables.items()))
    values = {b: float(one["perplexity"]) for b, one in table.items() if one.get("tokens")}
    finite = {b: value for b, value in values.items() if math.isfinite(value)}
    if not finite:
        return f"No place of {name} has a finite perplexity."
    low, high = min(finite, key=finite.__getitem__), max(finite, key=finite.__getitem__)
    if exact(finite[low]) == exact(finite[high]):
        return f"{name}: perplexity is {exact(finite[low])} at every {axis}."
    return (
        f"{name}: perplexity is lowest, {exact(finite[low])}, at {axis} {low}, and highest, "
        f"{exact(finite[high])}, at {axis} {high}."
    )


def _chart(axis: str, tables: Mapping[str, Table]) -> Markup:
    """A small chart: the axes of places stand side by side."""
    bins = _bins(tables)
    lines = {
        name: [float(table[b]["perplexity"]) if b in table else math.nan for b in bins]
        for name, table in tables.items()
    }
    said = f"perplexity by {AXES[axis]}"
    drawn = binned_lines(
        bins, lines, NARROW, said, below=AXES[axis], beside="perplexity", tens=True
    )
    return tag("div", tag("h3", f"By {AXES[axis].partition(',')[0]}"), drawn)


def _drawn(found: Mapping[str, Mapping[str, Table]]) -> Markup:
    telling = {axis: one for axis, one in found.items() if len(_bins(one)) > 1}
    shown = telling or found  # a single point says no more than the table does
    charts = tag("div", *(_chart(axis, one) for axis, one in shown.items()), class_="panels")
    names = list(dict.fromkeys(name for one in found.values() for name in one))
    # a colour is a place in the list, so names are told once only where all charts have them
    alike = all(list(one) == names for one in found.values())
    if len(names) < 2:
        return charts
    told = [legend(names)] if alike else [_named(axis, one) for axis, one in found.items()]
    return joined([*told, charts])


def _named(axis: str, tables: Mapping[str, Table]) -> Markup:
    return joined([tag("p", f"By {axis}:", class_="soft"), legend(list(tables))])


def _bins(tables: Mapping[str, Table]) -> list[str]:
    """The names of all bins, in order of their first place.

    >>> _bins({"a": {"2 to 3": {}, "0": {}}, "b": {"1": {}}})
    ['0', '1', '2 to 3']
    """
    names = {name for table in tables.values() for name in table}
    return sorted(names, key=lambda name: int(name.split()[0]) if name[:1].isdigit() else -1)


def _numbers(axis: str, tables: Mapping[str, Table]) -> Numbers:
    rows = [
        (name, b, one.get("tokens"), one.get("loss"), one.get("perplexity"))
        for name, table in tables.items()
        for b, one in table.items()
    ]
    head = ("evaluation", AXES[axis], "tokens", "loss in nats", "perplexity")
    return Numbers.of(head, rows, f"by {axis}")


def document_losses(one: Evaluated) -> dict[str, tuple[int, float]]:
    """Tokens and mean loss of each document, or of a keyed sample of them."""
    table = one.table("document", MOST_DOCUMENTS)
    return {
        name: (int(some["tokens"]), float(some["loss"]))
        for name, some in table.items()
        if some.get("tokens")
    }


def document_figure(every: Sequence[Evaluated]) -> Figure | None:
    """How the perplexities of documents are distributed."""
    found = {one.name: document_losses(one) for one in every}
    known = {name: losses for name, losses in found.items() if losses}
    if not known:
        return None
    shown = dict(list(known.items())[:SERIES])
    bins, shares = _spread(shown)
    said = "share of documents by perplexity"
    notes = [
        f"{name}: a keyed sample of {len(losses):,} documents."
        for name, losses in shown.items()
        if len(losses) == MOST_DOCUMENTS
    ]
    draw = columns if len(shares) <= FEW else binned_lines  # thin columns are not told apart
    parts = [
        both(
            lambda width: draw(
                bins,
                shares,
                width,
                said,
                below="perplexity of a document",
                beside="share of documents",
                words="{} %",
            )
        )
    ]
    return Figure(
        name="documents",
        title="How documents differ",
        message=_document_message(*next(iter(shown.items()))),
        drawing=joined([legend(list(shares)), *parts] if len(shares) > 1 else parts),
        numbers=(_hardest(shown), _spread_numbers(bins, shares)),
        notes=tuple(notes),
    )


def _document_message(name: str, losses: Mapping[str, tuple[int, float]]) -> str:
    values = np.exp(np.minimum([loss for _, loss in losses.values()], 700.0))
    middle, high = float(np.median(values)), float(values.max())
    told = f"{name}: the median of {amount(len(losses), 'document')} has perplexity {exact(middle)}"
    if exact(middle) == exact(high):
        return f"{told}, and none has more."
    twice = int((values > 2 * middle).sum())
    return (
        f"{told}, the hardest {exact(high)}; {share(twice, len(values))} have more than twice the "
        "median."
    )


def _spread(found: Mapping[str, Mapping[str, tuple[int, float]]]) -> tuple[
    list[str], dict[str, list[float]]
]:  # fmt: skip
    """Bins that double, and the share of documents of each evaluation in them, in per cent."""
    powers = {
        name: np.floor(np.minimum([loss for _, loss in losses.values()], 44.0) / math.log(2))
        for name, losses in found.items()
    }
    every = np.concatenate(list(powers.values())).astype(int)
    low, high = int(every.min()), int(every.max())
    bins = [f"{exact(2.0**p)} to {exact(2.0 ** (p + 1))}" for p in range(low, high + 1)]
    shares = {
        name: (
            100 * np.bincount(one.astype(int) - low, minlength=len(bins)) / max(1, len(one))
        ).tolist()
        for name, one in powers.items()
    }
    return bins, shares


def _hardest(found: Mapping[str, Mapping[str, tuple[int, float]]]) -> Numbers:
    rows = []
    for name, losses in found.items():
        worst = sorted(losses, key=lambda one: -losses[one][1])[:HARDEST_DOCUMENTS]
        rows += [(name, one, *losses[one], math.exp(min(700.0, losses[one][1]))) for one in worst]
    head = ("evaluation", "document", "tokens", "loss in nats", "perplexity")
    return Numbers.of(head, rows, f"the {HARDEST_DOCUMENTS} hardest documents")


def _spread_numbers(bins: Sequence[str], shares: Mapping[str, Sequence[float]]) -> Numbers:
    rows = [(b, *(one[place] for one in shares.values())) for place, b in enumerate(bins)]
    head = ("perplexity", *(f"{name}: % of documents" for name in shares))
    return Numbers.of(head, rows, "documents by perplexity")


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
