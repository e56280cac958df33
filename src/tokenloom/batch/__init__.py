"""Takes spans and a reader of their tokens → gives batches: tokens, labels, masks, positions.

Public in addition to `tokenloom.Batch`: `attention` (dense masks, FlexAttention, `cu_seqlens`) and
`boundaries` (positions and segments of rows packed elsewhere).
"""

from tokenloom.batch import attention, boundaries

__all__ = ["attention", "boundaries"]
