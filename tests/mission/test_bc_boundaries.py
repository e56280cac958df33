"""Boundaries of documents: positions, segments, attention masks, and the collator."""

import copy
import logging
import time

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from word_tokenizers import word_tokenizer, words

import tokenloom as tl
from tokenloom.batch import attention, boundaries
from tokenloom.integrations.hf import Collator, block_tokenize
from tokenloom.integrations.torch import dataloader

EOS_AND_PAD = {"eos_id": 0, "pad_id": 0}  # as after tokenizer.pad_token = tokenizer.eos_token
NO_SPECIALS = {"add_bos": False, "add_eos": False}


def collate(features, tokenizer=None, **options):
    """A batch of NumPy arrays; without a tokenizer PAD is 0 and EOS is 2."""
    if tokenizer is None:
        options = {"pad_id": 0, "eos_id": 2} | options
    return Collator(tokenizer, **{"return_tensors": "np"} | options)(features)


def feature(ids, starts=None, **more):
    return {"input_ids": ids} | ({} if starts is None else {"document_starts": starts}) | more


def features_of(made):
    """The rows that `block_tokenize` made, as a collator gets them."""
    return [dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True)]


# -- boundaries to positions -------------------------------------------------------------------


def test_bc_01_two_documents_of_four_tokens_start_at_0_and_4(shared_store_of):
    made = block_tokenize({"text": ["5 6 7 8", "9 10 11 12"]}, words, packed=True, **NO_SPECIALS)
    assert made["document_starts"] == [[0, 4]]
    batch = shared_store_of([5, 6, 7, 8], [9, 10, 11, 12]).pack(8).batch([0])
    assert batch.document_starts.tolist() == [[0, 4]]
    assert batch.document_starts.dtype == np.int32
    assert boundaries.segment_ids([[0, 4]], 8).tolist() == [[1, 1, 1, 1, 2, 2, 2, 2]]


def test_bc_02_positions_restart_at_50_and_80(store_of):
    expected = [*range(50), *range(30), *range(20)]
    assert boundaries.position_ids([[0, 50, 80]], 100).tolist() == [expected]
    assert collate([feature([7] * 100, [0, 50, 80])])["position_ids"].tolist() == [expected]
    run = store_of([[5] * 50, [6] * 30, [7] * 20]).pack(100)
    assert run.batch([0]).position_ids.tolist() == [expected]


def test_bc_03_starts_may_be_padded_with_minus_1():
    starts = np.array([[0, 4, -1], [0, 3, 6]])
    expected = [[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2, 0, 1]]
    assert boundaries.position_ids(starts, 8).tolist() == expected
    rows = [feature([7] * 8, row.tolist()) for row in starts]
    assert collate(rows)["position_ids"].tolist() == expected
    made = collate(rows, document_starts=True)["document_starts"]
    assert made.tolist() == starts.tolist()


def test_bc_04_c_38_positions_are_there_if_boundaries_are():
    assert "position_ids" not in collate([feature([5, 6])])
    assert collate([feature([5, 6, 7], [0, 2])])["position_ids"].tolist() == [[0, 1, 0]]


