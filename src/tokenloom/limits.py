"""Internal sizes that change speed and memory, never an answer.

How many rows are planned at once, how small a plan is not worth a file, how many bytes are fetched
ahead: each of these is a field of one frozen record, `Limits`. Code reads the current one where it
needs it, ``limits().plan_examples``, outside of loops over rows (a read takes about 60 ns). An
object whose state is laid out by a limit reads it once, when it is made.

Sizes that are part of an order, a file format or a result are not limits and stay constants.
`tokenloom.testing.tiny` changes limits in tests.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The internal sizes of every room; the last word of a name is the unit.

    ``chunk``: handled together, one after the other. ``piece``: given to another process. ``min``:
    anything smaller is handled in a simpler way. ``kept``: how many results are remembered.
    """

    # permutations and orders
    permutation_chunk_indices: int = 8192  # work arrays stay in the processor's cache
    hash_rank_chunk_hashes: int = 1 << 20  # without the compiled extension
    window_tables_rows: int = 1 << 20
    min_scattered_windows: int = 16  # of a request; for fewer windows, tables are made
    block_chunk_blocks: int = 4096
    min_block_chunk_blocks: int = 64
    min_vectorized_bands: int = 8  # fewer bands are computed one by one
    lane_chunk_cells: int = 1 << 20  # of a matrix [places, lanes]
    min_mapped_epoch_rows: int = 256  # on average; shorter epochs are looked up together
    kept_orders: int = 4
    kept_bands: int = 64

    # costs of rows, in the order of a run
    cost_stride_items: int = 1024  # between two kept sums
    cost_chunk_items: int = 1 << 16
    min_cached_cost_items: int = 1 << 20  # adding up fewer is faster than finding a file
    min_cached_trained_rows: int = 1 << 18
    min_progress_cost_items: int = 1 << 25
    kept_cost_strides: int = 64
    kept_cost_epochs: int = 8
    kept_short_items: int = 64

    # plans of packed and spliced rows
    min_cached_packing_documents: int = 1_000_000
    min_progress_packing_documents: int = 2_000_000
    min_progress_packing_groups: int = 200
    packing_chunk_groups: int = 32
    packing_chunk_rows: int = 1 << 19  # of these groups; a planned row takes 60 bytes
    packing_table_bytes: int = 256 << 20  # of rows in memory: 17 to 33 million pieces
    splice_chunk_permutations: int = 1 << 14
    kept_splice_tables: int = 64

    # mixes
    mix_chunk_items: int = 1 << 16
    mix_chunk_least_items: int = 1 << 10
    mix_chunk_epochs: int = 512  # of one source
    mix_near_items: int = 256  # of all sources; a search for a moment starts that far around it
    mix_sorted_items: int = 2048  # of all sources; a search narrows down to these, and sorts them
    mix_full_items: int = 64  # of each source in a request; of more, sources are asked one by one
    mix_single_items: int = 16  # of a chunk; fewer are looked up one by one
    mix_spare_items: int = 32  # of a source, looked at beyond its share of a request
    min_mix_table_sources: int = 16  # in a request; fewer are asked one by one
    mix_table_items: int = 256  # of one source
    mix_table_least_items: int = 16
    mix_tables_items: int = 1 << 20  # of all sources
    kept_mix_chunks: int = 8
    kept_mix_blocks: int = 64  # of Levanter's rule
    blank_chunk_rows: int = 1 << 16
    followed_documents: int = 64  # hidden ones; for more, all rows are searched

    # loader
    plan_examples: int = 8192
    plan_groups: int = 16
    plans_ahead: int = 8
    lookup_examples: int = 8192
    lookup_batches: int = 256
    lane_sort_examples: int = 32768  # of all ranks
    counted_steps: int = 64

    # stores
    offset_chunk_documents: int = 1 << 18
    short_length_tokens: int = 1 << 16  # shorter lengths are counted in an array
    hash_chunk_documents: int = 1 << 16
    open_payloads: int = 512  # a descriptor each
    read_ahead_bytes: int = 64 << 20
    read_ahead_step_bytes: int = 2 << 20
    loss_chunk_tokens: int = 1 << 22

    # buckets
    request_bytes: int = 8 << 20
    disk_cache_piece_bytes: int = 512 << 10  # an io block of two-byte ids
    compared_chunk_bytes: int = 8 << 20  # of an upload that may be there already

    # other formats, and exports to them
    foreign_shard_tokens: int = 1 << 27
    foreign_chunk_tokens: int = 1 << 19
    foreign_chunk_ranges: int = 256
    unpacked_chunk_bytes: int = 1 << 24
    export_chunk_tokens: int = 1 << 20
    export_chunk_documents: int = 1 << 16

    # builds
    input_read_bytes: int = 4 << 20
    input_tail_bytes: int = 64 << 10
    input_hash_bytes: int = 1 << 20
    gzip_feed_bytes: int = 64 << 10
    zstd_feed_bytes: int = 4 << 10
    spool_read_bytes: int = 1 << 20
    encode_batch_texts: int = 256
    encode_batch_characters: int = 1 << 16

    # questions and audits
    digest_chunk_examples: int = 1024
    inspected_chunk_examples: int = 1 << 14
    compared_chunk_examples: int = 256
    searched_first_items: int = 16  # for a place; then four times as many, and so on
    searched_chunk_items: int = 4096
    audit_chunk_examples: int = 1 << 14
    audit_chunk_cells: int = 1 << 18
    overlap_chunk_tokens: int = 1 << 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 0:
                raise ValueError(f"{field.name}: found {value!r}, allowed: an integer from 0 on.")


_current = Limits()


def limits() -> Limits:
    """The limits in force in this process.

    >>> limits().plan_examples
    8192
    """
    return _current


def set_limits(new: Limits) -> Limits:
    """Put other limits in force in this process; the ones that were in force before."""
    global _current
    before, _current = _current, new
    return before
