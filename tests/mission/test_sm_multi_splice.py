"""Splices of several documents, at the values that the published design works out by hand.

Its documents are ABCDEFG, HIJKL and XYZ; a dot is filler. S is 8 and K is 4.
"""

import json
import logging
import math
import struct
import subprocess
import sys
import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest
from splicing import epoch_spans, pairs, quota, splice, triples, whole

import tokenloom as tl
from tokenloom.evaluate import pz
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

LETTERS = [b"ABCDEFG", b"HIJKL", b"XYZ"]
DOT = ord(".")
TEN = [45231, 43890, 42105, 38234, 35678, 33421, 31209, 29834, 28456, 27891]
FOUR = [(0, t, 4) for t in range(4)]  # the starts of ABCDEFG
TWO = [(1, 0, 4), (1, 1, 4)]  # those of HIJKL


@pytest.fixture
def three(shared_store_of):
    return shared_store_of(*LETTERS)


@pytest.fixture(scope="session")
def long(shared_store_of):
    """Opens stores by the lengths of their documents."""
    return lambda *lengths: shared_store_of(*[[n % 999 for n in range(size)] for size in lengths])


def spliced(documents, **options):
    return splice(documents, 8, **{"content_length": 4} | options).render(pad_id=DOT)


def texts(batch):
    return [bytes(row).decode() for row in batch.tokens.astype(np.uint8)]


# -- examples ------------------------------------------------------------------------------


def test_sm_01_a_triple_is_built_like_a_single_pair(three):
    made = spliced(three, adaptive_k=False).render(trailing="doc")
    batch = made.batch([triples(made).index((1, 0, 4))])
    assert texts(batch) == ["....HIJK"]
    assert batch.loss_mask.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0]]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]]
    alone = spliced(three.select(doc_index=1)).render(trailing="doc")
    assert pairs(alone) == [(0, 4), (1, 4)]
    for name in ("tokens", "loss_mask", "segment_ids", "document"):
        assert np.array_equal(getattr(alone[0], name), getattr(batch, name)), name


def test_sm_02_documents_of_7_5_and_3_have_4_2_and_0_triples(three):
    made = spliced(three, adaptive_k=False)
    assert triples(made) == FOUR + TWO
    assert quota(made, 3) == [4, 2, 0]


def test_sm_03_the_second_start_of_document_1(three):
    made = spliced(three, adaptive_k=False)
    assert texts(made.batch([triples(made).index((1, 1, 4))])) == ["....IJKL"]


def test_sm_04_a_short_document_is_spliced_as_a_whole(three):
    """K_i = min(K, S, L_i): 4, 4 and 3."""
    made = spliced(three, adaptive_k=True, sampler="enumerate")
    assert triples(made) == [*FOUR, *TWO, (2, 0, 5)]
    assert whole(made).spans.length.tolist() == [4] * 6 + [3]
    batch = made.batch([6])
    assert texts(batch) == [".....XYZ"]
    assert batch.loss_mask.tolist() == [[0, 0, 0, 0, 0, 1, 1, 0]]


def test_sm_05_unless_it_is_shorter_than_min_copy_len(three):
    made = spliced(three, adaptive_k=True, min_copy_len=4, sampler="enumerate")
    assert triples(made) == FOUR + TWO
    assert quota(spliced(three, adaptive_k=True, min_copy_len=4), 3)[2] == 0
    assert quota(spliced(three, adaptive_k=True, min_copy_len=3), 3)[2] > 0


def test_sm_10_the_metadata_of_a_document_comes_with_the_example(store_of):
    more = [{"lang": "en"}, {"lang": "de"}]
    store = store_of(LETTERS[:2], more=more)
    made = spliced(store, sampler="enumerate")
    assert [row[0]["lang"] for row in whole(made).metadata] == ["en"] * 4 + ["de"] * 2
    packed = store.pack(16)
    assert packed[0].metadata == [[store.metadata(0), store.metadata(1)]]
    mixed = tl.mix({"a": made, "b": store.windows(8).shuffle()})
    batch = mixed.batch(range(len(mixed)))
    for row, documents in enumerate(batch.metadata):
        of_row = batch.spans.document[batch.spans.row == row].tolist()
        assert documents == [store.metadata(document) for document in of_row]
    with tl.Loader(made, 4, end="pad") as loader:
        last = list(loader)[-1]
        assert last.metadata == [[store.metadata(1)]] * 2 + [[]] * 2  # filler is of no document


