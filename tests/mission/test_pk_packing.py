"""Packing: documents of any length in rows of one length."""

import itertools
import json
import time
from collections import Counter
from itertools import pairwise

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_tokenizers import bos_eos_pad, text_of, words

import tokenloom as tl
from tokenloom.integrations.hf import Collator, block_report, block_tokenize
from tokenloom.streams import packing_stats, stream_packer

BINS = [
    "greedy",
    "first_fit",
    "best_fit",
    "first_fit_decreasing",
    "best_fit_decreasing",
    "one_doc",
]
STRATEGIES = ["sequential", *BINS]
MODES = ["sequential", "bin", "multipack", "one_doc"]
NO_SPECIALS = {"add_bos": False, "add_eos": False}
ADD_BOS = {"add_bos": True, "bos_id": 1}
ADD_EOS = {"add_eos": True, "eos_id": 2}
PACKED_FIRST_FIT = {"packed": True, "packing_strategy": "first_fit"}
THREE_TEXTS = {"text": ["10 11 12", "20 21 22 23 24", "30 31"]}


def block_rows(features, tokenizer=words, **options):
    """`block_tokenize`; a plain function as the tokenizer gets no special tokens."""
    if tokenizer is words and not {"bos_id", "eos_id"} & set(options):
        options = NO_SPECIALS | options
    return block_tokenize(features, tokenizer, **options)


def texts_of_lengths(*lengths):
    """Texts of these numbers of tokens; every token of the batch is another number."""
    ends = list(itertools.accumulate(lengths, initial=10))
    return {"text": [text_of(range(a, b)) for a, b in pairwise(ends)]}


def numbered(lengths, first=100):
    """Documents of these lengths in which every token is another number."""
    edges = list(itertools.accumulate(lengths, initial=first))
    return [list(range(a, b)) for a, b in pairwise(edges)]


def row_of(row):
    """The arrays of a streamed row, as lists."""
    return row.tokens.tolist(), row.segment_ids.tolist()


def popped(packer):
    rows = []
    while packer.can_pop():
        rows.append(packer.pop())
    return rows


def packed_documents(run):
    """The documents of every row, in the order of its cells."""
    spans = run.spans(range(len(run)))
    return [spans.document[a:b].tolist() for a, b in pairwise(spans.frame.tolist())]


def slow_bins(lengths, width, strategy, most=None):
    """Every rule by looking at every bin; equal room goes to the bin opened last."""
    order = list(range(len(lengths)))
    if strategy.endswith("decreasing"):
        order.sort(key=lambda item: -lengths[item])
    bins = []
    for item in order:
        room = [width - sum(lengths[i] for i in items) for items in bins]
        fits = [
            b
            for b, items in enumerate(bins)
            if room[b] >= lengths[item] and (most is None or len(items) < most)
        ]
        if strategy == "one_doc":
            fits = []
        if strategy == "greedy":
            fits = [b for b in fits if b == len(bins) - 1]
        if strategy.startswith("best_fit"):
            fits.sort(key=lambda b: (room[b], -b))
        if fits:
            bins[fits[0]].append(item)
        else:
            bins.append([item])
    return bins


# -- sequential rows ---------------------------------------------------------------------------


def test_pk_01_documents_stand_end_to_end_in_stream_order(shared_store_of):
    documents = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
    packer = stream_packer("sequential", 8, bos_id=1, eos_id=2)
    first, second = packer.rows(documents)
    assert row_of(first) == ([1, 10, 11, 12, 2, 1, 20, 21], [1, 1, 1, 1, 1, 2, 2, 2])
    assert row_of(second) == ([2, 1, 30, 31, 32, 33, 2, 0], [1, 2, 2, 2, 2, 2, 2, 0])
    assert first.document_starts.tolist() == [0, 5]
    run = shared_store_of(*documents).pack(8, strategy="sequential", **ADD_BOS, **ADD_EOS)
    batch = run.batch([0, 1])
    assert batch.tokens.tolist() == [row_of(first)[0], row_of(second)[0]]
    assert batch.segment_ids.tolist() == [row_of(first)[1], row_of(second)[1]]


@pytest.mark.parametrize("mode", MODES)
def test_pk_02_a_window_of_t_plus_1_tokens_gives_inputs_and_labels(mode):
    packer = stream_packer(mode, 8, window="T+1", packing_buffer_docs=1, group_docs=1)
    packer.add(range(100, 109))
    row = packer.pop()
    assert row.tokens.shape == (9,)
    assert row.tokens[:8].tolist() == list(range(100, 108)), "inputs"
    assert row.tokens[-8:].tolist() == list(range(101, 109)), "labels"
    assert not packer.can_pop()


def test_pk_02_a_run_with_lookahead_has_the_label_of_its_last_cell(shared_store_of):
    run = shared_store_of(range(100, 109)).pack(8, strategy="sequential", lookahead=True)
    batch = run.batch([0])
    assert batch.tokens.tolist() == [list(range(100, 108))]
    assert batch.labels.tolist() == [list(range(101, 109))]


@pytest.mark.parametrize("mode", MODES)
def test_pk_03_c_54_with_overlap_1_each_of_17_tokens_but_the_first_is_a_target_once(mode):
    packer = stream_packer(mode, 8, window="T+1")
    rows = [row.tokens.tolist() for row in packer.rows([range(17)])]
    assert rows == [list(range(9)), list(range(8, 17))], "overlap=1 is the default of T+1"
    targets = [token for row in rows for token in row[1:]]
    assert targets == list(range(1, 17))


