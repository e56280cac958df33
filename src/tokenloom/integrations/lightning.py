"""For people with Lightning: a DataModule whose checkpoint is exact.

One idea: Lightning may fetch a batch before it trains the one in hand, so the position of a loader
is one too far. Here the state follows the batches that Lightning has *trained*, which it counts
itself, and every epoch starts where training stands. So nothing is skipped or trained twice: not
after a crash, not at the end of an epoch, not with another batch size or number of devices.

An epoch is a pass over the run; the next one is the next pass, in a fresh order. With
``limit_train_batches`` an epoch is the next n steps of the run, across passes.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses
from tokenloom.errors import StateError, warn
from tokenloom.evaluate.periodic import Periodic
from tokenloom.integrations.fit import check_embedding
from tokenloom.integrations.torch.data_loader import OF_TORCH, StepDataLoader, dataloader
from tokenloom.loader.passes import LoopPlace, Passes, Turn
from tokenloom.loader.prefetch import log
from tokenloom.loader.state import flat_state
from tokenloom.loader.steps import accepted_steps, rank_rows

__all__ = ["DataModule", "LightningEvaluation"]

HANDED_ON = ("untrained", "context", "prefetch", "fetch", *OF_TORCH)  # to `dataloader`

# without what the file of a run says, which `DataModule` has taken already
_dataloader = inspect.unwrap(dataloader)

Runs = Dataset | Sequence[Dataset] | Mapping[str, Dataset]


class StepsOf:
    """What Lightning iterates over: no DataLoader, so it adds no DistributedSampler.

    Args:
        loader: gives the batches.
        module: knows where training is; None for evaluation, whose every loop is the same.
    """

    def __init__(self, loader: StepDataLoader, module: DataModule | None = None) -> None:
        self.loader, self.module = loader, module

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Lightning calls iter() to see whether it can: nothing may happen before the first batch
        return iter(self.loader) if self.module is None else self.module._trained_steps(self.loader)

    def __len__(self) -> int:
        """Steps of a pass."""
        return len(self.loader.sampler)

    def state_dict(self) -> dict[str, Any]:
        """The state of the module; of an evaluation there is none."""
        return {} if self.module is None else self.module.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Lightning keeps the state of a loader, too; it is that of the module."""
        if self.module is not None and state:
            self.module.load_state_dict(state)


class _Epoch:
    """One loop of Lightning over the training steps: what it was given, and what it has trained.

    Attributes:
        start: the state it began with.
        turns: passes it has entered, each with the batches it had delivered before.
        delivered: batches handed over.
    """

    def __init__(self, passes: Passes, trainer: Any, start: Mapping[str, Any]) -> None:
        self.passes, self.start = passes, start
        self.trainer = None if trainer is None else weakref.ref(trainer)
        self._before = _trained_by(trainer)
        self.turns: list[tuple[int, Turn]] = []
        self.delivered = 0

    @property
    def trained(self) -> int:
        """Batches that were trained; without a trainer, those that were handed over."""
        trainer = None if self.trainer is None else self.trainer()
        if trainer is None:
            return self.delivered
        return min(self.delivered, _trained_by(trainer) - self._before)

    def state(self) -> dict[str, Any]:
        """The state that resumes after what was trained."""
        trained = self.trained
        entered = [(first, turn) for first, turn in self.turns if first < trained]
        if not entered:
            return flat_state(self.start)
        first, turn = entered[-1]
        place = LoopPlace(self.passes)
        place.deliver(turn, turn.step + trained - first - 1)
        return flat_state(place.state())


