"""From the id of a document to its number, by reading one page of a shard.

Ids are spread over *buckets* by a hash, and a bucket is a page of 4 KiB. Whoever looks
for an id reads the page of its bucket and has the answer; a page that overflows (few do, unless
many documents share an id) names the page that carries on. The column ``id_index`` is uint64
[pages, 512], and each page is an inner chunk, so it is checked whenever it is read::

    | u32 entries | u32 next page or 0 | 204 x (u64 low, u64 high) | 204 x u32 document | 0 |

Entries of a bucket ascend by (high, low, document). There are ``documents / 160`` buckets, rounded
up; bucket b is page b, and an id with the hash (low, high) is in bucket ``(high >> 32) * buckets >>
32``. The hash is xxh3_128 of the id as JSON text, so 7 and "7" are two ids, and 7.0 is 7.

Cost: 26 bytes a document; a look-up is one read of 4,096 bytes a shard, two for one bucket in
thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.store import format as fmt
from tokenloom.store.metadata import id_text
from tokenloom.store.reader import Reader
from tokenloom.store.shard import corrupt

UInt64 = NDArray[np.uint64]

CAPACITY = 204  # entries of a page

LOAD = 160  # documents for which there is one bucket

WORDS = slice(1, 1 + 2 * CAPACITY)  # of a page, as uint64

DOCUMENTS = slice(2 * WORDS.stop, 2 * WORDS.stop + CAPACITY)  # of a page, as uint32


def _hashes(texts: Sequence[bytes]) -> UInt64:
    """The hash of each id [N, 2], low word first."""
    digests = b"".join(map(xxhash.xxh3_128_digest, texts))
    return np.frombuffer(digests, ">u8").reshape(-1, 2)[:, ::-1].astype(np.uint64)


def _buckets(documents: int) -> int:
    return max(1, -(-documents // LOAD))


def _bucket(high: UInt64, buckets: int) -> Int64:
    return (((high >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)


def build_index(texts: Sequence[bytes | None]) -> UInt64 | None:
    """The index of a shard's documents [pages * 512], or None if none of them has an id.

    Args:
        texts: the `id_text` of every document, in order.
    """
    document = np.array([i for i, text in enumerate(texts) if text is not None], np.uint32)
    if not len(document):
        return None
    hashes = _hashes([text for text in texts if text is not None])
    order = np.lexsort((hashes[:, 0], hashes[:, 1]))  # stable: equal ids keep their order
    document, hashes = document[order], hashes[order]
    buckets = _buckets(len(texts))
    bucket = _bucket(hashes[:, 1], buckets)
    count = np.bincount(bucket, minlength=buckets)
    rank = np.arange(len(bucket)) - np.repeat(np.cumsum(count) - count, count)
    # a bucket of 500 entries: page b, then two more at the end of the column
    more = np.maximum(-(-count // CAPACITY) - 1, 0)
    first_more = buckets + np.cumsum(more) - more
    page = np.where(rank < CAPACITY, bucket, first_more[bucket] + rank // CAPACITY - 1)
    pages = np.zeros((buckets + int(more.sum()), fmt.INDEX_WORDS), "<u8")
    half = pages.view("<u4")  # [page, 1024]
    np.add.at(half[:, 0], page, 1)
    half[:buckets, 1] = np.where(more > 0, first_more, 0)
    following = np.arange(buckets, len(pages)) + 1
    last = (first_more + more)[more > 0] - 1  # the last page of each chain
    half[buckets:, 1] = following
    half[last, 1] = 0
    slot = rank % CAPACITY
    pages[:, WORDS].reshape(len(pages), CAPACITY, 2)[page, slot] = hashes
    half[:, DOCUMENTS][page, slot] = document
    return pages.reshape(-1)


def find_id(reader: Reader, wanted: Any) -> Int64:
    """The numbers of all documents of a store that have this id, ascending [N].

    Raises:
        ConfigError: it is neither text nor a number.
    """
    text = id_text(wanted)
    if text is None:
        raise ConfigError(
            f"id: found {wanted!r:.80} ({type(wanted).__name__}), allowed: text or a number, as "
            "the store keeps it."
        )
    low, high = _hashes([text])[0]
    found = [np.empty(0, np.int64)]
    for number in range(len(reader.manifest.shards)):
        first = int(reader.first_document[number])
        if "id_index" in reader.shard(number).columns:
            found += [first + part for part in _in_shard(reader, number, low, high)]
        elif not reader.indexes_ids:
            ids = [id_text(one) for some in reader.shard_values(number, "id") for one in some]
            found.append(first + np.flatnonzero([one == text for one in ids]))
    return np.concatenate(found)


def _in_shard(reader: Reader, number: int, low: np.uint64, high: np.uint64) -> list[Int64]:
    """Documents of one shard, in pieces."""
    shard = reader.shard(number)
    documents, pages = shard.record.documents, shard.columns["id_index"].length // fmt.INDEX_WORDS
    buckets = _buckets(documents)
    page, found = int(_bucket(np.array([high]), buckets)[0]), []
    while True:
        if page >= pages:
            raise _wrong(reader, number, page)
        words = reader.elements(
            number, "id_index", page * fmt.INDEX_WORDS, (page + 1) * fmt.INDEX_WORDS
        )
        half = words.view("<u4")
        count, following = int(half[0]), int(half[1])
        if count > CAPACITY or (following and following < max(page + 1, buckets)):
            raise _wrong(reader, number, page)
        keys = words[WORDS].reshape(CAPACITY, 2)[:count]
        here = np.flatnonzero((keys[:, 0] == low) & (keys[:, 1] == high))
        chosen = half[DOCUMENTS][here].astype(np.int64)
        if (chosen >= documents).any():
            raise _wrong(reader, number, page)
        found.append(chosen)
        if not following or (count and tuple(keys[-1][::-1]) > (high, low)):
            return found
        page = following


def _wrong(reader: Reader, number: int, page: int) -> Exception:
    where = f"{reader.path}/{reader.manifest.shards[number].name}/id_index"
    return corrupt(where, f"page {page} leads out of the shard")
