"""Which documents of a store a choice has: all of them, one part of a split, or a selection.

A selection is a pure function of the lengths of all documents. No token is read to choose, so a
store of any size only supplies its offsets (and, for `doc_hash`, its stored hashes)::

    all ──not empty, within, training subset, key──▶ pool ──length, hash──▶ candidates ──mode──▶ n

Documents come in the order of the mode: longest first, shortest first, as stored, or by a keyed
hash of their number. Ties in length go to the lowest number, so the answer is unique.

A split divides documents by a hash of their id or content. So the part that a document belongs to
depends on the document alone: appending to a store leaves every document in its part, and with
``by="content"`` equal documents are in the same part.

Cost: a few passes over the lengths, with no Python per document. Choosing 100 of 10^7 documents on
one core takes 0.2 s (first, longest) or 0.4 s (random) and 10 MB; choosing half of them takes 2 s.
"""

from __future__ import annotations

import functools
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.documents.conditions import meeting
from tokenloom.documents.line import ChosenLine, Line, WholeLine
from tokenloom.documents.spec import SHOWN, Choice, SelectSpec, SplitSpec, listed
from tokenloom.errors import ConfigError, plural
from tokenloom.random.keys import children, key, mixed, named_texts
from tokenloom.store.hashes import hash_blocks, starts_with
from tokenloom.store.plan_cache import keep_list
from tokenloom.store.reader import Reader

log = logging.getLogger("tokenloom")

LOGGED = 1_000  # documents of a selection that are logged one by one; others are listed in a file

LISTED = 1 << 20  # documents of such a file, at most: about 30 bytes each

Bools = NDArray[np.bool_]

UInt64 = NDArray[np.uint64]

HasHash = Callable[[Int64, str], Bools]

"""(documents [N], hex digits) → which of them have a hash that starts with the digits [N]."""


@dataclass(frozen=True, eq=False, slots=True)
class Selection:
    """The chosen documents.

    Attributes:
        documents: their numbers in the store, in the order of the choice; read-only [N].
        why: the choice in words.
        warning: what was chosen instead of what was requested, if the fallback is a default.
    """

    documents: Int64
    why: str
    warning: str | None = None

    def __post_init__(self) -> None:
        self.documents.flags.writeable = False


def line_of(reader: Reader, choice: Choice | None, chosen: Selection | None = None) -> Line:
    """The documents of a choice, end to end; pass `chosen` if they are already known."""
    if choice is None:
        return WholeLine(reader)
    documents = (chosen or choose_documents(reader, choice)).documents
    return ChosenLine(reader, documents)


def choose_documents(
    reader: Reader, choice: Choice | None, among: Int64 | None = None
) -> Selection:
    """The documents of a choice: a split's in stored order, a selection's in the order of its mode.

    Reads offsets. A split by id and `doc_key` also read metadata; a split by content and `doc_hash`
    also read the hashes of all documents. No token is read.

    Args:
        reader: the store.
        choice: None means all documents.
        among: what a selection chooses from, if already known.
    """
    if choice is None:
        return Selection(np.arange(reader.manifest.documents), "all")
    if isinstance(choice, SplitSpec):
        return Selection(members(choice, reader), choice.words)
    if among is None and choice.within is not None:
        among = choose_documents(reader, choice.within).documents
    if choice.doc_key is not None:
        meets = meeting(reader, choice.doc_key)
        among = np.flatnonzero(meets) if among is None else among[meets[among]]
    if among is None:
        documents, digest = reader.manifest.documents, reader.manifest.digest
        found = choose_streaming(choice, reader.length_pieces(), documents, digest)
        if found is not None:
            return found
    return choose(
        choice,
        reader.lengths(),
        digest=reader.manifest.digest,
        among=among,
        has_hash=functools.partial(_has_hash, reader),
    )


def _has_hash(reader: Reader, documents: Int64, digits: str) -> NDArray[np.bool_]:
    """Which documents have a hash that starts with `digits`; reads all hashes, but no token."""
    found = [starts_with(hashes, digits) for _, hashes in hash_blocks(reader)]
    return np.concatenate([np.empty(0, np.bool_), *found])[documents]


