"""Context parallelism: the cells of a row that one of several ranks gets.

One idea: the ranks of a context group get the same rows, each another part of their cells, so the
rows must already hold everything that crosses a cut. A label that the model shifts would have to
come from the neighbour; `targets` of the contract "plain" are shifted before they are cut.

Worked example, rows of 8 cells over 2 ranks: rank 0 gets cells 0 to 3, rank 1 cells 4 to 7. With
``zigzag`` each gets one part from either end (0, 1, 6, 7 and 2, 3, 4, 5), so that causal attention
gives all ranks the same work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tokenloom.errors import ConfigError

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