def test_sm_11_every_batch_names_its_documents(three):
    made = spliced(three).shuffle().seed(2).epochs(3)
    expected = made.spans(np.arange(len(made))).document.tolist()
    assert sorted(expected) == [0] * 9 + [1] * 6 + [2] * 6
    assert whole(made)["doc_idx"].tolist() == expected
    with tl.Loader(made, 5, end="pad") as loader:
        tags = np.concatenate([batch["doc_idx"] for batch in loader]).tolist()
    assert tags == [*expected, *[-1] * 4]  # rows that fill up a step belong to no document
    chosen = spliced(three.select(doc_index=[2, 0]), sampler="enumerate")
    assert whole(chosen)["doc_idx"].tolist() == [2, 0, 0, 0, 0]  # numbers of the store
    assert whole(chosen).to_numpy(fields=("doc_idx",))["doc_idx"].tolist() == [2, 0, 0, 0, 0]


def test_sm_21_short_documents_are_not_dropped_by_default(three):
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
def test_sm_07_low_discrepancy_covers_all_offsets_in_any_three_visits(three, alpha, first):
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


def test_sm_07_uniform_does_not(three):
    made = spliced(three, epoch_length=11, offset_jitter=2, jitter_mode="uniform")
    found = offsets_by_start(made, range(40))
    visits = [o[place : place + 3] for o in found.values() for place in range(len(o) - 2)]
    assert any(len({*three_visits}) < 3 for three_visits in visits)


@pytest.mark.parametrize("jitter_mode", ["uniform", "low_discrepancy"])
def test_sm_08_three_epochs_show_each_start_at_three_offsets(three, jitter_mode):
    options = {"offset_jitter": 2, "jitter_mode": jitter_mode, "sampler": "enumerate"}
    found = offsets_by_start(spliced(three, **options), range(3))
    assert [len(offsets) for offsets in found.values()] == [3] * 7
    assert all(len({*offsets}) == 3 for offsets in found.values())


def test_sm_09_c_12_splices_as_long_as_frames_do_not_move_and_warn_once(shared_store_of):
    store = shared_store_of(range(20))
    with pytest.warns(UserWarning, match=r"offset_jitter\b.*\b2\b") as warned:
        still = splice(store, 8, content_length=8, offset_jitter=2)
    assert len(warned) == 1
    assert {s for epoch in range(3) for _, s in pairs(still, epoch)} == {0}
    moved = splice(store, 8, content_length=6, offset_jitter=2)  # K = S - J, without a warning
    assert {s for epoch in range(3) for _, s in pairs(moved, epoch)} == {0, 1, 2}


# -- which sampler -------------------------------------------------------------------------

STREAM = {"sampler": "stream", "alpha": 0.8, "offset_jitter": 2}


def test_sm_12_ck_21_index_n_takes_the_work_of_index_0(three):
    """Counted in calls of functions, and in bytes."""

    def work(n):
        made = spliced(three, epoch_length=1000, **STREAM)
        made.batch([5])  # computes what is computed only once
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

    def least(n):  # of three times: another thread may allocate meanwhile
        return tuple(map(min, zip(*[work(n) for _ in range(3)], strict=True)))

    near = [least(n) for n in (1350, 1423)]  # an epoch whose order is not known yet
    far = [least(n) for n in (10**12, 10**15, 10**15 + 12_345)]
    assert max(calls for calls, _ in far) < 1.5 * min(calls for calls, _ in near)
    assert max(peak for _, peak in far) < 2 * max(peak for _, peak in near)


