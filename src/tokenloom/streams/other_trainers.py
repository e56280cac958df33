"""Goes on with an interleaved run of another trainer, from the checkpoint that it saved.

One idea: what was consumed of each spec decides what comes next, except between equal counts. So
rows and tokens of every spec go on exactly, and a checkpoint from which they would not is refused.
The generator that the other trainer breaks ties with was never saved, so between equal counts the
order is ours: a hash of the seed and of what was consumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenloom.arguments import check_options, wrong_type
from tokenloom.errors import StateError
from tokenloom.streams.checkpoint import read_offsets
from tokenloom.streams.interleaved import MixedStream, interleave

__all__ = ["ContinuedStream", "continue_interleave"]

SETTINGS = ("length", "stop", "epochs", "seed", "rank", "world_size", "drop_last", "totals")

TIES = (
    "order: between specs that have consumed equally much, which one comes first is decided by "
    "tokenloom's hash; the generator of the other trainer is not in its checkpoint."
)


class ContinuedStream(NamedTuple):
    """A stream that goes on where another trainer stopped.

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
