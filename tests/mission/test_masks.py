import numpy as np
import pytest
from refusals import refused
from toydata import ToyStore

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")


def test_weights_that_are_negative_or_not_numbers_train_nothing():
    values = np.array([1, -2, np.nan, 0.5, 1], np.float32)
    columns = {"loss_weights": ("float32", lambda ids: values)}
    with ToyStore([[[5, 6, 7, 8, 9]]], columns=columns) as toy:
        batch = toy.store.windows(5)[0]
        assert batch.loss_weights.tolist() == [[0, 0, 0.5, 1, 0]]
        assert batch.loss_mask.tolist() == [[False, False, True, True, False]]
        assert batch.labels.tolist() == [[-100, -100, -100, 8, 9]]


def test_stored_columns_are_read_once_for_a_batch():
    columns = {"loss_mask": ("uint8", lambda ids: np.ones(len(ids)))}
    with ToyStore([[[5, 6, 7, 8]]], columns=columns, verify="never") as toy:
        batch = toy.store.windows(4)[0]
        before = toy.store.reads.read_ops
        for name in ("loss_mask", "labels", "loss_weights", "loss_tokens"):
            getattr(batch, name)
        assert toy.store.reads.read_ops - before == 1


# -- worked values -------------------------------------------------------------------------


@pytest.fixture
def four():
    """The row [5, 9, 0, 7] with eos 0: documents [5, 9, 0] and [7]."""
    with ToyStore([[[5, 9, 0], [7]]]) as toy:
        yield toy.store


def test_shifted_labels_are_the_next_tokens(four):
    batch = four.windows(4, label_layout="shifted", mask_boundary_loss=False)[0]
    assert batch.labels[0].tolist() == [9, 0, 7, -100]
    assert batch.label_layout == "shifted"
    ahead = four.windows(3, lookahead=True, label_layout="shifted", mask_boundary_loss=False)[0]
    assert ahead.labels[0].tolist() == [9, 0, 7]
    assert ahead.tokens[0].tolist() == [5, 9, 0]
    masked = four.windows(3, lookahead=True, label_layout="shifted")[0]
    assert masked.labels[0].tolist() == [9, 0, -100]  # 7 starts a document


def test_filler_that_looks_like_the_end_of_a_document_begins_none():
    with ToyStore([[[5, 0, 6, 0, 7]]]) as toy:
        render = {"segments": "eos", "eos_id": 0, "pad_id": 0}
        batch = toy.store.windows(8, tail="keep", **render)[0]
        assert batch.tokens.tolist() == [[5, 0, 6, 0, 7, 0, 0, 0]]
        assert batch.segment_ids.tolist() == [[1, 1, 2, 2, 3, 0, 0, 0]]
        assert batch.position_ids.tolist() == [[0, 1, 0, 1, 0, 0, 1, 2]]
        assert batch.attention_mask.tolist() == [[True] * 5 + [False] * 3]
        assert batch.document_starts.tolist() == [[0, 2, 4]]
        assert batch.cu_seqlens.tolist() == [0, 2, 4, 5, 8]
        assert batch.max_seqlen == 3
        assert batch.loss_mask.tolist() == [[True, False, True, False] + [False] * 4]


def test_a_row_of_one_token_predicts_nothing_without_a_look_ahead():
    with ToyStore([[[4, 5, 6]]]) as toy:
        assert toy.store.windows(1).batch([0, 1]).loss_mask.tolist() == [[False], [False]]
        ahead = toy.store.windows(1, lookahead=True, label_layout="shifted").batch([0, 1])
        assert ahead.labels.tolist() == [[5], [6]]


def test_a_store_shorter_than_a_row_is_one_row_that_is_filled_up():
    with ToyStore([[[4, 5], [6]]]) as toy:
        assert len(toy.store.windows(8)) == 0
        batch = toy.store.windows(8, tail="keep", pad_id=1)[0]
        assert batch.tokens.tolist() == [[4, 5, 6, 1, 1, 1, 1, 1]]
        assert batch.segment_ids.tolist() == [[1, 1, 2, 0, 0, 0, 0, 0]]
        assert batch.labels.tolist() == [[-100, 5] + [-100] * 6]


def test_none_asks_a_layout_for_the_usual_filler_and_is_no_filler_of_a_rendering(four):
    assert four.windows(4, pad_id=None) == four.windows(4)
    with pytest.raises(tl.ConfigError, match="pad_id: found None"):
        four.windows(4).render(pad_id=None)


# -- any spans -----------------------------------------------------------------------------


def test_with_lookahead_labels_are_shifted_unless_told_otherwise():
    """Every prediction that counts has a label, in both layouts."""
    with ToyStore([[[5, 6, 7, 8, 9, 10, 11, 12, 13]]]) as toy:
        for layout, options in (("shifted", {}), ("aligned", {"label_layout": "aligned"})):
            batch = toy.store.windows(4, lookahead=True, **options).batch([0, 1])
            assert batch.label_layout == layout
            assert batch.loss_tokens == (batch.labels >= 0).sum()


@pytest.mark.parametrize(
    ("render", "named"),
    [
        ({"label_layout": "shift"}, ("label_layout", "'shift'")),
        ({"position_scheme": "relative"}, ("position_scheme", "'relative'")),
        ({"segments": "eos"}, ("eos_id",)),
        ({"segments": "bos"}, ("segments", "'bos'")),
        ({"ignore_id": "x"}, ("ignore_id", "'x'")),
        ({"trailing": None}, ("trailing", None)),
        ({"pad_id": 1.5}, ("pad_id", 1.5)),
        ({"mask_boundary_loss": "no"}, ("mask_boundary_loss", "'no'")),
    ],
)
def test_a_rendering_that_cannot_be_meant_is_refused(four, render, named):
    refused(lambda: four.windows(4, **render), tl.ConfigError, *named)
    refused(lambda: four.windows(4).render(**render), tl.ConfigError, *named)


def test_a_mask_and_weights_of_a_store_are_multiplied():
    columns = {
        "loss_mask": ("uint8", lambda ids: ids % 3 > 0),
        "loss_weights": ("float32", lambda ids: ids % 4 / 2),
    }
    ids = list(range(2, 18))
    with ToyStore([[ids]], columns=columns) as toy:
        found = toy.store.windows(16, label_layout="shifted")[0].loss_weights[0].tolist()
    # a value stands at the token that is predicted
    assert found == [*((t % 3 > 0) * (t % 4) / 2 for t in ids[1:]), 0.0]