SCRIPT = """
import sys, tokenloom as tl
run = tl.open(sys.argv[1]).splice(
    8, content_length=4, position_scheme="absolute",
    sampler="stream", alpha=0.8, offset_jitter=2,
).render(pad_id=46).seed(11)
batch = run.batch([10**12 + n for n in range(20)] + [10**15])
print(batch.tokens.tolist(), batch["doc_idx"].tolist())
"""


def test_sm_12_two_processes_agree_about_index_1e12(three):
    command = [sys.executable, "-c", SCRIPT, str(three.path)]
    there = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout
    here = spliced(three, **STREAM).seed(11).batch([*range(10**12, 10**12 + 20), 10**15])
    assert there == f"{here.tokens.tolist()} {here['doc_idx'].tolist()}\n"


def test_sm_12_ck_21_the_stream_has_an_inverse(three):
    """From a document to the indices that show it, at 10^12 as at 0."""
    made = spliced(three, **STREAM).seed(4)
    documents = made.spans(np.arange(100)).document
    for document in range(3):
        places = list(made.where("main", doc=document, before=100))
        assert [place.index for place in places] == np.flatnonzero(documents == document).tolist()
    for n in (0, 3, 10**12, 10**15 + 1):
        spans = made.spans([n])
        (document,), (t,), (s,) = spans.document, spans.start, spans.at
        place = made.next("main", int(document), after=n - 1)
        assert (place.index, place.start, place.column) == (n, t, s)


def test_ck_21_where_a_run_stands_is_one_number(three):
    made = spliced(three, sampler="stream", offset_jitter=2).seed(3)
    with tl.Loader(made, 4) as walked:
        for _ in range(50):
            next(walked)
        state = json.loads(json.dumps(walked.state_dict()))
        expected = next(walked)
    assert state["examples"] == 200
    with tl.Loader(spliced(three, sampler="stream", offset_jitter=2).seed(3), 4) as jumped:
        jumped.load_state_dict(state)
        assert np.array_equal(next(jumped).tokens, expected.tokens)
    assert np.array_equal(made.batch(np.arange(200, 204)).tokens, expected.tokens)


def chance(counts, probabilities):
    """p of a chi-square with two degrees of freedom."""
    expected = np.array(probabilities) * sum(counts)
    return math.exp(-float(((counts - expected) ** 2 / expected).sum()) / 2)


def test_sm_13_a_million_draws_have_the_probabilities_of_the_documents(long):
    options = {"content_length": 4096, "sampler": "stream", "balance_tau": 0.7}
    made = splice(long(10_000, 5_000, 2_000), 4096, **options)
    counts = np.bincount(made.spans(np.arange(10**6)).document, minlength=3)
    heat = np.array([10_000, 5_000, 2_000]) ** 0.7
    assert chance(counts, heat / heat.sum()) > 1e-3
    warmer = np.array([10_000, 5_000, 2_000]) ** 0.72
    assert chance(counts, warmer / warmer.sum()) < 1e-3  # the test can tell them apart


@pytest.mark.parametrize("epoch_length", [15, None])
def test_sm_13_small_documents_too_whether_or_not_the_epoch_divides(three, epoch_length):
    made = spliced(three, sampler="stream", epoch_length=epoch_length)
    rows = len(made.epochs(1))
    draws = 200_000 // rows * rows  # whole epochs
    counts = np.bincount(made.spans(np.arange(draws)).document)
    assert chance(counts, [7 / 15, 5 / 15, 3 / 15]) > 1e-3


@pytest.mark.parametrize(
    ("alpha", "probabilities", "epoch_length"),
    [
        (0.0, [0.25, 0.25, 0.25, 0.25], None),
        (0.8, [0.3176, 0.1824, 0.1824, 0.3176], None),
        (0.8, [0.3176, 0.1824, 0.1824, 0.3176], 5_000),
        (1.0, [1 / 3, 1 / 6, 1 / 6, 1 / 3], None),
    ],
)
def test_sm_14_starts_come_as_often_as_their_weights(
    shared_store_of, alpha, probabilities, epoch_length
):
    options = {"sampler": "stream", "alpha": alpha, "epoch_length": epoch_length}
    made = spliced(shared_store_of(range(7)), **options)
    rows = len(made.epochs(1))
    draws = 10**6 // rows * rows  # whole epochs
    counts = np.bincount(made.spans(np.arange(draws)).start)
    assert counts / draws == pytest.approx(probabilities, rel=0.01)


