"""Takes iterators without a length → gives them packed, mixed or shuffled, with an exact state.

=====================  ============================================================================
`stream_packer`        packs documents as they come into rows of a fixed length
`interleave`           mixes several iterators by what each has consumed
`buffer_shuffle`       shuffles an iterator through a buffer of rows
`window_shuffle`       shuffles it inside windows of rows
`read_offsets`,        the checkpoint that other trainers write:
`write_offsets`        ``{"datasets": [{"spec", "row_offset", "token_offset"}]}``
=====================  ============================================================================

Where lengths are known, a store does the same at any index: use `tokenloom.build`.
"""

from tokenloom.streams.buffers import buffer_shuffle, window_shuffle
from tokenloom.streams.checkpoint import read_offsets, write_offsets
from tokenloom.streams.interleaved import interleave
from tokenloom.streams.pack import stream_packer

__all__ = [
    "buffer_shuffle",
    "interleave",
    "read_offsets",
    "stream_packer",
    "window_shuffle",
    "write_offsets",
]
