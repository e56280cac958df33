"""The JSON schema of run files, for editors: made from the same records that read them.

One idea: an editor that knows the schema completes keys, shows what they mean and underlines a typo
before anything runs. The descriptions are those of the docstrings, the words are those that the
checks know. A schema cannot say everything that `tokenloom.load` checks (what fits together, what
is in a store): it never refuses what loads.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from typing import Any

from tokenloom.api.build import build_store
from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.mix import mix
from tokenloom.api.store import Store, open_store
from tokenloom.documents import spec as selection
from tokenloom.layout.pack.packers import STRATEGIES
from tokenloom.layout.pack.spec import OVERFLOWS, SEQUENTIAL
from tokenloom.layout.splice.spec import WORDS as SPLICE_WORDS
from tokenloom.loader.loader import Loader
from tokenloom.loader.steps import WORDS as LOADER_WORDS
from tokenloom.mixture.spec import COSTS, RULES, STOPS
from tokenloom.order.shuffle import BlockShuffle
from tokenloom.random.permute import PERM_TYPES
from tokenloom.runfiles.checks import SHUFFLES
from tokenloom.runfiles.schema import NONE, run_form

_RENDER: dict[str, tuple[str, ...]] = {
    "label_layout": ("aligned", "shifted"),
    "position_scheme": ("reset", "absolute"),
    "segments": ("documents", "eos"),
    "eos_mask": ("all", "inserted"),
    "trailing": ("filler", "doc"),
}

WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "Windows": {**_RENDER, "tail": ("drop", "keep")},
    "Pack": {**_RENDER, "strategy": (SEQUENTIAL, *STRATEGIES, "bin"), "overflow": OVERFLOWS},
    "Splice": {
        **_RENDER,
        **SPLICE_WORDS,
        "position_scheme": ("relative", "absolute", "reset"),
        "filler": ("pad", "eos"),
    },
    "Render": _RENDER,
    "Mix": {"rule": RULES, "cost": COSTS, "stop": STOPS},
    "Select": {
        "doc_select_mode": selection.MODES,
        "on_shortage": selection.SHORTAGES,
        "doc_index_policy": selection.INDEX_POLICIES,
    },
    "Split": {"by": ("id", "content")},
    "Loader": LOADER_WORDS,
}

"""Record → key → the words that it takes."""

TEXTS: dict[str, Any] = {
    "Windows": Documents.windows,
    "Pack": Documents.pack,
    "Splice": Documents.splice,
    "Render": Documents.windows,
    "Mix": mix,
    "Take": Dataset.take,
    "Edit": Dataset.edit,
    "Loader": Loader,
    "Build": build_store,
    "StoreBuild": build_store,
    "Store": open_store,
    "Select": selection.SelectSpec,
    "Split": Store.split,
}

"""Record → whose docstring describes its keys."""

OF_SOURCE = {
    "store": "path of the store, relative to this file",
    "split": "one part of a split by hash: shares, part",
    "select": "which documents",
    "windows": "token windows: seq_len, or arguments of Store.windows",
    "pack": "packed frames: seq_len, or arguments of Store.pack",
    "splice": "splices: seq_len, or arguments of Store.splice",
    "render": "labels, masks and positions other than the layout's",
    "shuffle": "none (as stored), full, block, the rows of an era, or fields of a shuffle",
    "epochs": "how often rows are shown; endless",
    "seed": "seed of its order, instead of the run's",
}

OWN = {
    "Run": {
        "seed": "seed of all orders; default: 0",
        "seq_len": "tokens of a frame, for every layout that does not say its own",
        "build": "stores that are made from text if they are not there yet",
        "sources": "what the run is made of, by name",
        "mix": "how the sources are mixed",
        "take": "the first examples only: their number, or {tokens: n}",
        "edits": "changes from an example on, oldest first",
        "loader": "arguments of tokenloom.Loader",
        "evaluate": "evaluation sets by name, written like sources; one document a row by default",
    },
    "Source": OF_SOURCE,
    "EvaluationSet": {
        **OF_SOURCE,
        "content": "hash that its documents must have; tokenloom check prints it",
    },
    "Build": {"stores": "directory of a store → its inputs, or inputs and own settings"},
    "Mix": {"shuffle": "a shuffle of the whole mix; usually the sources have their own"},
    "Split": {"part": "the part to use"},
    "Store": {"digest": "digest that the store must have"},
}


@functools.cache
def _json_schema() -> dict[str, Any]:
    found: dict[str, Any] = {}
    top = _record(run_form(), found)
    found["Run"]["properties"]["$schema"] = {"type": "string"}
    run = found.pop(top)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of tokenloom",
        **run,
        "$defs": {**found, "Shuffle": _shuffle()},
    }


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of run files, for editors.

    >>> schema = json_schema()
    >>> schema["$defs"]["Loader"]["properties"]["end"]["enum"]
    ['drop', 'pad', 'wrap']
    """
    return dict(_json_schema())