def test_sm_14_starts_are_a_stride_apart(shared_store_of):
    """L = 9, K = 4: t = 0 2 4, d = 1 3 2, weights 4, 4/3 and 2 are 12 : 4 : 6."""
    store = shared_store_of(range(9))
    even = spliced(store, content_stride=2, epoch_length=30)
    assert Counter(t for t, _ in pairs(even)) == {0: 10, 2: 10, 4: 10}
    edged = spliced(store, content_stride=2, alpha=1.0, epoch_length=22)
    assert Counter(t for t, _ in pairs(edged)) == {0: 12, 2: 4, 4: 6}


def test_sm_15_three_samplers_build_the_same_examples(three):
    listed = spliced(three, sampler="enumerate")
    text_of = dict(zip(triples(listed), texts(whole(listed)), strict=True))
    assert list(text_of) == [*FOUR, *TWO, (2, 0, 5)]
    assert not spliced(three, sampler="stream").is_finite
    for sampler in ("quota", "stream"):
        made = spliced(three, sampler=sampler, balance_measure="starts", epoch_length=7)
        batch = made.batch(range(7))
        spans = batch.spans
        found = [
            *zip(spans.document.tolist(), spans.start.tolist(), spans.at.tolist(), strict=True)
        ]
        assert sorted(found) == sorted(text_of)
        assert texts(batch) == [text_of[triple] for triple in found]
    with pytest.raises(ValueError, match=r"sampler\b.*'alias'"):
        spliced(three, sampler="alias")


def test_sm_15_an_audit_lists_every_triple(three):
    listing = tl.inspect.triples(spliced(three, sampler="enumerate"))
    columns = (listing.document.tolist(), listing.t.tolist(), listing.s.tolist())
    assert [*zip(*columns, strict=True)] == [*FOUR, *TWO, (2, 0, 5)]


# -- quotas --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch_length", "tau", "expected"), [(15, 1.0, [7, 5, 3]), (12, 0.7, [5, 4, 3])]
)
def test_sm_16_quotas_are_largest_remainders(three, epoch_length, tau, expected):
    assert quota(spliced(three, epoch_length=epoch_length, balance_tau=tau), 3) == expected


def test_sm_16_three_of_four_starts_are_evenly_spaced(shared_store_of):
    made = spliced(shared_store_of(LETTERS[0]), epoch_length=3)
    assert [t for t, _ in pairs(made)] == [0, 2, 3]
    seen = [[t for t, _ in pairs(made, epoch)] for epoch in range(4)]
    assert Counter(t for starts in seen for t in starts) == {0: 3, 1: 3, 2: 3, 3: 3}


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
    assert len(spliced(three)) == 4 + 2 + 1 == 7
    assert len(spliced(three, content_stride=2)) == 2 + 1 + 1  # floor((L - K) / k_t) + 1


@pytest.mark.parametrize("edge", ["inside", "clip"])
@pytest.mark.parametrize("sampler", ["quota", "stream"])
@pytest.mark.parametrize("epoch_length", [1, 3, 12, 1000])
def test_sm_18_an_epoch_of_packed_frames_too(three, edge, sampler, epoch_length):
    """An example is a frame; lengths 7, 5, 3 and K = 4: four, four and five fit in a frame."""
    options = {"fill": "pack", "edge": edge, "sampler": sampler, "epoch_length": epoch_length}
    made = splice(three, 16, content_length=4, **options)
    assert len(made.epochs(1)) == epoch_length
    spans = epoch_spans(made)
    frames = np.split(spans.document, spans.frame[1:-1])
    assert len(frames) == epoch_length
    if edge == "inside":
        assert {(len(frame), 2 in frame) for frame in frames} <= {(4, False), (5, True)}
        splices = np.bincount(spans.document, minlength=3)
        exact = np.array([7, 5, 3]) / 15 * splices.sum()
        assert np.abs(splices - exact).max() < 5 + 1  # a frame, and a remainder


