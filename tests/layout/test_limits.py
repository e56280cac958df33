"""Settings of layouts: the last allowed value is taken, the next one is refused by its name."""

import math

import pytest

from tokenloom.errors import ConfigError
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.windows import WindowsSpec

SHIFTED = {"lookahead": True}
IN_ORDER = {"strategy": "sequential"}
LAST_ID = (1 << 31) - 1

PACK = [  # name, others, allowed, refused
    ("seq_len", {}, [2, 1 << 30], [1, 0, (1 << 30) + 1]),
    ("stride", {"seq_len": 8}, [0, 7], [-1, 8]),
    ("stride", {"seq_len": 8, **SHIFTED}, [8], [9]),
    ("stride", IN_ORDER, [0], [1]),
    ("stride", {"overflow": "truncate"}, [0], [1]),
    ("overlap", {}, [0], [1, -1, 2]),
    ("overlap", IN_ORDER, [0], [1]),
    ("overlap", SHIFTED, [0], [1]),
    ("overlap", {**IN_ORDER, **SHIFTED}, [0, 1], [2, -1]),
    ("overflow", {}, ["split", "truncate", "drop", "error"], ["keep"]),
    ("overflow", IN_ORDER, ["split"], ["truncate", "drop", "error"]),
    ("max_docs_per_bin", IN_ORDER, [None], [1]),
    ("max_len", {"min_len": 5}, [5, 6, None], [4]),
    *(
        (name, {}, [1, 1 << 40], [0, -1])
        for name in ("min_len", "max_len", "max_doc_tokens", "min_row_len", "max_docs_per_bin")
    ),
    *((name, {}, [1, 1 << 40], [0, -1]) for name in ("group_docs", "group_tokens")),
    *((name, {}, [None, 0, LAST_ID], [-1, LAST_ID + 1]) for name in ("bos_id", "eos_id")),
    ("shuffle_seed", {}, [0, 7], [-1]),
]

WINDOWS = [
    ("seq_len", {}, [1, 1 << 30], [0, (1 << 30) + 1]),
    ("tail", {}, ["drop", "keep"], ["cut"]),
    ("overlap", {}, [0], [1, -1]),
    ("overlap", SHIFTED, [0, 1], [2, -1]),
]

SWEPT = {"content_start_mode": "slide_within"}
RING = {"content_start_mode": "cyclic_roll"}
GRID = {"grid": (3, 2)}
SLIDES = {"mode": "slide"}
LISTED = {"sampler": "enumerate"}
GROWS = {"doc_growth": ((0, 1), (2, 3))}
SCHEDULES = ("content_schedule", "doc_schedule", "doc_growth")