@pytest.mark.parametrize("mode", MODES)
def test_pk_03_c_54_with_overlap_0_two_windows_of_9_consume_18_tokens(mode):
    documents = [list(range(100, 117))]
    packer = stream_packer(mode, 8, window="T+1", overlap=0, pad_id=7)
    rows = [row.tokens.tolist() for row in packer.rows(documents)]
    assert rows == [list(range(100, 109)), [*range(109, 117), 7]]


def test_pk_03_c_54_runs_share_a_token_if_asked_to(shared_store_of):
    store = shared_store_of(range(100, 117))
    for overlap, targets in ((1, 16), (0, 15)):
        run = store.pack(8, strategy="sequential", lookahead=True, overlap=overlap)
        labels = run.batch(range(len(run))).labels
        trained = labels[labels >= 0].tolist()
        missing = set(range(101, 117)) - set(trained)
        assert len(trained) == len(set(trained)) == targets
        assert missing == (set() if overlap else {109}), "the transition between two windows"


# -- bins --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bin", "multipack"])
def test_pk_04_documents_of_6_2_6_2_fill_two_rows_of_8(mode):
    packer = stream_packer(mode, 8, packing_buffer_docs=4, bins_per_pack=2, group_docs=4)
    for tokens in numbered([6, 2, 6, 2]):
        packer.add(tokens)
    rows = popped(packer)
    assert [row.segment_ids.tolist() for row in rows] == [[1] * 6 + [2] * 2] * 2
    assert sorted(d for row in rows for d in row.documents.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("strategy", ["bin", "first_fit_decreasing", "best_fit_decreasing"])
def test_pk_04_a_run_packs_6_2_6_2_in_two_full_rows(shared_store_of, strategy):
    run = shared_store_of(*numbered([6, 2, 6, 2])).pack(8, strategy=strategy)
    assert run.batch(range(len(run))).segment_ids.tolist() == [[1] * 6 + [2] * 2] * 2


@pytest.mark.parametrize("mode", MODES)
def test_pk_05_a_short_row_is_padded_with_pad_id_in_segment_0(mode, shared_store_of):
    rows = list(stream_packer(mode, 8, pad_id=9).rows([[5, 6, 7, 8, 4]]))
    expected = ([5, 6, 7, 8, 4, 9, 9, 9], [1] * 5 + [0] * 3)
    assert [row_of(row) for row in rows] == [expected]
    batch = shared_store_of([5, 6, 7, 8, 4]).pack(8).render(pad_id=9).batch([0])
    assert (batch.tokens[0].tolist(), batch.segment_ids[0].tolist()) == expected


def test_pk_06_a_buffer_of_4_documents_gives_no_row_before_the_fourth():
    packer = stream_packer("bin", 8, packing_buffer_docs=4)
    can_pop = []
    for tokens in numbered([3, 3, 3, 3]):
        with pytest.raises(IndexError):
            packer.pop()
        packer.add(tokens)
        can_pop.append(packer.can_pop())
    assert can_pop == [False, False, False, True]


@pytest.mark.parametrize("mode", ["bin", "multipack"])
def test_pk_07_a_cap_of_2_documents_a_bin_leaves_room_unused(mode, shared_store_of):
    packer = stream_packer(mode, 8, packing_buffer_docs=4, group_docs=4, packing_max_docs_per_bin=2)
    documents = [[9, 9], [10, 10], [11, 11], [12, 12]]
    for tokens in documents:
        packer.add(tokens)
    assert packer.pop().tokens.tolist() == [9, 9, 10, 10, 0, 0, 0, 0]
    run = shared_store_of(*documents).pack(8, max_docs_per_bin=2).render(pad_id=0)
    assert [len(row) for row in packed_documents(run)] == [2, 2]
    if mode == "bin":
        run = (
            shared_store_of(*documents).pack(8, strategy="bin", max_docs_per_bin=2).render(pad_id=0)
        )
        assert run.batch([0]).tokens.tolist() == [[9, 9, 10, 10, 0, 0, 0, 0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", ["T", "T+1"])
def test_pk_08_c_56_segments_of_a_streamed_row_are_1_to_n(mode, window):
    packer = stream_packer(mode, 8, window=window, packing_buffer_docs=3, group_docs=4)
    rows = list(packer.rows(numbered([3, 9, 1, 1, 0, 20, 2, 5, 5, 4, 1])))
    assert len(rows) > 3
    for row in rows:
        segments = row.segment_ids.tolist()
        held = [segment for segment in segments if segment]
        assert segments == held + [0] * (len(segments) - len(held)), "filler only at the end"
        assert held == sorted(held)
        assert sorted(set(held)) == list(range(1, len(row.documents) + 1))
        assert row.document_starts.tolist() == [held.index(s) for s in sorted(set(held))]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pk_08_c_56_segments_of_every_packed_row_are_1_to_n(shared_store_of, strategy):
    run = shared_store_of(*numbered([3, 9, 1, 1, 0, 20, 2, 5, 5, 4, 1])).pack(8, strategy=strategy)
    batch = run.batch(range(len(run)))
    documents = packed_documents(run)
    for segments, inside in zip(batch.segment_ids.tolist(), documents, strict=True):
        held = [segment for segment in segments if segment]
        assert held == sorted(held)
        assert sorted(set(held)) == list(range(1, len(inside) + 1))


# -- the function for datasets.map -------------------------------------------------------------


def test_pk_09_best_fit_puts_3_2_3_in_one_row_of_10_longest_first():
    features = {"text": ["1 2 3", "4 5", "6 7 8"]}
    made = block_rows(features, max_length=10, packed=True, packing_strategy="best_fit")
    assert made["input_ids"] == [[1, 2, 3, 6, 7, 8, 4, 5]]
    assert made["document_starts"] == [[0, 3, 6]]


@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit"])
def test_pk_09_each_strategy_packs_every_token_once(strategy):
    features = texts_of_lengths(3, 7, 2, 5, 5, 1, 6)
    made = block_rows(features, max_length=8, packed=True, packing_strategy=strategy)
    tokens = [token for row in made["input_ids"] for token in row]
    assert sorted(tokens) == list(range(10, 39))
    assert all(len(row) <= 8 for row in made["input_ids"])
    with pytest.raises(tl.ConfigError, match="bestfit"):
        block_rows(features, packed=True, packing_strategy="bestfit")


def test_pk_10_best_fit_takes_the_least_room_and_first_fit_the_first(shared_store_of):
    """Bins of 20 with 7 and 3 cells left, and a document of 3."""
    store = shared_store_of(*numbered([13, 17, 3]))
    assert packed_documents(store.pack(20, strategy="best_fit")) == [[0], [1, 2]]
    assert packed_documents(store.pack(20, strategy="first_fit")) == [[0, 2], [1]]


def test_pk_10_equal_room_goes_to_the_bin_opened_last(shared_store_of):
    store = shared_store_of(*numbered([6, 6, 4]))
    assert packed_documents(store.pack(10, strategy="best_fit")) == [[0], [1, 2]]
    assert packed_documents(store.pack(10, strategy="first_fit")) == [[0, 2], [1]]


def test_pk_10_the_function_for_datasets_takes_the_longest_documents_first():
    features = texts_of_lengths(14, 10, 8, 2)
    for strategy, sizes in (("best_fit", [14, 20]), ("first_fit", [16, 18])):
        options = {"max_length": 20, "packed": True}
        made = block_rows(features, packing_strategy=strategy, **options)
        assert [len(row) for row in made["input_ids"]] == sizes
        longest_first = block_rows(features, packing_strategy=f"{strategy}_decreasing", **options)
        assert longest_first == made
    made = block_rows({"text": ["1", "2 2", "3 3 3"]}, max_length=4, **PACKED_FIRST_FIT)
    assert made["input_ids"] == [[3, 3, 3, 1], [2, 2]]


@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit"])
@pytest.mark.parametrize("packed", [False, True])
def test_pk_11_overflow_splits_12_tokens_into_5_5_2_or_keeps_the_first_5(packed, strategy):
    features = {"text": [text_of(range(1, 13))]}
    options = {"max_length": 5, "packed": packed, "packing_strategy": strategy}
    split = block_rows(features, overflow=True, **options)["input_ids"]
    assert sorted(map(len, split), reverse=True) == [5, 5, 2]
    assert sorted(itertools.chain(*split)) == list(range(1, 13))
    assert block_rows(features, overflow=False, **options)["input_ids"] == [[1, 2, 3, 4, 5]]
    report = block_report(features, words, overflow=False, **options, **NO_SPECIALS)
    assert report.lost_tokens == 7


def test_pk_11_a_run_splits_truncates_drops_or_refuses(shared_store_of):
    store = shared_store_of(range(1, 13))
    split = store.pack(5, strategy="greedy")
    assert split.batch(range(3)).segment_ids.sum(axis=1).tolist() == [5, 5, 2]
    with pytest.warns(UserWarning, match="7 of 12 tokens"):
        cut = store.pack(5, strategy="greedy", overflow="truncate")
    assert cut.batch(range(len(cut))).tokens.tolist() == [[1, 2, 3, 4, 5]]
    with pytest.raises(tl.ConfigError, match="12 tokens"):
        store.pack(5, overflow="error")
    lost = [
        tl.plan_packing([12], seq_len=5, strategy="greedy", overflow=overflow).tokens_lost
        for overflow in ("split", "truncate", "drop")
    ]
    assert lost == [0, 7, 12]


def test_pk_12_c_43_greedy_without_overflow_packs_several_documents_in_a_row():
    made = block_rows({"text": ["1 2 3", "4 5"]}, overflow=False, packed=True, max_length=6)
    assert made["input_ids"] == [[1, 2, 3, 4, 5]]
    assert made["document_starts"] == [[0, 3]]
    made = block_rows(THREE_TEXTS, overflow=False, packed=True, max_length=7)
    assert made["input_ids"] == [[10, 11, 12], [20, 21, 22, 23, 24, 30, 31]], "documents stay whole"


def test_pk_13_c_44_a_row_that_begins_inside_a_document_starts_at_0_and_says_so(shared_store_of):
    made = block_rows(THREE_TEXTS, packed=True, max_length=6)
    assert made["input_ids"] == [[10, 11, 12, 20, 21, 22], [23, 24, 30, 31]]
    assert made["document_starts"] == [[0, 3], [0, 2]]
    assert made["continues"] == [[False, False], [True, False]]
    documents = [words(text) for text in THREE_TEXTS["text"]]
    batch = shared_store_of(*documents).pack(6, strategy="sequential").batch([0, 1])
    assert batch.document_starts.tolist() == [[0, 3], [0, 2]]
    assert batch.continues.tolist() == [[False, False], [True, False]]


def test_pk_14_8_tokens_in_rows_of_5_with_stride_2_are_two_rows(shared_store_of):
    features = {"text": [text_of(range(1, 9))]}
    expected = [[1, 2, 3, 4, 5], [4, 5, 6, 7, 8]]
    for options in ({}, {"packed": True}, PACKED_FIRST_FIT):
        made = block_rows(features, max_length=5, stride=2, **options)
        assert made["input_ids"] == expected, "no third row of nothing but overlap"
        assert made["overlaps"] == [[0], [2]]
    run = shared_store_of(range(1, 9)).pack(5, stride=2, strategy="one_doc")
    assert run.batch(range(len(run))).tokens.tolist() == expected


@pytest.mark.parametrize("options", [{}, {"packed": True}, PACKED_FIRST_FIT])
def test_pk_14_stride_5_of_6_with_bos_comes_to_an_end(options, shared_store_of):
    line = [1, *range(10, 22)]
    expected = [line[i : i + 6] for i in range(8)]
    features = {"text": [text_of(range(10, 22))]}
    made = block_rows(features, bos_id=1, add_eos=False, max_length=6, stride=5, **options)
    assert made["input_ids"] == expected
    run = shared_store_of(range(10, 22)).pack(6, stride=5, strategy="one_doc", **ADD_BOS)
    assert run.batch(range(len(run))).tokens.tolist() == expected


@pytest.mark.parametrize("stride", [-1, 6, 7])
def test_pk_14_a_stride_outside_0_to_the_row_is_refused(stride, shared_store_of):
    for refused in (
        lambda: block_rows(THREE_TEXTS, stride=stride, max_length=6),
        lambda: shared_store_of([5, 6]).pack(6, stride=stride),
        lambda: tl.plan_packing([5], seq_len=6, strategy="greedy", stride=stride),
    ):
        with pytest.raises(tl.ConfigError, match=f"stride.*{stride}"):
            refused()


def test_pk_15_tokens_that_an_earlier_row_has_are_trained_once(shared_store_of):
    made = block_rows({"text": [text_of(range(1, 9))]}, max_length=5, stride=2)
    rows = [dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True)]
    store = shared_store_of(range(1, 9))
    for mask_overlap, second in ((True, [-100, -100, 6, 7, 8]), (False, [-100, 5, 6, 7, 8])):
        collator = Collator(None, pad_id=0, mask_overlap=mask_overlap, return_tensors="np")
        labels = collator(rows)["labels"].tolist()
        assert labels[0] == [1, 2, 3, 4, 5]
        assert labels[1][1:] == second[1:], "the first label of a row is never used by a model"
        run = store.pack(5, stride=2, strategy="one_doc", mask_overlap=mask_overlap)
        assert run.batch([0, 1]).labels.tolist() == [[-100, 2, 3, 4, 5], second]


def test_pk_16_every_document_ends_with_eos_where_there_is_one(shared_store_of):
    made = block_rows(THREE_TEXTS, bos_eos_pad(), max_length=8)
    assert made["input_ids"] == [[1, 10, 11, 12, 2], [1, 20, 21, 22, 23, 24, 2], [1, 30, 31, 2]]
    made = block_rows(THREE_TEXTS, bos_eos_pad(), max_length=5, overflow=False)
    assert made["input_ids"][1] == [1, 20, 21, 22, 23], "cut off, so it does not end here"
    run = shared_store_of([10, 11], [20]).pack(8, **ADD_EOS)
    assert run.batch([0]).tokens[0, :5].tolist() == [10, 11, 2, 20, 2]


def test_pk_17_c_45_bos_and_eos_are_switched_off_with_one_warning_where_there_are_none():
    class NeitherBosNorEos:
        """A tokenizer of its own kind, so that no earlier test has earned its warnings."""

        def __call__(self, text):
            return words(text)

    bare = NeitherBosNorEos()
    with pytest.warns(UserWarning, match="NeitherBosNorEos") as caught:
        made = [block_tokenize(THREE_TEXTS, bare, max_length=8) for _ in range(3)]
    assert sorted("BOS" in str(one.message) for one in caught) == [False, True], "one for each"
    assert made == [block_rows(THREE_TEXTS, max_length=8)] * 3
    for option in ("add_bos", "add_eos"):
        others = NO_SPECIALS | {option: True}
        with pytest.raises(tl.TokenizerError, match=option.removeprefix("add_").upper()):
            block_tokenize(THREE_TEXTS, bare, strict_special_tokens=True, **others)


def test_pk_17_c_45_a_store_without_bos_is_packed_without_bos(tmp_path):
    store = tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes", progress=False)
    with pytest.warns(UserWarning, match="add_bos"):
        run = store.pack(8, add_bos=True)
    batch = run.batch([0])
    assert batch.tokens[0, :3].tolist() == [97, 98, 99]
    assert batch.segment_ids[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    with pytest.raises(tl.TokenizerError, match="BOS"):
        store.pack(8, add_bos=True, strict_special_tokens=True)


def test_pk_18_an_exact_fill_is_one_row_and_a_lone_bos_is_none(shared_store_of):
    exact = block_rows({"text": ["10 11 12 13"]}, bos_eos_pad(), packed=True, max_length=6)
    assert exact["input_ids"] == [[1, 10, 11, 12, 13, 2]]
    run = shared_store_of([10, 11, 12, 13]).pack(6, **ADD_BOS, **ADD_EOS)
    assert run.batch(range(len(run))).tokens.tolist() == [[1, 10, 11, 12, 13, 2]]
    assert block_rows({"text": ["", "10"]}, bos_eos_pad())["input_ids"] == [[1, 10, 2]]
    assert list(stream_packer("one_doc", 6, bos_id=1).rows([[], []])) == []


def test_pk_18_a_document_that_has_its_bos_and_eos_gets_no_second_ones(tmp_path):
    features = {"text": ["<s> 10 11", "12 </s>", "<s> 13 </s>"]}
    made = block_rows(features, bos_eos_pad(), max_length=9)
    assert made["input_ids"] == [[1, 10, 11, 2], [1, 12, 2], [1, 13, 2]]
    bos_eos_pad().save(str(tmp_path / "tokenizer.json"))
    options = {"tokenizer": tmp_path / "tokenizer.json", "eos": "</s>", "progress": False}
    for add_eos in (True, False):
        store = tl.build([{"text": "10 11"}], tmp_path / f"{add_eos}", add_eos=add_eos, **options)
        if add_eos:
            with pytest.warns(UserWarning, match="EOS"):
                run = store.pack(4, add_eos=True)
            with pytest.raises(tl.TokenizerError, match="EOS"):
                store.pack(4, add_eos=True, strict_special_tokens=True)
        else:
            run = store.pack(4, add_eos=True)
        assert run.batch([0]).segment_ids.tolist() == [[1, 1, 1, 0]]
        assert run.batch([0]).tokens[0, :3].tolist() == [10, 11, 2]


def test_pk_19_min_len_and_max_len_count_source_tokens(shared_store_of):
    features = texts_of_lengths(3, 5, 2)
    made = block_rows(features, bos_eos_pad(), min_len=3, max_length=9)["input_ids"]
    assert made == [[1, 10, 11, 12, 2], [1, 13, 14, 15, 16, 17, 2]], "specials do not count"
    report = block_report(features, words, min_len=3, max_len=4, max_length=9, **NO_SPECIALS)
    assert (report.too_short, report.too_long, report.rows) == (1, 1, 1)
    assert report.lost_tokens == 7
    with pytest.warns(UserWarning, match="2 of 10 tokens"):
        run = shared_store_of(*numbered([3, 5, 2])).pack(9, min_len=3, **ADD_BOS)
    assert set(itertools.chain(*packed_documents(run))) == {0, 1}
    plan = tl.plan_packing([5], seq_len=9, strategy="greedy", max_len=4)
    assert (plan.rows, plan.tokens_lost, plan.tally.filtered) == (0, 5, 1)


def test_pk_19_min_row_len_drops_rows_and_counts_them(store_of):
    options = {"packed": True, "max_length": 6, "min_row_len": 5}
    made = block_rows(THREE_TEXTS, **options)
    assert made["input_ids"] == [[10, 11, 12, 20, 21, 22]]
    report = block_report(THREE_TEXTS, words, **options, **NO_SPECIALS)
    assert (report.rows, report.short_rows, report.lost_tokens) == (1, 1, 4)
    plan = tl.plan_packing([3, 5, 2], seq_len=6, strategy="sequential", min_row_len=5)
    assert (plan.rows, plan.tokens_lost) == (1, 4)


def test_pk_20_a_text_is_cut_before_the_first_match_of_truncate_at():
    def letters(text):
        return list(text.encode())

    made = block_tokenize({"text": ["ab<X>cd"]}, letters, truncate_at="<X>", **NO_SPECIALS)
    assert made["input_ids"] == [list(b"ab")]
    features = {"text": ["ab<X>cd<X>", "ab<yy>", "<X>"]}
    made = block_tokenize(features, letters, truncate_at="<[A-Z]>", **NO_SPECIALS)
    assert made["input_ids"] == [list(b"ab"), list(b"ab<yy>")]
    with pytest.raises(tl.ConfigError, match=r"truncate_at.*\("):
        block_rows(THREE_TEXTS, truncate_at="(")


@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit"])
def test_pk_21_shuffled_rows_are_the_same_rows_in_an_order_of_the_seed(strategy):
    features = {"text": [text_of(range(a, a + 1 + a % 7)) for a in range(3, 120)]}
    options = {"max_length": 9, "packed": True, "packing_strategy": strategy}
    plain = block_rows(features, **options)["input_ids"]
    first, again, other = (
        block_rows(features, shuffle_output=True, seed=seed, **options)["input_ids"]
        for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other
    assert plain not in (first, other)
    assert sorted(first) == sorted(other) == sorted(plain)


def test_pk_21_rows_of_a_run_are_shuffled_inside_their_group(shared_store_of):
    store = shared_store_of(*numbered([1 + (i * 7) % 9 for i in range(150)]))
    rows = [
        packed_documents(store.pack(9, shuffle_output=shuffle, shuffle_seed=seed))
        for shuffle, seed in ((False, 0), (True, 1), (True, 1), (True, 2))
    ]
    assert rows[1] == rows[2]
    assert rows[1] != rows[3]
    assert rows[0] not in (rows[1], rows[3])
    assert sorted(rows[0]) == sorted(rows[1]) == sorted(rows[3])


def test_pk_22_documents_of_50_30_and_20_tokens_start_at_0_50_and_80(shared_store_of):
    features = texts_of_lengths(50, 30, 20)
    assert block_rows(features, packed=True)["document_starts"] == [[0, 50, 80]]
    batch = shared_store_of(*numbered([50, 30, 20])).pack(100).batch([0])
    assert batch.document_starts.tolist() == [[0, 50, 80]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("texts", [[], [""], ["1 2"], ["1", "2 3 4"]])
def test_pk_23_the_result_always_has_input_ids_and_document_starts_of_one_length(packed, texts):
    made = block_rows({"text": texts}, packed=packed)
    assert {"input_ids", "document_starts"} <= set(made)
    assert len({len(column) for column in made.values()}) == 1
    assert all(starts[0] == 0 for starts in made["document_starts"])
    assert sum(map(len, made["input_ids"])) == sum(len(text.split()) for text in texts)


# -- the packers themselves ---------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 3])
@pytest.mark.parametrize("strategy", BINS)
def test_pk_24_bins_are_those_of_a_scan_over_all_of_them(shared_store_of, strategy, most):
    lengths = [1 + (i * 7919) % 61 for i in range(250)]
    run = shared_store_of(*([7] * length for length in lengths)).pack(
        64, strategy=strategy, max_docs_per_bin=most
    )
    assert packed_documents(run) == slow_bins(lengths, 64, strategy, most)


def test_pk_24_greedy_rows_hold_at_most_the_documents_allowed(shared_store_of):
    run = shared_store_of(*([7] * 2 for _ in range(7))).pack(
        16, strategy="greedy", max_docs_per_bin=3
    )
    assert packed_documents(run) == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("strategy", [*BINS, "sequential"])
def test_pk_24_sixteen_times_the_documents_take_far_less_than_256_times_as_long(strategy):
    """A quotient of CPU times in one process: n log n gives about 20, a scan over bins 256."""
    rng = np.random.default_rng(1)

    def seconds(count):
        best = float("inf")
        for _ in range(3):
            lengths = rng.integers(1, 2000, count)  # other lengths, so no plan is found again
            start = time.process_time()
            plan = tl.plan_packing(lengths, seq_len=2048, strategy=strategy, group_docs=10**6)
            best = min(best, time.process_time() - start)
            assert plan.tokens_lost == 0
        return best

    seconds(1000)  # imports
    assert seconds(40_000) < 100 * seconds(2_500)


def test_pk_24_twenty_thousand_texts_are_packed_to_99_percent():
    features = {"text": ["9 " * (1 + i % 50) for i in range(20_000)]}
    report = block_report(
        features,
        lambda text: [9] * text.count("9"),
        packed=True,
        packing_strategy="best_fit",
        max_length=2048,
        **NO_SPECIALS,
    )
    assert (report.documents, report.lost_tokens) == (20_000, 0)
    assert report.fill > 0.99


def cycles_until_6_leaves(choose):
    """A 6-token document, then an 8-token one each cycle; a cycle emits one bin of 8."""
    pending, cycles = [6], 0
    while 6 in pending and cycles < 50:
        pending.append(8)
        pending.remove(choose(pending))
        cycles += 1
    return cycles


def test_pk_25_c_57_a_short_document_leaves_within_one_cycle():
    packer = stream_packer("bin", 8, packing_buffer_docs=2)
    packer.add([5] * 6)
    packer.add([6] * 8)
    assert packer.pop().documents.tolist() == [0]
    for number in range(2, 12):
        packer.add([6] * 8)
        assert packer.pop().documents.tolist() == [number - 1]
    assert cycles_until_6_leaves(lambda pending: pending[0]) == 1
    assert cycles_until_6_leaves(max) == 50, "bins opened by the longest documents starve it"


@given(
    st.lists(st.integers(1, 9), max_size=40),
    st.integers(1, 6),
    st.integers(1, 3),
)
@settings(max_examples=25)
def test_pk_25_c_57_no_document_waits_longer_than_the_documents_before_it(lengths, buffer, bins):
    """A document with p before it leaves with the (p // bins + 1)th pack from then on."""
    bins = min(bins, buffer)
    packer = stream_packer("bin", 9, packing_buffer_docs=buffer, bins_per_pack=bins)
    waiting, packs, deadline = [], 0, {}
    for number, tokens in enumerate(numbered(lengths)):
        deadline[number] = packs + len(waiting) // bins + 1
        waiting.append(number)
        packer.add(tokens)
        rows = popped(packer)
        packs += len(rows) // bins
        for row in rows:
            waiting = [other for other in waiting if other not in row.documents]
        assert all(deadline[other] > packs for other in waiting)


def test_pk_26_leftovers_wait_in_order_of_arrival():
    """Of 10, 8 and 9 tokens in rows of 16 the first leaves alone; 8 is then the oldest."""
    packer = stream_packer("bin", 16, packing_buffer_docs=3)
    for tokens in numbered([10, 8, 9]):
        packer.add(tokens)
    assert [row.documents.tolist() for row in popped(packer)] == [[0]]
    packer.add([7] * 16)
    assert [row.documents.tolist() for row in popped(packer)] == [[1]], "8, which came before 9"
    packer.add([7] * 16)
    assert [row.documents.tolist() for row in popped(packer)] == [[2]]


@pytest.mark.parametrize("mode", MODES)
def test_pk_27_finish_pads_the_tail_and_nothing_may_be_added_after_it(mode):
    packer = stream_packer(mode, 8)
    packer.add([4, 5, 6])
    assert packer.can_pop() == (mode == "one_doc")
    packer.finish()
    rows = [row_of(row) for row in popped(packer)]
    assert rows == [([4, 5, 6, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0])]
    with pytest.raises(tl.InputError, match="finish"):
        packer.add([7])
    with pytest.raises(IndexError):
        packer.pop()


def test_pk_28_a_group_of_three_leaves_the_second_piece_for_the_next():
    packer = stream_packer("multipack", 8, group_docs=3)
    for tokens in numbered([2, 3, 12]):
        packer.add(tokens)
    assert [row.documents.tolist() for row in popped(packer)] == [[2], [1, 0]]
    packer.finish()
    (row,) = popped(packer)
    assert row.tokens[:4].tolist() == [113, 114, 115, 116]
    assert (row.documents.tolist(), row.continues.tolist()) == ([2], [True])


def test_pk_28_one_document_a_row_has_one_segment_a_row(store_of):
    packer = stream_packer("one_doc", 4)
    rows = list(packer.rows(numbered([3, 6, 0, 1])))
    assert [row.documents.tolist() for row in rows] == [[0], [1], [1], [3]]
    assert packer.stats.segments_per_row == 1
    assert tl.plan_packing([3, 6, 0, 1], seq_len=4, strategy="one_doc").segments_per_row == 1


def test_pk_28_groups_of_a_run_are_packed_apart(shared_store_of):
    """Two groups of two documents; one group would fill two rows of 8."""
    store = shared_store_of(*numbered([6, 6, 2, 2]))
    assert packed_documents(store.pack(8, group_docs=2)) == [[0], [1], [2, 3]]
    assert packed_documents(store.pack(8, group_tokens=10)) == [[0], [1], [2, 3]]
    assert len(store.pack(8)) == 2


def test_pk_29_seven_of_eight_cells_one_transition_one_and_a_half_documents_a_row():
    stats = packing_stats([[1, 1, 2, 0], [3, 3, 3, 3]])
    assert stats.utilisation == 7 / 8
    assert stats.transitions == 1
    assert stats.segments_per_row == 1.5
    assert (stats.rows, stats.cells, stats.tokens, stats.segments) == (2, 8, 7, 3)
    packer = stream_packer("bin", 4, packing_buffer_docs=2)
    list(packer.rows([[5, 5], [6], [7, 7, 7, 7]]))
    found = packer.stats
    assert (found.utilisation, found.transitions, found.segments_per_row) == (7 / 8, 1, 1.5)
    plan = tl.plan_packing([2, 1, 4], seq_len=4, strategy="best_fit_decreasing")
    assert (plan.fill, plan.segments_per_row) == (7 / 8, 1.5)


@st.composite
def corpora(draw):
    """(width, documents, options): documents around the row length in which no token repeats."""
    width = draw(st.integers(2, 9))
    edges = st.sampled_from([0, 1, width - 1, width, width + 1, 3 * width])
    lengths = draw(st.lists(edges | st.integers(0, 30), min_size=1, max_size=12))
    specials = draw(st.sampled_from([{}, ADD_BOS, ADD_EOS, ADD_BOS | ADD_EOS]))
    return width, numbered(lengths), specials


@pytest.mark.filterwarnings("ignore::UserWarning")  # losses are announced
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pk_30_every_source_token_is_in_one_cell_of_a_run_or_counted_as_lost(
    shared_store_of, strategy
):
    rng = np.random.default_rng(8)
    lengths = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, *rng.integers(0, 30, 25).tolist()]
    documents = numbered(lengths)
    store = shared_store_of(*documents)
    specials = [{}, ADD_BOS, ADD_EOS, ADD_BOS | ADD_EOS]
    overflows = ["split"] if strategy == "sequential" else ["split", "truncate", "drop"]
    for width, overflow, added in itertools.product([2, 5, 8], overflows, specials):
        options = {"strategy": strategy, "overflow": overflow, "group_docs": 15, **added}
        run = store.pack(width, **options)
        batch = run.batch(range(len(run)))
        cells = batch.tokens[batch.segment_ids > 0].tolist()
        count = Counter(token for token in cells if token >= 100)
        assert set(count.values()) <= {1}
        assert set(count) <= set(itertools.chain(*documents))
        plan = tl.plan_packing(store, seq_len=width, **options)
        assert sum(lengths) - len(count) == plan.tokens_lost
        assert (plan.tokens_lost == 0) == (overflow == "split")


@settings(max_examples=60)
@given(corpora(), st.sampled_from(MODES))
def test_pk_30_every_source_token_is_in_one_cell_of_a_stream(corpus, mode):
    width, documents, specials = corpus
    ids = {name: value for name, value in specials.items() if name.endswith("_id")}
    packer = stream_packer(mode, width, packing_buffer_docs=3, group_docs=4, **ids)
    rows = list(packer.rows(documents))
    count = Counter(
        token
        for row in rows
        for token, segment in zip(*row_of(row), strict=True)
        if segment and token >= 100
    )
    assert count == Counter(itertools.chain(*documents))


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 25), max_size=12),
    st.fixed_dictionaries(
        {
            "packed": st.booleans(),
            "packing_strategy": st.sampled_from(["greedy", "best_fit", "first_fit"]),
            "overflow": st.booleans(),
            "max_length": st.integers(1, 12),
            "min_len": st.integers(1, 3),
        }
    ),
)
def test_pk_30_every_source_token_of_a_batch_of_texts_is_in_one_cell_or_counted(lengths, options):
    features, total = texts_of_lengths(*lengths), sum(lengths)
    made = block_rows(features, **options)["input_ids"]
    count = Counter(itertools.chain(*made))
    assert set(count) <= set(range(10, 10 + total))
    assert set(count.values()) <= {1}
    report = block_report(features, words, **options, **NO_SPECIALS)
    assert total - len(count) == report.lost_tokens
    if options["overflow"] and options["min_len"] == 1:
        assert report.lost_tokens == 0


@pytest.mark.parametrize("mode", MODES)
def test_pk_31_a_cap_of_4_tokens_a_document_is_counted(mode, store_of):
    lengths = [0, 1, 2, 4, 5, 8, 9]
    packer = stream_packer(mode, 8, max_doc_tokens=4)
    rows = list(packer.rows(numbered(lengths)))
    stats = packer.stats
    assert (stats.documents_seen, stats.documents_truncated) == (7, 3)
    assert (stats.tokens_observed, stats.tokens_retained) == (29, 19)
    assert sum(np.count_nonzero(row.segment_ids) for row in rows) == 19
    plan = tl.plan_packing(lengths, seq_len=8, strategy="greedy", max_doc_tokens=4)
    assert (plan.tally.documents, plan.tally.truncated) == (7, 3)
    assert (plan.tally.tokens, plan.tokens_lost) == (29, 10)


# -- plans -------------------------------------------------------------------------------------


def test_pk_32_a_plan_reads_no_token_and_a_row_only_its_own_pieces(tmp_path):
    rng = np.random.default_rng(5)
    documents = numbered(rng.integers(1, 30, 400).tolist())
    tl.build(
        [{"input_ids": ids} for ids in documents],
        tmp_path / "s",
        tokenizer=None,
        vocab_size=10_000,
        progress=False,
    )
    store = tl.open(tmp_path / "s", cache_bytes=0)
    run = store.pack(64).shuffle().seed(1)
    spans = run.spans(range(len(run)))
    assert len(run) > 80
    assert store.reads.bytes == 0
    row = run.batch([70])
    pieces = slice(*spans.frame[70:72])
    assert row.spans.document.tolist() == spans.document[pieces].tolist()
    held = [documents[d] for d in row.spans.document.tolist()]
    assert row.tokens[row.segment_ids > 0].tolist() == list(itertools.chain(*held))
    assert 0 < store.reads.ranges <= len(held)
    assert store.reads.useful_bytes == 2 * sum(map(len, held))


def test_pk_32_neighbours_in_the_store_are_one_read(tmp_path):
    records = [{"input_ids": ids} for ids in numbered([8] * 40)]
    tl.build(records, tmp_path / "s", tokenizer=None, vocab_size=1000, progress=False)
    store = tl.open(tmp_path / "s", cache_bytes=0)
    store.pack(64, strategy="greedy").batch([3])  # eight whole documents
    assert (store.reads.examples, store.reads.ranges, store.reads.read_ops) == (8, 1, 1)


def test_pk_32_a_million_documents_are_planned_from_their_lengths():
    lengths = np.random.default_rng(6).integers(1, 2000, 1_000_000)
    plan = tl.plan_packing(lengths, seq_len=2048, strategy="best_fit_decreasing")
    assert (plan.tally.documents, plan.tokens_lost) == (1_000_000, 0)
    assert plan.fill > 0.99


def test_pk_32_c_65_a_packed_run_resumes_from_a_number_without_a_buffer(shared_store_of):
    lengths = np.random.default_rng(2).integers(1, 12, 60).tolist()
    run = shared_store_of(*numbered(lengths)).pack(16).shuffle().seed(3)
    with tl.Loader(run, 2) as loader:
        steps = [(batch.tokens.tolist(), batch.segment_ids.tolist()) for batch in loader]
    assert len({str(step) for step in steps}) == len(steps) > 10, "no two steps look alike"
    sizes = set()
    for step, expected in enumerate(steps):
        state = tl.Loader(run, 2).seek(step).state_dict()
        deciding = {name: state[name] for name in state if name not in ("dataset", "sources")}
        assert deciding["examples"] == 2 * step
        sizes.add(len(json.dumps(deciding | {"examples": 0, "step": 0})))
        with tl.Loader(tl.from_config(run.describe()), 2, prefetch=0) as resumed:
            resumed.load_state_dict(deciding)
            batch = next(resumed)
        assert (batch.tokens.tolist(), batch.segment_ids.tolist()) == expected
    assert len(sizes) == 1, "the same few values at every step: no buffer"


def test_pk_33_block_tokenize_works_in_datasets_map():
    datasets.disable_progress_bars()
    texts = [text_of(range(10, 10 + 3 + i % 9)) for i in range(60)]
    options = {"tokenizer": words, "max_length": 16, "packed": True, "stride": 2, **NO_SPECIALS}
    mapped = datasets.Dataset.from_dict({"text": texts}).map(
        block_tokenize,
        batched=True,
        batch_size=30,
        remove_columns=["text"],
        fn_kwargs=options,
        new_fingerprint="pk-33",
    )
    expected = {}
    for start in (0, 30):
        made = block_tokenize({"text": texts[start : start + 30]}, **options)
        assert all(isinstance(row, list) for column in made.values() for row in column)
        for name, column in made.items():
            expected.setdefault(name, []).extend(column)
    assert {name: list(mapped[name]) for name in mapped.column_names} == expected


@pytest.mark.parametrize("mode", MODES)
def test_pk_34_batches_of_10_and_of_1000_documents_give_the_same_rows(mode):
    documents = numbered(np.random.default_rng(1).integers(0, 40, 1000).tolist())
    rows = []
    for size in (10, 1000):
        packer, found = stream_packer(mode, 32, eos_id=2), []
        for start in range(0, len(documents), size):
            for tokens in documents[start : start + size]:
                packer.add(tokens)
            found += popped(packer)
        packer.finish()
        rows.append([row_of(row) for row in found + popped(packer)])
    assert rows[0] == rows[1]


def test_pk_34_a_sequential_stream_is_the_whole_corpus_cut_into_rows(shared_store_of):
    documents = numbered(np.random.default_rng(2).integers(0, 30, 60).tolist(), first=3)
    line = [token for ids in documents if ids for token in [*ids, 2]]
    streamed = [
        row.tokens[row.segment_ids > 0].tolist()
        for row in stream_packer("sequential", 32, eos_id=2).rows(documents)
    ]
    assert streamed == [line[a : a + 32] for a in range(0, len(line), 32)]
    run = shared_store_of(*documents).pack(32, strategy="sequential", **ADD_EOS)
    batch = run.batch(range(len(run)))
    assert [
        tokens[segments > 0].tolist()
        for tokens, segments in zip(batch.tokens, batch.segment_ids, strict=True)
    ] == streamed
