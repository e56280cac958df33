"""What an export by tokenloom says about itself, in `export.json` or in the schema of Parquet.

It has what the files of another format have no place for: the dtypes of the columns, the size of
the vocabulary, and the files without which the others would be taken for something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenloom.bind import BindError, bind
from tokenloom.errors import StoreCorrupt
from tokenloom.foreign.locations import damaged
from tokenloom.foreign.places import ForeignPlace, plain_name
from tokenloom.store import format as fmt

MARK = "tokenloom-export"

NAME = "export.json"

INDEXES = ("index.json", "document_ends.npy")  # files of an export that stand for its folder


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportNotes:
    """What an export says; nothing for files that others wrote.

    Attributes:
        columns: per-token columns beside the ids, name → dtype.
        vocab_size: every id is below it.
        files: files that must be there.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    vocab_size: int | None = None
    files: tuple[str, ...] = ()


def export_notes(place: ForeignPlace) -> ExportNotes:
    """The notes in a folder."""
    if place.size(NAME) is None:
        return ExportNotes()
    raw = place.bytes(NAME, 0, fmt.MAX_RECORD_BYTES).tobytes()
    return parsed_notes(place.where(NAME), raw) if MARK.encode() in raw else ExportNotes()


def parsed_notes(where: str, raw: bytes) -> ExportNotes:
    """Notes from JSON.

    Raises:
        StoreCorrupt: they are not what an export writes.
    """
    try:
        notes = bind(ExportNotes, fmt.read_json(raw), unknown="ignore")
    except (BindError, ValueError, RecursionError) as error:
        raise damaged(where, f"it is not what an export writes ({error!s:.200})") from None
    for name, dtype in notes.columns.items():
        if dtype not in fmt.COLUMN_DTYPES:
            allowed = ", ".join(fmt.COLUMN_DTYPES)
            raise damaged(where, f"the dtype of {name} is {dtype!r:.80}, allowed: {allowed}")
    if notes.vocab_size is not None and not 0 < notes.vocab_size <= fmt.MAX_ID + 1:
        raise damaged(where, f"its vocab_size is {notes.vocab_size}")
    if not all(map(plain_name, notes.files)):
        raise damaged(where, "its files are not all in this folder")
    return notes


def refuse_incomplete(place: ForeignPlace) -> None:
    """Refuse an export that lacks a file: the others would be taken for something else.

    Raises:
        StoreCorrupt: a file that the notes name is not there.
    """
    if not (place.is_folder or place.name in INDEXES):
        return
    for name in export_notes(place).files:
        if place.size(name) is None:
            raise StoreCorrupt(
                f"{place.where(name)}: it is missing, and {NAME} names it as one of the files of "
                "this export. Restore it, or export the store again."
            )
