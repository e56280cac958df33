"""The published figures of packing: boundaries of packed rows, rows of packers, efficiencies.

The published comparison of packers draws numbers of words with Python's generator, seed 42, and
encodes them with GPT-2, where each of its words is two tokens; so lengths follow without it: two a
word, BOS and EOS. The efficiencies of packedBERT are of a histogram that is not part of this
project: a file with the number of sequences of 1, 2, 3, … tokens (`--histogram`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tokenloom as tl
from benchmarks.clock import timed
from benchmarks.figures import Figure, Section, shown
from benchmarks.packing import CAPACITY, document_lengths, scan
from tokenloom.batch.boundaries import position_ids
from tokenloom.layout.pack.packers import pack
from tokenloom.testing import write_flat

__all__ = [
    "LOG_MEDIAN",
    "MORE",
    "SCANNED",
    "boundaries",
    "efficiency",
    "packers",
    "read_histogram",
    "scanned",
]

WORDS = ((0.4, 5, 15), (0.7, 20, 40), (0.9, 50, 100), (1.0, 150, 250))  # below, from, to
# documents → seconds, rows and fill of a scan over all bins, measured elsewhere
SCANNED = {
    2_000: (0.39, 481, 0.9979),
    5_000: (2.2, 1_227, 0.9990),
    10_000: (9.9, 2_468, 0.9997),
    20_000: (38.2, 4_918, 0.9998),
}
LOG_MEDIAN = 5.8  # of the tokens of those documents: 330
MORE = (100_000, 1_000_000)  # documents that nobody scanned
FEW = 5_000  # documents up to which the scan is run for its rows


# -- boundaries ----------------------------------------------------------------------------


def boundaries(folder: Path) -> Section:
    """Starts, positions, and what they take."""
    sizes = (50, 30, 20)
    write_flat(folder / "boundaries", np.arange(100), np.array(sizes), vocab_size=1000)
    row = tl.open(folder / "boundaries").pack(100, strategy="greedy")[0]
    starts = [int(one) for one in row.document_starts[0] if one >= 0]
    made, pair = position_ids([starts], 100)[0], position_ids([[0, 4]], 8)[0]
    parts = np.split(made, starts[1:])
    figures = [
        Figure(
            what="starts of documents of 50, 30, 20 tokens",
            published="0 50 80",
            ours=" ".join(map(str, starts)),
            test="test_pk_22_documents_of_50_30_and_20_tokens_start_at_0_50_and_80",
        ),
        Figure(
            what="their position ids",
            published="0–49 0–29 0–19",
            ours=" ".join(f"{part[0]}–{part[-1]}" for part in parts),
            test="test_bc_02_positions_restart_at_50_and_80",
        ),
        Figure(
            what="starts 0 and 4 in a row of 8: position ids",
            published="0 1 2 3 0 1 2 3",
            ours=" ".join(map(str, pair)),
            test="test_bc_01_two_documents_of_four_tokens_start_at_0_and_4",
        ),
    ]
    return shown("boundaries", [*figures, *_storage(folder)])


def _storage(folder: Path) -> list[Figure]:
    """What starts and positions of a row take, at the four corners of the published ranges."""
    figures = []
    for cells in (512, 4096):
        for documents in (2, 5):
            sizes = np.diff(np.linspace(0, cells, documents + 1).astype(np.int64))
            root = folder / f"row-{cells}-{documents}"
            write_flat(root, np.arange(cells) % 999, sizes, vocab_size=1000)
            row = tl.open(root).pack(cells, strategy="greedy")[0]
            starts, positions = row.document_starts, row.position_ids
            what = f"{documents} documents in {cells:,} cells"
            figures += [
                Figure(
                    what=f"{what}: integers of starts and of positions",
                    published=f"{documents} {cells:,}",
                    ours=f"{starts.size} {positions.size:,}",
                ),
                Figure(
                    what="… bytes of positions over those of starts",
                    published="50 to 100 times",
                    ours=f"{positions.nbytes / starts.nbytes:,.0f} times",
                    why="e",
                ),
            ]
    return figures


# -- packers -------------------------------------------------------------------------------


def words(documents: int) -> np.ndarray:
    """Tokens of the documents of the published comparison."""
    draw = random.Random(42)
    made = []
    for _ in range(documents):
        luck = draw.random()
        low, high = next((low, high) for below, low, high in WORDS if luck < below)
        made.append(2 * draw.randint(low, high) + 2)
    return np.array(made, np.int64)


def _rows(sizes: np.ndarray, frame: int, strategy: str) -> tuple[str, str]:
    rows = len(pack(sizes, frame, strategy))
    return f"{rows:,}", f"{sizes.sum() / (rows * frame):.1%}"


def packers() -> Section:
    """Rows and fill of the published comparison."""
    cut, whole = np.minimum(words(200), 128), words(500)
    twice = np.minimum(words(200) + 1, 128)  # a second BOS in each row but the first
    twice[0] = cut[0]
    alone = f"{twice.mean() / 128:.1%}"
    figures = []
    for what, sizes, frame, strategy, published, whys in (
        ("200 documents cut to 128, greedy", cut, 128, "greedy", ("200", "49.8%"), "ff"),
        ("… best fit", cut, 128, "best_fit_decreasing", ("100", "98.4%"), ("", "")),
        ("500 documents in 4,096, greedy", whole, 4096, "greedy", ("12", "95.4%"), ("", "")),
        ("… best fit", whole, 4096, "best_fit_decreasing", ("12", "95.4%"), ("", "")),
    ):
        found = _rows(sizes, frame, strategy)
        for name, theirs, ours, why in zip(("rows", "fill"), published, found, whys, strict=True):
            figures.append(Figure(what=f"{what}: {name}", published=theirs, ours=ours, why=why))
    figures.append(
        Figure(
            what="200 documents cut to 128, one a row with a second BOS: fill",
            published="49.8%",
            ours=alone,
        )
    )
    return shown("packers", figures)


def scanned() -> Section:
    """Rows and fill of a scan over all bins as measured elsewhere, and of our packer."""
    figures = []
    for documents in (*SCANNED, *MORE):
        sizes = document_lengths(documents, LOG_MEDIAN)
        ours = len(pack(sizes, CAPACITY, "best_fit_decreasing"))
        share = sizes.sum() / (ours * CAPACITY)
        here = f"{scan(sizes.tolist()):,}" if documents <= FEW else ""
        _, rows, fill = SCANNED.get(documents, (0, 0, 0))
        theirs = (f"{rows:,}", f"{fill:.4f}") if rows else ("", "")
        what = f"{documents:,} documents"
        figures += [
            Figure(what=f"{what}: rows", published=theirs[0], ours=f"{ours:,}", more=(here,)),
            Figure(what=f"{what}: fill", published=theirs[1], ours=f"{share:.4f}", more=("",)),
        ]
    return shown("scan", figures, heads=("measured there", "ours", "a scan, run here"))


# -- efficiencies --------------------------------------------------------------------------


def read_histogram(path: Path) -> np.ndarray:
    """The number of sequences of 1, 2, 3, … tokens, from whole numbers in a text.

    Raises:
        ValueError: it has none.
    """
    counts = [int(one) for one in re.findall(r"\d+", path.read_text(encoding="utf-8"))]
    if not any(counts):
        raise ValueError(
            f"{path}: found no count above 0, allowed: the number of sequences of 1, 2, 3, … "
            "tokens, as whole numbers with anything between them."
        )
    return np.array(counts, np.int64)


def efficiency(counts: Sequence[int] | np.ndarray) -> Section:
    """Efficiency and speed-up of best fit decreasing for a histogram of lengths.

    Args:
        counts: the number of sequences of 1, 2, 3, … tokens; the last is that of a whole row.
    """
    frame = len(counts)
    sizes = np.repeat(np.arange(1, frame + 1), counts)
    published = {
        "best fit, at most 12 a row (LPFHP)": (12, "99.8129%", "1.99758", ""),
        "shortest pack first, at most 12 a row (SPFHP)": (12, "99.6040%", "1.99340", "g"),
        "least squares, at most 3 a row (NNLSHP)": (3, "99.75%", "1.99625", "g"),
    }
    made = {3: 0, 12: 0}

    def packed() -> None:
        for most in made:
            made[most] = len(pack(sizes, frame, "best_fit_decreasing", most))

    cpu, _ = timed(packed)
    figures = [
        Figure(what="sequences", published="16,279,552", ours=f"{len(sizes):,}"),
        Figure(
            what="largest possible speed-up",
            published="2.0013",
            ours=f"{frame * len(sizes) / sizes.sum():.4f}",
        ),
    ]
    for what, (most, share, gain, why) in published.items():
        digits = len(share.split(".")[1]) - 1
        ours = f"{sizes.sum() / (made[most] * frame):.{digits}%}"
        figures.append(Figure(what=f"{what}: efficiency", published=share, ours=ours, why=why))
        ours = f"{len(sizes) / made[most]:.5f}"
        figures.append(Figure(what=f"{what}: speed-up", published=gain, ours=ours, why=why))
    free = sizes.sum() / (len(pack(sizes, frame, "best_fit_decreasing")) * frame)
    note = (
        f"Without a limit best fit reaches {free:.4%}. The plans of 3 and 12 a row took {cpu:.1f} "
        "CPU-seconds together; they say where each sequence goes."
    )
    return shown("efficiency", figures, needs="--histogram FILE", notes=[note])
