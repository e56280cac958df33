"""Splices of one document, at the values that the published design works out by hand.

Its document is 0 1 2 3 4 and its frame has 5 cells; N is filler.
"""

import itertools
import json
import logging
import warnings
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from splicing import N, pairs, row, shown, splice, triples, whole

import tokenloom as tl
from tokenloom.batch import attention
from tokenloom.integrations import levanter
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
def five(shared_store_of):
    return shared_store_of(DOC)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Builds stores of words; the tokenizer's padding is id 0, its EOS id 1, and a b c 2 3 4."""
    folder = tmp_path_factory.mktemp("words")
    vocabulary = {"<pad>": 0, "</s>": 1, "a": 2, "b": 3, "c": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "a"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<pad>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    numbers = itertools.count()

    def build(*texts, **options):
        options = {"eos": "</s>", "pad": "<pad>", "add_eos": False, "progress": False} | options
        records = [{"text": text} for text in texts]
        out = folder / f"store-{next(numbers)}"
        return tl.build(records, out, tokenizer=folder / "tokenizer.json", **options)

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
    made = splice(five, 5, **options).render(trailing="doc")
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


def test_sp_03_trailing_doc_gives_the_trailer_the_segment_of_the_document(five):
    made = splice(five, 5, **A).render(trailing="doc")
    assert row(shown(made, 2, 1).segment_ids) == [0, 1, 1, 1, 1]


def test_sp_04_trailing_filler_gives_it_segment_0(five):
    made = splice(five, 5, **A).render(trailing="filler")
    assert row(shown(made, 2, 1).segment_ids) == [0, 1, 1, 1, 0]


def test_sp_05_anchor_start_always_starts_at_token_0(five):
    for options in ({"placement": "truncate"}, {"content_length": 2}):
        made = splice(five, 5, content_start_mode="anchor_start", **options)
        assert {t for t, _ in pairs(made)} == {0}
        assert [1, 2, N, N, N] not in whole(made).tokens.tolist()
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


def test_sp_07_a_slice_from_inside_the_document(five):
    batch = shown(splice(five, 5, **{**A, "content_length": 2}), 1, 0)
    assert row(batch.tokens) == [1, 2, N, N, N]
    assert row(batch.loss_mask) == [1, 0, 0, 0, 0]


def test_sp_08_a_slice_from_inside_the_document_further_right(five):
    batch = shown(splice(five, 5, **A), 2, 1)
    assert row(batch.tokens) == [N, 2, 3, 4, N]
    assert batch.spans.start.tolist() == [2]
    assert batch.spans.at.tolist() == [1]


def test_sp_13_the_designs_quick_unit_test(shared_store_of):
    made = splice(shared_store_of([1, 2, 3]), 5, content_start_mode="anchor_start")
    batch = whole(made.render(trailing="doc"))
    assert pairs(made) == [(0, 0), (0, 1), (0, 2)]
    assert batch.tokens.tolist() == [[1, 2, 3, N, N], [N, 1, 2, 3, N], [N, N, 1, 2, 3]]
    assert batch.loss_mask.tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]


# -- which examples exist ------------------------------------------------------------------


def test_sp_09_example_a_has_exactly_13_rows(five):
    for options in ({}, {"placement": "fit"}):
        made = splice(five, 5, **A, **options)
        assert len(made) == 13
        assert list(zip(pairs(made), whole(made).tokens.tolist(), strict=True)) == EXAMPLE_A


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
    copies = [min(content_length or 5, 5 - t) for t in range(5)]
    assert sum(5 - copy + 1 for copy in copies if copy >= 2) == fit  # as the design sums it
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


def test_sp_16_without_a_content_length_as_many_tokens_as_fit(five):
    batch = shown(splice(five, 5, content_start_mode="slide_within"), 1, 0)
    assert row(batch.tokens) == [1, 2, 3, 4, N]
    assert row(batch.loss_mask) == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("mode", ["slide_within", "anchor_start", "coverage_balanced"])
def test_sp_17_a_splice_of_one_token_is_refused(five, mode):
    with pytest.raises(ValueError, match=r"content_length\b.*\b1\b"):
        splice(five, 5, content_start_mode=mode, content_length=1)
    assert len(splice(five, 5, content_start_mode=mode, content_length=2)) > 0


