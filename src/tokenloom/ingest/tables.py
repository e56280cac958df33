"""Rows of Parquet files and of Arrow streams as plain dicts.

One idea: a list of numbers is never turned into Python numbers. Each row's list is a read-only
view of one flat NumPy array, so a row of ready-made ids costs the same, however long it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tokenloom.errors import InputError, MissingExtra
from tokenloom.ingest.cuts import Cut, open_parquet
from tokenloom.ingest.inputs import Input, check_size, label

__all__ = ["table_records"]


def table_records(
    one: Input, piece: Cut, columns: Sequence[str] | None
) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    """The rows of a piece (None where one cannot be used), and why not.

    Args:
        one: An input of kind ``parquet`` or ``hf``.
        piece: Row groups of a parquet file, or rows carried as an Arrow stream.
        columns: Columns to read, all if None; those that are not there are left out.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra(f"Reading {label(one)}", "pyarrow", "parquet") from error
    if one.kind == "parquet":
        check_size(one)
    errors: dict[int, str] = {}
    try:
        table = _row_groups(one, piece, columns) if one.kind == "parquet" else _stream(piece)
        if columns is not None:
            table = table.select([name for name in table.column_names if name in set(columns)])
        names = table.column_names
        parts = [_column(name, table.column(i), errors) for i, name in enumerate(names)]
        if table.nbytes > one.max_record_bytes:
            _refuse_long(names, parts, one.max_record_bytes, errors)
    except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(
            f"{label(one)}: cannot be read ({error}). Check the file, or read fewer columns."
        ) from error
    values: list[dict[str, Any] | None] = [{} for _ in range(0 if names else table.num_rows)]
    values += [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    for number in errors:
        values[number] = None
    return values, errors


def _refuse_long(
    names: list[str], parts: list[list[Any]], limit: int, errors: dict[int, str]
) -> None:
    for name, values in zip(names, parts, strict=True):
        for number, value in enumerate(values):
            data = value.encode() if isinstance(value, str) else value
            if isinstance(data, bytes) and len(data) > limit:
                errors[number] = (
                    f"{name} is longer than {limit} bytes, the most allowed. Split it, or pass "
                    f"max_record_bytes={2 * limit}."
                )


def _row_groups(one: Input, piece: Cut, columns: Sequence[str] | None) -> Any:
    with open_parquet(one) as file:
        if columns is not None:
            columns = [name for name in file.schema_arrow.names if name in set(columns)]
        groups = range(piece.start, piece.stop)
        return file.read_row_groups(groups, columns=columns, use_threads=False)


def _stream(piece: Cut) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(piece.data) as reader:
        return reader.read_all()


def _column(name: str, column: Any, errors: dict[int, str]) -> list[Any]:
    """The values of a column; lists of numbers as read-only NumPy views of one flat array."""
    values: list[Any] = []
    for chunk in column.chunks:
        if _is_number_list(chunk):
            flat = chunk.values.to_numpy()
            rows = [flat[a:b] for a, b in itertools.pairwise(chunk.offsets.to_numpy().tolist())]
            if chunk.null_count:
                valid = chunk.is_valid().to_pylist()
                rows = [row if ok else None for row, ok in zip(rows, valid, strict=True)]
            values += rows
            continue
        try:
            values += chunk.to_pylist()
        except UnicodeDecodeError:
            # Arrow does not check UTF-8 when it reads, so look for the rows that are wrong
            values += _rows_one_by_one(name, chunk, len(values), errors)
    return values


def _is_number_list(chunk: Any) -> bool:
    from pyarrow import types

    if not (types.is_list(chunk.type) or types.is_large_list(chunk.type)):
        return False
    inner = chunk.type.value_type
    return (types.is_integer(inner) or types.is_floating(inner)) and not chunk.values.null_count


def _rows_one_by_one(name: str, chunk: Any, first: int, errors: dict[int, str]) -> list[Any]:
    values: list[Any] = []
    for number, scalar in enumerate(chunk, start=first):
        try:
            values.append(scalar.as_py())
        except UnicodeDecodeError as bad:
            values.append(None)
            errors[number] = (
                f"{name}: not valid UTF-8: byte 0x{bad.object[bad.start]:02x} at byte {bad.start} "
                "of the value. Write the file again with text in UTF-8."
            )
    return values
