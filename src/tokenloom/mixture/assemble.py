"""Given sources, a rule and edits, builds one run of all of them.

One idea: each source is an endless run under its own name, with its own seed or the mix's. Costs
alone decide when the mix ends and what an edit changes (`tokenloom.mixture.stages`). A single
source without a rule needs none of that: its examples are its items, and it takes the two edits
that concern a single source, appended documents and hidden documents.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenloom.arguments import check_names
from tokenloom.errors import ConfigError, plural
from tokenloom.layout.layout import Layout
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit, MixSpec
from tokenloom.mixture.stages import TimedSource, check_moment, first_stage, next_stage
from tokenloom.order.costs import Costs, costs_of
from tokenloom.order.prices import SpanCount
from tokenloom.order.run import Blanks, SourceRun, grown_run, source_run
from tokenloom.order.shuffle import Shuffle
from tokenloom.order.spec import SourceConfig
from tokenloom.store.reader import Reader

Appended = Mapping[tuple[int, str], Reader]
"""(number of the edit, source) → the store of that source as of that edit."""

ENDLESS = 1 << 60  # rows; more than any run can show


@dataclass(frozen=True, slots=True)
class MixSource:
    """A source, as a run takes it.

    Attributes:
        config: the settings that decide its rows.
        layout: the layout of its rows.
        count: what to count in its rows, for cost="loss_tokens".
    """

    config: SourceConfig
    layout: Layout
    count: SpanCount | None = None


def single_run(
    source: MixSource,
    edits: Sequence[Edit] = (),
    appended: Appended | None = None,
    known: SourceRun | None = None,
) -> SourceRun:
    """The run of one source, with the documents that edits append and hide.

    Args:
        source: the source.
        edits: what changes during the run.
        appended: stores that grew.
        known: the run without the last edit, which is then all that is left to do.
    """
    config = source.config
    run = known or source_run(
        name=config.name,
        layout=source.layout,
        shuffle=config.shuffle,
        epochs=config.epochs,
        seed=config.seed or 0,
        take=config.take,
    )
    done = 0 if known is None else len(edits) - 1
    before = edits[done - 1].at if done else 0
    for number, edit in enumerate(edits[done:], done + 1):
        check_moment(edit.at, before, run.n)
        before = edit.at
        if edit.append:
            reader = (appended or {})[number, config.name]
            made = grown_run(run, config.layout, config.choice, reader, edit.at)
            ends = [None if config.epochs is None else made.end_of(config.epochs), config.take]
            run = made.ending(min((n for n in ends if n is not None), default=None))
        hidden = [document for _, document in edit.quarantine]
        if hidden:
            run = run.hiding(_hidden(run.blanks, dict.fromkeys(hidden, edit.at)))
    return run


def _hidden(known: Blanks | None, since: Mapping[int, int]) -> Blanks:
    """The documents of both; of one that is in both, the earlier item counts."""
    document = np.array(sorted(since), np.int64)
    fresh = Blanks(document, np.array([since[one] for one in document.tolist()], np.int64))
    if known is None:
        return fresh
    new = ~np.isin(fresh.document, known.document, assume_unique=True)
    both = np.concatenate([known.document, fresh.document[new]])
    order = np.argsort(both)
    return Blanks(both[order], np.concatenate([known.since, fresh.since[new]])[order])


def mixed_run(
    sources: Mapping[str, MixSource],
    spec: MixSpec,
    edits: Sequence[Edit],
    appended: Appended,
    shuffle: Shuffle | None,
    known: MixedRun | None = None,
) -> MixedRun:
    """The run of several sources.

    Args:
        sources: the sources by name, as listed, including those that join later.
        spec: how to mix.
        edits: what changes during the run.
        appended: stores of sources that grew.
        shuffle: shuffle of the mixed run as a whole.
        known: the run without the last edit and the sources that it adds, which come last. Only
            that edit is then left to do.
    """
    names = list(sources)
    if known is None:
        joins = {name: j for j, edit in enumerate(edits, 1) for name in edit.add}
        timed = [_timed(name, sources[name], spec, joins.get(name, 0)) for name in names]
        stages, done = [first_stage(timed, spec)], 0
        blanks: list[Blanks | None] = [None] * len(timed)
    else:
        stages, done = list(known.stages), len(edits) - 1
        late = names[len(known.timed) :]
        timed = [*known.timed, *(_timed(name, sources[name], spec, len(edits)) for name in late)]
        blanks = [*(run.blanks for run in known.sources), *(None for _ in late)]
    for number, edit in enumerate(edits[done:], done + 1):
        grow = {
            name: functools.partial(_grown, sources[name], spec, appended[number, name])
            for name in edit.append
        }
        stage, timed = next_stage(timed, stages[-1], edit, number, spec, grow)
        stages.append(stage)
        for name in sorted({name for name, _ in edit.quarantine}):
            place = names.index(name)
            hidden = [document for other, document in edit.quarantine if other == name]
            since = dict.fromkeys(hidden, stage.merge.clocks[place].first)
            blanks[place] = _hidden(blanks[place], since)
    runs = [
        one.run if hidden is None else one.run.hiding(hidden)
        for one, hidden in zip(timed, blanks, strict=True)
    ]
    return MixedRun(runs, stages, seed=spec.seed or 0, shuffle=shuffle, take=spec.take, timed=timed)


def _timed(name: str, source: MixSource, spec: MixSpec, joins: int) -> TimedSource:
    """A source of a mix, before any edit."""
    run = endless_run(name, source, spec)
    if not run.rows:
        raise ConfigError(f"mix.{name}: it has no rows, so there is nothing to draw. Leave it out.")
    if spec.rule == "levanter":
        _check_levanter(name, run)
    costs, declared = _ends(run, source, spec)
    return TimedSource(name, run, costs, declared, spec.initial.get(name, 0), joins)


def _check_levanter(name: str, run: SourceRun) -> None:
    """Refuse sources whose passes cannot be the same: Levanter takes an index modulo the length."""
    kind = "levanter" if run.shuffle is None else run.shuffle.perm_type
    if not kind.startswith("levanter"):
        raise ConfigError(
            f"mix.{name}: it is shuffled with perm_type={kind!r}, allowed with rule='levanter': "
            "stored order, or a shuffle with perm_type 'levanter' or 'levanter_linear'. The rule "
            "'random' takes every order."
        )
    if len(run.phases) > 1:
        raise ConfigError(
            f"mix.{name}: its epochs have different rows, but every pass is the same with "
            "rule='levanter'. Leave out what changes with the epoch, or use rule='random'."
        )


def _grown(
    source: MixSource, spec: MixSpec, reader: Reader, known: TimedSource, at: int
) -> TimedSource:
    """A source with the documents that its store has now, shown from item `at` on."""
    run = grown_run(known.run, source.config.layout, source.config.choice, reader, at)
    costs, declared = _ends(run, source, spec, at)
    return replace(known, run=run, costs=costs, declared=declared)


def endless_run(name: str, source: MixSource, spec: MixSpec) -> SourceRun:
    """The endless run of a source under its name in the mix, with its own seed or the mix's."""
    config = source.config
    seed = config.seed if config.seed is not None else spec.seed
    return source_run(
        name=name,
        layout=source.layout,
        shuffle=config.shuffle,
        epochs=None,
        seed=seed or 0,
        repeats=spec.rule == "levanter",
    )


