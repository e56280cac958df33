"""Messages between the build and its worker processes: a JSON header and raw buffers.

One idea: nothing is pickled. A message is an 8-byte length, a JSON object, and the buffers whose
sizes the object lists under `buffers`. What cannot be sent that way stays in one process.

Everything a worker needs to encode blocks, and how to open it in any process.

`Setup` is what the pipeline resolves once. `open_kitchen` makes it live: in this process, with the
user's own objects, or in a worker process from what came over the pipe.
"""

from __future__ import annotations

import itertools
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import IO, Any

import numpy as np

from tokenloom import errors
from tokenloom.arguments import place
from tokenloom.bind import bind, unbind
from tokenloom.ingest.cuts import Block, Cut
from tokenloom.ingest.encode import EncodedBlock, Job, Kitchen
from tokenloom.ingest.hooks import Hook, resolve_hook
from tokenloom.ingest.inputs import Input
from tokenloom.tokenizer.accelerate import choose_engine
from tokenloom.tokenizer.chat.conversation import ChatReader
from tokenloom.tokenizer.chat.token_weights import place_encoder
from tokenloom.tokenizer.encoders import Encoder, reference_encoder
from tokenloom.tokenizer.find import LiveCallable
from tokenloom.tokenizer.spec import TokenizerSpec, rebuild

Message = tuple[dict[str, Any], list[Any]]

ARRAYS = ("ids", "lengths", "piece", "record")

PLAIN = ("counts", "errors", "filtered", "notes", "fatal")


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


def pack_error(error: Exception) -> dict[str, str]:
    """What is told of an error to the process that raises it again."""
    kind = type(error).__name__
    known = kind in errors.__all__ and kind != "MissingExtra"
    message = str(error) if known else traceback.format_exc()
    return {"error": kind if known else "WorkerError", "message": message}


def raise_told(header: dict[str, Any]) -> None:
    """Raise what another process was told to raise, if anything."""
    if "error" in header:
        raise getattr(errors, header["error"])(header["message"])


def pack_block(number: int, block: Block) -> Message:
    """A task: encode this block."""
    pieces = [[p.input, p.start, p.stop, p.data is not None] for p in block]
    header = {"number": number, "pieces": pieces}
    return header, [p.data for p in block if p.data is not None]


def unpack_block(header: dict[str, Any], buffers: list[Any]) -> Block:
    """The block of a task."""
    data = iter(buffers)
    return tuple(
        Cut(input=i, start=a, stop=b, data=bytes(next(data)) if carried else None)
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
    lines = [text[a:b] for a, b in itertools.pairwise([0, *ends])]
    columns = {name[7:]: array for name, array in arrays.items() if name.startswith("column:")}
    values: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    values |= {name: header[name] for name in PLAIN}
    values["errors"] = [tuple(error) for error in header["errors"]]
    values["notes"] = [tuple(note) for note in header["notes"]]
    values["fatal"] = header["fatal"] and tuple(header["fatal"])
    return EncodedBlock(**values, columns=columns, lines=lines)


def pack_inputs(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """Inputs as JSON; objects travel with their pieces."""
    names = [f.name for f in fields(Input) if f.name not in ("rows", "path")]
    return [
        {**{name: getattr(one, name) for name in names}, "path": one.path and str(one.path)}
        for one in inputs
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One build's work, apart from where its output goes.

    Attributes:
        job: what is done to every block.
        inputs: what is read.
        spec: the tokenizer; None when records hold ids and no tokenizer was named.
        live: the tokenizer itself, when it is a function that no other process can import.
        engine: "reference" or "fast".
        parse_special: whether text that spells a special token becomes that token.
        filter: drops records.
        transform: changes records.
    """

    job: Job
    inputs: Sequence[Input]
    spec: TokenizerSpec | None
    live: LiveCallable | None
    engine: str
    parse_special: bool
    filter: Hook | None
    transform: Hook | None

    def stays_here(self) -> str | None:
        """Why this work cannot be sent to other processes, or None if it can."""
        for name, hook in (("filter", self.filter), ("transform", self.transform)):
            if hook is not None and hook.reference is None:
                return f"{name} {hook.name} cannot be imported by another process"
        return None if self.live is None else "the tokenizer is an object of this process"

    def own_code(self) -> bool:
        """Whether code of the user runs in it, which may be edited between two builds."""
        function = self.spec is not None and self.spec.kind == "callable"
        return function or self.filter is not None or self.transform is not None


def open_kitchen(setup: Setup) -> Kitchen:
    """Encoders and hooks, ready to use; in the process that made the plan, it has them already."""
    encoder: Encoder | None = None
    if setup.spec is not None and (setup.job.text_key is not None or setup.job.chat is not None):
        special, rate = setup.parse_special, setup.job.sample_rate
        if setup.engine == "reference":
            encoder = reference_encoder(setup.spec, parse_special=special, live=setup.live)
        else:
            encoder, _ = choose_engine(setup.spec, setup.engine, parse_special=special, rate=rate)
    return make_kitchen(setup, encoder)


def make_kitchen(setup: Setup, encoder: Encoder | None) -> Kitchen:
    """The kitchen around an encoder."""
    chat, spec = setup.job.chat, setup.spec
    return Kitchen(
        encoder=encoder,
        filter=setup.filter.function if setup.filter else None,
        transform=setup.transform.function if setup.transform else None,
        chats=ChatReader(chat) if chat else None,
        place=place_encoder(spec) if chat and chat.marks and spec else None,
    )


def pack_setup(setup: Setup) -> Message:
    """The first message to a worker."""
    spec = setup.spec
    header: dict[str, Any] = {
        "job": unbind(setup.job),
        "inputs": pack_inputs(setup.inputs),
        "spec": spec and {**spec.describe(), "reference": spec.reference},
        "engine": setup.engine,
        "parse_special": setup.parse_special,
        "filter": setup.filter and setup.filter.reference,
        "transform": setup.transform and setup.transform.reference,
    }
    return header, [spec.payload if spec else b""]


def unpack_setup(header: dict[str, Any], buffers: list[Any]) -> Setup:
    """The setup in a first message."""
    spec, inputs = header["spec"], header["inputs"]
    return Setup(
        job=bind(Job, header["job"]),
        inputs=[Input(**{**i, "path": i["path"] and place("input", i["path"])}) for i in inputs],
        spec=rebuild(spec, bytes(buffers[0])) if spec else None,
        live=None,
        engine=header["engine"],
        parse_special=header["parse_special"],
        filter=resolve_hook(header["filter"], "filter"),
        transform=resolve_hook(header["transform"], "transform"),
    )
