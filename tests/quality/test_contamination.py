"""The probe passes a model that keeps documents apart, and fails every one that does not."""

import numpy as np
import pytest
import tinymodel
import torch
from tinymodel import VOCAB, TinyModel, as_model, field

import tokenloom as tl
from tokenloom.batch import attention
from tokenloom.quality import alone_probe, leak_probe

NET = TinyModel()
LENGTHS = [[5, 7, 1, 3], [9, 5], [16]]  # documents of rows of 16 cells; the rest is filler


def packed(lengths=LENGTHS, cells=16, first=0):
    """A batch of plain arrays: rows of documents, with `first` cells of filler before them."""
    rows, position = [], []
    for documents in lengths:
        row = [0] * first + [n for n, size in enumerate(documents, 1) for _ in range(size)]
        row += [0] * (cells - len(row))
        rows.append(row)
        sizes = np.diff(attention.cu_seqlens(np.array([row])))
        position.append([k for size in sizes for k in range(size)])
    ids = np.array(rows, np.int32)
    tokens = np.random.Generator(np.random.PCG64(3)).integers(0, VOCAB, ids.size)
    return {
        "tokens": tokens.astype(np.int32).reshape(ids.shape),
        "segment_ids": ids,
        "position_ids": np.array(position, np.int32),
    }


