"""What a run leaves out: tokens in no row, rows that it does not reach, cells without a token.

What becomes of a token is decided in four places, and each has its count: the selection, the layout
(its tally), the end of the run, and the last step. Layouts of a constant kind count in closed form;
a short run is visited row by row, and what is only an estimate says so.

Tokens are counted once for each source that has them; what the selection leaves out is what no
source of the run selects. Two sources may share a store, so that is a question to all of them at
once: documents are marked in one array for each store that several sources choose from.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.documents.line import Line
from tokenloom.inspect.coverage import coverage
from tokenloom.inspect.simulate.result import Simulation
from tokenloom.layout.layout import Layout
from tokenloom.layout.pack.plan import Tally
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.spans import BOS, Spans
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.windows import Windows
from tokenloom.order.run import SourceRun
from tokenloom.order.spec import LayoutSpec
from tokenloom.page.numbers import amount
from tokenloom.random.keys import draws, key
from tokenloom.report.ways_to_pack import own_tally, parts_of_layout
from tokenloom.store.reader import Reader

MARKED = 1 << 26  # documents of a store that are marked one by one, a byte each

Int64 = NDArray[np.int64]

VISITED = 1 << 16  # examples of a run that is visited row by row

FEW = 1 << 20  # documents and rows of such a run

SPLICES, TOKENS, DOCUMENTS = 1 << 18, 1 << 20, 2000  # of a spliced source that are counted

ROWS = 256  # spliced rows of which inserted tokens are counted


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class StoreUse:
    """What some sources choose of one store, or of stores with the same content.

    Attributes:
        reader: the store.
        sources: names of the sources.
        paths: where their stores are; several for copies of a store.
        chosen: whether each document is chosen [documents]; None: all of them, or not looked at.
        documents, tokens: of the store, chosen by at least one source.
        shared: documents that more than one of them choose.
        is_exact: whether documents were marked; if not, `shared` is the least that it can be.
    """

    reader: Reader
    sources: tuple[str, ...]
    paths: tuple[str, ...]
    chosen: NDArray[np.bool_] | None
    documents: int
    tokens: int
    shared: int
    is_exact: bool = True


def store_uses(run: Dataset) -> list[StoreUse]:
    """What the sources of a run choose of each of their stores, in the order of the sources."""
    lines: dict[str, dict[str, Line]] = defaultdict(dict)
    for one in run.run.sources:
        line = one.layout.line
        lines[line.reader.manifest.digest][one.name] = line
    return [
        _use(some, tuple(dict.fromkeys(run.sources[name].path for name in some)))
        for some in lines.values()
    ]


def _use(lines: dict[str, Line], paths: tuple[str, ...]) -> StoreUse:
    every = list(lines.values())
    reader, names = every[0].reader, tuple(lines)
    documents, tokens = reader.manifest.documents, reader.manifest.tokens
    whole = [line for line in every if line.documents == documents and line.tokens == tokens]
    if documents > MARKED or len(whole) == len(every):
        total = sum(line.documents for line in every)
        return StoreUse(
            reader=reader,
            sources=names,
            paths=paths,
            chosen=None,
            documents=documents if whole else min(documents, total),
            tokens=tokens if whole else min(tokens, sum(line.tokens for line in every)),
            shared=documents if len(whole) > 1 else max(0, total - documents),
            is_exact=len(every) == 1 or len(whole) > 1,
        )
    times, held = _marked(every, documents)
    return StoreUse(
        reader=reader,
        sources=names,
        paths=paths,
        chosen=times > 0,
        documents=int((times > 0).sum()),
        tokens=held,
        shared=int((times > 1).sum()),
    )


def _marked(lines: Sequence[Line], documents: int) -> tuple[NDArray[np.uint8], int]:
    """How many of the lines have each document, at most 255, and tokens of those that one has."""
    times, tokens = np.zeros(documents, np.uint8), 0
    for line in lines:
        numbers, edges = line.bounds(0, line.documents)
        own, first = np.unique(numbers, return_index=True)
        tokens += int(np.diff(edges)[first][times[own] == 0].sum())
        times[own] = np.minimum(times[own], 254) + 1
    return times, tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLeftovers:
    """What is left out of one source.

    Attributes:
        name: name of the source.
        layout: how its rows are cut.
        documents, tokens: selected.
        unselected_tokens: of its store, and not selected by this source.
        rows: rows of an epoch.
        shown: rows that whole steps show, repeats included.
        shown_tokens: stored tokens in them.
        reasons: tokens in no row, by reason: "tail", "filtered", "truncated", "overlong", "short
            rows" or "splices".
        once: tokens that whole steps show at least once, as far as they are counted.
        never_rows: rows that no whole step shows.
        never_documents: documents that the run never shows, quarantined from the start or not.
        inserted: BOS and EOS tokens in the rows shown.
        cut_needlessly: documents in several pieces that would fit into a frame; 0 where they are
            not counted.
        blank: documents that are quarantined.
        counted: whether tokens in no row were counted.
        notes: what is an estimate, and why.
    """

    name: str
    layout: LayoutSpec
    documents: int
    tokens: int
    unselected_tokens: int
    rows: int
    shown: int
    shown_tokens: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    once: int = 0
    never_rows: int = 0
    never_documents: int = 0
    inserted: float = 0.0
    cut_needlessly: int = 0
    blank: int = 0
    counted: bool = True
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Tokens in no row."""
        return sum(self.reasons.values())

    @property
    def unreached(self) -> int:
        """Tokens in rows, but in none that is shown."""
        return self.tokens - self.lost - self.once if self.counted else 0

    @property
    def uncounted(self) -> int:
        """Tokens of which nobody knows where they go."""
        return 0 if self.counted else self.tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """What a run leaves out.

    Attributes:
        sources: by source.
        stores: what they select together of each store.
        seq_len: tokens of a frame.
        examples: examples of whole steps.
        dropped: examples after the last whole step; 0 if they are shown, or the run is endless.
        visited: whether every row was looked at.
    """

    sources: tuple[SourceLeftovers, ...]
    stores: tuple[StoreUse, ...]
    seq_len: int
    examples: int
    dropped: int
    visited: bool

    def total(self, name: str) -> float:
        """A number of all sources together."""
        return sum(getattr(one, name) for one in self.sources)

    @property
    def tokens(self) -> int:
        """Selected tokens, once for each source that selects them."""
        return sum(one.tokens for one in self.sources)

    @property
    def selected(self) -> str:
        """These tokens in words, which say so where others are not selected."""
        return amount(self.tokens, "selected token" if self.unselected_tokens else "token")

    @property
    def unselected_documents(self) -> int:
        """Documents of the stores that no source selects."""
        return sum(max(0, one.reader.manifest.documents - one.documents) for one in self.stores)

    @property
    def unselected_tokens(self) -> int:
        """Tokens of these documents."""
        return sum(max(0, one.reader.manifest.tokens - one.tokens) for one in self.stores)

    @property
    def lost(self) -> int:
        """Tokens in no row."""
        return sum(one.lost for one in self.sources)

    @property
    def counted(self) -> bool:
        """Whether those of all sources were counted."""
        return all(one.counted for one in self.sources)

    @property
    def reasons(self) -> dict[str, int]:
        """Tokens in no row, by reason."""
        return dict(sum((Counter(one.reasons) for one in self.sources), Counter()))

    @property
    def cells(self) -> int:
        """Cells of the rows shown."""
        return self.seq_len * sum(one.shown for one in self.sources)

    @property
    def filler(self) -> float:
        """Share of these cells that hold neither a stored nor an inserted token."""
        held = sum(one.shown_tokens + one.inserted for one in self.sources)
        return max(0.0, 1 - held / self.cells) if self.cells else 0.0