def _ends(
    run: SourceRun, source: MixSource, spec: MixSpec, shown: int = 0
) -> tuple[Costs, int | None]:
    """The costs of all items a source may show, and how many items exhaust it."""
    epochs, cap = source.config.epochs, spec.cap(run.name)
    declared = None if epochs is None else min(run.end_of(epochs), ENDLESS)
    most = None
    if cap is not None:
        whole = int(cap)
        begin, end = run.end_of(whole) if whole else 0, run.end_of(whole + 1)
        most = max(shown, begin + int((cap - whole) * (end - begin) + 1e-9))
        if not most:
            raise ConfigError(
                f"max_epochs.{run.name}: found {cap:g}, which is less than one of its "
                f"{plural(run.rows, 'row')}. To draw nothing from the source, leave it out."
            )
        declared = most if declared is None else min(declared, most)
    if spec.stop == "all_exhausted":
        if declared is None:
            raise ConfigError(
                f"stop: found 'all_exhausted', but source {run.name!r} is endless (epochs=None). "
                "Give it epochs, or choose another stop."
            )
        most = declared
    return costs_of(run, spec.cost, most, source.count), declared


def check_edits(
    readers: Mapping[str, Reader],
    first: Sequence[str],
    edits: Sequence[Edit],
    appended: Appended,
    done: int = 0,
) -> None:
    """Refuse edits that name sources or documents that do not exist.

    Args:
        readers: the stores of all sources, including those that join later.
        first: names of the sources that are present from the start.
        edits: what changes during the run.
        appended: stores of sources that grew.
        done: how many of the edits are known to be right.
    """
    live, newest = list(first), dict(readers)
    for edit in edits[:done]:
        if edit.add or edit.remove:
            live = [name for name in (*live, *edit.add) if name not in edit.remove]
    newest |= {name: one for (number, name), one in sorted(appended.items()) if number <= done}
    for number, edit in enumerate(edits[done:], done + 1):
        check_names("edit.weights", edit.weights, [*live, *edit.add])
        check_names("edit.remove", edit.remove, live)
        check_names("edit.append", edit.append, live)
        newest |= {name: appended[number, name] for name in edit.append}
        for name, document in edit.quarantine:
            check_names("edit.quarantine", [name], list(readers))
            known = newest[name].manifest.documents
            if not 0 <= document < known:
                raise IndexError(
                    f"edit.quarantine: found document {document} of {name}, allowed: 0 to "
                    f"{known - 1:,}."
                )
        live = [name for name in (*live, *edit.add) if name not in edit.remove]
