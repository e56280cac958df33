"""Takes files of one format → gives a description of the documents in them.

A format is loaded when files are looked at that are no store of ours: a process that trains from
our own stores never needs one, and all of them take as long to import as the loader does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenloom.foreign.described import Described
    from tokenloom.foreign.places import ForeignPlace

FORMATS = {
    "levanter": "formats.levanter:describe_levanter",
    "megatron": "formats.megatron:describe_megatron",
    "mds": "formats.mds:describe_mds",
    "litdata": "formats.litdata:describe_litdata",
    "parquet": "formats.row_files:describe_parquet",
    "arrow": "formats.row_files:describe_arrow",
    "arrays": "formats.arrays:describe_arrays",
    "datatrove": "formats.datatrove:describe_datatrove",
    "llm.c": "formats.llm_c:describe_llm_c",
    "npy": "formats.arrays:describe_npy",
    "flat": "formats.arrays:describe_flat",  # the last: a file without a header could be anything
}

"""Name of a format → where what looks whether files are of it is; looked at in this order."""


def look_for(name: str) -> Callable[[ForeignPlace], Described | None]:
    """What looks whether files are of a format, and describes them if they are.

    >>> look_for("megatron").__name__
    'describe_megatron'
    """
    module, _, function = FORMATS[name].partition(":")
    found: Callable[[ForeignPlace], Described | None]
    found = getattr(import_module(f"tokenloom.foreign.{module}"), function)
    return found