def test_sp_18_min_copy_len_prunes(five):
    found = pairs(splice(five, 5, min_copy_len=3, **A))
    assert found == [(t, s) for t in range(3) for s in range(3)]
    assert len(found) == 9
    assert pairs(splice(five, 5, min_copy_len=2, **A)) == THIRTEEN
    assert pairs(splice(five, 5, **A)) == THIRTEEN
    with pytest.raises(ValueError, match=r"min_copy_len\b.*\b0\b"):
        splice(five, 5, min_copy_len=0, **A)


def test_sp_25_a_short_document_stands_anywhere_in_the_frame(shared_store_of):
    found = pairs(splice(shared_store_of([5, 6, 7]), 8, content_start_mode="slide_within"))
    assert [s for t, s in found if t == 0] == [0, 1, 2, 3, 4, 5]


# -- their order ---------------------------------------------------------------------------


def test_sp_19_a_seed_changes_the_order_and_not_the_set(five):
    def order(seed):
        return whole(splice(five, 5, **A).shuffle().seed(seed)).tokens.tolist()

    listed = [tokens for _, tokens in EXAMPLE_A]
    assert whole(splice(five, 5, **A)).tokens.tolist() == listed
    assert order(1) == order(1)
    assert order(1) != order(2)
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


def test_sp_20_a_number_shuffles_offsets_inside_blocks_of_that_many(shared_store_of):
    options = {"content_start_mode": "anchor_start", "content_length": 2, "shuffle_offsets": 4}
    store, seen = shared_store_of([5, 6]), set()
    for seed in range(6):
        offsets = [s for _, s in pairs(splice(store, 11, offset_seed=seed, **options))]
        blocks = offsets[:4], offsets[4:8], offsets[8:]
        assert [sorted(block) for block in blocks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        seen.add(tuple(offsets))
    assert len(seen) > 3


def test_sp_20_every_order_of_four_offsets_is_equally_likely(shared_store_of):
    """A chi-square over all 24 orders: 23 is expected, 60 is five deviations above."""
    options = {"content_start_mode": "anchor_start", "content_length": 2, "shuffle_offsets": True}
    made = splice(shared_store_of([5, 6]), 5, **options)
    assert len(made) == 4
    epochs = 24 * 100
    offsets = made.epochs(None).spans(np.arange(4 * epochs)).at.reshape(epochs, 4)
    counts = Counter(map(tuple, offsets.tolist()))
    assert {*counts} == {*itertools.permutations(range(4))}
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 60


def test_sp_21_shuffle_content_permutes_the_starts(five):
    plain, orders = dict(offsets_of(THIRTEEN)), set()
    for seed in range(4):
        found = offsets_of(pairs(splice(five, 5, shuffle_content=True, content_seed=seed, **A)))
        assert dict(found) == plain  # offsets ascend in each
        orders.add(tuple(t for t, _ in found))
    assert len(orders) > 1
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_sp_21_a_number_shuffles_starts_inside_blocks_of_that_many(shared_store_of):
    options = {"content_start_mode": "slide_within", "content_length": 2, "shuffle_content": 4}
    store, seen = shared_store_of(range(11)), set()
    for seed in range(6):
        found = offsets_of(pairs(splice(store, 3, content_seed=seed, **options)))
        starts = [t for t, _ in found]
        blocks = starts[:4], starts[4:8], starts[8:]
        assert [sorted(block) for block in blocks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        seen.add(tuple(starts))
    assert len(seen) > 3


@pytest.mark.parametrize("axis", ["shuffle_offsets", "shuffle_content"])
def test_sp_20_sp_21_blocks_of_one_move_nothing_and_blocks_of_none_are_refused(five, axis):
    assert pairs(splice(five, 5, **A, **{axis: 1})) == THIRTEEN
    with pytest.raises(tl.ConfigError, match=rf"{axis}\b.*\b0\b"):
        splice(five, 5, **A, **{axis: 0})


@pytest.mark.parametrize("axis", ["shuffle_offsets", "shuffle_content"])
def test_sp_22_an_axis_has_another_order_in_every_epoch_or_the_same(five, axis):
    def orders(**options):
        made = splice(five, 5, offset_seed=1, content_seed=1, **A, **{axis: True}, **options)
        return [pairs(made, epoch) for epoch in range(6)]

    fresh = orders()
    assert all(sorted(order) == THIRTEEN for order in fresh)
    assert fresh[0] != fresh[1]
    assert len({*map(str, fresh)}) > 3
    assert orders() == fresh
    assert len({*map(str, orders(shuffle_per_epoch=False))}) == 1


def test_sp_22_what_is_exhausted_repeats(five):
    made = splice(five, 5, **A).epochs(3)
    listed = [tokens for _, tokens in EXAMPLE_A]
    assert whole(made).tokens.tolist() == 3 * listed
    shuffled = whole(splice(five, 5, **A).epochs(2).shuffle().seed(3)).tokens.tolist()
    assert sorted(shuffled[:13]) == sorted(shuffled[13:]) == sorted(listed)
    assert shuffled[:13] != shuffled[13:]


# -- other ways to place -------------------------------------------------------------------


def test_sp_23_slide_fills_frames(shared_store_of):
    store = shared_store_of(range(10))
    made = splice(store, 4, mode="slide", content_stride=3)
    batch = whole(made)
    assert [t for t, _ in pairs(made)] == [0, 3, 6]
    assert batch.tokens.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert batch.loss_mask.tolist() == [[1, 1, 1, 0]] * 3
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1]] * 3
    assert len(splice(store, 4, mode="slide")) == 7  # w = 0 .. L - S


