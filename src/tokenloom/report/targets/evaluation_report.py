"""A report on evaluations alone, without the run that was trained on.

One idea: a report on evaluations answers how well the text is predicted, what the model gives back
and what was learned when, as far as somebody has evaluated it; what nobody did is not mentioned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tokenloom.errors import ConfigError
from tokenloom.evaluate.losses import Losses
from tokenloom.page.numbers import plural
from tokenloom.report.evaluations.evaluation_figures import (
    evaluation_answers,
    evaluation_figures,
    known_evaluations,
)
from tokenloom.report.evaluations.read_back import Evaluated
from tokenloom.report.report_file import Caution, Report


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
        losses, windows = one.losses, one.windows
        if isinstance(losses, Losses) and not losses.is_whole:
            yield Caution(
                words=f"{one.name}: only a share of the rows was judged.",
                remedy="Put the shares of all ranks together with Losses.joined.",
                figure="places",
            )
        if windows is not None and not windows.is_whole:
            yield Caution(
                words=f"{one.name}: only a share of the windows was judged.",
                remedy="Put the shares of all ranks together with Extraction.joined.",
                figure="pz",
            )
