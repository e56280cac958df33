"""Small stores with the documents they hold, and what their rows should be, cell by cell.

Nothing here asks the code under test anything: a row is a list of cells, a cell is None for filler
or (document, offset in it, token, address in the store), and every array of a batch is a loop.
"""

import itertools

import numpy as np
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from toystore import write_store

import tokenloom as tl

ARRAYS = (
    "tokens",
    "labels",
    "loss_mask",
    "loss_weights",
    "segment_ids",
    "position_ids",
    "attention_mask",
    "document_starts",
    "continues",
    "cu_seqlens",
    "index",
)
DTYPES = {
    "tokens": np.int32,
    "labels": np.int32,
    "loss_mask": np.bool_,
    "loss_weights": np.float32,
    "segment_ids": np.int32,
    "position_ids": np.int32,
    "attention_mask": np.bool_,
    "document_starts": np.int32,
    "continues": np.bool_,
    "cu_seqlens": np.int32,
    "index": np.int64,
}


class ToyStore:
    """A store in a folder that goes when this does; `shards` are lists of documents."""

    def __init__(self, shards, *, cache_bytes=1 << 20, verify="first", gap_bytes=0, **options):
        self._folder = quick_folder()
        self.path = self._folder.__enter__() / "toy"
        self.shards = shards
        self.documents = [document for shard in shards for document in shard]
        self.tokens = [token for document in self.documents for token in document]
        options = {"inner": 4, "chunk_tokens": 16, "files": QUICK, **options}
        write_store(self.path, shards, **options)
        self.store = tl.open(self.path, cache_bytes=cache_bytes, verify=verify, gap_bytes=gap_bytes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.__exit__(None, None, None)

    def cells(self, documents=None):
        """The tokens of some documents, end to end."""
        chosen = range(len(self.documents)) if documents is None else documents
        starts = list(itertools.accumulate(map(len, self.documents), initial=0))
        return [
            (d, offset, token, starts[d] + offset)
            for d in chosen
            for offset, token in enumerate(self.documents[d])
        ]


def numbered(lengths, first=0):
    """Shards of documents with these lengths; every token is another number."""
    count = itertools.count(first)
    return [[[next(count) for _ in range(length)] for length in shard] for shard in lengths]


lengths = st.lists(
    st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 5, 9, 17]), max_size=9), min_size=1, max_size=4
)


def slow_rows(cells, seq_len, *, tail="drop", lookahead=False, overlap=0):
    """Rows cut from a list of cells, each `width` long, None where there is nothing."""
    width = seq_len + (1 if lookahead else 0)
    rows, start = [], 0
    while True:
        row = cells[start : start + width]
        if len(row) < width:
            fresh = row[overlap:] if rows else row  # what no row has had
            if tail == "keep" and fresh:
                rows.append(row + [None] * (width - len(row)))
            return rows
        rows.append(row)
        start += width - overlap


def slow_segments(row, eos_id=None):
    """1, 2, … for the documents of a row, 0 for filler."""
    found, number, before = [], 0, None
    for cell in row:
        if cell is None:
            found.append(0)
        else:
            begins = before is None or (
                before[0] != cell[0] if eos_id is None else before[2] == eos_id
            )
            number += begins
            found.append(number)
        before = cell
    return found


def slow_stretches(segments):
    """(first cell, length) of every stretch of one segment."""
    found, first = [], 0
    for _, group in itertools.groupby(segments):
        size = len(list(group))
        found.append((first, size))
        first += size
    return found


def slow_batch(
    rows,
    seq_len,
    *,
    label_layout="aligned",
    mask_boundary_loss=True,
    position_scheme="reset",
    ignore_id=None,
    segments="documents",
    eos_id=None,
    pad_id=0,
    weight=None,
):
    """Every array of a batch, from its rows; `weight` is the stored weight by address."""
    by = eos_id if segments == "eos" else None
    out = {name: [] for name in ARRAYS if name != "index"}
    cu, starts, goes_on = [], [], []
    for number, row in enumerate(rows):
        segment = slow_segments(row, by)
        counted = [0.0] * seq_len
        # an aligned label stands at its own token, so the last cell has none to give
        for i in range(seq_len if label_layout == "shifted" else seq_len - 1):
            target = row[i + 1] if i + 1 < len(row) else None
            if row[i] is None or target is None or target[2] == ignore_id:
                continue
            if mask_boundary_loss and segment[i] != segment[i + 1]:
                continue
            counted[i] = 1.0 if weight is None else max(0.0, weight[target[3]])
        mask = [w > 0 for w in counted]
        tokens = [pad_id if cell is None else cell[2] for cell in row]
        if label_layout == "aligned":
            labels = [-100] + [tokens[i] if mask[i - 1] else -100 for i in range(1, seq_len)]
        else:
            labels = [tokens[i + 1] if mask[i] else -100 for i in range(seq_len)]
        stretches = slow_stretches(segment[:seq_len])
        inside = [k for _, size in stretches for k in range(size)]
        out["tokens"].append(tokens[:seq_len])
        out["labels"].append(labels)
        out["loss_mask"].append(mask)
        out["loss_weights"].append(counted)
        out["segment_ids"].append(segment[:seq_len])
        absolute = position_scheme == "absolute"
        out["position_ids"].append(list(range(seq_len)) if absolute else inside)
        out["attention_mask"].append([s > 0 for s in segment[:seq_len]])
        cu += [number * seq_len + first for first, _ in stretches]
        real = [first for first, _ in stretches if segment[first] > 0]
        starts.append(real)
        goes_on.append([by is None and row[first][1] > 0 for first in real])
    most = max([1, *map(len, starts)])
    out["document_starts"] = [one + [-1] * (most - len(one)) for one in starts]
    out["continues"] = [one + [False] * (most - len(one)) for one in goes_on]
    out["cu_seqlens"] = [*cu, len(rows) * seq_len]
    return out


def assert_batch(batch, expected):
    """All arrays of a batch are as expected, values and dtypes."""
    for name, values in expected.items():
        found = getattr(batch, name)
        assert found.dtype == DTYPES[name], name
        assert found.tolist() == values, name


def arrays(batch, names=ARRAYS):
    return {name: getattr(batch, name).copy() for name in names}


def assert_same(one, other, names=ARRAYS):
    for name in names:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
