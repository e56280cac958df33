"""`blame`: losses fed back to the run that they came from, and the documents they point at.

One idea: a run knows which documents are in every row of every step, so losses need no log of what
was trained: they are divided among the documents that were there. How far that goes depends on what
was logged. The loss of a token blames a document; the loss of a row blames its documents; the loss
of a step blames all documents of all its rows, and only documents that come again in other company
can be told apart. The answer says which, and how many steps it would take.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arguments import check_between, integer, near_misses, one_of
from tokenloom.errors import ConfigError, plural
from tokenloom.inspect.suspects.findings import (
    Blame,
    BlamedDocument,
    BlamedPosition,
    BlamedSource,
    SpikeStep,
)
from tokenloom.inspect.suspects.given import (
    ROW,
    STEP,
    TOKEN,
    GivenLosses,
    given_losses,
    rows_of_steps,
)
from tokenloom.inspect.suspects.score import MOST_NAMED, Scored, name_documents, rivals_of
from tokenloom.inspect.suspects.shown import Incident, incident_of, token_units
from tokenloom.inspect.suspects.usual import running
from tokenloom.loader.loss_files import read_losses

__all__ = ["blame"]

Float64 = NDArray[np.float64]

Int64 = NDArray[np.int64]

TOGETHER = 64  # rows that stand for a step where no batch size is known

GROUP = 8  # documents that cannot be told apart are quarantined together, up to this many


@near_misses("blame")
def blame(
    run: Dataset,
    losses: Any,
    *,
    batch_size: int | Sequence[tuple[int, int]] | None = None,
    index: Any = None,
    steps: Any = None,
    first: int = 0,
    per: str | None = None,
    step_key: str = "step",
    loss_key: str = "loss",
    window: int = 101,
    spike: float = 6.0,
    false_positives: float = 0.01,
    most: int = 20,
    at: int | None = None,
) -> Blame:
    """Which documents the losses of a run blame, with a quarantine ready to paste.

    Losses are compared with the running median of `window` steps around them, in units of the
    running MAD. Documents are scored by least squares; one is named if its score is higher than
    any score that arises when the losses are dealt to other rows (or steps) at random.

    Args:
        run: the run that was trained.
        losses: an array of shape [steps], [steps, rows] or [steps, rows, tokens]; rows in the
            order of the loader's global batch; or rows [rows] or [rows, tokens] with `index`; a
            mapping from step to loss; or a path: JSON lines, CSV, or TensorBoard events. The loss
            of a token is that of the prediction made at its cell, as in `Batch.loss_mask`; NaN
            where none was.
        batch_size: rows of a step over all ranks, or a schedule; needed unless `index` is given.
        index: the example of each row, as `Batch.index` tells.
        steps: the step of each loss, ascending; default: from `first` on.
        first: the step of the first loss.
        per: "step", "row" or "token", if the shape alone should not decide.
        step_key: the name of the step in a file.
        loss_key: the name of the loss in a file.
        window: steps of the running median and MAD.
        spike: deviations above the running median that make a step a spike.
        false_positives: probability that anybody is named if no document matters.
        most: documents to list, at least all that are named.
        at: the first example of the quarantine; default: the first after those of the losses.

    Raises:
        ConfigError: the losses have a shape that does not fit the run, or an argument is wrong.

    >>> import tempfile, numpy as np, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": f"{i:08d}"} for i in range(200)]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes", add_eos=False)
    ...     run = store.windows(8).shuffle().epochs(4)
    ...     losses = np.random.Generator(np.random.PCG64(0)).normal(3, 0.1, (100, 8))
    ...     rows = run.spans(np.arange(800)).document.reshape(100, 8)
    ...     found = blame(run, losses + 2.0 * (rows == 17), batch_size=8)
    ...     found.named, found.edit
    ((('main', 17),), "run.edit(at=800, quarantine=[('main', 17)])")
    """
    run = dataset_of("blame", run)
    integer("window", window, 3)
    check_between("spike", spike, 0)
    check_between("false_positives", false_positives, 1e-4, 0.5)
    if per is not None:
        one_of("per", per, (STEP, ROW, TOKEN))
    if isinstance(losses, (str, PathLike)):
        read = read_losses(losses, step_key=step_key, loss_key=loss_key)
        losses, steps = read.values, read.steps if steps is None else steps
        index = read.examples if index is None else index
    given = given_losses(
        run,
        losses,
        batch_size=batch_size,
        index=index,
        steps=steps,
        first=integer("first", first),
        per=per,
    )
    return _Judge(run, given, batch_size, window).verdict(spike, false_positives, most, at)


class _Judge:
    """Losses of a run with the documents behind them.

    Args:
        run: the run.
        given: its losses.
        batch_size: rows of a step.
        window: steps of the running median.
    """

    def __init__(self, run: Dataset, given: GivenLosses, batch_size: Any, window: int) -> None:
        self.run, self.given, self.window = run, given, window
        self.notes: list[str] = []
        if given.per == STEP:
            self.rows, step = rows_of_steps(run, batch_size, given.step)
            self.unit_of_row = np.searchsorted(given.step, step)
            self.values = given.values
            clock = np.arange(len(given.values))
        else:
            self.rows, values = given.examples, given.values
            self.values = values if values.ndim == 1 else _mean_of_rows(values)
            self.unit_of_row = np.arange(len(self.rows))
            clock = np.arange(len(self.rows)) // TOGETHER
            if len(given.step):
                clock = np.unique(given.step, return_inverse=True)[1]
        self.clock = clock  # which moment each unit belongs to
        bad = int(np.isnan(self.values).sum())
        if bad:
            self.notes.append(f"{bad:,} losses are not finite, or of no trained token; left out")
        good = self.values[np.isfinite(self.values)]
        if not len(good) or good.min() == good.max():
            raise ConfigError(
                f"losses: found {float(given.values.flat[0]):g} everywhere, so they blame nobody. "
                "Give losses that differ."
            )
        moments = _medians(self.values, clock)
        self.usual, self.spread = running(moments, window)

    def verdict(self, spike: float, false_positives: float, most: int, at: int | None) -> Blame:
        """Everything that the losses tell."""
        given, run = self.given, self.run
        incident = incident_of(run, self.rows, self.unit_of_row, len(self.values))
        above = self.values - self.usual[self.clock]
        frame: tuple[BlamedPosition, ...] = ()
        inside: tuple[BlamedPosition, ...] = ()
        if given.per == TOKEN:
            usual = self.usual[self.clock]
            incident, above, frame, inside = token_units(run, given, usual, incident)
        sources = _by_source(incident, above)
        above = _without_sources(incident, above)
        known = np.isfinite(above)
        above = np.where(known, above, 0.0)  # says nothing about anybody
        scored = name_documents(incident.known, above, false_positives)
        documents = self._documents(incident, scored, most)
        last = int(self.rows.max()) + 1
        named = [one for one in documents if one.is_named]
        self._tell(named, incident)
        return Blame(
            per=given.per,
            losses=int(np.isfinite(given.values).sum()),
            first=int(self.rows.min()),
            last=last,
            window=min(self.window, len(self.usual)),
            spikes=self._spikes(spike, incident, scored),
            documents=documents,
            looked_at=incident.known.documents,
            threshold=scored.threshold,
            false_positives=1 / (1 + max(1, round(1 / false_positives) - 1)),
            sources=sources,
            frame=frame,
            inside=inside,
            edit=self._edit(named, last if at is None else at),
            notes=tuple(self.notes),
        )

    def _documents(
        self, incident: Incident, scored: Scored, most: int
    ) -> tuple[BlamedDocument, ...]:
        good = np.flatnonzero(np.isfinite(scored.score))
        order = good[np.argsort(-scored.score[good], kind="stable")].tolist()[: most + MOST_NAMED]
        first = sorted(scored.named, key=lambda one: -scored.score[one])
        listed = [*first, *(one for one in order if one not in scored.named)]
        return tuple(
            self._document(incident, scored, one) for one in listed[: max(most, len(first))]
        )

    def _document(self, incident: Incident, scored: Scored, number: int) -> BlamedDocument:
        known = incident.known
        here = known.document == number
        share = float(known.share[here].mean()) if here.any() else 0.0
        effect = float(scored.effect[number])
        # an effect of this size, in a unit where it has its usual share, against the noise
        needed = 1
        if effect > 0 and share > 0:
            needed = max(1, int(np.ceil((3 * scored.noise / (effect * share)) ** 2)))
        is_named = number in scored.named
        rivals = rivals_of(known, scored, number) if is_named else []
        names = [(*incident.name(one), apart) for one, apart in rivals]
        source, document = incident.name(number)
        return BlamedDocument(
            source=source,
            document=document,
            shown=int(here.sum()),
            tokens=int(incident.tokens[number]),
            effect=effect,
            error=float(scored.error[number]),
            score=float(scored.score[number]),
            is_named=is_named,
            needed=needed,
            same=tuple(names),
        )

    def _spikes(self, spike: float, incident: Incident, scored: Scored) -> tuple[SpikeStep, ...]:
        """Steps that stand out, highest first."""
        if self.given.per != STEP and not len(self.given.step):
            self.notes.append("no batch_size was given, so no step is told")
            return ()
        numbers = np.unique(self.given.step)
        means = _means(self.values, self.clock)
        usual, spread = running(means, self.window)
        score = (means - usual) / np.maximum(spread, 1e-12)
        high = np.flatnonzero(score > spike)
        high = high[np.argsort(-score[high], kind="stable")]
        units = incident.moments(self.clock)
        found = []
        for place in high[:1000].tolist():
            holds = [one for one in scored.named if place in units(one)]
            found.append(
                SpikeStep(
                    step=int(numbers[place]),
                    loss=float(means[place]),
                    usual=float(usual[place]),
                    score=float(score[place]),
                    named=tuple(incident.name(one) for one in holds),
                )
            )
        return tuple(found)

    def _tell(self, named: list[BlamedDocument], incident: Incident) -> None:
        """Add notes about what these losses cannot tell."""
        shown = np.bincount(incident.known.document, minlength=incident.known.documents)
        once = int((shown == 1).sum())
        what = "step" if self.given.per == STEP else "row"
        if once and self.given.per != TOKEN:
            self.notes.append(
                f"{once:,} of {plural(len(shown), 'document')} come in one {what} only: its loss "
                f"blames that {what}, and all its documents alike"
            )
        for one in named:
            if one.same:
                share = "shares" if len(one.same) == 1 else "share"
                self.notes.append(
                    f"{one.source} {one.document}: {plural(len(one.same), 'other document')} "
                    f"{share} its {what}s or nearly; {plural(one.needed, what)} with only one of "
                    "two would tell them apart"
                )

    def _edit(self, named: list[BlamedDocument], at: int) -> str:
        """The quarantine, as it is typed."""
        pairs: list[tuple[str, int]] = []
        for one in named:
            if len(one.same) >= GROUP:
                self.notes.append(
                    f"{one.source} {one.document} is not in the edit: {len(one.same)} other "
                    "documents may be meant"
                )
                continue
            pairs += [(one.source, one.document), *((s, d) for s, d, _ in one.same)]
        pairs = sorted(set(pairs))
        return f"run.edit(at={at}, quarantine={pairs!r})" if pairs else ""


def _medians(values: Float64, clock: Int64) -> Float64:
    """The median of the values of every moment."""
    if len(np.unique(clock)) == len(clock):
        return values
    order = np.lexsort((values, clock))  # NaN comes last
    ordered, moment = values[order], clock[order]
    counts = np.bincount(clock[np.isfinite(values)], minlength=int(clock.max()) + 1)
    first = np.searchsorted(moment, np.arange(len(counts)))
    low, high = first + np.maximum(counts - 1, 0) // 2, first + counts // 2
    middle = (ordered[low] + ordered[np.minimum(high, len(ordered) - 1)]) / 2
    return np.where(counts > 0, middle, np.nan)


def _means(values: Float64, clock: Int64) -> Float64:
    """The mean of the values of every moment."""
    good = np.isfinite(values)
    count = np.bincount(clock[good], minlength=int(clock.max()) + 1)
    sums = np.bincount(clock[good], values[good], int(clock.max()) + 1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _mean_of_rows(values: Float64) -> Float64:
    """The mean of the losses of each row; NaN for a row without any."""
    good = np.isfinite(values)
    count = good.sum(axis=1)
    sums = np.where(good, values, 0.0).sum(axis=1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def _by_source(incident: Incident, above: Float64) -> tuple[BlamedSource, ...]:
    """Mean loss above the usual, for units of a single source."""
    found = []
    for number, name in enumerate(incident.sources):
        values = above[(incident.source == number) & np.isfinite(above)]
        if len(values):
            error = float(values.std() / np.sqrt(len(values)))
            found.append(
                BlamedSource(
                    source=name, count=len(values), above=float(values.mean()), error=error
                )
            )
    return tuple(found)


def _without_sources(incident: Incident, above: Float64) -> Float64:
    """Losses less the median of their source: a document is no worse for being in a hard one."""
    found = above.copy()
    for number in range(len(incident.sources)):
        here = incident.source == number
        if here.any() and np.isfinite(above[here]).any():
            found[here] -= np.nanmedian(above[here])
    return found
