"""What a model remembers, beside what it can guess.

One idea: text that is easy to guess has a high P(z) whether it was trained on or not. So the same
windows of documents that were held out are the control, and what counts is the difference, with an
interval from drawing documents of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tokenloom.errors import ConfigError
from tokenloom.evaluate.extraction import Extraction, Interval, drawn_means

__all__ = ["Contrast", "Difference", "contrast"]

SAME = ("prefix", "suffix", "stride", "offsets", "decoding", "tau", "model")


class Difference(NamedTuple):
    """One figure of both sides.

    Attributes:
        trained: its mean over the windows of trained documents.
        held: the same of documents that were held out.
        difference: trained - held, with its interval.
        ratio: trained / held; inf if only the second is 0, NaN of logarithms.
    """

    trained: float
    held: float
    difference: Interval
    ratio: float

    @property
    def verdict(self) -> str:
        """In a word: whether the difference is more than the choice of documents."""
        if math.isnan(self.difference.low):
            return "too few documents to say"
        if self.difference.low > 0:
            return "remembered"
        if self.difference.high < 0:
            return "below the control: these sides are not alike"
        return "no more than the control"


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Trained documents beside held-out ones; made by `contrast`.

    Attributes:
        figures: each by its name; see `Extraction.figures`.
        level: of the intervals.
        documents: of both sides.

    >>> one = Difference(0.4, 0.1, Interval(0.3, 0.2, 0.4), 4.0)
    >>> found = Contrast(figures={"mean P(z)": one}, level=0.95, documents=(20, 10))
    >>> list(found.lines())[1]
    '  mean P(z): 0.4 and 0.1, difference 0.3 (0.2 to 0.4), ratio 4: remembered'
    """

    figures: dict[str, Difference]
    level: float
    documents: tuple[int, int]

    def lines(self) -> Iterator[str]:
        """A line for each figure, with a verdict."""
        yield (
            f"{self.documents[0]:,} trained documents beside {self.documents[1]:,} that were held "
            f"out, intervals of {self.level:.0%} over documents:"
        )
        for name, one in self.figures.items():
            ratio = "" if math.isnan(one.ratio) else f", ratio {one.ratio:.3g}"
            yield (
                f"  {name}: {one.trained:.3g} and {one.held:.3g}, difference {one.difference}"
                f"{ratio}: {one.verdict}"
            )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "documents": list(self.documents),
            "level": self.level,
            "figures": {
                name: {
                    "trained": one.trained,
                    "held_out": one.held,
                    "difference": list(one.difference),
                    "ratio": one.ratio,
                    "verdict": one.verdict,
                }
                for name, one in self.figures.items()
            },
        }


def contrast(
    trained: Extraction,
    held: Extraction,
    *,
    n: int = 100,
    p: float = 0.5,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Contrast:
    """How much more a model gives back of what it was trained on.

    Args:
        trained: `tokenloom.evaluate.pz` of documents that were trained on.
        held: the same of documents that were not, with the same settings.
        n: draws of whoever tries to extract.
        p: the probability with which they see the suffix.
        draws: how often documents of both sides are drawn, with replacement.
        level: of the intervals.
        seed: of the draws.

    Raises:
        ConfigError: the two were judged with other settings.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.evaluate import pz
    >>> def remembers_a(tokens, segment_ids, position_ids):
    ...     return np.where(np.arange(256) == ord("a"), 9.0, 0.0) + np.zeros((*tokens.shape, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": c * 12} for c in "aaabbb"]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     ask = dict(prefix=4, suffix=2, stride=1)
    ...     one = pz(remembers_a, store.select(doc_index=[0, 1, 2]), **ask)
    ...     two = pz(remembers_a, store.select(doc_index=[3, 4, 5]), **ask)
    >>> [each.verdict for each in contrast(one, two).figures.values()]
    ['remembered', 'remembered', 'remembered', 'remembered']
    >>> {each.verdict for each in contrast(two, two).figures.values()}
    {'no more than the control'}
    """
    for name in SAME:
        if trained.settings[name] != held.settings[name]:
            raise ConfigError(
                f"held: {name} is {held.settings[name]!r:.60} there and "
                f"{trained.settings[name]!r:.60} in trained; allowed: the same for both, or they "
                "can't be compared."
            )
    sides = (trained, held)
    known = [one.figures(n, p) for one in sides]
    values = [
        {name: v for name, v in one.items() if all(name in k for k in known)} for one in known
    ]
    drawn = [
        drawn_means(one.windows.document, list(v.values()), draws=draws, seed=seed, name=name)
        for one, v, name in zip(
            sides, values, ("bootstrap", "bootstrap of the control"), strict=True
        )
    ]
    found = {}
    for place, name in enumerate(values[0]):
        first, second = (float(v[name].mean()) if len(v[name]) else math.nan for v in values)
        apart = Interval.around(first - second, drawn[0][place] - drawn[1][place], level)
        found[name] = Difference(first, second, apart, _ratio(first, second))
    counts = tuple(len(np.unique(one.windows.document)) for one in sides)
    return Contrast(figures=found, level=level, documents=(counts[0], counts[1]))


def _ratio(first: float, second: float) -> float:
    if min(first, second) < 0 or not max(first, second):
        return math.nan
    return first / second if second else math.inf
