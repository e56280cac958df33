"""Splices at the values that the design computes by hand, row by row: SP and C of the checklist.

N is filler. The design's first document is 0 1 2 3 4, and its first frame has 5 cells.
"""

import itertools
import logging
import warnings
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slowsplice import edge_weights
from toydata import ToyStore
from toysplices import N, making_stores, pairs, row, shown, splice, triples, whole

import tokenloom as tl
from tokenloom.batch import attention
from tokenloom.testing import assert_resumable

DOC = [0, 1, 2, 3, 4]
A = {"content_start_mode": "slide_within", "content_length": 3}  # the design's example A
EXAMPLE_A = [
    ((0, 0), [0, 1, 2, N, N]),
    ((0, 1), [N, 0, 1, 2, N]),
    ((0, 2), [N, N, 0, 1, 2]),
    ((1, 0), [1, 2, 3, N, N]),
    ((1, 1), [N, 1, 2, 3, N]),
    ((1, 2), [N, N, 1, 2, 3]),
    ((2, 0), [2, 3, 4, N, N]),
    ((2, 1), [N, 2, 3, 4, N]),
    ((2, 2), [N, N, 2, 3, 4]),
    ((3, 0), [3, 4, N, N, N]),
    ((3, 1), [N, 3, 4, N, N]),
    ((3, 2), [N, N, 3, 4, N]),
    ((3, 3), [N, N, N, 3, 4]),
]
THIRTEEN = [pair for pair, _ in EXAMPLE_A]


@pytest.fixture
def stores():
    yield from making_stores()


@pytest.fixture
def five(stores):
    return stores(DOC)


@pytest.fixture
def words(tmp_path):
    """Makes stores of words, whose tokenizer has padding at id 0."""
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<pad>": 0, "</s>": 1, "a": 2, "b": 3, "c": 4}, "a")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<pad>", "</s>"])
    made.save(str(tmp_path / "tokenizer.json"))
    numbers = itertools.count()

    def build(*texts, **options):
        options = {"eos": "</s>", "pad": "<pad>", "add_eos": False, "progress": False, **options}
        rows = [{"text": text} for text in texts]
        out = tmp_path / f"store-{next(numbers)}"
        return tl.build(rows, out, tokenizer=tmp_path / "tokenizer.json", **options)

    return build


def by_hand(doc, t, s, content_length, seq_len):
    """The design's construction of an example: tokens, loss mask and segments."""
    tokens, loss, segments = [N] * seq_len, [0] * seq_len, [0] * seq_len
    copy = min(content_length or seq_len, len(doc) - t, seq_len - s)
    tokens[s : s + copy] = doc[t : t + copy]
    loss[s : s + copy - 1] = [1] * (copy - 1)
    segments[s:] = [1] * (seq_len - s)
    return tokens, loss, segments


# -- one example ---------------------------------------------------------------------------


def test_sp_01_tokens_are_filler_then_the_document_then_filler(five):
    assert row(shown(splice(five, 5, **A), 2, 1).tokens) == [N, 2, 3, 4, N]


@pytest.mark.parametrize("placement", ["fit", "truncate"])
@pytest.mark.parametrize("content_length", [2, 3, 4, 5, None])
def test_sp_01_sp_02_sp_03_every_row_is_what_the_design_constructs(five, placement, content_length):
    options = {**A, "content_length": content_length, "placement": placement}
    made = splice(five, 5, trailing="doc", **options)
    batch = whole(made)
    for number, (t, s) in enumerate(pairs(made)):
        tokens, loss, segments = by_hand(DOC, t, s, content_length, 5)
        assert batch.tokens[number].tolist() == tokens
        assert batch.loss_mask[number].tolist() == loss
        assert batch.segment_ids[number].tolist() == segments


def test_sp_02_the_last_copied_token_and_filler_have_no_loss(five):
    batch = shown(splice(five, 5, **A), 2, 1)
    assert row(batch.loss_mask) == [0, 1, 1, 0, 0]
    assert row(batch.labels) == [-100, -100, 3, 4, -100]


def test_sp_03_the_trailer_has_the_segment_of_the_document(five):
    assert row(shown(splice(five, 5, trailing="doc", **A), 2, 1).segment_ids) == [0, 1, 1, 1, 1]


def test_sp_04_or_it_is_filler_like_any_other(five):
    assert row(shown(splice(five, 5, trailing="filler", **A), 2, 1).segment_ids) == [0, 1, 1, 1, 0]


def test_sp_05_anchor_start_begins_at_the_begin(five):
    made = splice(five, 5, content_start_mode="anchor_start", placement="truncate")
    assert {t for t, _ in pairs(made)} == {0}
    assert [1, 2, N, N, N] not in whole(made).tokens.tolist()
    short = splice(five, 5, content_start_mode="anchor_start", content_length=2)
    assert {t for t, _ in pairs(short)} == {0}
    assert [1, 2, N, N, N] not in whole(short).tokens.tolist()
    slid = splice(five, 5, content_start_mode="slide_within", content_length=2)
    assert [1, 2, N, N, N] in whole(slid).tokens.tolist()


def test_sp_06_truncate_lets_the_end_of_the_frame_cut(five):
    made = splice(five, 5, content_start_mode="anchor_start", placement="truncate")
    assert whole(made).tokens.tolist() == [
        [0, 1, 2, 3, 4],
        [N, 0, 1, 2, 3],
        [N, N, 0, 1, 2],
        [N, N, N, 0, 1],
    ]  # s = 4 would leave one token


