"""Tiny internal limits, so that toy inputs cross every border; NumPy instead of compiled loops."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from tokenloom import native
from tokenloom.errors import ConfigError
from tokenloom.limits import Limits, limits, set_limits

__all__ = ["numpy_alone", "tiny"]

# Of most kinds borders fall after every third thing. Where it says otherwise, less would fit
# nowhere, or no border would be met at all.
_OTHERS = {
    "cost_stride_items": 2,
    "cost_chunk_items": 4,
    "min_cached_packing_documents": 1,
    "min_cached_cost_items": 1,
    "min_cached_trained_rows": 1,
    "packing_table_bytes": 600,
    "window_tables_rows": 16,
    "mix_chunk_items": 16,
    "mix_single_items": 1,
    "mix_spare_items": 1,
    "plan_examples": 12,
    "lookup_examples": 10,
    "lane_sort_examples": 24,
    "read_ahead_bytes": 256,
    "read_ahead_step_bytes": 64,
    "request_bytes": 512,
    "disk_cache_piece_bytes": 128,
    "compared_chunk_bytes": 64,
    "foreign_shard_tokens": 40,
    "audit_chunk_cells": 128,
}

_TINY = {
    field.name: _OTHERS.get(field.name, 1 if field.name.startswith("kept_") else 3)
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


@contextlib.contextmanager
def numpy_alone() -> Iterator[None]:
    """Leave out the compiled loops, like TOKENLOOM_NATIVE=0 but in this process.

    NumPy gives the same bytes. Stores and runs that were used before may have compiled parts
    already; open them again in the ``with`` block.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     usual = store.windows(2).shuffle().digest(0, 9)
    ...     with numpy_alone():
    ...         assert tl.open(folder + "/toy").windows(2).shuffle().digest(0, 9) == usual
    """
    compiled, native.compiled = native.compiled, None
    try:
        yield
    finally:
        native.compiled = compiled
