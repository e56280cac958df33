"""Collator: worked values, arrays against a walk over the cells, rows that stand for themselves."""

import copy
import logging
import pickle
import warnings

import numpy as np
import pytest
import torch
import yaml
from hftoys import fast, rust, usual, words
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.integrations.hf import Collator, block_tokenize
from tokenloom.integrations.hf import texts as tokens

E = 0  # EOS and PAD of `aliased`
IGNORE = -100
ALL = {"segment_ids": True, "attention_mask": True, "cu_seqlens": True, "document_starts": True}


@pytest.fixture(autouse=True)
def _forget_what_was_said():
    tokens.log_once.cache_clear()


def aliased():
    """PAD == EOS == 0, no BOS."""
    return fast(eos=E, pad=E)


def collate(features, tokenizer=None, **options):
    tokenizer = usual() if tokenizer is None else tokenizer
    return Collator(tokenizer, **{"return_tensors": "np", **options})(features)


def feature(ids, starts=None, **more):
    return {"input_ids": ids, **({} if starts is None else {"document_starts": starts}), **more}


# -- positions ----------------------------------------------------------------------------------


def test_bc_04_positions_are_there_if_boundaries_are():
    assert "position_ids" not in collate([feature([5, 6])])
    assert collate([feature([5, 6, 7], [0, 2])])["position_ids"].tolist() == [[0, 1, 0]]


def test_bc_05_when_asked_boundaries_are_guessed_from_eos():
    made = collate([feature([1, 2, 99, 3, 4, 99])], fast(eos=99, pad=0), packed_sequences=True)
    assert made["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]


def test_bc_06_no_positions_if_they_are_not_wanted():
    made = collate([feature([5, 6, 7], [0, 2])], packed_sequences=False, segment_ids=True)
    assert "position_ids" not in made
    assert made["segment_ids"].tolist() == [[1, 1, 2]]  # BC-18: known all the same


def test_bc_08_and_seed_a_batch_has_tokens_labels_and_positions():
    made = collate([feature([5, 6, 7], [0, 2])])
    assert sorted(made) == ["input_ids", "labels", "position_ids"]


def test_bc_09_padding_that_is_eos_ends_no_document_and_eos_keeps_its_label():
    row = [10, 11, E, 13, 14, E]
    made = collate([feature(row), feature([7])], aliased())
    assert made["labels"].tolist() == [row, [7] + [IGNORE] * 5]
    made = collate([feature([10, E]), feature(row)], aliased(), packed_sequences=True)
    assert made["position_ids"].tolist() == [[0, 1, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2]]
    assert made["labels"].tolist() == [[10, E, *[IGNORE] * 4], [10, 11, E, IGNORE, 14, E]]


def test_bc_09_filler_that_a_row_brings_along_is_filler():
    """The defect of the seed's project: every PAD a document of its own."""
    made = collate([feature([10, E, E, E, E, E])], aliased(), packed_sequences=True, **ALL)
    assert made["position_ids"].tolist() == [[0, 1, 0, 1, 2, 3]]
    assert made["segment_ids"].tolist() == [[1, 1, 0, 0, 0, 0]]
    assert made["labels"].tolist() == [[10, E, *[IGNORE] * 4]]
    made = collate([feature([15, 16, 17, 0, 0])], packed_sequences=True, segment_ids=True)
    assert made["segment_ids"].tolist() == [[1, 1, 1, 0, 0]]
    assert made["labels"].tolist() == [[15, 16, 17, IGNORE, IGNORE]]


def test_bc_09_a_row_with_boundaries_has_no_filler_to_guess():
    made = collate([feature([10, E, E], [0, 2])], aliased(), segment_ids=True)
    assert made["segment_ids"].tolist() == [[1, 1, 2]]


def test_filler_is_known_by_the_attention_mask_on_either_side():
    right = feature([5, E, 0, 0], attention_mask=[1, 1, 0, 0], labels=[5, E, 3, 3])
    left = feature([0, 0, 5, E], attention_mask=[0, 0, 1, 1])
    made = collate([right, left], aliased(), attention_mask=True)
    assert made["input_ids"].tolist() == [[5, E, E, E]] * 2
    assert made["attention_mask"].tolist() == [[1, 1, 0, 0]] * 2
    assert made["labels"].tolist() == [[5, E, IGNORE, IGNORE]] * 2
    with pytest.raises(tl.InputError, match=r"features\[0\].attention_mask: found filler before"):
        collate([feature([0, 5], [0], attention_mask=[0, 1])])


def test_bc_10_neither_bos_nor_eos_end_to_end():
    bare = fast(pad=0)
    texts = {"text": ["10 11 12", "20 21 22 23 24", "30 31"]}
    made = block_tokenize(texts, bare, max_length=6, packed=True, add_bos=False, add_eos=False)
    rows = [dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True)]
    batch = collate(rows, bare, segment_ids=True)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 0, 1]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0]]
    guessed = collate([feature([5, 6, 7])], bare, packed_sequences=True)
    assert guessed["position_ids"].tolist() == [[0, 1, 2]]