def choose(
    spec: SelectSpec,
    lengths: Int64,
    *,
    digest: str,
    among: Int64 | None = None,
    has_hash: HasHash | None = None,
) -> Selection:
    """The documents of a selection.

    Args:
        spec: the selection; the caller resolves its `within` and `doc_key` and passes `among`.
        lengths: tokens of every document of the store [documents].
        digest: identity of the store; part of the key of "random".
        among: the documents to choose from, in the order that "first" uses; None means all.
        has_hash: looks up hashes; needed only for `doc_hash`.

    Raises:
        ConfigError: a requested document does not exist, or too few documents qualify.

    >>> choose(SelectSpec(min_doc_length=5), np.array([3, 5, 7]), digest="").documents.tolist()
    [2]
    """
    if spec.doc_index is not None:
        _check_there(spec, lengths)
    pool = _pool(spec, lengths, among)
    fits = pool[_fits(spec, lengths[pool])]
    if spec.doc_hash is not None:
        assert has_hash is not None
        hashed = len(fits)
        pool = fits = fits[has_hash(fits, spec.doc_hash)]
        if not len(fits):
            raise ConfigError(
                f"doc_hash: no document of {hashed:,} has a hash that starts with {spec.doc_hash}. "
                "Take it from `store.document_hashes`: it is the xxh3_128 of the document's tokens."
            )
    if spec.doc_index is not None:
        return _by_index(spec, lengths, pool, fits, digest)
    count = spec.num_docs or 1
    chosen = _pick(spec, lengths, pool, fits, count, digest)
    why = f"{spec.words}; {plural(len(fits), 'candidate')}"
    if len(fits) >= count:
        return Selection(chosen, why)
    if spec.num_docs is not None:  # on_shortage applies as documented, so no warning
        return Selection(chosen, f"{why} for {count:,}, {spec.on_shortage}")
    instead = f"document {chosen[0]}, the longest of {len(pool):,} ({lengths[chosen[0]]:,} tokens)"
    warning = (
        f"select: no document meets {', '.join(spec.conditions)}; {instead}, is taken instead. "
        "on_shortage='error' would refuse."
    )
    return Selection(chosen, f"{why}, so {instead}", warning)


def choose_streaming(
    spec: SelectSpec, pieces: Iterable[NDArray[Any]], documents: int, digest: str
) -> Selection | None:
    """As `choose` among all documents, from their lengths a few at a time.

    Args:
        spec: the selection.
        pieces: tokens of every document, in order, a few documents at a time.
        documents: how many there are.
        digest: identity of the store; part of the key of "random".

    Returns:
        None if that does not tell: documents are named one by one, most are wanted, or too few
        qualify. `choose` answers then.
    """
    count = spec.num_docs or 1
    named = spec.doc_index, spec.doc_hash, spec.doc_key, spec.documents, spec.within
    if any(one is not None for one in named) or count * 4 > documents:
        return None
    kept = np.empty(0, np.int64)
    mode = spec.doc_select_mode
    values = _values(mode, spec, kept, kept, digest)
    first, tokens, fitting = 0, 0, 0
    bound: Any = None  # the last value that `count` documents have reached
    for piece in pieces:
        lengths = piece.astype(np.int64)
        allowed = (lengths > 0) & _fits(spec, lengths)
        if spec.training_tokens is not None:
            allowed &= tokens + np.cumsum(lengths) <= spec.training_tokens
            tokens += int(lengths.sum())
        some = np.flatnonzero(allowed)
        fitting += len(some)
        fresh = _values(mode, spec, lengths[some], some + first, digest)
        if bound is not None:  # a later document wins no tie
            better = fresh < bound
            some, fresh = some[better], fresh[better]
        kept, values = np.append(kept, some + first), np.append(values, fresh)
        first += len(lengths)
        if len(kept) > 2 * count and len(some):
            best = _least(values, kept, count)
            kept, values = kept[best], values[best]
            bound = values[-1]
    if fitting < count:
        return None
    best = _least(values, kept, count)
    return Selection(kept[best], f"{spec.words}; {plural(fitting, 'candidate')}")


def _values(
    mode: str, spec: SelectSpec, lengths: Int64, documents: Int64, digest: str
) -> NDArray[Any]:
    """Documents come in the order of these values [N]."""
    if mode == "first":
        return documents
    if mode == "random":
        asked = (spec.num_docs, spec.min_doc_length, spec.max_doc_length)
        parent = key(spec.seed, "select", digest, *map(str, asked))
        return children(parent, documents.astype(np.uint64))
    return lengths if mode == "shortest" else -lengths


def _check_there(spec: SelectSpec, lengths: Int64) -> None:
    for document in spec.wanted:
        if document >= len(lengths):
            raise ConfigError(
                f"doc_index: found {document}, but there are {plural(len(lengths), 'document')}; "
                f"allowed: 0 to {len(lengths) - 1}."
            )
        if lengths[document] == 0:
            raise ConfigError(
                f"doc_index: document {document} is empty, so there is nothing to train on. "
                "Choose another one."
            )


