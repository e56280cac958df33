"""Records that were left out, or used otherwise than they were: how many, why, and where.

One idea: whoever reads the end of a build's log knows what is not in the store. Counts are exact;
the first 100,000 places are listed in ``skipped-NNNNNN.jsonl`` beside the manifest. Each shard
keeps the table so far and its own places, so a build that is killed and resumed ends with the same
file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import zstandard

from tokenloom.errors import StoreCorrupt

MAX_PLACES = 100_000

MAX_BYTES = 256 << 20  # of the places of a shard, unpacked: a writer makes far fewer

MESSAGE = 300  # characters of a message that are kept

MAX_REASONS = 1000  # different ones; the rest are counted together


@dataclass(frozen=True, slots=True)
class Told:
    """One record and what is to be reported of it: `kind` is "skipped" or "kept"."""

    input: int
    name: str
    record: int
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skips:
    """What was reported of the records so far.

    Attributes:
        table: reason → records, inputs, and the last of these inputs.
        places: lines that no shard has yet.
        listed: places so far, those of earlier shards included.
    """

    table: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    places: tuple[bytes, ...] = ()
    listed: int = 0

    def plus(self, places: Iterable[Told]) -> Skips:
        """With more places, which come in the order of inputs."""
        table, lines, listed = dict(self.table), list(self.places), self.listed
        for place in places:
            reason = f"{place.kind}: {_reason_of(place.message)}"
            if reason not in table and len(table) >= MAX_REASONS:
                reason = f"{place.kind}: other reasons"
            records, inputs, last = table.get(reason, (0, 0, -1))
            table[reason] = records + 1, inputs + (place.input != last), place.input
            if listed < MAX_PLACES:
                lines.append(_line(place, reason))
                listed += 1
        return replace(self, table=table, places=tuple(lines), listed=listed)

    def packed(self) -> bytes:
        """The file of a shard; empty if there is nothing to tell."""
        if not self.table:
            return b""
        head = json.dumps({"table": self.table, "listed": self.listed}, sort_keys=True).encode()
        return zstandard.ZstdCompressor(level=3).compress(b"\n".join([head, *self.places, b""]))

    def flushed(self) -> Skips:
        """The same, once a shard has the places."""
        return replace(self, places=())

    def rows(self) -> Iterator[str]:
        """The table as lines, the most frequent first."""
        yield f"{'records':>10} {'inputs':>8}  reason"
        for reason, (records, inputs, _) in sorted(self.table.items(), key=lambda one: -one[1][0]):
            yield f"{records:>10,} {inputs:>8,}  {reason}"


def _line(place: Told, reason: str) -> bytes:
    found: dict[str, Any] = {"input": place.name, "record": place.record, "reason": reason}
    if place.kind == "skipped":
        found["message"] = place.message[:MESSAGE]
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace")


def read_skips(raw: bytes, path: str) -> Skips:
    """What a shard kept, from the bytes of its file."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as reader:
            text = reader.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_BYTES:,} bytes")
        head, *places, _ = text.split(b"\n")
        known = json.loads(head)
        table = {str(why): (int(a), int(b), int(c)) for why, (a, b, c) in known["table"].items()}
        return Skips(table=table, places=tuple(places), listed=int(known["listed"]))
    except (ValueError, KeyError, TypeError, AttributeError, zstandard.ZstdError) as error:
        raise StoreCorrupt(
            f"{path}: it is not a list of records ({error!s:.200}). Restore the file from a copy."
        ) from error


def _reason_of(message: str) -> str:
    """A message without what differs from record to record.

    >>> _reason_of("not valid JSON (unexpected end, character 12) in '{', allowed: one object.")
    'not valid JSON'
    >>> _reason_of("no key 'text'; the record has: body, lang.")
    "no key 'text'"
    >>> _reason_of("not valid UTF-8: byte 0xe9 at byte 3 of the text.")
    'not valid UTF-8'
    >>> _reason_of("'loss_mask' has 3 values for 4 ids")
    "'loss_mask' has N values for N ids"
    """
    head = re.split(r" \(|: |, allowed|, the most|; |\. ", message, maxsplit=1)[0]
    return re.sub(r"(?<![\w-])\d[\d,]*", "N", head.rstrip("."))[:120]
