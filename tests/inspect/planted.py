"""Defects planted into runs and batches that are otherwise right.

A planted run answers like the one it wraps, except where a defect says otherwise. What an audit
compares it with (stores, layouts, orders, edits) is left alone.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from tokenloom.layout.spans import Spans


class PlantedRun:
    """A `Run` whose answers go through functions `f(indices, answer)`: pick, locate and spans."""

    def __init__(self, inner, **defects):
        self._inner, self._defects = inner, defects

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _told(self, what, indices, answer):
        defect = self._defects.get(what)
        return answer if defect is None else defect(indices, answer)

    def pick(self, indices):
        return self._told("pick", indices, self._inner.pick(indices))

    def locate(self, indices):
        return self._told("locate", indices, self._inner.locate(indices))

    def spans(self, indices):
        return self._told("spans", indices, self._inner.spans(indices))


def with_plan(run, **defects):
    """A copy of a dataset whose plan has defects."""
    made = copy.copy(run)
    made.__dict__["run"] = PlantedRun(run.run, **defects)
    return made


def moved(run, mapping):
    """A run that shows at some indices what belongs to others: {index: other index}."""

    def wanted(indices):
        return np.array([mapping.get(i, i) for i in indices.tolist()], np.int64)

    inner = run.run
    return with_plan(
        run,
        pick=lambda indices, _: inner.pick(wanted(indices)),
        locate=lambda indices, _: inner.locate(wanted(indices)),
        spans=lambda indices, _: inner.spans(wanted(indices)),
    )


def with_arrays(run, spoil):
    """A copy of a dataset whose batches are spoiled: `spoil(batch)` changes arrays in place."""
    made = copy.copy(run)

    def batch(indices):
        found = run.batch(indices)
        spoil(found)
        return found

    made.batch = batch
    return made


def at_index(index, change):
    """A spoiler of the row of one index: `change(batch, row)`."""

    def spoil(batch):
        for row in np.flatnonzero(batch.index == index).tolist():
            change(batch, row)

    return spoil


def put(name, cell, value):
    """A change of one cell; `value` is a number or a function of the old one."""

    def change(batch, row):
        array = getattr(batch, name)
        old = array[row, cell]
        array[row, cell] = value(old) if callable(value) else value
        if name == "loss_mask":
            batch.__dict__["_trained"] = array

    return change


def span_changed(index, **changes):
    """Spans in which the first span of one row is another: {column: function of the old value}."""

    def change(indices, spans: Spans) -> Spans:
        made = spans
        for row in np.flatnonzero(indices == index).tolist():
            at = int(spans.frame[row])
            columns = {}
            for name, new in changes.items():
                column = getattr(made, name).copy()
                column[at] = new(column[at])
                columns[name] = column
            made = replace(made, **columns)
        return made

    return change


def without_span(index):
    """Spans in which one row has lost its first span."""

    def change(indices, spans: Spans) -> Spans:
        keep = np.ones(len(spans.document), np.bool_)
        for row in np.flatnonzero(indices == index).tolist():
            keep[spans.frame[row]] = False
        return spans.where(keep)

    return change
