"""Which of the training processes this one is: found, not forgotten.

One idea: a forgotten rank trains every process on the same rows, and nothing looks wrong. So a
loader without them looks where launchers and frameworks keep the answer, in this order:
torch.distributed once it is initialised, RANK and WORLD_SIZE, JAX with its distributed client up,
else 0 of 1. It imports none of them: who has not imported torch has not initialised it. What it
found is logged once, and what looks like a forgotten launcher is a warning.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenloom.errors import ConfigError, warn
from tokenloom.loader.prefetch import log

LAUNCHERS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")  # how many processes there are in all


class Ranks(NamedTuple):
    """This process among those that share the rows of each step."""

    rank: int
    world_size: int


def find_ranks(rank: int | None, world_size: int | None, group: Any = None) -> Ranks:
    """The numbers given, else those of the process group, else those that are found.

    Args:
        rank: the number of this rank, with `world_size`.
        world_size: the number of ranks, with `rank`.
        group: a process group of torch, or a DeviceMesh of one dimension, whose ranks get different
            rows; a process at the same place in another group gets the same rows.

    >>> find_ranks(1, 4)
    Ranks(rank=1, world_size=4)
    """
    if (rank is None) != (world_size is None):
        missing = "rank" if rank is None else "world_size"
        raise ConfigError(
            f"rank, world_size: found {rank} and {world_size}, allowed: both, or neither and they "
            f"are found. Add {missing}."
        )
    if rank is not None and world_size is not None:
        if group is not None:
            raise ConfigError("group: found together with rank, allowed: one of the two.")
        return Ranks(rank, world_size)
    if group is not None:
        found, where = _of_group(group), "the process group"
    else:
        found, where = _found(os.environ)
        _warn_if_forgotten(found, where, os.environ)
    _tell(found, where)
    return found


def _found(environment: Mapping[str, str]) -> tuple[Ranks, str]:
    """The ranks, and who says so."""
    distributed = _initialised("torch.distributed", "is_initialized")
    if distributed is not None:
        return Ranks(distributed.get_rank(), distributed.get_world_size()), "torch.distributed"
    if "RANK" in environment and "WORLD_SIZE" in environment:
        told = Ranks(_number(environment, "RANK"), _number(environment, "WORLD_SIZE"))
        return told, "RANK and WORLD_SIZE"
    if _initialised("jax.distributed", "is_initialized") is not None:
        jax = sys.modules["jax"]
        return Ranks(jax.process_index(), jax.process_count()), "JAX"
    return Ranks(0, 1), ""


def _initialised(name: str, question: str) -> Any:
    """A module that is imported, available, and says yes; else None."""
    module = sys.modules.get(name)
    if module is None or not getattr(module, "is_available", lambda: True)():
        return None
    return module if getattr(module, question, lambda: False)() else None


def _of_group(group: Any) -> Ranks:
    """This process in a process group, or in a DeviceMesh of one dimension."""
    if hasattr(group, "get_local_rank"):  # a DeviceMesh
        if getattr(group, "ndim", 1) != 1:
            raise ConfigError(
                f"group: found a DeviceMesh of {group.ndim} dimensions, allowed: one; name the "
                'data-parallel one, as in group=mesh["dp"].'
            )
        return Ranks(group.get_local_rank(), group.size())
    distributed = _initialised("torch.distributed", "is_initialized")
    if distributed is None:
        raise ConfigError(
            f"group: found {type(group).__name__} before torch.distributed is initialised. Call "
            "init_process_group first."
        )
    rank = distributed.get_rank(group)
    if rank < 0:
        raise ConfigError(
            "group: this process is not in it. Give the group that holds this process: processes "
            "that share their rows have the same place in different groups."
        )
    return Ranks(rank, distributed.get_world_size(group))


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ConfigError(
            f"{name}: found {environment[name]!r} in the environment, allowed: a whole number. "
            "Correct it, or give rank and world_size."
        ) from None


def _warn_if_forgotten(found: Ranks, where: str, environment: Mapping[str, str]) -> None:
    """Warn where the environment and what was found do not go together."""
    if where == "RANK and WORLD_SIZE" and "LOCAL_RANK" not in environment:
        warn(
            f"RANK {found.rank} and WORLD_SIZE {found.world_size} are set, LOCAL_RANK is not, so "
            "it may be another program's; the loader takes them. Give rank and world_size to be "
            "sure."
        )
    if found.world_size > 1:
        return
    for name in LAUNCHERS:
        count = environment.get(name, "1")
        if count.isdecimal() and int(count) > 1:
            warn(
                f"{name} is {count}, but this loader is rank 0 of 1, so each of {count} processes "
                "gets the same rows. Initialise torch.distributed or JAX first, or give rank and "
                "world_size (0 and 1 if that is meant)."
            )


@functools.cache
def _tell(found: Ranks, where: str) -> None:
    """Log what was found, once."""
    if found.world_size > 1:
        log.info(
            "rank %d of %d (from %s): each of %d processes gets other rows",
            found.rank,
            found.world_size,
            where,
            found.world_size,
        )


def refuse_workers() -> None:
    """A loader inside a worker of a torch DataLoader would deliver every row in every worker."""
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    if worker is not None:
        raise ConfigError(
            f"Loader: found inside worker {worker.id} of {worker.num_workers} of a DataLoader, "
            "where each worker would deliver every row. Iterate over it in the training process, "
            "where it prefetches by itself, or use tokenloom.integrations.torch.dataloader(run, …),"
            " whose workers share the steps."
        )