def test_sp_07_the_later_start_that_was_asked_for(five):
    batch = shown(splice(five, 5, **{**A, "content_length": 2}), 1, 0)
    assert row(batch.tokens) == [1, 2, N, N, N]
    assert row(batch.loss_mask) == [1, 0, 0, 0, 0]


def test_sp_08_a_later_start_further_right(five):
    batch = shown(splice(five, 5, **A), 2, 1)
    assert row(batch.tokens) == [N, 2, 3, 4, N]
    assert batch.spans.start.tolist() == [2]
    assert batch.spans.at.tolist() == [1]


def test_sp_13_the_quick_unit_test(stores):
    made = splice(stores([1, 2, 3]), 5, content_start_mode="anchor_start", trailing="doc")
    batch = whole(made)
    assert pairs(made) == [(0, 0), (0, 1), (0, 2)]
    assert batch.tokens.tolist() == [[1, 2, 3, N, N], [N, 1, 2, 3, N], [N, N, 1, 2, 3]]
    assert batch.loss_mask.tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]


# -- which examples exist ------------------------------------------------------------------


def test_sp_09_example_a_has_exactly_13_rows(five):
    made = splice(five, 5, **A)
    assert len(made) == 13
    assert list(zip(pairs(made), whole(made).tokens.tolist(), strict=True)) == EXAMPLE_A


def test_sp_09_fit_is_what_is_meant_when_nothing_is_said(five):
    assert pairs(splice(five, 5, placement="fit", **A)) == pairs(splice(five, 5, **A))


def test_sp_10_fewer_tokens_have_more_offsets(five):
    found = pairs(splice(five, 5, **A))
    assert [s for t, s in found if t == 2] == [0, 1, 2]
    assert [s for t, s in found if t == 3] == [0, 1, 2, 3]
    assert [s for t, s in found if t == 4] == []


def test_sp_11_example_b(five):
    made = splice(five, 5, **{**A, "content_length": 2})
    rows = [number for number, (t, _) in enumerate(pairs(made)) if t == 1]
    assert [pairs(made)[number] for number in rows] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert made.batch(rows).tokens.tolist() == [
        [1, 2, N, N, N],
        [N, 1, 2, N, N],
        [N, N, 1, 2, N],
        [N, N, N, 1, 2],
    ]


@pytest.mark.parametrize(
    ("content_length", "fit"), [(2, 16), (3, 13), (4, 11), (5, 10), (None, 10), (7, 10)]
)
def test_sp_12_the_count_formula(five, content_length, fit):
    options = {**A, "content_length": content_length}
    assert len(splice(five, 5, **options)) == fit
    kept = [min(content_length or 5, 5 - t) for t in range(5)]
    assert sum(5 - copy + 1 for copy in kept if copy >= 2) == fit  # as the design sums it
    assert len(splice(five, 5, placement="truncate", **options)) == 16


def test_sp_14_offset_stride(five):
    found = pairs(splice(five, 5, offset_stride=2, **A))
    assert [s for t, s in found if t == 0] == [0, 2]
    assert found == [(t, s) for t in range(4) for s in (0, 2)]
    assert pairs(splice(five, 5, offset_stride=1, **A)) == THIRTEEN


def test_sp_15_content_stride(five):
    found = pairs(splice(five, 5, content_stride=2, **A))
    assert found == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2)]
    assert pairs(splice(five, 5, content_stride=1, **A)) == THIRTEEN


def test_sp_16_no_content_length_is_as_many_as_fit(five):
    batch = shown(splice(five, 5, content_start_mode="slide_within"), 1, 0)
    assert row(batch.tokens) == [1, 2, 3, 4, N]
    assert row(batch.loss_mask) == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("mode", ["slide_within", "anchor_start", "coverage_balanced"])
def test_sp_17_a_splice_of_one_token_is_refused(five, mode):
    with pytest.raises(ValueError, match="content_length: found 1, allowed: 2 or more"):
        splice(five, 5, content_start_mode=mode, content_length=1)
    assert len(splice(five, 5, content_start_mode=mode, content_length=2)) > 0


def test_sp_18_min_copy_len_leaves_out(five):
    found = pairs(splice(five, 5, min_copy_len=3, **A))
    assert found == [(t, s) for t in range(3) for s in range(3)]
    assert len(found) == 9
    assert pairs(splice(five, 5, min_copy_len=2, **A)) == THIRTEEN
    with pytest.raises(ValueError, match="min_copy_len: found 0, allowed: 1 or more"):
        splice(five, 5, min_copy_len=0, **A)


def test_sp_25_a_short_document_stands_anywhere_in_the_frame(stores):
    found = pairs(splice(stores([5, 6, 7]), 8, content_start_mode="slide_within"))
    assert [s for t, s in found if t == 0] == [0, 1, 2, 3, 4, 5]


# -- their order ---------------------------------------------------------------------------


def test_sp_19_a_seed_changes_the_order_and_not_the_set(five):
    def order(seed):
        made = splice(five, 5, **A).shuffle().seed(seed)
        return whole(made).tokens.tolist()

    assert order(1) == order(1)
    assert order(1) != order(2)
    listed = [tokens for _, tokens in EXAMPLE_A]
    assert sorted(order(1)) == sorted(order(2)) == sorted(listed)
    assert listed not in (order(1), order(2))