class DataModule(pl.LightningDataModule):  # type: ignore[misc]
    """The batches of a run for ``Trainer.fit``, with a state in every checkpoint.

    Rows are shared over the data-parallel ranks of the strategy here, so
    ``Trainer(use_distributed_sampler=…)`` has no effect on it. A model without an embedding for
    some ids of a run is refused before the first batch.

    Args:
        dataset: the run to train on.
        batch_size: rows of a step over all ranks (of a micro-batch, with
            ``accumulate_grad_batches``); or a schedule, pairs (examples, batch size). This and
            other arguments default to the `loader` section of the run's file.
        val: the run, or runs by name or in a list, to validate on; every validation is the same.
        test: the same for ``Trainer.test``.
        contract: what the model wants: "hf", "flash", "flex", "sdpa" or "plain"; see
            `tokenloom.batch.views.contracts`.
        fields: further arrays by name, such as "segment_ids" or "step_loss_tokens".
        num_workers: worker processes; 0 is fastest unless making a batch takes milliseconds.
        end: what becomes of the short last step of a pass: "drop", "pad" or "wrap".
        eval_batch_size: rows of a step of `val` and `test`; None: those of `batch_size`.
        eval_end: what becomes of the short last step there. "pad" leaves no example out; its rows
            of filler have no labels.
        rank: the number of this rank; None: that of the strategy.
        world_size: the number of ranks, given or found with `rank`.
        options: further settings of `tokenloom.integrations.torch.dataloader`, such as `untrained`,
            `prefetch`, `pin_memory` or `persistent_workers`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     data = DataModule(store.windows(2).shuffle(), batch_size=2)
    ...     batches = list(data.train_dataloader())
    ...     len(batches), data.state_dict()["examples"]
    (2, 4)
    """

    @settings_of_file("DataModule", further=HANDED_ON, own=["fields"])
    @near_misses(
        "DataModule",
        *HANDED_ON,
        val_run="The run to validate on is val=….",
        eval_runs="The runs to evaluate on are val=… and test=….",
    )
    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        *,
        val: Runs | None = None,
        test: Runs | None = None,
        contract: str = "hf",
        fields: Sequence[str] = (),
        num_workers: int = 0,
        end: str = "drop",
        eval_batch_size: int | None = None,
        eval_end: str = "pad",
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.dataset = dataset_of("DataModule", dataset)
        self.batch_size = accepted_steps(batch_size).batch_size
        self.val, self.test = val, test
        self.eval_batch_size = eval_batch_size
        self._ends = end, eval_end
        self._given = rank, world_size
        self._options = {
            "contract": contract,
            "fields": tuple(fields),
            "num_workers": num_workers,
            **options,
        }
        self._loaded: Mapping[str, Any] | None = None  # a state that no epoch has begun with
        self._epoch: _Epoch | None = None
        # refuses what is wrong now, not when training starts
        _dataloader(dataset, batch_size, rank=0, world_size=1, end=end, **self._options)
        # Lightning takes a method that is there for data that is there, and warns of none
        if val is not None:
            _each(val, lambda run: dataset_of("val", run))
            self.val_dataloader = self._validation
        if test is not None:
            _each(test, lambda run: dataset_of("test", run))
            self.test_dataloader = self._testing

    # -- what Lightning asks for -----------------------------------------------------------

    def train_dataloader(self) -> StepsOf:
        """The training steps, from where training stands."""
        loader = self._loader(self.dataset, self.batch_size, self._ends[0])
        self._count_anew(loader)
        return StepsOf(loader, self)

    def state_dict(self) -> dict[str, Any]:
        """The state that resumes after the last batch that was trained."""
        if self._epoch is not None:
            return self._epoch.state()
        return flat_state(self.dataset.state(0) if self._loaded is None else self._loaded)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let training go on where a state was made; Lightning calls it for a checkpoint."""
        LoopPlace(self._passes).load(state)  # refuses one of another run
        self._loaded, self._epoch = dict(state), None

    # -- how it does -----------------------------------------------------------------------

    @property
    def _passes(self) -> Passes:
        return Passes(self.dataset, self.batch_size, self._ends[0])

    def _loader(self, run: Dataset, size: Any, end: str, **more: Any) -> StepDataLoader:
        if self.trainer is not None:
            check_embedding("DataModule", {"run": run}, self.trainer.lightning_module)
        rank, world_size = self._ranks()
        made: StepDataLoader = _dataloader(
            run, size, rank=rank, world_size=world_size, end=end, **self._options, **more
        )
        return made

    def _validation(self) -> Any:
        """The steps of the runs to validate on: all of them, every time."""
        return _each(self.val or [], self._evaluation)

    def _testing(self) -> Any:
        """The same for the runs to test on."""
        return _each(self.test or [], self._evaluation)

    def _evaluation(self, run: Dataset) -> StepsOf:
        size = self.batch_size if self.eval_batch_size is None else self.eval_batch_size
        loader = self._loader(run, size, self._ends[1], repeat=True)
        _warn_if_only_filler(loader)
        return StepsOf(loader)

    def _ranks(self) -> tuple[int | None, int | None]:
        """This rank among those that the strategy gives different rows."""
        if self._given != (None, None) or self.trainer is None:
            return self._given
        shares = self.trainer.distributed_sampler_kwargs
        if not shares:
            return None, None
        rank, world_size = int(shares["rank"]), int(shares["num_replicas"])
        log.info(
            "DataModule: rank %d of %d shares the rows of each step; Lightning adds no sampler",
            rank,
            world_size,
        )
        return rank, world_size

    def _trained_steps(self, loader: StepDataLoader) -> Iterator[dict[str, Any]]:
        """The batches of one epoch of Lightning, counted as they are handed over."""
        epoch = self._begin()
        loader.load_state_dict(epoch.start)
        while True:
            turn = loader.place.turn
            epoch.turns.append((epoch.delivered, turn))
            for batch in loader:
                epoch.delivered += 1
                yield batch
            if not self._is_limited(loader):
                return

    def _begin(self) -> _Epoch:
        """Start an epoch where training stands."""
        trainer, before = self.trainer, self._epoch
        start: Mapping[str, Any] | None = self._loaded
        if before is not None and start is None:
            owner = None if before.trainer is None else before.trainer()
            # another trainer starts from the beginning, also after a look at the first batches
            start = before.state() if owner is trainer else None
        if start is None and _trained_by(trainer):
            raise StateError(
                f"DataModule: the trainer has trained {_trained_by(trainer):,} batches, but the "
                "checkpoint has no state of this DataModule (Lightning keeps it under the name of "
                "the class), so the run would start again from its first example. Load one before "
                "fit: data.load_state_dict(run.state(examples))."
            )
        if start is None or (trainer is not None and trainer.overfit_batches > 0):
            start = self.dataset.state(0)
        self._loaded, self._epoch = None, _Epoch(self._passes, trainer, start)
        return self._epoch

    def _is_limited(self, loader: StepDataLoader) -> bool:
        """Whether Lightning ends an epoch before the pass does, so that it goes on in the next."""
        count = loader.place.passes.count(loader.place.passes.turn(0))
        if self.trainer is None or count is None:
            return False
        limit = self.trainer.limit_train_batches
        return (limit if isinstance(limit, int) else int(count * limit)) < count

    def _count_anew(self, loader: StepDataLoader) -> None:
        """Give Lightning the number of the batch in its epoch, if steps have another size now.

        Lightning resumes an epoch by the number of its batch. 4 of 9 steps of 4 rows are 8 of 18
        steps of 2 rows; it would take them for 4 of 18, and miss the end of the epoch.
        """
        passes, state = self._passes, self._loaded
        n = passes.n
        if state is None or self.trainer is None or not n or self._is_limited(loader):
            return
        now = self.trainer.fit_loop.epoch_loop.batch_progress.current
        examples = int(state["examples"])
        if not now.processed or not examples:
            return
        number = (examples - 1) // n  # the pass of the last example that was trained
        whole, rest = (
            passes.count(Turn(number, 0, first, (number + 1) * n)) or 0
            for first in (number * n, examples)
        )
        shift = whole - rest - now.processed
        groups = self.trainer.accumulate_grad_batches
        if shift % groups:
            warn(
                f"DataModule: resumed with another batch size, after {whole - rest} of {whole} "
                f"batches of this epoch, which {groups} (accumulate_grad_batches) does not divide; "
                "the next optimizer step has fewer of them."
            )
        for name in ("ready", "started", "processed", "completed"):
            setattr(now, name, getattr(now, name) + shift)


def _warn_if_only_filler(loader: StepDataLoader) -> None:
    """The mean loss over rows without a label is NaN, on the ranks that have no others."""
    reader = loader.dataset.reader
    passes, n = reader.passes, reader.passes.n
    turn = passes.turn(0)
    count = passes.count(turn)
    if passes.end != "pad" or n is None or not count:
        return
    steps = passes.steps(turn)
    real, size = n - steps.begin(count - 1), steps.size(count - 1)
    if real <= rank_rows(size, reader.world_size - 1, reader.world_size)[0]:
        warn(
            f"DataModule: the last evaluation step has {real} rows for {reader.world_size} ranks, "
            "so some get only filler, whose mean loss is NaN. Divide the sum of losses by "
            'step_loss_tokens (fields=("step_loss_tokens",)), or use eval_end="drop" or another '
            "eval_batch_size."
        )


def _trained_by(trainer: Any) -> int:
    """Batches that a trainer has trained, in this and earlier processes."""
    if trainer is None:
        return 0
    return int(trainer.fit_loop.epoch_loop.batch_progress.total.processed)


def _each(runs: Runs, made: Any) -> Any:
    """Something made of each run, in the same container."""
    if isinstance(runs, Mapping):
        return {name: made(run) for name, run in runs.items()}
    if isinstance(runs, Dataset):
        return made(runs)
    return [made(run) for run in runs]


class LightningEvaluation(pl.Callback):  # type: ignore[misc]
    """Evaluates the model every few steps of ``Trainer.fit``.

    What is found goes into the files of `periodic`, and its figures into the loggers of the
    trainer. Steps are those of the optimizer, so accumulated batches count once.

    Args:
        periodic: what is evaluated, and when.
        model: how the model is got from the LightningModule; None: its attribute `model` if it has
            one, else the module itself. It is called as `tokenloom.evaluate.evaluate` says.

    >>> from tokenloom.evaluate import Periodic
    >>> periodic = Periodic({"zero": lambda model: {"loss": 0.0}}, every=100)
    >>> callback = LightningEvaluation(periodic)  # pl.Trainer(callbacks=[callback])
    >>> callback.periodic.every
    100
    """

    def __init__(self, periodic: Periodic, model: Callable[[Any], Any] | None = None) -> None:
        self.periodic = periodic
        self._model = model or (lambda module: getattr(module, "model", module))
        self._last = -1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Evaluate before the first step, if that was asked for."""
        self._last = trainer.global_step
        self._evaluate(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Evaluate after a step of the optimizer that is due."""
        if trainer.global_step != self._last:
            self._last = trainer.global_step
            self._evaluate(trainer, pl_module)

    def _evaluate(self, trainer: Any, module: Any) -> None:
        step = trainer.global_step
        if self.periodic(self._model(module), step) is not None:
            for logger in trainer.loggers:
                logger.log_metrics(self.periodic.latest(), step)
