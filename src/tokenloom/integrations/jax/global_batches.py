"""`batches`: the steps of a run as dicts of global JAX arrays.

One idea: every process makes only the rows that its devices hold, and JAX puts them
together; row i of the global array is row i of the step, for every mesh. A loop is a pass, and the
state is the one of `tokenloom.Loader`: integers and strings under fixed keys, so Orbax (or JSON)
keeps it, and it loads into any mesh and batch size.

Which rows a process makes: the rows of a step are cut into as many equal parts as the axis has
places, in order, and a process needs the parts of its own devices. If these are neighbours, and
every process has as many of them, the process is a rank like any other. Processes whose devices
differ only along other axes of the mesh have the same places, so they get the same rows::

    mesh data 4, 2 processes          0 0 1 1              process 1: places 2, 3 → rank 1 of 2
    mesh data 2 x model 2, processes  [0 1] [0 1]          both: places 0, 1      → rank 0 of 1
    mesh data 4, devices shuffled     0 1 0 1              refused: places 0, 2 are no neighbours

A `tokenloom.Batch` is a pytree of JAX, too. Its leaves are the arrays that a step computes with
(`LEAVES`), and what comes back, from ``jax.tree.map`` or inside a jitted function, is a plain dict
of them: there it need not be arrays of NumPy any more. `index` and `examples_after` stay with the
batch: JAX would cut their 64 bits to 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.arguments import near_misses, one_of
from tokenloom.batch.batch import Batch
from tokenloom.batch.paint import IGNORE
from tokenloom.batch.views.named import Folded, fields_for
from tokenloom.errors import ConfigError, warn
from tokenloom.loader.passes import StepLoop, StepReader
from tokenloom.loader.prefetch import log
from tokenloom.order.schedule import Steps

LEAVES = ("input_ids", "labels", "loss_mask", "segment_ids", "position_ids")

"""The names of the leaves: what ``jax.tree.map(f, batch)`` gives as a dict."""


def _flatten(batch: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(batch[name] for name in LEAVES), LEAVES


def _flatten_with_keys(batch: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    named = tuple((jax.tree_util.DictKey(name), batch[name]) for name in LEAVES)
    return named, LEAVES


def _unflatten(names: tuple[str, ...], leaves: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, leaves, strict=True))


for _kind in (Batch, Folded):
    jax.tree_util.register_pytree_with_keys(_kind, _flatten_with_keys, _unflatten, _flatten)


class MeshShare(NamedTuple):
    """This process among those that hold different rows.

    Attributes:
        rank: its number among them.
        world_size: how many there are.
        places: places of the axis that each holds.
    """

    rank: int
    world_size: int
    places: int


def process_table(mesh: Any, axis: tuple[str, ...]) -> NDArray[np.int64]:
    """The process of every device of a mesh [places of the axis, devices at each]."""
    missing = [name for name in axis if name not in mesh.axis_names]
    if missing:
        raise ConfigError(
            f"axis: found {missing[0]!r}, allowed: an axis of the mesh, "
            f"{', '.join(map(repr, mesh.axis_names))}."
        )
    found: NDArray[np.int64] = np.vectorize(lambda device: device.process_index, otypes=[np.int64])(
        mesh.devices
    )
    front = [mesh.axis_names.index(name) for name in axis]
    rest = [k for k in range(found.ndim) if k not in front]
    # [data, …, model, …] → [places, devices at each]
    places = int(np.prod([found.shape[k] for k in front]))
    return found.transpose(*front, *rest).reshape(places, -1)


def share_of(table: NDArray[np.int64], process: int) -> MeshShare:
    """Which of the different shares of rows a process holds.

    >>> share_of(np.array([[0], [0], [1], [1]]), 1)
    MeshShare(rank=1, world_size=2, places=2)
    >>> share_of(np.array([[0, 1], [0, 1]]), 1)
    MeshShare(rank=0, world_size=1, places=2)
    """
    held = {int(one): np.flatnonzero((table == one).any(axis=1)) for one in np.unique(table)}
    if process not in held:
        raise ConfigError(
            f"mesh: process {process} has no device in it, so it has no rows. Build the mesh of "
            "the devices of all processes."
        )
    sizes = {len(places) for places in held.values()}
    each = min(sizes)
    for one, places in sorted(held.items()):
        low = int(places[0])
        if len(sizes) > 1 or low % each or int(places[-1]) - low + 1 != each:
            raise ConfigError(
                f"mesh: found places {places.tolist()} of the axis on process {one}, allowed: the "
                "same number of neighbouring places on every process. jax.make_mesh(…), or "
                "mesh_utils.create_device_mesh, orders devices so."
            )
    return MeshShare(int(held[process][0]) // each, len(table) // each, each)


Array = NDArray[Any]

CONTRACTS = ("jax", "maxtext", "plain", "hf")

VARY = ("document_starts", "continues", "cu_seqlens", "max_seqlen", "source", "spans")

FILLS = {"index": -1, "labels": IGNORE}

LARGEST = np.iinfo(np.int32).max


class GlobalBatches(StepLoop):
    """An iterable of dicts of JAX arrays; made by `batches`.

    Attributes:
        sharding: how the arrays are laid out; None: on the default device.
        accumulate: micro-batches of a step; None: no axis for them.
        multiple: what the rows of a process must be divisible by; 0: nothing.
        padded: for each batch size, the rows of filler that are added to a step.
    """

    def __init__(
        self,
        reader: StepReader,
        contract: str,
        fields: Sequence[str],
        *,
        sharding: NamedSharding | None,
        accumulate: int | None,
        multiple: int,
        padded: dict[int, int],
        repeat: bool,
    ) -> None:
        super().__init__(reader, self._arrays, repeat=repeat)
        self._contract, self._fields = contract, tuple(fields)
        self.sharding, self.accumulate = sharding, accumulate
        self.multiple, self.padded = multiple, padded
        self._told = False

    def _arrays(self, batch: Batch, size: int) -> dict[str, Any]:
        """The rows of this process, put together with those of the others."""
        made = batch.to_numpy(contract=self._contract, fields=self._fields)
        missing = _rows_each(size, self.reader.world_size, self.multiple) - len(batch)
        found: dict[str, Any] = {}
        for name, value in made.items():
            if isinstance(value, np.ndarray):  # settings of a model of torch are none
                value = self._narrow(name, value)
                if missing > 0:
                    value = np.concatenate([value, self._filler(name, value, missing, batch)])
                found[name] = self._placed(value)
        return found

    def _narrow(self, name: str, value: Array) -> Array:
        """Numbers of 64 bits in 32, as JAX would make them; none is cut."""
        if value.dtype != np.int64 or jax.config.jax_enable_x64:
            return value
        if value.max(initial=0) <= LARGEST:
            return value.astype(np.int32)
        if name != "examples_after":
            raise ConfigError(
                f"{name}: found {value.max():,}, which JAX would cut to 32 bits. Set "
                f"jax_enable_x64, or leave {name!r} out of fields."
            )
        if not self._told:
            self._told = True
            warn(
                f"examples_after: from {LARGEST + 1:,} on it does not fit into the 32 bits of JAX, "
                "so it is -1. state_dict() is exact; so is examples_after with jax_enable_x64."
            )
        return np.full(value.shape, -1, np.int32)

    def _filler(self, name: str, value: Array, rows: int, batch: Batch) -> Array:
        """Rows like those that `end="pad"` makes."""
        shape, render = (rows, *value.shape[1:]), batch.renders[0]
        if name.endswith(("position", "position_ids")):
            cells = np.arange(shape[1], dtype=value.dtype) + render.position_offset
            return np.broadcast_to(cells, shape)
        fill: Any = FILLS.get(name, 0)
        if name in ("inputs", "input_ids", "tokens"):
            fill = render.pad_id or 0
        elif name in ("examples_after", "step_loss_tokens"):
            fill = value[0]
        elif name == "targets" and self._contract == "plain":
            fill = IGNORE
        return np.full(shape, fill, value.dtype)

    def _placed(self, value: Array) -> Any:
        """The global array of which these are the rows of this process."""
        if self.accumulate is not None:  # [rows, …] → [micro-batches, rows / micro-batches, …]
            value = value.reshape(self.accumulate, -1, *value.shape[1:])
        if self.sharding is None:
            return jax.numpy.asarray(value)
        axis = 0 if self.accumulate is None else 1
        shape = list(value.shape)
        shape[axis] *= self.reader.world_size
        return jax.make_array_from_process_local_data(self.sharding, value, tuple(shape))

    def __repr__(self) -> str:
        passes, filler = self.reader.passes, ""
        if self.padded:
            filler = f", rows of filler in a step {self.padded}"
        return (
            f"GlobalBatches(batch size {passes.batch_size}, contract {self._contract!r}, rank "
            f"{self.reader.rank} of {self.reader.world_size}{filler}, run "
            f"{passes.dataset.fingerprint[:12]})"
        )


@settings_of_file("batches", own=["fields"])
@near_misses("batches")
def batches(
    dataset: Dataset,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    *,
    mesh: Any = None,
    axis: str | tuple[str, ...] = "data",
    contract: str = "jax",
    fields: Sequence[str] = (),
    accumulate: int | None = None,
    pad: bool = False,
    end: str = "drop",
    untrained: str = "raise",
    repeat: bool = False,
    prefetch: int = 16,
    fetch: str = "auto",
    rank: int | None = None,
    world_size: int | None = None,
) -> GlobalBatches:
    """An iterable of dicts of JAX arrays: inputs, targets, loss_mask, segment_ids, position_ids.

    With a mesh every array is global, its rows spread over `axis` and repeated along the other
    axes. Without one, it is on the default device and has the rows of this process.

    A loop is a pass; the next loop is the next pass, in a fresh order. `state_dict` and
    `load_state_dict` count what the loop has taken.

    Args:
        dataset: the run.
        batch_size: rows of a step over all processes; or a schedule, pairs (examples, batch size).
            This and other arguments default to the `loader` section of the run's file.
        mesh: a `jax.sharding.Mesh`; None: the default device.
        axis: the axis, or axes, of the mesh that rows are spread over.
        contract: "jax"; "maxtext", the same under MaxText's names; "plain" or "hf", with -100 for
            targets that do not count. See `tokenloom.batch.views.contracts`.
        fields: further arrays of rows by name, such as "loss_weights" or "index".
        accumulate: shape arrays [accumulate, rows / accumulate, …], for a scan over micro-batches.
        pad: add rows of filler without loss (index -1) where rows do not divide the devices;
            otherwise that is refused.
        end: what becomes of the short last step of a pass: "drop", "pad" or "wrap".
        untrained: "raise" or "zero", for a step in which no token is trained.
        repeat: every loop is the first pass again: for evaluation.
        prefetch: batches kept ready by a thread.
        fetch: "auto", "blocks" or "rows"; see `tokenloom.Loader`.
        rank: the number of this process, without a mesh; None: found, see `tokenloom.Loader`.
        world_size: the number of processes, given or found with `rank`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     batch = next(iter(batches(store.pack(8, strategy="sequential"), batch_size=1)))
    ...     batch["targets"].tolist(), batch["loss_mask"].sum().item()
    ([[98, 99, 0, 101, 102, 103, 104, 0]], 6)
    """
    dataset = dataset_of("batches", dataset)
    one_of("contract", contract, CONTRACTS)
    _check_fields(fields)
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    places, sharding = 1, None
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise ConfigError("rank: found together with mesh, which says it. Give one of the two.")
        rank, world_size, places = share_of(process_table(mesh, names), jax.process_index())
        across = PartitionSpec(names) if accumulate is None else PartitionSpec(None, names)
        sharding = NamedSharding(mesh, across)
    reader = StepReader(
        dataset,
        batch_size,
        rank,
        world_size,
        end=end,
        fields=fields_for(contract, fields),
        untrained=untrained,
        prefetch=prefetch,
        fetch=fetch,
    )
    multiple = places * _groups(accumulate) if (mesh, accumulate) != (None, None) else 0
    padded = _padding(reader.passes.batch_size, reader.world_size, multiple, names, pad=pad)
    return GlobalBatches(
        reader,
        contract,
        fields,
        sharding=sharding,
        accumulate=accumulate,
        multiple=multiple,
        padded=padded,
        repeat=repeat,
    )


def _groups(accumulate: int | None) -> int:
    if accumulate is not None and accumulate < 1:
        raise ConfigError(f"accumulate: found {accumulate}, allowed: 1 or more micro-batches.")
    return accumulate or 1


def _check_fields(fields: Sequence[str]) -> None:
    for name in fields:
        if name in VARY:
            raise ConfigError(
                f"fields: found {name!r}, whose shape differs from step to step, so every step "
                "would be compiled anew. Use segment_ids and position_ids, which say the same."
            )


def _rows_each(size: int, world_size: int, multiple: int) -> int:
    """Rows of a process: its share of a step, and filler up to a multiple; all have as many.

    Arrays that no other process adds to have as many as there are: `multiple` is 0.
    """
    if not multiple:
        return 0
    most = -(-size // world_size)
    return -(-most // multiple) * multiple


def _padding(
    batch_size: int | Sequence[tuple[int, int]],
    world_size: int,
    multiple: int,
    axis: tuple[str, ...],
    *,
    pad: bool,
) -> dict[int, int]:
    """The rows of filler in a step of each batch size that needs some."""
    found: dict[int, int] = {}
    for size in Steps(batch_size).sizes if multiple else []:
        parts = world_size * multiple
        filler = _rows_each(size, world_size, multiple) * world_size - size
        if filler and not pad:
            below, above = size // parts * parts, -(-size // parts) * parts
            near = f"{below:,} or {above:,}" if below else f"{above:,}"
            raise ConfigError(
                f"batch_size: found {size:,} rows, which do not divide into {parts:,} equal parts "
                f"(places along {', '.join(axis)}, times accumulate). Allowed: a multiple of "
                f"{parts:,}, such as {near}; or pad=True, which adds {filler:,} rows of filler "
                "without loss to every step."
            )
        if filler:
            found[size] = filler
            log.info("batches: %d rows of filler are added to each step of %d rows", filler, size)
    return found