def test_sm_18_an_epoch_of_frames_is_shorter_only_if_every_document_is_capped(three):
    made = splice(three, 16, content_length=4, fill="pack", epoch_length=100, max_epochs=2.0)
    assert len(made) < 100
    assert quota(made, 3) == [2 * 4, 2 * 2, 2 * 1]


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
    weighted = {"doc_weights": [1, 0.5, 2], "balance_tau": 0.0}
    counts = quota(spliced(three, epoch_length=100_000, **weighted), 3)
    assert np.array(counts) / 100_000 == pytest.approx([0.2857, 0.1429, 0.5714], abs=6e-5)
    assert quota(spliced(three, epoch_length=7, **weighted), 3) == [2, 1, 4]
    with pytest.raises(ValueError, match=r"doc_weights\b.*\b2\b.*\b3\b"):
        spliced(three, doc_weights=[1, 2])


def test_sm_23_documents_join_one_after_the_other(three):
    """One more every 10 steps, of 4 examples each."""
    schedule = {"doc_schedule": {0: 1, 10: 2, 20: 3}, "schedule_batch_size": 4}
    made = spliced(three, **schedule).shuffle().seed(1).epochs(None)
    seen = defaultdict(set)
    with tl.Loader(made, 4) as loader:
        for step in range(30):
            seen[step // 10] |= {*next(loader)["doc_idx"].tolist()}
    assert [seen[k] for k in range(3)] == [{0}, {0, 1}, {0, 1, 2}]
    sooner = {"doc_schedule": {0: 1, 2: 2, 4: 3}, "schedule_batch_size": 4}
    assert_resumable(spliced(three, **sooner).shuffle().epochs(None), batch_size=4, steps=7)
    assert len(made.spans([])) == len(made.spans([]).document) == 0


@pytest.mark.parametrize("name", ["doc_schedule", "doc_growth"])
def test_sm_23_sm_27_a_schedule_ends_with_the_documents_there_are(three, name):
    assert len(spliced(three, **{name: {0: 1, 2: 3}})) > 0
    with pytest.raises(ValueError, match=rf"{name}\b.*\b4\b.*\b3\b"):
        spliced(three, **{name: {0: 1, 2: 4, 3: 3}})


def test_sm_25_documents_have_strides_and_alphas(shared_store_of):
    store = shared_store_of(LETTERS[0], LETTERS[1])
    made = spliced(store, doc_strides=[2, 1], sampler="enumerate")
    assert triples(made) == [(0, 0, 4), (0, 2, 4), (1, 0, 4), (1, 1, 4)]
    edged = spliced(store, doc_alphas=[1.0, 0.0], balance_mode="by_document", epoch_length=12)
    counts = Counter((document, t) for document, t, _ in triples(edged))
    assert [counts[0, t] for t in range(4)] == [2, 1, 1, 2]
    assert [counts[1, t] for t in range(2)] == [3, 3]


def test_sm_26_groups_have_equal_mass(shared_store_of):
    store = shared_store_of(*[LETTERS[0]] * 10)
    made = spliced(store, doc_groups=["wiki"] * 9 + ["book"], epoch_length=180)
    assert quota(made, 10) == [10] * 9 + [90]
    assert quota(spliced(store, epoch_length=180), 10) == [18] * 10


def test_sm_27_a_document_that_joins_leaves_earlier_epochs_as_they_were(tmp_path):
    options = {"offset_jitter": 2, "alpha": 0.8}
    records = [{"text": "ABCDEFG"}, {"text": "HIJKL"}]
    path = tmp_path / "store"
    old = tl.build(records, path, tokenizer="bytes", progress=False)
    before = spliced(old, **options).shuffle().seed(2).epochs(2)
    tl.build([{"text": "XYZ"}], path, tokenizer="bytes", append=True, progress=False)
    grown = tl.open(path)
    after = spliced(grown, doc_growth={0: 2, 2: 3}, **options).shuffle().seed(2).epochs(3)
    assert len(after) == 6 + 6 + 7
    assert texts(after.batch(range(12))) == texts(whole(before))
    assert {*after.batch(range(12, 19))["doc_idx"].tolist()} == {0, 1, 2}
    again = spliced(tl.open(path, snapshot=1), **options).shuffle().seed(2).epochs(2)
    assert texts(whole(again)) == texts(whole(before))


def test_sm_29_one_document_and_several_are_the_same_kind_of_dataset(three):
    """Whatever takes one takes the other: `where` and the evaluation too."""
    for chosen in (three.select(doc_index=1), three.select(num_docs=3, doc_select_mode="first")):
        made = spliced(chosen, sampler="enumerate")
        assert type(made) is tl.Dataset
        assert [place.index for place in made.where("main", doc=1)] == [
            index for index, (document, _, _) in enumerate(triples(made)) if document == 1
        ]


def test_sm_29_c_24_p_z_runs_on_one_document_and_on_several(shared_store_of):
    draw = np.random.Generator(np.random.PCG64(5))
    store = shared_store_of(*[draw.integers(0, 12, size).tolist() for size in (40, 20, 33)])
    logits = draw.normal(size=(12, 12))

    def model(tokens, segment_ids, position_ids):
        return logits[tokens]

    several = pz(model, store, prefix=4, suffix=4, stride=5, progress=False)
    for number, windows in enumerate([7, 3, 6]):  # floor((L - 8) / 5) + 1
        alone = pz(model, store.select(doc_index=number), prefix=4, suffix=4, progress=False)
        mine = several.windows.document == number
        assert mine.sum() == windows
        assert (alone.windows.log_pz == several.windows.log_pz[mine]).all()


# -- messages, and costs -------------------------------------------------------------------


def logged(caplog, make):
    caplog.clear()
    with caplog.at_level(logging.INFO, "tokenloom"):
        make()
    return [line for line in caplog.messages if line.startswith("[multi_splice] ")]


def test_sm_28_c_14_the_log_of_a_run_by_temperature(long, caplog):
    store = long(*TEN)
    options = {"content_length": 4096, "balance_tau": 0.7}
    lines = logged(caplog, lambda: splice(store, 4096, **options))
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
    assert lines[13] == (
        "[multi_splice] expected_doc_fraction=[0.1186, 0.1162, 0.1128, 0.1055, 0.1005, 0.0960, "
        "0.0915, 0.0886, 0.0858, 0.0846]"
    )  # not 0.44, 0.42, …: they are probabilities
    assert sum(json.loads(lines[13].partition("=")[2])) == pytest.approx(1, abs=5e-4)


def test_sm_28_c_16_the_log_of_the_older_modes(three, caplog):
    options = {"adaptive_k": False, "balance_mode": "by_document"}
    lines = logged(caplog, lambda: spliced(three, **options))
    assert "num_docs=3 doc_lengths=[7, 5, 3] Pos.size=8 content_length=4" in lines[0]
    assert "balance_mode=by_document total_pairs=8" in lines[0]
    assert lines[1] == "[multi_splice] pairs_per_doc=[4, 4, 0]"
    assert not [line for line in lines if "expected_doc_fraction" in line]
    assert "1 document" in lines[-1]  # how many are too short to be shown
    lines = logged(caplog, lambda: spliced(three, balance_mode="by_coverage"))
    assert lines[1] == "[multi_splice] pairs_per_doc=[4, 2, 1]"


def write_sparse_megatron(stem, documents, tokens):
    """Documents of zeros, all of one length, that take no room on the disk."""
    with open(f"{stem}.bin", "wb") as payload:
        payload.truncate(documents * tokens * 2)
    with open(f"{stem}.idx", "wb") as index:
        uint16 = 8
        index.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, uint16, documents, documents + 1))
        index.write(np.full(documents, tokens, "<i4").tobytes())
        index.write((np.arange(documents, dtype="<i8") * tokens * 2).tobytes())
        index.write(np.arange(documents + 1, dtype="<i8").tobytes())
    return stem


