"""Settings of layouts: the last value that is allowed works, and the next is refused by name."""

import math

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


def test_a_document_that_does_not_fit_is_named_if_overflow_is_an_error(store):
    assert len(store.pack(30, overflow="error")) == 2
    refused(lambda: store.pack(29, overflow="error"), tl.ConfigError, "overflow", "document 1", 30)


def test_a_name_that_no_layout_has_is_refused(store):
    refused(lambda: store.pack(16, strides=2), tl.ConfigError, "strides")


def test_an_alias_is_the_same_setting(store):
    one, other = store.pack(8, strategy="bin"), store.pack(8, strategy="first_fit_decreasing")
    assert one.fingerprint == other.fingerprint