@pytest.fixture(autouse=True)
def _one_thread():
    """The model is so small that threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- the sound model --------------------------------------------------------------------------


def test_documents_do_not_meet_under_the_block_diagonal_mask():
    """BC-25: changing document 1 leaves the logits of document 2 as they are."""
    report = leak_probe(as_model(NET), packed(), vocab_size=VOCAB)
    assert report.ok, report
    assert report.leaks == report.doubts == ()
    assert len(report.changes) == 8  # seven documents and one stretch of filler
    first = next(c for c in report.changes if (c.row, c.document) == (0, 1))
    assert (first.first, first.stop) == (0, 5)
    assert [seen.document for seen in first.others] == [2, 3, 4]
    assert max(seen.difference for seen in first.others) <= 1e-5 < first.own
    assert alone_probe(as_model(NET), packed()).ok


@pytest.mark.parametrize("first", [0, 2])
def test_filler_moves_no_document(first):
    report = leak_probe(as_model(NET), packed([[5, 4], [3]], first=first), vocab_size=VOCAB)
    assert report.ok, report
    filler = [change for change in report.changes if change.document == 0]
    assert len(filler) == (4 if first else 2)
    moved = [seen.difference for change in filler for seen in change.others]
    assert moved
    assert max(moved) == 0


def test_tensors_and_single_precision_are_probed_as_well():
    batch = {name: torch.from_numpy(array).long() for name, array in packed().items()}
    batch["input_ids"] = batch.pop("tokens")
    model = as_model(TinyModel(dtype=torch.float32))
    assert leak_probe(model, batch, vocab_size=VOCAB).ok
    assert alone_probe(model, batch).ok
    assert not leak_probe(as_model(NET, segment_masking=False), batch, vocab_size=VOCAB).ok


def test_a_batch_of_ours_is_probed(tmp_path):
    texts = [
        {"text": text} for text in ("one", "the second", "3rd", "a fourth one", "five and six")
    ]
    dataset = tl.build(texts, tmp_path / "toy", tokenizer="bytes").windows(16)
    batch = dataset.batch([0, 1])

    def folded(model):  # bytes are more than the model knows
        return lambda tokens, batch: model(tokens % VOCAB, batch)

    assert leak_probe(folded(as_model(NET)), batch, vocab_size=256).ok
    assert not leak_probe(folded(as_model(NET, segment_masking=False)), batch, vocab_size=256).ok
    assert alone_probe(folded(as_model(NET)), batch).ok


# -- unsound models ---------------------------------------------------------------------------


def test_positions_that_start_anew_do_not_keep_documents_apart():
    """C-42: resets with a plain causal mask leak, whatever the positions say."""
    report = leak_probe(as_model(NET, segment_masking=False), packed(), vocab_size=VOCAB)
    assert not report.ok
    leaking = {(c.row, c.document, seen.row, seen.document) for c, seen in report.leaks}
    # every document reaches all that come after it in its row, and no other
    assert leaking == {(0, a, 0, b) for a in range(1, 5) for b in range(a + 1, 5)} | {(1, 1, 1, 2)}
    assert not alone_probe(as_model(NET, segment_masking=False), packed()).ok


def test_a_mask_that_is_one_cell_off_is_found():
    def late(tokens, batch):  # documents begin one cell too late, as with edges that are off by one
        ids = np.roll(batch["segment_ids"], 1, axis=1)
        ids[:, 0] = batch["segment_ids"][:, 0]
        return as_model(NET)(tokens, {**batch, "segment_ids": ids})

    report = leak_probe(late, packed(), vocab_size=VOCAB)
    assert report.leaks
    assert not alone_probe(late, packed()).ok


def test_a_state_that_runs_on_from_the_last_token_is_found():
    def convolved(tokens, batch):
        logits = as_model(NET)(tokens, batch)
        return logits + 0.01 * torch.roll(logits, 1, dims=1)

    report = leak_probe(convolved, packed(), vocab_size=VOCAB)
    assert (0, 1, 2) in {(c.row, c.document, seen.document) for c, seen in report.leaks}
    assert (0, 1, 3) not in {(c.row, c.document, seen.document) for c, seen in report.leaks}


def test_rows_that_meet_are_found():
    def meeting(tokens, batch):
        logits = as_model(NET)(tokens, batch)
        return logits - 0.1 * logits.mean(0, keepdim=True)  # as a norm over the batch does

    report = leak_probe(meeting, packed([[16], [16]]), vocab_size=VOCAB)
    assert {(c.row, seen.row) for c, seen in report.leaks} == {(0, 1), (1, 0)}


def test_filler_that_documents_look_at_is_found():
    def unmasked(tokens, batch):
        ids = np.ones_like(batch["segment_ids"])
        return as_model(NET)(tokens, {**batch, "segment_ids": ids})

    report = leak_probe(unmasked, packed([[6], [6]], first=3), vocab_size=VOCAB)
    assert {(c.document, seen.document) for c, seen in report.leaks} == {(0, 1)}


# -- probes that prove nothing ----------------------------------------------------------------


def test_a_model_that_ignores_its_input_proves_nothing():
    def deaf(tokens, batch):
        return np.tile(np.arange(VOCAB, dtype=np.float32), (*tokens.shape, 1))

    report = leak_probe(deaf, packed(), vocab_size=VOCAB)
    assert not report.ok
    assert report.leaks == ()
    assert report.doubts
    assert not alone_probe(deaf, packed()).ok


def test_a_model_that_takes_its_tokens_from_the_batch_proves_nothing():
    report = leak_probe(lambda _, batch: as_model(NET)(batch["tokens"], batch), packed())
    assert not report.ok
    assert report.leaks == ()


def test_a_model_without_context_proves_nothing():
    report = leak_probe(lambda tokens, _: np.eye(VOCAB)[tokens], packed(), vocab_size=VOCAB)
    assert (report.ok, len(report.doubts)) == (False, 1)


def test_a_batch_without_two_documents_in_a_row_proves_nothing():
    report = leak_probe(as_model(NET), packed([[16], [9]]), vocab_size=VOCAB)
    assert (report.ok, len(report.doubts)) == (False, 1)
    assert not alone_probe(as_model(NET), packed([[16], [16]])).ok
    single = leak_probe(as_model(NET), packed([[1, 1, 1]]), vocab_size=VOCAB)
    assert np.isnan(single.context)
    assert not single.ok


def test_nan_is_never_taken_for_silence():
    def poisoned(tokens, batch):
        logits = as_model(NET)(tokens, batch)
        logits[0, 6:7] = float("nan")
        return logits

    report = leak_probe(poisoned, packed(), vocab_size=VOCAB)
    assert {(seen.row, seen.document) for _, seen in report.leaks} == {(0, 2)}
    assert not alone_probe(poisoned, packed()).ok


def recording():
    """A model that keeps what it is called with."""
    calls = []

    def model(tokens, batch):
        calls.append(tokens)
        return as_model(NET)(tokens, batch)

    return model, calls


@pytest.mark.parametrize("vocab_size", [None, VOCAB, 2])
def test_every_token_of_one_stretch_and_no_other_is_changed(vocab_size):
    batch = packed()
    if vocab_size == 2:
        batch["tokens"] %= 2
    model, calls = recording()
    report = leak_probe(model, batch, vocab_size=vocab_size)
    before, *changed, firsts = calls
    np.testing.assert_array_equal(before, batch["tokens"])
    for tokens, change in zip(changed, report.changes, strict=True):
        other = np.zeros_like(tokens, bool)
        other[change.row, change.first : change.stop] = True
        np.testing.assert_array_equal(tokens != before, other)
        assert tokens.dtype == np.int32
        assert tokens.min() >= 0
        assert tokens.max() < (vocab_size or batch["tokens"].max() + 1)
    begins = (batch["position_ids"] == 0) & (batch["segment_ids"] > 0)
    np.testing.assert_array_equal(firsts != before, begins)


def test_the_same_seed_changes_the_same_and_another_one_does_not():
    def calls(seed):
        model, found = recording()
        leak_probe(model, packed(), seed=seed, trials=3)
        return np.array(found).tolist()

    assert calls(1) == calls(1) != calls(2)


def test_few_trials_try_each_kind_and_first_what_could_leak():
    for seed in range(8):
        report = leak_probe(as_model(NET), packed(), trials=3, seed=seed, vocab_size=VOCAB)
        one, two, three = report.changes
        assert report.ok
        assert (one.row, one.document) in [(0, 1), (0, 2), (0, 3), (1, 1)]
        assert (two.row, two.document) in [(0, 4), (1, 2), (2, 1)]
        assert three.document == 0


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 0}, "trials: found 0, allowed: 1 or more"),
        ({"tolerance": -1.0}, "tolerance: found -1.0"),
        ({"vocab_size": 5}, "vocab_size: found 5, allowed: 23 or more"),
        ({"seed": -1}, "seed: found -1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(change, message):
    with pytest.raises(tl.ConfigError, match=message):
        leak_probe(as_model(NET), packed(), **change)


def test_a_batch_without_segments_and_a_model_without_logits_are_refused():
    batch = packed()
    with pytest.raises(tl.ConfigError, match=r"tokens \[3, 16\] and segment_ids None"):
        leak_probe(as_model(NET), {"tokens": batch["tokens"]})
    with pytest.raises(tl.ConfigError, match=r"model: found a result of shape \[3, 16\]"):
        leak_probe(lambda tokens, _: tokens, batch)


def test_the_tiny_model_depends_on_positions_only_by_their_distance():
    """RoPE: moved positions change nothing, others do; so resets alone say nothing about masks."""
    batch = packed()
    mask = torch.from_numpy(attention.dense_mask(batch["segment_ids"]))
    tokens, at = field(batch, "tokens"), field(batch, "position_ids")
    with torch.no_grad():
        logits, moved, other = (NET(tokens, p, mask) for p in (at, at + 7, at * 2))
    torch.testing.assert_close(logits, moved)
    assert not torch.allclose(logits, other)
    assert tinymodel.LAYERS == 2
