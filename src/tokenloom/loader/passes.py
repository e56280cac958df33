"""Passes: which steps belong to which pass over a run, for loops over epochs.

One idea: a pass is the declared n examples of a run, and pass p is examples [p n, (p + 1) n) of the
same run without its end (`Dataset.endless`), so every pass has a fresh order and a position is
still one integer. A pass is cut into steps from wherever it is entered; each applies the end
policy, and after its last step the next pass starts at its first example, for every batch size.

Worked example, n = 10 and steps of 4 rows, short ones dropped::

    pass            0            1             after example 14, steps of 3 rows
    examples        0 4 | 8      10 14 | 18    14 17 | 20 …
    delivered       8 of 10      8 of 10

Given a step, answers this rank's batch of it: any step, in any order, in any process.

Adapters keep positions of their own (a sampler, a trainer, another library's iterator)
and ask for steps by number. Steps that are asked for one after the other come from a loader, which
makes them ahead of time; a worker process, which gets every k-th step, makes each when it is asked
for, from a plan of its neighbours.

Loops over the steps of a run, for adapters of frameworks that only want an iterable.

A loop is a pass (`tokenloom.loader.passes`), and its position counts what was handed
over. `StepLoop` is both; what a framework adds is a function from a batch to its own arrays.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arguments import integer
from tokenloom.batch.batch import Batch
from tokenloom.errors import ConfigError, StateError
from tokenloom.loader.loader import Loader
from tokenloom.loader.maker import Maker
from tokenloom.loader.ranks import find_ranks
from tokenloom.loader.state import check_state, flat_state
from tokenloom.loader.steps import accepted_steps, refuse_no_steps
from tokenloom.order.schedule import Steps
from tokenloom.store.handles import lazy, lock_of


class Turn(NamedTuple):
    """The rest of one pass.

    Attributes:
        number: which pass, from 0.
        step: the number of its first step, counted over all passes.
        example: the example that step starts at.
        stop: one past the last example of the pass; None: it never ends.
    """

    number: int
    step: int
    example: int
    stop: int | None


@dataclass(frozen=True)
class Passes:
    """Cuts a run into passes, and these into steps.

    Attributes:
        dataset: the run.
        batch_size: rows of a step over all ranks, or a schedule.
        end: what becomes of a short last step of a pass.
    """

    dataset: Dataset
    batch_size: int | Sequence[tuple[int, int]]
    end: str = "drop"

    @property
    def n(self) -> int | None:
        """Examples of a pass; None: the first never ends."""
        return None if self.end == "wrap" else self.dataset.run.n

    def turn(self, number: int, step: int = 0) -> Turn:
        """A whole pass, whose first step has that number."""
        n = self.n
        if n is None:
            if number:
                raise ConfigError(
                    f"epoch: found {number}, but the run is endless, so it has a single pass."
                    " Allowed: 0."
                )
            return self.whole(0, step)
        if number and self.supplier is self.dataset:
            self.dataset.endless()  # says why there is no other pass
        return self.whole(number, step)

    def whole(self, number: int, step: int = 0) -> Turn:
        """The same, without asking whether there can be such a pass."""
        n = self.n
        return (
            Turn(0, step, 0, None)
            if n is None
            else Turn(number, step, number * n, (number + 1) * n)
        )

    def turn_at(self, examples: int, step: int) -> Turn:
        """What is left of a pass after `examples`; if no step is, the next pass.

        Whether there can be one is asked when it is entered: the last state of a run also loads.
        """
        n = self.n
        if n is None:
            return Turn(0, step, examples, None)
        number = examples // n
        rest = Turn(number, step, examples, (number + 1) * n)
        return rest if self.count(rest) else self.next(rest, step)

    def next(self, turn: Turn, step: int) -> Turn:
        """The pass after another one, whose first step has that number; see `turn_at`."""
        if self.n is None:
            return Turn(0, step, self.steps(turn).begin(step), None)
        return self.whole(turn.number + 1, step)

    def is_last(self, turn: Turn, step: int) -> bool:
        """Whether a turn has no step after this one."""
        count = self.count(turn)
        return count is not None and step + 1 >= turn.step + count

    def steps(self, turn: Turn) -> Steps:
        """The steps of a pass."""
        return Steps(self.batch_size, (turn.step, turn.example))

    def count(self, turn: Turn) -> int | None:
        """The number of steps in what is left of a pass; None: endless."""
        if turn.stop is None:
            return None
        return self.steps(turn).count(turn.stop, partial=self.end == "pad") - turn.step

    def length(self, number: int) -> int:
        """Steps of a whole pass."""
        count = self.count(self.whole(number))
        if count is None:
            raise TypeError(
                "len: this run is endless, so it has no length. Use take(n) for a finite one."
            )
        return count

    def after(self, turn: Turn, step: int) -> int:
        """Examples after a step of a turn; after its last step, those of the whole pass."""
        steps = self.steps(turn)
        if turn.stop is None:
            return steps.begin(step + 1)
        last = steps.count(turn.stop, partial=self.end == "pad")
        return turn.stop if step + 1 >= last else min(steps.begin(step + 1), turn.stop)

    @lazy
    def supplier(self) -> Dataset:
        """The run that has the examples of all passes; this one if no other pass is possible."""
        if self.n is None:
            return self.dataset
        try:
            return self.dataset.endless()
        except ConfigError:
            return self.dataset


class LoopPlace:
    """Where a loop over passes is: the only thing in an adapter that changes.

    The pass goes up only when one was delivered to its end: its last step was handed over, whether
    or not the loop asked for another. A loop that was left before that starts the same pass again,
    unless a state was loaded since. For evaluation every loop is the first pass.

    Args:
        passes: the passes.
        repeat: every loop is the first pass.
    """

    def __init__(self, passes: Passes, *, repeat: bool = False) -> None:
        self.passes, self.repeat = passes, repeat
        self._turn = passes.turn(0)  # what the next loop delivers
        self._within: tuple[Turn, int] | None = None  # the last step that was delivered
        self._start = 0, 0  # examples and steps before it, if none was

    @property
    def epoch(self) -> int:
        """The pass that is being delivered, or comes next."""
        return self._turn.number

    @property
    def turn(self) -> Turn:
        """What a loop that starts now delivers."""
        self._settle()
        return self._turn

    @property
    def step(self) -> int:
        """Steps delivered, over all passes."""
        return self._start[1] if self._within is None else self._within[1] + 1

    @property
    def examples(self) -> int:
        """Examples delivered to all ranks, over all passes; what a pass drops counts at its end."""
        return self._start[0] if self._within is None else self.passes.after(*self._within)

    def begin(self) -> Turn:
        """Start a loop: what it delivers. Another one after it starts the pass from its start."""
        self._settle()
        turn = self._turn
        self._turn = self.passes.turn(turn.number, turn.step)  # refuses a pass that cannot be
        self._within, self._start = None, (turn.example, turn.step)
        return turn

    def deliver(self, turn: Turn, step: int) -> None:
        """Count a step of a turn as delivered."""
        self._within = turn, step

    def _settle(self) -> None:
        """Finish a pass whose last step was delivered, if the loop was left with it."""
        if self._within is not None and self.passes.is_last(*self._within):
            self.finish(self._within[0])

    def finish(self, turn: Turn) -> None:
        """Count a pass as delivered to its end."""
        if not self.repeat:
            self._turn = self.passes.next(turn, self.step)

    def set_epoch(self, number: int) -> None:
        """Let the next loop deliver that pass.

        If it is the pass that comes next anyway, nothing changes, so that a loaded state is kept by
        trainers that call it before every loop.
        """
        turn = self.passes.turn(integer("epoch", number), self.step)
        self._settle()
        if turn.number == self._turn.number:
            return
        self._turn = turn
        self._within, self._start = None, (turn.example, turn.step)

    def state(self, *, entered: bool = False) -> dict[str, Any]:
        """The state that resumes after what was delivered.

        Args:
            entered: instead of that, where a loop that starts now starts.
        """
        examples, step = self.examples, self.step
        if entered:
            self._settle()
            examples, step = self._turn.example, self._turn.step
        return self.passes.dataset.state(examples, step=step, wrapped=self.passes.end == "wrap")

    def load(self, state: Mapping[str, Any], *, allow_mismatch: bool = False) -> None:
        """Let the next loop continue where a state was made.

        Raises:
            StateError: the state is damaged or of another run.
        """
        dataset, wraps = self.passes.dataset, self.passes.end == "wrap"
        run = dataset.run
        examples = check_state(state, dataset.describe(), run.n, allow_mismatch=allow_mismatch)
        if state.get("wrapped") and not wraps:
            raise StateError(
                "state: found one of a run that had wrapped around (end='wrap'), which repeats "
                "the same order; "
                "passes have fresh ones. Load it with end='wrap'."
            )
        self._turn = self.passes.turn_at(examples, int(state["step"]))
        self._within, self._start = None, (examples, int(state["step"]))


class _StepLoader(Loader):
    """A loader that is asked for steps, so it may be in a worker process."""

    _anywhere = True


class StepReader:
    """The batches of one rank, by turn and step.

    Args:
        dataset: the run.
        batch_size: rows of a step over all ranks, or a schedule.
        rank, world_size, group: see `Loader`.
        end: what becomes of a short last step of a pass.
        scattered: steps are asked for in any order and by several threads, so none is made ahead.
        settings: further settings of `Loader`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[tuple[int, int]] | None,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        group: Any = None,
        end: str = "drop",
        scattered: bool = False,
        **settings: Any,
    ) -> None:
        dataset = dataset_of("dataset", dataset)
        steps = accepted_steps(batch_size)
        self.rank, self.world_size = find_ranks(rank, world_size, group)
        self.passes = Passes(dataset, steps.batch_size, end)
        self._settings, self._scattered = settings, scattered
        self._turn: Turn | None = None
        self._maker: Maker | None = None
        self._lock = lock_of(self)
        refuse_no_steps(steps, dataset, end)
        _ = self.loader  # refuses what is wrong now, not in a worker

    def _forked(self, torn: bool) -> None:
        self._turn = self._maker = None  # another process, another share of the steps

    def __reduce__(self) -> tuple[Any, ...]:
        passes, settings = self.passes, {"scattered": self._scattered, **self._settings}
        given = passes.dataset, passes.batch_size, self.rank, self.world_size
        return functools.partial(StepReader, end=passes.end, **settings), given

    @lazy
    def loader(self) -> Loader:
        """The loader that makes the steps."""
        passes = self.passes
        return _StepLoader(
            passes.supplier,
            passes.batch_size,
            self.rank,
            self.world_size,
            end=passes.end,
            **self._settings,
        )

    def batch(self, turn: Turn, step: int) -> Batch:
        """This rank's batch of a step of a turn."""
        if self._turn != turn:
            self._enter(turn, step)
        if self._maker is not None:
            with self._lock:
                return self._maker_of(turn).batch_at(step)
        loader = self.loader
        if loader.step != step:
            loader._enter(self._through(turn), step)
        return next(loader)

    def _enter(self, turn: Turn, step: int) -> None:
        """Make the steps of that turn, by a loader or one by one."""
        if self._scattered or _in_worker():
            with self._lock:
                self._maker_of(turn)
        else:
            self.loader._enter(self._through(turn), step)
            self._turn = turn

    def _maker_of(self, turn: Turn) -> Maker:
        """What makes single steps of a turn; several threads may be in several turns."""
        if self._maker is None or self._turn != turn:
            self._turn, self._maker = turn, self._through(turn)
        return self._maker

    def _through(self, turn: Turn) -> Maker:
        passes = self.passes
        maker = self.loader._maker.through(passes.steps(turn), turn.stop, passes.dataset)
        if self._scattered or _in_worker():
            maker.ahead = maker.budget = 0  # the next step is somebody else's
        return maker


