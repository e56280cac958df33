"""A dataset as plain JSON: its identity, and how two datasets differ.

One idea: the description *is* the configuration. `Dataset.describe()` writes it, `from_config`
reads it, and the fingerprint is a hash of the part that decides which tokens are trained when.
Paths, batch sizes, ranks and caches are not in that part; rendering has a hash of its own.

Permissions (`different_tokenizers`) are not in it: they change nothing that is shown.

The end of a run is not in it either: `take`, and the `epochs` of a single source, decide how far a
run goes and not what is where in it, so a longer run continues a shorter one. In a mix, `epochs`
and `stop` decide when sources drop out or restart, so they are part of it. A finite dataset is
identified by its fingerprint and its number of examples.

In a mix, a split of many parts is written once, under its hash (`splits`), and every source refers
to it, so a description grows with its sources and not with their square.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tokenloom.store.format import canonical

FORMAT = "tokenloom.dataset/2"

STATE_FORMAT = "tokenloom.state/3"

# where a source is and how much of it is kept in memory, not what it is
_ELSEWHERE = (
    *("store.path", "store.snapshot", "store.foreign"),
    *("shuffle.cache_windows", "mix.shuffle.cache_windows"),
)

_ENDS = ("epochs", "take", "mix.take")

_PERMITTED = ("mix.different_tokenizers",)  # what was allowed, not what is shown

_NAMED = ("splits",)  # sources name them by their hashes


def identity(description: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a description that decides what is trained when, as flat keys."""
    mix = description.get("mix")
    counts_loss = isinstance(mix, Mapping) and mix.get("cost") == "loss_tokens"
    aside = _ELSEWHERE if counts_loss else (*_ELSEWHERE, "render")  # masks may decide the order
    found: dict[str, Any] = {}
    whole = frozenset((*aside, *_ENDS, *_PERMITTED, *_NAMED))
    sources = description.get("sources")
    if not isinstance(sources, (list, tuple)) or not sources:
        _put_leaves(found, "", description, "", whole)
        return found
    _put_leaves(found, "", {**description, "sources": None}, "", whole | {"sources"})
    of_each = frozenset(aside)
    for number, source in enumerate(sources):
        if isinstance(source, Mapping) and source:
            _put_leaves(found, f"sources[{number}].", source, "", of_each)
        else:
            found |= dict(flattened(source, f"sources[{number}]"))
    return found


def _put_leaves(
    found: dict[str, Any], prefix: str, value: Any, path: str, aside: frozenset[str]
) -> None:
    """Every leaf under prefix and path, except below paths that are left aside."""
    for name, inner in value.items():
        here = f"{path}.{name}" if path else str(name)
        if here in aside:
            continue
        if isinstance(inner, dict) and inner:
            _put_leaves(found, prefix, inner, here, aside)
        elif inner is None or isinstance(inner, (str, int, float)):
            found[prefix + here] = inner
        else:
            found |= ((prefix + leaf, one) for leaf, one in flattened(inner, here))


def fingerprint(description: Mapping[str, Any]) -> str:
    """The identity as 64 hex digits."""
    return chain(description)[-1]


def chain(description: Mapping[str, Any]) -> list[str]:
    """The fingerprint without edits, then after each edit; each one includes the one before it.

    A state saved before an edit has the fingerprint of that time.
    """
    edits, mix = edits_of(description), description.get("mix")
    sources = {source["name"]: source for source in description.get("sources", ())}
    joined = {name for edit in edits for name in edit["add"]}
    base = {key: value for key, value in description.items() if key != "edits"}
    if isinstance(mix, Mapping):
        base["mix"] = {key: value for key, value in mix.items() if key != "edits"}
        base["sources"] = [source for name, source in sources.items() if name not in joined]
    found = [_flat_digest(identity(base))]
    for edit in edits:
        cost = mix.get("cost") if isinstance(mix, Mapping) else None
        added = {"mix": {"cost": cost}, "sources": [sources[n] for n in edit["add"]]}
        grown = {name: one["digest"] for name, one in edit.get("append", {}).items()}
        found.append(_digest([found[-1], {**edit, "append": grown}, identity(added)]))
    return found


