"""Right batches have no problem; a batch that breaks one law is found to break that one."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused
from toydata import DTYPES, ToyStore, numbered, slow_batch

import tokenloom as tl
from tokenloom import check_batch

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")


def made(rows, seq_len, **render):
    """A right batch of plain arrays, from the slow oracle."""
    slow = slow_batch(rows, seq_len, **render)
    found = {name: np.array(values, DTYPES[name]) for name, values in slow.items()}
    found["max_seqlen"] = int(np.diff(found["cu_seqlens"]).max())
    return found


def document(number, first, stop):
    """Cells of the tokens [first, stop) of a document."""
    return [(number, offset, 10 * number + offset, 0) for offset in range(first, stop)]


def spans_of(frames, width):
    """Spans from a list of frames, each a list of (document, start, length, at, flags)."""
    flat = [span for frame in frames for span in frame]
    columns = np.array(flat, np.int64).reshape(-1, 5).T
    with ToyStore([[[1] * width]]) as toy:
        some = toy.store.windows(width).spans([0])
    return replace(
        some,
        width=width,
        frame=np.cumsum([0, *map(len, frames)]),
        document=columns[0],
        start=columns[1],
        length=columns[2],
        at=columns[3],
        address=columns[0] * 100 + columns[1],
        flags=columns[4].astype(np.uint8),
        seen=np.zeros(len(flat), np.int64),
        source=np.zeros(len(frames), np.int32),
    )


# row 0: two documents and filler; row 1: filler between; row 2: one document that goes on
ROWS = [
    [*document(1, 0, 3), *document(2, 0, 3), None, None],
    [*document(3, 4, 6), None, None, *document(4, 0, 4)],
    document(5, 2, 10),
]
SPANS = spans_of(
    [
        [(1, 0, 3, 0, 0), (2, 0, 3, 3, 0)],
        [(3, 4, 2, 0, 0), (4, 0, 4, 4, 0)],
        [(5, 2, 8, 0, 0)],
    ],
    width=8,
)


def right(**render):
    return {**made(ROWS, 8, **render), "spans": SPANS}


def broken(report):
    """Which laws are broken; each of them has a reported problem."""
    assert set(report.totals) == {problem.law for problem in report.problems}
    return set(report.totals)


# -- right batches ---------------------------------------------------------------------------


@st.composite
def any_rows(draw, width):
    """Rows of documents and filler, anywhere."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        row = []
        while len(row) < width:
            size = draw(st.integers(1, 5))
            first = draw(st.integers(0, 3))
            number = len(found) * 100 + len(row)
            row += draw(st.sampled_from([[None] * size, document(number, first, first + size)]))
        found.append(row[:width])
    return found


renders = st.fixed_dictionaries(
    {
        "label_layout": st.sampled_from(["aligned", "shifted"]),
        "position_scheme": st.sampled_from(["reset", "absolute"]),
        "mask_boundary_loss": st.booleans(),
        "ignore_id": st.sampled_from([None, 1, 11]),
        "pad_id": st.sampled_from([0, -1, 77]),
    }
)


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), any_rows(n + 1))), renders)
def test_what_the_slow_oracle_makes_is_right(shape, render):
    seq_len, rows = shape
    if render["label_layout"] == "aligned":
        rows = [row[:seq_len] for row in rows]
    batch = made(rows, seq_len, **render)
    assume(batch["loss_mask"].any())
    layout = render["label_layout"]
    report = check_batch(batch, label_layout=layout, strict=render["mask_boundary_loss"])
    assert report.ok, report
    assert {*report.checked, "spans"} == {*LAWS}
    facts = report.facts
    assert (facts.rows, facts.seq_len, facts.label_layout) == (len(rows), seq_len, layout)
    assert facts.trained_tokens == batch["loss_mask"].sum()
    assert facts.documents == (batch["document_starts"] >= 0).sum()
    assert facts.fill == pytest.approx((batch["segment_ids"] > 0).mean())
    assert render["position_scheme"] in facts.positions


def test_tensors_and_objects_are_judged_like_arrays():
    batch = right()
    tensors = {n: torch.as_tensor(v) for n, v in batch.items() if n != "spans"}
    tensors["loss_weights"] = tensors["loss_weights"].to(torch.bfloat16)
    for same in (SimpleNamespace(**batch), {**tensors, "spans": SPANS}):
        assert check_batch(same) == check_batch(batch)
    tensors["position_ids"][1, 2] = 7
    assert broken(check_batch(tensors)) == {"position_ids"}


