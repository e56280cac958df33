"""Where the CPU of a build goes, stage by stage, without a profiler.

One idea: every stage is called separately, through the function that the pipeline calls, and an
encoder inside a stage is replaced by one that costs nothing. So the overhead over a bare encoder is
measured directly, not as a small difference of two large times. Stages take turns block by block
(4 MiB of text), and the best times of all blocks are summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import Case, Timing, interleave, total
from tokenloom.ingest.crew.wire import Setup, open_kitchen
from tokenloom.ingest.cuts import Block, blocks
from tokenloom.ingest.encode import EncodedBlock, Kitchen, encode_block
from tokenloom.ingest.identity import identify
from tokenloom.ingest.inputs import expand
from tokenloom.ingest.plan import BuildOptions, make_plan
from tokenloom.ingest.records import read_block
from tokenloom.store.files import LOCAL
from tokenloom.store.writer import ShardWriter
from tokenloom.tokenizer.encoders import Encoded, TextEncoder, reference_encoder
from tokenloom.tokenizer.fast import GuardedEncoder
from tokenloom.tokenizer.probes import texts_outside

__all__ = ["STAGES", "measure"]

OVERSAMPLED = 50  # one text in 50 is timed; the few that a build takes vary too much

STAGES = {
    "identify": "identify: sha256 of the input",
    "read": "read_block: split and parse JSON",
    "wrap": "engine: lists to arrays, ranks to ids, bytes counted",
    "guard": "guard: lone surrogates, Unicode 14",
    "reference": "guard: texts that the reference encodes",
    "around": "rest of encode_block: records, specials, metadata",
    "write": "ShardWriter: append, metadata, commit",
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Free:
    """An encoder that costs nothing: one token per four characters, always the same tokens."""

    ids: np.ndarray
    engine: str = "free"
    version: str = "1"

    def encode(self, texts: Sequence[str]) -> Encoded:
        lengths = np.array([len(text) // 4 for text in texts], np.int64)
        return Encoded(self.ids[: int(lengths.sum())], lengths)


def measure(path: Path, tokenizer: Path, place: Path, rounds: int) -> dict[str, Timing]:
    """The time of every stage of a build of `path` with tiktoken, by the keys of `STAGES`."""
    inputs = identify(expand(path), threads=1)
    options = BuildOptions(tokenizer=tokenizer, id_key="id", engine="tiktoken")
    setup = make_plan(inputs, options, None).setup
    guarded = open_kitchen(setup).encoder
    assert isinstance(guarded, GuardedEncoder)  # a byte-level BPE is accelerated
    free = _Free(np.zeros(8 << 20, np.uint32))
    done: list[EncodedBlock] = []
    by_block = [
        _one_block(setup, guarded, free, number, block, rounds, done)
        for number, block in enumerate(blocks(inputs))
    ]
    timing = {name: total(times[name] for times in by_block) for name in by_block[0]}
    timing["around"] = timing["around"].less(timing["read"])
    timing |= interleave({"identify": lambda: identify(expand(path), threads=1)}, rounds)
    sampled, strange = _for_reference(inputs)
    timing |= interleave(
        {
            "sampled": Case(
                prepare=lambda: reference_encoder(setup.spec), run=lambda e: e.encode(sampled)
            ),
            "strange": Case(
                prepare=lambda: reference_encoder(setup.spec), run=lambda e: e.encode(strange)
            ),
            "write": Case(
                prepare=lambda: _fresh(place), run=lambda root: _write(setup, root, done)
            ),
        },
        rounds,
    )
    share = setup.job.sample_rate * OVERSAMPLED
    timing["reference"] = total([timing["sampled"].times(share), timing["strange"]])
    return timing


def _one_block(
    setup: Setup,
    guarded: GuardedEncoder,
    free: _Free,
    number: int,
    block: Block,
    rounds: int,
    done: list[EncodedBlock],
) -> dict[str, Timing]:
    texts = [record["text"] for record in read_block(setup.inputs, block).records]
    engine: Any = guarded.fast
    lists = [engine.ranker.encode_text(text) for text in texts]
    remembered = iter(lists * (rounds + 1))
    stub = TextEncoder(engine="free", version="1", encode_text=lambda _: next(remembered))
    wrapped = dataclasses.replace(engine, ranker=stub)
    watched = GuardedEncoder(fast=free, reference=free, rate=0, probes=())
    kitchen = Kitchen(encoder=free)
    ids = engine.ids.take(np.concatenate([np.array(part, np.int64) for part in lists]))
    keys = np.full(len(texts), (1 << 64) - 1, np.uint64)

    def around(encoder: Kitchen) -> EncodedBlock:
        return encode_block(setup.job, encoder, setup.inputs, number, block, slow=False)

    timing = interleave(
        {
            "read": lambda: read_block(setup.inputs, block),
            "wrap": lambda: wrapped.encode(texts),
            "guard": lambda: watched.encode(texts, keys),
            "around": lambda: around(kitchen),
        },
        rounds,
    )
    encoded = around(kitchen)
    encoded.ids = ids.astype(setup.job.dtype)
    encoded.lengths = np.array([len(part) for part in lists], np.int64)
    done.append(encoded)
    return timing


def _for_reference(inputs: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Texts that the guard gives to the reference: a sample (a large one), and strange ones."""
    sampled: list[str] = []
    strange: list[str] = []
    for block in blocks(inputs):
        texts = [record["text"] for record in read_block(inputs, block).records]
        strange += [texts[i] for i in texts_outside(texts).tolist()]
        sampled += texts[::OVERSAMPLED]
    return sampled, strange


def _fresh(place: Path) -> Path:
    number = sum(1 for _ in place.iterdir())
    root = place / str(number)
    root.mkdir()
    return root


def _write(setup: Setup, root: Path, done: Sequence[EncodedBlock]) -> None:
    writer = ShardWriter(LOCAL, root, 0, dtype=setup.job.dtype)
    for block in done:
        writer.append(block.ids, block.lengths)
        writer.describe_documents(block.lines, np.zeros_like(block.record), block.record)
    writer.commit(fingerprint="benchmark", engine="tiktoken", progress={})
