"""The published figures of splices: every worked example, counts of pairs, and shares of documents.

The design writes a document as 0 1 2 3 4 or as letters, and filler as Null; here filler is a dot,
and a row is its cells without spaces. Positions are absolute throughout, as in the design.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.figures import Figure, Section, code, shown
from tokenloom.integrations.levanter import recommended
from tokenloom.layout.splice.rows import Spliced
from tokenloom.testing import write_flat, write_store

__all__ = ["balance", "splices"]

EXAMPLE_A = (
    *("012..", ".012.", "..012", "123..", ".123.", "..123", "234..", ".234.", "..234"),
    *("34...", ".34..", "..34.", "...34"),
)
TEN = (45231, 43890, 42105, 38234, 35678, 33421, 31209, 29834, 28456, 27891)
THREE = (10_000, 5_000, 2_000)
BAL_03 = "test_bal_03_proportions_of_10k_5k_and_2k_pairs"


def _letters(root: Path, *documents: str) -> tl.Store:
    write_store(root, [[list(one.encode()) for one in documents]])
    return tl.open(root)


def _lengths(root: Path, lengths: Sequence[int]) -> tl.Store:
    write_flat(root, np.arange(sum(lengths)) % 999, np.array(lengths), vocab_size=1000)
    return tl.open(root)


def _spliced(documents: tl.Documents, seq_len: int, **options: Any) -> tl.Dataset:
    how = {"position_scheme": "absolute", "pad_id": ord("."), "trailing": "doc", **options}
    return documents.splice(seq_len, **how)


def _triples(run: tl.Dataset) -> list[tuple[int, int, int]]:
    """(document, t, s) of every row of the first epoch."""
    layout = run.run.layout
    assert isinstance(layout, Spliced)
    found = layout.triples(0, np.arange(run.run.rows))
    return list(zip(*(column.tolist() for column in found[1:]), strict=True))


def _rows(run: tl.Dataset, name: str = "tokens") -> list[str]:
    """The rows of a run as letters, or an array of them as digits."""
    batch = run.batch(np.arange(len(run)))
    if name == "tokens":
        return [bytes(row).decode() for row in batch.tokens.astype(np.uint8)]
    return ["".join(map(str, row)) for row in getattr(batch, name).astype(int).tolist()]


def _by_document(run: tl.Dataset, documents: int) -> str:
    counts = Counter(document for document, _, _ in _triples(run))
    return " ".join(f"{counts[number]:,}" for number in range(documents))


# -- worked examples -----------------------------------------------------------------------


def splices(folder: Path) -> Section:
    """Rows and counts of the examples that the design works out."""
    five = _letters(folder / "five", "01234")
    figures = _whole(five) + _within(five) + _quick(folder) + _three(folder)
    return shown("splices", figures)


def _whole(five: tl.Store) -> list[Figure]:
    whole = _spliced(five, 5, content_start_mode="anchor_start", placement="truncate")
    return [
        Figure(
            what="S = L = 5, whole document at s = 0, 1, 2",
            published=code(["01234", ".0123", "..012"]),
            ours=code(_rows(whole)[:3]),
            test="test_sp_06_truncate_lets_the_end_of_the_frame_cut",
        )
    ]


def _within(five: tl.Store) -> list[Figure]:
    two, three = (
        _spliced(five, 5, content_start_mode="slide_within", content_length=content)
        for content in (2, 3)
    )
    short = dict(zip(_triples(two), _rows(two), strict=True))
    loss = dict(zip(_triples(two), _rows(two, "loss_mask"), strict=True))
    longer = dict(zip(_triples(three), _rows(three), strict=True))
    starts = Counter(t for _, t, _ in _triples(three))
    pairs = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)}
    found = {(t, s) for _, t, s in _triples(three)}
    return [
        Figure(
            what="K = 2, t = 1, s = 0",
            published=code(["12..."]),
            ours=code([short[0, 1, 0]]),
            test="test_sp_07_a_slice_from_inside_the_document",
        ),
        Figure(
            what="its loss mask",
            published=code(["10000"]),
            ours=code([loss[0, 1, 0]]),
            test="test_sp_07_a_slice_from_inside_the_document",
        ),
        Figure(
            what="K = 3, t = 2, s = 1",
            published=code([".234."]),
            ours=code([longer[0, 2, 1]]),
            test="test_sp_08_a_slice_from_inside_the_document_further_right",
        ),
        Figure(
            what="example A, K = 3: all rows",
            published=code(EXAMPLE_A),
            ours=code(longer.values()),
            test="test_sp_09_example_a_has_exactly_13_rows",
        ),
        Figure(
            what="example A: rows of t = 0 … 4",
            published="3 + 3 + 3 + 4 + 0 = 13",
            ours=" + ".join(str(starts[t]) for t in range(5)) + f" = {len(three)}",
            test="test_sp_12_the_count_formula",
        ),
        Figure(
            what="example B, K = 2: rows of t = 1",
            published=code(["12...", ".12..", "..12.", "...12"]),
            ours=code(row for (_, t, _), row in short.items() if t == 1),
            test="test_sp_11_example_b",
        ),
        Figure(
            what="combined coverage, K = 3: pairs (t, s)",
            published=f"{len(pairs)}",
            ours=f"{len(found)}",
            why="a",
            test="test_c_02_the_list_of_six_pairs_is_an_illustration",
        ),
        Figure(
            what="… among them the row `12...`",
            published="there",
            ours="there" if "12..." in longer.values() else "not there",
            why="a",
            test="test_c_03_that_list_does_not_hold_the_slice_it_names",
        ),
    ]


def _quick(folder: Path) -> list[Figure]:
    run = _spliced(_letters(folder / "quick", "123"), 5, content_start_mode="anchor_start")
    test = "test_sp_13_the_designs_quick_unit_test"
    return [
        Figure(
            what="L = 3, S = 5, stride 1: S − L + 1 examples a cycle",
            published="3",
            ours=f"{len(run)}",
            test=test,
        ),
        Figure(
            what="… at offsets",
            published="0 1 2",
            ours=" ".join(str(s) for _, _, s in _triples(run)),
            test=test,
        ),
    ]


def _three(folder: Path) -> list[Figure]:
    store = _letters(folder / "three", "ABCDEFG", "HIJKL", "XYZ")
    fixed = {"content_length": 4, "adaptive_k": False}
    base = _spliced(store, 8, balance_mode="by_coverage", **fixed)
    even = _spliced(store, 8, balance_mode="by_document", **fixed)
    second = [
        row for (number, _, _), row in zip(_triples(base), _rows(base), strict=True) if number
    ]
    test = "test_bal_02_c_16_by_document_repeats_short_ones_from_the_first_start_on"
    return [
        Figure(
            what="lengths 7, 5, 3, K = 4, S = 8: pairs of each document",
            published="4 2 0",
            ours=_by_document(base, 3),
            test="test_sm_02_documents_of_7_5_and_3_have_4_2_and_0_triples",
        ),
        Figure(
            what="… after by_document balancing",
            published="4 4 0",
            ours=_by_document(even, 3),
            test=test,
        ),
        Figure(what="… pairs of an epoch", published="8", ours=f"{len(even)}", test=test),
        Figure(
            what="… rows of document 1",
            published=code(["....HIJK", "....IJKL"]),
            ours=code(second),
            test="test_sm_03_the_second_start_of_document_1",
        ),
        Figure(
            what="… its loss mask",
            published=code(["00001110"]),
            ours=code(_rows(base, "loss_mask")[-1:]),
            test="test_sm_01_a_triple_is_built_like_a_single_pair",
        ),
        Figure(
            what="… its segment ids",
            published=code(["00001111"]),
            ours=code(_rows(base, "segment_ids")[-1:]),
            test="test_sm_01_a_triple_is_built_like_a_single_pair",
        ),
    ]


# -- balance -------------------------------------------------------------------------------


def balance(folder: Path) -> Section:
    """Pairs and shares of documents of unlike lengths, and the recommended settings."""
    return shown("balance", _pairs(folder) + _ten(folder) + _settings(folder))


def _shares(counts: str) -> str:
    values = [int(one.replace(",", "")) for one in counts.split()]
    return " ".join(f"{value / sum(values):.0%}" for value in values)


def _pairs(folder: Path) -> list[Figure]:
    store = _lengths(folder / "pairs", THREE)
    longer = _lengths(folder / "longer", [one + 1 for one in THREE])
    pairs = {"content_length": 2}  # n + 1 tokens have n starts of two
    frames = {"content_length": 4096}
    covered = {
        "as asked": _by_document(_spliced(store, 4096, balance_mode="by_coverage", **frames), 3),
        "of two": _by_document(_spliced(longer, 8, balance_mode="by_coverage", **pairs), 3),
        "by tokens": _by_document(_spliced(store, 4096, epoch_length=17_000, **frames), 3),
    }
    even = _spliced(longer, 8, balance_mode="by_document", **pairs)
    full = _spliced(store, 4096, balance_mode="by_document", **frames)
    counts = Counter(document for document, _, _ in _triples(even))
    unique = Counter(document for document, _, _ in set(_triples(even)))
    first = "lengths 10K, 5K, 2K, S = K = 4,096, by_coverage: "
    return [
        Figure(
            what=f"{first}pairs",
            published="10,000 5,000 2,000",
            ours=covered["as asked"],
            why="b",
            test="test_c_15_counts_are_exact",
        ),
        Figure(
            what="… shares",
            published="59% 29% 12%",
            ours=_shares(covered["as asked"]),
            why="b",
        ),
        Figure(
            what="… pairs, by temperature 1 with epochs of 17,000",
            published="10,000 5,000 2,000",
            ours=covered["by tokens"],
        ),
        Figure(
            what="10K, 5K, 2K starts (K = 2), by_coverage: pairs",
            published="10,000 5,000 2,000",
            ours=covered["of two"],
            test=BAL_03,
        ),
        Figure(
            what="… shares", published="59% 29% 12%", ours=_shares(covered["of two"]), test=BAL_03
        ),
        Figure(what="… by_document: pairs", published="30,000", ours=f"{len(even):,}", test=BAL_03),
        Figure(
            what="… pairs that are no repetition",
            published="10,000 5,000 2,000",
            ours=" ".join(f"{unique[number]:,}" for number in range(3)),
            test=BAL_03,
        ),
        Figure(
            what="… repetitions",
            published="0 5,000 8,000",
            ours=" ".join(f"{counts[number] - unique[number]:,}" for number in range(3)),
            test=BAL_03,
        ),
        Figure(
            what="lengths 10K, 5K, 2K, S = K = 4,096, by_document: pairs",
            published="30,000",
            ours=f"{len(full):,}",
            why="b",
        ),
    ]


def _ten(folder: Path) -> list[Figure]:
    store = _lengths(folder / "ten", TEN)
    frames = {"content_length": 4096}
    even = _spliced(store, 4096, balance_mode="by_document", **frames)
    covered = _spliced(store, 4096, balance_mode="by_coverage", **frames)
    cooled = _spliced(store, 4096, balance_tau=0.7, **frames)
    layout = cooled.run.layout
    assert isinstance(layout, Spliced)
    weights = np.array(layout.parts[0].weights, float)
    each = np.dtype(store.dtype).itemsize
    first, every = TEN[0] * each, store.num_tokens * each
    return [
        Figure(
            what="ten lengths, S = K = 4,096, by_document: pairs",
            published="452,310",
            ours=f"{len(even):,}",
            why="b",
        ),
        Figure(
            what="… by_coverage: pairs of the first three",
            published="45,231 43,890 42,105",
            ours=_by_document(covered, 3),
            why="b",
        ),
        Figure(
            what="… by temperature 0.7: shares of the first three",
            published="0.44 0.42 0.40",
            ours=" ".join(f"{one:.2f}" for one in weights[:3] / weights.sum()),
            why="c",
            test="test_bal_06_the_ten_documents_of_the_design",
        ),
        Figure(
            what=f"… tokens of the first, {first:,} bytes: about 50 to 100 KB",
            published="yes",
            ours="yes" if 50_000 <= first <= 100_000 else "no",
        ),
        Figure(
            what=f"… tokens of all, {every:,} bytes: about 500 KB to 5 MB",
            published="yes",
            ours="yes" if 500_000 <= every <= 5_000_000 else "no",
        ),
    ]


RECOMMENDED = {
    "num_docs": 10,
    "min_doc_length": 4096,
    "max_doc_length": 100_000,
    "doc_select_mode": "longest",
    "balance_mode": "by_temperature",
    "balance_tau": 0.7,
    "content_length": 4096,
    "content_stride": 1,
    "alpha": 0.8,
    "adaptive_k": True,
}


def _settings(folder: Path) -> list[Figure]:
    one = _letters(folder / "jitter", "ABCDEFG")
    moved = _spliced(one, 8, content_length=4, offset_jitter=3, sampler="stream").seed(0)
    layout = moved.run.layout
    assert isinstance(layout, Spliced)
    offsets = set(layout.triples(*moved.run.locate(np.arange(200))).s.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that splices as long as frames cannot move
        filled = _spliced(one, 4, content_length=4, offset_jitter=2)
    still = {s for _, _, s in _triples(filled)}
    ours = recommended(4096)
    return [
        Figure(
            what="K = 4, S = 8, jitter over 0 … 3: offsets",
            published="1 2 3 4",
            ours=" ".join(map(str, sorted(offsets))),
            test="test_c_13_jitter_j_is_the_base_and_j_more_to_its_left",
        ),
        Figure(
            what="ten recommended settings, S = 4,096",
            published=" ".join(map(str, RECOMMENDED.values())),
            ours=" ".join(str(ours[name]) for name in RECOMMENDED),
            test="test_cf_09_the_recommended_settings",
        ),
        Figure(
            what="… with a jitter of 2 besides, so K = S: offsets of a splice",
            published="3",
            ours=f"{len(still)}",
            why="d",
            test="test_sm_09_c_12_splices_as_long_as_frames_do_not_move_and_warn_once",
        ),
    ]
