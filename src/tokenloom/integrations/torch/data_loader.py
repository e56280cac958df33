"""`dataloader`: a run as a DataLoader of torch, byte for byte what `tokenloom.Loader` gives.

One idea: torch's DataLoader moves finished steps (`StepDataset`) from processes to the training
loop, and nothing else; without processes it has nothing to do, and is left out of the way. A loop
over it is a pass (`tokenloom.loader.passes`); its state counts what the loop has taken, not what
workers have prefetched, and loads into any number of workers and ranks and any batch size. It draws
nothing from torch's random generator, so a model with dropout resumes exactly, too.

`stateful` is for `torch.distributed.checkpoint`, which loads into the keys that a state has now: a
state whose description grew (an edit of the mix) would not load. There the keys are the same in
every run, with the description as text.

The item of a `StepDataset` is the finished batch of one step of this rank, so neither rows nor
their order ever pass through torch. `StepSampler` yields which steps there are; it has no random
state, and starting at step 10^9 costs as much as starting at step 0. So the order is the same for
every number of workers and every way to start them.

The ranks of a context-parallel group get the same rows, each another part of their cells
(`context_slice`), so the rows must already hold everything that crosses a cut. A label that the
model shifts would have to come from the neighbour; `targets` of the contract "plain" are shifted
before they are cut. Worked example, rows of 8 cells over 2 ranks: rank 0 gets cells 0 to 3, rank 1
cells 4 to 7. With ``zigzag`` each gets one part from either end (0, 1, 6, 7 and 2, 3, 4, 5), so
that causal attention gives all ranks the same work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from tokenloom.api.dataset import Dataset
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses, wrong_type
from tokenloom.batch.views.contracts import contract_or_names
from tokenloom.batch.views.named import fields_for
from tokenloom.errors import ConfigError, TokenloomError, WorkerError, sentence
from tokenloom.loader.passes import LoopPlace, Passes, PassLoop, StepReader, Turn
from tokenloom.loader.state import flat_state
from tokenloom.loader.steps import no_dataset

CELLS = (
    "inputs",
    "targets",
    "position_ids",
    "segment_ids",
    "loss_mask",
    "loss_weights",
    "attention_mask",
)

WHOLE = ("examples_after", "step_loss_tokens", "index", "source")  # about rows, not about cells


class RowPart(NamedTuple):
    """Which part of every row: rank of size ranks, contiguous or from both ends."""

    rank: int
    size: int
    zigzag: bool = False


def context_slice(
    arrays: Mapping[str, Any], rank: int, size: int, zigzag: bool = False
) -> dict[str, Any]:
    """The cells of every row that a rank of a context-parallel group gets.

    Args:
        arrays: a batch of the contract "plain".
        rank: the number of this rank in its group.
        size: ranks that share each row.
        zigzag: take one part from either end, which balances causal attention.

    Raises:
        ConfigError: the batch has labels that the model would shift, or its rows do not divide.

    >>> row = torch.arange(8)[None]
    >>> context_slice({"inputs": row, "targets": row + 1}, 1, 2)["inputs"].tolist()
    [[4, 5, 6, 7]]
    >>> context_slice({"inputs": row, "targets": row + 1}, 0, 2, zigzag=True)["targets"].tolist()
    [[1, 2, 7, 8]]
    """
    if "inputs" not in arrays:
        raise _shifts("a batch")
    cells, parts = arrays["inputs"].shape[-1], 2 * size if zigzag else size
    check_part(RowPart(rank, size, zigzag), "plain", tuple(arrays), cells)
    each = cells // parts
    own = [rank, parts - 1 - rank] if zigzag else [rank]
    found = dict(arrays)
    for name in CELLS:
        if name in found:
            some = [found[name][..., k * each : (k + 1) * each] for k in own]
            found[name] = some[0].contiguous() if len(some) == 1 else torch.cat(some, dim=-1)
    return found


def check_part(part: RowPart, contract: str | None, names: Sequence[str], cells: int) -> None:
    """Refuse what cannot be cut.

    Args:
        part: which part of every row.
        contract: of the batches.
        names: their arrays, or those beside the contract.
        cells: of a row.
    """
    rank, size, zigzag = part
    if contract != "plain":
        raise _shifts(f"contract {contract!r}")
    for name in names:
        if name not in (*CELLS, *WHOLE):
            raise ConfigError(
                f"context: found {name!r}, which is about whole rows and would be wrong for a part "
                f"of one. Allowed: {', '.join((*CELLS[2:], *WHOLE))}."
            )
    parts = 2 * size if zigzag else size
    if not 0 <= rank < size or cells % parts:
        raise ConfigError(
            f"context: found rank {rank} of {size}{' (zigzag)' if zigzag else ''} for rows of "
            f"{cells:,} cells, allowed: rank 0 to {size - 1}, and rows that {parts} divides."
        )


def _shifts(what: str) -> ConfigError:
    return ConfigError(
        f"context: found {what} whose labels the model shifts, so the first label of every part "
        "would be missing. Allowed: contract='plain', whose targets are already shifted."
    )


class StepKey(NamedTuple):
    """Which step: what a sampler yields and a dataset answers."""

    turn: Turn
    step: int


PARTS = (
    "as in loader = dataloader(run, 8); StatefulDataLoader(loader.dataset, sampler=loader.sampler, "
    "batch_size=None)"
)


class StepDataset(TorchDataset):  # type: ignore[misc]
    """A map-style dataset of torch: step → the finished batch of this rank, as a dict of tensors.

    `dataloader` makes one; for a loader of another library take it from there::

        loader = dataloader(run, 8)
        StatefulDataLoader(loader.dataset, sampler=loader.sampler, batch_size=None)

    Args:
        reader: makes the batches.
        contract: what the model wants, see `tokenloom.batch.views.contracts`; None: only `fields`.
        fields: further arrays by name.
        context: the part of every row that this rank gets; None: whole rows.

    Raises:
        ConfigError: `reader` is something else, the run is not rendered as the contract wants it,
            or a row cannot be cut so.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     reader = StepReader(store.windows(2), 2)
    ...     sampler, steps = StepSampler(LoopPlace(reader.passes)), StepDataset(reader)
    ...     [steps[key]["input_ids"].tolist() for key in sampler]
    [[[97, 98], [99, 100]], [[101, 102], [103, 104]]]
    """

    def __init__(
        self,
        reader: StepReader,
        contract: str | None = "hf",
        fields: Sequence[str] = (),
        context: RowPart | None = None,
    ) -> None:
        if not isinstance(reader, StepReader):
            raise wrong_type("StepDataset", reader, f"a StepReader of dataloader, {PARTS}")
        self.reader, self.contract, self.fields = reader, contract, tuple(fields)
        self.context = context
        dataset = reader.passes.dataset
        self._wanted = contract_or_names(contract)
        self._wanted.check([one.render for one in dataset.sources.values()])
        if context is not None:
            check_part(context, contract, self.fields, dataset.seq_len)

    def __getitem__(self, key: StepKey) -> dict[str, Any]:
        """The batch of a step."""
        batch = self.reader.batch(*key)
        made = batch._tensors(self._wanted, self.fields, None)
        return made if self.context is None else context_slice(made, *self.context)

    def __len__(self) -> int:
        """Steps of a pass."""
        return self.reader.passes.length(0)

    def __repr__(self) -> str:
        dataset = self.reader.passes.dataset
        return f"StepDataset({dataset.fingerprint[:12]}, contract={self.contract!r})"


class StepSampler(Sampler):  # type: ignore[misc]
    """Yields the steps of a pass, from a place on.

    `dataloader` makes one; see `StepDataset`. In a loader of another library (torchdata's
    `StatefulDataLoader`, with ``batch_size=None``) it keeps the position itself: each loop is a
    pass, the next loop after one that was asked to its end is the next pass, and its state is that
    of the run, after what it has yielded.

    Args:
        place: where the loop is.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     sampler = StepSampler(LoopPlace(Passes(store.windows(2), 2)))
    ...     [key.step for key in sampler], len(sampler)
    ([0, 1], 2)
    """

    def __init__(self, place: LoopPlace) -> None:
        if not isinstance(place, LoopPlace):
            raise wrong_type("StepSampler", place, f"a LoopPlace of dataloader, {PARTS}")
        self.place = place
        self.turn: Turn | None = None  # set by a loader that counts what it delivers
        self._is_waiting = False  # whether a loop was asked for, but no step of it

    @property
    def passes(self) -> Passes:
        """How the run is cut into passes and steps."""
        return self.place.passes

    def __iter__(self) -> Iterator[StepKey]:
        if self.turn is not None:
            return self._steps(self.turn)
        self._is_waiting = True
        return self._counted()

    def _steps(self, turn: Turn) -> Iterator[StepKey]:
        count, step = self.passes.count(turn), turn.step
        while count is None or step < turn.step + count:
            yield StepKey(turn, step)
            step += 1

    def _counted(self) -> Iterator[StepKey]:
        self._is_waiting, turn = False, self.place.begin()
        for key in self._steps(turn):
            self.place.deliver(*key)
            yield key
        self.place.finish(turn)

    def __len__(self) -> int:
        """Steps of the whole pass, wherever it was entered."""
        return self.passes.length(self.place.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop deliver that pass."""
        self.place.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position after what it has yielded; it loads into every loader of the run."""
        return flat_state(self.place.state(entered=self._is_waiting))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next loop continue where a state was made."""
        self.place.load(state)


