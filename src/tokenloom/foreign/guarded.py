"""What guards foreign files, in words, and a check of all that can be checked.

One idea: say what is known and what is not. Without a seal nothing in the files themselves says
whether a byte is right; ids and boundaries can be checked, and the documents can be compared with
the hashes that were remembered when the files were first opened. With a seal every chunk, page and
document is compared, as in a store of ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from tokenloom.errors import StoreError, plural
from tokenloom.foreign.companion import PART, column_lengths, derive, pass_cache_bytes
from tokenloom.foreign.foreign_reader import ForeignReader, lines_of, pages_name
from tokenloom.foreign.locations import as_stored
from tokenloom.foreign.pieces import PieceLine
from tokenloom.foreign.seals import page_sums
from tokenloom.foreign.virtual import document_lengths
from tokenloom.store.cache import BlockCache
from tokenloom.store.shard import PAGE_BYTES
from tokenloom.store.verify import VerifyReport

Tick = Callable[[int], None]


def guard_lines(reader: ForeignReader) -> list[str]:
    """What guards the files of a reader, and what does not, a sentence each."""
    doubts = reader.inside.described.doubts
    if reader.inside.is_sealed:
        return ["sealed: every chunk is compared with its crc32c when it is first read", *doubts]
    told = [
        "not sealed: the files have no checksums, so a changed byte is found only if it is no id"
    ]
    if reader.inside.identity == "sample":
        told.append("identified by a sample: documents were not hashed")
    return [*told, *doubts]


def foreign_bytes(reader: ForeignReader) -> int:
    """Bytes of all files of a foreign store."""
    described = reader.inside.described
    return sum(described.folder.size(name) or 0 for name in described.files)


def verify_foreign(reader: ForeignReader, *, tick: Tick = lambda _: None) -> VerifyReport:
    """Read everything, compare what can be compared, and say what could not.

    Args:
        reader: the store.
        tick: told the bytes of each step.
    """
    inside, cache = reader.inside, BlockCache(pass_cache_bytes())
    lines = lines_of(inside.described, cache, "verify", inside.companion)
    problems: list[str] = []
    with as_stored(reader.source):
        for check in (_check_documents, _check_pages):
            try:
                problems += check(reader, lines, tick)
            except (StoreError, OSError) as error:
                problems.append(str(error))
    return VerifyReport(
        reader.path,
        len(inside.shards),
        len(inside.described.files),
        foreign_bytes(reader),
        reader.manifest.documents,
        reader.manifest.tokens,
        tuple(dict.fromkeys(problems)),
        unguarded=() if inside.is_sealed else tuple(guard_lines(reader)),
    )


def _check_documents(
    reader: ForeignReader, lines: dict[str, PieceLine], tick: Tick
) -> Iterator[str]:
    """Boundaries, hashes and counts are what they were when the files were opened or sealed."""
    inside, companion = reader.inside, reader.inside.companion
    lengths = document_lengths(inside.described, lines["input_ids"])
    if not np.array_equal(lengths, reader.lengths()):
        yield f"{reader.path}: its documents are not those that it had when it was identified."
        return
    parts = derive(inside.shards, lengths, lines, hashed=True, tick=tick)
    if not companion.hashed:
        deque(parts, maxlen=0)  # the pass looks at every id
        return
    names = sorted(inside.described.columns)
    for number, shard in enumerate(inside.shards):
        for name, (_, length) in column_lengths(shard, names, hashed=True).items():
            made = b"".join(islice(parts, -(-length // PART)))
            if made != companion.whole(number, name).tobytes():
                first, last = shard.first_document, shard.first_document + shard.documents
                yield (
                    f"{reader.path}: {name.replace('_', ' ')} of documents {first:,} to {last:,} "
                    "differ from what was remembered or sealed: the files were changed."
                )


def _check_pages(reader: ForeignReader, lines: dict[str, PieceLine], tick: Tick) -> Iterator[str]:
    """Pages of files that are read in place are those that were sealed."""
    inside, companion = reader.inside, reader.inside.companion
    for file in inside.described.files if companion.is_sealed else ():
        if not inside.extent(file):
            continue
        wrong = np.flatnonzero(page_sums(inside, file) != companion.whole(-1, pages_name(file)))
        if len(wrong):
            at = int(wrong[0]) * PAGE_BYTES
            yield (
                f"{reader.root}/{file}: {plural(len(wrong), 'page')} of 4,096 bytes differ from "
                f"what was sealed, the first at byte {at:,}."
            )