def leftovers_of(run: Dataset, found: Simulation | None, end: str = "drop") -> Leftovers:
    """What a run leaves out.

    Args:
        run: the run.
        found: the simulation of its whole steps; None if it has none.
        end: what becomes of a short last step: "drop", "pad" or "wrap".
    """
    n, examples = run.run.n, 0 if found is None else found.examples
    dropped = n - examples if n is not None and end == "drop" else 0
    sources = [_of_source(run, number, found) for number in range(len(run.sources))]
    size = sum(one.layout.line.documents + one.rows for one in run.run.sources)
    visited = examples <= VISITED and size <= FEW
    sources = _visited(run, sources, examples) if visited else [_guessed(one) for one in sources]
    return Leftovers(
        sources=tuple(sources),
        stores=tuple(store_uses(run)),
        seq_len=run.seq_len,
        examples=examples,
        dropped=dropped,
        visited=visited,
    )


def _of_source(run: Dataset, number: int, found: Simulation | None) -> SourceLeftovers:
    source, name = run.run.sources[number], run.run.names[number]
    layout, line = source.layout, source.layout.line
    totals = None if found is None else found.sources[number]
    shown, shown_tokens = (0, 0) if totals is None else (totals.rows, totals.tokens)
    made = SourceLeftovers(
        name=name,
        layout=run.sources[name].config.layout,
        documents=line.documents,
        tokens=line.tokens,
        unselected_tokens=max(0, line.reader.manifest.tokens - line.tokens),
        rows=source.rows,
        shown=shown,
        shown_tokens=shown_tokens,
        blank=0 if source.blanks is None else len(source.blanks.document),
    )
    if isinstance(layout, Spliced):
        epochs = 0 if totals is None else totals.epochs
        made = _of_splices(made, run, layout, max(1, epochs))
        return made if epochs else replace(made, never_rows=max(0, source.rows - shown))
    tally, gone = own_tally(layout), max(0, source.rows - shown)
    reasons = _reasons(layout, tally)
    missing = max(0, tally.frame_tokens - shown_tokens) if gone else 0
    return replace(
        made,
        reasons=reasons,
        once=max(0, line.tokens - sum(reasons.values()) - missing),
        never_rows=gone,
        never_documents=_lost_documents(layout),
        inserted=shown * (tally.placed - tally.frame_tokens) / max(1, tally.rows),
        cut_needlessly=tally.cut_needlessly,
    )


