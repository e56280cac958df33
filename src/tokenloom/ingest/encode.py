"""One block of input becomes tokens: the pure function that all workers compute.

One idea: `encode_block` depends on the job and the block alone, so any process may run it, in any
order, again and again. What it gives is plain arrays and bytes, ready for a pipe and for the
shard writer; positions are counted inside the block, the pipeline knows where the block is.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import TokenizerError, TokenloomError
from tokenloom.ingest.columns import (
    PER_TOKEN,
    BadRecord,
    check_keys,
    number_array,
    refuse_beside_text,
    take,
    token_values,
)
from tokenloom.ingest.cuts import Block
from tokenloom.ingest.inputs import Input
from tokenloom.ingest.records import read_block
from tokenloom.random.keys import draws
from tokenloom.store.metadata import MAX_DEPTH, RESERVED, json_line, unstorable
from tokenloom.tokenizer.accelerate import AcceleratedEncoder, EngineDisagrees
from tokenloom.tokenizer.chat.conversation import BadChat, Chat, ChatJob, ChatReader, a_kind
from tokenloom.tokenizer.chat.token_weights import EncodedChats, Placer, encode_chats
from tokenloom.tokenizer.encoders import Encoded, Encoder

Array = NDArray[Any]

CHECKED_CHARACTERS = 1 << 18  # of the first documents, which an accelerator must agree on

_Result = TypeVar("_Result", Encoded, EncodedChats)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What every block of a build is subjected to, as plain data.

    Attributes:
        text_key: key of the text; None when records hold ids or conversations.
        ids_key: key of ready-made ids; None when records hold text or conversations.
        id_key: key of the document's id, kept as `id`.
        metadata_keys: which other keys to keep; None for all.
        columns: per-token columns to store, name → dtype.
        token_keys: what says which tokens are trained on or padding; see `ingest.columns`.
        bos, eos: ids put around each document, or None.
        vocab_size: every id must be below this.
        dtype: how ids are stored.
        sample_rate: share of documents that an accelerated encoder must agree on.
        sample_key: what chooses them.
        chat: what is done to conversations; None when records hold something else.
    """

    text_key: str | None
    ids_key: str | None
    id_key: str | None
    metadata_keys: tuple[str, ...] | None
    columns: dict[str, str]
    token_keys: tuple[str, ...]
    bos: int | None
    eos: int | None
    vocab_size: int
    dtype: str
    sample_rate: float
    sample_key: int
    chat: ChatJob | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Kitchen:
    """The live things a worker needs: encoders and hooks."""

    encoder: Encoder | None = None
    filter: Callable[[dict[str, Any]], Any] | None = None
    transform: Callable[[dict[str, Any]], Any] | None = None
    chats: ChatReader | None = None
    place: Placer | None = None


@dataclass(kw_only=True, slots=True)
class EncodedBlock:
    """The documents of one block.

    Attributes:
        ids: their tokens end to end.
        lengths: tokens of each document [D].
        columns: further per-token values, each as long as `ids`.
        lines: metadata of each document as JSON [D].
        piece: which piece of the block each document came from [D].
        record: number of its record inside that piece, from 0 [D].
        counts: records seen in each piece, blank and bad ones included.
        errors: (piece, record, message) of records that could not be used.
        filtered: records that the hooks dropped.
        notes: (piece, record, what) of records that were used, but not as they were.
        fatal: (piece, record, message) of a record whose ids no build may keep, or None.
    """

    ids: Array
    lengths: NDArray[np.int64]
    columns: dict[str, Array] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    piece: NDArray[np.int64]
    record: NDArray[np.int64]
    counts: list[int]
    errors: list[tuple[int, int, str]]
    filtered: int = 0
    notes: list[tuple[int, int, str]] = field(default_factory=list)
    fatal: tuple[int, int, str] | None = None