def test_bc_05_when_asked_for_positions_are_guessed_from_eos():
    row = feature([1, 2, 99, 3, 4, 99])
    made = collate([row], eos_id=99, packed_sequences=True)
    assert made["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]


def test_bc_06_no_positions_if_they_are_not_wanted():
    made = collate([feature([5, 6, 7], [0, 2])], packed_sequences=False)
    assert "position_ids" not in made


def test_bc_07_rows_of_5_and_3_tokens_are_padded_in_four_ways():
    rows = [feature([5] * 5), feature([6] * 3)]
    for options, width in (
        ({}, 5),
        ({"padding": "longest"}, 5),
        ({"multiple_of": 8}, 8),
        ({"padding": "max_length", "max_length": 7}, 7),
        ({"padding": "max_length", "max_length": 7, "multiple_of": 4}, 8),
    ):
        made = collate(rows, **options)
        assert made["input_ids"].shape == (2, width), options
        assert made["input_ids"][1].tolist() == [6] * 3 + [0] * (width - 3)
    assert collate([rows[0]] * 2, padding="none")["input_ids"].shape == (2, 5)
    with pytest.raises(tl.InputError, match="3 to 5"):
        collate(rows, padding="none")


def test_bc_07_arrays_are_those_of_torch_or_of_numpy():
    rows = [feature([5, 6, 7], [0, 2]), feature([8])]
    options = {"segment_ids": True, "attention_mask": True, "document_starts": True}
    arrays = collate(rows, return_tensors="np", **options)
    tensors = collate(rows, return_tensors="pt", **options)
    assert arrays.keys() == tensors.keys()
    for name, array in arrays.items():
        assert isinstance(array, np.ndarray)
        assert isinstance(tensors[name], torch.Tensor)
        assert tensors[name].tolist() == array.tolist()
    assert {tensors[name].dtype for name in ("input_ids", "labels", "position_ids")} == {
        torch.int64
    }


def test_bc_08_a_batch_has_input_ids_labels_and_position_ids(shared_store_of):
    names = {"input_ids", "labels", "position_ids"}
    assert set(collate([feature([5, 6, 7], [0, 2])])) == names
    run = shared_store_of([5, 6, 7], [8, 9]).pack(5)
    assert names <= set(dict(run.batch([0])))
    (batch,) = dataloader(run, 1)
    assert names <= set(batch)


# -- tokens are not boundaries ------------------------------------------------------------------


def test_bc_09_c_42_padding_that_is_eos_is_never_a_boundary_and_eos_keeps_its_label():
    row = [10, 11, 0, 13, 14, 0]
    made = collate([feature(row), feature([7])], **EOS_AND_PAD)
    assert made["labels"].tolist() == [row, [7] + [-100] * 5]
    options = EOS_AND_PAD | {"packed_sequences": True, "segment_ids": True}
    made = collate([feature([10, 0]), feature(row)], **options)
    assert made["position_ids"].tolist() == [[0, 1, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2]]
    assert made["segment_ids"].tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 2, 2, 2]]
    assert made["labels"].tolist() == [[10, 0, *[-100] * 4], [10, 11, 0, -100, 14, 0]]


def test_bc_09_filler_that_a_row_brings_along_is_filler():
    """If PAD is EOS, each cell of this filler would otherwise be a document of its own."""
    options = EOS_AND_PAD | {"packed_sequences": True, "segment_ids": True}
    made = collate([feature([10, 0, 0, 0, 0, 0])], **options)
    assert made["position_ids"].tolist() == [[0, 1, 0, 1, 2, 3]]
    assert made["segment_ids"].tolist() == [[1, 1, 0, 0, 0, 0]]
    assert made["labels"].tolist() == [[10, 0, *[-100] * 4]]


def test_bc_09_a_transformers_tokenizer_whose_pad_is_eos_is_safe():
    backend = word_tokenizer(**{"</s>": 2})
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", pad_token="</s>"
    )
    made = collate([feature([10, 11, 2, 13, 14, 2], [0, 3]), feature([7, 2], [0])], tokenizer)
    assert made["labels"].tolist() == [[10, 11, 2, -100, 14, 2], [7, 2, *[-100] * 4]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3]]


def test_bc_09_a_store_has_its_boundaries_from_offsets_whatever_the_tokens_are(shared_store_of):
    """PAD, EOS and BOS are one id, and stand inside documents."""
    run = shared_store_of([0, 5, 0, 6], [0, 0]).pack(
        12, strategy="greedy", add_bos=True, bos_id=0, add_eos=True, eos_id=0
    )
    batch = run.render(pad_id=0).batch([0])
    assert batch.segment_ids[0].tolist() == [1] * 6 + [2] * 4 + [0, 0]
    assert batch.labels[0].tolist() == [-100, 0, 5, 0, 6, 0, -100, 0, 0, 0, -100, -100]
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 1]


def test_bc_10_a_tokenizer_with_neither_bos_nor_eos_works_end_to_end(tmp_path):
    bare = word_tokenizer(**{"<pad>": 0})
    texts = ["10 11 12", "20 21 22 23 24", "30 31"]
    made = block_tokenize({"text": texts}, bare, max_length=6, packed=True, **NO_SPECIALS)
    batch = collate(features_of(made), bare, segment_ids=True)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 1]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]]
    guessed = collate([feature([5, 6, 7])], bare, packed_sequences=True)
    assert guessed["position_ids"].tolist() == [[0, 1, 2]], "nothing to guess from: one document"
    bare.save(str(tmp_path / "tokenizer.json"))
    records = [{"text": text} for text in texts]
    store = tl.build(records, tmp_path / "s", tokenizer=tmp_path / "tokenizer.json", progress=False)
    stored = store.pack(6, strategy="sequential").batch([0, 1])
    assert stored.position_ids.tolist() == batch["position_ids"].tolist()
    assert stored.segment_ids.tolist() == batch["segment_ids"].tolist()