def test_bc_11_the_messages_of_a_conversation_are_one_document():
    """End of turn is EOS and PAD at once, as in chat models; it ends no document."""
    chat = fast(eos=9, pad=9)
    texts = {"text": ["20 21 </s> 22 23 </s> 24 </s>", "30 31 </s>"]}
    made = block_tokenize(texts, chat, max_length=16, packed=True, add_bos=False)
    assert made["input_ids"] == [[20, 21, 9, 22, 23, 9, 24, 9, 30, 31, 9]]
    row = {name: column[0] for name, column in made.items()}
    batch = collate([row], chat, segment_ids=True)
    assert batch["segment_ids"].tolist() == [[1] * 8 + [2] * 3]
    assert batch["position_ids"].tolist() == [[*range(8), 0, 1, 2]]
    assert batch["labels"].tolist() == [[20, 21, 9, 22, 23, 9, 24, 9, IGNORE, 31, 9]]


def test_bc_12_c_39_a_missing_column_is_no_error_and_is_said_once(caplog):
    with caplog.at_level(logging.INFO, "tokenloom"):
        for _ in range(3):
            collate([feature([5, 2, 6]), feature([7], None)], packed_sequences=True)
            collate([feature([5, 2, 6])])
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "end a document after each EOS (2)" in said[0]
    assert all("survived remove_columns" in one for one in said)  # C-38


def test_bc_13_rows_with_and_without_boundaries_in_one_batch():
    told, silent = feature([5, 6, 2, 7], [0, 1]), feature([8, 9, 2, 7])
    missing = {**silent, "document_starts": None}  # what datasets makes of a missing value
    for other in (silent, missing):
        for rows, order in (([told, other], [0, 1]), ([other, told], [1, 0])):
            made = collate(rows)["position_ids"][order]
            assert made.tolist() == [[0, 0, 1, 2], [0, 1, 2, 3]]
            made = collate(rows, packed_sequences=True)["position_ids"][order]
            assert made.tolist() == [[0, 0, 1, 2], [0, 1, 2, 0]]


