"""Collator: worked values, arrays against a walk over the cells, rows that stand for themselves."""

import numpy as np
import pytest
import torch
from hftoys import fast, usual, words
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.integrations.hf import Collator, block_tokenize

E = 0  # EOS and PAD of `aliased`
IGNORE = -100


def aliased():
    """PAD == EOS == 0, no BOS."""
    return fast(eos=E, pad=E)


def collate(features, tokenizer=None, **options):
    tokenizer = usual() if tokenizer is None else tokenizer
    return Collator(tokenizer, **{"return_tensors": "np", **options})(features)


def feature(ids, starts=None, **more):
    return {"input_ids": ids, **({} if starts is None else {"document_starts": starts}), **more}


# -- positions ----------------------------------------------------------------------------------


def test_filler_is_known_by_the_attention_mask_on_either_side():
    right = feature([5, E, 0, 0], attention_mask=[1, 1, 0, 0], labels=[5, E, 3, 3])
    left = feature([0, 0, 5, E], attention_mask=[0, 0, 1, 1])
    made = collate([right, left], aliased(), attention_mask=True)
    assert made["input_ids"].tolist() == [[5, E, E, E]] * 2
    assert made["attention_mask"].tolist() == [[1, 1, 0, 0]] * 2
    assert made["labels"].tolist() == [[5, E, IGNORE, IGNORE]] * 2
    with pytest.raises(tl.InputError, match=r"features\[0\]\.attention_mask"):
        collate([feature([0, 5], [0], attention_mask=[0, 1])])


# -- shape --------------------------------------------------------------------------------------


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


# -- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"paddin": 1}, "paddin"),
        ({"padding": "longst"}, "padding: found 'longst'"),
        ({"padding": 1}, "padding: found 1"),
        ({"return_tensors": "tf"}, "return_tensors"),
        ({"packed_sequences": "yes"}, "packed_sequences"),
        ({"label_layout": "both"}, "label_layout"),
        ({"position_scheme": "no"}, "position_scheme"),
        ({"attention_mask": "dense"}, "attention_mask"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"multiple_of": 4, "pad_to_multiple_of": 8}, "pad_to_multiple_of"),
        ({"multiple_of": 4, "padding": "none"}, "multiple_of"),
        ({"max_length": 0}, "max_length"),
        ({"padding": "max_length"}, "max_length"),
    ],
)
def test_invalid_settings_are_refused(wrong, said):
    with pytest.raises(tl.ConfigError, match=said):
        Collator(usual(), **wrong)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ([], "features"),
        ([[5, 6]], r"features\[0\]: found list"),
        ([{"input_id": [5]}], "input_id\\b"),
        ([{"input_ids": [[5]]}], r"features\[0\].input_ids: found int64"),
        ([{"input_ids": [0.5]}], "found float64"),
        ([{"input_ids": []}], "features"),
        ([{"input_ids": [5], "document_starts": [0], "overlaps": []}], "overlaps"),
    ],
)
def test_invalid_features_are_refused(features, said):
    with pytest.raises(tl.InputError, match=said):
        collate(features)