def test_sp_24_include_tail_adds_the_last_window(shared_store_of):
    store = shared_store_of(range(10))
    assert [t for t, _ in pairs(splice(store, 4, mode="slide", content_stride=4))] == [0, 4]
    tail = splice(store, 4, mode="slide", content_stride=4, include_tail=True)
    assert [t for t, _ in pairs(tail)] == [0, 4, 6]
    exact = splice(store, 4, mode="slide", content_stride=3, include_tail=True)
    assert [t for t, _ in pairs(exact)] == [0, 3, 6]  # and not twice


@pytest.mark.parametrize(("roll_loss", "loss"), [(False, [1, 0, 0, 0, 0]), (True, [1, 1, 0, 0, 0])])
def test_sp_26_a_circular_document_continues_with_its_start(five, roll_loss, loss):
    options = {"content_start_mode": "cyclic_roll", "content_length": 3, "roll_loss": roll_loss}
    made = splice(five, 5, **options)
    batch = shown(made, 3, 0)
    assert row(batch.tokens) == [3, 4, 0, N, N]
    assert row(batch.loss_mask) == loss
    assert row(batch.segment_ids) == [1, 1, 1, 0, 0]
    assert pairs(made) == [(t, s) for t in range(5) for s in range(3)]
    assert row(shown(made, 4, 2).tokens) == [N, N, 4, 0, 1]


def test_sp_27_coverage_balanced_takes_every_start_at_the_right_end(shared_store_of):
    made = splice(shared_store_of(range(7)), 8, content_length=4)
    assert pairs(made) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert whole(made).tokens.tolist()[3] == [N, N, N, N, 3, 4, 5, 6]
    named = splice(
        shared_store_of(range(7)), 8, content_length=4, content_start_mode="coverage_balanced"
    )
    assert named.fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("alpha", "epoch_length", "counts"),
    [
        (1.0, 6, [2, 1, 1, 2]),  # 1/3 1/6 1/6 1/3
        (0.8, 10_000, [3176, 1824, 1824, 3176]),  # .3176 .1824 .1824 .3176
        (0.0, 4, [1, 1, 1, 1]),
    ],
)
def test_sp_28_starts_near_the_ends_come_more_often(shared_store_of, alpha, epoch_length, counts):
    """L = 7 and K = 4: d is 1 2 2 1, and the weight of a start is (4 / d)^alpha."""
    options = {"content_length": 4, "alpha": alpha, "epoch_length": epoch_length}
    found = Counter(t for t, _ in pairs(splice(shared_store_of(range(7)), 8, **options)))
    assert [found[t] for t in range(4)] == counts


@pytest.mark.parametrize("alpha", [1e9, 1e300])
def test_sp_28_an_alpha_with_weights_beyond_every_number_is_refused(shared_store_of, alpha):
    with pytest.raises(tl.ConfigError, match="alpha") as caught:
        splice(shared_store_of(range(7)), 8, content_length=4, alpha=alpha)
    assert f"{alpha:g}" in str(caught.value)