def edits_of(description: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The edits of a description, of one source or of a mix."""
    mix = description.get("mix")
    holder = mix if isinstance(mix, Mapping) else description
    return list(holder.get("edits", ()))


def renders(description: Mapping[str, Any]) -> Any:
    """How tokens become arrays; for a mix, by the name of each source."""
    if "mix" not in description:
        return description.get("render")
    return {source["name"]: source["render"] for source in description["sources"]}


def render_fingerprint(description: Mapping[str, Any]) -> str:
    """How tokens become arrays, as 64 hex digits."""
    return render_chain(description)[-1]


def render_chain(description: Mapping[str, Any]) -> list[str]:
    """The render fingerprint without edits, then after each edit, which may add sources."""
    every = renders(description)
    if "mix" not in description:
        return [_digest(every)] * (1 + len(edits_of(description)))
    added = [edit["add"] for edit in edits_of(description)]
    joined = {name for names in added for name in names}
    now = {name: one for name, one in every.items() if name not in joined}
    found = [_render_digest(now)]
    for names in added:
        now |= {name: every[name] for name in names}
        found.append(_render_digest(now) if names else found[-1])
    return found


def _render_digest(renders: Mapping[str, Any]) -> str:
    """`_digest` of renderings by name; those that several sources share are written once."""
    known: dict[str, str] = {}
    lines = []
    for name in sorted(renders):
        plain = json.dumps(renders[name], sort_keys=True)
        if plain not in known:
            known[plain] = canonical(renders[name]).decode().replace("\n", "\n ")
        lines.append(f"\n {json.dumps(name, ensure_ascii=False)}: {known[plain]}")
    text = f"{{{','.join(lines)}\n}}" if lines else "{}"
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def _flat_digest(flat: Mapping[str, Any]) -> str:
    """`_digest` of leaves. JSON with an indent is written by Python, JSON in one line by C."""
    if not flat:
        return _digest(flat)
    text = json.dumps(
        flat, sort_keys=True, separators=(",\n ", ": "), allow_nan=False, ensure_ascii=False
    )
    return hashlib.sha256(f"{{\n {text[1:-1]}\n}}".encode()).hexdigest()


def copied(plain: Any) -> Any:
    """Plain JSON with objects and lists of its own.

    >>> copied({"a": [1, {"b": None}]})
    {'a': [1, {'b': None}]}
    """
    if type(plain) is dict:
        made = plain.copy()
        for name, inner in plain.items():
            if type(inner) in (dict, list):  # few are
                made[name] = copied(inner)
        return made
    return [copied(inner) if type(inner) in (dict, list) else inner for inner in plain]


def named_snapshots(value: Any) -> set[tuple[int, str]]:
    """(number, digest) of every snapshot named by a description, or by a state that holds one.

    >>> named_snapshots({"store": {"snapshot": 2, "digest": "ab", "path": "x"}})
    {(2, 'ab')}
    """
    found, left = set(), [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            number, digest = one.get("snapshot"), one.get("digest")
            if isinstance(number, int) and isinstance(digest, str):
                found.add((number, digest))
            left += one.values()
        elif isinstance(one, list):
            left += one
    return found


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of plain JSON with its path.

    >>> dict(flattened({"a": {"b": 1}, "c": [2, 3]}))
    {'a.b': 1, 'c[0]': 2, 'c[1]': 3}
    """
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flattened(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)) and value:
        for number, inner in enumerate(value):
            yield from flattened(inner, f"{path}[{number}]")
    else:
        yield path, value


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for every key in which two descriptions differ, with both values.

    >>> differences({"seed": 7, "layout": {"seq_len": 8}}, {"seed": 7, "layout": {"seq_len": 16}})
    ['layout.seq_len: the state has 8, this run has 16']
    """
    old, new = identity(saved), identity(now)
    gone = object()
    lines = []
    for path in sorted(old.keys() | new.keys()):
        a, b = old.get(path, gone), new.get(path, gone)
        deeper = f"{path}."  # None on one side, keys on the other: only the keys are listed
        if (a is None and b is gone and any(key.startswith(deeper) for key in new)) or (
            b is None and a is gone and any(key.startswith(deeper) for key in old)
        ):
            continue
        if a != b:
            shown = ["nothing" if value is gone else repr(value) for value in (a, b)]
            lines.append(f"{path}: the state has {shown[0]}, this run has {shown[1]}")
    return lines