def _reasons(layout: Layout, tally: Tally) -> dict[str, int]:
    """Tokens in no row, by reason; only those that there are."""
    short = "tail" if isinstance(parts_of_layout(layout)[0], Windows) else "short rows"
    named = {
        short: tally.short_row_tokens,
        "filtered": tally.filtered_tokens,
        "truncated": tally.truncated_tokens,
        "overlong": tally.overlong_tokens,
    }
    return {name: tokens for name, tokens in named.items() if tokens}


def _lost_documents(layout: Layout) -> int:
    """Documents with tokens of which no row has one; those of short rows are not counted."""
    found = 0
    for part in parts_of_layout(layout):
        if isinstance(part, Packed):
            found += part.groups.tally.filtered + part.groups.tally.overlong
        elif isinstance(part, Windows) and part.line.tokens:
            rows, spec = int(part.phases.rows[0]), part.spec
            end = min(rows * spec.step + spec.overlap, part.line.tokens) if rows else 0
            if end < part.line.tokens:
                pieces = part.line.pieces(np.array([end]), np.array([part.line.tokens]))
                found += int((pieces.start == 0).sum())
    return found


# -- splices -------------------------------------------------------------------------------


def _of_splices(
    made: SourceLeftovers, run: Dataset, layout: Spliced, epochs: int
) -> SourceLeftovers:
    """What no splice shows, of all documents or of a sample."""
    alone = _whole(run) if run.rule is None else Dataset({"main": run.sources[made.name]})
    each = int(layout.phases.rows.max())
    part, notes = layout.parts[0], []
    lengths = part.length - layout.lead * (part.length > 0)
    if each * epochs > SPLICES:
        epochs = 1
        if each > SPLICES:
            return _uncounted(made, f"an epoch has {each:,} rows")
    stream = key(0, "report", "splices", layout.line.identity)
    order = np.argsort(draws(stream, np.arange(len(lengths), dtype=np.uint64)), kind="stable")
    order = order[lengths[order] > 0]
    some = order[(np.cumsum(lengths[order]) <= TOKENS) & (np.arange(len(order)) < DOCUMENTS)]
    if not len(order):
        return made
    if not len(some):
        return _uncounted(made, "its documents are very long")
    seen = coverage(alone, documents=layout.documents[some].tolist(), epochs=epochs)
    unseen = [int((seen.context(one) == 0).sum()) for one in seen.documents.tolist()]
    hidden = int((seen.splices == 0).sum())
    scale = 1.0
    if len(some) < len(order):
        scale = float(lengths.sum() / lengths[some].sum())
        notes.append(
            f"{made.name}: what no splice shows is estimated from {len(some):,} of "
            f"{len(order):,} documents."
        )
    lost = round(sum(unseen) * scale)
    return replace(
        made,
        reasons={"splices": lost} if lost else {},
        once=max(0, made.tokens - lost),
        never_documents=round(hidden * len(order) / len(some)),
        inserted=_inserted(run.run.sources[run.run.names.index(made.name)]) * made.shown,
        notes=tuple(notes),
    )