def offsets_of(found):
    """Starts in their order, and the offsets of each in theirs."""
    grouped = itertools.groupby(found, key=lambda pair: pair[0])
    return [(t, [s for _, s in group]) for t, group in grouped]


def test_sp_20_shuffle_offsets_permutes_the_offsets_of_each_start(five):
    plain = offsets_of(THIRTEEN)
    orders = set()
    for seed in range(4):
        found = offsets_of(pairs(splice(five, 5, shuffle_offsets=True, offset_seed=seed, **A)))
        assert [t for t, _ in found] == [0, 1, 2, 3]
        assert [(t, sorted(offsets)) for t, offsets in found] == plain
        orders.add(str(found))
    assert len(orders) == 4
    assert str(plain) not in orders


def test_sp_20_a_number_shuffles_inside_stretches_of_that_many(stores):
    made = {"content_start_mode": "anchor_start", "content_length": 2, "shuffle_offsets": 4}
    store, seen = stores([5, 6]), set()
    for seed in range(6):
        offsets = [s for _, s in pairs(splice(store, 11, offset_seed=seed, **made))]
        assert sorted(offsets) == list(range(10))
        parts = offsets[:4], offsets[4:8], offsets[8:]
        assert [sorted(part) for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        seen.add(tuple(offsets))
    assert len(seen) > 3


def test_sp_20_every_order_of_six_offsets_is_equally_likely(stores):
    """A chi-square over all 720 orders: 719 is expected, 1,000 is seven deviations above."""
    options = {"content_start_mode": "anchor_start", "content_length": 2, "shuffle_offsets": True}
    made = splice(stores([5, 6]), 7, **options)
    epochs = 36_000
    rows = np.tile(np.arange(6), epochs)
    found = made.run.layout.triples(np.repeat(np.arange(epochs), 6), rows).s.reshape(epochs, 6)
    counts = np.array([*Counter(map(tuple, found.tolist())).values()])
    assert counts.sum() == epochs
    assert ((counts - 50) ** 2 / 50).sum() + 50 * (720 - len(counts)) < 1_000


def test_sp_21_shuffle_content_permutes_the_starts(five):
    plain, orders = dict(offsets_of(THIRTEEN)), set()
    for seed in range(4):
        found = offsets_of(pairs(splice(five, 5, shuffle_content=True, content_seed=seed, **A)))
        assert dict(found) == plain  # offsets ascend in each
        orders.add(tuple(t for t, _ in found))
    assert len(orders) > 1
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_sp_21_a_number_shuffles_starts_inside_stretches(stores):
    options = {"content_start_mode": "slide_within", "content_length": 2, "shuffle_content": 4}
    store, seen = stores(range(11)), set()
    for seed in range(6):
        found = offsets_of(pairs(splice(store, 3, content_seed=seed, **options)))
        starts = [t for t, _ in found]
        parts = starts[:4], starts[4:8], starts[8:]
        assert [sorted(part) for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        seen.add(tuple(starts))
    assert len(seen) > 3


@pytest.mark.parametrize("axis", ["shuffle_offsets", "shuffle_content"])
def test_sp_22_another_order_in_every_epoch_or_the_same(five, axis):
    def orders(**options):
        made = splice(five, 5, **A, **{axis: True}, **options)
        return [pairs(made, epoch) for epoch in range(6)]

    fresh = orders()
    assert all(sorted(order) == THIRTEEN for order in fresh)
    assert len({*map(str, fresh)}) > 3
    assert orders() == fresh
    assert len({*map(str, orders(shuffle_per_epoch=False))}) == 1


@pytest.mark.parametrize("axis", ["shuffle_offsets", "shuffle_content"])
def test_a_shuffle_in_parts_of_one_moves_nothing_and_in_parts_of_none_is_refused(five, axis):
    assert pairs(splice(five, 5, **A, **{axis: 1})) == THIRTEEN
    with pytest.raises(tl.ConfigError, match=f"{axis}: found 0, allowed: .* a length of 1 or more"):
        splice(five, 5, **A, **{axis: 0})


def test_sp_22_what_is_exhausted_begins_again(five):
    made = splice(five, 5, **A).epochs(3)
    listed = [tokens for _, tokens in EXAMPLE_A]
    assert whole(made).tokens.tolist() == 3 * listed
    shuffled = whole(splice(five, 5, **A).epochs(2).shuffle().seed(3)).tokens.tolist()
    assert sorted(shuffled[:13]) == sorted(shuffled[13:]) == sorted(listed)
    assert shuffled[:13] != shuffled[13:]


# -- other ways to place -------------------------------------------------------------------


def test_sp_23_slide_fills_frames(stores):
    made = splice(stores(range(10)), 4, mode="slide", content_stride=3)
    batch = whole(made)
    assert [t for t, _ in pairs(made)] == [0, 3, 6]
    assert batch.tokens.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert batch.loss_mask.tolist() == [[1, 1, 1, 0]] * 3
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1]] * 3
    assert len(splice(stores(range(10)), 4, mode="slide")) == 7  # w = 0 .. L - S


