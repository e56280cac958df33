"""From datasets and a `MixSpec` to the run of all of them together.

One idea: each source runs under its own name, with the nearest seed and without an end; when the
mix ends, and what is changed on the way, is decided by costs alone (`tokenloom.mixture.stages`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tokenloom.arguments import check_names
from tokenloom.documents.resolve import Choice
from tokenloom.errors import ConfigError, plural
from tokenloom.layout.kinds import LayoutSpec
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import MixSpec
from tokenloom.mixture.stages import Change, Source, stages_of
from tokenloom.order.costs import Costs
from tokenloom.order.grown import grown_run
from tokenloom.order.prices import SpanCount, costs_of
from tokenloom.order.run import SourceRun
from tokenloom.order.shuffle import Shuffle
from tokenloom.store.reader import Reader

__all__ = ["MixSource", "check_spec", "mixed_run"]

Grower = Callable[[int], tuple[Costs, int | None]]

ENDLESS = 1 << 60  # rows; nobody goes through more


@dataclass(frozen=True, slots=True)
class MixSource:
    """A source as a mix takes it.

    Attributes:
        reader: its store.
        run: its rows, as they are alone.
        layout: how rows are cut.
        choice: which documents; None is all of them.
        shuffle: how rows are ordered, as it was given.
        epochs: after how many it counts as exhausted; None is never.
        seed: its own, if it has one.
        count: what is counted of its rows, for cost="loss_tokens".
    """

    reader: Reader
    run: SourceRun
    layout: LayoutSpec
    choice: Choice | None
    shuffle: Shuffle | None
    epochs: int | None
    seed: int | None
    count: SpanCount | None


def mixed_run(
    sources: Mapping[str, MixSource],
    spec: MixSpec,
    appended: Mapping[tuple[int, str], Reader],
    shuffle: Shuffle | None,
) -> MixedRun:
    """The run of several sources.

    Args:
        sources: by name, as listed; those that join later included.
        spec: how to mix.
        appended: (number of the edit, source) → its store as it was then.
        shuffle: of the whole.
    """
    runs = {name: _endless(name, source, spec) for name, source in sources.items()}
    joins = {name: j for j, edit in enumerate(spec.edits, 1) for name in edit.add}
    known = []
    for name, run in runs.items():
        if not run.rows:
            raise ConfigError(
                f"mix.{name}: it has no row, so there is nothing to draw. Leave it out."
            )
        costs, declared = _ends(run, sources[name], spec)
        known.append(Source(name, costs, declared, spec.initial.get(name, 0), joins.get(name, 0)))
    grow = _Growth(sources, spec, appended, runs)
    changes = [
        Change(e.at, e.weights, frozenset(e.remove), grow.of(number, e.append))
        for number, e in enumerate(spec.edits, 1)
    ]
    stages = stages_of(known, spec.weights, changes, spec.as_rule)
    # what grew has replaced its run
    every, seed = list(runs.values()), spec.seed or 0
    return MixedRun(every, stages, seed=seed, shuffle=shuffle, take=spec.take)


def _endless(name: str, source: MixSource, spec: MixSpec) -> SourceRun:
    """A source under the name that it has here, with the nearest seed, and without an end."""
    seed = source.seed if source.seed is not None else spec.seed
    return SourceRun(
        name=name, layout=source.run.layout, shuffle=source.shuffle, epochs=None, seed=seed or 0
    )


def _ends(
    run: SourceRun, source: MixSource, spec: MixSpec, shown: int = 0
) -> tuple[Costs, int | None]:
    """The costs of all items that a source may show, and after how many it counts as exhausted."""
    epochs, cap = source.epochs, spec.cap(run.name)
    declared = None if epochs is None else min(run.end_of(epochs), ENDLESS)
    most = None
    if cap is not None:
        whole = int(cap)
        begin, end = run.end_of(whole) if whole else 0, run.end_of(whole + 1)
        most = max(shown, begin + int((cap - whole) * (end - begin) + 1e-9))
        if not most:
            raise ConfigError(
                f"max_epochs.{run.name}: found {cap:g}, which is less than one of its "
                f"{plural(run.rows, 'row')}. Leave the source out if it is not to be drawn from."
            )
        declared = most if declared is None else min(declared, most)
    if spec.stop == "all_exhausted":
        if declared is None:
            raise ConfigError(
                f"stop: found 'all_exhausted', but source {run.name!r} is endless (epochs=None). "
                "Give it epochs, or take another rule to stop."
            )
        most = declared
    return costs_of(run, spec.cost, most, source.count), declared


class _Growth:
    """Makes the runs of sources that grow; each replaces the one before it."""

    def __init__(
        self,
        sources: Mapping[str, MixSource],
        spec: MixSpec,
        appended: Mapping[tuple[int, str], Reader],
        runs: dict[str, SourceRun],
    ) -> None:
        self._sources, self._spec, self._appended, self._runs = sources, spec, appended, runs

    def of(self, number: int, names: Iterable[str]) -> dict[str, Grower]:
        """For each of these sources what its costs are after edit `number`."""
        return {name: functools.partial(self._grow, number, name) for name in names}

    def _grow(self, number: int, name: str, at: int) -> tuple[Costs, int | None]:
        source, reader = self._sources[name], self._appended[number, name]
        run = grown_run(self._runs[name], source.layout, source.choice, reader, at)
        self._runs[name] = run
        return _ends(run, source, self._spec, at)


def check_spec(
    sources: Mapping[str, MixSource], spec: MixSpec, appended: Mapping[tuple[int, str], Reader]
) -> None:
    """Refuse settings and edits that speak of what is not there."""
    if isinstance(spec.max_epochs, Mapping):
        check_names("max_epochs", spec.max_epochs, list(sources))
    check_names("initial", spec.initial, list(sources))
    live, readers = list(spec.weights), {name: source.reader for name, source in sources.items()}
    for number, edit in enumerate(spec.edits, 1):
        check_names("edit.weights", edit.weights, [*live, *edit.add])
        check_names("edit.remove", edit.remove, live)
        check_names("edit.append", edit.append, live)
        readers |= {name: appended[number, name] for name in edit.append}
        for name, document in edit.quarantine:
            check_names("edit.quarantine", [name], list(sources))
            known = readers[name].manifest.documents
            if not 0 <= document < known:
                raise IndexError(f"edit.quarantine: {name} has {known:,} documents, no {document}.")
        live = [name for name in (*live, *edit.add) if name not in edit.remove]
