"""A batch as a mapping: `dict(batch)`, `**batch`, `batch["input_ids"]`, arrays of other libraries.

One idea: other libraries know a batch as names and arrays, so a batch answers to names: its own
fields, and those that people know them by (`KNOWN`). In a dict everything that belongs to the whole
step is an array with one value for each row, so that it survives collating, slicing and workers.

Fields of a batch that are computed on first use and kept.

A field is a method. `tokenloom.store.handles.lazy` keeps its result. `by_row` lets each
kind of rows compute its own part and combines them, so a new array is written once, for rows of one
kind. It registers the name, so that loaders, mappings and micro-batches know the array, too.

What a batch knows of the step that it is a share of.

A batch of a loader is some rows of a step, and three questions about it are questions
about the step: is any token of it trained, how many predictions count over all ranks, and where
does a run go on after it. A batch asks its `Step`; one that no loader made has none. A copy has
`KnownStep`, which needs no store.

A batch with its rows in groups, for gradient accumulation.

A folded batch is its micro-batches, stacked. An array of rows gets one more axis in
front; what differs in shape from one micro-batch to the next is a list with one for each, so that
attention of variable length works on each of them; what belongs to the whole step stays as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tokenloom.arguments import one_of
from tokenloom.arrays import Array, Int64
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.views.contracts import Contract, contract_of, contract_or_names, to_torch
from tokenloom.errors import ConfigError, NoTrainedTokens, choices
from tokenloom.store.handles import lazy

KNOWN = {"input_ids": "tokens", "doc_idx": "document"}  # name that people know → our field

STEP = ("examples_after", "step_loss_tokens")  # about the whole step: an array of rows in a dict

KEYS = ("input_ids", "labels", "loss_mask", "segment_ids", "position_ids", "index")

"""What a dict of a batch holds. `attention_mask` is left out: transformers, given one, lets the
documents of a row attend to each other."""

MASKS = frozenset({"loss_mask", "attention_mask", "continues"})

WIDE = ("input_ids", "labels", "inputs", "targets")  # int64 in torch

IDS = frozenset({"input_ids", "tokens", "labels", "position_ids", "segment_ids"})


def all_fields() -> tuple[str, ...]:
    """The arrays of a batch."""
    return ("tokens", "labels", "loss_mask", *ROWWISE, "cu_seqlens", "spans")


def _names() -> tuple[str, ...]:
    """Everything that a batch answers to."""
    return (*KNOWN, *all_fields(), *STEP, "index", "document", "max_seqlen", "source")


def field_of(name: str) -> str:
    """Our name of a field.

    >>> field_of("input_ids"), field_of("labels")
    ('tokens', 'labels')
    """
    return KNOWN.get(name, name)


def fields_for(contract: str | None, fields: Sequence[str]) -> tuple[str, ...]:
    """The arrays of a batch that a contract and further names need, made in one pass.

    >>> fields_for("hf", ("segment_ids", "index"))
    ('tokens', 'labels', 'position_ids', 'segment_ids')
    >>> fields_for(None, ("input_ids", "labels"))
    ('tokens', 'labels')
    """
    if isinstance(fields, str):
        raise ConfigError(f"fields: found {fields!r}, allowed: several names, as in [{fields!r}].")
    for name in fields:
        one_of("fields", name, _names())
    if contract is None and not fields:
        raise ConfigError("fields: found none, and no contract. Name the arrays that you want.")
    wanted = (*contract_or_names(contract).fields, *map(field_of, fields))
    return tuple(
        dict.fromkeys(name for name in wanted if name in (*all_fields(), "step_loss_tokens"))
    )


class Named(ABC):
    """The names of a batch; see `tokenloom.Batch`."""

    _step: Step | None  # the step of a loader that it is a share of

    index: NDArray[np.int64]  # of each row

    @property
    @abstractmethod
    def renders(self) -> list[RenderSpec]:
        """How its rows are rendered."""

    @property
    def input_ids(self) -> Array:
        """`tokens`, by the name that models take."""
        return self["input_ids"]

    def keys(self) -> tuple[str, ...]:
        """The names in `dict(batch)`."""
        return KEYS if self._step is None else (*KEYS, "examples_after")

    def values(self) -> list[Any]:
        """What `dict(batch)` holds, in the order of `keys`."""
        return [self[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Name and array of everything in `dict(batch)`."""
        return [(name, self[name]) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """The array of that name, or `default` if a batch has none."""
        if name not in self:
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, name: object) -> bool:
        if name in STEP:
            return self._step is not None
        return name in _names()

    def __getitem__(self, name: str) -> Any:
        """An array by its name, ours or the one that people know (`input_ids`)."""
        if not isinstance(name, str):
            raise KeyError(
                f"batch[{name!r}]: found {type(name).__name__}, allowed: the name of an array, "
                "such as batch['input_ids']. For some rows, batch.part(first, last)."
            )
        if name not in _names():
            raise KeyError(
                f"batch[{name!r}]: there is no such array. Allowed: {choices(name, _names())}"
            )
        value = getattr(self, field_of(name))
        return self._by_row(value) if name in STEP else value

    def _by_row(self, value: int) -> Array:
        """What is known of the whole step, for each row."""
        found = np.empty(self.index.shape, np.int64)
        found.fill(value)
        return found

    def to_numpy(
        self,
        *,
        contract: str | None = None,
        fields: Sequence[str] = (),
        dtype: DTypeLike | None = None,
        mask_dtype: DTypeLike | None = None,
    ) -> dict[str, Any]:
        """The batch as a dict of NumPy arrays.

        Args:
            contract: what a kind of model wants, see `tokenloom.batch.views.contracts`; None:
                `keys`.
            fields: further arrays by name.
            dtype: of tokens, labels, positions and segments; None: as they are.
            mask_dtype: of masks; None: bool.
        """
        wanted = None if contract is None else contract_of(contract)
        if wanted is None:
            found = {name: self[name] for name in (*self.keys(), *fields)}
        else:
            wanted.check(self.renders)
            found = self._arrays(wanted, fields)
        for name, value in found.items():
            kind = dtype if name in IDS else mask_dtype if name in MASKS else None
            if kind is not None and isinstance(value, np.ndarray):
                found[name] = np.asarray(value, kind)
        return found if wanted is None else wanted.complete(found)

    def torch(
        self, *, contract: str = "hf", fields: Sequence[str] = (), device: Any = None
    ) -> dict[str, Any]:
        """The batch as a dict of torch tensors, as a kind of model wants it.

        ``input_ids`` and ``labels`` are int64, as the losses of torch want them.

        Args:
            contract: see `tokenloom.batch.views.contracts`.
            fields: further arrays by name.
            device: where to; None: the memory of the arrays themselves.
        """
        wanted = contract_of(contract)
        wanted.check(self.renders)
        return self._tensors(wanted, fields, device)

    def _tensors(self, wanted: Contract, fields: Sequence[str], device: Any) -> dict[str, Any]:
        """See `torch`; whether the rows suit the contract was asked before."""
        made = self._arrays(wanted, fields)
        for name in WIDE:
            if name in made:
                made[name] = np.asarray(made[name], np.int64)
        return wanted.complete(to_torch(made, device))

    def _arrays(self, wanted: Contract, fields: Sequence[str]) -> dict[str, Any]:
        made = wanted.arrays(self)
        if self._step is not None:
            made["examples_after"] = self._by_row(self._step.examples_after)
        for name in fields:
            made[name] = self[name]
        return made

    # -- the step --------------------------------------------------------------------------

    def _its_step(self, what: str) -> Step:
        if self._step is None:
            raise no_step(what)
        return self._step

    @property
    def step(self) -> int:
        """Which step of the run it belongs to, from 0."""
        return self._its_step("step").number

    @property
    def examples_after(self) -> int:
        """Examples of the run in this step and all before it; see `state`."""
        return self._its_step("examples_after").examples_after

    @lazy
    def step_loss_tokens(self) -> int:
        """Predictions that count in the whole step, over all ranks; no row of another is read.

        The sum of a rank's losses divided by it, added up over ranks and micro-batches, is the mean
        loss of the step, however many of them there are.
        """
        return self._its_step("step_loss_tokens").loss_tokens()

    def state(self) -> dict[str, Any]:
        """The state that resumes right after this batch, whatever was prefetched after it.

        A trainer that fetches ahead saves the state of the batch that it has trained, so none is
        lost or repeated. Where only arrays survive, ``run.state(examples_after)`` is the same.
        """
        return self._its_step("state").state()


