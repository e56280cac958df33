"""What a batch knows of the step that it is a share of.

One idea: a batch of a loader is some rows of a step, and three questions about it are questions
about the step: is any token of it trained, how many predictions count over all ranks, and where
does a run go on after it. A batch asks its `Step`; one that no loader made has none. A copy has
`KnownStep`, which needs no store.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tokenloom.errors import ConfigError, NoTrainedTokens

__all__ = ["KnownStep", "Step", "no_step"]


class Step(Protocol):
    """A step of a loader, as its batches see it."""

    @property
    def number(self) -> int:
        """Which step of the run it is, from 0."""

    @property
    def examples_after(self) -> int:
        """Examples of the run in this step and all before it."""

    def judge(self) -> None:
        """Called when a share has no trained token: tells if the whole step has none."""

    def loss_tokens(self) -> int:
        """Predictions that count, over all ranks."""

    def state(self) -> dict[str, Any]:
        """The state that resumes after it."""


class KnownStep(NamedTuple):
    """The step of a copied batch, without its run.

    Attributes:
        number, examples_after: see `Step`.
        untrained: what to raise when its share is found to have no trained token; None: nothing.
    """

    number: int
    examples_after: int
    untrained: str | None = None

    def judge(self) -> None:
        """See `Step`; it was judged when the batch was copied."""
        if self.untrained is not None:
            raise NoTrainedTokens(self.untrained)

    def loss_tokens(self) -> int:
        """See `Step`."""
        raise ConfigError(
            "step_loss_tokens: this batch is a copy without its run. Ask before it is copied or "
            'pickled, or let the loader make it: fields=("tokens", "step_loss_tokens").'
        )

    def state(self) -> dict[str, Any]:
        """See `Step`."""
        raise ConfigError(
            "state: this batch is a copy without its run. Ask the run: "
            f"run.state({self.examples_after})."
        )


def no_step(what: str) -> ConfigError:
    """The error about a batch that belongs to no step."""
    return ConfigError(
        f"{what}: this batch was made from indices, so it belongs to no step. Use the batches "
        "of a tokenloom.Loader, which do."
    )
