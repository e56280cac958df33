"""Rows of an evaluation beside rows of training, from one store."""

import numpy as np
from toydata import ToyStore, numbered


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