def _record(record: type, found: dict[str, Any]) -> str:
    """Put the definition of a record under its name; answers the name."""
    name = record.__name__
    if name in found:
        return name
    found[name] = {}  # the name is taken while its fields are read
    hints, told = typing.get_type_hints(record), _told(name)
    properties = {}
    for one in dataclasses.fields(record):
        words = WORDS.get(name, {}).get(one.name)
        made = {"enum": list(words)} if words else _of(hints[one.name], one.name, found)
        if one.name in told:
            made = {"description": told[one.name], **made}
        properties[one.name] = made
    required = [key for key in REQUIRED.get(name, ()) if key in properties]
    found[name] = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
    }
    return name


REQUIRED = {
    "Run": ("sources",),
    "Source": ("store",),
    "Store": ("path",),
    "Split": ("shares", "part"),
    "Edit": ("at",),
    "StoreBuild": ("inputs",),
}


def _of(hint: Any, name: str, found: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value."""
    if name == "shuffle":
        return {"$ref": "#/$defs/Shuffle"}
    if hint is Any:
        return {}
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{_record(typing.cast(type, hint), found)}"}
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_option(one, name, found) for one in inside]}
    if origin is tuple:
        return {"type": "array", "items": _of(inside[0], "", found)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inside[1], "", found)}
    return {"type": TYPES[hint]}


TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def _option(hint: Any, name: str, found: dict[str, Any]) -> dict[str, Any]:
    """One of several kinds of value; text beside a number is the word for None."""
    if hint is str and name in NONE and name not in ("tokenizer", "bos", "eos", "pad"):
        return {"const": NONE[name]}
    return _of(hint, name, found)


def _shuffle() -> dict[str, Any]:
    names = [one.name for one in dataclasses.fields(BlockShuffle)]
    fields: dict[str, Any] = {name: {"type": "integer", "minimum": 1} for name in names}
    fields |= {"perm_type": {"enum": list(PERM_TYPES)}, "length": {"type": "integer", "minimum": 1}}
    fields["kind"] = {"enum": ["full", "era", "block"]}
    block = {"type": "object", "additionalProperties": False, "properties": fields}
    number = {"type": "integer", "minimum": 1}
    return {"anyOf": [{"enum": list(SHUFFLES)}, {"type": "boolean"}, number, block]}


@functools.cache
def _told(name: str) -> dict[str, str]:
    """Key → what the docstring of its function says of it."""
    text = inspect.getdoc(TEXTS[name]) or "" if name in TEXTS else ""
    found = re.search(
        r"^(?:Args|Attributes):\n(.*?)(?:\n\n|\n\w|\Z)", text, re.DOTALL | re.MULTILINE
    )
    entries = re.split(r"\n {4}(?=\w)", "\n" + found[1]) if found else []
    told: dict[str, str] = {}
    for entry in entries:
        keys, _, words = entry.partition(":")
        told |= {key.strip(): " ".join(words.split()) for key in keys.split(",")}
    return told | OWN.get(name, {})
