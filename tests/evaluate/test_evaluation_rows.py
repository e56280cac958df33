"""Rows of documents that are evaluated: cut as training cuts them, every transition judged once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.evaluate import evaluate, learned, one_document_rows
from tokenloom.integrations.torch import dataloader

SIZE, SEQ_LEN = 500, 16
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 50, 100)


def store_of(folder, lengths=LENGTHS):
    """Documents in which no token appears twice, so that a token tells its place."""
    ends = np.cumsum(lengths)
    rows = [{"input_ids": list(range(end - n, end))} for n, end in zip(lengths, ends, strict=True)]
    return tl.build(rows, folder / "store", tokenizer=None, vocab_size=SIZE)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("rows"))


class Memory:
    """A model with learned positions: it knows what follows a token at the cell it was seen at."""

    def __init__(self, run, strength=20.0):
        self.table = np.zeros((run.seq_len, SIZE, SIZE), np.float32)
        for n in range(len(run)):
            batch = run[n]
            (cells,) = np.nonzero(batch.loss_mask[0])
            here, there = batch.tokens[0, cells], batch.tokens[0, cells + 1]
            self.table[batch.position_ids[0, cells], here, there] = strength
        self.seen = []

    def __call__(self, tokens, segment_ids, position_ids):
        self.seen.append((tokens.copy(), segment_ids.copy(), position_ids.copy()))
        return self.table[position_ids, tokens]


@pytest.mark.parametrize(
    "training",
    [
        lambda store: store.pack(SEQ_LEN),
        lambda store: store.pack(SEQ_LEN, strategy="one_doc"),
        lambda store: store.pack(SEQ_LEN, strategy="greedy").shuffle(),
    ],
    ids=["packed", "one document a row", "greedy"],
)
def test_tokens_are_judged_at_the_positions_where_training_showed_them(store, training):
    model = Memory(training(store))
    found = evaluate(model, store, seq_len=SEQ_LEN).all
    borders = sum((n - 1) // SEQ_LEN for n in LENGTHS)  # from one row to the next: not trained
    assert found["tokens"] == sum(n - 1 for n in LENGTHS)
    assert found["loss"] == pytest.approx(borders * math.log(SIZE) / found["tokens"], abs=1e-4)


def test_learned_says_when_a_model_with_learned_positions_knew_a_document(store):
    trained = Memory(store.pack(SEQ_LEN))
    records = [
        {"step": step, "results": {"held": evaluate(model, store, seq_len=SEQ_LEN).as_json()}}
        for step, model in ((0, Memory(store.pack(SEQ_LEN), strength=0.0)), (100, trained))
    ]
    found = learned(records, "held", line=1.0)
    assert {one.document for one in found.documents} == {
        str(number) for number, n in enumerate(LENGTHS) if n > 1
    }
    assert found.never == ()


@pytest.mark.parametrize("overlap", [0, 1, 7, SEQ_LEN - 1])
def test_a_model_is_shown_rows_from_multiples_of_their_length_on(store, overlap):
    model = Memory(store.pack(SEQ_LEN))
    evaluate(model, store, seq_len=SEQ_LEN, overlap=overlap, batch_size=5)
    step = SEQ_LEN - overlap
    shown = iter(
        row for batch in model.seen for row in zip(*batch, strict=True) if row[1].any()
    )  # rows of filler are not read
    for number, n in enumerate(LENGTHS):
        tokens = store[number]
        first = 0
        while True:
            row, segments, positions = next(shown)
            part = tokens[first : first + SEQ_LEN]
            assert row[: len(part)].tolist() == part.tolist()
            assert segments.tolist() == [1] * len(part) + [0] * (SEQ_LEN - len(part))
            assert positions[: len(part)].tolist() == list(range(len(part)))
            if first + SEQ_LEN + 1 >= n:  # with the token after the row, all have been judged
                break
            first += step
    assert next(shown, None) is None


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    seq_len=st.integers(2, 20),
    data=st.data(),
)
@settings(max_examples=15)
def test_every_transition_is_judged_once_with_enough_before_it(
    tmp_path_factory, lengths, seq_len, data
):
    overlap = data.draw(st.integers(0, seq_len - 1))
    store = store_of(tmp_path_factory.mktemp("law"), lengths)
    rows = one_document_rows(store, seq_len, overlap)
    judged = [np.zeros(n, int) for n in lengths]
    for n in range(len(rows)):
        batch = rows[n]
        (number,) = set(batch.spans.document.tolist())
        document, first = store[number], int(batch.spans.start[0])
        assert first % (seq_len - overlap) == 0
        assert batch.tokens[0].tolist()[: len(document) - first] == (
            document[first : first + seq_len].tolist()
        )
        for cell in np.flatnonzero(batch.labels[0] != -100).tolist():
            assert batch.labels[0, cell] == document[first + cell + 1]
            assert cell >= min(overlap, first)
            judged[number][first + cell + 1] += 1
    for one in judged:
        assert one.tolist() == [0] + [1] * (len(one) - 1)


def test_bits_per_byte_count_the_bytes_of_judged_tokens_alone(tmp_path):
    texts = ["to be or not to be", "é" * 20, "x", "that is the question, he said"]
    store = tl.build([{"text": text} for text in texts], tmp_path / "text", tokenizer="bytes")
    found = evaluate(lambda t, s, p: np.zeros((*t.shape, 256)), store, seq_len=8)
    assert found.all["tokens"] == sum(len(text.encode()) - 1 for text in texts)
    for one in (found.all, *found.by("document").values()):
        assert one["bits_per_byte"] == pytest.approx(8.0, rel=1e-12)


@pytest.mark.parametrize(
    "layout",
    [
        lambda store: store.pack(SEQ_LEN),
        lambda store: store.pack(SEQ_LEN, strategy="one_doc"),
        lambda store: store.pack(SEQ_LEN, strategy="one_doc", stride=1),
        lambda store: store.pack(SEQ_LEN, lookahead=True),
        lambda store: store.windows(SEQ_LEN, lookahead=True, tail="keep"),
    ],
)
def test_a_run_is_judged_as_it_is(store, layout):
    run = layout(store)
    model = Memory(store.pack(SEQ_LEN))
    found = evaluate(model, run)
    assert found.all["tokens"] == run.batch(range(len(run))).loss_tokens
    shown = np.concatenate([tokens for tokens, _, _ in model.seen])[: len(run)]
    assert shown.tolist() == run.batch(range(len(run))).tokens.tolist()


def test_a_row_for_models_that_shift_labels_is_the_same_without_the_token_after_it(store):
    rows = one_document_rows(store, SEQ_LEN)
    with pytest.raises(tl.ConfigError, match="label_layout"):
        next(iter(dataloader(rows, 4)))
    aligned = rows.render(label_layout="aligned")
    for batch in dataloader(aligned, 4, end="pad"):
        kept = batch["labels"] != -100
        assert bool((batch["labels"] == batch["input_ids"])[kept].all())
    whole = aligned.batch(range(len(aligned)))
    assert whole.tokens.tolist() == rows.batch(range(len(rows))).tokens.tolist()
    assert whole.loss_tokens == sum(n - 1 - (n - 1) // SEQ_LEN for n in LENGTHS)
