"""Messages between the build and its worker processes: a JSON header and raw buffers.

One idea: nothing is pickled. A message is an 8-byte length, a JSON object, and the buffers whose
sizes the object lists under `buffers`. What cannot be said that way stays in one process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from tokenloom.build.blocks import Block, Piece
from tokenloom.build.encode import EncodedBlock
from tokenloom.build.inputs import Input

__all__ = ["pack_block", "pack_encoded", "receive", "send", "unpack_block", "unpack_encoded"]

Message = tuple[dict[str, Any], list[Any]]
ARRAYS = ("ids", "lengths", "piece", "record")
PLAIN = ("counts", "errors", "filtered", "text_bytes", "disagreement")


def send(pipe: IO[bytes], header: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
    """Write one message."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    head = json.dumps({**header, "buffers": [len(view) for view in views]}).encode()
    pipe.write(len(head).to_bytes(8, "little"))
    pipe.write(head)
    for view in views:
        pipe.write(view)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Message | None:
    """Read one message, or None when the other side is gone."""
    size = pipe.read(8)
    if len(size) < 8:
        return None
    head = pipe.read(int.from_bytes(size, "little"))
    header: dict[str, Any] = json.loads(head)
    buffers = []
    for length in header.pop("buffers"):
        buffer = bytearray(length)
        if pipe.readinto(buffer) != length:  # type: ignore[attr-defined]  # buffered pipes have it
            return None
        buffers.append(buffer)
    return header, buffers


def pack_block(number: int, block: Block, *, slow: bool) -> Message:
    """A task: encode this block."""
    pieces = [[p.input, p.start, p.stop, p.data is not None] for p in block]
    header = {"number": number, "slow": slow, "pieces": pieces}
    return header, [p.data for p in block if p.data is not None]


def unpack_block(header: dict[str, Any], buffers: list[Any]) -> Block:
    """The block of a task."""
    data = iter(buffers)
    return tuple(
        Piece(input=i, start=a, stop=b, data=bytes(next(data)) if carried else None)
        for i, a, b, carried in header["pieces"]
    )


def pack_encoded(block: EncodedBlock) -> Message:
    """A result."""
    arrays = {name: getattr(block, name) for name in ARRAYS}
    arrays |= {f"column:{name}": values for name, values in block.columns.items()}
    arrays["line_lengths"] = np.array([len(line) for line in block.lines], np.int64)
    header = {name: getattr(block, name) for name in PLAIN}
    header["arrays"] = [[name, array.dtype.str] for name, array in arrays.items()]
    buffers = [np.ascontiguousarray(array) for array in arrays.values()]
    return header, [*buffers, b"".join(block.lines)]


def unpack_encoded(header: dict[str, Any], buffers: list[Any]) -> EncodedBlock:
    """The block of a result."""
    arrays = {
        name: np.frombuffer(buffer, dtype)
        for (name, dtype), buffer in zip(header["arrays"], buffers[:-1], strict=True)
    }
    ends = np.cumsum(arrays.pop("line_lengths")).tolist()
    text = bytes(buffers[-1])
    lines = [text[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    columns = {name[7:]: array for name, array in arrays.items() if name.startswith("column:")}
    values: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    values |= {name: header[name] for name in PLAIN}
    values["errors"] = [tuple(error) for error in header["errors"]]
    return EncodedBlock(**values, columns=columns, lines=lines)


def pack_inputs(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Inputs as JSON; objects travel with their pieces."""
    names = [f.name for f in fields(Input) if f.name not in ("rows", "path")]
    return [
        {**{name: getattr(one, name) for name in names}, "path": one.path and str(one.path)}
        for one in inputs
    ]


def unpack_inputs(packed: Sequence[dict[str, Any]]) -> list[Input]:
    """The inputs of a job."""
    return [Input(**{**one, "path": one["path"] and Path(one["path"])}) for one in packed]
