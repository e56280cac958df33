"""The schema of a run file: the parameters of the functions that take its settings.

Nothing is listed twice. A section of the file becomes the arguments of one function (``pack:``
those of `Store.pack`, ``loader:`` those of `Loader`), so its keys, types and defaults are read from
the signature, and a new option is in the file, in its errors and in the JSON schema as soon as the
function has it. Here is only what a signature does not say: which sections there are, what is not
for files, and the words for None.

An editor that knows the JSON schema completes keys, shows what they mean (in the words of the
docstrings) and underlines a typo before anything runs. A schema cannot say everything that
`tokenloom.load` checks (what fits together, what is in a store): it never refuses what loads.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import field, make_dataclass
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

LAYOUTS = ("windows", "pack", "splice")

SHUFFLES = ("none", "full", "block")

NONE = {
    "epochs": "endless",
    "content_length": "fit",
    **dict.fromkeys(("shuffle", "tokenizer", "bos", "eos", "pad", "eos_id", "ignore_id"), "none"),
}

"""Key → the word that a file has for None, where None is a value and not the same as no key."""

_CODE = "a run file names no code; call tokenloom.build(...) in Python and give its store here"

_PLACE = "a run file is the same for every rank; the loader finds its own"

OMITTED = {
    "build.filter": _CODE,
    "build.transform": _CODE,
    "build.files": _CODE,
    "build.append": "a run file says what is built, not what is added; call tokenloom.build(...)",
    "build.overwrite": "loading a run removes no store; call tokenloom.build(...)",
    "loader.rank": _PLACE,
    "loader.world_size": _PLACE,
    "loader.group": _PLACE,
    "store.source": "a run file names paths; call tokenloom.open(...) in Python",
}

"""Section and parameter that are not for files → why, and what to do instead."""

Kind = type[Any]

_WRITABLE = (int, float, bool, str)


@functools.cache
def signature_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Parameter → (hint, default) of a function, without `self`.

    >>> signature_of(Store.split)["by"]
    (<class 'str'>, 'id')
    """
    hints = typing.get_type_hints(function)
    found = inspect.signature(function).parameters.values()
    return {one.name: (hints[one.name], one.default) for one in found if one.name != "self"}


def _written(hint: Any) -> Any:
    """A hint as `tokenloom.bind` reads it: only what plain data can hold; None if nothing can."""
    if hint is Any or hint in _WRITABLE:
        return hint
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [one for one in map(_written, inside) if one is not None]
        return Any if Any in kept else functools.reduce(_or, kept, None)
    if origin in (collections.abc.Sequence, collections.abc.Iterable, tuple):
        return tuple[_written(inside[0]), ...]  # type: ignore[misc]
    if origin in (collections.abc.Mapping, dict):
        return dict[str, _written(inside[1])]  # type: ignore[misc]
    return None


def _or(one: Any, other: Any) -> Any:
    return other if one is None else one | other


def _form(name: str, function: Callable[..., Any], section: str, **others: Any) -> Kind:
    """A record with the parameters of a function; `others` are further fields, or other hints."""
    found = {n: _written(hint) for n, (hint, _) in signature_of(function).items()}
    hints = {n: hint for n, hint in found.items() if hint is not None} | others
    kept = {
        n: _or(hint, str) if n in NONE and hint not in (None, Any) else hint
        for n, hint in hints.items()
        if f"{section}.{n}" not in OMITTED
    }
    return _record(name, kept)


def _record(name: str, hints: dict[str, Any]) -> Kind:
    """A record whose every field may be left out; bound values are taken only where written."""
    fields: list[Any] = [(n, hint, field(default=None)) for n, hint in hints.items() if hint]
    return make_dataclass(name, fields, frozen=True, kw_only=True)


@functools.cache
def int_keyed(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that may be mappings whose keys are integers.

    >>> sorted(int_keyed(mix))
    ['stages']
    """

    def has(hint: Any) -> bool:
        inside = typing.get_args(hint)
        if typing.get_origin(hint) is collections.abc.Mapping:
            return inside[0] is int
        return any(map(has, inside))

    return frozenset(name for name, (hint, _) in signature_of(function).items() if has(hint))


@functools.cache
def run_form() -> Kind:
    """The record of a whole file."""
    store = _form("Store", open_store, "store", path=str, digest=str)
    stores = str | store
    select = _form("Select", selection.SelectSpec, "select", within=None)
    others = {"splice": {"doc_strides": tuple[int, ...]}}  # a spec tells 16 from 16.0
    layouts = {
        name: int | _form(name.capitalize(), getattr(Documents, name), name, **others.get(name, {}))
        for name in LAYOUTS
    }
    of_source = {
        "store": stores,
        "split": _form("Split", Store.split, "split", part=str),
        "select": select | tuple[select, ...],  # type: ignore[valid-type]
        **layouts,
        "render": _form("Render", Dataset.render, "render"),
        "shuffle": bool | int | str | dict[str, Any],
        "epochs": int | str,
        "seed": int,
    }
    source = _record("Source", of_source)
    held = _record("EvaluationSet", {**of_source, "content": str})
    settings = _form("Build", build_store, "build", inputs=None, out=None, tokenizer=str)
    one = _form(
        "StoreBuild", build_store, "build", inputs=str | tuple[str, ...], out=None, tokenizer=str
    )
    inputs = str | tuple[str, ...] | one
    hints = typing.get_type_hints(settings)
    build = _record("Build", {**hints, "stores": dict[str, inputs]})  # type: ignore[valid-type]
    edit = _form(
        "Edit",
        Dataset.edit,
        "edit",
        add=tuple[str, ...],
        quarantine=tuple[tuple[str | int, ...], ...],
        append=dict[str, stores],  # type: ignore[valid-type]
    )
    return _record(
        "Run",
        {
            "seed": int,
            "seq_len": int,
            "build": build,
            "sources": dict[str, source],  # type: ignore[valid-type]
            "mix": _form(
                "Mix", mix, "mix", sources=None, shuffle=bool | int | str | dict[str, Any]
            ),
            "take": int | _form("Take", Dataset.take, "take"),
            "edits": tuple[edit, ...],  # type: ignore[valid-type]
            "loader": _form("Loader", Loader.__init__, "loader", dataset=None),
            "evaluate": dict[str, held],  # type: ignore[valid-type]
        },
    )


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


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of run files, for editors.

    >>> schema = json_schema()
    >>> schema["$defs"]["Loader"]["properties"]["end"]["enum"]
    ['drop', 'pad', 'wrap']
    """
    found: dict[str, Any] = {}
    top = _defined(run_form(), found)
    found["Run"]["properties"]["$schema"] = {"type": "string"}
    run = found.pop(top)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A run of tokenloom",
        **run,
        "$defs": {**found, "Shuffle": _shuffle()},
    }


def _defined(record: type, found: dict[str, Any]) -> str:
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
        return {"$ref": f"#/$defs/{_defined(typing.cast(type, hint), found)}"}
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
