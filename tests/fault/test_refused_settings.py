"""Settings of layouts: the last value that is allowed works, and the next is refused by name."""

import math

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SHIFTED = {"lookahead": True}
IN_ORDER = {"strategy": "sequential"}
SWEPT = {"content_start_mode": "slide_within"}
QUOTA = {"sampler": "quota"}
LISTED = {"sampler": "enumerate"}
GRID = {"grid": (3, 2)}
CELL = -(1 << 31), (1 << 31) - 1  # what a cell holds
FAR = 1 << 30
KINDS = ["feistel", "linear", "levanter", "levanter_linear"]

CASES = [  # layout, the other settings, name, allowed, refused
    ("windows", {}, "seq_len", [1], [0, -3, (1 << 30) + 1, 4.0, "4", True, None]),
    ("windows", {}, "tail", ["drop", "keep"], ["pad"]),
    ("windows", {}, "overlap", [0], [1]),
    ("windows", SHIFTED, "overlap", [0, 1], [2, -1]),
    ("windows", {}, "align", [True, 40], ["yes"]),
    ("pack", {}, "seq_len", [2], [1, (1 << 30) + 1, 4.0]),
    ("pack", {}, "strategy", ["bin"], ["best"]),
    ("pack", {}, "overflow", ["split"], ["spilt"]),
    ("pack", IN_ORDER, "overflow", ["split"], ["truncate", "drop", "error"]),
    ("pack", {}, "stride", [0, 7], [-1, 8]),
    ("pack", SHIFTED, "stride", [8], [9]),
    ("pack", IN_ORDER, "stride", [0], [1]),
    ("pack", {"overflow": "truncate"}, "stride", [0], [1]),
    ("pack", SHIFTED, "overlap", [0], [1]),
    ("pack", IN_ORDER | SHIFTED, "overlap", [0, 1], [2, -1]),
    ("pack", {}, "max_docs_per_bin", [1, None], [0]),
    ("pack", IN_ORDER, "max_docs_per_bin", [None], [1]),
    ("pack", {"min_len": 5}, "max_len", [5, None], [4]),
    ("pack", {}, "min_len", [1], [0]),
    ("pack", {}, "group_docs", [1], [0]),
    ("pack", {}, "shuffle_output", [True], [1]),
    ("splice", {}, "seq_len", [2], [1]),
    ("splice", {}, "content_length", [None, 2, 99], [1]),
    ("splice", {"mode": "slide"}, "content_length", [None, 8], [7]),
    ("splice", {}, "content_length", [{0: 2, 3: 4}], [{0: 1}]),
    ("splice", {}, "content_stride", [1], [0]),
    ("splice", {}, "offset_jitter", [0, 1], [-1]),
    ("splice", SWEPT, "offset_jitter", [0], [1]),
    ("splice", QUOTA, "epoch_length", [None, 1], [0]),
    ("splice", LISTED, "epoch_length", [None], [1]),
    ("splice", {}, "alpha", [0.0, 2.5], [-0.1, math.inf, math.nan]),
    ("splice", SWEPT, "alpha", [0.0], [0.5]),
    ("splice", {}, "balance_tau", [0.0, 1.5], [-0.1, math.inf]),
    ("splice", {}, "max_epochs", [None, 0.5], [0.0, math.nan]),
    ("splice", {}, "doc_strides", [(1, 2, 1)], [(1, 0, 1), (1, 1)]),
    ("splice", {}, "doc_weights", [(0.0, 1.0, 1.0)], [(1.0, -1.0, 1.0), (1.0, 1.0)]),
    ("splice", {}, "doc_alphas", [(0.0, 1.0, 1.0)], [(0.0, -1.0, 1.0), (1.0, 1.0)]),
    ("splice", {}, "doc_groups", [("a", "a", "b")], [("a", "b")]),
    ("splice", LISTED, "shuffle_offsets", [True, 5], [0, -1]),
    ("splice", QUOTA, "shuffle_content", [False], [True, 5]),
    ("splice", {}, "grid", [None, (3, 2)], [(0, 1), (1, 0), (1,), (1, 1, 1)]),
    ("splice", {"doc_schedule": {0: 1}}, "doc_growth", [None], [{0: 1}]),
    ("splice", SWEPT, "edge", ["inside"], ["clip"]),
    ("splice", GRID, "fill", ["one"], ["pack"]),
    ("splice", {"alpha": 0.5}, "include_tail", [False], [True]),
    ("splice", {}, "roll_loss", [False], [True]),
    # numbers of a splice: the last value that is taken, the first that is not, other types
    ("splice", {}, "seq_len", [2, 1 << 30], [(1 << 30) + 1, 8.0, "8", True, None]),
    ("splice", {}, "content_length", [np.int64(3)], [0, -2, 4.0, "4", True]),
    ("splice", {}, "content_stride", [40], [-1, 1.0, "1", True, None]),
    ("splice", {}, "offset_stride", [1, 40], [0, -1, 1.0, "1", True, None]),
    ("splice", {}, "min_copy_len", [1, 4], [0, -1, 1.0, "1", True, None]),
    ("splice", {}, "offset_jitter", [7], [1.0, "1", True, None]),
    ("splice", QUOTA, "epoch_length", [1], [-1, 1.0, "1", True]),
    ("splice", {}, "alpha", [1], ["1", True, None, -math.inf]),
    ("splice", {}, "balance_tau", [1], ["1", True, None, math.nan]),
    ("splice", {}, "max_epochs", [1], [-1, "1", True, math.inf]),
    ("splice", {}, "doc_strides", [[1, 1, 1], (9, 9, 9)], [(1, -1, 1), (1, 1.0, 1), "111", 1]),
    ("splice", {}, "doc_weights", [[1, 0, 0]], [(1, math.nan, 1), (1, "1", 1), 1]),
    ("splice", {}, "doc_weights", [(1.0, 1.0, 1e-9)], [(1.0, math.inf, 1.0), (1, 1, 1, 1)]),
    ("splice", {}, "doc_alphas", [[0, 0, 0]], [(1, math.inf, 1), (1, "1", 1), (1, True, 1), 1]),
    ("splice", {}, "doc_groups", [(0, 0, 0)], [(0, 0, 0, 0), 1, "ab"]),
    ("splice", LISTED, "shuffle_offsets", [1, False], [1.0, "1", None]),
    ("splice", LISTED, "shuffle_content", [1, True], [0, -1, 1.0, "1", None]),
    ("splice", {}, "offset_seed", [0, (1 << 64) - 1], [-1, 1 << 64, 1.0, "1", True, None]),
    ("splice", {}, "content_seed", [0, (1 << 64) - 1], [-1, 1 << 64, 1.0, "1", True, None]),
    ("splice", {}, "grid", [(1, 1)], [(3, 2.0), ("3", 2), (True, 2), 3, (), (0, 0)]),
    ("splice", {}, "doc_schedule", [{0: 1, 5: 3}], [{0: 0}, {1: 1}, {0: 1.5}, {0: "1"}, 3]),
    ("splice", {}, "doc_growth", [{0: 1, 1: 3}], [{0: 0}, {1: 1}, {0: 4}, {0: True}]),
    ("splice", {}, "adaptive_k", [True, False], [1, "yes", None]),
    ("splice", {}, "include_tail", [True, False], [1, "yes", None]),
    ("splice", {}, "shuffle_per_epoch", [True, False], [1, "yes", None]),
    ("splice", {}, "mode", ["splice"], ["slid", 1, None]),
    ("splice", {}, "placement", ["fit", "truncate"], ["cut", 1]),
    ("splice", {}, "fill", ["one", "pack"], ["two", 1]),
    ("splice", {}, "edge", ["clip", "inside"], ["cut", True]),
    ("splice", {}, "edge_mode", ["continuous", "duplicate"], ["double", 1]),
    ("splice", {}, "jitter_mode", ["uniform", "low_discrepancy"], ["low", 1]),
    ("splice", {}, "sampler", ["enumerate", "quota", "stream", None], ["all", 1]),
    ("splice", {}, "balance_mode", ["by_document", "by_coverage"], ["document", 1]),
    ("splice", {}, "balance_measure", ["length", "starts", None], ["tokens", 1]),
    # pack
    ("pack", {}, "min_len", [2], [-1, 1.0, "1", True, None]),
    ("pack", {}, "max_len", [1], [0, 1.0, "1", True]),
    ("pack", {}, "max_doc_tokens", [1, None], [0, 1.0, "1", True]),
    ("pack", {}, "min_row_len", [1, 8], [0, 1.0, "1", True, None]),
    ("pack", {}, "max_docs_per_bin", [2], [-1, 1.0, "1", True]),
    ("pack", {}, "group_docs", [np.int32(2)], [-1, 1.0, "1", True, None]),
    ("pack", {}, "group_tokens", [1], [0, 1.0, "1", True, None]),
    ("pack", {}, "stride", [np.uint8(1)], [1.0, "1", True, None]),
    ("pack", {}, "shuffle_seed", [0, (1 << 64) - 1], [-1, 1 << 64, 1.0, "1", True, None]),
    ("pack", {"add_bos": True}, "bos_id", [0, (1 << 31) - 1], [-1, 1 << 31, 1.0, "1", True]),
    ("pack", {"add_eos": True}, "eos_id", [0, (1 << 31) - 1], [-1, 1 << 31, 1.0, "1", True]),
    ("pack", {}, "lookahead", [True, False], [1, "yes", None]),
    ("pack", {}, "mask_overlap", [True, False], [1, "yes", None]),
    # windows
    ("windows", {}, "seq_len", [1 << 30, np.int64(3)], [4.5]),
    ("windows", {}, "tail", ["keep"], [True, 1, None]),
    ("windows", {}, "lookahead", [True, False], [1, "yes", None]),
    ("windows", SHIFTED, "overlap", [np.int8(1)], [1.0, "1", True]),
    ("windows", {}, "align", [1, False, 0], [-1, 1.5]),
    # rendering
    *(
        ("windows", others, name, allowed, wrong)
        for others, name, allowed, wrong in (
            ({}, "label_layout", ["aligned", "shifted"], ["shift", 1, True]),
            ({}, "mask_boundary_loss", [True, False], [1, 0, "yes", None]),
            ({}, "position_scheme", ["reset", "absolute"], ["relativ", 1, None]),
            ({}, "ignore_id", [None, *CELL], [CELL[0] - 1, CELL[1] + 1, 1.0, "1", True]),
            ({"eos_id": 3}, "train_on_eos", [True, False], [1, "no", None]),
            ({}, "train_on_eos", [True], [False]),
            ({"train_on_eos": False}, "eos_id", [3], [None]),
            ({"train_on_eos": False, "eos_mask": "inserted"}, "eos_id", [None, 3], [1.0]),
            ({}, "eos_mask", ["all", "inserted"], ["none", 1, None]),
            ({}, "segments", ["documents"], ["eos", "bos", 1, None]),
            ({"eos_id": 3}, "segments", ["eos"], ["EOS"]),
            ({}, "eos_id", [None, *CELL], [CELL[0] - 1, CELL[1] + 1, 1.0, "1", True]),
            ({}, "pad_id", [*CELL, np.int16(5)], [CELL[0] - 1, CELL[1] + 1, 1.0, "1", True]),
            ({}, "trailing", ["filler", "doc"], ["documents", 1, None]),
            ({}, "attend_prefix", [True, False], [1, "yes", None]),
            ({}, "position_offset", [-FAR, 0, FAR], [-FAR - 1, FAR + 1, 1.0, "1", True, None]),
        )
    ),
]