def test_sp_29_edge_starts_are_duplicated_at_random_as_they_once_were(shared_store_of):
    """p = (w - 1) / (w_max - 1): 1 at the ends, 1/3 at d = 2, for K = 4 and alpha = 1."""
    documents = 1000
    store = shared_store_of(*[range(7)] * documents)
    options = {"content_length": 4, "edge_mode": "duplicate", "sampler": "enumerate"}
    assert {*Counter(triples(splice(store, 8, alpha=0.0, **options))).values()} == {1}
    found = Counter(triples(splice(store, 8, alpha=1.0, **options)))
    assert {*found.values()} == {1, 2}
    twice = Counter(t for (_, t, _), times in found.items() if times == 2)
    assert (twice[0], twice[3]) == (documents, documents)
    for t in (1, 2):
        assert twice[t] / documents == pytest.approx(1 / 3, abs=0.07)


def test_sp_32_a_small_fixed_grid_for_validation(shared_store_of):
    store = shared_store_of(range(7))
    made = splice(store, 8, content_length=4, grid=(3, 3))
    fixed = [(t, s) for t in (0, 1, 3) for s in (0, 2, 4)]
    assert pairs(made) == fixed
    assert len(made) == 9
    for seed in (1, 2):  # no seed and no epoch moves it
        other = splice(store, 8, content_length=4, grid=(3, 3), offset_seed=seed, content_seed=seed)
        assert pairs(other.seed(seed), 1) == fixed
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
    with pytest.raises(ValueError, match=r"filler\b.*'end'"):
        store.splice(5, filler="end")


def test_sp_30_filler_eos_needs_an_eos(five):
    with pytest.raises(ValueError, match=r"filler\b.*'eos'"):
        five.splice(5, filler="eos")


@pytest.mark.parametrize("how", [{}, {"segments": "eos", "eos_id": 77}])
def test_sp_31_an_eos_before_the_splice_breaks_the_segment(five, how):
    """Whether segments are those of the plan or are taken from the EOS: they are the same."""
    options = {"content_start_mode": "anchor_start", "content_length": 3, "eos_before": 77}
    batch = whole(splice(five, 5, **options).render(**how))
    assert batch.tokens.tolist() == [[0, 1, 2, N, N], [77, 0, 1, 2, N], [N, 77, 0, 1, 2]]
    assert batch.segment_ids.tolist()[2] == [0, 0, 1, 1, 1]
    assert batch.loss_mask.tolist()[2] == [0, 0, 1, 1, 0]


def test_sp_31_the_eos_is_the_tokenizers_own(words):
    assert row(words("a b c").splice(5, eos_before=True)[0].tokens) == [0, 1, 2, 3, 4]


def test_sp_40_padding_may_be_id_0(words):
    """Id 0 is not treated as missing; EOS is the filler only where there is no padding."""
    store = words("a b", "c b a")
    assert (store.tokenizer.pad, store.tokenizer.eos) == (0, 1)
    assert whole(store.splice(4)).tokens.tolist() == [[0, 0, 2, 3], [0, 4, 3, 2]]
    without = words("a b", pad=None)
    assert row(without.splice(4)[0].tokens) == [1, 1, 2, 3]


def test_sp_40_a_token_0_of_the_document_is_trained_beside_filler_0(shared_store_of):
    made = splice(shared_store_of([0, 5, 0, 7]), 6, content_start_mode="anchor_start")
    batch = shown(made.render(pad_id=0), 0, 1)
    assert row(batch.tokens) == [0, 0, 5, 0, 7, 0]
    assert row(batch.attention_mask) == [0, 1, 1, 1, 1, 0]
    assert row(batch.labels) == [-100, -100, 5, 0, 7, -100]


def test_sp_40_a_pad_token_of_0_is_valid_in_the_published_configuration(tmp_path):
    """The store's tokenizer has an EOS and no PAD; the published code takes EOS for a pad of 0."""
    tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes", eos=10, add_eos=False)
    store = {"base": tmp_path / "s", "seq_len": 5}
    assert levanter.SpliceSingleDocumentLMConfig(**store)[0].tokens.tolist() == [
        [10, 10, 97, 98, 99]
    ]
    data = {"type": "splice_single_document", "base": str(tmp_path / "s"), "pad_token_id": 0}
    made = levanter.splice_from_config({"data": data}, seq_len=5)
    assert made[0].tokens.tolist() == [[0, 0, 97, 98, 99]]
    for settings, filler in (
        ({"eos_token_id": 7}, [7, 7]),
        ({"eos_token_id": 7, "pad_token_id": 0}, [0, 0]),
        ({"filler": "eos"}, [10, 10]),
        ({"filler": "eos", "pad_token_id": 0}, [10, 10]),
        ({"filler": "eos", "eos_token_id": 7, "pad_token_id": 0}, [7, 7]),
        ({"eos_before": True, "pad_token_id": 0}, [0, 10]),
        ({"eos_before": True, "eos_token_id": 7, "pad_token_id": 0}, [0, 7]),
    ):
        made = levanter.SpliceSingleDocumentLMConfig(**store, **settings)
        assert made[0].tokens[0, :2].tolist() == filler, settings


