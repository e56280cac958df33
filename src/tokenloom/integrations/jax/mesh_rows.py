"""Which rows of a step the devices of a process hold.

One idea: the rows of a step are cut into as many equal parts as the axis has places, in order, and
a process needs the parts of its own devices. If these are neighbours, and every process has as many
of them, the process is a rank like any other. Processes whose devices differ only along other axes
of the mesh have the same places, so they get the same rows.

Worked example, the places of axis "data" and the processes that hold them::

    mesh data 4, 2 processes          0 0 1 1              process 1: places 2, 3 → rank 1 of 2
    mesh data 2 x model 2, processes  [0 1] [0 1]          both: places 0, 1      → rank 0 of 1
    mesh data 4, devices shuffled     0 1 0 1              refused: places 0, 2 are no neighbours
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError

__all__ = ["MeshShare", "process_table", "share_of"]


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