def _pool(spec: SelectSpec, lengths: Int64, among: Int64 | None) -> Int64:
    """All documents that qualify apart from their length, in the order of `among`."""
    allowed = lengths > 0
    if spec.training_tokens is not None:
        allowed &= np.cumsum(lengths) <= spec.training_tokens
    if spec.documents is not None:
        if spec.documents[-1] >= len(lengths):
            raise ConfigError(
                f"documents: found {spec.documents[-1]}, allowed: below {len(lengths):,}, the "
                "documents of the store."
            )
        listed = np.zeros(len(lengths), np.bool_)
        listed[list(spec.documents)] = True
        allowed &= listed
    return np.flatnonzero(allowed) if among is None else among[allowed[among]]


def _fits(spec: SelectSpec, lengths: Int64) -> Bools:
    low, high = spec.min_doc_length, spec.max_doc_length
    fits = np.ones(len(lengths), np.bool_) if low is None else lengths >= low
    return fits if high is None else fits & (lengths <= high)


def _by_index(spec: SelectSpec, lengths: Int64, pool: Int64, fits: Int64, digest: str) -> Selection:
    """The documents of `doc_index`, with replacements for those that do not qualify."""
    wanted = np.array(spec.wanted, np.int64)
    inside, fitting = (_flags(part, len(lengths))[wanted] for part in (pool, fits))
    good = inside if spec.doc_index_policy == "honor" else fitting
    if good.all():
        return Selection(wanted, spec.words)
    places = np.flatnonzero(~good)
    bad = wanted[places]
    reasons = "; ".join(
        _why_not(spec, lengths, int(wanted[place]), bool(inside[place])) for place in places[:SHOWN]
    )
    if spec.doc_index_policy != "fallback":
        raise ConfigError(
            f"doc_index: {reasons}. Choose others, or relax the filters; doc_index_policy='honor' "
            "takes a document whatever its length, 'fallback' takes another one."
        )
    kept = wanted[good]
    free, fit = (part[np.isin(part, kept, invert=True)] for part in (pool, fits))
    others = _pick(spec, lengths, free, fit, len(bad), digest, have=len(kept))
    wanted[places[: len(others)]] = others
    wanted = np.delete(wanted, places[len(others) :])
    sizes = ", ".join(f"{lengths[document]:,}" for document in others[:SHOWN])
    instead = (
        f"{spec.doc_select_mode} gives {listed(others.tolist())} ({sizes} tokens) in place of "
        f"{listed(bad.tolist())}"
    )
    warning = (
        f"select: doc_index: {reasons}; {instead}. Pass doc_index_policy='honor' to take a "
        "document whatever its length, 'error' to refuse."
    )
    return Selection(wanted, f"{spec.words}, {instead}", warning)


def _flags(documents: Int64, size: int) -> Bools:
    flags = np.zeros(size, np.bool_)
    flags[documents] = True
    return flags


def _why_not(spec: SelectSpec, lengths: Int64, document: int, inside: bool) -> str:
    """Why a document does not qualify; `inside` means that only its length is wrong."""
    size, low, high = int(lengths[document]), spec.min_doc_length, spec.max_doc_length
    if inside and low is not None and size < low:
        return f"document {document} has {size:,} tokens, min_doc_length is {low:,}"
    if inside:
        return f"document {document} has {size:,} tokens, max_doc_length is {high:,}"
    end, known = int(lengths[: document + 1].sum()), spec.training_tokens
    if known is not None and end > known:
        return f"document {document} ends at token {end:,}, training uses the first {known:,}"
    return f"document {document} is not among those to choose from"


def _pick(
    spec: SelectSpec,
    lengths: Int64,
    pool: Int64,
    fits: Int64,
    count: int,
    digest: str,
    have: int = 0,
) -> Int64:
    """`count` candidates in the order of the mode; a shortage is handled as `on_shortage` says."""
    chosen = _first_by(spec.doc_select_mode, spec, lengths, fits, count, digest)
    if len(chosen) < count and spec.on_shortage == "backfill_longest":
        others = pool[~_fits(spec, lengths[pool])]
        filled = _first_by("longest", spec, lengths, others, count - len(chosen), digest)
        chosen = np.concatenate([chosen, filled])
    found = have + len(chosen)
    if len(chosen) == count or (found and spec.on_shortage == "fewer"):
        return chosen
    raise ConfigError(
        f"select: found {found:,} of {have + count:,} documents that are not empty"
        f"{''.join(f', {one}' for one in spec.conditions)}. Request fewer, relax the filters, or "
        "pass on_shortage='fewer' (use what qualifies) or 'backfill_longest' (fill up with the "
        "longest others)."
    )


