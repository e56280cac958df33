"""Takes iterators without a length → gives them packed, mixed or shuffled, with an exact state.

=====================  ============================================================================
`stream_packer`        packs documents as they come into rows of a fixed length
`packing_stats`        how full rows are, from their segment ids
`interleave`           mixes several iterators by what each has consumed
`buffer_shuffle`       shuffles an iterator through a buffer of rows
`window_shuffle`       shuffles it inside windows of rows
`budget_rows`          how many rows fit into a budget of tokens
`read_offsets`,        the checkpoint that other trainers write:
`write_offsets`,       ``{"datasets": [{"spec", "row_offset", "token_offset"}]}``, with one `Offset`
`Offset`               for each source
`locate_row`           the shard, and the row in it, of a row offset
`continue_interleave`  goes on from such a checkpoint, exactly, or says why not
=====================  ============================================================================

If lengths are known, a store does the same at any index: use `tokenloom.build`. Examples are in
docs/streams.md.
"""

from tokenloom.streams.buffers import budget_rows, buffer_shuffle, window_shuffle
from tokenloom.streams.checkpoint import (
    ContinuedStream,
    continue_interleave,
    locate_row,
    read_offsets,
    write_offsets,
)
from tokenloom.streams.interleaved import interleave
from tokenloom.streams.pack import packing_stats, stream_packer
from tokenloom.streams.picking import Offset

__all__ = [
    "ContinuedStream",
    "Offset",
    "budget_rows",
    "buffer_shuffle",
    "continue_interleave",
    "interleave",
    "locate_row",
    "packing_stats",
    "read_offsets",
    "stream_packer",
    "window_shuffle",
    "write_offsets",
]
