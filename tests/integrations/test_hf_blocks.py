"""block_tokenize: worked values, rows against those made token by token, nothing lost unseen."""

import inspect
import pickle

import pytest
from hftoys import Slow, fast, rust, slow_columns, slow_rows, text_of, usual, words
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl
from tokenloom.integrations.hf import block_report, block_tokenize
from tokenloom.integrations.hf import tokenize as tokens

PROBE = {"text": ["10 11 12", "20 21 22 23 24", "30 31"]}
BARE = {"add_bos": False, "add_eos": False}
PACKED = {"packed": True, "max_length": 6}


@pytest.fixture(autouse=True)
def _forget_warnings():
    tokens.warn_once.cache_clear()


def rows(features, tokenizer=words, **options):
    if tokenizer is words and not {"bos_id", "eos_id"} & set(options):
        options = {**BARE, **options}
    return block_tokenize(features, tokenizer, **options)


# -- worked values ------------------------------------------------------------------------------


def test_two_batches_of_the_same_size_are_not_shuffled_alike():
    orders = []
    for base in (10, 110):
        made = rows({"text": [str(base + i) for i in range(30)]}, shuffle_output=True)
        orders.append([row[0] - base for row in made["input_ids"]])
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(30))
    assert orders[0] != orders[1]


def test_defaults_are_the_seeds():
    found = {n: p.default for n, p in inspect.signature(block_tokenize).parameters.items()}
    promised = {
        "feature": "text",
        "max_length": 512,
        "packed": False,
        "overflow": True,
        "packing_strategy": "greedy",
        "add_bos": True,
        "add_eos": True,
        "stride": 0,
        "min_len": 1,
        "max_len": None,
        "min_row_len": 1,
        "truncate_at": None,
        "shuffle_output": False,
        "seed": 0,
        "strict_special_tokens": False,
    }
    assert {name: found[name] for name in promised} == promised


# -- any tokenizer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [usual, Slow, lambda: rust(**{"<s>": 1, "</s>": 2, "<pad>": 0})],
    ids=["fast", "slow", "tokenizers"],
)
def test_every_kind_of_tokenizer_gives_the_same_rows(make):
    expected = rows(PROBE, bos_id=1, eos_id=2, **PACKED)
    assert rows(PROBE, make(), **PACKED) == expected


def test_limits_of_a_tokenizer_cut_and_pad_nothing():
    limited = rust(**{"<s>": 1, "</s>": 2})
    limited.enable_truncation(3)
    limited.enable_padding(length=8)
    for tokenizer in (limited, fast(bos=1, eos=2, model_max_length=3)):
        made = rows(PROBE, tokenizer, max_length=8)
        assert made["input_ids"][1] == [1, 20, 21, 22, 23, 24, 2]
    assert limited.truncation["max_length"] == 3  # left as it was


def test_special_tokens_with_id_0_are_special_tokens():
    assert rows({"text": ["5"]}, fast(eos=0, pad=0), add_bos=False)["input_ids"] == [[5, 0]]


@pytest.mark.parametrize(
    ("wrong", "kind", "named"),
    [
        *(({"tokenizer": one}, tl.TokenizerError, "tokenizer") for one in (7, None, "gpt2")),
        *(
            ({"tokenizer": lambda text, ids=ids: ids}, tl.TokenizerError, "tokenizer")
            for ids in (["a"], [[1]], [0.5], [-1], 3)
        ),
        ({"max_lenght": 5}, tl.ConfigError, "max_lenght"),
        ({"packing_strategy": "bestfit"}, tl.ConfigError, "bestfit"),
        ({"max_length": 0}, tl.ConfigError, "max_length"),
        ({"max_length": 8.0}, tl.ConfigError, "max_length"),
        ({"min_len": 3, "max_len": 2}, tl.ConfigError, "max_len"),
        ({"min_row_len": 9, "max_length": 8}, tl.ConfigError, "min_row_len"),
        ({"seed": None}, tl.ConfigError, "seed"),
        ({"packed": "yes"}, tl.ConfigError, "packed"),
        ({"bos_id": -1}, tl.ConfigError, "bos_id"),
        ({"feature": "txt"}, tl.InputError, "txt"),
        ({"features": {"text": "one text"}}, tl.InputError, "batched=True"),
        ({"features": {"text": [None]}}, tl.InputError, "[0]"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong, kind, named):
    given = {"features": PROBE, "tokenizer": words} | BARE | wrong
    refused(lambda: block_tokenize(**given), kind, named)
    refused(lambda: block_report(**given), kind, named)


def test_the_batch_is_left_as_it_is_and_the_function_can_be_pickled():
    features = {"text": list(PROBE["text"])}
    rows(features, stride=1, **PACKED)
    assert features == PROBE
    assert pickle.loads(pickle.dumps(block_tokenize)) is block_tokenize


# -- laws ---------------------------------------------------------------------------------------

batches = st.lists(st.integers(0, 25), max_size=12)
options = st.fixed_dictionaries(
    {
        "packed": st.booleans(),
        "packing_strategy": st.sampled_from(["greedy", "best_fit", "first_fit"]),
        "overflow": st.booleans(),
        "max_length": st.integers(1, 12),
    }
)
BOS, EOS = 7, 8


def source(sizes):
    """Texts in which every token is there once, and a list of them."""
    documents = [[100 * (d + 1) + i for i in range(size)] for d, size in enumerate(sizes)]
    return {"text": [text_of(ids) for ids in documents]}, documents


@example(
    [8],
    {"packed": True, "packing_strategy": "greedy", "overflow": True, "max_length": 5},
    2,
    False,
    False,
)
@given(batches, options, st.integers(0, 11), st.booleans(), st.booleans())
def test_rows_equal_those_made_token_by_token(sizes, options, stride, add_bos, add_eos):
    stride = min(stride, options["max_length"] - 1)
    features, documents = source(sizes)
    made = block_tokenize(
        features,
        words,
        stride=stride,
        add_bos=add_bos,
        add_eos=add_eos,
        bos_id=BOS,
        eos_id=EOS,
        **options,
    )
    whole = [[BOS] * add_bos + ids + [EOS] * add_eos for ids in documents if ids]
    cells = slow_rows(
        [len(ids) for ids in whole],
        options["max_length"],
        packed=options["packed"],
        strategy=options["packing_strategy"],
        overflow=options["overflow"],
        stride=stride,
    )
    assert made["input_ids"] == [[whole[d][t] for d, t, _ in row] for row in cells]
    if stride:
        again = [sum(seen for *_, seen in row) for row in cells]
        assert list(map(sum, made["overlaps"])) == again
    starts, continues = slow_columns(cells)
    assert made["document_starts"] == starts
    assert made["continues"] == continues
