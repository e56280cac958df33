"""Spliced examples by what they show: (document, t, s) of an index, and the inverse.

One idea: what an index shows is arithmetic on lengths (`tokenloom.layout.splice.rows`), so a
listing reads no token and needs no log. Measured: 10^7 pairs of one document in 1.0 s of one shared
core, half of it for the memory pages that hold them.

t is the document offset at which the window of a splice starts: below 0 where it starts before the
document (``edge="clip"``), and -1 where it starts with an inserted BOS. s is the frame offset of
its first cell.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arguments import check_between
from tokenloom.arrays import Int64, checked
from tokenloom.errors import ConfigError
from tokenloom.layout.splice.rows import Spliced
from tokenloom.limits import limits
from tokenloom.order.run import SourceRun
from tokenloom.order.spec import kind_of

FEW = 64  # up to this many documents are looked up one by one


@dataclass(frozen=True, eq=False, slots=True)
class Listing:
    """Splices one by one, in the order of their examples; a packed example has several.

    Attributes:
        index: the example [N].
        epoch: the epoch it is in [N].
        document: number of the document in its store [N].
        t: document offset at which the window starts [N].
        s: frame offset of its first cell [N].

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
    ...     found = triples(store.splice(6, content_length=4).epochs(2))
    ...     len(found), found.epoch.tolist(), found.t.tolist()
    (6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
    """

    index: Int64
    epoch: Int64
    document: Int64
    t: Int64
    s: Int64

    def __len__(self) -> int:
        """The number of splices."""
        return len(self.index)


def triples(ds: Dataset, indices: ArrayLike | None = None) -> Listing:
    """(document, t, s) of every splice of these examples, with their index and epoch.

    Args:
        ds: a spliced dataset.
        indices: examples, in any order; default: all, or one epoch of an endless dataset.

    Raises:
        ConfigError: the dataset is not spliced.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
    ...     found = triples(store.splice(6, content_length=4))
    ...     list(zip(found.document.tolist(), found.t.tolist(), found.s.tolist()))
    [(0, 0, 2), (0, 1, 2), (0, 2, 2)]
    """
    size = limits().inspected_chunk_examples
    layout, run = spliced(ds), alone(ds)
    if indices is None:
        wanted, count = None, run.phases.end(1) if run.n is None else run.n
    else:
        wanted = np.atleast_1d(checked(indices, run.n, "index"))
        if wanted.ndim > 1:
            raise TypeError(f"indices: found shape {wanted.shape}, allowed: one axis.")
        count = len(wanted)
    cuts = ((low, min(low + size, count)) for low in range(0, count, size))
    chunks = (np.arange(*cut) if wanted is None else wanted[slice(*cut)] for cut in cuts)
    found: Iterable[tuple[Int64, ...]] = (_columns(ds, layout, chunk) for chunk in chunks)
    if any(part.packed for part in layout.parts):
        found = list(found)
        count = sum(len(columns[0]) for columns in found)
    whole, done = _room(count), 0
    for columns in found:
        for place, values in enumerate(columns):
            whole[place, done : done + len(values)] = values
        done += len(columns[0])
    return Listing(*whole)


def _columns(ds: Dataset, layout: Spliced, indices: Int64) -> tuple[Int64, ...]:
    """The columns of a listing of a few examples, each [N]."""
    epoch, rows = ds.run.locate(indices)
    row, document, t, s = layout.triples(epoch, rows)
    return indices[row], epoch[row], document, t, s


def _room(splices: int) -> Int64:
    """Uninitialised columns [5, splices].

    It uses ordinary memory pages: `np.empty` requests large ones, and where those are scarce,
    getting them takes longer than everything else here (400 MB: 1.4 s against 0.3 s).
    """
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    memory = mmap.mmap(-1, max(1, splices * 5 * 8), **private)
    return np.frombuffer(memory, np.int64, splices * 5).reshape(5, splices)


def places(ds: Dataset, document: int, t: int | None = None, *, epochs: int = 1) -> Int64:
    """The examples that show a document, or one start of it, ascending: the inverse of `triples`.

    Args:
        ds: a spliced dataset.
        document: its number in the store.
        t: the start of the window; default: any.
        epochs: number of epochs, from the first on; no more than the dataset has.

    Raises:
        ConfigError: the dataset is not spliced.
        IndexError: the store has no such document. One that is not spliced gives no examples.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abcdef"}, {"text": "ghij"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     ds = store.splice(6, content_length=4, sampler="enumerate")
    ...     places(ds, 0).tolist(), places(ds, 0, t=2).tolist(), places(ds, 1).tolist()
    ([0, 1, 2], [2], [3])
    """
    layout, run = spliced(ds), alone(ds)
    checked(document, layout.line.reader.manifest.documents, "document")
    found = [np.empty(0, np.int64)]
    for epoch, count in _epochs(ds, examples_of(ds, epochs)):
        indices = run.items(epoch, layout.find(epoch, document, t))
        shown = (indices >= 0) & (indices < run.phases.start(epoch) + count)
        found.append(np.sort(indices[shown]))
    return np.concatenate(found)


def alone(ds: Dataset) -> SourceRun:
    """The run of a dataset of one source."""
    if dataset_of("inspect", ds).rule is not None:
        raise ConfigError(
            f"{', '.join(ds.sources)}: this dataset is a mix. Pass the spliced dataset that was "
            "mixed; mixed.index(source, items) gives the indices of its examples."
        )
    return ds.run.sources[0]


def spliced(ds: Dataset) -> Spliced:
    """The layout of a spliced dataset."""
    layout = alone(ds).layout
    if isinstance(layout, Spliced):
        return layout
    (source,) = ds.sources.values()
    kind = kind_of(source.config.layout)
    raise ConfigError(
        f"{source.path}: this dataset was made by store.{kind}(...), whose examples have no "
        "(document, t, s). Make one with store.splice(...); ds.spans(indices) gives the content of "
        "any other."
    )


def examples_of(ds: Dataset, epochs: int) -> int:
    """Examples of the first epochs of a dataset, or of all that it has."""
    check_between("epochs", epochs, 1)
    run = alone(ds)
    wanted = run.phases.end(epochs)
    return wanted if run.n is None else min(run.n, wanted)


def _epochs(ds: Dataset, examples: int) -> Iterator[tuple[int, int]]:
    """Every epoch of the first examples, and the number of examples in it."""
    phases, epoch = alone(ds).phases, 0
    while (begin := phases.start(epoch)) < examples:
        yield epoch, min(phases.start(epoch + 1), examples) - begin
        epoch += 1


def rows_of(
    ds: Dataset, examples: int, documents: Sequence[int] | None = None
) -> Iterator[tuple[int, Int64]]:
    """(epoch, rows) of the first examples, in chunks of one epoch and in any order.

    Args:
        ds: a spliced dataset.
        examples: number of examples, from index 0 on.
        documents: leave out rows without any of these, where that saves work.
    """
    chunk = limits().inspected_chunk_examples
    run = alone(ds)
    for epoch, count in _epochs(ds, examples):
        whole = count == int(run.phases.rows[run.phases.of(epoch)])
        if documents is not None and _are_few(ds, epoch, documents):
            rows = _rows_showing(ds, epoch, documents)
            if not whole:
                rows = rows[run.order(epoch).inverse(rows) < count]
            yield from ((epoch, rows[low : low + chunk]) for low in range(0, len(rows), chunk))
            continue
        for low in range(0, count, chunk):
            some = np.arange(low, min(low + chunk, count))
            yield epoch, some if whole else run.order(epoch).map(some)


def _are_few(ds: Dataset, epoch: int, documents: Sequence[int]) -> bool:
    """Whether looking these documents up is less work than visiting all rows."""
    layout = spliced(ds)
    quota = layout.parts[int(layout.phases.of(epoch))].quota
    theirs = int(quota[np.isin(layout.documents, documents)].sum())
    return len(documents) <= FEW and theirs * 4 < int(quota.sum())


def _rows_showing(ds: Dataset, epoch: int, documents: Sequence[int]) -> Int64:
    """Rows of an epoch that show any of these documents, ascending, each once."""
    found = [spliced(ds).find(epoch, document) for document in documents]
    rows = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    once: Int64 = rows[np.append(True, np.diff(rows) > 0)[: len(rows)]]
    return once