# -- as a dataset --------------------------------------------------------------------------


def test_sp_33_the_length_is_known_up_front(five):
    made = splice(five, 5, **A)
    assert len(made) == 13
    assert len(made.epochs(2)) == 26
    endless = made.epochs(None)
    assert not endless.is_finite
    with pytest.raises(TypeError):
        len(endless)
    assert row(endless[13 * 10**9 + 7].tokens) == [N, 2, 3, 4, N]


def test_sp_33_the_length_is_computed_without_reading_a_token(five):
    assert len(splice(five, 5, **A)) == 13
    assert five.reads.bytes == 0
    whole(splice(five, 5, **A)).tokens.sum()
    assert five.reads.bytes > 0


def test_sp_34_a_batch_of_any_indices_is_built_on_the_fly(five):
    made = splice(five, 5, **A).shuffle().seed(5).epochs(4)
    indices = np.random.Generator(np.random.PCG64(3)).integers(0, 52, 100)
    batch = made.batch(indices)
    assert len({*indices.tolist()}) < 52  # some come twice
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


def test_sp_37_an_example_is_int32_tokens_a_binary_mask_and_segments(five):
    batch = whole(splice(five, 5, **A).render(trailing="doc"))
    assert batch.tokens.dtype == np.int32
    assert batch.tokens.shape == (13, 5)
    assert {*np.unique(batch.loss_mask.astype(np.int32)).tolist()} == {0, 1}
    mask, ids = attention.dense_mask(batch.segment_ids), batch.segment_ids
    for b, i, j in np.ndindex(mask.shape):
        assert mask[b, i, j] == (j <= i and ids[b, i] == ids[b, j])


def test_sp_37_no_document_looks_at_filler_and_no_filler_at_a_document(five):
    batch = whole(splice(five, 5, **A))
    mask, real = attention.dense_mask(batch.segment_ids), batch.attention_mask
    for b, i, j in np.ndindex(mask.shape):
        assert not mask[b, i, j] or real[b, i] == real[b, j]
        if real[b, i]:
            assert mask[b, i, j] == (j <= i and real[b, j])


def test_sp_38_one_line_says_what_is_spliced(five, caplog):
    with caplog.at_level(logging.INFO, "tokenloom"):
        splice(five, 5, **A)
    (line,) = [text for text in caplog.messages if text.startswith("[splice] ")]
    for word in (f"dataset={five.path}", "doc_index=0", "doc_len=5", "seq_len=5"):
        assert word in line
    for word in ("content_stride=1", "offset_stride=1", "offsets=4", "examples=13"):
        assert word in line


def test_sp_38_it_is_logged_below_warnings(five, caplog):
    with caplog.at_level(logging.WARNING, "tokenloom"):
        splice(five, 5, **A)
    assert not caplog.messages


def test_sp_39_the_loss_is_on_positions_of_the_document_only(five):
    batch = whole(splice(five, 5, **A))
    tl.check_batch(batch).raise_if_wrong()
    arrays = {name: getattr(batch, name) for name in ("tokens", "segment_ids", "loss_mask")}
    tl.check_batch(arrays).raise_if_wrong()
    for cell in ([7, 0], [7, 3], [0, 3]):  # before, at the last token of, and after a document
        tampered = batch.loss_mask.copy()
        assert not tampered[tuple(cell)]
        tampered[tuple(cell)] = True
        report = tl.check_batch({**arrays, "loss_mask": tampered})
        assert not report.ok
        assert [report.problems[0].row, report.problems[0].cell] == cell
        with pytest.raises(ValueError, match=str(cell[0])):
            report.raise_if_wrong()


@pytest.mark.parametrize(
    "how", [{"trailing": "doc"}, {"attend_prefix": True}, {"position_offset": 10}], ids=str
)
def test_sp_39_a_batch_rendered_as_asked_passes_the_check(five, how):
    tl.check_batch(whole(splice(five, 5, **A).render(**how))).raise_if_wrong()


