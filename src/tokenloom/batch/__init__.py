"""Takes spans and what reads their tokens → gives batches: tokens, labels, masks, positions.

Public beside `tokenloom.Batch`: `attention` (dense masks, FlexAttention, `cu_seqlens`) and
`boundaries` (positions and segments of rows that somebody else has packed).
"""

from tokenloom.batch import attention, boundaries

__all__ = ["attention", "boundaries"]
