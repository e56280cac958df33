"""Evaluation inside a Trainer: every few steps, with the files of `tokenloom.evaluate.Periodic`.

One idea: a Trainer says when a step has ended and which one it was, and a `Periodic` knows what to
do then. The model is left in the mode it was in.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from tokenloom.evaluate.periodic import Periodic

__all__ = ["TrainerEvaluation"]


class TrainerEvaluation(TrainerCallback):  # type: ignore[misc]
    """Evaluates the model every few steps of ``trainer.train()``.

    It works in any Trainer of Transformers or TRL, with or without a run of ours. Steps are those
    of the optimizer. A training that resumes goes on with the files, and what was evaluated after
    its checkpoint is replaced.

    Args:
        periodic: what is evaluated, and when.

    >>> from tokenloom.evaluate import Periodic
    >>> periodic = Periodic({"zero": lambda model: {"loss": 0.0}}, every=100)
    >>> callback = TrainerEvaluation(periodic)  # Trainer(…, callbacks=[callback])
    >>> callback.periodic.every
    100
    """

    def __init__(self, periodic: Periodic) -> None:
        self.periodic = periodic

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate before the first step, if that was asked for."""
        if state.global_step == 0:
            self.periodic(given["model"], 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Evaluate after a step that is due."""
        self.periodic(given["model"], state.global_step)
