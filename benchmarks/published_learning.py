"""The published figures of mixing and of evaluation: turns of sources, windows, P(z), draws.

The note on interleaving has a rule and one checkpoint, no table. P(z), its windows and the number
of draws have published definitions; the values below follow from them by hand.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import tokenloom as tl
from benchmarks.figures import Figure, Section, shown
from tokenloom.evaluate import content_hash, draws_needed, log_pz, one_document_rows, pz, window_run
from tokenloom.streams.checkpoint import read_offsets, write_offsets
from tokenloom.testing import write_flat

__all__ = ["evaluation", "interleave", "memorization"]

SIZE = 10  # of the vocabulary


def _store(root: Path, lengths: list[int], vocab_size: int = 1000) -> tl.Store:
    ids = np.arange(sum(lengths)) % (vocab_size - 1) + 1
    write_flat(root, ids, np.array(lengths), vocab_size=vocab_size)
    return tl.open(root)


# -- mixing --------------------------------------------------------------------------------


def interleave(folder: Path) -> Section:
    """The rule, its balance, and the checkpoint."""
    rows = _store(folder / "rows", [8] * 80)
    pairs = {name: rows.windows(2).epochs(None) for name in "ab"}
    first = tl.mix(pairs, initial={"a": 0, "b": 100}).picked(range(52))[0]
    equal = next(n for n in range(53) if 2 * first[:n].count("a") == 100 + 2 * first[:n].count("b"))
    saved = {"datasets": [{"spec": "wiki", "row_offset": 123, "token_offset": 456}]}
    again = write_offsets(read_offsets(saved, ["wiki"]))
    old = {"datasets": [{"spec": "old", "row_offset": 15, "token_offset": 120}]}
    joined = {
        missing: read_offsets(old, ["old", "new"], missing=missing)["new"]
        for missing in ("zero", "baseline")
    }
    figures = [
        Figure(
            what="counts of 0 and 100, samples of 2 tokens: samples until both are equal",
            published="50",
            ours=f"{equal}",
            test="test_im_01_im_06_with_counts_of_0_and_100_the_next_samples_are_a0_a1_a2",
        ),
        Figure(
            what="samples of at most 100 tokens: counts are within 100 of each other",
            published="always",
            ours="always" if _apart(folder) <= 100 else "not always",
            test="test_im_04_counts_are_never_further_apart_than_100",
        ),
        Figure(
            what="row_offset and token_offset of the checkpoint, read and written again",
            published="123 456",
            ours=" ".join(str(again["datasets"][0][key]) for key in ("row_offset", "token_offset")),
        ),
        Figure(
            what="tokens of a new spec beside one of 120",
            published="0",
            ours=f"{joined['zero'].tokens}",
            test="test_ck_04_ck_05_ck_06_ck_07_c_47_a_new_spec_starts_at_the_baseline",
        ),
        Figure(
            what="… as planned there, and the default here: at the baseline",
            published="120",
            ours=f"{joined['baseline'].tokens}",
            test="test_ck_04_ck_05_ck_06_ck_07_c_47_a_new_spec_starts_at_the_baseline",
        ),
    ]
    return shown("interleave", figures, heads=("by the note", "ours"))


def _apart(folder: Path) -> int:
    """The largest difference of two counts, after every sample while both sources last."""
    random = np.random.default_rng(5)
    sources = {}
    for name in "ab":  # no two of these fit into one row, so a row is a document
        lengths = [*random.integers(51, 101, 90).tolist(), 100]
        sources[name] = _store(folder / f"apart-{name}", lengths).pack(100).shuffle()
    run = tl.mix(sources, stop="first_exhausted").seed(3)
    batch = run.batch(range(len(run)))
    counts, apart = Counter(a=0, b=0), 0
    for name, tokens in zip(batch.source, batch.attention_mask.sum(1).tolist(), strict=True):
        counts[name] += tokens
        apart = max(apart, abs(counts["a"] - counts["b"]))
    return apart


# -- P(z) ----------------------------------------------------------------------------------


def memorization(folder: Path) -> Section:
    """Draws that are needed, windows of documents, and P(z) where it is known."""
    figures = _draws() + _windows(folder) + _chances()
    return shown("memorization", figures, heads=("by the definition", "ours"))


def _draws() -> list[Figure]:
    figures = []
    known = ((0.001, 0.5, "693"), (0.01, 0.9, "230"), (0.1, 0.99, "44"), (0.5, 0.5, "1"))
    for chance, p, published in known:
        figures.append(
            Figure(
                what=f"draws for P(z) = {chance:g} to be seen with p = {p:g}",
                published=published,
                ours=f"{float(draws_needed(math.log(chance), p)):,.0f}",
                test="test_draws_that_are_needed",
            )
        )
    figures.append(
        Figure(
            what="draws for P(z) = 1e-17 to be seen with p = 0.5",
            published="6.93e+16",
            ours=f"{float(draws_needed(math.log(1e-17), 0.5)):.3g}",
            test="test_draws_that_are_needed",
        )
    )
    return figures


def _windows(folder: Path) -> list[Figure]:
    figures = []
    for length, published in ((4096, "800"), (1024, "185"), (105, "2"), (100, "1")):
        store = _store(folder / f"windows-{length}", [length])
        figures.append(
            Figure(
                what=f"windows of 100 tokens in {length:,}, stride 5",
                published=published,
                ours=f"{len(window_run(store))}",
                test="test_how_many_windows_a_document_has" if length != 1024 else "",
            )
        )
    try:
        found = len(window_run(_store(folder / "windows-99", [99])))
    except tl.ConfigError:  # which says how long the longest is
        found = 0
    test = "test_documents_that_are_too_short_have_none_and_that_is_told"
    what = "windows of 100 tokens in 99"
    return [*figures, Figure(what=what, published="0", ours=f"{found}", test=test)]


def _chances() -> list[Figure]:
    even = float(log_pz(np.zeros((4, SIZE)), [1, 2, 3, 4], prefix=2))
    logits = np.full((257, 20), 0.0)  # each of 20 tokens has probability 0.05
    long = float(log_pz(logits, np.zeros(257, np.int64), prefix=1))
    return [
        Figure(
            what="P(z) of 2 tokens, uniform model of 10",
            published="0.01",
            ours=f"{math.exp(even):.15g}",
            test="test_a_uniform_model_of_ten_tokens_gives_a_hundredth",
        ),
        Figure(
            what="log P(z) of 256 tokens of probability 0.05",
            published="-766.9",
            ours=f"{long:.1f}",
        ),
        Figure(what="… its exponential in float64", published="0.0", ours=f"{math.exp(long)}"),
    ]


# -- what is evaluated ---------------------------------------------------------------------


def evaluation(folder: Path) -> Section:
    """P(z) of one document and of several; rows that no setting of training moves."""
    store = _store(folder / "judged", [7, 5, 3], SIZE)

    def model(tokens: np.ndarray, *_: object) -> np.ndarray:
        return np.zeros((*tokens.shape, SIZE))

    def counted(documents: tl.Documents) -> str:
        found = pz(model, documents, prefix=1, suffix=2, stride=1, progress=False).by_document()
        return " ".join(str(one["windows"]) for one in found.values())

    figures = [
        Figure(
            what="P(z) of one document of 5 tokens, windows of 3: windows",
            published="3",
            ours=counted(store.select(doc_index=1)),
            test="test_c_24_p_z_is_of_one_document_or_of_several",
        ),
        Figure(
            what="P(z) of documents of 7, 5, 3: windows of each",
            published="5 3 1",
            ours=counted(store),
            test="test_c_24_p_z_is_of_one_document_or_of_several",
        ),
        Figure(
            what="evaluation sets while training is laid out in four ways",
            published="1",
            ours=f"{_sets(store)}",
            test="test_c_68_rows_of_an_evaluation_do_not_depend_on_how_training_is_packed",
        ),
    ]
    return shown("evaluation", figures, heads=("expected", "ours"))


def _sets(store: tl.Store) -> int:
    """Different evaluation rows beside four layouts of the same documents."""
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that rows of toys are shorter than their documents
        for training in (
            store.windows(4),
            store.pack(8, strategy="sequential").shuffle(),
            store.pack(6).epochs(3),
            store.splice(4, content_length=3),
        ):
            training.batch(range(len(training)))
            rows = one_document_rows(store, 8)
            tokens = rows.batch(range(len(rows))).tokens.tobytes()
            found.add((content_hash(store), rows.fingerprint, tokens))
    return len(found)