def _first_by(
    mode: str, spec: SelectSpec, lengths: Int64, documents: Int64, count: int, digest: str
) -> Int64:
    """The first `count` documents in the order of a mode."""
    if mode == "first":
        return documents[:count].copy()  # a view would keep all of them in memory
    values = _values(mode, spec, lengths[documents], documents, digest)
    return documents[_least(values, documents, count)]


def _least(values: NDArray[Any], documents: Int64, count: int) -> Int64:
    """Positions of the smallest values, ascending; ties go to the lowest document number."""
    near = np.arange(len(values))
    if count < len(values):  # avoid sorting everything for a few
        near = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    order = np.lexsort((documents[near], values[near]))
    return near[order[:count]]


def tell_documents(head: str, documents: Int64, lengths: Int64) -> None:
    """Log a line for each of the first documents, and list the others in a file.

    The file has the same lines. It is in the directory of kept plans and named by its content, so
    it is written once; a logger that shows no INFO costs nothing and writes nothing.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    line, more = f"{head}Selected doc_idx=%d, length=%d", len(documents) - LOGGED
    for pair in zip(documents[:LOGGED].tolist(), lengths[:LOGGED].tolist(), strict=True):
        log.info(line, *pair)
    if more <= 0:
        return
    others = documents[LOGGED:], lengths[LOGGED:]
    file = keep_list("selected", _lines(line, *others)) if more <= LISTED else None
    where = f"{file} lists them" if file else "no file lists them, but .indices and .lengths do"
    log.info("%sSelected %s; %s", head, plural(more, "more document"), where)


def _lines(line: str, documents: Int64, lengths: Int64) -> str:
    pairs = zip(documents.tolist(), lengths.tolist(), strict=True)
    return "".join(f"{line % pair}\n" for pair in pairs)


# -- parts of a split ------------------------------------------------------------------------


def part_numbers(spec: SplitSpec, hashes: UInt64) -> NDArray[Any]:
    """The number of the part of each document, from its hash [N]."""
    # where parts begin, in units of 2^-64; the last is open, so that rounding loses no document
    kind = np.uint8 if len(spec.names) <= 256 else np.int64
    found: NDArray[Any] = np.zeros(len(hashes), kind)
    for place in range(1, len(spec.names)):
        begin = int(math.fsum(spec.shares[:place]) * 2.0**64)
        found += hashes >= np.uint64(min(begin, (1 << 64) - 1))
    return found


def members(spec: SplitSpec, reader: Reader) -> Int64:
    """The documents of a part, in stored order.

    The parts of all documents are kept with the reader, one byte each, until another split is asked
    for: the next part of the same split takes no second pass over ids or hashes.
    """
    asked = spec.names, spec.shares, spec.by, spec.seed
    known = _PARTS.get(reader)
    if known is None or known[0] != asked:
        hashes = (id_hashes if spec.by == "id" else content_hashes)(reader, spec.seed)
        parts = [part_numbers(spec, some) for some in hashes]
        known = asked, np.concatenate([np.empty(0, np.uint8), *parts])
        _PARTS[reader] = known
    return np.flatnonzero(known[1] == spec.names.index(spec.part))


_PARTS: weakref.WeakKeyDictionary[Reader, tuple[Any, NDArray[Any]]] = weakref.WeakKeyDictionary()


def id_hashes(reader: Reader, seed: int) -> Iterator[UInt64]:
    """A hash of the id of every document, in groups; one without an id uses its number."""
    parent, first = key(seed, "split"), 0
    for count, ids in reader.texts("id"):
        numbers = np.arange(first, first + count, dtype=np.uint64)
        first += count
        if ids is None:
            yield children(parent, numbers)
            continue
        found = named_texts(parent, ids.ends, ids.data)
        yield (
            found if ids.absent is None else np.where(ids.absent, children(parent, numbers), found)
        )


def content_hashes(reader: Reader, seed: int) -> Iterator[UInt64]:
    """A hash of the content of every document, the same for equal documents, in groups.

    It is derived from the hash that the store keeps: no token is read.
    """
    start = np.uint64(key(seed, "split", "content"))
    for _, words in hash_blocks(reader):
        # the low word, mixed with the key, then the high word on top: all 128 bits count
        yield mixed(mixed(words[:, 0] + start) ^ words[:, 1])
