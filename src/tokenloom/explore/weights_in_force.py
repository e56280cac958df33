"""The weights that a run has at an example: those it starts with, and what edits made of them.

One idea: stages and edits are a list in order of their example. Whoever types another edit needs to
know what holds there, not what held at the start.
"""

from __future__ import annotations

from tokenloom.api.dataset import Dataset
from tokenloom.page.markup import Markup, joined, tag

__all__ = ["told_weights", "weights_at"]

SHOWN = 30  # sources that are named


def weights_at(run: Dataset, index: int) -> tuple[dict[str, float], dict[str, int]]:
    """The weight of every source at an example, and the example at which the others ended.

    Args:
        run: a mix; a run of one source has no weights.
        index: the example; an edit at this very one counts.
    """
    if run.rule is None:
        return {}, {}
    weights, ended = dict(run.rule.weights), {}
    for edit in run.edits:
        if edit.at > index:
            break
        if run.rule.rule == "levanter" and edit.weights:  # its stages have all counts anew
            weights = {}
        weights |= dict.fromkeys(edit.add, 1.0) | edit.weights
        for name in edit.remove:
            weights.pop(name, None)
            ended[name] = edit.at
    return weights, ended


def told_weights(run: Dataset, index: int) -> Markup:
    """The same in a sentence; of many sources, the heaviest."""
    weights, ended = weights_at(run, index)
    if not weights:
        return joined(["A run of one source takes documents to leave out."])
    heavy = sorted(weights, key=lambda name: -weights[name])[:SHOWN]
    names = [name for name in weights if name in set(heavy)] if len(weights) > SHOWN else weights
    parts: list[object] = [f"Weights at example {index:,}: "]
    for place, name in enumerate(names):
        parts += [", " if place else None, tag("bdi", name), f" {weights[name]:g}"]
    more = len(weights) - SHOWN
    parts.append(f" and {more:,} lighter ones." if more > 0 else ".")
    for place, (name, at) in enumerate(list(ended.items())[:SHOWN]):
        parts += [", " if place else " Ended: ", tag("bdi", name), f" (at {at:,})"]
    parts.append("." if ended else None)
    return joined(parts)