def test_sp_24_the_last_window_if_wanted(stores):
    store = stores(range(10))
    assert [t for t, _ in pairs(splice(store, 4, mode="slide", content_stride=4))] == [0, 4]
    tail = splice(store, 4, mode="slide", content_stride=4, include_tail=True)
    assert [t for t, _ in pairs(tail)] == [0, 4, 6]
    met = splice(store, 4, mode="slide", content_stride=3, include_tail=True)
    assert [t for t, _ in pairs(met)] == [0, 3, 6]  # and not twice


@pytest.mark.parametrize(("roll_loss", "loss"), [(False, [1, 0, 0, 0, 0]), (True, [1, 1, 0, 0, 0])])
def test_sp_26_a_ring_goes_on_with_its_begin(five, roll_loss, loss):
    options = {"content_start_mode": "cyclic_roll", "content_length": 3, "roll_loss": roll_loss}
    made = splice(five, 5, **options)
    batch = shown(made, 3, 0)
    assert row(batch.tokens) == [3, 4, 0, N, N]
    assert row(batch.loss_mask) == loss
    assert row(batch.segment_ids) == [1, 1, 1, 0, 0]
    assert pairs(made) == [(t, s) for t in range(5) for s in range(3)]
    assert row(shown(made, 4, 2).tokens) == [N, N, 4, 0, 1]


def test_sp_27_coverage_balanced_takes_every_start_at_the_right_end(stores):
    made = splice(stores(range(7)), 8, content_length=4)
    assert pairs(made) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert whole(made).tokens.tolist()[3] == [N, N, N, N, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("alpha", "epoch_length", "counts"),
    [
        (1.0, 6, [2, 1, 1, 2]),  # 1/3 1/6 1/6 1/3
        (0.8, 10_000, [3176, 1824, 1824, 3176]),
        (0.0, 4, [1, 1, 1, 1]),
    ],
)
def test_sp_28_starts_near_the_ends_come_more_often(
    stores,
    alpha,
    epoch_length,
    counts,
):
    options = {"content_length": 4, "alpha": alpha, "epoch_length": epoch_length}
    found = Counter(t for t, _ in pairs(splice(stores(range(7)), 8, **options)))
    assert [found[t] for t in range(4)] == counts


def test_sp_28_the_weights_themselves():
    assert (4 / edge_weights(7, 4, 1.0)).tolist() == [1, 2, 2, 1]  # d
    for alpha, share in ((1.0, [1 / 3, 1 / 6]), (0.8, [0.3176, 0.1824])):
        weights = edge_weights(7, 4, alpha)
        assert weights / weights.sum() == pytest.approx([*share, *share[::-1]], abs=5e-5)


def test_sp_29_duplicates_are_drawn_as_they_once_were(stores):
    """p = (w - 1) / (w_max - 1): 1 at the ends, 1/3 at d = 2, K = 4, alpha = 1."""
    store = stores(*[range(7)] * 3000)
    options = {"content_length": 4, "edge_mode": "duplicate", "sampler": "enumerate"}
    assert Counter(triples(splice(store, 8, alpha=0.0, **options))).most_common(1)[0][1] == 1
    found = Counter(triples(splice(store, 8, alpha=1.0, **options)))
    assert set(found.values()) == {1, 2}
    twice = Counter(t for (_, t, _), times in found.items() if times == 2)
    assert (twice[0], twice[3]) == (3000, 3000)
    assert twice[1] / 3000 == pytest.approx(1 / 3, abs=0.04)
    assert twice[2] / 3000 == pytest.approx(1 / 3, abs=0.04)


def test_sp_32_a_small_fixed_grid_for_validation(stores):
    store = stores(range(7))
    made = splice(store, 8, content_length=4, grid=(3, 3))
    fixed = [(t, s) for t in (0, 1, 3) for s in (0, 2, 4)]
    assert pairs(made) == fixed
    assert len(made) == 9
    for seed in (1, 2):  # no seed and no epoch moves it
        other = splice(store, 8, content_length=4, grid=(3, 3), offset_seed=seed, content_seed=seed)
        assert pairs(other.seed(seed).epochs(2), 1) == fixed
    assert row(made.batch([8]).tokens) == [N, N, N, N, 3, 4, 5, 6]
    assert len(made.take(0)) == 0  # or an empty one


# -- filler --------------------------------------------------------------------------------


