"""The rows of the checklist about evaluation, each with its worked value."""

import math
import re

import numpy as np
import pytest
from markov import Markov

import tokenloom as tl
from tokenloom.evaluate import content_hash, evaluate, learned, one_document_rows, pz, token_page


def uniform(size):
    return lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, size))


def store_of(folder, lengths, size=12):
    rng = np.random.default_rng(5)
    rows = [{"input_ids": rng.integers(0, size, n).tolist()} for n in lengths]
    return tl.build(rows, folder / "store", tokenizer=None, vocab_size=size)


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path, (40, 20, 33))


def test_ev_01_windows_of_100_tokens_half_of_them_given_every_5(tmp_path):
    made = store_of(tmp_path, (4096, 105, 99))
    with pytest.warns(UserWarning, match="1 document of 3 shorter than prefix"):
        found = pz(Markov(), made, progress=False)
    counts = {n: one["windows"] for n, one in found.by_document().items()}
    assert counts == {0: 800, 1: 2, 2: 0}
    # P(z) is the exponential of the sum over the suffix, given the prefix
    chain, tokens = Markov().table.astype(np.float64), made[1]
    log_probs = chain - np.log(np.exp(chain).sum(1, keepdims=True))
    wanted = [
        sum(log_probs[tokens[t + 49 + i], tokens[t + 50 + i]] for i in range(50)) for t in (0, 5)
    ]
    np.testing.assert_allclose(
        found.windows.log_pz[found.windows.document == 1], wanted, rtol=1e-12
    )


def test_ev_02_ten_tokens_all_alike_give_a_suffix_of_two_a_hundredth(tmp_path):
    found = pz(uniform(10), store_of(tmp_path, (20, 9), 10), prefix=3, suffix=2, progress=False)
    whole = found.summary()
    assert len(found) == whole["windows"] == 5
    assert abs(found.windows.log_pz + 2 * math.log(10)).max() <= math.ulp(2 * math.log(10))
    for name in ("mean_pz", "median_pz", "max_pz"):
        assert abs(whole[name] - 0.01) < 1e-15
    assert sum(count for *_, count in found.histogram()) == 5


def test_ev_03_documents_have_their_own_figures_and_their_own_moment(store):
    probabilities = pz(Markov(), store, prefix=4, suffix=4, progress=False).by_document()
    losses = evaluate(Markov(), store, seq_len=16, progress=False).by("document")
    assert list(probabilities) == list(losses) == [0, 1, 2]
    steps = [
        {"step": step, "results": {"a": evaluate(scaled(step), store, seq_len=16).as_json()}}
        for step in (1, 2, 4)
    ]
    found = learned(steps, "a", line=2.4)
    assert {one.document for one in found.documents} == {"0", "1", "2"}


def scaled(step):
    chain = Markov()
    chain.table = chain.table / step
    return chain


def test_ev_04_every_trained_token_is_in_one_document_and_one_bin(store):
    run = store.pack(16)
    found = evaluate(Markov(), run, progress=False)
    for axis in ("document", "source", "index", "position", "context", "start"):
        assert sum(one["tokens"] for one in found.by(axis).values()) == found.all["tokens"]
    assert found.all["tokens"] == run[0 : len(run)].loss_tokens


def test_ev_05_a_few_offsets_have_a_loss_each(store):
    places = np.random.default_rng(1).normal(size=(64, 12))

    def absolute(tokens, segment_ids, position_ids):
        return Markov()(tokens, segment_ids, position_ids) + places[position_ids]

    ask = {"prefix": 4, "suffix": 4, "offsets": (0, 8, 16), "progress": False}
    same = pz(Markov(), store, **ask).by_offset()
    other = pz(absolute, store, **ask).by_offset()
    assert list(same) == [0, 8, 16]
    assert len({one["loss"] for one in same.values()}) == 1
    assert len({one["loss"] for one in other.values()}) == 3
    assert "loss of suffix tokens by frame offset" in "\n".join(pz(Markov(), store, **ask).lines())


def test_ev_06_splices_that_start_later_are_reported_apart(store):
    run = store.splice(12, content_length=8, content_stride=4)
    found = evaluate(Markov(), run, by=("start",), progress=False).by("start")
    spans = run[0 : len(run)].spans
    first = int((spans.start == 0).sum())
    assert next(iter(found)) == "0"
    assert found["0"]["tokens"] == 7 * first  # the first token of a splice is not predicted
    assert sum(one["tokens"] for one in found.values()) == 7 * len(spans)


def test_ev_07_how_training_is_packed_leaves_evaluation_rows_alone(tmp_path, store):
    rows = one_document_rows(store, 16)
    before = rows.digest(0, len(rows)), content_hash(rows)
    for other in (store.pack(32, strategy="greedy"), store.windows(8), store.pack(16).shuffle()):
        assert content_hash(other) == before[1]
        again = one_document_rows(store, 16)
        assert (again.digest(0, len(again)), content_hash(again)) == before
    assert {len(set(rows[n].spans.document.tolist())) for n in range(len(rows))} == {1}


def test_ev_08_duplicates_stay_on_one_side_of_a_hold_out(tmp_path):
    texts = [{"text": f"text {n % 60} of the loom"} for n in range(240)]  # each four times
    store = tl.build(texts, tmp_path / "copies", tokenizer="bytes")
    parts = store.split({"train": 0.8, "held": 0.2}, by="content")
    sides = {name: {bytes(store[n].tolist()) for n in one.indices} for name, one in parts.items()}
    assert not sides["train"] & sides["held"]
    assert len(sides["train"]) + len(sides["held"]) == 60
    assert sum(len(one.indices) for one in parts.values()) == 240
    naive = store.split({"train": 0.8, "held": 0.2}, by="id")  # the control: by number they cross
    naive = {name: {bytes(store[n].tolist()) for n in one.indices} for name, one in naive.items()}
    assert naive["train"] & naive["held"]


def test_ev_10_a_page_has_every_token_of_the_document(store):
    page = token_page(Markov(), store, 0, seq_len=16)
    assert len(re.findall(r"<i title=", page.html())) == 40
    assert len(list(page.lines())) == 41  # a head
    assert "://" not in page.html()


def test_ev_11_bits_per_byte_are_nats_over_ln_2_over_bytes(tmp_path):
    store = tl.build([{"text": "abcde"}], tmp_path / "bytes", tokenizer="bytes")
    found = evaluate(uniform(256), store, seq_len=8, progress=False).all
    assert (found["tokens"], found["bits_per_byte"]) == (4, 8.0)


def test_sm_29_p_z_runs_on_one_document_and_on_several(store):
    several = pz(Markov(), store, prefix=4, suffix=4, progress=False)
    for number in range(3):
        alone = pz(Markov(), store.select(doc_index=number), prefix=4, suffix=4, progress=False)
        mine = several.windows.document == number
        assert (alone.windows.log_pz == several.windows.log_pz[mine]).all()
