"""The settings of one source, which decide the row at each index, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

from tokenloom.bind import check_fields
from tokenloom.documents.resolve import Choice
from tokenloom.errors import ConfigError
from tokenloom.layout.kinds import LayoutSpec
from tokenloom.order.shuffle import Shuffle
from tokenloom.random.keys import check_seed

__all__ = ["MAIN", "SourceConfig"]

MAIN = "main"  # the name of the source in a run of one


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceConfig:
    """Everything that decides which row a source shows at an index.

    Attributes:
        layout: how rows are cut.
        choice: which documents; None is all of them.
        shuffle: how rows are ordered; None is stored order.
        epochs: how often rows are shown; None is endless.
        seed: seed of the order; None takes the mix's seed, else 0.
        take: the maximum number of examples.
        name: name of the source, part of its keys.
    """

    layout: LayoutSpec
    choice: Choice | None = None
    shuffle: Shuffle | None = None
    epochs: int | None = 1
    seed: int | None = None
    take: int | None = None
    name: str = MAIN

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs is not None and self.epochs < 0:
            raise ConfigError(
                f"epochs: found {self.epochs}, allowed: 0 or more, or None for endless."
            )
        if self.take is not None and self.take < 0:
            raise ConfigError(f"take: found {self.take}, allowed: 0 examples or more.")
        if self.seed is not None:
            check_seed(self.seed)
