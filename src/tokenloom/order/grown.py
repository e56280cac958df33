"""The run of a source whose store grew in the middle of the run.

One idea: appended documents get rows of their own, after the existing rows
(`tokenloom.layout.joined`), and the orders of the epochs continue (`tokenloom.order.epochs`). What
was shown stays as it was.
"""

from __future__ import annotations

import numpy as np

from tokenloom.documents.line import ChosenLine, Line, WholeLine
from tokenloom.documents.resolve import Choice, choose_documents
from tokenloom.documents.spec import SelectSpec
from tokenloom.errors import ConfigError
from tokenloom.layout.joined import Joined
from tokenloom.layout.kinds import LayoutSpec, make_layout
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.order.epochs import FreshEpochs, GrownEpochs
from tokenloom.order.run import SourceRun
from tokenloom.order.working_set import WorkingSet
from tokenloom.store.reader import Reader

__all__ = ["check_grown", "grown_run"]


def check_grown(name: str, old: Reader, new: Reader) -> None:
    """Refuse a store that is not the old one with documents appended."""
    before, after = old.manifest, new.manifest
    more = after.documents - before.documents
    if more <= 0 or after.parts[: len(before.parts)] != before.parts:
        raise ConfigError(
            f"edit.append.{name}: found a store of {after.documents:,} documents, which is not the "
            f"one of {before.documents:,} with others appended. Open the store again after "
            "tokenloom.build(..., append=True)."
        )


def grown_run(
    before: SourceRun, spec: LayoutSpec, choice: Choice | None, reader: Reader, at: int
) -> SourceRun:
    """The run of a source with the documents that its store has now, shown from item `at` on."""
    if isinstance(spec, SpliceSpec):
        raise ConfigError(
            f"edit.append.{before.name}: it is spliced, and its quotas are shares of all its "
            "documents, so new ones would change what every document still gets. Splice the new "
            "documents as a source of their own: add={...}; doc_growth plans growth in advance."
        )
    if isinstance(choice, SelectSpec):
        raise ConfigError(
            f"edit.append.{before.name}: its documents were selected one by one, so there are no "
            "new ones. Add them as a source of their own: add={...}."
        )
    known, layout = before.layout.line, before.layout
    first = known.reader.manifest.documents
    every = choose_documents(reader, choice).documents if choice else None
    fresh = np.arange(first, reader.manifest.documents) if every is None else every[every >= first]
    line: Line = WholeLine(reader)
    if every is not None:
        old, _ = known.bounds(0, known.documents)
        both = np.concatenate([old, fresh])
        line = ChosenLine(reader, both)
    added = make_layout(spec, ChosenLine(reader, fresh))
    parts = layout.parts if isinstance(layout, Joined) else (layout,)
    joined, shuffle = Joined([*parts, added], line), before.shuffle
    blocks, phases = [joined.blocks()], joined.phases
    # with the numbers already resolved, because they are part of the identity
    later = FreshEpochs(phases, blocks, shuffle, before.seed, before.name)
    epochs = GrownEpochs(before.epochs, later, added.blocks(), at)
    working = WorkingSet(joined, phases, blocks, shuffle)
    return SourceRun(joined, epochs, working, None, before.blanks)