SPLICE = [
    ("seq_len", {}, [2, 1 << 30], [1, (1 << 30) + 1]),
    ("content_length", {}, [None, 2, 99], [1, 0]),
    ("content_length", {"seq_len": 8, **SLIDES}, [None, 8, 9], [7]),
    ("content_length", {"content_schedule": ((0, 2),)}, [None], [2]),
    ("content_stride", {}, [1, 99], [0, -1]),
    ("offset_stride", {}, [1, 99], [0, -1]),
    ("min_copy_len", {}, [1, 99], [0, -1]),
    ("offset_jitter", {}, [0, 1], [-1]),
    ("epoch_length", {}, [None, 1], [0, -1]),
    ("epoch_length", LISTED, [None], [1]),
    ("alpha", {}, [0.0, 2.5], [-0.1, math.inf, math.nan]),
    ("balance_tau", {}, [0.0, 1.5], [-0.1, math.inf]),
    ("max_epochs", {}, [None, 0.01, 9.0], [0.0, -1.0, math.inf, math.nan]),
    ("doc_strides", {}, [None, (1, 9)], [(1, 0)]),
    ("doc_alphas", {}, [None, (0.0, 1.0)], [(0.0, -1.0)]),
    ("doc_weights", {}, [None, (0.0, 1.0)], [(1.0, -1.0)]),
    ("offset_seed", {}, [0, 5], [-1]),
    ("content_seed", {}, [0, 5], [-1]),
    ("shuffle_offsets", LISTED, [False, True, 1, 5], [0, -1]),
    ("shuffle_content", LISTED, [False, True, 1, 5], [0, -1]),
    ("shuffle_offsets", {"sampler": "quota"}, [False], [True, 5]),
    ("shuffle_content", {"sampler": "quota"}, [False], [True, 5]),
    ("grid", {}, [None, (1, 1), (3, 2)], [(0, 1), (1, 0), (1,), (1, 1, 1)]),
    *(
        (name, {}, [(), ((0, 2),), ((0, 2), (1, 3))], [((1, 2),), ((0, 2), (0, 3)), ((0, 2, 1),)])
        for name in SCHEDULES
    ),
    *((name, {}, [((0, 1), (2, 1))], [((0, 0),), ((0, 1), (2, 0))]) for name in SCHEDULES[1:]),
    ("content_schedule", {}, [((0, 2),)], [((0, 1),), ((0, 3), (5, 1))]),
    ("doc_growth", {"doc_schedule": ((0, 1),)}, [()], [((0, 1),)]),
    ("doc_growth", {"content_schedule": ((0, 2),)}, [()], [((0, 1),)]),
    ("alpha", SWEPT, [0.0], [0.5]),
    ("alpha", GRID, [0.0], [0.5]),
    ("alpha", SLIDES, [0.0, 0.5], []),
    ("alpha", {"edge": "clip"}, [0.0], [0.5]),
    ("offset_jitter", SWEPT, [0], [1]),
    ("offset_jitter", GRID, [0], [1]),
    ("offset_jitter", {**SWEPT, **SLIDES}, [0, 1], []),
    ("edge", SWEPT, ["inside"], ["clip"]),
    ("edge", GRID, ["inside"], ["clip"]),
    ("fill", SWEPT, ["one"], ["pack"]),
    ("fill", GRID, ["one"], ["pack"]),
    ("include_tail", {"alpha": 0.5}, [False], [True]),
    ("include_tail", {"doc_alphas": (0.0, 0.5)}, [False], [True]),
    ("include_tail", {"doc_alphas": (0.0, 0.0)}, [False, True], []),
    ("roll_loss", {}, [False], [True]),
    ("roll_loss", RING, [False, True], []),
]

CASES = [
    (kind, *case)
    for kind, cases in ((PackSpec, PACK), (WindowsSpec, WINDOWS), (SpliceSpec, SPLICE))
    for case in cases
]

NAMED_OTHERWISE = {"content_schedule": "content_length|content_schedule", "shuffle_seed": "seed"}


@pytest.mark.parametrize(("kind", "name", "others", "allowed", "refused"), CASES)
def test_a_setting_is_taken_up_to_its_limit_and_refused_from_there_on(
    kind, name, others, allowed, refused
):
    for value in allowed:
        made = kind(**{"seq_len": 16, **others, name: value})
        assert getattr(made, name) == value
    word = NAMED_OTHERWISE.get(name, name)
    for value in refused:
        with pytest.raises(ConfigError, match=rf"\b({word})\b"):
            kind(**{"seq_len": 16, **others, name: value})


@pytest.mark.parametrize(
    ("given", "sampler", "measure"),
    [
        ({}, "quota", "length"),
        (SWEPT, "enumerate", "length"),
        (SLIDES, "enumerate", "length"),
        (GRID, "enumerate", "length"),
        ({"edge": "clip"}, "quota", "starts"),
        ({"edge": "clip", "balance_measure": "length", **LISTED}, "enumerate", "length"),
        ({"sampler": "stream"}, "stream", "length"),
    ],
)
def test_what_a_splice_leaves_open_follows_from_its_places(given, sampler, measure):
    made = SpliceSpec(seq_len=16, **given)
    assert (made.sampler, made.balance_measure) == (sampler, measure)
    assert (made.width, made.lookahead) == (16, False)


@pytest.mark.parametrize(
    ("given", "sweeps"),
    [
        ({}, False),
        (SWEPT, True),
        ({**SWEPT, **SLIDES}, False),
        (GRID, True),
        ({"grid": (3, 1)}, False),
        ({**SWEPT, "grid": (3, 1)}, False),
    ],
)
def test_a_start_is_swept_where_it_has_several_offsets(given, sweeps):
    assert SpliceSpec(seq_len=16, **given).sweeps is sweeps


@pytest.mark.parametrize("lookahead", [False, True])
def test_rows_are_wider_by_the_token_that_is_only_a_label(lookahead):
    assert PackSpec(seq_len=16, lookahead=lookahead).width == 16 + lookahead
    made = WindowsSpec(seq_len=16, lookahead=lookahead)
    assert (made.width, made.step) == (16 + lookahead, 16 + lookahead)
    assert WindowsSpec(seq_len=16, lookahead=True, overlap=1).step == 16
