"""Which cell may attend to which: masks for every kind of attention, from `segment_ids` alone.

One idea: a *stretch* is a run of equal segment ids in a row, either a document or filler, and a
cell attends to its own stretch. Adjacent documents have different ids, so nothing else is needed:
not positions (two cells may both be position 0) and never token values. The three forms agree:
`dense_mask` for any attention, `mask_mod` for FlexAttention, `cu_seqlens` and `max_seqlen` for
variable-length kernels.

A filler cell attends to its own stretch of filler. So no row of a mask is empty (a softmax over
nothing is NaN, and NaN times a weight of 0 is still NaN), and no document ever attends to filler.

NumPy arrays give NumPy arrays, torch tensors give torch tensors on the same device; torch is
imported only when a tensor is passed in. A dense mask takes S bytes per cell: 16 MiB for a row of
4,096 cells, where `mask_mod` and `cu_seqlens` take 32 KiB or less.

>>> import numpy as np
>>> packed = np.array([[1, 1, 2, 2, 0]])
>>> dense_mask(packed)[0].astype(int)
array([[1, 0, 0, 0, 0],
       [1, 1, 0, 0, 0],
       [0, 0, 1, 0, 0],
       [0, 0, 1, 1, 0],
       [0, 0, 0, 0, 1]])
>>> cu_seqlens(packed)
array([0, 2, 4, 5], dtype=int32)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError

__all__ = ["cu_seqlens", "dense_mask", "mask_mod", "max_seqlen", "stretches", "to_numpy"]

# b, h, q_idx, kv_idx -> may q attend to kv; integers or arrays of integers that broadcast
MaskMod = Callable[[Any, Any, Any, Any], Any]


def dense_mask(segment_ids: Any, *, causal: bool = True, segment_masking: bool = True) -> Any:
    """Whether the cell of each mask row may attend to the cell of each column, bool [B, S, S].

    Args:
        segment_ids: 1, 2, … for the documents of a row, 0 for filler [B, S]; extra leading axes
            are kept.
        causal: a cell attends only to itself and to cells before it.
        segment_masking: a cell attends only to its own document. If False, it attends to all
            documents of its row, but still not to filler.

    >>> dense_mask(np.array([[1, 2, 0]]), segment_masking=False)[0].astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    group = _groups(segment_ids, segment_masking)
    # [B, S, 1] the query cell, [B, 1, S] the key cell
    mask = group[..., :, None] == group[..., None, :]
    if causal:
        cell = _counting(group)
        mask &= cell[:, None] >= cell[None, :]
    return mask


def mask_mod(segment_ids: Any, *, causal: bool = True, segment_masking: bool = True) -> MaskMod:
    """The same mask as a function of indices, as `torch.nn.attention.flex_attention` expects it.

    If the attention is compiled, pass a tensor on the model's device, as in the example. A function
    made from an array takes both NumPy and torch indices.

    Args:
        segment_ids: as in `dense_mask`, exactly [B, S].
        causal: as in `dense_mask`.
        segment_masking: as in `dense_mask`.

    >>> may = mask_mod(np.array([[1, 1, 2]]))
    >>> may(0, 0, np.array([1, 2, 2]), np.array([0, 1, 2]))
    array([ True, False,  True])

    ::

        may = attention.mask_mod(torch.as_tensor(batch.segment_ids, device="cuda"))
        block_mask = create_block_mask(may, B, None, S, S, device="cuda")
        flex_attention(q, k, v, block_mask=block_mask)
    """
    group = _groups(_rows(segment_ids), segment_masking)

    def may_attend(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        table = group
        if _is_tensor(q_idx) and not _is_tensor(table):
            table = importlib.import_module("torch").as_tensor(table, device=q_idx.device)
        allowed = table[b, q_idx] == table[b, kv_idx]
        return allowed & (q_idx >= kv_idx) if causal else allowed

    return may_attend


def cu_seqlens(segment_ids: Any) -> Any:
    """Edges of all stretches over the flattened [B S] cells, int32 [stretches + 1].

    A stretch of filler is one sequence; no sequence crosses a row.

    >>> cu_seqlens(np.array([[1, 1, 2], [1, 0, 0]]))
    array([0, 2, 3, 4, 6], dtype=int32)
    """
    starts = _starts(to_numpy(_rows(segment_ids)))
    edges = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    if _is_tensor(segment_ids):
        return importlib.import_module("torch").as_tensor(edges, device=segment_ids.device)
    return edges


def max_seqlen(segment_ids: Any) -> int:
    """The longest stretch, in cells.

    >>> max_seqlen(np.array([[1, 1, 2], [1, 0, 0]]))
    2
    """
    return int(np.diff(to_numpy(cu_seqlens(segment_ids))).max(initial=0))


def stretches(segment_ids: Any) -> Any:
    """The number of each cell's stretch, counted from 0 in every row, int64 [..., S].

    >>> stretches(np.array([[1, 1, 2, 0, 0, 3]]))
    array([[0, 0, 1, 2, 2, 3]])
    """
    ids = _given(segment_ids)
    number = ids.long() * 0 if _is_tensor(ids) else np.zeros(ids.shape, np.int64)
    number[..., 1:] = (ids[..., 1:] != ids[..., :-1]).cumsum(-1)
    return number


def to_numpy(values: Any) -> NDArray[Any]:
    """NumPy arrays, lists, or torch tensors of any device and dtype as a NumPy array.

    >>> to_numpy([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    """
    if _is_tensor(values):
        values = values.detach().cpu()
        narrow = str(values.dtype) == "torch.bfloat16"  # unknown to NumPy
        return np.asarray((values.float() if narrow else values).numpy())
    return np.asarray(values)


def _groups(segment_ids: Any, segment_masking: bool) -> Any:
    """A number for each cell, equal for cells that may attend to each other [..., S]."""
    ids = _given(segment_ids)
    number = stretches(ids)
    # without segment masking, all documents of a row are group 0 and filler stays separate
    return number if segment_masking else (number + 1) * (ids == 0)


def _counting(like: Any) -> Any:
    """Consecutive integers along the last axis [S]."""
    cells = like.shape[-1]
    return like.new_ones(cells).cumsum(0) if _is_tensor(like) else np.arange(cells)


def _starts(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a stretch starts at each cell [B, S]."""
    starts = np.ones(ids.shape, np.bool_)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return starts


def _rows(segment_ids: Any) -> Any:
    """The ids, which must be [B, S]."""
    ids = _given(segment_ids)
    if ids.ndim != 2:
        raise ConfigError(
            f"segment_ids: found shape {list(ids.shape)}, allowed: [B, S]. "
            "Pass the ids of whole rows; for a single row, `ids[None]`."
        )
    return ids


def _given(segment_ids: Any) -> Any:
    return segment_ids if _is_tensor(segment_ids) else np.asarray(segment_ids)


def _is_tensor(values: Any) -> bool:
    """Whether this is a torch tensor, without importing torch."""
    return hasattr(values, "new_ones")