def test_rows_that_are_folded_for_accumulation_are_judged_with_their_starts():
    rows = [[*row] for row in ROWS] + [ROWS[0]]
    batch = made(rows, 8)
    folded = {
        name: array.reshape(2, 2, -1)
        for name, array in batch.items()
        if name not in ("cu_seqlens", "max_seqlen")
    }
    report = check_batch(folded)
    assert report.ok, report
    assert "document_starts" in report.checked
    assert report.facts.rows == 4
    folded["document_starts"] = folded["document_starts"][:1]
    assert broken(check_batch(folded)) == {"shape"}


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
def test_masks_of_ones_and_zeros_are_masks(dtype):
    batch = right()
    for name in ("loss_mask", "attention_mask", "continues"):
        batch[name] = batch[name].astype(dtype)
    assert check_batch(batch) == check_batch(right())
    batch["loss_mask"] = 1 - batch["loss_mask"]
    assert "loss_mask" in broken(check_batch(batch))
    assert check_batch(batch).problems[0].found == "False"


def test_a_batch_as_hugging_face_makes_it_is_judged_by_what_it_has():
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]),
        "labels": torch.tensor([[5, 6, 7, -100], [8, 9, 10, 11]]),
    }
    report = check_batch(batch)
    assert report.ok, report
    assert report.checked == ("tokens", "labels", "filler", "trained")
    assert "not checked, arrays are missing: segment_ids, attention_mask" in str(report)
    assert report.facts.positions is None
    assert report.facts.trained_tokens == 5  # a model drops the first label
    batch["labels"][0, 0] = 6
    first = check_batch(batch).problems[0]
    assert str(first) == "row 0, cell 0: found 6, right is -100 or 5"
    batch["labels"][0, 0] = 5
    batch["labels"][0, 3] = 0  # trains on padding
    assert broken(check_batch(batch, strict=False)) == {"filler"}


def test_document_starts_alone_say_which_documents_there_are():
    """What somebody with Hugging Face datasets has: starts, but no segments."""
    batch = {
        "input_ids": np.array([[5, 6, 7, 8, 0]]),
        "attention_mask": np.array([[1, 1, 1, 1, 0]]),
        "document_starts": np.array([[0, 2, -1]]),
        "position_ids": np.array([[0, 1, 0, 1, 0]]),
        "labels": np.array([[-100, 6, -100, 8, -100]]),
    }
    report = check_batch(batch)
    assert report.ok, report
    assert {"segment_ids", "position_ids", "boundary", "document_starts"} <= set(report.checked)
    assert report.facts.documents == 2
    leaking = batch | {"labels": np.array([[-100, 6, 7, 8, -100]])}
    assert broken(check_batch(leaking)) == {"boundary"}
    going_on = batch | {"position_ids": np.array([[0, 1, 2, 3, 0]])}
    assert broken(check_batch(going_on)) == {"position_ids"}
    outside = batch | {"document_starts": np.array([[0, 2, 5]])}
    assert broken(check_batch(outside)) == {"document_starts"}


def test_shifted_labels_taken_for_aligned_ones_are_found():
    batch = made(ROWS, 8, label_layout="shifted")
    assert check_batch(batch, label_layout="shifted").ok
    assert "labels" in broken(check_batch(batch))
    aligned = check_batch(right(), label_layout="shifted")
    assert "labels" in broken(aligned)


@pytest.mark.parametrize(
    ("schemes", "told"),
    [
        (["reset", "reset", "reset"], "reset"),
        (["absolute", "absolute", "absolute"], "absolute"),
        (["reset", "absolute", "reset"], "mixed"),
    ],
)
def test_the_position_scheme_is_told_row_by_row(schemes, told):
    batch = right()
    for row, scheme in enumerate(schemes):
        batch["position_ids"][row] = right(position_scheme=scheme)["position_ids"][row]
    report = check_batch(batch)
    assert report.ok, report
    assert report.facts.positions == told
    one = {"segment_ids": np.ones((2, 3), int), "position_ids": np.tile(np.arange(3), (2, 1))}
    assert check_batch(one).facts.positions == "reset or absolute"


@pytest.mark.parametrize("name", ["loss_mask", "labels", "loss_weights"])
def test_each_array_of_the_loss_tells_alone_what_is_trained(name):
    batch = right()
    alone = {one: batch[one] for one in ("tokens", "segment_ids", name)}
    report = check_batch(alone)
    assert report.ok, report
    assert report.facts.trained_tokens == batch["loss_mask"].sum()
    assert {"filler", "boundary", "trained"} <= set(report.checked)
    nothing = alone | {name: np.full_like(batch[name], -100 if name == "labels" else 0)}
    assert broken(check_batch(nothing)) == {"trained"}


# -- wrong batches ---------------------------------------------------------------------------