def test_sp_39_a_circular_document_passes_the_check(five):
    options = {"content_start_mode": "cyclic_roll", "content_length": 3}
    tl.check_batch(whole(splice(five, 5, **options))).raise_if_wrong()


# -- curricula and positions ---------------------------------------------------------------


def test_sp_41_content_length_may_grow_on_the_way(five):
    """Keys are steps of the batch size that is stated: 100 steps of 8 are 800 examples."""
    options = {"content_start_mode": "slide_within", "content_length": {0: 2, 100: 4}}
    made = splice(five, 5, schedule_batch_size=8, **options).epochs(None)
    lengths = {}
    with tl.Loader(made, 8) as loader:
        for step in (0, 50, 99, 100, 150):
            lengths[step] = {*next(loader.seek(step)).spans.length.tolist()}
    assert [max(lengths[step]) for step in (0, 50, 99)] == [2, 2, 2]
    assert max(lengths[100]) == 4
    assert max(lengths[150]) <= 4
    assert made.batch([799, 800]).tokens.tolist() == [[N, N, N, 3, 4], [0, 1, 2, 3, N]]
    again = tl.from_config(json.loads(json.dumps(made.describe())))
    assert again.batch([799, 800]).spans.length.tolist() == [2, 4]


def test_sp_41_without_a_batch_size_keys_are_examples(five):
    options = {"content_start_mode": "slide_within", "content_length": {0: 2, 20: 4}}
    made = splice(five, 5, **options)
    assert len(made) == 20 + 11  # one epoch of the last kind
    assert made.batch([19, 20]).spans.length.tolist() == [2, 4]
    assert_resumable(made.epochs(2), batch_size=6, steps=9)


def test_sp_42_positions_are_absolute_and_are_not_reset(five):
    batch = whole(splice(five, 5, **A))
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 13
    moved = whole(splice(five, 5, **A).render(position_offset=100))
    assert moved.position_ids.tolist() == [[100, 101, 102, 103, 104]] * 13
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of offsets that a relative model does not see
        default = five.splice(5, **A)
        reset = five.splice(5, position_scheme="reset", **A)
    assert whole(default).position_ids.tolist() == [[0, 1, 2, 3, 4]] * 13
    assert row(shown(reset, 2, 1).position_ids) == [0, 0, 1, 2, 0]


def test_sp_42_attend_prefix_shows_the_filler_before_a_splice(five):
    batch = shown(splice(five, 5, **A).render(attend_prefix=True), 2, 1)
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


