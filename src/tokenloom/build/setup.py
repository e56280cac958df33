"""Everything a worker needs to encode blocks, and how to open it in any process.

`Setup` is what the pipeline resolves once. `open_kitchen` makes it live: in this process, with the
user's own objects, or in a worker process from what came over the pipe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenloom.bind import bind, unbind
from tokenloom.build.encode import Job, Kitchen
from tokenloom.build.encoders import Encoder, reference_encoder
from tokenloom.build.engines import GuardedEncoder, choose_engine
from tokenloom.build.hooks import Hook, resolve_hook
from tokenloom.build.inputs import Input
from tokenloom.build.tokenizers import LiveCallable, TokenizerSpec, rebuild
from tokenloom.build.wire import Message, pack_inputs, unpack_inputs

__all__ = ["Setup", "open_kitchen", "pack_setup", "unpack_setup"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One build's work, apart from where its output goes.

    Attributes:
        job: what is done to every block.
        inputs: what is read.
        spec: the tokenizer; None when records hold ids and no tokenizer was named.
        live: the tokenizer itself, when it is a function that no other process can import.
        engine: "reference", "tiktoken" or "fast".
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


def open_kitchen(setup: Setup) -> Kitchen:
    """Encoders and hooks, ready to use; in the process that made the plan, it has them already."""
    encoder: Encoder | GuardedEncoder | None = None
    if setup.spec is not None and setup.job.text_key is not None:
        special, rate = setup.parse_special, setup.job.sample_rate
        if setup.engine == "reference":
            encoder = reference_encoder(setup.spec, parse_special=special, live=setup.live)
        else:
            encoder, _ = choose_engine(setup.spec, setup.engine, parse_special=special, rate=rate)
    return make_kitchen(setup, encoder)


def make_kitchen(setup: Setup, encoder: Encoder | GuardedEncoder | None) -> Kitchen:
    """The kitchen around an encoder, whose own reference does the slow work."""
    return Kitchen(
        encoder=encoder,
        reference=encoder.reference if isinstance(encoder, GuardedEncoder) else encoder,
        filter=setup.filter.function if setup.filter else None,
        transform=setup.transform.function if setup.transform else None,
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
    """The setup behind a first message."""
    spec = header["spec"]
    return Setup(
        job=bind(Job, header["job"]),
        inputs=unpack_inputs(header["inputs"]),
        spec=rebuild(spec, bytes(buffers[0])) if spec else None,
        live=None,
        engine=header["engine"],
        parse_special=header["parse_special"],
        filter=resolve_hook(header["filter"], "filter"),
        transform=resolve_hook(header["transform"], "transform"),
    )
