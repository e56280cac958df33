"""Labels and loss masks of packed rows at the values that the designs work out by hand."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import quick_folder
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.batch import paint
from tokenloom.testing import write_store

DOCS = Path(__file__).parents[2] / "docs"
SHAPES = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids", "attention_mask")


def row(documents, seq_len=8, **options):
    with ToyStore([documents]) as toy:
        batch = toy.store.pack(seq_len, strategy="greedy", **options)[0]
        return batch.prepare(SHAPES)


def test_lm_01_lm_02_the_target_of_a_boundary():
    """Segments 1 1 1 2 2: aligned label 3 is left out, shifted label 2; unless it is wanted."""
    documents = [[5, 6, 7], [8, 9]]
    aligned = row(documents, 5)
    assert aligned.segment_ids[0].tolist() == [1, 1, 1, 2, 2]
    assert aligned.labels[0].tolist() == [-100, 6, 7, -100, 9]
    shifted = row(documents, 5, label_layout="shifted")
    assert shifted.labels[0].tolist() == [6, 7, -100, 9, -100]
    trained = row(documents, 5, mask_boundary_loss=False)
    assert trained.labels[0].tolist() == [-100, 6, 7, 8, 9]
    assert trained.loss_mask[0].tolist() == [True, True, True, True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"mask_boundary_loss": False},
        {"train_on_eos": False, "eos_id": 3},
        {"train_on_eos": False, "eos_mask": "inserted", "add_eos": True, "eos_id": 3},
        {"ignore_id": 6},
        {"label_layout": "shifted"},
        {"position_scheme": "absolute"},
    ],
)
def test_lm_05_bc_19_c_59_what_is_masked_changes_no_shape(options):
    plain, masked = row([[5, 6, 7], [8, 9]]), row([[5, 6, 7], [8, 9]], **options)
    for name in SHAPES:
        a, b = getattr(plain, name), getattr(masked, name)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name


def test_lm_06_c_53_aligned_labels_one_further_are_the_shifted_ones():
    with ToyStore([[[5, 6, 7, 8], [9, 10]]]) as toy:
        aligned, shifted = (
            toy.store.pack(6, strategy="greedy", label_layout=layout)[0].labels[0].tolist()
            for layout in ("aligned", "shifted")
        )
        assert aligned[1:] == shifted[:-1]
        assert shifted[-1] == -100  # nothing is known after the row
        ahead = toy.store.pack(5, strategy="sequential", lookahead=True, overlap=1)[0]
        assert ahead.tokens[0].tolist() == [5, 6, 7, 8, 9]
        assert ahead.labels[0].tolist() == [6, 7, 8, -100, 10]  # the last from the cell ahead


def test_lm_07_lm_08_only_tokens_with_a_next_one_of_their_document_predict():
    batch = row([[5, 6], [7], [8, 9]], pad_id=0)
    assert batch.tokens[0].tolist() == [5, 6, 7, 8, 9, 0, 0, 0]
    assert batch.loss_mask[0].tolist() == [True, False, False, True, False, False, False, False]
    assert batch.labels[0, 5:].tolist() == [-100] * 3


def test_lm_09_documents_of_one_token_train_nothing_and_say_so():
    with ToyStore([[[5], [6], [7]]]) as toy:
        run = toy.store.pack(8)
        assert set(run[0].labels[0].tolist()) == {-100}
        with (
            tl.Loader(run, 1, fields=("labels",)) as loader,
            pytest.raises(tl.NoTrainedTokens, match="documents of one token"),
        ):
            next(loader)


def test_lm_10_the_count_of_a_batch_is_that_of_its_labels():
    for options in ({}, {"label_layout": "shifted"}, {"mask_boundary_loss": False}):
        batch = row([[5, 6, 7], [8, 9]], **options)
        assert batch.loss_tokens == (batch.labels != -100).sum() == batch.loss_mask.sum()


@pytest.mark.parametrize("options", [{}, {"add_eos": True, "eos_id": 3}])
def test_lm_11_lm_14_only_the_completion_is_trained(tmp_path, options):
    """A prompt of 3 and a completion of 2 tokens; an EOS put after it is also trained."""
    ids, trained = [[5, 6, 7, 8, 9], [4, 4]], {5: 0, 6: 0, 7: 0, 8: 1, 9: 1, 4: 0}
    columns = {"loss_mask": ("uint8", lambda ids: np.array([trained[int(i)] for i in ids]))}
    write_store(tmp_path / "s", [ids], columns=columns, inner=16, chunk_tokens=32)
    batch = tl.open(tmp_path / "s").pack(5 + bool(options), strategy="one_doc", **options)[0]
    expected = [False, False, True, True, False]
    if options:
        expected = [False, False, True, True, True, False]
    assert batch.loss_mask[0].tolist() == expected
    assert batch.loss_weights[0].tolist() == [float(one) for one in expected]


@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4),
)
def test_lm_13_c_62_masks_and_labels_say_the_same(rows):
    """One mask, seen three ways, and back without loss."""
    mask = np.array(rows)
    tokens = np.arange(1, mask.size + 1, dtype=np.int32).reshape(mask.shape)
    mask[:, -1] = False  # the last cell has no label to give
    labels = np.empty_like(tokens)
    paint.labels_from(tokens, mask, labels)
    trained = labels != paint.IGNORE
    assert not trained[:, 0].any()  # the first token is nobody's prediction
    assert np.array_equal(np.roll(trained, -1, axis=1), mask)


weighed = st.lists(
    st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=1, max_size=7), min_size=1, max_size=6
)


@settings(max_examples=25)
@given(weighed, st.booleans(), st.booleans())
def test_c_62_the_views_of_one_mask_agree_in_real_batches(weights, lookahead, boundaries):
    """Stored weights, the mask, aligned and shifted labels: each can be had from each other."""
    documents = numbered([list(map(len, weights))], first=1)[0]
    stored = dict(zip(itertools.chain(*documents), itertools.chain(*weights), strict=True))
    rows = [
        {"input_ids": ids, "loss_weights": values}
        for ids, values in zip(documents, weights, strict=True)
    ]
    how = {"lookahead": lookahead, "mask_boundary_loss": boundaries, "tail": "keep"}
    with quick_folder() as folder:
        store = tl.build(rows, folder / "s", tokenizer=None, vocab_size=99, allow_duplicates=True)
        runs = [store.windows(4, label_layout=layout, **how) for layout in ("aligned", "shifted")]
        aligned, shifted = (run.batch(range(len(run))) for run in runs)
        for name in ("loss_mask", "loss_weights"):
            one, other = getattr(aligned, name), getattr(shifted, name)
            assert np.array_equal(one[:, :-1], other[:, :-1])
            assert not one[:, -1].any()  # the last cell has no label to give
        mask, cells = shifted.loss_mask, shifted.tokens
        assert np.array_equal(shifted.loss_weights > 0, mask)
        assert np.array_equal(shifted.labels != -100, mask)
        assert np.array_equal(aligned.labels[:, 1:] != -100, mask[:, :-1])
        assert np.array_equal(aligned.labels[:, 1:], shifted.labels[:, :-1])
        assert np.array_equal(shifted.labels[:, :-1][mask[:, :-1]], cells[:, 1:][mask[:, :-1]])
        for row, cell in np.argwhere(mask).tolist():
            assert shifted.loss_weights[row, cell] == stored[int(shifted.labels[row, cell])]


def test_c_61_filler_is_segment_0_and_other_conventions_are_one_step_away():
    """Documents 1 to n, in every layout; what the docs say for −1 gives what it promises."""
    with ToyStore([[[5, 6, 7], [8, 9]]]) as toy:
        runs = {
            "windows": (toy.store.windows(8, tail="keep"), [1, 1, 1, 2, 2, 0, 0, 0]),
            "pack": (toy.store.pack(8), [1, 1, 1, 2, 2, 0, 0, 0]),
            "splice": (
                toy.store.splice(8, content_length=3, sampler="enumerate", pad_id=0),
                [0, 0, 0, 0, 0, 1, 1, 1],
            ),
        }
        for name, (run, expected) in runs.items():
            segments = run[0].segment_ids
            assert sorted(segments[0].tolist()) == sorted(expected), name
            assert np.array_equal(segments > 0, run[0].attention_mask), name
            assert set((segments - 1)[0]) == {one - 1 for one in expected}, name
        padded = next(tl.Loader(runs["pack"][0], 2, end="pad")).segment_ids
        assert padded[1].tolist() == [0] * 8  # a row that only fills the step up
    segment_ids = np.array([[1, 1, 2, 0]])
    assert (segment_ids - 1).tolist() == [[0, 0, 1, -1]]
    assert np.where(segment_ids == 0, -1, segment_ids).tolist() == [[1, 1, 2, -1]]
    told = (DOCS / "boundaries.md").read_text()
    for what, code in (
        ("0", "batch.segment_ids - 1"),
        ("1", "np.where(batch.segment_ids == 0, -1"),
    ):
        assert f"| −1 for filler, documents from {what} | `{code}" in told


def test_c_68_rows_of_an_evaluation_do_not_depend_on_how_training_is_packed():
    """One document a row, from the documents that were held out, whatever training does."""
    with ToyStore(numbered([[3, 9, 4, 1, 7, 5, 2, 8, 6, 3, 5, 4]], first=1)) as toy:
        parts = toy.store.split({"train": 0.6, "eval": 0.4}, by="content", seed=4)
        held = parts["eval"].pack(10, strategy="one_doc")
        rows = held.batch(range(len(held)))
        assert rows.segment_ids.max() == 1
        assert len(held) == parts["eval"].num_documents > 1
        trainings = [
            parts["train"].windows(8),
            parts["train"].pack(16, strategy="sequential").block_shuffle().seed(9),
            parts["train"].pack(10, strategy="best_fit_decreasing").shuffle().epochs(3),
            parts["train"].splice(8, content_length=3),
        ]
        for training in trainings:
            seen = training.batch(range(len(training)))
            again = parts["eval"].pack(10, strategy="one_doc")
            assert again == held
            assert np.array_equal(again.batch(range(len(again))).tokens, rows.tokens)
            shown = set(seen.tokens[seen.attention_mask].tolist())
            assert not shown & set(rows.tokens[rows.attention_mask].tolist())


def test_c_63_c_58_boundaries_never_come_from_tokens():
    """PAD, EOS and BOS are one id here, and stand inside documents."""
    batch = row(
        [[0, 5, 0, 6], [0, 0]], seq_len=12, pad_id=0, add_bos=True, bos_id=0, add_eos=True, eos_id=0
    )
    assert batch.segment_ids[0].tolist() == [1] * 6 + [2] * 4 + [0, 0]
    assert batch.labels[0].tolist() == [-100, 0, 5, 0, 6, 0, -100, 0, 0, 0, -100, -100]
