"""Spliced rows are pinned: another digest is another order version.

Lengths come from a formula, so nothing but the layout decides. If one of these changes, runs that
were started earlier cannot resume: raise `ORDER_VERSION`, and say so in the changelog.
"""

import hashlib

import numpy as np
import pytest
from toydata import ToyStore, numbered

from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.spec import SpliceSpec

GOLDEN = {
    "balanced": "ab541ff7e72645804a6ec3894b2ce515",
    "temperature": "073aa4b7d24d576201cb7388a6309a50",
    "edge weights": "c397115cc38121037e1bb682fbd260ee",
    "low discrepancy": "734f8182748c6ded20d0c62441c3bc4a",
    "duplicates": "a8dbe3f70123cc06779e09ff8b875f89",
    "clip and pack": "aee5747b4e8045c9b8a9df1f812b71e1",
    "slide_within": "995f7786db9dc7167abd914f69b85384",
    "axes": "48e3b968e6fcb068601294b1a62f4d0f",
    "cyclic_roll": "af73b81b1696237b4fbede9606d27756",
    "with everything": "a1dab75318a9367f062d82ebb052900e",
}

SPECS = {
    "balanced": {"content_length": 32},
    "temperature": {"content_length": 32, "balance_tau": 0.7, "epoch_length": 500},
    "edge weights": {"content_length": 32, "alpha": 0.8, "offset_jitter": 4},
    "low discrepancy": {
        "content_length": 24,
        "offset_jitter": 5,
        "jitter_mode": "low_discrepancy",
        "balance_mode": "by_document",
    },
    "duplicates": {"content_length": 16, "alpha": 0.8, "edge_mode": "duplicate"},
    "clip and pack": {"content_length": 16, "edge": "clip", "fill": "pack", "bos_id": 900},
    "slide_within": {"content_start_mode": "slide_within", "content_length": 20},
    "axes": {
        "content_start_mode": "slide_within",
        "content_length": 20,
        "offset_stride": 9,
        "shuffle_content": True,
        "shuffle_offsets": 3,
    },
    "cyclic_roll": {"content_start_mode": "cyclic_roll", "content_length": 9, "content_stride": 4},
    "with everything": {
        "content_schedule": ((0, 16), (300, 24)),
        "doc_schedule": ((0, 5), (200, 40)),
        "balance_tau": 0.5,
        "doc_weights": tuple(1 + number % 3 for number in range(40)),
        "doc_groups": tuple(number % 4 for number in range(40)),
        "doc_strides": tuple(1 + number % 2 for number in range(40)),
        "max_epochs": 3.0,
        "offset_jitter": 2,
    },
}


@pytest.fixture(scope="module")
def line():
    lengths = [(number * 7919 % 101) ** 2 // 100 + number % 5 for number in range(40)]
    with ToyStore(numbered([lengths]), vocab_size=10_000) as toy:
        yield toy.store.windows(2).sources["main"].line


def digest(spec, line):
    layout = Spliced(spec, line)
    found = hashlib.sha256()
    for epoch in (0, 1, 7, 10**6):
        rows = np.arange(min(int(layout.phases.rows[layout.phases.of(epoch)]), 2000))
        spans = layout.spans(epoch, rows)
        for part in (spans.frame, spans.document, spans.start, spans.length, spans.at, spans.flags):
            found.update(np.ascontiguousarray(part, "<i8").tobytes())
    return found.hexdigest()[:32]


@pytest.mark.parametrize("name", SPECS)
def test_rows_are_what_they_always_were(name, line):
    assert digest(SpliceSpec(seq_len=40, **SPECS[name]), line) == GOLDEN[name]


def test_another_epoch_is_another_digest(line):
    """A control: the digest changes when it should."""
    layout = Spliced(SpliceSpec(seq_len=40, **SPECS["temperature"]), line)
    rows = np.arange(500)
    assert layout.spans(0, rows).start.tolist() != layout.spans(1, rows).start.tolist()
