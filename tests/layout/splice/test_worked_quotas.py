"""Splices of several documents at the values that the design computes: SM, BAL, CK-21 and C.

Its documents are ABCDEFG, HIJKL and XYZ; a dot is filler. S is 8 and K is 4.
"""

import json
import logging
import math
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from slowsplice import edge_weights
from toysplices import drawn, making_stores, pairs, splice, triples, whole
from virtual import VirtualStore

import tokenloom as tl
from tokenloom.layout.splice.shares import largest_remainder
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable, write_store
from tokenloom.testing.stores import write_flat

LETTERS = [b"ABCDEFG", b"HIJKL", b"XYZ"]
DOT = ord(".")
TEN = [45231, 43890, 42105, 38234, 35678, 33421, 31209, 29834, 28456, 27891]
FOUR = [(0, t, 4) for t in range(4)]  # the starts of ABCDEFG
TWO = [(1, 0, 4), (1, 1, 4)]  # those of HIJKL


@pytest.fixture
def stores():
    yield from making_stores()


@pytest.fixture
def three(stores):
    return stores(*LETTERS)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Makes stores from the lengths of their documents."""
    root = tmp_path_factory.mktemp("long")

    def make(*lengths, vocab_size=1000):
        path = root / f"{len(list(root.iterdir()))}"
        write_flat(path, np.arange(sum(lengths)) % 999, np.array(lengths), vocab_size=vocab_size)
        return tl.open(path)

    return make


def spliced(documents, **options):
    return splice(documents, 8, **{"content_length": 4, "pad_id": DOT, **options})


def part(dataset):
    return dataset.run.layout.parts[0]


def quota(dataset):
    return part(dataset).quota.tolist()


def shares(dataset):
    """P of each document."""
    weights = part(dataset).weights
    return [weight / sum(weights) for weight in weights]


def texts(batch):
    return [bytes(row).decode() for row in batch.tokens.astype(np.uint8)]


def counted(values, size):
    return np.bincount(values, minlength=size).tolist()


# -- examples ------------------------------------------------------------------------------


def test_sm_01_a_triple_is_built_like_a_single_pair(three):
    made = spliced(three, adaptive_k=False, trailing="doc")
    batch = made.batch([triples(made).index((1, 0, 4))])
    assert texts(batch) == ["....HIJK"]
    assert batch.loss_mask.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0]]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    alone = spliced(three.select(doc_index=1), trailing="doc")
    assert pairs(alone) == [(0, 4), (1, 4)]
    for name in ("tokens", "loss_mask", "segment_ids", "document"):
        assert np.array_equal(getattr(alone[0], name), getattr(batch, name)), name


def test_sm_02_documents_of_7_5_and_3_have_4_2_and_0_triples(three):
    made = spliced(three, adaptive_k=False)
    assert triples(made) == FOUR + TWO
    assert quota(made) == [4, 2, 0]


def test_sm_03_the_second_start_of_document_1(three):
    made = spliced(three, adaptive_k=False)
    assert texts(made.batch([triples(made).index((1, 1, 4))])) == ["....IJKL"]


def test_sm_04_a_short_document_is_spliced_as_a_whole(three):
    made = spliced(three, adaptive_k=True, sampler="enumerate")
    assert part(made).content.tolist() == [4, 4, 3]  # K_i = min(K, S, L_i)
    batch = made.batch([triples(made).index((2, 0, 5))])
    assert texts(batch) == [".....XYZ"]
    assert batch.loss_mask.tolist() == [[0, 0, 0, 0, 0, 1, 1, 0]]


def test_sm_05_unless_it_is_too_short_to_be_shown(three):
    made = spliced(three, adaptive_k=True, min_copy_len=4)
    assert triples(made) == FOUR + TWO
    assert quota(spliced(three, adaptive_k=True, min_copy_len=3))[2] > 0


def test_sm_10_the_metadata_of_a_document_is_found_with_the_example(tmp_path):
    rows = [{"text": "ABCDEFG", "lang": "en"}, {"text": "HIJKL", "lang": "de"}]
    store = tl.build(rows, tmp_path / "store", tokenizer="bytes", progress=False)
    made = spliced(store, sampler="enumerate")
    found = [row[0]["lang"] for row in whole(made).metadata]
    assert found == ["en"] * 4 + ["de"] * 2
    packed = store.pack(16)
    assert packed[0].metadata == [[store.metadata(0), store.metadata(1)]]
    mixed = tl.mix({"a": made, "b": store.windows(8).shuffle()})
    batch = mixed.batch(range(len(mixed)))
    for row, spans in enumerate(batch.metadata):
        of_row = batch.spans.document[batch.spans.row == row].tolist()
        assert spans == [store.metadata(document) for document in of_row]
    with tl.Loader(made, 4, end="pad") as loader:
        last = list(loader)[-1]
        assert last.metadata == [[store.metadata(1)]] * 2 + [[]] * 2  # filler is of no document
    bare = tl.build([{"input_ids": [1, 2, 3]}], tmp_path / "bare", tokenizer=None, vocab_size=9)
    assert bare.pack(4)[0].metadata == [[bare.metadata(0)]]


def test_sm_11_every_batch_tells_its_documents(three):
    made = spliced(three).shuffle().seed(2).epochs(3)
    found = drawn(made, len(made))[0].tolist()
    assert whole(made).document.tolist() == found
    with tl.Loader(made, 5, end="pad") as loader:
        tags = np.concatenate([batch.document for batch in loader]).tolist()
    assert tags == [*found, *[-1] * 4]  # rows that fill up a step belong to no document
    chosen = spliced(three.select(doc_index=[2, 0]), sampler="enumerate")
    assert whole(chosen).document.tolist() == [2, 0, 0, 0, 0]  # numbers of the store


def test_sm_21_short_documents_are_not_dropped_unless_it_is_said(three):
    assert {document for document, _, _ in triples(spliced(three))} == {0, 1, 2}
    dropped = triples(spliced(three, adaptive_k=False))
    assert {document for document, _, _ in dropped} == {0, 1}


# -- jitter --------------------------------------------------------------------------------


def offsets_by_start(dataset, epochs):
    """The offsets of every (document, t), in the order of its visits."""
    found = defaultdict(list)
    for epoch in epochs:
        for document, t, s in triples(dataset, epoch):
            found[document, t].append(s)
    return found


@pytest.mark.parametrize("jitter_mode", ["uniform", "low_discrepancy"])
def test_sm_06_jitter_moves_to_the_left_by_0_to_j(three, jitter_mode):
    options = {"offset_jitter": 2, "jitter_mode": jitter_mode, "adaptive_k": False}
    found = offsets_by_start(spliced(three, **options), range(12))
    assert {s for offsets in found.values() for s in offsets} == {4, 3, 2}
    near = offsets_by_start(splice(three, 8, content_length=7, offset_jitter=5), range(12))
    assert {s for (d, _), offsets in near.items() if d == 0 for s in offsets} == {1, 0}  # clipped


@pytest.mark.parametrize("alpha", [0.0, 0.8])
@pytest.mark.parametrize("first", [0, 10**12])
def test_sm_07_low_discrepancy_goes_through_all_offsets_in_any_three_visits(three, alpha, first):
    """With edge weights a start is seen several times in one epoch and not in another."""
    options = {"offset_jitter": 2, "jitter_mode": "low_discrepancy", "alpha": alpha}
    made = spliced(three, epoch_length=11, **options)
    found = offsets_by_start(made, range(first, first + 40))
    assert len(found) == 7
    for (document, _), offsets in found.items():
        every = {5, 4, 3} if document == 2 else {4, 3, 2}
        assert len(offsets) > 30
        for place in range(len(offsets) - 2):
            assert {*offsets[place : place + 3]} == every
    uniform = offsets_by_start(
        spliced(three, epoch_length=11, **{**options, "jitter_mode": "uniform"}), range(40)
    )
    windows = [o[p : p + 3] for o in uniform.values() for p in range(len(o) - 2)]
    assert any(len({*window}) < 3 for window in windows)


@pytest.mark.parametrize("jitter_mode", ["uniform", "low_discrepancy"])
def test_sm_08_three_epochs_show_each_start_at_three_offsets(three, jitter_mode):
    options = {"offset_jitter": 2, "jitter_mode": jitter_mode, "sampler": "enumerate"}
    found = offsets_by_start(spliced(three, **options), range(3))
    assert [len(offsets) for offsets in found.values()] == [3] * 7
    assert all(len({*offsets}) == 3 for offsets in found.values())


def test_sm_09_no_room_to_move_is_said_once(stores):
    store = stores(range(20))
    with pytest.warns(UserWarning, match="found 2, but splices are as long as frames") as warned:
        made = splice(store, 8, content_length=8, offset_jitter=2)
    assert len(warned) == 1
    assert {s for epoch in range(3) for _, s in pairs(made, epoch)} == {0}


# -- which sampler -------------------------------------------------------------------------


def test_sm_12_ck_21_index_n_takes_the_work_of_index_0(three):
    """Counted in calls of functions, and in bytes."""

    def work(n):
        made = spliced(three, sampler="stream", alpha=0.8, offset_jitter=2)
        made.batch([5])  # builds what is built only once
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        tracemalloc.start()
        sys.setprofile(count)
        try:
            found = made.batch([n]).spans
        finally:
            sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(found.document) == 1
        return calls, peak

    def least(n):  # of three times: a thread of somebody else may allocate meanwhile
        return tuple(map(min, zip(*[work(n) for _ in range(3)], strict=True)))

    epoch = spliced(three, sampler="stream", alpha=0.8, offset_jitter=2).run.rows
    near = [least(epoch + n) for n in (7 * 50, 7 * 60 + 3)]  # an epoch whose order is not known yet
    far = [least(n) for n in (10**12, 10**15, 10**15 + 12_345)]
    assert max(calls for calls, _ in far) < 1.5 * min(calls for calls, _ in near)
    assert max(peak for _, peak in far) < 2 * max(peak for _, peak in near)


SCRIPT = """
import sys, warnings, tokenloom as tl
run = tl.open(sys.argv[1]).splice(
    8, content_length=4, pad_id=46, sampler="stream", alpha=0.8, offset_jitter=2
).seed(11)
batch = run.batch([10**12 + n for n in range(20)] + [10**15])
print(batch.tokens.tolist(), batch.document.tolist())
"""


def test_sm_12_two_processes_agree_about_index_1e12(three):
    command = [sys.executable, "-c", SCRIPT, str(three.path)]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout
        for _ in range(2)
    )
    assert first == second
    options = {"sampler": "stream", "alpha": 0.8, "offset_jitter": 2}
    here = spliced(three, **options).seed(11).batch([*range(10**12, 10**12 + 20), 10**15])
    assert first == f"{here.tokens.tolist()} {here.document.tolist()}\n"


def test_sm_12_ck_21_the_stream_has_a_way_back(three):
    """From (document, t) to the indices that show it, at 10^12 as at 0."""
    made = spliced(three, sampler="stream", alpha=0.8, offset_jitter=2).seed(4)
    layout = made.run.layout
    for n in (0, 3, 10**12, 10**15 + 1):
        (epoch,), rows = made.run.locate(np.array([n]))
        _, (document,), (t,), _ = layout.triples(int(epoch), rows)
        found = made.run.items(int(epoch), layout.find(int(epoch), int(document), int(t)))
        assert n in found.tolist()
        others = layout.triples(*made.run.locate(found))
        assert set(zip(others.document.tolist(), others.t.tolist(), strict=True)) == {(document, t)}


def test_ck_21_where_a_run_stands_is_one_number(three):
    made = spliced(three, sampler="stream", offset_jitter=2).seed(3)
    with tl.Loader(made, 4) as walked:
        for _ in range(50):
            next(walked)
        state = json.loads(json.dumps(walked.state_dict()))
        expected = next(walked)
    assert state["examples"] == 200
    jumped = tl.Loader(spliced(three, sampler="stream", offset_jitter=2).seed(3), 4)
    jumped.load_state_dict(state)
    assert np.array_equal(next(jumped).tokens, expected.tokens)
    jumped.close()
    assert np.array_equal(made.batch(np.arange(200, 204)).tokens, expected.tokens)


def chance(counts, probabilities):
    """p of a chi-square with two degrees of freedom."""
    expected = np.array(probabilities) * sum(counts)
    return math.exp(-float(((counts - expected) ** 2 / expected).sum()) / 2)


def test_sm_13_a_million_draws_have_the_probabilities_of_the_documents(long):
    options = {"content_length": 4096, "sampler": "stream", "balance_tau": 0.7}
    made = splice(long(10_000, 5_000, 2_000), 4096, **options)
    counts = counted(drawn(made, 10**6)[0], 3)
    heat = np.array([10_000, 5_000, 2_000]) ** 0.7
    assert chance(counts, heat / heat.sum()) > 1e-3
    warmer = np.array([10_000, 5_000, 2_000]) ** 0.72
    assert chance(counts, warmer / warmer.sum()) < 1e-3  # the test can tell them apart


def endless(dataset, draws):
    """(document, t, s) of the first whole epochs of a stream."""
    epochs = draws // dataset.run.rows
    rows = np.tile(np.arange(dataset.run.rows), epochs)
    return dataset.run.layout.triples(np.repeat(np.arange(epochs), dataset.run.rows), rows)[1:]


def test_sm_13_also_of_small_documents_if_the_epoch_divides(three):
    made = spliced(three, sampler="stream", epoch_length=15)
    assert chance(counted(endless(made, 10**6)[0], 3), [7 / 15, 5 / 15, 3 / 15]) > 1e-3


def test_sm_13_also_if_it_does_not(three):
    made = spliced(three, sampler="stream")
    assert made.run.rows % 7 == 0
    assert chance(counted(endless(made, 10**6)[0], 3), [7 / 15, 5 / 15, 3 / 15]) > 1e-3


@pytest.mark.parametrize("epoch_length", [None, 5_000])
@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0])
def test_sm_14_starts_come_as_often_as_their_weights_say(stores, alpha, epoch_length):
    options = {"sampler": "stream", "alpha": alpha, "epoch_length": epoch_length}
    made = spliced(stores(range(7)), **options)
    draw = endless if epoch_length is None else drawn
    counts = counted(draw(made, 10**6)[1], 4)
    weights = edge_weights(7, 4, alpha)
    assert np.array(counts) / sum(counts) == pytest.approx(weights / weights.sum(), rel=0.01)


def test_sm_14_starts_are_a_stride_apart(stores):
    """L = 9, K = 4: t = 0 2 4, d = 1 3 2, weights 4, 4/3 and 2 are 12 : 4 : 6."""
    store = stores(range(9))
    even = spliced(store, content_stride=2, epoch_length=30)
    assert Counter(t for t, _ in pairs(even)) == {0: 10, 2: 10, 4: 10}
    edged = spliced(store, content_stride=2, alpha=1.0, epoch_length=22)
    assert Counter(t for t, _ in pairs(edged)) == {0: 12, 2: 4, 4: 6}


def test_sm_15_three_samplers_build_the_same_examples(three):
    listed = spliced(three, sampler="enumerate")
    texts_of = dict(zip(triples(listed), texts(whole(listed)), strict=True))
    assert list(texts_of) == [*FOUR, *TWO, (2, 0, 5)]
    assert not spliced(three, sampler="stream").is_finite
    for sampler in ("quota", "stream"):
        made = spliced(three, sampler=sampler, balance_measure="starts", epoch_length=7)
        found = [column.tolist() for column in drawn(made, 7)]
        assert texts(made.batch(range(7))) == [texts_of[one] for one in zip(*found, strict=True)]
        assert sorted(zip(*found, strict=True)) == sorted(texts_of)
    with pytest.raises(ValueError, match="sampler: found 'alias', allowed: enumerate, quota, str"):
        spliced(three, sampler="alias")


# -- quotas --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch_length", "tau", "expected"), [(15, 1.0, [7, 5, 3]), (12, 0.7, [5, 4, 3])]
)
def test_sm_16_quotas_are_largest_remainders(three, epoch_length, tau, expected):
    made = spliced(three, epoch_length=epoch_length, balance_tau=tau)
    assert quota(made) == expected
    assert counted([document for document, _, _ in triples(made)], 3) == expected


def test_sm_16_three_of_four_starts_are_evenly_spaced(stores):
    made = spliced(stores(LETTERS[0]), epoch_length=3)
    assert [t for t, _ in pairs(made)] == [0, 2, 3]
    seen = [[t for t, _ in pairs(made, epoch)] for epoch in range(4)]
    assert Counter(t for ts in seen for t in ts) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_sm_17_a_shuffle_has_the_same_examples_in_another_order(three):
    plain = spliced(three, epoch_length=15)
    shuffled = plain.shuffle().seed(1).epochs(2)
    listed, found = texts(whole(plain)), texts(whole(shuffled))
    assert Counter(found[:15]) == Counter(listed)
    assert found[:15] != listed
    assert found[:15] != found[15:]
    assert_exactly_once(shuffled)


def test_sm_18_an_epoch_has_the_length_that_was_asked_for(three):
    for epoch_length in (1, 12, 15, 1000):
        made = spliced(three, epoch_length=epoch_length)
        assert len(made) == epoch_length == len(triples(made))
    assert len(spliced(three)) == 4 + 2 + 1
    assert len(spliced(three, content_stride=2)) == 2 + 1 + 1  # floor((L - K) / k_t) + 1


@pytest.mark.parametrize("edge", ["inside", "clip"])
@pytest.mark.parametrize("sampler", ["quota", "stream"])
def test_sm_18_an_epoch_of_packed_frames_has_the_length_that_was_asked_for(three, edge, sampler):
    """An example is a frame, and the frames of an epoch are full."""
    for epoch_length in (1, 2, 3, 12, 40, 1000):
        made = splice(
            three,
            16,
            content_length=4,
            fill="pack",
            edge=edge,
            sampler=sampler,
            epoch_length=epoch_length,
        )
        assert made.run.phases.rows.tolist() == [epoch_length]
        part = made.run.layout.parts[0]
        assert part.slots.rows == epoch_length
        # lengths 7, 5, 3 and K = 4: four, four and five units in a frame
        assert int(part.quota[:2].sum()) % 4 == 0
        assert int(part.quota[2]) % 5 == 0
        exact = np.array(part.weights) / np.sum(part.weights) * part.quota.sum()
        assert np.abs(part.quota - exact).max() < 5 + 1  # a frame, and a remainder


def test_sm_18_an_epoch_of_frames_is_shorter_only_if_every_document_is_capped(three):
    made = splice(three, 16, content_length=4, fill="pack", epoch_length=100, max_epochs=2.0)
    part = made.run.layout.parts[0]
    assert part.quota.tolist() == (2 * part.shown).tolist()
    assert len(made) == part.slots.rows < 100


def test_sm_19_a_stream_is_its_seed_and_its_epoch(three):
    def stream(seed, epoch):
        made = spliced(three, sampler="stream", epoch_length=50).seed(seed)
        return texts(made.batch(np.arange(50 * epoch, 50 * epoch + 50)))

    assert stream(1, 0) == stream(1, 0)
    assert stream(1, 1) == stream(1, 1)
    assert stream(1, 0) != stream(1, 1)
    assert stream(1, 0) != stream(2, 0)


def test_sm_20_ranks_leapfrog(three):
    made = spliced(three, sampler="stream").seed(6)
    ranks = [tl.Loader(made, 4, rank, 4) for rank in range(4)]
    for step in range(20):
        batches = [next(rank) for rank in ranks]
        assert [batch.index.tolist() for batch in batches] == [[4 * step + r] for r in range(4)]
        alone = made.batch(np.arange(4 * step, 4 * step + 4))
        assert [texts(batch)[0] for batch in batches] == texts(alone)
    for rank in ranks:
        rank.close()
    assert_elastic(made, worlds=(1, 4, 3), batch_size=8)


def test_sm_22_documents_have_weights(three):
    made = spliced(three, doc_weights=[1, 0.5, 2], balance_tau=0.0, epoch_length=7)
    assert shares(made) == pytest.approx([0.2857, 0.1429, 0.5714], abs=5e-5)
    assert quota(made) == [2, 1, 4]
    with pytest.raises(ValueError, match="doc_weights: found 2 values for 3 documents"):
        spliced(three, doc_weights=[1, 2])


def test_sm_23_documents_join_one_after_the_other(three):
    """One more every 10 steps, of 4 examples each."""
    schedule = {"doc_schedule": {0: 1, 10: 2, 20: 3}, "schedule_batch_size": 4}
    made = spliced(three, **schedule).shuffle().seed(1).epochs(None)
    seen = defaultdict(set)
    with tl.Loader(made, 4) as loader:
        for step in range(30):
            seen[step // 10] |= {*next(loader).document.tolist()}
    assert [seen[k] for k in range(3)] == [{0}, {0, 1}, {0, 1, 2}]
    sooner = {"doc_schedule": {0: 1, 2: 2, 4: 3}, "schedule_batch_size": 4}
    assert_resumable(spliced(three, **sooner).shuffle().epochs(None), batch_size=4, steps=7)


@pytest.mark.parametrize("name", ["doc_schedule", "doc_growth"])
def test_a_schedule_ends_with_the_documents_there_are(three, name):
    assert len(spliced(three, **{name: {0: 1, 2: 3}}).run.layout.parts) == 2
    with pytest.raises(ValueError, match=f"{name}: found 4 documents, but 3 were selected"):
        spliced(three, **{name: {0: 1, 2: 4, 3: 3}})


def test_no_rows_of_a_schedule_have_no_splices(three):
    layout = spliced(three, doc_schedule={0: 1, 10: 3}, content_length={0: 2, 5: 4}).run.layout
    nothing = np.empty(0, np.int64)
    assert len(layout.spans(0, nothing)) == 0
    assert layout.spans(0, nothing).width == layout.width
    assert [len(one) for one in layout.triples(0, nothing)] == [0] * 4
    assert [len(part.content.nonzero()[0]) for part in layout.parts] == [1, 1, 3]
    assert [int(part.content.max()) for part in layout.parts] == [2, 4, 4]


def test_sm_25_documents_have_strides_and_alphas(stores):
    store = stores(LETTERS[0], LETTERS[1])
    made = spliced(store, doc_strides=[2, 1], sampler="enumerate")
    assert part(made).starts == [2, 2]
    assert triples(made) == [(0, 0, 4), (0, 2, 4), (1, 0, 4), (1, 1, 4)]
    edged = spliced(store, doc_alphas=[1.0, 0.0], balance_mode="by_document", epoch_length=12)
    counts = Counter((document, t) for document, t, _ in triples(edged))
    assert [counts[0, t] for t in range(4)] == [2, 1, 1, 2]
    assert [counts[1, t] for t in range(2)] == [3, 3]


def test_sm_26_groups_have_equal_mass(stores):
    store = stores(*[LETTERS[0]] * 10)
    made = spliced(store, doc_groups=["wiki"] * 9 + ["book"], epoch_length=180)
    assert quota(made) == [10] * 9 + [90]
    assert quota(spliced(store, epoch_length=180)) == [18] * 10


def test_sm_27_a_document_that_joins_leaves_earlier_epochs_as_they_were(tmp_path):
    options = {"offset_jitter": 2, "alpha": 0.8}
    rows = [{"text": "ABCDEFG"}, {"text": "HIJKL"}]
    path = tmp_path / "store"
    old = tl.build(rows, path, tokenizer="bytes", progress=False)
    before = spliced(old, **options).shuffle().seed(2).epochs(2)
    tl.build([{"text": "XYZ"}], path, tokenizer="bytes", append=True, progress=False)
    grown = tl.open(path)
    after = spliced(grown, doc_growth={0: 2, 2: 3}, **options).shuffle().seed(2).epochs(3)
    assert len(after) == 6 + 6 + 7
    assert texts(after.batch(range(12))) == texts(whole(before))
    assert {*after.batch(range(12, 19)).document.tolist()} == {0, 1, 2}
    again = spliced(tl.open(path, snapshot=1), **options).shuffle().seed(2).epochs(2)
    assert texts(whole(again)) == texts(whole(before))


# -- balance -------------------------------------------------------------------------------


def test_bal_01_by_coverage_is_one_example_for_each_start(stores):
    made = spliced(stores(*LETTERS[:2]), balance_mode="by_coverage")
    assert triples(made) == FOUR + TWO
    assert [Fraction(n, 6) for n in quota(made)] == [Fraction(2, 3), Fraction(1, 3)]


def test_bal_02_by_document_repeats_short_ones_from_the_first_start_on(three):
    made = spliced(three, balance_mode="by_document", adaptive_k=False)
    assert triples(made) == FOUR + TWO + TWO
    assert len(made) == 8


@pytest.mark.parametrize(
    ("mode", "counts", "fractions"),
    [
        ("by_coverage", [10_000, 5_000, 2_000], [58.8, 29.4, 11.8]),
        ("by_document", [10_000, 10_000, 10_000], [33.3, 33.3, 33.3]),
    ],
)
def test_bal_03_proportions_of_10k_5k_and_2k_pairs(long, mode, counts, fractions):
    made = splice(long(10_001, 5_001, 2_001), 8, content_length=2, balance_mode=mode)
    assert quota(made) == counts
    assert len(made) == sum(counts)
    assert [round(100 * n / len(made), 1) for n in counts] == fractions
    found = Counter(triples(made))
    unique = counted([document for document, _, _ in found], 3)
    assert unique == [10_000, 5_000, 2_000]
    duplicates = [n - u for n, u in zip(counts, unique, strict=True)]
    assert duplicates == ([0, 0, 0] if mode == "by_coverage" else [0, 5_000, 8_000])


def test_bal_04_by_temperature(long):
    made = splice(long(10_000, 5_000, 2_000), 4096, content_length=4096, balance_tau=0.7)
    assert shares(made) == pytest.approx([0.5155, 0.3174, 0.1671], abs=5e-5)
    with pytest.raises(ValueError, match=r"balance_tau: found -0\.1, allowed: 0 or more"):
        splice(long(10_000), 4096, balance_tau=-0.1)


def test_bal_04_a_temperature_above_1_warns(three):
    with pytest.warns(UserWarning, match=r"balance_tau: found 1\.5"):
        made = spliced(three, balance_tau=1.5)
    assert shares(made) == pytest.approx([0.5307, 0.3204, 0.1489], abs=5e-5)


def test_bal_05_temperature_0_is_equal_and_1_in_proportion(three):
    assert shares(spliced(three, balance_tau=0.0)) == pytest.approx([1 / 3] * 3)
    proportional = spliced(three, balance_tau=1.0)
    assert shares(proportional) == pytest.approx([0.4667, 0.3333, 0.2], abs=5e-5)


def test_bal_06_the_ten_documents_of_the_design(long):
    made = splice(long(*TEN), 4096, content_length=4096, balance_tau=0.7)
    fractions = [0.1186, 0.1162, 0.1128, 0.1055, 0.1005, 0.0960, 0.0915, 0.0886, 0.0858, 0.0846]
    assert shares(made) == pytest.approx(fractions, abs=5e-5)
    assert sum(shares(made)) == pytest.approx(1)


def test_bal_07_equal_shares_by_temperature_0(three):
    made = spliced(three, epoch_length=12, balance_tau=0.0)
    assert quota(made) == [4, 4, 4]
    assert [one for one in triples(made) if one[0] == 0] == FOUR


def test_bal_08_by_starts_every_start_comes_exactly_once(three):
    made = spliced(three, balance_measure="starts", balance_tau=1.0)
    assert quota(made) == [4, 2, 1]
    assert triples(made) == [*FOUR, *TWO, (2, 0, 5)]
    assert quota(spliced(three, balance_measure="length", balance_tau=1.0)) == [3, 2, 2]


def test_bal_09_both_older_modes(three, long):
    document = counted([d for d, _, _ in triples(spliced(three, balance_mode="by_document"))], 3)
    assert document == [4, 4, 4]
    coverage = counted([d for d, _, _ in triples(spliced(three, balance_mode="by_coverage"))], 3)
    assert coverage == [4, 2, 1]
    made = splice(long(30_000, 20_000, 10_000), 8, content_length=4, balance_mode="by_coverage")
    assert np.array(quota(made)) / len(made) == pytest.approx([3 / 6, 2 / 6, 1 / 6], abs=1e-3)


def test_bal_10_ties_go_to_the_lowest_index(stores):
    store = stores(LETTERS[1], LETTERS[1], LETTERS[1])
    assert quota(spliced(store, epoch_length=10)) == [4, 3, 3]
    assert quota(spliced(store, epoch_length=11)) == [4, 4, 3]


def test_bal_10_quotas_add_up_in_a_thousand_random_cases():
    draw = np.random.Generator(np.random.PCG64(7))
    for _ in range(1_000):
        count = int(draw.integers(1, 40))
        weights = draw.integers(0, draw.choice([2, 5, 1000, 1 << 40]), count).tolist()
        weights[int(draw.integers(count))] += 1
        total = int(draw.integers(0, 10_000))
        found = largest_remainder(weights, total).tolist()
        exact = [Fraction(total * weight, sum(weights)) for weight in weights]
        assert sum(found) == total
        more = [n - math.floor(share) for n, share in zip(found, exact, strict=True)]
        assert {*more} <= {0, 1}
        rank = sorted(range(count), key=lambda i: (math.floor(exact[i]) - exact[i], i))
        assert [i for i in rank if more[i]] == rank[: sum(more)]


def test_bal_11_the_length_of_an_epoch_is_explicit(three):
    made = spliced(three, epoch_length=40, balance_tau=0.7)
    assert len(made) == 40
    assert len(made.epochs(3)) == 120
    with tl.Loader(made, 8) as loader:
        assert len(loader) == 5
    schedule = spliced(three, sampler="stream", balance_tau=0.7).take(64 * 100)
    with tl.Loader(schedule, 64) as loader:
        assert len(loader) == 100  # what a trainer asks for


# -- messages, and costs -------------------------------------------------------------------


def told(caplog, make):
    caplog.clear()
    with caplog.at_level(logging.INFO, "tokenloom"):
        make()
    return [line for line in caplog.messages if line.startswith("[multi_splice] ")]


def test_sm_28_the_log_of_a_run_by_temperature(long, caplog):
    store = long(*TEN)
    options = {"content_length": 4096, "balance_tau": 0.7}
    lines = told(caplog, lambda: splice(store, 4096, **options))
    listed = ", ".join(map(str, TEN))
    assert lines[0] == (
        f"[multi_splice] num_docs=10 doc_lengths=[{listed}] Pos.size=4096 content_length=4096 "
        "mode=coverage_balanced balance_mode=by_temperature total_pairs=314999"
    )
    assert lines[1].startswith("[multi_splice] pairs_per_doc=[")
    assert sum(json.loads(lines[1].partition("=")[2])) == 314_999
    selected = [f"[multi_splice] Selected doc_idx={i}, length={n}" for i, n in enumerate(TEN)]
    assert lines[2:12] == selected
    assert lines[12] == "[multi_splice] doc_probs ~ length^0.7 normalized"
    fractions = json.loads(lines[13].removeprefix("[multi_splice] expected_doc_fraction="))
    assert sum(fractions) == pytest.approx(1, abs=5e-4)
    assert fractions[:3] == [0.1186, 0.1162, 0.1128]


def test_sm_28_the_log_of_the_older_modes(three, caplog):
    options = {"adaptive_k": False, "balance_mode": "by_document"}
    lines = told(caplog, lambda: spliced(three, **options))
    assert "num_docs=3 doc_lengths=[7, 5, 3] Pos.size=8 content_length=4" in lines[0]
    assert "balance_mode=by_document total_pairs=8" in lines[0]
    assert lines[1] == "[multi_splice] pairs_per_doc=[4, 4, 0]"
    assert not [line for line in lines if "expected_doc_fraction" in line]
    lines = told(caplog, lambda: spliced(three, balance_mode="by_coverage"))
    assert lines[1] == "[multi_splice] pairs_per_doc=[4, 2, 1]"


def peak_of(make):
    """Peak bytes allocated while something is made."""
    tracemalloc.start()
    made = make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return made, peak


def test_sm_24_a_hundred_thousand_documents_of_any_length(tmp_path):
    """Documents of 40,000 tokens, 8 GB in total, need no more memory than those of 100 tokens."""
    peaks = []
    for tokens in (100, 40_000):
        virtual = VirtualStore([(100_000, 100_000 * tokens)])
        root = virtual.write_manifest(tmp_path / f"{tokens}")

        def make(root=root, virtual=virtual):
            store = tl.open(root, verify="never", source=virtual, cache_bytes=1 << 20)
            made = splice(store, 64, content_length=32, sampler="stream")
            return store, made, made.batch(np.arange(64)).prepare(("tokens", "loss_mask"))

        (store, made, batch), peak = peak_of(make)
        assert made.run.rows == 100_000 * (tokens - 31)
        assert batch.loss_tokens == 64 * 31
        assert len({*batch.document.tolist()}) > 60
        assert store.reads.bytes == 64 * 32 * 2  # only what is in the batch
        peaks.append(peak)
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 100_000 * 1024  # 1 KiB for each document


def test_sm_24_a_batch_reads_neighbours_together(long):
    store = long(*[1_000] * 50)
    made = splice(store, 64, content_length=32)
    made.batch(np.arange(64))
    assert store.reads.read_ops == 1
    assert store.reads.useful_bytes == (64 + 31) * 2


@pytest.mark.parametrize(("vocab_size", "token_bytes"), [(50_000, 2), (128_000, 4)])
def test_sm_30_ten_documents_of_50k_take_less_than_5_mb(long, vocab_size, token_bytes):
    path = long(*[50_000] * 10, vocab_size=vocab_size).path

    def make():
        store = tl.open(path, cache_bytes=8 << 20)
        made = splice(store, 1024, content_length=1024, content_stride=50).shuffle()
        with tl.Loader(made, 8, prefetch=0) as loader:
            for batch in loader:
                assert batch.tokens.shape == (8, 1024)
        return made

    made, peak = peak_of(make)
    assert len(made) == 10 * 980
    assert made.run.working.bytes == 500_000 * token_bytes < 5e6
    assert peak < 5e6


# -- where the design contradicts itself ---------------------------------------------------


def test_c_07_a_document_outside_the_limits_gives_way_and_it_is_said(stores):
    store = stores(range(3), range(5), range(7))
    ask = {"doc_index": 0, "min_doc_length": 5}
    with pytest.warns(UserWarning, match="document 0 has 3 tokens.*longest gives 2") as warned:
        assert store.select(**ask).indices.tolist() == [2]
    assert len(warned) == 1
    assert store.select(doc_index_policy="honor", **ask).indices.tolist() == [0]
    with pytest.raises(ValueError, match="document 0 has 3 tokens, min_doc_length is 5"):
        store.select(doc_index_policy="error", **ask)


def test_c_08_one_falls_back_to_the_longest_and_several_are_an_error(stores):
    store = stores(range(3), range(5), range(7))
    with pytest.warns(UserWarning, match="no document meets min_doc_length=100; document 2"):
        assert store.select(min_doc_length=100).indices.tolist() == [2]
    with pytest.raises(ValueError, match="found 0 of 2 documents"):
        store.select(num_docs=2, min_doc_length=100)


def test_c_09_shortest_is_for_one_as_for_several(stores):
    store = stores(range(5), range(3), range(7))
    assert store.select(doc_select_mode="shortest").indices.tolist() == [1]
    assert store.select(num_docs=2, doc_select_mode="shortest").indices.tolist() == [1, 0]


def test_c_10_by_temperature_1_is_meant_when_nothing_is_said(three):
    settings = spliced(three).describe()["layout"]
    assert (settings["balance_mode"], settings["balance_tau"]) == ("by_temperature", 1.0)
    assert quota(spliced(three)) == [3, 2, 2]
    for mode, expected in (("by_coverage", [4, 2, 1]), ("by_document", [4, 4, 4])):
        assert quota(spliced(three, balance_mode=mode)) == expected


def test_c_11_temperature_1_is_by_coverage_only_by_starts(three):
    length = spliced(three, balance_tau=1.0)
    starts = spliced(three, balance_tau=1.0, balance_measure="starts")
    coverage = spliced(three, balance_mode="by_coverage")
    assert (quota(length), quota(starts), quota(coverage)) == ([3, 2, 2], [4, 2, 1], [4, 2, 1])
    assert triples(starts) == triples(coverage) != triples(length)


def test_c_12_splices_as_long_as_frames_do_not_move(stores):
    store = stores(range(20))
    with pytest.warns(UserWarning, match="no room to move") as warned:
        still = splice(store, 8, content_length=8, offset_jitter=2)
    assert len(warned) == 1
    assert "Lower content_length to 6" in str(warned[0].message)
    assert {s for _, s in pairs(still)} == {0}
    moved = splice(store, 8, content_length=6, offset_jitter=2)  # K = S - J, without a warning
    assert {s for epoch in range(3) for _, s in pairs(moved, epoch)} == {0, 1, 2}


@pytest.mark.parametrize("jitter", [0, 1, 2, 3])
def test_c_13_jitter_j_is_the_base_and_j_more_to_its_left(stores, jitter):
    def offsets(content_length):
        options = {"content_length": content_length, "offset_jitter": jitter}
        made = splice(stores(range(9)), 8, **options)
        return {s for epoch in range(4) for _, s in pairs(made, epoch)}

    assert offsets(4) == {4 - j for j in range(jitter + 1)}
    assert offsets(7) == ({1} if jitter == 0 else {1, 0})  # clipped


def test_c_14_fractions_are_probabilities(long, caplog):
    store = long(*TEN)
    lines = told(caplog, lambda: splice(store, 4096, content_length=4096, balance_tau=0.7))
    (line,) = [line for line in lines if "expected_doc_fraction" in line]
    assert line == (
        "[multi_splice] expected_doc_fraction=[0.1186, 0.1162, 0.1128, 0.1055, 0.1005, 0.0960, "
        "0.0915, 0.0886, 0.0858, 0.0846]"
    )
    assert "0.44" not in line


def test_c_15_counts_are_exact(long):
    """Not about L of them: L - K + 1, or one for a document that is shorter than K."""
    options = {"content_length": 4096, "sampler": "enumerate"}
    ten = splice(long(*TEN), 4096, **options)
    assert quota(ten)[0] == 45_231 - 4096 + 1 == 41_136
    store = long(10_000, 5_000, 2_000)
    assert quota(splice(store, 4096, adaptive_k=False, **options)) == [5_905, 905, 0]
    assert quota(splice(store, 4096, adaptive_k=True, **options)) == [5_905, 905, 1]


def test_c_16_documents_without_a_start_are_not_counted_and_it_is_said(three, caplog):
    options = {"balance_mode": "by_document", "adaptive_k": False}
    made = spliced(three, **options)
    assert len(made) == 8  # 2 documents x 4, not 3 x 4
    lines = told(caplog, lambda: spliced(three, **options))
    assert lines[-1] == "[multi_splice] 1 document not shown: too short"
    assert len(spliced(three, balance_mode="by_document")) == 12


def test_c_17_the_worked_example_is_without_adaptive_k(three):
    example = spliced(three, balance_mode="by_document", adaptive_k=False)
    assert {document for document, _, _ in triples(example)} == {0, 1}
    usual = spliced(three, balance_mode="by_document")
    assert [one for one in triples(usual) if one[0] == 2] == [(2, 0, 5)] * 4


def test_c_18_there_are_three_samplers_and_a_default_for_each_mode(three):
    assert spliced(three).describe()["layout"]["sampler"] == "quota"
    for mode in ("slide_within", "anchor_start", "cyclic_roll"):
        made = spliced(three, content_start_mode=mode)
        assert made.describe()["layout"]["sampler"] == "enumerate"
    finite = [spliced(three, sampler=s).is_finite for s in ("enumerate", "quota", "stream")]
    assert finite == [True, True, False]
    with pytest.warns(UserWarning, match="balance_tau: found 0.0 with sampler='enumerate'"):
        cold = spliced(three, sampler="enumerate", balance_tau=0.0)
    assert quota(cold) == [4, 2, 1]  # ruling 35
    repeated = spliced(three, sampler="enumerate", balance_mode="by_document")
    assert quota(repeated) == [4, 4, 4]


def test_c_19_ranks_take_turns_in_one_stream(three):
    """Separate seeds would not keep them apart."""
    made = spliced(three, sampler="stream", balance_measure="starts", epoch_length=7).seed(6)
    shares = []
    for rank in range(2):
        with tl.Loader(made, 2, rank, 2) as loader:
            shares.append([next(loader).index.tolist()[0] for _ in range(70)])
    assert shares == [[*range(0, 140, 2)], [*range(1, 140, 2)]]
    epochs = [[(n, texts(made[n])[0]) for n in share if n < 7] for share in shares]
    assert len({text for share in epochs for _, text in share}) == 7  # every start once
    seeded = [{*texts(made.seed(rank).batch(range(4)))} for rank in range(2)]
    assert seeded[0] & seeded[1]  # the control: two seeds share starts within an epoch


def test_c_21_ends_are_preferred_by_weights_and_as_before_by_duplicates(stores):
    store = stores(range(30))
    t = np.arange(27)
    d = np.maximum(1, np.minimum(np.minimum(t + 1, 30 - 4 - t + 1), 4))
    assert edge_weights(30, 4, 1.0).tolist() == (4 / d).tolist()
    exact = np.round(12 / d * 4).astype(int)  # 48 24 16 12 12 … 12 16 24 48
    smooth = spliced(store, alpha=1.0, epoch_length=int(exact.sum()))
    assert smooth.describe()["layout"]["edge_mode"] == "continuous"
    assert counted([t for t, _ in pairs(smooth)], 27) == exact.tolist()
    before = counted([t for t, _ in pairs(spliced(store, alpha=1.0, edge_mode="duplicate"))], 27)
    assert (before[0], before[-1]) == (2, 2)
    assert before[3:-3] == [1] * 21  # from distance K on nothing is duplicated


def test_c_24_one_document_and_several_are_the_same_kind_of_dataset(three):
    """Whatever takes one document takes several: documents are a list of any length."""
    for chosen in (three.select(doc_index=1), three.select(num_docs=3, doc_select_mode="first")):
        made = spliced(chosen, sampler="enumerate")
        assert type(made) is tl.Dataset
        tokens, numbers = chosen.load()
        documents = dict(zip(numbers.tolist(), tokens, strict=True))
        for number, text in zip(whole(made).document.tolist(), texts(whole(made)), strict=True):
            assert text.strip(".") in bytes(documents[number].astype(np.uint8)).decode()


def test_c_27_the_base_is_the_right_end_and_jitter_subtracts(three):
    still = {document: s for document, _, s in triples(spliced(three))}
    assert still == {0: 4, 1: 4, 2: 5}
    found = offsets_by_start(spliced(three, offset_jitter=1), range(6))
    for (document, _), offsets in found.items():
        assert {*offsets} == {still[document], still[document] - 1}


def test_c_28_what_is_listed_is_document_and_start_and_the_offset_follows(three):
    """From its seed, the epoch and the index; an audit shows all three."""
    one, other = (spliced(three, offset_jitter=3, offset_seed=seed) for seed in (1, 2))
    for epoch in range(3):
        a, b = triples(one, epoch), triples(other, epoch)
        assert [x[:2] for x in a] == [x[:2] for x in b]
        assert a != b
        assert a == triples(spliced(three, offset_jitter=3, offset_seed=1), epoch)
    assert triples(one, 0) != triples(one, 1)
    batch = whole(one)
    spans = batch.spans
    shown = zip(spans.document.tolist(), spans.start.tolist(), spans.at.tolist(), strict=True)
    assert [*shown] == triples(one)


def test_c_28_the_same_store_written_again_gives_the_same_triples(three, tmp_path):
    write_store(tmp_path / "again", [LETTERS])
    again = spliced(tl.open(tmp_path / "again"), offset_jitter=3).shuffle().epochs(2)
    made = spliced(three, offset_jitter=3).shuffle().epochs(2)
    assert texts(whole(again)) == texts(whole(made))
