"""Offsets of sources as plain JSON, in the form that other least-consumed trainers save.

One idea: a checkpoint is a list of counts by spec, and outlives the list of sources::

    {"datasets": [{"spec": "hf:wiki", "row_offset": 123, "token_offset": 456}, …]}

- A run does not touch what it does not use: entries of other specs are kept, sorted at the end.
- A spec that is new, has no tokens yet, or was away starts at the *baseline*, the smallest count of
  those that were active: at 0, nothing else would be read until it has caught up.
- If some specs of a checkpoint are not active, a second key, `"active"`, lists those that are.

The picks of a run are the sum of its rows, so `interleave(offsets=…)` resumes with the same ties.
`continue_interleave` refuses a checkpoint from which a run of another trainer would not continue
exactly. The generator that the other trainer breaks ties with was never saved, so between equal
counts the order is ours. For the complete state of a stream use its `state_dict()`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenloom.arguments import MAX_COUNT, check_options, count_of, one_of, wrong_type
from tokenloom.errors import ConfigError, StateError
from tokenloom.streams.interleaved import MixedStream, interleave
from tokenloom.streams.picking import Offset

KEYS = ("row_offset", "token_offset")

SETTINGS = ("length", "stop", "epochs", "seed", "rank", "world_size", "drop_last", "totals")

TIES = (
    "order: between specs that have consumed equally much, which one comes first is decided by "
    "tokenloom's hash; the generator of the other trainer is not in its checkpoint."
)


def read_offsets(
    checkpoint: Mapping[str, Any] | None,
    specs: Iterable[str],
    *,
    missing: str = "baseline",
    totals: Mapping[str, int | None] | None = None,
    active: Iterable[str] | None = None,
) -> dict[str, Offset]:
    """The offset of each spec of a run, in the order of the specs.

    Args:
        checkpoint: what `write_offsets` returned, a checkpoint of another tool, or None.
        specs: the sources of the run.
        missing: a spec without tokens starts at the "baseline", or at "zero".
        totals: rows of a pass, where known; rows are then aligned (`align_rows`).
        active: the specs that were mixed when the checkpoint was written; default: those that the
            checkpoint lists as active, else those of the run.

    Raises:
        StateError: the checkpoint is damaged; the message lists every problem.

    >>> saved = {"datasets": [{"spec": "old", "row_offset": 9, "token_offset": 120}]}
    >>> read_offsets(saved, ["old", "new"])
    {'old': Offset(rows=9, tokens=120), 'new': Offset(rows=0, tokens=120)}
    >>> read_offsets(saved, ["new"], missing="zero")
    {'new': Offset(rows=0, tokens=0)}
    """
    one_of("missing", missing, ("baseline", "zero"))
    wanted = _specs(specs)
    entries, said = _read(checkpoint)
    mixed = set(wanted if said is None else said) if active is None else set(_specs(active))
    counted = [
        entries[s]["token_offset"] for s in entries if s in mixed and _has_tokens(entries[s])
    ]
    baseline = min(counted, default=0) if missing == "baseline" else 0

    def tokens(spec: str) -> int:
        entry = entries.get(spec, {})
        if not _has_tokens(entry):
            return baseline
        saved = int(entry["token_offset"])
        return saved if spec in mixed else max(saved, baseline)

    rows = {spec: entries.get(spec, {}).get("row_offset", 0) for spec in wanted}
    rows = align_rows(rows, totals or {})
    return {spec: Offset(rows[spec], tokens(spec)) for spec in wanted}


def write_offsets(
    offsets: Mapping[str, Offset],
    checkpoint: Mapping[str, Any] | None = None,
    *,
    active: Iterable[str] | None = None,
) -> dict[str, Any]:
    """A checkpoint of these offsets; entries of other specs in an earlier one are kept.

    Args:
        offsets: the offset of each spec of the run, in order.
        checkpoint: the one the run was resumed from, if any; it is not changed.
        active: the specs that have not ended; default: all specs of the run.

    >>> write_offsets({"wiki": Offset(123, 456)})
    {'datasets': [{'spec': 'wiki', 'row_offset': 123, 'token_offset': 456}]}
    """
    known, _ = _read(checkpoint)
    running = _specs(offsets)
    mixed = list(running if active is None else active)
    for spec in mixed:
        if spec not in offsets:
            raise ConfigError(f"active: found {spec!r}, allowed: the specs of the offsets.")
    current = [
        {
            **known.get(spec, {}),
            "spec": spec,
            "row_offset": offset.rows,
            "token_offset": offset.tokens,
        }
        for spec, offset in offsets.items()
    ]
    others = [copy.deepcopy(known[spec]) for spec in sorted(known) if spec not in offsets]
    kept = {key: copy.deepcopy(value) for key, value in (checkpoint or {}).items()}
    kept.pop("active", None)
    mark = {"active": mixed} if len(mixed) < len(current) + len(others) else {}
    return kept | {"datasets": current + others} | mark


class ContinuedStream(NamedTuple):
    """A stream that continues where another trainer stopped.

    Attributes:
        stream: the samples that were not consumed yet.
        notes: what is not as it would have been there, a sentence each.

    >>> saved = {"datasets": [{"spec": "a", "row_offset": 1, "token_offset": 2}]}
    >>> made = continue_interleave(saved, {"a": [[1, 1], [2]]})
    >>> [sample.row for sample in made.stream], made.notes[0].partition(":")[0]
    ([1], 'order')
    """

    stream: MixedStream
    notes: tuple[str, ...]


def continue_interleave(
    checkpoint: Mapping[str, Any], sources: Mapping[str, Any], **settings: Any
) -> ContinuedStream:
    """The stream of these sources after what a checkpoint says was consumed.

    Args:
        checkpoint: ``{"datasets": [{"spec", "row_offset", "token_offset"}]}``.
        sources: spec → source, as for `interleave`; in the order in which they were.
        settings: length, stop, epochs, seed, rank, world_size, drop_last and totals of
            `interleave`. The rule is "least_consumed", by tokens, with equal weights.

    Raises:
        StateError: the checkpoint lacks a count, or its specs are not those of the sources.

    >>> saved = {"datasets": [{"spec": "a", "row_offset": 2, "token_offset": 4},
    ...                       {"spec": "b", "row_offset": 1, "token_offset": 9}]}
    >>> stream, notes = continue_interleave(saved, {"a": [[1, 1]] * 5, "b": [[2] * 9] * 2})
    >>> [(sample.source, sample.row) for sample in stream]
    [('a', 2), ('a', 3), ('a', 4), ('b', 1)]
    >>> len(notes)
    1
    """
    check_options("continue_interleave", settings, SETTINGS)
    if not isinstance(checkpoint, Mapping):
        raise wrong_type("checkpoint", checkpoint, "an object with the key 'datasets'")
    offsets = read_offsets(checkpoint, sources)  # also refuses a damaged one
    _check_entries(checkpoint.get("datasets", ()), sources)
    stream = interleave(sources, rule="least_consumed", cost="tokens", offsets=offsets, **settings)
    return ContinuedStream(stream, (TIES,))


def align_rows(rows: Mapping[str, int], totals: Mapping[str, int | None]) -> dict[str, int]:
    """Rows minus the passes that all sources have completed, at most one pass each.

    Args:
        rows: rows consumed of each source.
        totals: rows of a pass; None, or no entry, if unknown.

    >>> align_rows({"a": 15, "b": 3}, {"a": 10, "b": 10})
    {'a': 10, 'b': 3}
    >>> align_rows({"a": 12, "b": 15}, {"a": 10, "b": 10})
    {'a': 2, 'b': 5}
    """
    known = {name: totals.get(name) for name in rows}
    for name, total in known.items():
        count_of(f"totals.{name}", total or 0)
    passes = 0
    if all(total is not None for total in known.values()):
        passes = min((rows[name] // total for name, total in known.items() if total), default=0)
    aligned = {}
    for name, count in rows.items():
        total = known[name]
        aligned[name] = count if total is None else min(count - passes * total, total)
    return aligned


def locate_row(shard_rows: Sequence[int], row: int) -> tuple[int, int]:
    """(shard, row in it) after `row` rows; (number of shards, 0) after all of them.

    Args:
        shard_rows: rows of each shard; a shard may be empty.
        row: rows to skip.

    >>> locate_row([3, 3], 4), locate_row([3, 3], 3), locate_row([3, 3], 6)
    ((1, 1), (1, 0), (2, 0))
    """
    for number, count in enumerate(shard_rows):
        count_of(f"shard_rows[{number}]", count)
    ends = np.cumsum(np.array([0, *shard_rows], np.int64))
    if count_of("row", row) > ends[-1]:
        raise ConfigError(f"row: found {row}, allowed: 0 to {ends[-1]}, the rows of all shards.")
    shard = int(np.searchsorted(ends[1:], row, side="right"))
    return shard, row - int(ends[shard])


# -- reading -----------------------------------------------------------------------------------
def _specs(given: Iterable[str]) -> list[str]:
    if isinstance(given, str):
        raise ConfigError(f"specs: found the text {given!r}, allowed: a list of specs.")
    specs = list(given)
    for spec in specs:
        if not isinstance(spec, str) or specs.count(spec) > 1:
            raise ConfigError(f"specs: found {spec!r}, allowed: a list of distinct strings.")
    return specs


def _has_tokens(entry: Mapping[str, Any]) -> bool:
    return entry.get("token_offset") is not None


def _read(checkpoint: Any) -> tuple[dict[str, dict[str, Any]], list[str] | None]:
    """The entries by spec, and those listed as active."""
    if checkpoint is None:
        return {}, None
    if not isinstance(checkpoint, Mapping):
        raise _damaged([f"checkpoint: found {_shown(checkpoint)}, allowed: an object"])
    listed = checkpoint.get("datasets", [])
    if not isinstance(listed, (list, tuple)):
        raise _damaged([f"datasets: found {_shown(listed)}, allowed: a list"])
    problems: list[str] = []
    entries: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(listed):
        wrong = _wrong(entry, entries)
        problems += [f"datasets[{number}]{text}" for text in wrong]
        if not wrong:
            entries[entry["spec"]] = dict(entry)
    said = checkpoint.get("active")
    if said is not None and not (
        isinstance(said, (list, tuple)) and all(isinstance(s, str) and s in entries for s in said)
    ):
        problems.append(f"active: found {_shown(said)}, allowed: a list of specs of datasets")
    if problems:
        raise _damaged(problems)
    return entries, None if said is None else list(said)


def _wrong(entry: Any, before: Mapping[str, Any]) -> list[str]:
    if not isinstance(entry, Mapping):
        return [f": found {_shown(entry)}, allowed: an object"]
    spec = entry.get("spec")
    if not isinstance(spec, str):
        return [f".spec: found {_shown(spec)}, allowed: a string"]
    wrong = [f".spec: found {spec!r} twice, allowed: every spec once"] if spec in before else []
    for key in KEYS:
        value = entry.get(key)
        absent = value is None and (key == "token_offset" or key not in entry)
        if not absent and (type(value) is not int or not 0 <= value <= MAX_COUNT):
            wrong.append(f".{key}: found {_shown(value)}, allowed: an integer from 0 to 2^63 - 1")
    return wrong


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def _damaged(problems: list[str]) -> StateError:
    more = [f"and {len(problems) - 20} more"] if len(problems) > 20 else []
    return StateError(
        "\n".join(problems[:20] + more)
        + "\nIt is not a checkpoint of offsets. Allowed: what write_offsets wrote."
    )


def _check_entries(entries: Sequence[Mapping[str, Any]], sources: Mapping[str, Any]) -> None:
    """Refuse what would not go on exactly; all reasons at once."""
    known = {entry["spec"]: entry for entry in entries}
    problems = [
        f"datasets: no entry for {spec!r}. It was not part of that run, so nothing says where it "
        "starts; read_offsets starts it at the smallest count of the others."
        for spec in sources
        if spec not in known
    ]
    problems += [
        f"datasets: the entry of {spec!r} has no source. Without it the others would come in "
        "another order; name it, or use read_offsets to go on without it."
        for spec in known
        if spec not in sources
    ]
    problems += [
        f"datasets: the entry of {spec!r} has no {key}, which decides when its rows come. Use "
        "read_offsets, which takes the smallest count of the others."
        for spec, entry in known.items()
        for key in ("row_offset", "token_offset")
        if entry.get(key) is None
    ]
    if problems:
        raise StateError("\n".join(problems))