def encode_block(
    job: Job, kitchen: Kitchen, inputs: Sequence[Input], number: int, block: Block
) -> EncodedBlock:
    """The documents of block `number`.

    Args:
        job: what to do.
        kitchen: with what.
        inputs: all inputs of the build.
        number: the block's number, which with `job.sample_key` chooses the documents to check.
        block: what to read.
    """
    read = read_block(inputs, block, columns=_needed(job, kitchen))
    errors = list(read.errors)
    kept: list[Any] = []
    lines: list[bytes] = []
    places: list[int] = []
    filtered = 0
    for place, record in enumerate(read.records):
        where = (int(read.piece[place]), int(read.number[place]))
        try:
            document = _document(job, kitchen, record)
        except (BadRecord, BadChat) as bad:
            errors.append((*where, str(bad)))
            continue
        if document is None:
            filtered += 1
            continue
        kept.append(document[0])
        lines.append(document[1])
        places.append(place)
    result = EncodedBlock(
        ids=np.empty(0, job.dtype),
        lengths=np.empty(0, np.int64),
        lines=lines,
        piece=read.piece[places].astype(np.int64),
        record=read.number[places],
        counts=list(read.counts),
        errors=sorted(errors),
        filtered=filtered,
        notes=read.notes,
    )
    try:
        if job.ids_key is not None:
            _take_ids(job, kept, result)
        elif job.chat is not None:
            _encode_chats(job, kitchen, kept, number, result)
        else:
            _encode_texts(job, kitchen, kept, number, result)
        _check_ids(job, result)
    except _Fatal as error:
        result.fatal = error.where
    return result


def bad_records(
    job: Job, kitchen: Kitchen, inputs: Sequence[Input], block: Block
) -> list[tuple[int, int, str]]:
    """(piece, record, message) of records of a block that lack what a document needs, in order.

    Nothing is encoded.
    """
    read = read_block(inputs, block, columns=_needed(job, kitchen))
    errors = list(read.errors)
    for piece, number, record in zip(read.piece, read.number, read.records, strict=True):
        try:
            _document(job, kitchen, record)
        except (BadRecord, BadChat) as bad:
            errors.append((int(piece), int(number), str(bad)))
    return sorted(errors)


def _document(job: Job, kitchen: Kitchen, record: dict[str, Any]) -> tuple[Any, bytes] | None:
    """What is encoded of a record, and its metadata line; None if the hooks dropped it."""
    cooked = apply_hooks(kitchen, record)
    if cooked is None:
        return None
    _check_record(job, cooked)
    needed = cooked if kitchen.chats is None else kitchen.chats.read(cooked)
    return needed, _metadata_line(job, cooked)


def _needed(job: Job, kitchen: Kitchen) -> list[str] | None:
    """Columns of a table that the job looks at; None for all, as hooks may look at any."""
    if job.metadata_keys is None or kitchen.filter is not None or kitchen.transform is not None:
        return None
    own = (job.text_key, job.ids_key, job.id_key, *(job.chat.keys if job.chat else ()))
    keys = [key for key in own if key is not None]
    return [*keys, *job.columns, *PER_TOKEN, *job.metadata_keys]


class _Fatal(ValueError):
    """Why a build cannot go on, whatever it does with bad records."""

    def __init__(self, result: EncodedBlock, document: int, message: str) -> None:
        super().__init__(message)
        self.where = int(result.piece[document]), int(result.record[document]), message


def apply_hooks(kitchen: Kitchen, record: dict[str, Any]) -> dict[str, Any] | None:
    """The record after the hooks, or None if they dropped it."""
    if kitchen.filter is not None and not _called("filter", kitchen.filter, record):
        return None
    if kitchen.transform is None:
        return record
    changed = _called("transform", kitchen.transform, record)
    if changed is not None and not isinstance(changed, dict):
        raise BadRecord(
            f"transform gave {type(changed).__name__}, allowed: a record (dict), or None to drop it"
        )
    return changed


def _called(what: str, function: Callable[[Any], Any], value: Any) -> Any:
    """What a function of the user gives; if it raises, the record is bad."""
    try:
        return function(value)
    except MemoryError:
        raise
    except Exception as error:
        raise BadRecord(_raised(what, error)) from error


_PACKAGE = str(Path(__file__).parent.parent)


def _raised(what: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)  # its own line, not the deepest one
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)][:1]
    where = "".join(f" ({frame.filename}, line {frame.lineno})" for frame in own)
    return f"{what} raised {type(error).__name__}: {error!s:.200}{where}"


def _check_record(job: Job, record: dict[str, Any]) -> None:
    """Everything that a record must have before its tokens are looked at."""
    if job.text_key is not None:
        text = take(record, job.text_key, "the text", [job.id_key])
        if not isinstance(text, str):
            raise BadRecord(f"{job.text_key!r} is {a_kind(text)}, allowed: a string")
        refuse_beside_text(record, job.metadata_keys)
    elif job.chat is not None:
        refuse_beside_text(record, job.metadata_keys)
    else:
        assert job.ids_key is not None  # one of the two is set
        take(record, job.ids_key, "the ids", [job.id_key])
        check_keys(record, job.token_keys)
    if job.id_key is not None:
        take(record, job.id_key, "the document's id")