def test_sp_30_filler_is_padding_or_eos(words):
    store = words("a b c", "b c")
    assert whole(store.splice(5, filler="pad")).tokens.tolist() == [
        [0, 0, 2, 3, 4],
        [0, 0, 0, 3, 4],
    ]
    eos = whole(store.splice(5, filler="eos"))
    assert eos.tokens.tolist() == [[1, 1, 2, 3, 4], [1, 1, 1, 3, 4]]
    assert eos.segment_ids.tolist() == [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    with pytest.raises(ValueError, match="filler: found 'end', allowed: pad, eos"):
        store.splice(5, filler="end")


def test_sp_30_filler_eos_needs_an_eos(five):
    with pytest.raises(ValueError, match="filler: found 'eos', but the store's tokenizer names"):
        five.splice(5, filler="eos")


@pytest.mark.parametrize("how", [{}, {"segments": "eos", "eos_id": 77}])
def test_sp_31_an_eos_before_the_splice_breaks_the_segment(five, how):
    """Instead of explicit segments, or in addition to them: the result is the same."""
    options = {"content_start_mode": "anchor_start", "content_length": 3, "eos_before": 77}
    batch = whole(splice(five, 5, **options, **how))
    assert batch.tokens.tolist() == [[0, 1, 2, N, N], [77, 0, 1, 2, N], [N, 77, 0, 1, 2]]
    assert batch.segment_ids.tolist()[2] == [0, 0, 1, 1, 1]
    assert batch.loss_mask.tolist()[2] == [0, 0, 1, 1, 0]


def test_sp_31_the_eos_is_the_tokenizers_own(words):
    assert row(words("a b c").splice(5, eos_before=True)[0].tokens) == [0, 1, 2, 3, 4]


def test_sp_40_padding_may_be_id_0(words):
    """Id 0 is not treated as missing, and a document may contain the same id."""
    store = words("a b", "c b a")
    assert (store.tokenizer.pad, store.tokenizer.eos) == (0, 1)
    assert whole(store.splice(4)).tokens.tolist() == [[0, 0, 2, 3], [0, 4, 3, 2]]
    without = words("a b", pad=None)
    assert row(without.splice(4)[0].tokens) == [1, 1, 2, 3]  # EOS, if there is no padding


def test_sp_40_a_token_0_of_the_document_is_trained_beside_filler_0(stores):
    made = splice(stores([0, 5, 0, 7]), 6, content_start_mode="anchor_start", pad_id=0)
    batch = shown(made, 0, 1)
    assert row(batch.tokens) == [0, 0, 5, 0, 7, 0]
    assert row(batch.attention_mask) == [0, 1, 1, 1, 1, 0]
    assert row(batch.labels) == [-100, -100, 5, 0, 7, -100]


# -- as a dataset --------------------------------------------------------------------------


def test_sp_33_the_length_is_known_up_front(five):
    made = splice(five, 5, **A)
    assert len(made) == 13
    assert len(made.epochs(2)) == 26
    endless = made.epochs(None)
    assert not endless.is_finite
    with pytest.raises(TypeError, match="endless"):
        len(endless)
    assert row(endless[13 * 10**9 + 7].tokens) == [N, 2, 3, 4, N]
    fresh = tl.open(five.path)
    assert len(splice(fresh, 5, **A)) == 13
    assert fresh.reads.bytes == 0  # computed without reading a token


def test_sp_34_a_batch_of_any_indices_is_built_on_the_fly(five):
    made = splice(five, 5, **A).shuffle().seed(5).epochs(4)
    indices = np.random.Generator(np.random.PCG64(3)).integers(0, 52, 200)
    batch = made.batch(indices)
    assert len(set(indices.tolist())) < 200  # some come twice
    names = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids", "attention_mask")
    for place, index in enumerate(indices.tolist()):
        alone = made[index]
        for name in names:
            assert getattr(batch, name)[place].tolist() == row(getattr(alone, name))
    assert batch.index.tolist() == indices.tolist()
    for wrong in (-1, 52):
        with pytest.raises(IndexError):
            made.batch([wrong])


def test_sp_35_batches_do_not_share_memory(five):
    made = splice(five, 5, **A)
    first, second = made.batch([0, 1]), made.batch([0, 1])
    for name in ("tokens", "loss_mask", "segment_ids", "position_ids"):
        getattr(second, name)  # made before the other one is changed
        getattr(first, name)[0] = 1 - getattr(first, name)[0]
        third = made.batch([0, 1])
        assert np.array_equal(getattr(second, name), getattr(third, name)), name
        assert not np.array_equal(getattr(first, name), getattr(third, name)), name


def test_sp_36_every_fourth_pair_to_each_of_four_ranks(five):
    made, shares = splice(five, 5, **A), []
    for rank in range(4):
        with tl.Loader(made, 4, rank, 4, end="pad") as loader:
            indices = np.concatenate([batch.index for batch in loader])
        shares.append(indices[indices >= 0].tolist())  # -1 fills up the last step
    assert shares == [[0, 4, 8, 12], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert all(index % 4 == rank for rank, share in enumerate(shares) for index in share)


def test_sp_37_an_example_is_int32_tokens_a_binary_mask_and_segments(five):
    batch = whole(splice(five, 5, trailing="doc", **A))
    assert batch.tokens.dtype == np.int32
    assert batch.tokens.shape == (13, 5)
    assert set(np.unique(batch.loss_mask.astype(np.int32)).tolist()) == {0, 1}
    mask, ids = attention.dense_mask(batch.segment_ids), batch.segment_ids
    for b, i, j in np.ndindex(mask.shape):
        assert mask[b, i, j] == (j <= i and ids[b, i] == ids[b, j])


def test_sp_37_no_document_looks_at_filler_of_any_kind(five):
    batch = whole(splice(five, 5, **A))
    mask, real = attention.dense_mask(batch.segment_ids), batch.attention_mask
    for b, i, j in zip(*np.nonzero(mask), strict=True):
        assert real[b, i] == real[b, j]
    for b, i, j in np.ndindex(mask.shape):
        if real[b, i]:
            assert mask[b, i, j] == (j <= i and real[b, j])


def test_sp_38_one_line_tells_what_is_spliced(five, caplog):
    with caplog.at_level(logging.INFO, "tokenloom"):
        splice(five, 5, **A)
    (line,) = [text for text in caplog.messages if text.startswith("[splice]")]
    for word in (f"dataset={five.path}", "doc_index=0", "doc_len=5", "seq_len=5"):
        assert word in line
    for word in ("content_stride=1", "offset_stride=1", "offsets=4", "examples=13"):
        assert word in line


def test_sp_38_nothing_is_said_unless_it_is_wanted(five, caplog):
    with caplog.at_level(logging.WARNING, "tokenloom"):
        splice(five, 5, **A)
    assert not caplog.messages


def outside_documents(batch, loss_mask):
    """Cells with a loss that do not predict the next token of the same document."""
    inside = np.zeros(loss_mask.shape, np.bool_)
    spans = batch.spans
    for at, length, number in zip(spans.at, spans.length, spans.row, strict=True):
        inside[number, at : at + length - 1] = True
    return np.argwhere(loss_mask & ~inside).tolist()


def test_sp_39_the_loss_is_on_positions_of_the_document_only(five):
    batch = whole(splice(five, 5, **A))
    assert outside_documents(batch, batch.loss_mask) == []
    assert tl.check_batch(batch).ok
    arrays = {name: getattr(batch, name) for name in ("tokens", "segment_ids", "loss_mask")}
    assert tl.check_batch(arrays).ok
    for cell in ([7, 0], [7, 3], [0, 3]):  # before, at the last token of, and after a document
        tampered = batch.loss_mask.copy()
        tampered[tuple(cell)] = True
        assert outside_documents(batch, tampered) == [cell]
        report = tl.check_batch({**arrays, "loss_mask": tampered})
        assert report.totals == {"filler": 1}
        assert [report.problems[0].row, report.problems[0].cell] == cell


@pytest.mark.parametrize(
    "options", [{"trailing": "doc"}, {"attend_prefix": True}, {"position_offset": 10}], ids=str
)
def test_sp_39_a_batch_as_it_was_asked_for_breaks_no_law(five, options):
    tl.check_batch(whole(splice(five, 5, **A, **options))).raise_if_wrong()


def test_sp_39_nor_does_a_ring(five):
    options = {"content_start_mode": "cyclic_roll", "content_length": 3}
    tl.check_batch(whole(splice(five, 5, **options))).raise_if_wrong()


# -- curricula and positions ---------------------------------------------------------------


def test_sp_41_content_length_may_grow_on_the_way(five):
    options = {"content_start_mode": "slide_within", "content_length": {0: 2, 100: 4}}
    made = splice(five, 5, schedule_batch_size=8, **options).epochs(None)
    assert made.describe()["layout"]["content_schedule"] == [[0, 2], [800, 4]]  # in examples
    lengths = {}
    with tl.Loader(made, 8) as loader:
        for step in (0, 50, 99, 100, 150):
            lengths[step] = set(next(loader.seek(step)).spans.length.tolist())
    assert [max(lengths[step]) for step in (0, 50, 99)] == [2, 2, 2]
    assert max(lengths[100]) == 4
    assert lengths[150] <= {2, 3, 4}
    assert made.batch([799, 800]).tokens.tolist() == [[N, N, N, 3, 4], [0, 1, 2, 3, N]]


def test_sp_41_without_a_batch_size_it_counts_examples(five):
    options = {"content_start_mode": "slide_within", "content_length": {0: 2, 20: 4}}
    made = splice(five, 5, **options)
    assert len(made) == 20 + 11  # one epoch of the last kind
    assert made.batch([19, 20]).spans.length.tolist() == [2, 4]
    assert_resumable(made.epochs(2), batch_size=6, steps=9)


def test_sp_42_positions_are_absolute_and_are_not_reset(five):
    batch = whole(splice(five, 5, **A))
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 13
    moved = whole(splice(five, 5, position_offset=100, **A))
    assert moved.position_ids.tolist() == [[100, 101, 102, 103, 104]] * 13
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unsaid = five.splice(5, pad_id=N, **A)
        reset = five.splice(5, pad_id=N, position_scheme="reset", **A)
    assert whole(unsaid).position_ids.tolist() == [[0, 1, 2, 3, 4]] * 13
    assert row(shown(reset, 2, 1).position_ids) == [0, 0, 1, 2, 0]


def test_sp_42_attend_prefix_shows_the_filler_before_a_splice(five):
    batch = shown(splice(five, 5, attend_prefix=True, **A), 2, 1)
    assert row(batch.segment_ids) == [1, 1, 1, 1, 0]
    assert row(batch.attention_mask) == [1, 1, 1, 1, 0]
    assert row(batch.loss_mask) == [0, 1, 1, 0, 0]  # it is seen and not trained
    assert attention.dense_mask(batch.segment_ids)[0, 2].tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    hidden = shown(splice(five, 5, **A), 2, 1)
    assert attention.dense_mask(hidden.segment_ids)[0, 2].tolist()[0] is False


# -- where the design contradicts itself ---------------------------------------------------


def test_c_01_offsets_fit_or_are_cut_by_name(five):
    """[0, S - L], [0, S - K], or any that leaves two tokens: K = 3 has 13 or 16 pairs."""
    assert len(splice(five, 5, placement="fit", **A)) == 13
    assert len(splice(five, 5, placement="truncate", **A)) == 16
    options = {"content_start_mode": "anchor_start"}
    assert pairs(splice(five, 5, placement="fit", **options)) == [(0, 0)]  # [0, S - L]
    assert pairs(splice(five, 5, placement="truncate", **options)) == [(0, s) for s in range(4)]


def test_c_02_the_list_of_six_pairs_is_an_illustration(five):
    six = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)}
    found = pairs(splice(five, 5, **A))
    assert six == {(t, s) for t, s in found if t + s <= 2}
    assert len(found) == 13
    full = pairs(splice(five, 5, min_copy_len=3, **A))
    assert len(full) == 9
    assert {(1, 2), (2, 1), (2, 2)} == {*full} - six