def peak_of(make):
    """What `make` returns, and the peak of bytes allocated meanwhile."""
    tracemalloc.start()
    made = make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return made, peak


def test_sm_24_a_hundred_thousand_documents_need_a_kilobyte_each(tmp_path):
    """Of 40,000 tokens each, 8 GB in total."""
    stem = write_sparse_megatron(tmp_path / "sparse", 100_000, 40_000)

    def make():
        store = tl.open(stem, vocab_size=1000, identity="sample", cache_bytes=1 << 20)
        made = splice(store, 64, content_length=32, sampler="stream")
        batch = made.batch(np.arange(64))
        assert batch.tokens.shape == batch.loss_mask.shape == (64, 64)
        return store, made, batch

    (store, made, batch), peak = peak_of(make)
    assert len(made.epochs(1)) == 100_000 * (40_000 - 31)
    assert batch.loss_tokens == 64 * 31
    assert len({*batch["doc_idx"].tolist()}) > 60
    assert store.reads.bytes == 64 * 32 * 2  # only what is in the batch
    assert peak < 100_000 * 1024


def test_sm_24_a_batch_reads_neighbours_together(long):
    store = long(*[1_000] * 50)
    made = splice(store, 64, content_length=32)
    assert made.batch(np.arange(64)).tokens.shape == (64, 64)
    assert store.reads.read_ops == 1
    assert store.reads.useful_bytes == (64 + 31) * 2


