"""One plain training loop over a `tokenloom.Loader`; the same bits every time on one CPU thread.

One idea: a training is a function of a model, a run and a recipe. Data order is the run's, weights
are the seed's, and a checkpoint holds the weights, the optimiser and the loader's state, so that a
training that was killed ends with the losses of one that was not.

AdamW (0.9, 0.95) without weight decay, 20 steps of warm-up, a cosine down to 5 %, gradients
clipped at norm 1: `Recipe` has what differs between experiments.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tokenloom as tl
from science.models import TinyLlama

__all__ = ["CHECKPOINT", "FIELDS", "Recipe", "batch_loss", "resume_training", "thinned", "train"]

FIELDS = ("tokens", "labels", "segment_ids", "position_ids")

CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How a model is trained.

    Attributes:
        steps: optimiser steps.
        batch_size: rows of a step; None: as the run file says.
        rate: the highest learning rate.
        warm_up: steps of a linear rise to it.
    """

    steps: int
    batch_size: int | None = None
    rate: float = 2e-3
    warm_up: int = 20

    def factor(self, step: int) -> float:
        """The share of the highest rate in a step.

        >>> recipe = Recipe(steps=100, warm_up=2)
        >>> [round(recipe.factor(step), 3) for step in (0, 1, 50, 100)]
        [0.5, 1.0, 0.525, 0.05]
        """
        cosine = 0.525 + 0.475 * math.cos(math.pi * step / self.steps)  # from 1 to 5 %
        return min(1.0, (step + 1) / self.warm_up) * cosine


Watcher = Callable[[TinyLlama], None]


def batch_loss(model: nn.Module, batch: Any) -> Tensor:
    """Mean loss of the trained tokens of a batch; labels are aligned: the cell before predicts."""
    tokens, labels, segments, positions = (
        torch.as_tensor(getattr(batch, name)).long() for name in FIELDS
    )
    logits = model(tokens, segments, positions)[:, :-1]
    total = functional.cross_entropy(
        logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )
    return total / batch.loss_tokens


def train(
    model: TinyLlama,
    run: tl.Dataset,
    recipe: Recipe,
    *,
    watch: Mapping[int, Watcher] | None = None,
) -> list[float]:
    """Train a model in place.

    Args:
        model: what is trained.
        run: the data, with as many examples as the recipe takes.
        recipe: steps and rates.
        watch: functions of the model by the number of steps after which they are called.

    Returns:
        The loss of each step, in nats per token.
    """
    made = _Training(model, run, recipe)
    return made.run_until(recipe.steps, watch=watch)


def resume_training(
    model: TinyLlama,
    run: tl.Dataset,
    recipe: Recipe,
    folder: Path,
    *,
    every: int,
    tell: Callable[[int, float], None],
) -> None:
    """Train with a checkpoint every few steps, from the last one in the folder if there is one.

    Args:
        model: what is trained; its weights are replaced by those of the checkpoint.
        run: the data.
        recipe: steps and rates.
        folder: where the checkpoint is.
        every: steps from one checkpoint to the next.
        tell: called with the number and the loss of each step.
    """
    made = _Training(model, run, recipe)
    path = folder / CHECKPOINT
    if path.exists():
        made.load(torch.load(path, weights_only=True))
    while made.step < recipe.steps:
        first = made.step
        losses = made.run_until(min(first + every, recipe.steps), tell=tell)
        assert made.step == first + len(losses)
        torch.save(made.saved(), folder / "new.pt")
        os.replace(folder / "new.pt", path)


def thinned(losses: Sequence[float], points: int = 20) -> list[tuple[float, float]]:
    """Some points (step, loss) of a curve, evenly spaced.

    >>> thinned([5.0, 4.0, 3.0, 2.0], points=2)
    [(0.0, 5.0), (2.0, 3.0)]
    """
    every = max(1, len(losses) // points)
    return [(float(step), losses[step]) for step in range(0, len(losses), every)]


class _Training:
    """Model, optimiser and loader in one position."""

    def __init__(self, model: TinyLlama, run: tl.Dataset, recipe: Recipe) -> None:
        torch.set_num_threads(1)
        self.model, self.recipe, self.step = model, recipe, 0
        self.adam = torch.optim.AdamW(
            model.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        given: dict[str, Any] = (
            {} if recipe.batch_size is None else {"batch_size": recipe.batch_size}
        )
        self.loader = tl.Loader(run, rank=0, world_size=1, fields=FIELDS, **given)

    def run_until(
        self,
        last: int,
        *,
        watch: Mapping[int, Watcher] | None = None,
        tell: Callable[[int, float], None] | None = None,
    ) -> list[float]:
        losses = []
        while self.step < last:
            losses.append(self._one())
            if tell is not None:
                tell(self.step - 1, losses[-1])
            if watch is not None and self.step in watch:
                watch[self.step](self.model)
        return losses

    def _one(self) -> float:
        for group in self.adam.param_groups:
            group["lr"] = self.recipe.rate * self.recipe.factor(self.step)
        loss = batch_loss(self.model, next(self.loader))
        self.adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adam.step()
        self.step += 1
        return float(loss.item())

    def saved(self) -> dict[str, Any]:
        """Everything that a later process needs."""
        return {
            "step": self.step,
            "weights": self.model.state_dict(),
            "optimiser": self.adam.state_dict(),
            "data": self.loader.state_dict(),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go to where a checkpoint was made."""
        self.step = saved["step"]
        self.model.load_state_dict(saved["weights"])
        self.adam.load_state_dict(saved["optimiser"])
        self.loader.load_state_dict(saved["data"])