# -- tokens --------------------------------------------------------------------------------
def _encode_texts(
    job: Job,
    kitchen: Kitchen,
    records: list[dict[str, Any]],
    number: int,
    result: EncodedBlock,
) -> None:
    assert job.text_key is not None  # a job has texts, conversations or ids
    texts = [record[job.text_key] for record in records]
    encoder = kitchen.encoder
    assert encoder is not None  # a job with texts has one
    keys = _sample_keys(job, number, texts)

    def encode(some: Sequence[int]) -> Encoded:
        return _checked(encoder, [texts[i] for i in some], keys, some, result)

    encoded = _tried(encode, records, result)
    result.ids, result.lengths = _with_specials(encoded.ids, encoded.lengths, job.bos, job.eos)


def _encode_chats(
    job: Job,
    kitchen: Kitchen,
    chats: list[Chat],
    number: int,
    result: EncodedBlock,
) -> None:
    """Conversations, with what is trained on in the column that the job names."""
    assert job.chat is not None  # it is called for conversations
    encoder = kitchen.encoder
    assert encoder is not None  # a job with conversations has one
    keys = _sample_keys(job, number, [chat.text for chat in chats])

    def encode(some: Sequence[int]) -> EncodedChats:
        def wholes(texts: Sequence[str]) -> Encoded:  # these are checked, beginnings are not
            return _checked(encoder, texts, keys, some, result)

        chosen, ended = [chats[i] for i in some], job.eos is not None
        return encode_chats(chosen, wholes, encoder.encode, kitchen.place, ended=ended)

    found = _tried(encode, chats, result)
    if found.problems:
        for n, message in found.problems.items():
            result.errors.append((int(result.piece[n]), int(result.record[n]), message))
        good, found = found.kept()
        _keep(good, chats, result)
    result.ids, result.lengths = _with_specials(found.ids, found.lengths, job.bos, job.eos)
    edges = (None if job.bos is None else 0, None if job.eos is None else 1)  # EOS is trained on
    weights, _ = _with_specials(found.weights, found.lengths, *edges)
    result.columns = {job.chat.column: weights.astype(job.columns[job.chat.column])}


def _sample_keys(job: Job, number: int, texts: Sequence[str]) -> NDArray[np.uint64]:
    """What decides which documents of a block an accelerator is checked on.

    Keyed, as it must not follow their order; the first ones of a build are always checked.
    """
    places = np.arange(len(texts), dtype=np.uint64) + np.uint64(number << 32)
    keys = draws(job.sample_key, places)
    if number == 0:
        characters = np.cumsum([len(text) for text in texts])
        keys[: int(np.searchsorted(characters, CHECKED_CHARACTERS, side="right"))] = 0
    return keys


def _checked(
    encoder: Encoder,
    texts: Sequence[str],
    keys: NDArray[np.uint64],
    documents: Sequence[int],
    result: EncodedBlock,
) -> Encoded:
    """The ids of some documents of a block; ends the build where an accelerator differs."""
    if not isinstance(encoder, AcceleratedEncoder):
        return encoder.encode(texts)
    try:
        return encoder.encode(texts, keys[list(documents)])
    except EngineDisagrees as error:
        raise _Fatal(result, documents[error.position], str(error)) from error


