"""Export as Parquet: one row for each document, as `datasets` and everything else reads it.

One idea: a per-token column is a list column, so a row holds a document whole: `input_ids`
(int32), the loss columns, and every key of its metadata as a column of its own kind. A key whose
values are of several kinds, or nested, becomes JSON text, as in a store's own metadata.

A row group has about a million tokens, a file `FILE_TOKENS`; memory is one row group, or the
longest document.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import MissingExtra
from tokenloom.exchange.folder import Folder
from tokenloom.exchange.holds import Holding, Portion, values_of
from tokenloom.exchange.to_arrays import about
from tokenloom.progress import Progress
from tokenloom.store.metadata import arrow_columns, arrow_fields, kinds_of

FILE_TOKENS = 1 << 27

MARK = b"tokenloom"  # the key of our own words in a schema


def write_parquet(kept: Holding, folder: Folder, bar: Progress) -> None:
    """Write `part-00000.parquet` and so on; a store without documents gives one empty file."""
    pa, pq = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    kinds = kinds_of(row for one in kept.portions() for row in kept.metadata(one))
    schema = _schema(pa, kept, kinds)
    groups = itertools.groupby(_numbered(kept), key=lambda pair: pair[0])
    parts: Iterator[tuple[int, Any]] = iter(groups)
    for number, part in itertools.chain([next(parts, (0, []))], parts):
        with folder.file(f"part-{number:05d}.parquet") as out:
            options = {"compression": "zstd", "use_dictionary": list(kinds)}
            with pq.ParquetWriter(out, schema, write_page_checksum=True, **options) as writer:
                for _, portion in part:
                    writer.write_table(_table(pa, kept, kinds, schema, portion))
                    bar.advance(portion.stop - portion.start)


def _numbered(kept: Holding) -> Iterator[tuple[int, Portion]]:
    """Portions, each with the number of its file."""
    number, size = 0, 0
    for portion in kept.portions():
        tokens = portion.stop - portion.start
        if size and size + tokens > FILE_TOKENS:
            number, size = number + 1, 0
        size += tokens
        yield number, portion


def _schema(pa: Any, kept: Holding, kinds: dict[str, str]) -> Any:
    dtypes = {"input_ids": "int32", **kept.columns}
    fields = [pa.field(name, pa.list_(_type(pa, dtype))) for name, dtype in dtypes.items()]
    notes = {MARK: json.dumps(about(kept)).encode()}
    return pa.schema([*fields, *arrow_fields(kinds)], metadata=notes)


def _type(pa: Any, dtype: str) -> Any:
    return pa.uint8() if dtype == "bool" else pa.from_numpy_dtype(np.dtype(dtype))


def _table(pa: Any, kept: Holding, kinds: dict[str, str], schema: Any, portion: Portion) -> Any:
    """The rows of a portion, without a Python object for a token."""
    ends = np.concatenate([[0], np.cumsum(portion.lengths)]).astype(np.int32)
    edges = _plain(pa, ends)
    arrays = []
    for name in ("input_ids", *kept.columns):
        values = list(values_of(kept.store.reader, portion, name))
        inner = schema.field(name).type.value_type
        flat = np.concatenate([np.empty(0, inner.to_pandas_dtype()), *values])
        arrays.append(
            pa.ListArray.from_arrays(edges, _plain(pa, flat.astype(inner.to_pandas_dtype())))
        )
    rows = kept.metadata(portion) or [{}] * len(portion.numbers)
    arrays += arrow_columns(rows, kinds, schema)
    return pa.Table.from_arrays(arrays, schema=schema)


def _plain(pa: Any, values: NDArray[Any]) -> Any:
    """An Arrow array over the memory of a NumPy one; `pa.array` would import pandas."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _arrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra("export to parquet", "pyarrow", "parquet") from None
