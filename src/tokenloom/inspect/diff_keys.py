"""Two descriptions: the parts in which they differ, and a run with one of them changed.

One idea: what a key decides is found by trying it. `changes` lists the smallest parts that differ
and make sense alone, `with_change` rebuilds a run with one of them taken from the other run. A
store is one part, because its digest, path and sizes belong together. So are a shuffle or a layout
of another kind, the edits with the sources that they add, and the other sources with their weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.describe import copied
from tokenloom.api.rebuild import rebuild

Path = tuple[str | int, ...]

Plain = Mapping[str, Any]

MISSING = "(none)"  # stands for a key that a description does not have


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPart:
    """One part in which two descriptions differ.

    Attributes:
        key: its path, as in a description; sources go by their names.
        a, b: the two values.
        set: path in the first description → value that it gets; `MISSING` removes the key.
        stores: sources whose stores come from the second run.
        edits: whether the edits come from the second run.
    """

    key: str
    a: Any
    b: Any
    set: Mapping[Path, Any] = field(default_factory=dict)
    stores: tuple[str, ...] = ()
    edits: bool = False


def changes(a: Plain, b: Plain) -> Iterator[KeyPart]:
    """The parts in which two descriptions differ, smallest first where that is possible."""
    if ("mix" in a) != ("mix" in b):
        yield KeyPart(key="mix", a=a.get("mix", MISSING), b=b.get("mix", MISSING))
        return
    if "mix" not in a:
        yield from _of_source("", (), a, b, b.get("splits", {}))
        return
    mine, yours = _by_name(a), _by_name(b)
    yield from _of_mix(a, b, mine, yours)
    for number, name in enumerate(mine):
        if name in yours:
            here = f"sources[{name}].", ("sources", number)
            yield from _of_source(*here, mine[name], yours[name], b.get("splits", {}))


def _by_name(description: Plain) -> dict[str, Plain]:
    return {source["name"]: source for source in description["sources"]}


def _joined(description: Plain) -> set[str]:
    """Sources that edits add."""
    return {name for edit in description["mix"].get("edits", ()) for name in edit["add"]}


def _of_mix(
    a: Plain, b: Plain, mine: Mapping[str, Plain], yours: Mapping[str, Plain]
) -> Iterator[KeyPart]:
    """What differs in how sources are mixed, and in which ones there are."""
    late, later = _joined(a), _joined(b)
    splits = {**a.get("splits", {}), **b.get("splits", {})}
    kept: dict[Path, Any] = {("splits",): splits} if splits else {}
    old, new = a["mix"], b["mix"]
    if [n for n in mine if n not in late] != [n for n in yours if n not in later]:
        names = [*(n for n in yours if n not in later), *(n for n in mine if n in late)]
        sources = [mine.get(name) or yours[name] for name in names]
        weights = {n: old["weights"].get(n, w) for n, w in new["weights"].items()}
        fresh = tuple(name for name in names if name not in mine)
        told = kept | {("sources",): sources, ("mix", "weights"): weights}
        yield KeyPart(key="sources", a=[*mine], b=[*yours], set=told, stores=fresh)
    for name in [one for one in old["weights"] if one in new["weights"]]:
        yield from _leaf(
            "mix.weights." + name, ("mix", "weights", name), old["weights"], new["weights"]
        )
    if old.get("edits") != new.get("edits"):
        sources = [one for name, one in mine.items() if name not in late]
        sources += [yours[name] for name in yours if name in later]
        told = kept | {("mix", "edits"): new["edits"], ("sources",): sources}
        part = {"a": old["edits"], "b": new["edits"], "stores": tuple(sorted(later - mine.keys()))}
        yield KeyPart(key="mix.edits", set=told, edits=True, **part)
    for name in sorted((old.keys() | new.keys()) - {"weights", "edits"}):
        yield from _leaf("mix." + name, ("mix", name), old, new)


def _of_source(key: str, path: Path, a: Plain, b: Plain, splits: Plain) -> Iterator[KeyPart]:
    """What differs in one source."""
    for name in sorted((a.keys() | b.keys()) - {"splits"}):
        mine, yours = a.get(name, MISSING), b.get(name, MISSING)
        if mine == yours:
            continue
        told: dict[Path, Any] = {(*path, name): yours}
        if name == "store" and mine["digest"] != yours["digest"]:
            stores = (str(a["name"]),)
            yield KeyPart(key=key + name, a=mine["path"], b=yours["path"], set=told, stores=stores)
        elif name == "choice" and path and splits:
            told[("splits",)] = splits
            yield KeyPart(key=key + name, a=mine, b=yours, set=told)
        elif name == "edits":
            yield KeyPart(key=key + name, a=mine, b=yours, set=told, edits=True)
        elif _go_on(name, mine, yours):
            for inner in sorted(mine.keys() | yours.keys()):
                yield from _leaf(f"{key}{name}.{inner}", (*path, name, inner), mine, yours)
        else:
            yield KeyPart(key=key + name, a=mine, b=yours, set=told)


def _go_on(name: str, a: Any, b: Any) -> bool:
    """Whether the keys of two parts can be looked at one by one: they are of one kind."""
    both = isinstance(a, Mapping) and isinstance(b, Mapping)
    return both and name != "choice" and a.get("kind") == b.get("kind")


def _leaf(key: str, path: Path, a: Plain, b: Plain) -> Iterator[KeyPart]:
    """One key of two parts, if it differs."""
    mine, yours = a.get(str(path[-1]), MISSING), b.get(str(path[-1]), MISSING)
    if mine != yours:
        yield KeyPart(key=key, a=mine, b=yours, set={path: yours})


def with_change(a: Dataset, b: Dataset, part: KeyPart) -> Dataset:
    """The first run with one part of the second.

    Raises:
        TokenloomError: the part makes no sense without others.
    """
    config = a.describe()
    for path, value in part.set.items():
        _put(config, path, copied(value) if isinstance(value, (dict, list)) else value)
    readers = {(0, name): source.reader for name, source in a.sources.items()}
    readers |= {(0, name): b.sources[name].reader for name in part.stores}
    appended = (b if part.edits else a)._appended
    laid_out = [*a.sources.values(), *b.sources.values()]
    return rebuild(config, None, {}, {**readers, **appended}, laid_out)


def _put(config: Any, path: Path, value: Any) -> None:
    *parents, last = path
    for name in parents:
        config = config[name]
    if isinstance(value, str) and value == MISSING:
        config.pop(last, None)
    else:
        config[last] = value