def _tried(encode: Callable[[Any], _Result], documents: list[Any], result: EncodedBlock) -> _Result:
    """All documents encoded; those that cannot be become bad records."""
    try:
        return encode(range(len(documents)))
    except (_Fatal, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - `_encodable` raises it if nobody is to blame
        good = _encodable(encode, len(documents), result, error)
        encoded = encode(good)
        _keep(good, documents, result)
        return encoded


def _encodable(
    encode: Callable[[Sequence[int]], Any], count: int, result: EncodedBlock, first: Exception
) -> list[int]:
    """Which texts can be encoded, after one of them could not; the others become bad records."""
    good: list[int] = []
    for document in range(count):
        try:
            encode([document])
            good.append(document)
        except (_Fatal, MemoryError):
            raise
        except TokenizerError as error:  # the ids of others would be as wrong
            raise _Fatal(result, document, str(error)) from error
        except Exception as error:  # noqa: BLE001 - a function of the user
            own = str(error) if isinstance(error, TokenloomError) else _raised("tokenizer", error)
            where = int(result.piece[document]), int(result.record[document])
            result.errors.append((*where, own))
    if len(good) == count:
        raise first
    return good


def _keep(good: list[int], records: list[Any], result: EncodedBlock) -> None:
    """Only these documents are left."""
    records[:] = [records[place] for place in good]
    result.lines = [result.lines[place] for place in good]
    result.errors.sort()
    result.piece, result.record = result.piece[good], result.record[good]


def _with_specials(
    ids: Array, lengths: NDArray[np.int64], bos: int | None, eos: int | None
) -> tuple[Array, NDArray[np.int64]]:
    """The same documents with `bos` before and `eos` after each, where given.

    Worked example, lengths 2, 0 and bos and eos: new starts are 0, 4; old token i of document d
    moves to i + 1 + 2 d.
    """
    extra = (bos is not None) + (eos is not None)
    if not extra or not len(lengths):
        return ids, lengths
    longer = lengths + extra
    ends = np.cumsum(longer)
    inside = np.ones(int(ends[-1]), np.bool_)
    if bos is not None:
        inside[ends - longer] = False
    if eos is not None:
        inside[ends - 1] = False
    out = np.empty(len(inside), ids.dtype)
    out[inside] = ids
    if bos is not None:
        out[ends - longer] = bos
    if eos is not None:
        out[ends - 1] = eos
    return out, longer


def _take_ids(job: Job, records: list[dict[str, Any]], result: EncodedBlock) -> None:
    """Ready-made ids without their padding, and their columns."""
    assert job.ids_key is not None
    good: list[int] = []
    ids: list[Array] = []
    columns: dict[str, list[Array]] = {name: [] for name in job.columns}
    for place, record in enumerate(records):
        try:
            one = number_array(record[job.ids_key], job.ids_key, "iu")
            values: dict[str, Array] = {}
            if job.columns or job.token_keys:
                one, values = token_values(record, one, job.token_keys, job.columns)
        except BadRecord as bad:
            result.errors.append((int(result.piece[place]), int(result.record[place]), str(bad)))
            continue
        good.append(place)
        ids.append(one)
        for name, value in values.items():
            columns[name].append(value)
    _keep(good, records, result)
    result.lengths = np.array([len(one) for one in ids], np.int64)
    result.ids = np.concatenate(ids) if ids else np.empty(0, job.dtype)
    result.columns = {
        name: np.concatenate(parts) if parts else np.empty(0, job.columns[name])
        for name, parts in columns.items()
    }


def _check_ids(job: Job, result: EncodedBlock) -> None:
    """Refuse ids outside the vocabulary, whoever made them, and narrow the rest."""
    ids = result.ids
    if len(ids) and (int(ids.max()) >= job.vocab_size or int(ids.min()) < 0):
        bad = int(np.flatnonzero((ids >= job.vocab_size) | (ids < 0))[0])
        document = int(np.searchsorted(np.cumsum(result.lengths), bad, side="right"))
        raise _Fatal(
            result,
            document,
            f"id {int(ids[bad])} in a document, allowed: 0 to {job.vocab_size - 1} (vocab_size "
            f"{job.vocab_size}). The ids are of another tokenizer, or vocab_size is too small.",
        )
    result.ids = ids.astype(job.dtype)


# -- metadata ------------------------------------------------------------------------------
def _kept_keys(job: Job, record: dict[str, Any]) -> list[str]:
    """Keys of a record that become metadata."""
    if job.metadata_keys is not None:
        return [key for key in job.metadata_keys if key in record]
    used = {job.text_key, job.ids_key, job.id_key, *job.columns, *job.token_keys}
    used |= set(job.chat.keys) if job.chat else set()
    return [key for key in record if key not in used]


def _metadata_line(job: Job, record: dict[str, Any]) -> bytes:
    """What is kept of a record beside its tokens; what cannot be kept makes it a bad one."""
    if not RESERVED.isdisjoint(record):
        _refuse_metadata(job, record)
    try:
        return json_line(_metadata(job, record))
    except Exception as error:
        _refuse_metadata(job, record)
        raise BadRecord(_raised("its metadata", error)) from error


def _refuse_metadata(job: Job, record: dict[str, Any]) -> None:
    problem = unstorable(record, _kept_keys(job, record))
    if problem is not None:
        raise BadRecord(problem)


def _metadata(job: Job, record: dict[str, Any]) -> dict[str, Any]:
    kept = {key: record[key] for key in _kept_keys(job, record)}
    if job.id_key is not None:
        kept = {**kept, "id": record[job.id_key]}  # a key of that name gives way to what was named
        kept = {"id": kept.pop("id"), **kept}
    return {key: _plain(value) for key, value in kept.items()}


def _plain(value: Any, left: int = MAX_DEPTH) -> Any:
    """A JSON value; NaN becomes null, dates become text, arrays become lists."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        return [_plain(item, left) for item in value.tolist()]
    if left == 0 and isinstance(value, (list, tuple, dict)):
        raise RecursionError
    if isinstance(value, (list, tuple)):
        return [_plain(item, left - 1) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, left - 1) for key, item in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