def put(name, place, value):
    def change(batch):
        batch[name][place] = value

    return change


def train(place, *, label=None):
    """A loss at a cell, said by mask, weights and label alike."""

    def change(batch):
        row, cell = place
        batch["loss_mask"][place] = True
        batch["loss_weights"][place] = 1
        batch["labels"][row, cell + 1] = batch["tokens"][row, cell + 1] if label is None else label

    return change


def without_loss(batch):
    batch["loss_mask"][:] = False
    batch["loss_weights"][:] = 0
    batch["labels"][:] = -100


def unmasked(batch):
    batch["loss_mask"][0, 0] = False
    batch["loss_weights"][0, 0] = 0


def renumbered(batch):
    batch["segment_ids"][batch["segment_ids"] == 2] = 3


def counted_on(batch):
    batch["segment_ids"][2] = 2  # ids do not restart in the row


def narrow(batch):
    """No room for the second document of a row."""
    for name in ("document_starts", "continues"):
        batch[name] = batch[name][:, :1]


def negative(batch):
    batch["tokens"][0, 1] = batch["labels"][0, 1] = -5


def swap(name, make):
    def change(batch):
        batch[name] = make(batch[name])

    return change


def moved(spans):
    at = spans.at.copy()
    at[3] = 3  # in row 1 the second document is at 4
    return replace(spans, at=at)


BREAKS = [  # law, change
    ("shape", swap("segment_ids", lambda a: a[:, :-1])),
    ("shape", swap("labels", lambda a: a[:2])),
    ("shape", swap("document_starts", lambda a: a[:2])),
    ("shape", swap("cu_seqlens", lambda a: a[None])),
    ("shape", swap("max_seqlen", lambda a: [a])),
    ("dtype", swap("tokens", lambda a: a.astype(np.float32))),
    ("dtype", swap("position_ids", lambda a: a.astype(np.float64))),
    ("dtype", swap("attention_mask", lambda a: a.astype(np.int64) * 2)),
    ("dtype", swap("loss_weights", lambda a: a.astype(str))),
    ("tokens", negative),
    ("segment_ids", renumbered),
    ("segment_ids", counted_on),
    ("attention_mask", put("attention_mask", (1, 3), True)),
    ("attention_mask", put("attention_mask", (2, 7), False)),
    ("position_ids", put("position_ids", (0, 1), 2)),
    ("position_ids", put("position_ids", (1, 3), 0)),
    ("labels", put("labels", (0, 1), 99)),
    ("labels", put("labels", (2, 0), 53)),
    ("loss_mask", unmasked),
    ("loss_weights", put("loss_weights", (0, 0), -1)),
    ("loss_weights", put("loss_weights", (0, 0), 0)),
    ("loss_weights", put("loss_weights", (0, 2), 0.5)),
    ("loss_weights", put("loss_weights", (0, 2), -0.5)),
    ("loss_weights", put("loss_weights", (0, 0), np.nan)),
    ("loss_weights", put("loss_weights", (0, 0), np.inf)),
    ("filler", train((0, 5))),
    ("filler", train((0, 6))),
    ("filler", train((1, 3))),
    ("boundary", train((0, 2))),
    ("trained", without_loss),
    ("document_starts", put("document_starts", (0, 1), 2)),
    ("document_starts", put("document_starts", (2, 1), 5)),
    ("document_starts", put("document_starts", (1, slice(None)), [4, 0])),
    ("document_starts", narrow),
    ("continues", put("continues", (2, 1), True)),
    ("continues", put("continues", (2, 0), False)),
    ("continues", put("continues", (0, 1), True)),
    ("continues", swap("continues", lambda a: a[:, :1])),
    ("cu_seqlens", put("cu_seqlens", 1, 2)),
    ("cu_seqlens", swap("cu_seqlens", lambda a: a[:-1])),
    ("max_seqlen", swap("max_seqlen", lambda a: a + 1)),
    ("max_seqlen", swap("max_seqlen", lambda a: a - 1)),
    ("spans", swap("spans", moved)),
    ("spans", swap("spans", lambda s: replace(s, at=s.at + 1))),
    ("spans", swap("spans", lambda s: replace(s, length=s.length - 1))),
    ("spans", swap("spans", lambda s: s.frames(0, 2))),
]


def test_the_batch_that_is_broken_below_is_right():
    report = check_batch(right(), seq_len=8)
    assert report.ok, report
    assert report.raise_if_wrong() is report
    facts = report.facts
    assert (facts.rows, facts.seq_len, facts.documents, facts.trained_tokens) == (3, 8, 5, 15)