def test_c_03_that_list_does_not_hold_the_slice_it_names(five):
    assert row(shown(splice(five, 5, **A), 1, 0).tokens) == [1, 2, 3, N, N]
    short = splice(five, 5, **{**A, "content_length": 2})
    assert row(shown(short, 1, 0).tokens) == [1, 2, N, N, N]


def test_c_04_no_content_length_is_what_is_left_then_what_fits(stores, five):
    swept = {"content_start_mode": "slide_within"}
    assert row(shown(splice(five, 5, **swept), 1, 0).tokens) == [1, 2, 3, 4, N]
    cut = splice(five, 5, placement="truncate", **swept)
    assert row(shown(cut, 1, 2).tokens) == [N, N, 1, 2, 3]
    balanced = splice(stores(range(7), range(10, 13)), 5, sampler="enumerate")
    assert triples(balanced) == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 2)]  # K = min(S, L)
    assert whole(balanced).tokens.tolist()[-1] == [N, N, 10, 11, 12]


def test_c_05_pruning_is_a_parameter_and_less_than_two_tokens_warn(five):
    assert len(splice(five, 5, **A)) == 13  # min_copy_len defaults to 2
    with pytest.warns(UserWarning, match="min_copy_len: found 1; a splice of one token trains"):
        made = splice(five, 5, min_copy_len=1, **A)
    assert len(made) == 18
    assert not made.batch([0, 17]).loss_mask[1].any()