ORDERS = [  # method, the other settings, name, allowed, refused
    ("shuffle", {}, "perm_type", [*KINDS, None], ["fiestel", 1, True, b"linear", ["linear"]]),
    ("shuffle", {}, "shuffle", [True, False, 1, np.int64(7), None], [0, -1, 1.5, "yes", [3]]),
    ("shuffle", {"shuffle": True}, "block_shuffle", [None], [tl.BlockShuffle()]),
    ("era_shuffle", {}, "length", [1, 10**12], [0, -1, 1.0, "1", True, None]),
    ("era_shuffle", {"length": 3}, "perm_type", KINDS, ["fiestel", 1, None]),
    ("block_shuffle", {}, "io_block_size", [None, 1, np.int32(2)], [0, -1, 1.0, "1", True]),
    ("block_shuffle", {}, "window_blocks", [None, 1, 10**6], [0, -1, 1.0, "1", True]),
    ("block_shuffle", {}, "lanes", [1, 64], [0, -1, 1.0, "1", True, None]),
    ("block_shuffle", {}, "shuffle_block_size", [None, 1], [0, -1, 1.0, "1", True]),
    ("block_shuffle", {}, "cache_windows", [None, 1], [0, -1, 1.0, "1", True]),
    ("block_shuffle", {}, "perm_type", KINDS, ["fiestel", 1, None]),
    ("block_shuffle", {"perm_type": "levanter"}, "lanes", [1], [2]),
    ("block_shuffle", {"perm_type": "levanter_linear"}, "lanes", [1], [2]),
    ("block_shuffle", {"perm_type": "linear"}, "lanes", [1, 2], [0]),
    ("epochs", {}, "count", [None, 0, 1, np.int64(3)], [-1, 1.0, "1", True]),
    ("take", {}, "examples", [0, 1, np.int64(3)], [-1, 1.0, "1", True]),
    ("take", {}, "tokens", [0, 1, np.int64(17)], [-1, True, 1.0, "4", np.int64(-1)]),
    ("seed", {}, "seed", [0, (1 << 64) - 1], [-1, 1 << 64, 1.0, "1", True]),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    records = [{"input_ids": list(range(1, 1 + size))} for size in (9, 30, 14)]
    path = tmp_path_factory.mktemp("settings") / "store"
    return tl.build(records, path, tokenizer=None, vocab_size=100, progress=False)


@pytest.mark.parametrize(("layout", "others", "name", "allowed", "wrong"), CASES)
def test_a_setting_works_up_to_its_limit_and_is_refused_from_there_on(
    store, layout, others, name, allowed, wrong
):
    def made(value):
        options = {"seq_len": 8, **others, name: value}
        return getattr(store, layout)(options.pop("seq_len"), **options)

    for value in allowed:
        assert len(made(value).epochs(1)) >= 0
    for value in wrong:
        refused(lambda value=value: made(value), tl.ConfigError, name)


@pytest.mark.parametrize(("method", "others", "name", "allowed", "wrong"), ORDERS)
def test_a_setting_of_an_order_works_up_to_its_limit_and_is_refused_from_there_on(
    store, method, others, name, allowed, wrong
):
    def made(value):
        return getattr(store.windows(8), method)(**others, **{name: value})

    for value in allowed:
        run = made(value)
        run.batch(range(min(3, len(run) if run.is_finite else 3)))
    named = {"count": "epochs", "examples": "take"}.get(name, name)
    for value in wrong:
        refused(lambda value=value: made(value).spans([]), tl.ConfigError, named)


def test_a_document_that_does_not_fit_is_named_if_overflow_is_an_error(store):
    assert len(store.pack(30, overflow="error")) == 2
    refused(lambda: store.pack(29, overflow="error"), tl.ConfigError, "overflow", "document 1", 30)


def test_a_name_that_no_layout_has_is_refused(store):
    refused(lambda: store.pack(16, strides=2), tl.ConfigError, "strides")


def test_an_alias_is_the_same_setting(store):
    one, other = store.pack(8, strategy="bin"), store.pack(8, strategy="first_fit_decreasing")
    assert one.fingerprint == other.fingerprint