def rotary(batch, learned=False, size=8):
    """Outputs of one attention layer with rotary positions, and also learned ones if asked."""
    draw = np.random.Generator(np.random.PCG64(1))
    embedding, positions = draw.normal(size=(1000, size)), draw.normal(size=(16, size))
    q, k, v = draw.normal(size=(3, size, size))
    x = embedding[batch.tokens[0]]
    if learned:
        x = x + positions[batch.position_ids[0]]
    angles = batch.position_ids[0][:, None] * 100.0 ** (-np.arange(size // 2) / (size // 2))
    turn = np.exp(1j * angles)  # pairs of channels as complex numbers [S, size / 2]
    q, k = ((x @ w).reshape(len(x), -1, 2) @ [1, 1j] * turn for w in (q, k))
    scores = np.where(attention.dense_mask(batch.segment_ids)[0], (q @ k.conj().T).real, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ (x @ v)


def test_sp_42_c_23_a_rotary_model_sees_no_offset_unless_the_prefix_is_visible(five):
    def outputs(how, **model):
        """What the model says of tokens 1 2 3 at each offset [3 offsets, 3, size]."""
        made = splice(five, 5, **A).render(**how)
        return np.array([rotary(shown(made, 1, s), **model)[s : s + 3] for s in range(3)])

    hidden = outputs({})
    assert hidden == pytest.approx(np.broadcast_to(hidden[0], hidden.shape), abs=1e-5)
    for other in (outputs({"attend_prefix": True}), outputs({}, learned=True)):
        assert np.abs(other - other[0]).max() > 0.01


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


def test_c_04_no_content_length_is_what_is_left_then_what_fits(shared_store_of, five):
    swept = {"content_start_mode": "slide_within"}
    assert row(shown(splice(five, 5, **swept), 1, 0).tokens) == [1, 2, 3, 4, N]
    cut = splice(five, 5, placement="truncate", **swept)
    assert row(shown(cut, 1, 2).tokens) == [N, N, 1, 2, 3]
    balanced = splice(shared_store_of(range(7), range(10, 13)), 5, sampler="enumerate")
    assert triples(balanced) == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 2)]  # K = min(S, L)
    assert whole(balanced).tokens.tolist()[-1] == [N, N, 10, 11, 12]


@pytest.mark.parametrize("adaptive", [True, False])
def test_c_04_without_a_content_length_no_document_is_too_short(shared_store_of, adaptive):
    """K is min(S, L), so `adaptive_k=False` prunes nothing, except with mode="slide"."""
    documents = shared_store_of(range(7), range(10, 13), range(20, 32))
    options = {"adaptive_k": adaptive}
    expected = [(0, 0, 1), (1, 0, 5), *[(2, t, 0) for t in range(5)]]
    assert triples(splice(documents, 8, sampler="enumerate", **options)) == expected
    for fixed in ({"mode": "slide"}, {"content_length": 8}):
        found = {document for document, _, _ in triples(splice(documents, 8, **fixed, **options))}
        assert found == ({0, 1, 2} if adaptive else {2})


def test_c_05_pruning_is_a_parameter_and_less_than_two_tokens_warn(five):
    assert len(splice(five, 5, **A)) == 13  # min_copy_len defaults to 2
    with pytest.warns(UserWarning, match=r"min_copy_len\b.*\b1\b"):
        made = splice(five, 5, min_copy_len=1, **A)
    assert len(made) == 18
    assert not made.batch([0, 17]).loss_mask[1].any()


def test_c_06_a_trailer_is_filler_unless_the_documents_segment_is_wanted(five):
    """The arrays of the design are `trailing="doc"`; filler is the default."""
    default = whole(splice(five, 5, **A))
    doc = whole(splice(five, 5, **A).render(trailing="doc"))
    filler = whole(splice(five, 5, **A).render(trailing="filler"))
    assert default.segment_ids.tolist() == filler.segment_ids.tolist()
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


def test_c_23_a_sweep_of_offsets_for_a_relative_model_warns_with_the_arithmetic(five):
    arithmetic = r"\b13\b.*\b4\b.*\b9\b.*69%"  # 13 frames on 4 starts: 9 frames, 69 %, are copies
    with pytest.warns(UserWarning, match=arithmetic):
        five.splice(5, **A)
    with pytest.warns(UserWarning, match=arithmetic):
        five.splice(5, position_scheme="relative", **A)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        five.splice(5, position_scheme="absolute", **A)
        five.splice(5, content_length=3)  # one offset for each start
        five.splice(5, content_length=3, position_scheme="relative")


def test_c_23_what_a_document_sees_does_not_depend_on_its_offset(five):
    """So only positions distinguish offsets, or the filler, if it is visible."""
    made = splice(five, 5, **A)

    def seen(dataset, s):
        ids = shown(dataset, 1, s).segment_ids
        return attention.dense_mask(ids)[0, s : s + 3]

    for s in range(3):
        assert seen(made, s).sum() == 6  # of the document alone, causally
        assert np.array_equal(seen(made, s)[:, s : s + 3], np.tri(3, dtype=bool))
    visible = made.render(attend_prefix=True)
    assert [int(seen(visible, s).sum()) for s in range(3)] == [6, 9, 12]


def test_c_25_a_length_is_of_an_epoch_or_of_all_that_were_asked_for(five):
    """Not offsets x epochs: pairs, of which there are 13, x epochs."""
    made = splice(five, 5, **A)
    assert [len(made), len(made.epochs(1)), len(made.epochs(4))] == [13, 13, 52]


def test_c_26_the_loss_mask_is_bool_and_the_designs_int32_is_a_cast(five):
    batch = shown(splice(five, 5, **A), 2, 1)
    assert batch.loss_mask.dtype == np.bool_
    assert batch.loss_mask.astype(np.int32).tolist() == [[0, 1, 1, 0, 0]]
    exported = batch.to_numpy(fields=("loss_mask",), mask_dtype=np.float32)["loss_mask"]
    assert exported.dtype == np.float32
    assert exported.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0]]


# -- clipped windows: every token is a target equally often ---------------------------------


def targets_of(dataset):
    labels = whole(dataset).labels
    return Counter(labels[labels >= 0].tolist())


def clipped_starts(dataset, content_length):
    """t of every row: a window that begins before its document has lost its first cells."""
    spans = whole(dataset).spans
    lost = spans.at - (dataset.seq_len - content_length)
    return [*zip(spans.document.tolist(), (spans.start - lost).tolist(), strict=True)]


