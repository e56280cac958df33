"""Takes spans and a reader of their tokens → gives batches: tokens, labels, masks, positions.

Public in addition to `tokenloom.Batch`: `attention` (dense masks, FlexAttention, `cu_seqlens`) and
`boundaries` (positions and segments of rows packed elsewhere), `row_hashes` and `digest_of` (are
the rows that a trainer got those of the run?).
"""

from tokenloom.batch import attention, boundaries
from tokenloom.batch.views.digest import digest_of, row_hashes

__all__ = ["attention", "boundaries", "digest_of", "row_hashes"]
