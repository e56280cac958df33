"""Tiny internal limits, so that toy inputs cross every border inside the library."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from tokenloom.errors import ConfigError
from tokenloom.limits import Limits, limits, set_limits

__all__ = ["tiny"]

# Most limits are 2: borders fall between any two rows. Where it says otherwise, work would be done
# one row at a time for minutes, or nothing would ever be kept.
_DEFAULT = 2

_OTHERS = {
    "permutation_chunk_indices": 5,
    "window_tables_rows": 16,
    "block_chunk_blocks": 3,
    "lane_chunk_cells": 8,
    "cost_stride_items": 3,
    "cost_chunk_items": 6,
    "cost_piece_items": 9,
    "trained_piece_rows": 7,
    "packing_table_bytes": 600,
    "packing_chunk_rows": 9,
    "packing_file_part_rows": 3,
    "packing_memory_rows": 8,
    "reproved_places": 3,
    "mix_chunk_items": 16,
    "mix_chunk_least_items": 3,
    "mix_single_items": 1,
    "mix_spare_items": 1,
    "mix_table_items": 5,
    "plan_examples": 12,
    "lookup_examples": 10,
    "lane_sort_examples": 24,
    "short_length_tokens": 4,
    "hash_index_sort_bytes": 200,
    "read_ahead_bytes": 256,
    "read_ahead_step_bytes": 64,
    "loss_chunk_tokens": 7,
    "request_bytes": 512,
    "disk_cache_piece_bytes": 128,
    "disk_cache_claimed_pieces": 4,
    "compared_chunk_bytes": 64,
    "foreign_shard_tokens": 40,
    "foreign_chunk_tokens": 16,
    "export_chunk_tokens": 16,
    "input_read_bytes": 64,
    "input_tail_bytes": 16,
    "input_hash_bytes": 7,
    "gzip_feed_bytes": 16,
    "zstd_feed_bytes": 16,
    "spool_read_bytes": 32,
    "encode_batch_characters": 9,
    "digest_chunk_examples": 5,
    "inspected_chunk_examples": 6,
    "tally_chunk_tokens": 10,
    "audit_piece_examples": 12,
    "audit_piece_rendered_examples": 8,
    "audit_chunk_examples": 5,
    "audit_chunk_rendered_examples": 3,
    "audit_chunk_cells": 128,
    "overlap_chunk_tokens": 11,
}

_TINY = {
    field.name: _OTHERS.get(field.name, 1 if field.name.startswith("kept_") else _DEFAULT)
    for field in dataclasses.fields(Limits)
}


@contextlib.contextmanager
def tiny(**some: int) -> Iterator[None]:
    """Make the internal sizes of tokenloom tiny: chunks, pieces, tables, what is worth a file.

    No answer depends on them, so what holds for a store of a billion documents can be tested with
    ten. Limits are those of the whole process, threads included; processes that are started anew
    have the usual ones. Use it in a ``with`` statement or as a decorator. Nested uses add up.

    Args:
        some: the only limits to change, named as in `tokenloom.limits.Limits`; without any, all of
            them are tiny.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(2)
    ...     usual = run.digest(0, 18)
    ...     with tiny():
    ...         assert tl.from_config(run.describe()).digest(0, 18) == usual
    ...     with tiny(plan_examples=1):
    ...         assert next(tl.Loader(run, batch_size=4)).tokens.shape == (4, 2)
    """
    unknown = [name for name in some if name not in _TINY]
    if unknown:
        raise ConfigError(
            f"tiny: found {unknown[0]!r}, which is no limit. See tokenloom.limits.Limits."
        )
    before = set_limits(dataclasses.replace(limits(), **(some or _TINY)))
    try:
        yield
    finally:
        set_limits(before)
