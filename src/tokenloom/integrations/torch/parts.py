"""The two parts of a DataLoader: a dataset whose item is a whole step, and a sampler of steps.

One idea: the item of a `StepDataset` is the finished batch of one step of this rank, so neither
rows nor their order ever pass through torch. The sampler yields which steps there are; it has no
random state, and starting at step 10^9 costs as much as starting at step 0. So the order is the
same for every number of workers and every way to start them.

The ranks of a context-parallel group get the same rows, each another part of their cells
(`context_slice`), so the rows must already hold everything that crosses a cut. A label that the
model shifts would have to come from the neighbour; `targets` of the contract "plain" are shifted
before they are cut.

Worked example, rows of 8 cells over 2 ranks: rank 0 gets cells 0 to 3, rank 1 cells 4 to 7. With
``zigzag`` each gets one part from either end (0, 1, 6, 7 and 2, 3, 4, 5), so that causal attention
gives all ranks the same work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Sampler

from tokenloom.arguments import wrong_type
from tokenloom.batch.views.contracts import contract_or_names
from tokenloom.errors import ConfigError
from tokenloom.loader.passes import LoopPlace, Passes, StepReader, Turn
from tokenloom.loader.state import flat_state

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
        return _length(self.reader.passes, 0)

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
        return _length(self.passes, self.place.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop deliver that pass."""
        self.place.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position after what it has yielded; it loads into every loader of the run."""
        return flat_state(self.place.state(entered=self._is_waiting))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next loop go on where a state was made."""
        self.place.load(state)


def _length(passes: Passes, number: int) -> int:
    """Steps of a whole pass."""
    count = passes.count(passes.whole(number))
    if count is None:
        raise TypeError(
            "len: this run is endless, so it has no length. Use take(n) for a finite one."
        )
    return count
