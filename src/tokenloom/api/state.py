"""The state of a run: one integer and a fingerprint, as JSON.

One idea: only `examples` sets the position; everything else is for checking and for people. What
reads, checks and keeps states is in `tokenloom.loader.state`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tokenloom.arguments import integer
from tokenloom.errors import ConfigError
from tokenloom.order.run import Run

__all__ = ["FORMAT", "Resumable", "examples_of", "make_state"]

FORMAT = "tokenloom.state/3"


class Resumable(Protocol):
    """What has states: a dataset."""

    @property
    def run(self) -> Run:
        """Index → spans."""

    @property
    def fingerprint(self) -> str:
        """Identity of what is trained when."""

    @property
    def render_fingerprint(self) -> str:
        """Identity of how tokens become arrays."""

    def endless(self) -> Resumable:
        """The same without its end."""

    def describe(self) -> dict[str, Any]:
        """The dataset as plain JSON."""

    def consumed(self, examples: int) -> list[dict[str, Any]]:
        """What the first `examples` take from each source."""


def examples_of(value: Any) -> int:
    """A number of examples, given as one, or as the `examples_after` of all rows of a batch.

    >>> examples_of(12), examples_of(np.array([12, 12]))
    (12, 12)
    """
    if isinstance(value, int):
        return integer("examples", value)
    found = sorted({*np.asarray(value).ravel().tolist()})
    if len(found) != 1:
        raise ConfigError(
            f"examples: found {found[:8]}, allowed: a number, or the examples_after of one batch, "
            "which is the same in all rows."
        )
    return integer("examples", found[0])


def make_state(dataset: Resumable, examples: int, step: int, *, wrapped: bool) -> dict[str, Any]:
    """The state of a run after `examples` delivered examples.

    What decides has the same keys in every state, as some checkpoints require. Past its end the run
    has wrapped around, or goes on without its end (`Dataset.endless`). Where
    it has wrapped, the next example depends on where the run ends, so the state records that, too.
    """
    n = dataset.run.n
    around = n if wrapped and n is not None and examples > n else 0
    return {
        "format": FORMAT,
        "examples": examples,
        "step": step,
        "fingerprint": dataset.fingerprint,
        "render": dataset.render_fingerprint,
        "wrapped": around,
        "dataset": dataset.describe(),
        "sources": _consumed(dataset, examples, around > 0),
    }


def _consumed(dataset: Resumable, examples: int, wrapped: bool) -> list[dict[str, Any]]:
    """What was taken from each source."""
    n = dataset.run.n
    if n is None or examples <= n:
        return dataset.consumed(examples)
    if not wrapped:
        return dataset.endless().consumed(examples)
    rounds, rest = divmod(examples, n)
    found = dataset.consumed(rest)
    for one, whole in zip(found, dataset.consumed(n), strict=True):  # all of it, `rounds` times
        for name in ("rows", "tokens", "epochs"):
            one[name] += rounds * whole[name]
    return found
