"""Loops over the steps of a run, for adapters of frameworks that only want an iterable.

One idea: a loop is a pass (`tokenloom.loader.passes`), and its position counts what was handed
over. `StepLoop` is both; what a framework adds is a function from a batch to its own arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenloom.batch.batch import Batch
from tokenloom.errors import StateError
from tokenloom.loader.passes import LoopPlace, Turn
from tokenloom.loader.state import flat_state
from tokenloom.loader.step_reader import StepReader

__all__ = ["StepLoop", "plain_state"]


class StepLoop:
    """An iterable over the steps of a pass; the next loop is the next pass, in a fresh order.

    Args:
        reader: makes the batches.
        made: what is delivered, of a batch and the rows of its step over all ranks.
        repeat: every loop is the first pass again: for evaluation.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     reader = StepReader(store.windows(2), 2)
    ...     loop = StepLoop(reader, lambda batch, rows: batch.index.tolist())
    ...     list(loop), loop.epoch, loop.state_dict()["examples"]
    ([[0, 1], [2, 3]], 1, 4)
    """

    def __init__(
        self, reader: StepReader, made: Callable[[Batch, int], Any], *, repeat: bool = False
    ) -> None:
        self.reader, self.place, self._made = reader, LoopPlace(reader.passes, repeat=repeat), made
        self._loops = 0  # loops begun; a state that is loaded ends those before it

    def __iter__(self) -> Iterator[Any]:
        turn = self.place.begin()
        self._loops += 1
        return self._delivered(turn, self._loops)

    def _delivered(self, turn: Turn, loop: int) -> Iterator[Any]:
        """The batches of a turn, each counted when it is handed over."""
        step, count = turn.step, self.reader.passes.count(turn)
        steps = self.reader.passes.steps(turn)
        while count is None or step < turn.step + count:
            if loop != self._loops:
                raise StateError(
                    "batches: a state was loaded, or another loop begun, while this loop was "
                    "running. Start the loop again."
                )
            made = self._made(self.reader.batch(turn, step), steps.size(step))
            self.place.deliver(turn, step)
            yield made
            step += 1
        if loop == self._loops:
            self.place.finish(turn)

    def __len__(self) -> int:
        """Steps of a whole pass, wherever it was entered."""
        passes = self.reader.passes
        count = passes.count(passes.turn(self.place.epoch))
        if count is None:
            raise TypeError(
                "len: this run is endless, so it has no length. Use take(n) for a finite one."
            )
        return count

    @property
    def epoch(self) -> int:
        """The pass that is being delivered, or comes next."""
        return self.place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop deliver that pass."""
        self._loops += 1
        self.place.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position after what was delivered: integers and strings under fixed keys."""
        return flat_state(self.place.state())

    def load_state_dict(self, state: Mapping[str, Any], *, allow_mismatch: bool = False) -> None:
        """Let the next loop go on where a state was made, also one of a `tokenloom.Loader`."""
        self.place.load(plain_state(state), allow_mismatch=allow_mismatch)
        self._loops += 1


def plain_state(state: Any) -> Any:
    """A state whose numbers came back from a checkpoint as arrays, with integers again.

    >>> import numpy as np
    >>> plain_state({"examples": np.array(12), "render": "ab"})
    {'examples': 12, 'render': 'ab'}
    """
    if not isinstance(state, Mapping):
        return state  # refused where it is checked
    return {name: _plain(value) for name, value in state.items()}


def _plain(value: Any) -> Any:
    """The integer of an array without axes; anything else as it is."""
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value
