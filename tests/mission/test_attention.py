"""Masks against loops over cells, against torch, and against what a batch says."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from toydata import slow_stretches

from tokenloom.batch import attention

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:.*flex_attention.*")

CELLS = 9
flags = {"causal": st.booleans(), "segment_masking": st.booleans()}


@st.composite
def rows(draw, cells=CELLS, max_rows=4):
    """Segment ids of some rows: documents of any length, filler before, between and after."""
    found = []
    for _ in range(draw(st.integers(1, max_rows))):
        row, document = [], 0
        while len(row) < cells:
            filler = draw(st.integers(0, 3)) == 0 and (not row or row[-1] != 0)
            document += not filler
            row += [0 if filler else document] * draw(st.integers(1, 5))
        found.append(row[:cells])
    return np.array(found, np.int32)


def slow_mask(row, causal, segment_masking):
    """Cell by cell: what may be looked at, in words."""
    stretch = [n for n, (_, size) in enumerate(slow_stretches(row)) for _ in range(size)]

    def may(q, k):
        if causal and k > q:
            return False
        if segment_masking or row[q] == 0 or row[k] == 0:
            return stretch[q] == stretch[k]
        return True

    return [[may(q, k) for k in range(len(row))] for q in range(len(row))]


@given(rows(), st.fixed_dictionaries(flags))
def test_the_dense_mask_is_what_the_words_say(ids, how):
    mask = attention.dense_mask(ids, **how)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [slow_mask(row, **how) for row in ids.tolist()]


@given(rows(), st.fixed_dictionaries(flags))
def test_mask_mod_is_the_dense_mask_at_every_index(ids, how):
    may = attention.mask_mod(ids, **how)
    b, q, k = np.ix_(*map(np.arange, (len(ids), CELLS, CELLS)))
    np.testing.assert_array_equal(may(b, 0, q, k), attention.dense_mask(ids, **how))
    assert bool(may(0, 0, 1, 0)) == bool(attention.dense_mask(ids, **how)[0, 1, 0])


@settings(max_examples=5)
@given(rows(cells=256, max_rows=2), st.booleans())
def test_a_block_mask_holds_every_block_that_the_dense_mask_touches(ids, causal):
    may = attention.mask_mod(torch.from_numpy(ids), causal=causal)
    made = create_block_mask(may, len(ids), None, 256, 256, device="cpu", BLOCK_SIZE=64)
    dense = attention.dense_mask(ids, causal=causal)
    # [rows, blocks of q, 64, blocks of kv, 64]
    touched = dense.reshape(len(ids), 4, 64, 4, 64).any(axis=(2, 4))
    assert made.to_dense()[:, 0].bool().tolist() == touched.tolist()


def test_ids_of_numpy_move_to_the_device_of_the_indices():
    may = attention.mask_mod(np.array([[1, 1, 2]]))
    there = torch.tensor([1, 2], device="meta")
    assert may(torch.zeros_like(there), 0, there, there).device.type == "meta"


def test_flex_attention_equals_attention_with_the_dense_mask():
    ids = np.array([[1] * 40 + [2] * 70 + [0] * 18, [1] * 128])
    make = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 128, 16, generator=make) for _ in range(3))
    may = attention.mask_mod(torch.from_numpy(ids))
    block_mask = create_block_mask(may, 2, None, 128, 128, device="cpu")
    dense = torch.from_numpy(attention.dense_mask(ids))[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=dense)
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=block_mask), expected)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert not torch.allclose(plain, expected)  # the mask matters here


def test_edges_are_those_of_the_worked_example():
    assert attention.cu_seqlens(np.array([[1, 1, 1, 2, 2]])).tolist() == [0, 3, 5]
    assert attention.cu_seqlens(np.array([[1, 1], [1, 0]])).tolist() == [0, 2, 3, 4]
    assert attention.max_seqlen(np.array([[1, 1, 1, 2, 2]])) == 3
    assert attention.cu_seqlens(np.zeros((0, 4), np.int32)).tolist() == [0]


@given(rows())
def test_edges_and_mask_say_the_same(ids):
    edges = attention.cu_seqlens(ids)
    assert edges.dtype == np.int32
    cells = np.arange(ids.size)
    sequence = np.searchsorted(edges, cells, side="right")
    by_edges = (sequence[:, None] == sequence[None, :]) & (cells[:, None] >= cells[None, :])
    by_mask = np.zeros_like(by_edges)
    for row, mask in enumerate(attention.dense_mask(ids)):
        part = slice(row * CELLS, (row + 1) * CELLS)
        by_mask[part, part] = mask
    np.testing.assert_array_equal(by_edges, by_mask)
    tensor = attention.cu_seqlens(torch.from_numpy(ids))
    assert tensor.dtype == torch.int32
    assert tensor.tolist() == edges.tolist()
    assert attention.max_seqlen(torch.from_numpy(ids)) == attention.max_seqlen(ids)


def test_many_documents_in_narrow_integers_do_not_run_over():
    ids = (np.arange(600) % 2 + 1).astype(np.uint8)[None]
    assert attention.stretches(ids)[0].tolist() == list(range(600))


@pytest.mark.parametrize("function", [attention.mask_mod, attention.cu_seqlens])
def test_a_single_row_without_its_axis_is_refused_with_the_remedy(function):
    with pytest.raises(ValueError, match=r"segment_ids: found shape \[3\].*ids\[None\]"):
        function(np.array([1, 1, 2]))


def test_every_kind_of_array_becomes_numpy():
    for values in ([1, 2], np.array([1, 2]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0])):
        assert attention.to_numpy(values).tolist() == [1, 2]
    assert attention.to_numpy(torch.tensor([1.5], dtype=torch.bfloat16)).tolist() == [1.5]
    assert attention.to_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