TURNS = "{% for m in messages %}{{ m['content'] }} <|im_end|> {% endfor %}"


def test_bc_11_the_messages_of_a_conversation_stay_one_document(tmp_path):
    """End of turn is EOS and PAD at once, as in chat models."""
    word_tokenizer(**{"<|im_end|>": 9}).save(str(tmp_path / "tokenizer.json"))
    turns = [["20 21", "22 23", "24"], ["30 31"]]
    records = [
        {"messages": [{"role": "user", "content": one} for one in conversation]}
        for conversation in turns
    ]
    store = tl.build(
        records,
        tmp_path / "s",
        tokenizer=tmp_path / "tokenizer.json",
        eos="<|im_end|>",
        add_eos=False,
        chat_template=TURNS,
        train_on="all",
        progress=False,
    )
    batch = store.pack(13).batch([0])
    assert batch.tokens[0].tolist() == [20, 21, 9, 22, 23, 9, 24, 9, 30, 31, 9, 9, 9]
    assert batch.segment_ids[0].tolist() == [1] * 8 + [2] * 3 + [0] * 2
    assert batch.position_ids[0].tolist() == [*range(8), 0, 1, 2, 0, 1]


def test_bc_11_im_end_inside_a_text_resets_nothing():
    texts = {"text": ["20 21 9 22 23 9 24 9", "30 31 9"]}
    made = block_tokenize(texts, words, max_length=16, packed=True, **NO_SPECIALS)
    batch = collate(features_of(made), eos_id=9, pad_id=9, segment_ids=True)
    assert batch["segment_ids"].tolist() == [[1] * 8 + [2] * 3]
    assert batch["position_ids"].tolist() == [[*range(8), 0, 1, 2]]
    assert batch["labels"].tolist() == [[20, 21, 9, 22, 23, 9, 24, 9, -100, 31, 9]]


def test_bc_12_c_39_a_missing_column_is_no_error_and_is_logged_once(caplog):
    eos = 287  # no other test guesses from it, so nothing was logged about it before
    with caplog.at_level(logging.INFO, "tokenloom"):
        for _ in range(3):
            made = collate([feature([5, eos, 6])], eos_id=eos, packed_sequences=True)
            plain = collate([feature([5, eos, 6])], eos_id=eos)
    assert made["position_ids"].tolist() == [[0, 1, 0]]
    assert set(plain) >= {"input_ids", "labels"}
    logged = [record.message for record in caplog.records if "document_starts" in record.message]
    assert sum(str(eos) in message for message in logged) == 1
    assert len(logged) == len(set(logged)), "nothing is repeated"
    assert all("remove_columns" in message for message in logged), "what to check (C-38)"


def test_bc_13_rows_with_and_without_boundaries_stand_in_one_batch():
    known, unknown = feature([5, 6, 2, 7], [0, 1]), feature([8, 9, 2, 7])
    missing = unknown | {"document_starts": None}  # what datasets makes of a missing value
    for other in (unknown, missing):
        for rows, order in (([known, other], [0, 1]), ([other, known], [1, 0])):
            made = collate(rows)["position_ids"][order]
            assert made.tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]
            made = collate(rows, packed_sequences=True)["position_ids"][order]
            assert made.tolist() == [[0, 0, 1, 2], [0, 1, 2, 0]]


