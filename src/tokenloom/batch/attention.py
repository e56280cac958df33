"""Which cell may look at which: masks for every kind of attention, from `segment_ids` alone.

One idea: a *stretch* is a run of equal segment ids in a row, a document or filler, and a cell looks
at its own stretch. Two documents that follow each other have different ids, so nothing else is
needed: not positions (two cells may both be position 0) and never token values. The three forms
agree: `dense_mask` for any attention, `mask_mod` for FlexAttention, `cu_seqlens` and `max_seqlen`
for kernels of variable length.

A filler cell looks at its own stretch of filler. So no row of a mask is empty (a softmax over
nothing is NaN, and NaN times a weight of 0 is still NaN), and no document ever looks at filler.

NumPy arrays give NumPy arrays, torch tensors give torch tensors on their device; torch is imported
only where a tensor came in. A dense mask takes S bytes for every cell: 16 MiB for a row of 4,096
cells, where `mask_mod` and `cu_seqlens` take 32 KiB and less.

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

__all__ = ["cu_seqlens", "dense_mask", "mask_mod", "max_seqlen", "stretches", "to_numpy"]

# b, h, q_idx, kv_idx -> may q look at kv; integers or arrays of integers that broadcast
MaskMod = Callable[[Any, Any, Any, Any], Any]


def dense_mask(segment_ids: Any, *, causal: bool = True, segment_masking: bool = True) -> Any:
    """Whether the cell in the row of the mask may look at the cell in its column, bool [B, S, S].

    Args:
        segment_ids: 1, 2, … for the documents of a row, 0 for filler [B, S]; more axes in front
            of these stay there.
        causal: a cell looks at itself and at cells before it only.
        segment_masking: a cell looks at its own document only. Off, it looks at all documents of
            its row, but still not at filler.

    >>> dense_mask(np.array([[1, 2, 0]]), segment_masking=False)[0].astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    group = _groups(segment_ids, segment_masking)
    # [B, S, 1] the looking cell, [B, 1, S] the cell looked at
    mask = group[..., :, None] == group[..., None, :]
    if causal:
        cell = _counting(group)
        mask &= cell[:, None] >= cell[None, :]
    return mask


def mask_mod(segment_ids: Any, *, causal: bool = True, segment_masking: bool = True) -> MaskMod:
    """The same mask as a function of indices, as `torch.nn.attention.flex_attention` takes it.

    Give a tensor on the device of the model, as in the example, if the attention is compiled. Made
    from an array, the function takes indices of NumPy and of torch.

    Args:
        segment_ids: as for `dense_mask`, exactly [B, S].
        causal: as there.
        segment_masking: as there.

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
    """
    starts = _starts(to_numpy(_rows(segment_ids)))
    edges = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
    if _is_tensor(segment_ids):
        return importlib.import_module("torch").as_tensor(edges, device=segment_ids.device)
    return edges


def max_seqlen(segment_ids: Any) -> int:
    """The longest stretch, in cells."""
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
    """An array of anything: NumPy, lists, torch on any device and in any dtype."""
    if _is_tensor(values):
        values = values.detach().cpu()
        narrow = str(values.dtype) == "torch.bfloat16"  # unknown to NumPy
        return np.asarray((values.float() if narrow else values).numpy())
    return np.asarray(values)


def _groups(segment_ids: Any, segment_masking: bool) -> Any:
    """Cells that may look at each other have the same number [..., S]."""
    ids = _given(segment_ids)
    number = stretches(ids)
    # without segment masking all documents of a row are group 0, and filler stays apart
    return number if segment_masking else (number + 1) * (ids == 0)


def _counting(like: Any) -> Any:
    """Numbers that go up by one along the last axis [S]."""
    cells = like.shape[-1]
    return like.new_ones(cells).cumsum(0) if _is_tensor(like) else np.arange(cells)


def _starts(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a stretch begins at each cell [B, S]."""
    starts = np.ones(ids.shape, np.bool_)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return starts


def _rows(segment_ids: Any) -> Any:
    """The ids, if they are those of rows."""
    ids = _given(segment_ids)
    if ids.ndim != 2:
        raise ValueError(
            f"segment_ids: found shape {list(ids.shape)}, allowed is [B, S]. "
            "Give the ids of whole rows, `ids[None]` for a single one."
        )
    return ids


def _given(segment_ids: Any) -> Any:
    return segment_ids if _is_tensor(segment_ids) else np.asarray(segment_ids)


def _is_tensor(values: Any) -> bool:
    """Whether this is of torch, without importing it."""
    return hasattr(values, "new_ones")
