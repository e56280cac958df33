"""Splices as the published design writes them: N for filler, and lists of (document, t, s)."""

import numpy as np

N = 909  # filler


def splice(documents, seq_len, **options):
    """A splice with learned positions, so that offsets cause no warning, and N as filler."""
    options = {"position_scheme": "absolute"} | options
    return documents.splice(seq_len, **options).render(pad_id=N)


def epoch_spans(dataset, epoch=0):
    """The spans of one epoch of an unshuffled dataset whose epochs are all of one length."""
    rows = len(dataset.epochs(1))
    return dataset.epochs(None).spans(np.arange(epoch * rows, (epoch + 1) * rows))


def triples(dataset, epoch=0):
    """(document, t, s) of the first span of every row of an epoch."""
    spans = epoch_spans(dataset, epoch)
    first = spans.frame[:-1]
    columns = (spans.document[first], spans.start[first], spans.at[first])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def pairs(dataset, epoch=0):
    """(t, s) of every row of an epoch."""
    return [(t, s) for _, t, s in triples(dataset, epoch)]


def quota(dataset, documents, epoch=0):
    """Rows of each document in an epoch."""
    return np.bincount(epoch_spans(dataset, epoch).document, minlength=documents).tolist()


def whole(dataset):
    """Every example of a dataset, as one batch."""
    return dataset.batch(np.arange(len(dataset)))


def shown(dataset, t, s):
    """The row of the first epoch that shows a single document from t on at s, as a batch."""
    return dataset.batch([pairs(dataset).index((t, s))])


def row(array):
    """The only row of an array, as plain integers."""
    (only,) = array.astype(np.int64).tolist()
    return only
