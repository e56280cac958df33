"""The published packing table from its histogram, where the file is; from a made one elsewhere."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.packing import HISTOGRAM, PUBLISHED, read_histogram

from tokenloom.layout.histogram import pack_histogram

# what the made histogram below gives, and item by item, too: depth → fill, sequences a row
MADE = {12: (0.99831, 2.74299), 3: (0.86381, 2.37345)}


def made_histogram(path):
    """Sixteen million sequences of up to 512 tokens, by a formula: no generator, no platform."""
    length = np.arange(1, 513)
    weight = np.exp(-((np.log(length) - 5.2) ** 2) / 1.62) / length
    counts = np.floor(weight / weight.sum() * 16_000_000).astype(int)
    path.write_text(json.dumps(counts.tolist()))
    return path


@pytest.mark.parametrize("depth", [12, 3])
def test_fill_and_sequences_a_row_to_every_digit(tmp_path, depth):
    named = os.environ.get(HISTOGRAM)
    path = Path(named) if named else made_histogram(tmp_path / "histogram.json")
    counts = read_histogram(path)
    fill, together = (PUBLISHED if named else MADE)[depth]
    plan = pack_histogram(counts, 512, depth)
    assert plan.items == (16_279_552 if named else counts.sum())
    assert round(plan.fill, 6 if named else 5) == fill
    assert round(plan.items_per_bin, 5) == together


def test_a_histogram_may_be_a_list_or_lines(tmp_path):
    (tmp_path / "lines").write_text("3\n0\n2\n")
    (tmp_path / "list").write_text("[3, 0, 2]")
    for name in ("lines", "list"):
        assert read_histogram(tmp_path / name).tolist() == [0, 3, 0, 2]