T = TypeVar("T")

ROWWISE: dict[str, None] = {}  # names of public arrays of rows, in the order of their definition


class by_row(lazy[T]):  # noqa: N801
    """Like `lazy`, for an array of rows: each `Kind` computes its own rows.

    Rows that are shorter in one kind than in another are padded with -1 or False.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        if not name.startswith("_"):
            ROWWISE[name] = None

    def compute(self, instance: Any) -> T:
        """The array of all rows."""
        parts: list[tuple[Int64, Any]] = instance._parts
        if not parts:
            return super().compute(instance)
        made = [(rows, getattr(part, self._name)) for rows, part in parts]
        return cast(T, _woven(made, len(instance)))


def _woven(parts: Sequence[tuple[Int64, Array]], rows: int) -> Array:
    """An array [rows, …] combined from arrays of some of its rows."""
    widths, kind = {made.shape[1] for _, made in parts}, parts[0][1].dtype
    out = np.empty((rows, max(widths)), kind)
    if len(widths) > 1:
        out[:] = False if kind == np.bool_ else -1
    for where, made in parts:
        out[where, : made.shape[1]] = made
    return out


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


STACKED = frozenset({"tokens", "labels", "loss_mask", "document"})  # beside arrays by row

LISTED = frozenset({"cu_seqlens", "max_seqlen", "source", "spans", "metadata"})


class Folded(Named):
    """A batch in groups of rows.

    Args:
        whole: the batch.
        groups: micro-batches; they divide its rows.
    """

    def __init__(self, whole: Any, groups: int) -> None:
        self.whole, self.groups = whole, groups
        self.index = whole.index.reshape(groups, -1)
        self._step = whole._step

    def __reduce__(self) -> tuple[Any, ...]:
        return Folded, (self.whole, self.groups)

    def __len__(self) -> int:
        return len(self.whole)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(groups, B / groups, S)."""
        rows, seq_len = self.whole.shape
        return self.groups, rows // self.groups, seq_len

    @property
    def micro_batches(self) -> list[Any]:
        """Each group of rows as a batch of the same step."""
        rows = len(self.whole) // self.groups
        return [self.whole.part(k * rows, (k + 1) * rows) for k in range(self.groups)]

    @property
    def renders(self) -> list[RenderSpec]:
        """How its rows are rendered."""
        return self.whole.renders

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by copy and pickle, before there is a batch
            raise AttributeError(name)
        if name in LISTED:
            return [getattr(one, name) for one in self.micro_batches]
        value = getattr(self.whole, name)
        if name not in STACKED and name not in ROWWISE:
            return value
        return value.reshape(self.groups, -1, *value.shape[1:])

    def __repr__(self) -> str:
        return f"{self.whole!r} in {self.groups} groups"