@pytest.mark.parametrize(("law", "change"), BREAKS)
def test_a_batch_that_breaks_one_law_is_found_to_break_that_one(law, change):
    batch = copy.deepcopy(right())
    change(batch)
    report = check_batch(batch)
    assert broken(report) == {law}, report
    assert not report.ok
    with pytest.raises(ValueError, match=law):
        report.raise_if_wrong()


LAWS = check_batch(right()).checked


def test_every_law_is_broken_by_some_test():
    assert {law for law, _ in BREAKS} == {*LAWS, "shape", "dtype"}


def test_filler_of_minus_one_is_found():
    """C-61: some stacks pad with -1; a mask `segment > 0` would still look right."""
    batch = {"segment_ids": np.array([[1, 1, -1, -1]])}
    problems = check_batch(batch).problems
    assert [(p.row, p.cell, p.found) for p in problems] == [(0, 2, "-1")]


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_last_cell_has_a_target_only_with_a_look_ahead(lookahead):
    rows = [document(1, 0, 4 + lookahead)]
    layout = {"label_layout": "shifted"}
    batch = made(rows, 4, **layout)
    assert batch["loss_mask"][0, 3] == lookahead
    assert check_batch(batch, **layout).ok
    if lookahead:
        batch["labels"][0, 3] = 0  # an id like any other
        assert check_batch(batch, **layout).ok
    batch["labels"][0, 3] = -7
    assert "labels" in broken(check_batch(batch, **layout))
    alone = {"loss_mask": np.array([[True, True]])}
    assert broken(check_batch(alone)) == {"loss_mask"}
    assert check_batch(alone, **layout).ok


def test_a_loss_across_documents_is_counted_and_only_an_error_when_strict():
    batch = right(mask_boundary_loss=False)
    strict, lenient = check_batch(batch), check_batch(batch, strict=False)
    assert broken(strict) == {"boundary"}
    assert "found a loss from document 1 to 2, right is no loss there" in str(strict)
    assert lenient.ok
    assert lenient.facts.boundary_trained == strict.facts.boundary_trained == 1


@pytest.mark.parametrize(
    "change",
    [
        put("position_ids", (1, 3), 9),
        swap("max_seqlen", lambda a: a + 1),
    ],
)
def test_without_strict_what_trains_no_wrong_token_is_forgiven(change):
    batch = copy.deepcopy(right())
    change(batch)
    assert not check_batch(batch).ok
    assert check_batch(batch, strict=False).ok


NOTICED = ("segment_ids", "labels", "loss_mask", "attention_mask", "document_starts", "cu_seqlens")


@given(st.data())
def test_no_single_wrong_cell_stays_unnoticed(data):
    seq_len = data.draw(st.integers(2, 8))
    batch = made(data.draw(any_rows(seq_len)), seq_len)
    assume(batch["loss_mask"].any())
    name = data.draw(st.sampled_from(NOTICED))
    place = tuple(data.draw(st.integers(0, size - 1)) for size in batch[name].shape)
    before = batch[name][place]
    batch[name][place] = ~before if before.dtype == bool else before + data.draw(st.integers(1, 3))
    assert not check_batch(batch).ok


def test_places_are_named_by_what_they_are():
    batch = right()
    batch["document_starts"][0, 1] = 2
    batch["cu_seqlens"][1] = 2
    text = str(check_batch(batch))
    assert "row 0, document 1: found 2, right is 3" in text
    assert "edge 1: found 2, right is 3" in text


def test_another_length_than_expected_is_found():
    problem = check_batch(right(), seq_len=16).problems[0]
    assert (problem.law, str(problem)) == (
        "shape",
        "batch: found rows of 8 cells, right is seq_len 16",
    )


def test_a_batch_without_a_loss_is_found():
    with ToyStore(numbered([[1, 1, 1, 1]])) as toy:
        batch = toy.store.windows(4)[0]
        report = check_batch(batch)
        assert broken(report) == {"trained"}


@pytest.mark.parametrize("nothing", [{}, {"text": ["a"]}, {"tokens": [1, 2]}, SimpleNamespace()])
def test_what_has_nothing_to_judge_is_refused(nothing):
    refused(lambda: check_batch(nothing), tl.ConfigError, "batch")


def test_an_unknown_layout_is_refused_with_the_near_miss():
    wrong = {"label_layout": "shift"}
    refused(lambda: check_batch(right(), **wrong), tl.ConfigError, "label_layout", "'shift'")


def test_an_array_is_not_changed_by_looking_at_it():
    batch = right()
    kept = copy.deepcopy(batch)
    for how in ({}, {"strict": False}, {"label_layout": "shifted"}):
        check_batch(batch, **how)
    for name, array in kept.items():
        if name != "spans":
            np.testing.assert_array_equal(batch[name], array)
