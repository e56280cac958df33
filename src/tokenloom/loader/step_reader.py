"""Given a step, answers this rank's batch of it: any step, in any order, in any process.

One idea: adapters keep positions of their own (a sampler, a trainer, another library's iterator)
and ask for steps by number. Steps that are asked for one after the other come from a loader, which
makes them ahead of time; a worker process, which gets every k-th step, makes each when it is asked
for, from a plan of its neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.batch.batch import Batch
from tokenloom.loader.accepted import accepted_steps
from tokenloom.loader.loader import Loader
from tokenloom.loader.maker import Maker
from tokenloom.loader.passes import Passes, Turn
from tokenloom.loader.ranks import find_ranks
from tokenloom.loader.steps import refuse_no_steps
from tokenloom.store.handles import lazy, lock_of

__all__ = ["StepReader"]


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
        refuse_no_steps(
            steps,
            dataset.run.n,
            end,
            seq_len=dataset.seq_len,
            tokens=sum(source.line.tokens for source in dataset.sources.values()),
        )
        _ = self.loader  # refuses what is wrong now, not in a worker

    def _forked(self, torn: bool) -> None:
        self._turn = self._maker = None  # another process, another share of the steps

    def __reduce__(self) -> tuple[Any, ...]:
        passes = self.passes
        given = passes.dataset, passes.batch_size, self.rank, self.world_size, passes.end
        return _copied, (*given, self._scattered, self._settings)

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


def _copied(
    dataset: Dataset,
    batch_size: Any,
    rank: int,
    world_size: int,
    end: str,
    scattered: bool,
    settings: dict[str, Any],
) -> StepReader:
    """A reader with these settings."""
    return StepReader(
        dataset, batch_size, rank, world_size, end=end, scattered=scattered, **settings
    )


def _in_worker() -> bool:
    """Whether this is a worker process of a torch DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