def test_ruling_34_clipped_windows_train_every_token_equally_often(five):
    made = splice(five, 8, content_length=3, edge="clip")
    starts = [t for _, t in clipped_starts(made, 3)]
    assert starts == [-1, 0, 1, 2, 3]  # 2 - K .. L - 2, L + K - 3 rows
    assert targets_of(made) == {1: 2, 2: 2, 3: 2, 4: 2}  # K - 1 times, and token 0 never
    with_bos = splice(five, 8, content_length=3, edge="clip", bos=77)
    assert targets_of(with_bos) == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}
    with pytest.warns(UserWarning, match=r"content_stride\b.*\b3\b"):
        splice(five, 8, content_length=3, edge="clip", content_stride=3)


@pytest.mark.parametrize("fill", ["one", "pack"])
def test_ruling_34_a_short_document_keeps_the_windows_that_were_asked_for(shared_store_of, fill):
    documents = shared_store_of(range(10, 13), range(20, 30))
    options = {"content_length": 6, "edge": "clip", "sampler": "enumerate", "fill": fill}
    made = splice(documents, 8, **options)
    assert targets_of(made) == dict.fromkeys((11, 12, *range(21, 30)), 6 - 1)
    if fill == "one":
        assert len(made) == (3 + 6 - 3) + (10 + 6 - 3)
        short = [t for document, t in clipped_starts(made, 6) if document == 0]
        assert short == [*range(2 - 6, 3 - 2 + 1)]  # L + K - 3 = 6 of them
    else:  # K slots of 3 cells, two to a frame, and L slots of 6 cells
        assert len(made) == 6 // 2 + 10
        assert whole(made).tokens.tolist()[-3:] == [
            [10, 11, 10, 11, 12, N, N, N],
            [10, 11, 12, 10, 11, 12, N, N],
            [10, 11, 12, 11, 12, N, N, N],
        ]


@pytest.fixture(scope="module")
def of_every_length(shared_store_of):
    """Thirteen documents of 0 to 12 tokens; those of document n are 20 n, 20 n + 1, …"""
    return shared_store_of(*[range(20 * size, 21 * size) for size in range(13)])


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
    st.integers(2, 14),
    st.sampled_from(("one", "pack")),
    st.booleans(),
    st.data(),
)
def test_ruling_34_every_token_is_a_target_k_minus_1_times(
    of_every_length, lengths, content, fill, bos, data
):
    divisors = [d for d in range(1, content) if (content - 1) % d == 0]
    stride = data.draw(st.sampled_from(divisors))
    assume(max(lengths) + bos >= 2)
    chosen = of_every_length.select(doc_index=lengths)
    options = {"content_length": content, "content_stride": stride, "edge": "clip", "fill": fill}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = splice(chosen, 16, bos=999 if bos else False, **options)
    first = 0 if bos else 1
    shown = [size for size in lengths if size + bos >= 2]
    expected = [token for size in shown for token in range(20 * size + first, 21 * size)]
    assert targets_of(made) == dict.fromkeys(expected, (content - 1) // stride)


def test_ruling_34_documents_much_shorter_than_k_warn_with_their_rows(shared_store_of):
    documents = shared_store_of(range(10, 13), range(20, 36), range(40, 42))
    options = {"content_length": 16, "edge": "clip"}
    rows = (3 + 13) + (2 + 13)
    with pytest.warns(UserWarning, match=rf"\b2\b.*\b{rows}\b.*\b{rows + 16 + 13}\b"):
        splice(documents, 16, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        splice(documents, 16, fill="pack", **options)
        splice(documents, 16, adaptive_k=False, **options)
        splice(shared_store_of(range(10, 14)), 16, **options)  # L = K / 4


def test_the_eos_before_a_splice_is_there_in_a_mix_whose_sources_are_padded_differently(five):
    spliced = five.splice(5, content_length=3, eos_before=99, pad_id=0)
    packed = five.pack(5, pad_id=7).epochs(None)
    run = tl.mix({"packed": packed, "spliced": spliced}, rule="round_robin")
    batch = run.batch(range(4))
    rows = batch.tokens.tolist()
    assert [rows[i] for i in (1, 3)] == [run[i].tokens[0].tolist() for i in (1, 3)]
    assert {tuple(row[:2]) for row in (rows[1], rows[3])} == {(0, 99)}
