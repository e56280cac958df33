"""What may be an index of a run, and what a batch of no index is."""

import json

import numpy as np
import pytest
from toydata import ToyStore, numbered

import tokenloom as tl


@pytest.fixture
def ten():
    with ToyStore(numbered([[40]])) as toy:
        yield toy.store.windows(4)


@pytest.mark.parametrize(
    "index", [1.0, 0.5, True, np.True_, np.float64(1), "1", None, 1j, slice("2")]
)
def test_what_is_no_integer_is_no_index(ten, index):
    with pytest.raises(TypeError):
        ten[index]
    for ask in (ten.batch, ten.spans, ten.locate):
        with pytest.raises(TypeError):
            ask([index])


def test_indices_have_one_axis(ten):
    for ask in (ten.batch, ten.spans, ten.locate):
        with pytest.raises(TypeError, match=r"indices: found shape \(2, 2\)"):
            ask([[0, 1], [2, 3]])
    assert ten.batch(3).tokens.tolist() == [[12, 13, 14, 15]]  # one is a list of one


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_integers_of_every_kind_are_indices(ten, kind):
    assert ten.batch(np.array([9, 0], kind)).index.tolist() == [9, 0]
    assert ten[kind(3)].tokens.tolist() == [[12, 13, 14, 15]]
    assert ten.batch(range(2)).tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_no_index_is_a_batch_of_no_rows(ten):
    batch = ten.shuffle().batch([])
    assert batch.shape == (0, 4)
    assert len(batch) == 0
    for name in ("tokens", "segment_ids", "position_ids", "attention_mask"):
        assert getattr(batch, name).shape == (0, 4), name
    assert batch.cu_seqlens.tolist() == [0]
    assert batch.max_seqlen == 0
    assert batch.labels.shape == batch.loss_mask.shape == (0, 4)


def test_spans_read_no_token(ten):
    before = ten.counters().read_ops
    ten.shuffle().spans(range(10))
    assert ten.counters().read_ops == before


def test_metadata_names_the_input_of_the_build_that_added_the_document(tmp_path):
    """Inputs are numbered in every build and append anew."""
    for name, count in (("a", 2), ("b", 1), ("c", 1), ("d", 3)):
        rows = [json.dumps({"text": f"{name}{i}" * 5}) for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    first, more = [[tmp_path / f"{one}.jsonl" for one in some] for some in ("ab", "cd")]
    tl.build(first, tmp_path / "s", tokenizer="bytes")
    tl.build(more, tmp_path / "s", tokenizer="bytes", append=True)
    run = tl.open(tmp_path / "s").pack(16, strategy="sequential")
    found = [one["_input"] for row in run.batch(range(len(run))).metadata for one in row]
    assert list(dict.fromkeys(found)) == [f"{one}.jsonl" for one in "abcd"]