def test_bc_14_c_44_starts_get_a_zero_and_lose_what_is_behind_the_row():
    assert boundaries.position_ids([[3]], 5).tolist() == [[0, 1, 2, 0, 1]]
    assert boundaries.position_ids([[]], 3).tolist() == [[0, 1, 2]]
    assert boundaries.position_ids([[0, 3, 5, 9]], 5).tolist() == [[0, 1, 2, 0, 1]]
    made = collate([feature([5] * 5, [3])], document_starts=True)
    assert made["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert made["document_starts"].tolist() == [[0, 3]]


@pytest.mark.parametrize("starts", [[0, 3, 1], [0, 2, 2], [-2], [0, -1, 3], [-1, 0]])
def test_bc_14_negative_and_unsorted_starts_are_refused(starts):
    with pytest.raises(tl.InputError, match=r"document_starts.*row 1"):
        boundaries.position_ids([[0], starts], 5)
    with pytest.raises(tl.InputError, match=r"document_starts.*row 1"):
        collate([feature([5] * 5), feature([5] * 5, starts)])


def test_bc_15_truncation_to_6_of_10_tokens_drops_the_start_at_8():
    ids = list(range(10, 20))
    row = feature(ids, [0, 8], labels=ids)
    made = collate([row], truncation=True, max_length=6, document_starts=True)
    assert made["document_starts"].tolist() == [[0]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert made["labels"].tolist() == [[10, 11, 12, 13, 14, 15]]
    with pytest.raises(tl.InputError, match="10 tokens"):
        collate([row], max_length=6)


def test_bc_16_padding_is_segment_0_and_counts_from_0_like_a_segment_of_its_own(shared_store_of):
    rows = [feature([15, 16, 17], [0]), feature([1] * 5, [0])]
    made = collate(rows, segment_ids=True, attention_mask=True)
    assert made["position_ids"][0].tolist() == [0, 1, 2, 0, 1]
    assert made["segment_ids"][0].tolist() == [1, 1, 1, 0, 0]
    assert made["attention_mask"][0].tolist() == [1, 1, 1, 0, 0]
    assert boundaries.position_ids([[0]], 5, [3]).tolist() == [[0, 1, 2, 0, 1]]
    batch = shared_store_of([15, 16, 17]).pack(5).batch([0])
    assert batch.position_ids[0].tolist() == [0, 1, 2, 0, 1]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 0, 0]
    assert batch.attention_mask[0].tolist() == [True] * 3 + [False] * 2


def test_bc_17_c_55_attention_is_where_segments_are(shared_store_of):
    batch = shared_store_of([5, 6, 7], [8], [9] * 6).pack(8).batch([0, 1])
    assert batch.attention_mask.tolist() == (batch.segment_ids > 0).tolist()
    assert not batch.attention_mask.all()
    made = collate(
        [feature([5, 6, 7], [0, 1]), feature([8])], segment_ids=True, attention_mask=True
    )
    assert made["attention_mask"].tolist() == (made["segment_ids"] > 0).astype(int).tolist()


def test_bc_18_c_42_the_dense_mask_is_block_diagonal_and_can_be_switched_off():
    segments = np.array([[1, 1, 2, 2]])
    on = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert attention.dense_mask(segments)[0].astype(int).tolist() == on
    off = attention.dense_mask(segments, segment_masking=False)[0]
    assert off.astype(int).tolist() == np.tri(4, dtype=int).tolist(), "full causal"
    padded = attention.dense_mask(np.array([[1, 2, 0]]), segment_masking=False)[0]
    assert padded[:2].astype(int).tolist() == [[1, 0, 0], [1, 1, 0]]
    made = collate([feature([5, 6, 7], [0, 2])], attention_mask="segments", segment_ids=True)
    assert made["attention_mask"].shape == (1, 1, 3, 3)
    assert made["attention_mask"][0, 0].astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    made = collate([feature([5, 6, 7], [0, 2])], packed_sequences=False, segment_ids=True)
    assert made["segment_ids"].tolist() == [[1, 1, 2]], "ids are emitted all the same"


def slow_dense_mask(segments):
    """Cell by cell: a cell sees itself and earlier cells of its document."""
    width = len(segments)
    return [
        [
            k <= q and segments[q] == segments[k] and (segments[q] > 0 or q == k)
            for k in range(width)
        ]
        for q in range(width)
    ]


@pytest.mark.parametrize("reset", [True, False])
def test_bc_19_c_59_positions_reset_by_a_flag_and_the_shape_stays(shared_store_of, reset):
    scheme = "reset" if reset else "absolute"
    expected = [0, 1, 2, 0, 1] if reset else [0, 1, 2, 3, 4]
    run = shared_store_of([5, 6, 7], [8, 9]).pack(5)
    made = run.render(position_scheme=scheme).batch([0]).position_ids
    plain = run.batch([0]).position_ids
    assert made.tolist() == [expected]
    assert (made.shape, made.dtype) == (plain.shape, plain.dtype)
    rows = [feature([5, 6, 7, 8, 9], [0, 3])]
    made = collate(rows, position_scheme=scheme)["position_ids"]
    assert made.tolist() == [expected]
    assert made.dtype == collate(rows)["position_ids"].dtype


def test_bc_20_c_60_spliced_rows_have_absolute_positions_in_a_mixed_batch_too(shared_store_of):
    store = shared_store_of([5, 6, 7], [8, 9], [10, 11, 12, 13])
    packed = store.pack(8, strategy="sequential")
    spliced = store.splice(8, content_length=2, position_scheme="absolute")
    assert spliced.batch([0]).position_ids.tolist() == [list(range(8))]
    default = store.splice(8, content_length=2)
    assert default.batch([0]).position_ids.tolist() == [list(range(8))]
    run = tl.mix({"packed": packed, "spliced": spliced}, rule="round_robin")
    batch = run.batch([0, 1])
    assert batch.source == ["packed", "spliced"]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 2, 2, 3, 3, 3]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 0, 1, 2], list(range(8))]