def _whole(run: Dataset) -> Dataset:
    """A run of one source without its early end: what an epoch of it shows."""
    (source,) = run.sources.values()
    return run if source.config.take is None or run.edits else run._with(take=None)


def _uncounted(made: SourceLeftovers, why: str) -> SourceLeftovers:
    told = f"{made.name}: tokens in no splice are not counted: {why}."
    return replace(
        made, counted=False, once=0, notes=(f"{told} tokenloom.inspect.coverage does it.",)
    )


def _inserted(source: SourceRun) -> float:
    """Inserted tokens of a spliced row, on average."""
    rows = int(source.layout.phases.rows[0])
    if source.layout.inserted[0] is None or not rows:
        return 0.0
    stream = key(0, "report", "inserted", source.name)
    some = draws(stream, np.arange(ROWS, dtype=np.uint64)) % np.uint64(rows)
    wanted = np.arange(rows) if rows <= ROWS else some.astype(np.int64)
    spans = source.layout.spans(0, wanted)
    return int(((spans.flags & BOS) > 0).sum()) / len(wanted)


def _guessed(made: SourceLeftovers) -> SourceLeftovers:
    """A spliced source that the run leaves within its first epoch: nobody knows what it shows."""
    if not isinstance(made.layout, SpliceSpec) or not made.never_rows or not made.counted:
        return made
    return _uncounted(made, "the run ends in its first epoch, and rows were not visited")


# -- row by row ----------------------------------------------------------------------------


def _visited(run: Dataset, sources: list[SourceLeftovers], examples: int) -> list[SourceLeftovers]:
    """The same with what every row of a short run says about itself."""
    indices = np.arange(examples)
    picked, _ = run.run.pick(indices) if examples else (indices, indices)
    _, row = run.run.locate(indices)
    spans = run.run.spans(indices) if examples else None
    names = run.run.names
    found = []
    for number, made in enumerate(sources):
        layout = run.run.sources[number].layout
        held = min(made.tokens - made.lost, _held(spans, names[number]))
        made = replace(
            made,
            never_documents=_unshown(layout, spans, names[number]),
            once=held if made.counted else 0,
        )
        if layout.is_constant:
            gone = np.setdiff1d(np.arange(made.rows), row[picked == number])
            made = replace(made, never_rows=len(gone))
        found.append(made)
    return found


def _unshown(layout: Layout, spans: Spans | None, name: str) -> int:
    """Documents with tokens that none of these spans has."""
    documents, edges = layout.line.bounds(0, layout.line.documents)
    wanted = np.unique(documents[np.diff(edges) > 0])
    if spans is None or name not in spans.sources:
        return len(wanted)
    own = spans.source[spans.row] == spans.sources.index(name)
    inside = (spans.at < layout.seq_len) & (spans.length > 0)
    return len(np.setdiff1d(wanted, spans.document[own & inside]))


def _held(spans: Spans | None, name: str) -> int:
    """Tokens that the spans of a source hold, each counted once."""
    if spans is None or name not in spans.sources:
        return 0
    own = spans.source[spans.row] == spans.sources.index(name)
    start, length = spans.start[own], spans.length[own]
    _, document = np.unique(spans.document[own], return_inverse=True)
    # documents one after the other, with room between them
    first = document * (int((start + length).max(initial=0)) + 1) + start
    order = np.argsort(first, kind="stable")
    first, last = first[order], (first + length)[order]
    before = np.append(0, np.maximum.accumulate(last)[:-1]) if len(last) else last
    return int(np.maximum(0, last - np.maximum(first, before)).sum())
