"""Splices as the published design writes them: rows with N for filler, and lists of (t, s)."""

import numpy as np
from toydata import ToyStore

N = 909  # filler


def making_stores():
    """A fixture that makes stores from their documents."""
    opened = []

    def make(*documents):
        opened.append(ToyStore([[list(document) for document in documents]]))
        return opened[-1].store

    yield make
    for one in opened:
        one.__exit__()


def splice(documents, seq_len, **options):
    """Learned positions, so that offsets cause no warning; N in filler."""
    return documents.splice(seq_len, **{"position_scheme": "absolute", "pad_id": N, **options})


def triples(dataset, epoch=0):
    """(document, t, s) of every splice of an epoch, row by row."""
    phases = dataset.run.phases
    rows = np.arange(int(phases.rows[phases.of(epoch)]))
    found = dataset.run.layout.triples(epoch, rows)
    return list(zip(found.document.tolist(), found.t.tolist(), found.s.tolist(), strict=True))


def pairs(dataset, epoch=0):
    """(t, s) of every row of an epoch."""
    return [(t, s) for _, t, s in triples(dataset, epoch)]


def whole(dataset):
    """Every example of a run, as one batch."""
    return dataset.batch(np.arange(len(dataset)))


def shown(dataset, t, s):
    """The rows of epoch 0 that show a single document from t on at s, as one batch."""
    return dataset.batch([row for row, pair in enumerate(pairs(dataset)) if pair == (t, s)])


def row(array):
    """The only row of an array, as plain integers."""
    (only,) = array.astype(np.int64).tolist()
    return only


def drawn(dataset, draws, chunk=100_000):
    """(document, t, s) of the first draws of a run [draws] each."""
    parts = []
    for first in range(0, draws, chunk):
        epoch, rows = dataset.run.locate(np.arange(first, min(first + chunk, draws)))
        parts.append(dataset.run.layout.triples(epoch, rows)[1:])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
