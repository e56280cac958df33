"""What a stretch read, as hashes, and how a finish puts the inputs together again.

One idea: each byte is hashed by whoever encodes it, right before that, so N machines hash as much
as one. An input inside one stretch has its sha256. One that is cut is hashed whole by the stretch
that reads its start, which also notes the xxh3_128 of every range; each other stretch notes that
of its own range. The finish believes the sha256 of an input only if the ranges agree: an input
that was changed between two parts, whatever its size, is found.

Cost: 0.15 ns a byte for xxh3 (7 GB/s), and one sha256 of each input, as in a build on one machine.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import replace

import xxhash

from tokenloom.errors import InputError
from tokenloom.ingest.cluster.division import Division, Reach, length_of
from tokenloom.ingest.cluster.stretch_files import Read, StretchRecord
from tokenloom.ingest.identity import content
from tokenloom.ingest.inputs import Input
from tokenloom.ingest.spool import Spool

__all__ = ["hash_stretch", "join_inputs", "stretch_fingerprint"]


def hash_stretch(division: Division, stretch: int) -> tuple[Read, ...]:
    """What a stretch is about to read.

    Raises:
        InputError: a file changed its size or became unreadable.
    """
    return tuple(_read(division, part) for part in division.parts(stretch))


def _read(division: Division, part: Reach) -> Read:
    one = division.inputs[part.input]
    found = Read(input=part.input, start=part.start, stop=part.stop)
    if part.start:
        return replace(found, hashes=(_hashes(one, [part.start, part.stop])[1][0],))
    cuts = division.cuts(part.input)
    if not cuts and isinstance(one.rows, Spool):
        return replace(found, sha256=one.rows.sha256)
    sha256, hashes = _hashes(one, [0, *cuts, length_of(one)])
    return replace(found, sha256=sha256, hashes=hashes if cuts else ())


def _hashes(one: Input, edges: Sequence[int]) -> tuple[str, tuple[str, ...]]:
    """The sha256 of the bytes between the first edge and the last, and the hash of each range."""
    whole, hashes = hashlib.sha256(), list[str]()
    first = edges[0] == 0
    for start, stop in itertools.pairwise(edges):
        own = xxhash.xxh3_128()
        for piece in content(one, start, stop):
            own.update(piece)
            if first:
                whole.update(piece)
        hashes.append(own.hexdigest())
    return whole.hexdigest(), tuple(hashes)


def stretch_fingerprint(plan: str, stretch: int, reads: Sequence[Read]) -> str:
    """The fingerprint of the shards of a stretch: over the plan and what was read."""
    told = [f"{one.input}:{one.start}:{one.stop}:{one.sha256}:{one.hashes}" for one in reads]
    return hashlib.sha256("\n".join([plan, str(stretch), *told]).encode()).hexdigest()


def join_inputs(inputs: Sequence[Input], records: Sequence[StretchRecord]) -> list[Input]:
    """The inputs with their sha256, from the records of all stretches.

    Raises:
        InputError: an input changed while its stretches were encoded.
    """
    whole: dict[int, Read] = {}
    ranges: dict[int, list[tuple[StretchRecord, Read]]] = {}
    for record in records:
        for read in record.reads:
            if read.sha256:
                whole[read.input] = read
            else:
                ranges.setdefault(read.input, []).append((record, read))
    for index, read in whole.items():
        later = ranges.get(index, [])
        for expected, (record, found) in zip(read.hashes[1:], later, strict=True):
            if found.hashes != (expected,):
                raise InputError(
                    f"{inputs[index].name}: part {record.stretch + 1} read other bytes than the "
                    "part that hashed it, so it changed between the two. Remove this build with "
                    "`tokenloom gc --unfinished` and run every part again."
                )
    return [replace(one, sha256=whole[index].sha256) for index, one in enumerate(inputs)]
