"""The schema of a run file: the parameters of the functions that take its settings.

One idea: nothing is listed twice. A section of the file becomes the arguments of one function
(``pack:`` those of `Store.pack`, ``loader:`` those of `Loader`), so its keys, types and defaults
are read from the signature, and a new option is in the file, in its errors and in the JSON schema
as soon as the function has it. Here is only what a signature does not say: which sections there
are, what is not for files, and the words for None.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
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
from tokenloom.documents.spec import SelectSpec
from tokenloom.loader.loader import Loader

LAYOUTS = ("windows", "pack", "splice")

NONE = {
    "epochs": "endless",
    "shuffle": "none",
    "content_length": "fit",
    "tokenizer": "none",
    "bos": "none",
    "eos": "none",
    "pad": "none",
    "eos_id": "none",
    "ignore_id": "none",
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
    select = _form("Select", SelectSpec, "select", within=None)
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
