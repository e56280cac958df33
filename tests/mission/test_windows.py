"""Rows of windows of every length, their counts, and what io blocks cost them."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import ToyStore, lengths, numbered, slow_rows
from virtual import VirtualStore

import tokenloom as tl

IO_BLOCK = 262_144

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")

settings = st.builds(
    lambda seq_len, tail, lookahead: {
        "seq_len": seq_len,
        "tail": tail,
        "lookahead": lookahead > 0,
        "overlap": int(lookahead > 1),
    },
    st.sampled_from([1, 2, 3, 4, 5, 7, 16, 17, 40]),
    st.sampled_from(["drop", "keep"]),
    st.integers(0, 2),
)


@given(lengths, st.lists(settings, min_size=1, max_size=6))
def test_rows_of_any_length_are_slices_of_the_documents_end_to_end(sizes, every):
    with ToyStore(numbered(sizes), cache_bytes=1 << 16) as toy:
        for setting in every:
            rows = slow_rows(toy.tokens, **setting)
            seq_len, rest = setting["seq_len"], {k: v for k, v in setting.items() if k != "seq_len"}
            run = toy.store.windows(seq_len, pad_id=999, **rest)
            assert len(run) == len(rows)
            found = run.batch(range(len(rows))).tokens.tolist()
            assert found == [[999 if t is None else t for t in row[:seq_len]] for row in rows]


@pytest.mark.parametrize(
    ("tokens", "options", "rows"),
    [
        (0, {}, 0),
        (0, {"tail": "keep"}, 0),
        (3, {}, 0),
        (3, {"tail": "keep"}, 1),
        (4, {"tail": "keep"}, 1),
        (4, {"lookahead": True}, 0),
        (5, {"lookahead": True}, 1),
        (5, {"lookahead": True, "tail": "keep"}, 1),  # the second row would hold nothing new
        (6, {"lookahead": True, "tail": "keep"}, 2),
        (9, {"lookahead": True}, 2),
        (9, {"lookahead": True, "overlap": 0}, 1),
        (10, {"lookahead": True, "overlap": 0}, 2),
    ],
)
def test_how_many_rows_of_four_there_are(tokens, options, rows):
    with ToyStore(numbered([[tokens]])) as toy:
        assert len(toy.store.windows(4, **options)) == rows


@given(st.integers(0, 60), st.integers(1, 9))
def test_with_lookahead_every_token_but_the_first_is_predicted_once(tokens, seq_len):
    with ToyStore(numbered([[tokens]])) as toy:
        options = {"lookahead": True, "tail": "keep", "label_layout": "shifted"}
        dataset = toy.store.windows(seq_len, **options)
        if tokens < 2:
            assert len(dataset) == tokens
            return
        labels = dataset.batch(range(len(dataset))).labels
        assert sorted(labels[labels >= 0].tolist()) == list(range(1, tokens))


def test_a_store_without_tokens_has_no_rows():
    with ToyStore([[[], []], []]) as toy:
        dataset = toy.store.windows(4, tail="keep").shuffle()
        assert (len(dataset), dataset.is_finite) == (0, True)
        with pytest.raises(IndexError):
            dataset[0]
        assert dataset.batch([]).tokens.shape == (0, 4)
        assert "0 examples" in repr(dataset)
        assert len(dataset.epochs(None)) == 0


def test_rows_that_do_not_fit_an_io_block_warn_with_the_numbers(tmp_path):
    """2.5 million tokens that are nowhere stored, in io blocks of the default size."""
    made = VirtualStore([(100, 1_000_000), (100, 1_500_000)])
    store = tl.open(made.write_manifest(tmp_path), source=made, verify="never")
    with pytest.warns(UserWarning, match=r"seq_len: .*262,144 .*87 rows of 3,000") as seen:
        store.windows(3000)
    assert seen[0].filename == __file__  # not some line inside the library
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seq_len in (1, 2048, 4096, IO_BLOCK, IO_BLOCK + 5):
            store.windows(seq_len)
        store.windows(3000, align=True)
        store.windows(2048, lookahead=True)  # rows start 2,048 apart


def test_numpy_integers_are_integers():
    with ToyStore(numbered([[9]])) as toy:
        assert type(toy.store.windows(np.uint16(4)).describe()["layout"]["seq_len"]) is int