def test_bc_14_starts_without_a_zero_and_wrong_ones():
    assert collate([feature([5] * 5, [3])])["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    assert collate([feature([5, 6], [])])["position_ids"].tolist() == [[0, 1]]
    with pytest.raises(tl.InputError, match=r"features.document_starts: row 1: found \[3, 1\]"):
        collate([feature([5] * 5), feature([5] * 5, [3, 1])])


def test_bc_15_truncation_takes_boundaries_along():
    row = feature(list(range(10, 20)), [0, 8], labels=list(range(10, 20)), continues=[True, False])
    made = collate([row], truncation=True, max_length=6, **ALL)
    assert made["document_starts"].tolist() == [[0]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert made["labels"].tolist() == [[10, 11, 12, 13, 14, 15]]
    with pytest.raises(tl.InputError, match=r"features\[0\]: found 10 tokens.*truncation=True"):
        collate([row], max_length=6)


def test_bc_16_padding_is_a_segment_of_its_own():
    made = collate([feature([15, 16, 17], [0]), feature([1] * 5, [0])], segment_ids=True)
    assert made["position_ids"][0].tolist() == [0, 1, 2, 0, 1]
    assert made["segment_ids"][0].tolist() == [1, 1, 1, 0, 0]


def test_bc_17_attention_is_where_segments_are():
    made = collate([feature([5, 6, 7], [0, 1]), feature([8])], **ALL)
    assert ((made["segment_ids"] > 0) == made["attention_mask"]).all()


def test_bc_18_a_dense_mask_keeps_documents_apart():
    made = collate([feature([5, 6, 7], [0, 2])], attention_mask="segments")
    assert made["attention_mask"].shape == (1, 1, 3, 3)
    assert made["attention_mask"][0, 0].astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_bc_19_bc_20_positions_that_do_not_reset():
    row = feature([5, 6, 7], [0, 2])
    made = collate([row, feature([8])], position_scheme="absolute")
    assert made["position_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert made["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert made["position_ids"].dtype == collate([row])["position_ids"].dtype


def test_bc_21_sequences_for_kernels_of_variable_length():
    made = collate([feature([5] * 5, [0, 3])], cu_seqlens=True)
    assert made["cu_seqlens"].tolist() == [0, 3, 5]
    assert made["cu_seqlens"].dtype == np.int32
    assert made["max_seqlen"] == 3
    made = collate([feature([5] * 5, [0, 3]), feature([6])], cu_seqlens=True)
    assert made["cu_seqlens"].tolist() == [0, 3, 5, 6, 10]


def test_bc_28_where_there_is_no_eos_a_document_begins_at_bos():
    made = collate([feature([1, 5, 1, 6])], fast(bos=1, pad=0), packed_sequences=True)
    assert made["position_ids"].tolist() == [[0, 1, 0, 1]]


# -- shape --------------------------------------------------------------------------------------


def test_bc_07_ways_to_pad():
    rows = [feature([5] * 5), feature([6] * 3)]
    for options, width in (
        ({}, 5),
        ({"padding": True}, 5),
        ({"multiple_of": 8}, 8),
        ({"pad_to_multiple_of": 8}, 8),
        ({"padding": "max_length", "max_length": 7}, 7),
        ({"padding": "max_length", "max_length": 7, "multiple_of": 4}, 8),
    ):
        assert collate(rows, **options)["input_ids"].shape == (2, width)
    for padding in ("none", False, "do_not_pad"):
        assert collate([rows[0]] * 2, padding=padding)["input_ids"].shape == (2, 5)
        with pytest.raises(tl.InputError, match="found rows of 3 to 5 tokens"):
            collate(rows, padding=padding)


def test_bc_07_tensors_of_torch_or_arrays():
    rows = [feature([5, 6, 7], [0, 2])]
    arrays = collate(rows, **ALL)
    tensors = Collator(usual(), **ALL)(rows)
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        if name == "max_seqlen":
            assert tensors[name] == array
        else:
            assert isinstance(tensors[name], torch.Tensor)
            assert (tensors[name].numpy() == array).all()
    assert {tensors[n].dtype for n in ("input_ids", "labels", "position_ids")} == {torch.int64}


def test_features_may_hold_lists_arrays_or_tensors():
    kinds = (list, np.array, lambda ids: np.array(ids, np.uint16), torch.tensor)
    made = [collate([feature(kind([5, 6, 7]), kind([0, 2]))]) for kind in kinds]
    for other in made[1:]:
        assert all((made[0][name] == other[name]).all() for name in made[0])


@given(st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_batch_is_the_stack_of_its_rows(rows):
    """Neighbours change the width and nothing else."""
    features = [feature(ids, [0, len(ids) // 2] if len(ids) > 3 else None) for ids in rows]
    options = {"padding": "max_length", "max_length": 8, "packed_sequences": True}
    together = collate(features, segment_ids=True, **options)
    alone = [collate([one], segment_ids=True, **options) for one in features]
    for name, array in together.items():
        assert (array == np.concatenate([one[name] for one in alone])).all()


# -- labels -------------------------------------------------------------------------------------


def test_lm_01_the_first_token_behind_another_document_is_not_trained():
    row = feature([5, 6, 7, 8, 9], [0, 3])
    assert collate([row])["labels"].tolist() == [[5, 6, 7, IGNORE, 9]]
    assert collate([row], mask_boundary_loss=False)["labels"].tolist() == [[5, 6, 7, 8, 9]]
    assert collate([row], label_layout="shifted")["labels"].tolist() == [[6, 7, IGNORE, 9, IGNORE]]


def test_lm_08_padding_is_neither_predicted_nor_predicts():
    rows = [feature([5, 6]), feature([5] * 4)]
    assert collate(rows)["labels"][0].tolist() == [5, 6, IGNORE, IGNORE]
    shifted = collate(rows, label_layout="shifted", mask_boundary_loss=False)["labels"]
    assert shifted[0].tolist() == [6, IGNORE, IGNORE, IGNORE]


def test_lm_12_a_token_that_is_never_trained():
    assert collate([feature([5, 7, 6, 7])], ignore_id=7)["labels"].tolist() == [
        [5, IGNORE, 6, IGNORE]
    ]


def test_with_a_stride_every_token_but_the_first_of_a_document_is_trained_once():
    texts = {"text": [" ".join(str(10 * d + i) for i in range(9)) for d in range(1, 9)]}
    for strategy in ("greedy", "best_fit", "first_fit"):
        made = block_tokenize(
            texts,
            words,
            max_length=7,
            stride=1,
            packed=True,
            packing_strategy=strategy,
            add_bos=False,
            add_eos=False,
        )
        rows = [dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True)]
        shifted = collate(rows, label_layout="shifted")["labels"]
        trained = sorted(shifted[shifted != IGNORE].tolist())
        everything = sorted(int(w) for t in texts["text"] for w in t.split() if int(w) % 10)
        # a document cut behind its first token cannot repeat it: that prediction is lost
        assert set(trained) <= set(everything)
        assert len(trained) == len(set(trained)) >= len(everything) - (strategy == "greedy")


def test_bc_22_features_are_left_alone_and_names_are_respected():
    rows = [feature([5, 6, 7], [0, 2]), feature(np.array([8]), labels=[4])]
    before = copy.deepcopy(rows)
    made = collate(rows, labels_name="targets")
    assert made["targets"].tolist() == [[5, 6, IGNORE], [8, IGNORE, IGNORE]]
    batch, labels = collate(rows, labels_name=None, packed_sequences=None)
    assert sorted(batch) == ["input_ids", "position_ids"]
    assert labels.tolist() == [[5, 6, IGNORE], [4, IGNORE, IGNORE]]
    assert str(rows) == str(before)
    renamed = collate([{"ids": [5, 6]}], input_name="ids")
    assert renamed["ids"].tolist() == [[5, 6]]


def test_bc_26_labels_that_are_there_are_padded_and_otherwise_left_alone():
    rows = [feature([5, 6, 7], [0, 1], labels=[IGNORE, 6, 7]), feature([8, 9, 3, 4], [0, 2])]
    made = collate(rows, ignore_index=-7)
    assert made["labels"].tolist() == [[IGNORE, 6, 7, -7], [8, 9, -7, 4]]
    with pytest.raises(tl.InputError, match=r"features\[0\].labels: found 1 values"):
        collate([feature([5, 6], labels=[5])])


def slow(row, width, packed, eos):
    """(labels, positions, segments) of a row, cell by cell."""
    ids, starts = row["input_ids"], row.get("document_starts")
    if starts is None:
        starts = [i + 1 for i, token in enumerate(ids) if token == eos] if packed else []
    labels, positions, segments = [], [], []
    segment = position = 0
    for cell in range(width):
        real = cell < len(ids)
        begins = cell == 0 or (real and cell in starts) or cell == len(ids)
        segment = segment + begins if real else 0
        position = 0 if begins else position + 1
        labels.append(ids[cell] if real and not (begins and cell) else IGNORE)
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
def test_arrays_equal_a_walk_over_the_cells(rows, packed, multiple, pad):
    """Also where PAD is EOS: rows are not padded when they come, so filler is known."""
    features = [feature(ids, None if s is None else sorted(s)) for ids, s in rows]
    for one in features:
        if "document_starts" not in one:
            one["attention_mask"] = [1] * len(one["input_ids"])
    made = collate(
        features,
        fast(eos=2, pad=pad),
        packed_sequences=packed,
        multiple_of=multiple,
        segment_ids=True,
    )
    width = -(-max(len(ids) for ids, _ in rows) // multiple) * multiple
    walked = [slow(one, width, packed, 2) for one in features]
    assert made["labels"].tolist() == [labels for labels, _, _ in walked]
    assert made["segment_ids"].tolist() == [segments for _, _, segments in walked]
    if packed or any(s is not None for _, s in rows):
        assert made["position_ids"].tolist() == [positions for _, positions, _ in walked]
    assert (made["input_ids"][made["segment_ids"] == 0] == pad).all()


# -- settings -----------------------------------------------------------------------------------


def test_bc_27_longer_than_the_model_allows_is_refused():
    short = fast(pad=0, model_max_length=8)
    with pytest.raises(tl.ConfigError, match="max_length: found 9, allowed: up to 8"):
        Collator(short, max_length=9)
    assert collate([feature([5])], short, padding="max_length")["input_ids"].shape == (1, 8)
    assert collate([feature([5] * 9)], short, truncation=True)["input_ids"].shape == (1, 8)
    Collator(usual(), max_length=10**6)  # no limit told
    with pytest.raises(tl.ConfigError, match="max_length: missing"):
        Collator(usual(), truncation=True)


def test_bc_27_without_pad_eos_is_used_and_without_both_0():
    with pytest.warns(UserWarning, match=r"no PAD token, so rows are padded with EOS \(2\)"):
        collator = Collator(fast(eos=2), return_tensors="np")
    made = collator([feature([5, 2]), feature([6] * 4)])
    assert made["input_ids"][0].tolist() == [5, 2, 2, 2]
    assert made["labels"][0].tolist() == [5, 2, IGNORE, IGNORE]
    with pytest.warns(UserWarning, match="padded with 0"):
        collator = Collator(fast(), return_tensors="np")
    made = collator([feature([5, 0]), feature([6] * 3)])  # this 0 is a token
    assert made["labels"][0].tolist() == [5, 0, IGNORE]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Collator(fast(), pad_id=3)
        Collator(rust(**{"<pad>": 4}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"paddin": 1}, "no option 'paddin'.*Did you mean 'padding'"),
        ({"padding": "longst"}, "padding: found 'longst'.*Did you mean 'longest'"),
        ({"padding": 1}, "padding: found 1"),
        ({"return_tensors": "tf"}, "return_tensors"),
        ({"packed_sequences": "yes"}, "packed_sequences"),
        ({"label_layout": "both"}, "label_layout"),
        ({"position_scheme": "no"}, "position_scheme"),
        ({"attention_mask": "dense"}, "attention_mask"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"multiple_of": 4, "pad_to_multiple_of": 8}, "and pad_to_multiple_of=8"),
        ({"multiple_of": 4, "padding": "none"}, "only 1 without padding"),
        ({"max_length": 0}, "max_length"),
        ({"padding": "max_length"}, "max_length: missing"),
    ],
)
def test_invalid_settings_are_refused(wrong, said):
    with pytest.raises(tl.ConfigError, match=said):
        Collator(usual(), **wrong)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ([], "features: found none"),
        ([[5, 6]], r"features\[0\]: found list"),
        ([{"input_id": [5]}], "no 'input_ids'; it has: input_id. Did you mean 'input_id'"),
        ([{"input_ids": [[5]]}], r"features\[0\].input_ids: found int64 of shape \[1, 1\]"),
        ([{"input_ids": [0.5]}], "found float64"),
        ([{"input_ids": []}], "no tokens at all"),
        ([{"input_ids": [5], "document_starts": [0], "overlaps": []}], "overlaps: found 0 values"),
    ],
)
def test_invalid_features_are_refused(features, said):
    with pytest.raises(tl.InputError, match=said):
        collate(features)


def test_cf_11_the_seeds_settings_are_accepted_and_go_to_workers():
    settings = yaml.safe_load('{max_length: 4096, return_tensors: "pt", padding: "longest"}')
    collator = Collator(usual(), **settings)
    assert len(pickle.dumps(collator)) < 2000  # ids, not the tokenizer
    assert str(pickle.loads(pickle.dumps(collator))) == str(collator)