def test_c_06_a_trailer_is_filler_unless_the_documents_segment_is_wanted(five):
    """Ruling 33: filler is the default here; the arrays of the design are `trailing="doc"`."""
    usual, doc = whole(splice(five, 5, **A)), whole(splice(five, 5, trailing="doc", **A))
    filler = whole(splice(five, 5, trailing="filler", **A))
    assert usual.segment_ids.tolist() == filler.segment_ids.tolist()
    assert filler.segment_ids.tolist()[7] == [0, 1, 1, 1, 0]
    assert doc.segment_ids.tolist()[7] == [0, 1, 1, 1, 1]
    for name in ("tokens", "labels", "loss_mask", "attention_mask"):
        assert np.array_equal(getattr(doc, name), getattr(filler, name)), name
    assert doc.attention_mask.tolist()[7] == [0, 1, 1, 1, 0]  # padding for the collator


def test_c_20_epochs_say_whether_it_ends_and_not_the_shuffle(five):
    made = splice(five, 5, shuffle_content=True, shuffle_per_epoch=True, **A)
    assert len(made) == 13
    assert len(made.epochs(3)) == 39
    assert not made.epochs(None).is_finite
    assert len(splice(five, 5, **A).shuffle().epochs(3)) == 39


def test_c_22_starts_run_to_the_end_or_to_the_last_whole_splice(five):
    assert {t for t, _ in pairs(splice(five, 5, **A))} == {0, 1, 2, 3}
    with pytest.warns(UserWarning, match="min_copy_len"):
        last = splice(five, 5, min_copy_len=1, **A)
    assert {t for t, _ in pairs(last)} == {0, 1, 2, 3, 4}  # L - 1
    balanced = splice(five, 5, content_length=3, content_start_mode="coverage_balanced")
    assert {t for t, _ in pairs(balanced)} == {0, 1, 2}  # L - K


def test_c_23_offsets_are_nothing_new_to_a_relative_model_and_it_is_told_so(five):
    arithmetic = r"13 frames on 4 starts.*9 frames \(69%\) teach it nothing new"
    with pytest.warns(UserWarning, match=arithmetic):
        five.splice(5, pad_id=N, **A)
    with pytest.warns(UserWarning, match=arithmetic):
        five.splice(5, pad_id=N, position_scheme="relative", **A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        five.splice(5, position_scheme="absolute", **A)
        five.splice(5, attend_prefix=True, **A)
        five.splice(5, content_length=3)  # one offset for each start
        five.splice(5, content_length=3, position_scheme="relative")


def test_c_23_what_a_document_sees_does_not_depend_on_its_offset(five):
    """So only positions distinguish offsets, or the filler, if it is visible."""
    made = splice(five, 5, **A)
    rows = [shown(made, 1, s) for s in range(3)]
    seen = [attention.dense_mask(batch.segment_ids)[0, s : s + 3] for s, batch in enumerate(rows)]
    for s, mask in enumerate(seen):
        assert mask.sum() == 6  # of the document alone, causally
        assert np.array_equal(mask[:, s : s + 3], np.tri(3, dtype=bool))
    lit = [shown(splice(five, 5, attend_prefix=True, **A), 1, s) for s in range(3)]
    counts = [
        int(attention.dense_mask(batch.segment_ids)[0, s : s + 3].sum())
        for s, batch in enumerate(lit)
    ]
    assert counts == [6, 9, 12]


def test_c_25_a_length_is_of_an_epoch_or_of_all_that_were_asked_for(five):
    """Not offsets x epochs: pairs, of which there are 13, x epochs."""
    made = splice(five, 5, **A)
    assert [len(made), len(made.epochs(1)), len(made.epochs(4))] == [13, 13, 52]


def test_c_26_the_loss_mask_is_bool_and_the_designs_int32_is_a_cast(five):
    batch = shown(splice(five, 5, **A), 2, 1)
    assert batch.loss_mask.dtype == np.bool_
    assert batch.loss_mask.astype(np.int32).tolist() == [[0, 1, 1, 0, 0]]
    assert batch.loss_weights.dtype == np.float32
    assert batch.loss_weights.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0]]


