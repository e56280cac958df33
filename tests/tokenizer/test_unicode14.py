"""The committed table is Unicode 14's, and the search finds exactly its characters."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.testing import tiny
from tokenloom.tokenizer.probes import CODE_POINTS, RUNS, texts_outside, unassigned


def runs_of_unassigned() -> str:
    """The table according to this Python's unicodedata: this is how RUNS was made."""
    table = np.array([unicodedata.category(chr(code)) == "Cn" for code in range(CODE_POINTS)])
    edges = [0, *(np.flatnonzero(np.diff(table)) + 1).tolist(), CODE_POINTS]
    return " ".join(np.base_repr(run, 36).lower() for run in np.diff(edges).tolist())


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="another Unicode version")
def test_the_table_is_what_a_python_with_unicode_14_says():
    assert RUNS.split() == runs_of_unassigned().split()


def test_the_table_covers_every_code_point_and_is_read_only():
    table = unassigned()
    assert table.shape == (CODE_POINTS,)
    assert int(table.sum()) == 829_834
    with pytest.raises(ValueError, match="read-only"):
        table[0] = True


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0x41, False),
        (0xA7CF, True),  # the letter that told two libraries apart
        (0x1FAE8, True),  # an emoji of Unicode 15
        (0x31350, True),  # the first CJK ideograph of extension H
        (0xFFFF, True),  # a noncharacter
        (0xD800, False),  # a surrogate: refused elsewhere
        (0xE000, False),  # private use
        (0x10FFFD, False),
    ],
)
def test_known_characters(code, expected):
    assert bool(unassigned()[code]) is expected


@given(st.lists(st.text(max_size=6), max_size=8), st.sampled_from(["", "é", "ſa"]))
def test_the_search_agrees_with_looking_at_every_character(texts, also):
    table = unassigned()
    slow = [
        i
        for i, text in enumerate(texts)
        if not text.isascii() and any(table[ord(c)] or c in also for c in text)
    ]
    assert texts_outside(texts, also).tolist() == slow


@tiny(probe_chunk_characters=4)
def test_the_search_looks_at_long_texts_to_their_end():
    texts = ["é" * 9, "é" * 9 + "\ua7cf", "a", "é\ua7cf", "é", "é" * 3 + "\ua7cf", "é" * 8]
    assert texts_outside(texts).tolist() == [1, 3, 5]


def test_the_search_names_each_text_once_and_in_order():
    texts = ["\ua7cf\ua7cf", "x", "", "é", "end \U0001fae8", "\ua7cf"]
    assert texts_outside(texts).tolist() == [0, 4, 5]
    assert texts_outside([]).tolist() == []