def test_bc_21_starts_at_0_and_3_in_5_cells_are_sequences_of_0_3_5(shared_store_of):
    made = collate([feature([5] * 5, [0, 3])], cu_seqlens=True)
    assert made["cu_seqlens"].tolist() == [0, 3, 5]
    assert made["cu_seqlens"].dtype == np.int32
    assert made["max_seqlen"] == 3
    batch = shared_store_of([5, 6, 7], [8, 9]).pack(5).batch([0])
    assert (batch.cu_seqlens.tolist(), batch.max_seqlen) == ([0, 3, 5], 3)
    assert attention.cu_seqlens(batch.segment_ids).tolist() == [0, 3, 5]
    assert attention.max_seqlen(batch.segment_ids) == 3
    made = collate([feature([5] * 5, [0, 3]), feature([6])], cu_seqlens=True)
    assert made["cu_seqlens"].tolist() == [0, 3, 5, 6, 10], "a filler run is one sequence"


def test_bc_21_a_flex_attention_mask_and_the_dense_one_are_the_walk_over_all_pairs(shared_store_of):
    batch = (
        shared_store_of([5, 6, 7], [8, 9], [10], [11, 12]).pack(6, strategy="greedy").batch([0, 1])
    )
    assert batch.segment_ids.tolist() == [[1, 1, 1, 2, 2, 3], [1, 1, 0, 0, 0, 0]]
    mask_mod = attention.mask_mod(torch.from_numpy(batch.segment_ids))
    dense = attention.dense_mask(batch.segment_ids)
    q, k = torch.arange(6)[:, None], torch.arange(6)[None, :]
    for row, segments in enumerate(batch.segment_ids.tolist()):
        expected = np.array(slow_dense_mask(segments))
        held = np.array(segments) > 0  # what filler sees does not matter
        assert np.array_equal(dense[row][held], expected[held])
        assert np.array_equal(mask_mod(row, 0, q, k).numpy()[held], expected[held])