# -- what rulings add ----------------------------------------------------------------------


def test_ruling_34_clipped_windows_train_every_token_equally_often(five):
    made = splice(five, 8, content_length=3, edge="clip")
    assert [t for t, _ in pairs(made)] == [-1, 0, 1, 2, 3]  # 2 - K .. L - 2, L + K - 3 rows
    targets = Counter(whole(made).labels[whole(made).labels >= 0].tolist())
    assert targets == {1: 2, 2: 2, 3: 2, 4: 2}  # K - 1 times, and token 0 never
    begun = splice(five, 8, content_length=3, edge="clip", bos=77)
    targets = Counter(whole(begun).labels[whole(begun).labels >= 0].tolist())
    assert targets == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}
    with pytest.warns(UserWarning, match="content_stride: found 3 .* 2 makes it the same"):
        splice(five, 8, content_length=3, edge="clip", content_stride=3)


@pytest.mark.parametrize("fill", ["one", "pack"])
def test_ruling_34_a_short_document_keeps_the_windows_that_were_asked_for(stores, fill):
    documents = stores(range(10, 13), range(20, 30))
    options = {"content_length": 6, "edge": "clip", "sampler": "enumerate", "fill": fill}
    made = splice(documents, 8, **options)
    starts = [t for document, t, _ in triples(made) if document == 0]
    assert sorted(starts) == list(range(2 - 6, 3 - 2 + 1))  # L + K - 3 = 6 of them
    targets = Counter(whole(made).labels[whole(made).labels >= 0].tolist())
    assert targets == dict.fromkeys((11, 12, *range(21, 30)), 6 - 1)
    if fill == "one":
        assert len(made) == (3 + 6 - 3) + (10 + 6 - 3)
    else:  # K slots of 3 cells, two to a frame, and L slots of 6 cells
        assert len(made) == 6 // 2 + 10
        assert whole(made).tokens.tolist()[-3:] == [
            [10, 11, 10, 11, 12, N, N, N],
            [10, 11, 12, 10, 11, 12, N, N],
            [10, 11, 12, 11, 12, N, N, N],
        ]


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(2, 14),
    st.sampled_from(("one", "pack")),
    st.booleans(),
    st.data(),
)
@settings(max_examples=120)
def test_ruling_34_every_token_is_a_target_k_minus_1_times(lengths, content, fill, bos, data):
    divisors = [d for d in range(1, content) if (content - 1) % d == 0]
    stride = data.draw(st.sampled_from(divisors))
    assume(max(lengths) + bos >= 2)
    documents = [list(range(100 * n, 100 * n + length)) for n, length in enumerate(lengths)]
    with ToyStore([documents]) as toy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = splice(
            toy.store,
            16,
            content_length=content,
            content_stride=stride,
            edge="clip",
            fill=fill,
            bos=999 if bos else False,
        )
        labels = whole(made).labels
        targets = Counter(labels[labels >= 0].tolist())
        long = [one for one in documents if one and len(one) + bos >= 2]
        expected = {token for one in long for token in (one if bos else one[1:])}
        assert targets == dict.fromkeys(expected, (content - 1) // stride)


def test_ruling_34_documents_much_shorter_than_k_are_told_with_their_rows(stores):
    documents = stores(range(10, 13), range(20, 36), range(40, 42))
    options = {"content_length": 16, "edge": "clip"}
    with pytest.warns(UserWarning, match="2 documents shorter than a quarter") as told:
        splice(documents, 16, **options)
    assert f"take {(3 + 13) + (2 + 13)} of {(3 + 13) + (2 + 13) + (16 + 13)} rows" in str(
        told[0].message
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        splice(documents, 16, fill="pack", **options)
        splice(documents, 16, adaptive_k=False, **options)
        splice(stores(range(10, 14)), 16, **options)  # L = K / 4


def test_c_04_without_a_content_length_no_document_is_too_short(stores):
    """K is min(S, L), so `adaptive_k=False` has nothing to leave out, except with "slide"."""
    documents = stores(range(7), range(10, 13), range(20, 32))
    expected = [(0, 0, 1), (1, 0, 5), *[(2, t, 0) for t in range(5)]]
    for adaptive in (True, False):
        made = splice(documents, 8, adaptive_k=adaptive, sampler="enumerate")
        assert triples(made) == expected
        slid = splice(documents, 8, adaptive_k=adaptive, mode="slide")
        assert {document for document, _, _ in triples(slid)} == ({0, 1, 2} if adaptive else {2})
    assert {d for d, _, _ in triples(splice(documents, 8, adaptive_k=False, content_length=8))} == {
        2
    }


@pytest.mark.parametrize("alpha", [1e9, 1e300])
def test_an_alpha_beyond_every_number_is_refused_in_words(stores, alpha):
    with pytest.raises(
        tl.ConfigError, match=r"alpha: found .* is beyond every number\. Allowed: sm"
    ):
        stores(range(9)).splice(6, content_length=4, alpha=alpha)
