"""Rows that are wholly blank, of a source whose store says which tokens are trained on."""

import json

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.exchange import export

S, FILLED = 16, 4000

FETCH = ("auto", "rows", "blocks")


@pytest.fixture
def run(tmp_path):
    """Document 1 of "chat", most of its tokens, is quarantined; "web" has no loss column."""
    chat = [{"input_ids": [7] * n, "loss_mask": [0, 1] * (n // 2)} for n in (30, 2000, 30, 30)]
    web = [{"input_ids": [5] * FILLED}]
    stores = {
        name: tl.build(records, tmp_path / name, tokenizer=None, vocab_size=99)
        for name, records in (("chat", chat), ("web", web))
    }
    layouts = {"chat": stores["chat"].pack(S).shuffle(), "web": stores["web"].windows(S).shuffle()}
    return tl.mix(layouts).edit(at=0, quarantine=[("chat", 1)])


@pytest.mark.filterwarnings("ignore")
def test_every_row_is_delivered_alone_and_its_weights_are_those_of_the_whole_batch(run):
    whole = run.batch(range(len(run)))
    blank = (whole.segment_ids == 0).all(axis=1)
    assert blank.sum() > 100
    for index in range(len(run)):
        alone = run.batch([index])
        np.testing.assert_array_equal(alone.loss_weights[0], whole.loss_weights[index])
    assert not whole.loss_weights[blank].any()
    assert whole.loss_mask.sum() > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fetch", FETCH)
@pytest.mark.parametrize("world_size", [1, 4])
def test_loaders_deliver_steps_whose_rows_of_the_source_are_all_blank(run, world_size, fetch):
    expected = run.batch(range(len(run) // 8 * 8)).labels
    ranks = [
        [batch.labels for batch in tl.Loader(run, 8, rank=rank, world_size=world_size, fetch=fetch)]
        for rank in range(world_size)
    ]
    steps = [np.concatenate(shares) for shares in zip(*ranks, strict=True)]
    np.testing.assert_array_equal(np.concatenate(steps), expected)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "uint16", "uint8", "float32"])
@pytest.mark.parametrize("fetch", FETCH)
def test_a_loss_column_may_be_stored_in_any_dtype(tmp_path, dtype, fetch):
    mask = [0, 1] * 16
    records = [{"input_ids": list(range(32)), "loss_mask": mask}]
    store = tl.build(records, tmp_path / "store", tokenizer=None, vocab_size=99)
    export(store, tmp_path / "arrays", to="npy")
    mark = tmp_path / "arrays" / "export.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"columns": {"loss_mask": dtype}}))
    np.save(tmp_path / "arrays" / "loss_mask.npy", np.array(mask, dtype))
    run = tl.open(tmp_path / "arrays").windows(8)
    (batch,) = tl.Loader(run, 4, fetch=fetch)
    # the target of cell i is token i + 1, and the last cell has none
    assert batch.loss_mask.tolist() == [[True, False, True, False, True, False, True, False]] * 4


@pytest.mark.filterwarnings("ignore")
def test_an_audit_reads_such_rows_too(tmp_path):
    """The rows [100, 110) are blank; an audit compares what stands in them with the store."""
    records = [{"input_ids": [7] * n, "loss_mask": [1] * n} for n in (32, 2000)]
    store = tl.build(records, tmp_path / "store", tokenizer=None, vocab_size=99)
    run = tl.mix({"chat": store.windows(S)}).edit(at=0, quarantine=[("chat", 1)])
    audit = run.audit(100, 110)
    assert audit.ok, audit