def test_bc_22_features_are_not_changed_and_names_of_labels_are_respected():
    rows = [feature([5, 6, 7], [0, 2]), feature(np.array([8]), labels=[4])]
    before = copy.deepcopy(rows)
    made = collate(rows, labels_name="targets")
    assert made["targets"].tolist() == [[5, 6, -100], [8, -100, -100]]
    batch, labels = collate(rows, labels_name=None)
    assert labels.tolist() == [[5, 6, -100], [4, -100, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert str(rows) == str(before)


def test_bc_23_c_40_two_hundred_documents_a_row_cost_little_more_than_two():
    """A quotient of CPU times; a pass over the row for each document would cost 100 times."""
    few, many = ([list(range(0, 4096, 4096 // n))[:n]] * 64 for n in (2, 200))

    def seconds(starts):
        best = float("inf")
        for _ in range(5):
            begin = time.process_time()
            positions = boundaries.position_ids(starts, 4096)
            best = min(best, time.process_time() - begin)
        assert positions.shape == (64, 4096)
        assert (positions == 0).sum() == sum(map(len, starts))
        return best

    seconds(few)
    assert seconds(many) < 30 * seconds(few)


def test_bc_24_c_41_boundaries_take_under_2_percent_of_what_positions_would_take(shared_store_of):
    """Five documents in 4,096 cells, as columns of a dataset and as arrays of a batch."""
    row = {"document_starts": [[0, 800, 1600, 2400, 3200]] * 64, "continues": [[False] * 5] * 64}
    starts = datasets.Dataset.from_dict(row).data.nbytes
    positions = datasets.Dataset.from_dict({"position_ids": [list(range(4096))] * 64}).data.nbytes
    assert starts / positions < 0.02
    batch = shared_store_of(*[[n] * 800 for n in range(1, 6)]).pack(4096).batch([0])
    assert batch.document_starts.tolist() == [[0, 800, 1600, 2400, 3200]]
    assert batch.document_starts.nbytes / batch.position_ids.nbytes < 0.02


# -- a model sees each document alone ----------------------------------------------------------


def rotate(x, positions):
    """Rotary embeddings: pairs of channels turned by position."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * 10.0 ** (-torch.arange(half) / half)
    low, high = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([low * cos - high * sin, low * sin + high * cos], -1)


def logits_of(input_ids, position_ids, may_attend):
    """A one-layer model with rotary attention and weights that are the same in every call."""
    torch.manual_seed(0)
    tokens, q, k, v = torch.randn(300, 16), *torch.randn(3, 16, 16) / 4
    x = tokens[input_ids]
    scores = rotate(x @ q, position_ids) @ rotate(x @ k, position_ids).transpose(-1, -2)
    weights = scores.masked_fill(~may_attend, -torch.inf).softmax(-1)
    return (x + weights @ (x @ v)) @ tokens.T


@pytest.mark.parametrize("contract", ["sdpa", "flex"])
def test_bc_25_changing_document_1_leaves_the_logits_of_document_2_identical(
    shared_store_of, contract
):
    run = shared_store_of([20, 21, 22, 23], [30, 31, 32], [40, 41]).pack(10)
    (batch,) = dataloader(run, 1, contract=contract, fields=("segment_ids",))
    ids, positions, segments = (
        batch[name] for name in ("input_ids", "position_ids", "segment_ids")
    )
    assert segments.tolist() == [[1, 1, 1, 1, 2, 2, 2, 3, 3, 0]]
    if contract == "sdpa":
        may_attend = batch["attention_mask"][:, 0] == 0
    else:
        q, k = torch.arange(10)[:, None], torch.arange(10)[None, :]
        may_attend = batch["mask_mod"](0, 0, q, k)[None]
    changed = torch.where(segments == 1, ids + 50, ids)
    before, after = (logits_of(one, positions, may_attend) for one in (ids, changed))
    others = segments > 1
    assert torch.equal(before[others], after[others])
    assert not torch.equal(before[segments == 1], after[segments == 1])
    alone = logits_of(ids[:, 4:7], torch.arange(3)[None], torch.ones(3, 3).tril().bool())
    assert torch.allclose(before[segments == 2], alone[0], atol=1e-4), "as if it stood alone"
    causal = torch.ones(10, 10).tril().bool()
    before, after = (logits_of(one, positions, causal) for one in (ids, changed))
    assert not torch.equal(before[others], after[others]), "positions alone do not separate them"


# -- settings of the collator -------------------------------------------------------------------


def test_bc_26_labels_that_are_there_are_padded_with_ignore_index_and_not_overwritten():
    rows = [feature([5, 6, 7], [0, 1], labels=[-100, 6, 9]), feature([8, 9, 3, 4], [0, 2])]
    made = collate(rows, ignore_index=-7)
    assert made["labels"].tolist() == [[-100, 6, 9, -7], [8, 9, -7, 4]]
    with pytest.raises(tl.InputError, match=r"features\[0\].labels"):
        collate([feature([5, 6], labels=[5])])


def test_bc_27_a_max_length_above_the_limit_of_the_model_is_refused():
    short = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(**{"<pad>": 0}), pad_token="<pad>", model_max_length=8
    )
    with pytest.raises(tl.ConfigError, match=r"max_length.*9.*8"):
        Collator(short, max_length=9)
    with pytest.raises(tl.ConfigError, match="max_length"):
        Collator(word_tokenizer(**{"<pad>": 0}), truncation=True)  # at what length?
    Collator(word_tokenizer(**{"<pad>": 0}), max_length=10**6)  # a tokenizer without a limit
    assert collate([feature([5])], short, padding="max_length")["input_ids"].shape == (1, 8)
    assert collate([feature([5] * 9)], short, truncation=True)["input_ids"].shape == (1, 8)


def test_bc_27_without_a_pad_token_eos_is_used_or_0_with_a_warning():
    with pytest.warns(UserWarning, match=r"PAD.*2"):
        collator = Collator(word_tokenizer(**{"</s>": 2}), return_tensors="np")
    made = collator([feature([5, 2]), feature([6] * 4)])
    assert made["input_ids"][0].tolist() == [5, 2, 2, 2]
    assert made["labels"][0].tolist() == [5, 2, -100, -100]
    with pytest.warns(UserWarning, match=r"PAD.*0"):
        collator = Collator(word_tokenizer(), return_tensors="np")
    made = collator([feature([5, 0]), feature([6] * 3)])
    assert made["labels"][0].tolist() == [5, 0, -100], "this 0 is a token"
    Collator(word_tokenizer(), pad_id=3)  # warnings are errors here
    Collator(word_tokenizer(**{"<pad>": 4}))


def test_bc_28_c_46_guessed_documents_start_after_eos_and_at_bos_where_there_is_no_eos():
    row = feature([1, 2, 99, 1, 4, 99])
    for ids, expected in (
        ({"eos_id": 99, "bos_id": None}, [0, 1, 2, 0, 1, 2]),
        ({"eos_id": 99, "bos_id": 1}, [0, 1, 2, 0, 1, 2]),
        ({"eos_id": None, "bos_id": 1}, [0, 1, 2, 0, 1, 2]),
        ({"eos_id": None, "bos_id": 2}, [0, 0, 1, 2, 3, 4]),
        ({"eos_id": None, "bos_id": None}, [0, 1, 2, 3, 4, 5]),
    ):
        made = collate([row], packed_sequences=True, **ids)
        assert made["position_ids"].tolist() == [expected], ids


# -- the collator cell by cell -----------------------------------------------------------------


def slow_row(row, width, guess, eos):
    """(labels, positions, segments) of a row, cell by cell."""
    ids, starts = row["input_ids"], row.get("document_starts")
    if starts is None:
        starts = [i + 1 for i, token in enumerate(ids) if token == eos] if guess else []
    labels, positions, segments = [], [], []
    segment = position = 0
    for cell in range(width):
        real = cell < len(ids)
        begins = cell == 0 or (real and cell in starts) or cell == len(ids)
        segment = segment + begins if real else 0
        position = 0 if begins else position + 1
        labels.append(ids[cell] if real and not (begins and cell) else -100)
        positions.append(position)
        segments.append(segment)
    return labels, positions, segments


documents = st.lists(st.integers(3, 6) | st.just(2), min_size=1, max_size=9)


@given(
    st.lists(st.tuples(documents, st.none() | st.sets(st.integers(0, 12))), min_size=1, max_size=5),
    st.sampled_from([None, True]),
    st.integers(1, 4),
    st.sampled_from([0, 2]),
)
def test_bc_09_bc_13_bc_16_every_cell_is_what_a_walk_over_the_cells_makes_of_it(
    rows, packed, multiple, pad
):
    """Also where PAD is EOS: the attention mask of a row says which cells are filler."""
    features = [feature(ids, None if s is None else sorted(s)) for ids, s in rows]
    for one in features:
        if "document_starts" not in one:
            one["attention_mask"] = [1] * len(one["input_ids"])
    made = collate(
        features,
        eos_id=2,
        pad_id=pad,
        packed_sequences=packed,
        multiple_of=multiple,
        segment_ids=True,
    )
    width = -(-max(len(ids) for ids, _ in rows) // multiple) * multiple
    walked = [slow_row(one, width, packed, 2) for one in features]
    assert made["labels"].tolist() == [labels for labels, _, _ in walked]
    assert made["segment_ids"].tolist() == [segments for _, _, segments in walked]
    if packed or any(s is not None for _, s in rows):
        assert made["position_ids"].tolist() == [positions for _, positions, _ in walked]
    assert (made["input_ids"][made["segment_ids"] == 0] == pad).all()