@pytest.mark.parametrize(("vocab_size", "token_bytes"), [(50_000, 2), (128_000, 4)])
def test_sm_30_ten_documents_of_50k_take_less_than_5_mb(store_of, vocab_size, token_bytes):
    path = store_of([[n % 999 for n in range(50_000)]] * 10, vocab_size=vocab_size).path

    def make():
        store = tl.open(path, cache_bytes=8 << 20)
        made = splice(store, 1024, content_length=1024, content_stride=200).shuffle()
        with tl.Loader(made, 8, prefetch=0) as loader:
            for batch in loader:
                assert batch.tokens.shape == (8, 1024)
        return store, made

    (store, made), peak = peak_of(make)
    assert len(made) == 10 * 245
    assert store.num_tokens * store.dtype.itemsize == 500_000 * token_bytes < 5e6
    assert peak < 5e6


# -- where the design contradicts itself ---------------------------------------------------


@pytest.mark.parametrize("jitter", [0, 1, 2, 3])
def test_c_13_jitter_j_is_the_base_and_j_more_to_its_left(shared_store_of, jitter):
    def offsets(content_length):
        options = {"content_length": content_length, "offset_jitter": jitter}
        made = splice(shared_store_of(range(9)), 8, **options)
        return {s for epoch in range(4) for _, s in pairs(made, epoch)}

    assert offsets(4) == {4 - j for j in range(jitter + 1)}
    assert offsets(7) == ({1} if jitter == 0 else {1, 0})  # clipped


def test_c_15_counts_are_exact(long):
    """Not about L of them: L - K + 1, or one for a document that is shorter than K."""
    options = {"content_length": 4096, "sampler": "enumerate"}
    assert quota(splice(long(*TEN), 4096, **options), 10)[0] == 45_231 - 4096 + 1 == 41_136
    store = long(10_000, 5_000, 2_000)
    assert quota(splice(store, 4096, adaptive_k=False, **options), 3) == [5_905, 905, 0]
    assert quota(splice(store, 4096, adaptive_k=True, **options), 3) == [5_905, 905, 1]


def test_c_17_the_worked_example_is_without_adaptive_k(three):
    example = spliced(three, balance_mode="by_document", adaptive_k=False)
    assert {document for document, _, _ in triples(example)} == {0, 1}
    default = spliced(three, balance_mode="by_document")
    assert [triple for triple in triples(default) if triple[0] == 2] == [(2, 0, 5)] * 4