class _Loads(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Stateful:
    """A loader as `torch.distributed.checkpoint` wants it: a state with fixed keys.

    Args:
        loader: a `tokenloom.Loader`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = tl.Loader(store.windows(2), batch_size=2)
    ...     sorted(Stateful(loader).state_dict())
    ['dataset', 'examples', 'fingerprint', 'format', 'render', 'step', 'wrapped']
    """

    def __init__(self, loader: _Loads) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """The position, and the run that it is of."""
        return flat_state(self._loader.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume there."""
        self._loader.load_state_dict(state)


def stateful(loader: _Loads) -> Stateful:
    """A `Stateful` around a `tokenloom.Loader`; a `StepDataLoader` is one already.

    ::

        dcp.save({"model": model, "data": stateful(loader)}, checkpoint_id="checkpoint")

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     stateful(tl.Loader(store.windows(2), batch_size=2).seek(1)).state_dict()["examples"]
    2
    """
    return Stateful(loader)


OF_TORCH = (
    "pin_memory",
    "prefetch_factor",
    "persistent_workers",
    "multiprocessing_context",
    "timeout",
)

"""Options of torch's DataLoader that are its own here, too."""

GONE = RuntimeError, EOFError, ConnectionError, FileNotFoundError  # if a worker is killed


class StepDataLoader(PassLoop, DataLoader):  # type: ignore[misc]
    """A DataLoader of torch over the steps of a run; made by `dataloader`.

    Attributes:
        place: where the loop is.
        device: where batches are moved to, one step ahead; None: nowhere.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = dataloader(store.windows(2), batch_size=2)
    ...     [len(batch["labels"]) for batch in loader], loader.epoch, len(loader)
    ([2, 2], 1, 2)
    """

    # What Accelerate asks: it would shard steps once more, unless they are told to be prepared, and
    # it saves the state of loaders that have one.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def __init__(self, steps: StepDataset, place: LoopPlace, device: Any, **options: Any) -> None:
        self.place, self.device = place, device
        self._iterator: Any = None  # torch's, with persistent workers
        super().__init__(
            steps,
            batch_size=None,
            sampler=StepSampler(place),
            collate_fn=_as_it_is,
            # every loop draws a seed for its workers: from torch's own numbers, that would move the
            # dropout of a run that is resumed within a pass
            generator=torch.Generator(),
            **options,
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        turn = self.place.begin()
        self._loops += 1
        self.sampler.turn = turn
        try:
            if self.num_workers or self.pin_memory:
                made = self._moved_by_torch()
            else:  # torch would have nothing to do, and take 20 µs a batch for it
                made = map(self.dataset.__getitem__, iter(self.sampler))
        except Exception as error:
            if not self.num_workers or not _is_about_sending(error):
                raise
            raise ConfigError(
                f"num_workers: found {self.num_workers}, but the dataset cannot be sent to worker "
                f"processes ({error}). Use num_workers=0, or multiprocessing_context='fork'."
            ) from error
        finally:
            self.sampler.turn = None
        moved = made if self.device is None else _moved(made, self.device)
        return self._delivered(turn, moved, self._loops)

    def __getitem__(self, place: Any) -> Any:
        """Refused, with what to use: others take it for a dataset."""
        raise TypeError(no_dataset("dataloader(…)", place))

    def _moved_by_torch(self) -> Iterator[dict[str, Any]]:
        """The batches that workers make; kept workers that have died are replaced."""
        try:
            return super().__iter__()
        except GONE as error:
            if self._iterator is None or not _is_of_workers(error):
                raise
            self._iterator = None
            return super().__iter__()

    def _delivered(
        self, turn: Turn, batches: Iterator[dict[str, Any]], loop: int
    ) -> Iterator[dict[str, Any]]:
        """The batches, each counted when it is handed over."""
        place, step = self.place, turn.step
        self._refuse_if_over(loop)
        try:
            for batch in batches:
                place.deliver(turn, step)
                yield batch
                step += 1
                self._refuse_if_over(loop)  # before more is taken, which may be another loop's
        except GONE as error:
            if not self.num_workers or not _is_of_workers(error):
                raise
            self._iterator = None  # of persistent workers: the next loop starts others
            raise _gone(error) from error
        place.finish(turn)

    @property
    def step(self) -> int:
        """Steps delivered, over all passes."""
        return self.place.step


@settings_of_file("dataloader", own=["fields"])
@near_misses(
    "dataloader",
    shuffle="The run has its order: dataloader(run.shuffle(), …), or run.block_shuffle().",
    drop_last="Its name is end: end='drop' (the default), 'pad' or 'wrap'.",
    collate_fn="Batches are ready: ask for arrays by contract= and fields=.",
    sampler="The run has its order, and rank and world_size are found or given.",
)
def dataloader(
    dataset: Dataset,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    *,
    num_workers: int = 0,
    contract: str | None = "hf",
    fields: Sequence[str] = (),
    rank: int | None = None,
    world_size: int | None = None,
    group: Any = None,
    end: str = "drop",
    untrained: str = "raise",
    repeat: bool = False,
    device: Any = None,
    context: tuple[int, int] | tuple[int, int, bool] | None = None,
    prefetch: int = 16,
    fetch: str = "auto",
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
    persistent_workers: bool = False,
    multiprocessing_context: Any = None,
    timeout: float = 0,
) -> StepDataLoader:
    """A DataLoader of torch that gives this rank's batches as dicts of tensors.

    The order is that of `tokenloom.Loader` for every number of workers. A loop is a pass; the next
    loop is the next pass, in a fresh order. `state_dict` counts what the loop has taken.

    Args:
        dataset: the run.
        batch_size: rows of a step over all ranks; or a schedule, pairs (examples, batch size).
            This and other arguments default to the `loader` section of the run file that the
            run was loaded from, as those of `tokenloom.Loader` do.
        num_workers: worker processes. 0 is fastest unless making a batch takes milliseconds: a
            thread already fetches ahead.
        contract: what the model wants: "hf", "flash", "flex", "sdpa" or "plain"; see
            `tokenloom.batch.views.contracts`. None: only `fields`.
        fields: further arrays by name, such as "segment_ids" or "step_loss_tokens".
        rank: the number of this rank; None: found, see `tokenloom.Loader`.
        world_size: the number of ranks, given or found with `rank`.
        group: a process group, or one axis of a DeviceMesh, whose ranks get different rows.
        end: what becomes of the short last step of a pass: "drop", "pad" or "wrap".
        untrained: "raise" or "zero", for a step in which no token is trained.
        repeat: every loop is the first pass again: for evaluation.
        device: move batches there, one step ahead of the loop.
        context: (rank, size) or (rank, size, zigzag): the part of every row that this rank of a
            context-parallel group gets; for the contract "plain".
        prefetch: batches kept ready by the thread, without workers.
        fetch: "auto", "blocks" or "rows"; see `tokenloom.Loader`.
        pin_memory: see torch's `DataLoader`, like all that follow.
        prefetch_factor: batches each worker keeps ready.
        persistent_workers: keep workers from one pass to the next.
        multiprocessing_context: "fork", "spawn" or "forkserver".
        timeout: seconds to wait for a worker.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     batch = next(iter(dataloader(store.pack(8, strategy="sequential"), batch_size=1)))
    ...     batch["position_ids"].tolist(), batch["labels"].dtype
    ([[0, 1, 2, 0, 1, 2, 3, 4]], torch.int64)
    """
    made = fields_for(contract, fields)
    reader = StepReader(
        dataset,
        batch_size,
        rank,
        world_size,
        group=group,
        end=end,
        fields=made,
        untrained=untrained,
        dtype="int64",
        prefetch=prefetch,
        fetch=fetch,
    )
    steps = StepDataset(reader, contract, fields, None if context is None else RowPart(*context))
    return StepDataLoader(
        steps,
        LoopPlace(reader.passes, repeat=repeat),
        device,
        num_workers=num_workers,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        persistent_workers=persistent_workers,
        multiprocessing_context=multiprocessing_context,
        timeout=timeout,
    )


def _is_of_workers(error: Exception) -> bool:
    """Whether workers are gone or late: torch says so, or a pipe to one is closed.

    An error inside a worker is none of these: its text starts with "Caught".
    """
    if isinstance(error, TokenloomError) or str(error).startswith("Caught"):
        return False
    return not isinstance(error, RuntimeError) or str(error).startswith("DataLoader")


def _gone(error: Exception) -> WorkerError:
    told = sentence(str(error) or f"DataLoader worker: {type(error).__name__}")
    return WorkerError(
        f"{told} Nothing is lost: load_state_dict(state_dict()), then start the loop again. A "
        "worker that was killed had most often no memory left: use fewer workers, a smaller "
        "prefetch_factor, or num_workers=0."
    )


def _is_about_sending(error: Exception) -> bool:
    """Whether a dataset could not be sent to a worker."""
    return isinstance(error, AttributeError | TypeError) or "Pickling" in type(error).__name__


def _as_it_is(batch: Any) -> Any:
    return batch


def _moved(batches: Iterator[dict[str, Any]], device: Any) -> Iterator[dict[str, Any]]:
    """The batches on a device; each is on its way there while the one before is used."""
    ahead: list[dict[str, Any]] = []
    for batch in batches:
        ahead.append({name: _to(value, device) for name, value in batch.items()})
        if len(ahead) > 1:
            yield ahead.pop(0)
    yield from ahead


def _to(value: Any, device: Any) -> Any:
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value