def _in_worker() -> bool:
    """Whether this is a worker process of a torch DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


class PassLoop:
    """Where a loop over passes is, and its state: what loaders of adapters have in common.

    Attributes:
        place: where the loop is.
    """

    place: LoopPlace
    _loops = 0  # loops begun; a state that is loaded ends those before it

    @property
    def epoch(self) -> int:
        """The pass that is being delivered, or comes next."""
        return self.place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop deliver that pass."""
        before = self.place.turn
        self.place.set_epoch(epoch)
        self._loops += self.place.turn != before

    def state_dict(self) -> dict[str, Any]:
        """The position after what was delivered: integers and strings under fixed keys."""
        return flat_state(self.place.state())

    def load_state_dict(self, state: Mapping[str, Any], *, allow_mismatch: bool = False) -> None:
        """Let the next loop continue where a state was made, also one of a `tokenloom.Loader`."""
        self.place.load(plain_state(state), allow_mismatch=allow_mismatch)
        self._loops += 1

    def _refuse_if_over(self, loop: int) -> None:
        if loop != self._loops:
            raise StateError(
                "batches: a state or an epoch was set, or another loop begun, while this loop was "
                "running; what it has prefetched is of before. Start the loop again."
            )


class StepLoop(PassLoop):
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

    def __iter__(self) -> Iterator[Any]:
        turn = self.place.begin()
        self._loops += 1
        return self._delivered(turn, self._loops)

    def _delivered(self, turn: Turn, loop: int) -> Iterator[Any]:
        """The batches of a turn, each counted when it is handed over."""
        step, count = turn.step, self.reader.passes.count(turn)
        steps = self.reader.passes.steps(turn)
        while count is None or step < turn.step + count:
            self._refuse_if_over(loop)
            made = self._made(self.reader.batch(turn, step), steps.size(step))
            self.place.deliver(turn, step)
            yield made
            step += 1
        if loop == self._loops:
            self.place.finish(turn)

    def __len__(self) -> int:
        """Steps of a whole pass, wherever it was entered."""
        return self.reader.passes.length(self.place.epoch)


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