def test_c_18_there_are_three_samplers_and_a_default_for_each_mode(three):
    def same(mode, sampler):
        options = {"content_start_mode": mode, "content_length": 4}
        return splice(three, 8, **options) == splice(three, 8, sampler=sampler, **options)

    assert same("coverage_balanced", "quota")
    assert not same("coverage_balanced", "enumerate")
    for mode in ("slide_within", "anchor_start", "cyclic_roll"):
        assert same(mode, "enumerate")
    finite = [spliced(three, sampler=s).is_finite for s in ("enumerate", "quota", "stream")]
    assert finite == [True, True, False]
    with pytest.warns(UserWarning, match=r"balance_tau\b.*\b0\.0\b.*enumerate"):
        cold = spliced(three, sampler="enumerate", balance_tau=0.0)
    assert quota(cold, 3) == [4, 2, 1]  # enumerate ignores temperature
    repeated = spliced(three, sampler="enumerate", balance_mode="by_document")
    assert quota(repeated, 3) == [4, 4, 4]  # and still replicates


def test_c_19_ranks_take_turns_in_one_stream(three):
    """Separate seeds would not keep them apart."""
    made = spliced(three, sampler="stream", balance_measure="starts", epoch_length=7).seed(6)
    shares = []
    for rank in range(2):
        with tl.Loader(made, 2, rank, 2) as loader:
            shares.append([next(loader).index.tolist()[0] for _ in range(70)])
    assert shares == [[*range(0, 140, 2)], [*range(1, 140, 2)]]
    epoch = texts(made.batch(range(7)))
    assert len({*epoch}) == 7  # every start once
    seeded = [{*texts(made.seed(rank).batch(range(4)))} for rank in range(2)]
    assert seeded[0] & seeded[1]  # the control: two seeds share starts within an epoch


def test_c_21_ends_are_preferred_by_weights_and_as_before_by_duplicates(shared_store_of):
    store = shared_store_of(range(30))
    exact = [48, 24, 16, *[12] * 21, 16, 24, 48]  # proportional to 4 / d, d at most 4
    smooth = spliced(store, alpha=1.0, epoch_length=sum(exact))
    counts = Counter(t for t, _ in pairs(smooth))
    assert [counts[t] for t in range(27)] == exact
    named = spliced(store, alpha=1.0, epoch_length=sum(exact), edge_mode="continuous")
    assert named == smooth
    before = Counter(t for t, _ in pairs(spliced(store, alpha=1.0, edge_mode="duplicate")))
    assert (before[0], before[26]) == (2, 2)
    assert [before[t] for t in range(3, 24)] == [1] * 21  # from distance K on none is duplicated


def test_c_27_the_base_is_the_right_end_and_jitter_subtracts(three):
    still = {document: s for document, _, s in triples(spliced(three))}
    assert still == {0: 4, 1: 4, 2: 5}
    found = offsets_by_start(spliced(three, offset_jitter=1), range(6))
    for (document, _), offsets in found.items():
        assert {*offsets} == {still[document], still[document] - 1}


def test_c_28_documents_and_starts_are_listed_and_offsets_follow_from_seed_epoch_and_index(three):
    one, other = (spliced(three, offset_jitter=3, offset_seed=seed) for seed in (1, 2))
    for epoch in range(3):
        a, b = triples(one, epoch), triples(other, epoch)
        assert [triple[:2] for triple in a] == [triple[:2] for triple in b]
        assert a != b
        assert a == triples(spliced(three, offset_jitter=3, offset_seed=1), epoch)
    assert triples(one, 0) != triples(one, 1)
    listing = tl.inspect.triples(one)
    columns = (listing.document.tolist(), listing.t.tolist(), listing.s.tolist())
    assert [*zip(*columns, strict=True)] == triples(one)


def test_c_28_the_same_store_written_again_gives_the_same_triples(three, store_of):
    again = spliced(store_of(LETTERS), offset_jitter=3).shuffle().epochs(2)
    made = spliced(three, offset_jitter=3).shuffle().epochs(2)
    assert again.fingerprint == made.fingerprint
    assert texts(whole(again)) == texts(whole(made))
