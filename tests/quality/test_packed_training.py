"""What a model learns from packed documents is what it learns from each alone."""

import numpy as np
import pytest
import torch
from tinymodel import TinyModel, as_model

import tokenloom as tl
from tokenloom.batch import attention
from tokenloom.quality import leak_probe
from tokenloom.testing import write_store

LENGTHS = [5, 9, 2, 14, 1, 7, 3, 12, 6, 4, 8, 2]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(1)
    documents = [rng.integers(1, 20, n).tolist() for n in LENGTHS]
    write_store(tmp_path / "s", [documents], inner=16, chunk_tokens=64, vocab_size=22)
    return tl.open(tmp_path / "s")


def losses(net, tokens, positions, mask, labels):
    """Loss of every label, -100 left out; labels are aligned, so the cell before predicts them."""
    logits = net(torch.tensor(tokens, dtype=torch.long), torch.tensor(positions), mask)
    flat = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]),
        torch.tensor(labels[:, 1:].reshape(-1), dtype=torch.long),
        ignore_index=-100,
        reduction="none",
    )
    return flat[torch.tensor(labels[:, 1:].reshape(-1)) != -100]


def gradients(net, loss):
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, net.parameters())])


@pytest.mark.parametrize("strategy", ["greedy", "first_fit", "best_fit_decreasing", "one_doc"])
@pytest.mark.parametrize(
    "specials", [{}, {"add_bos": True, "bos_id": 20, "add_eos": True, "eos_id": 21}]
)
def test_packed_losses_and_gradients_are_those_of_the_documents_alone(store, strategy, specials):
    net = TinyModel()
    run = store.pack(16, strategy=strategy, **specials)
    batch = run.batch(np.arange(len(run)))
    mask = torch.tensor(attention.dense_mask(batch.segment_ids))
    packed = losses(net, batch.tokens, batch.position_ids, mask, batch.labels)
    alone = []
    for number, length in enumerate(LENGTHS):
        tokens = store.document(number).tolist()
        if specials:
            tokens = [20, *tokens, 21]
        assert len(tokens) == length + len(specials) // 2
        row = np.array([tokens])
        causal = torch.ones(1, len(tokens), len(tokens), dtype=torch.bool).tril()
        labels = np.concatenate([[[-100]], row[:, 1:]], axis=1)
        alone.append(losses(net, row, np.arange(len(tokens))[None], causal, labels))
    together = torch.cat(alone)
    assert len(packed) == len(together) == batch.loss_tokens
    assert torch.allclose(packed.sort()[0], together.sort()[0], atol=1e-5)
    difference = gradients(net, packed.sum()) - gradients(net, together.sum())
    assert difference.abs().max() < 1e-5


def test_without_the_mask_the_same_model_fails(store):
    """Negative control: positions start anew, but nothing keeps documents apart."""
    net = TinyModel()
    run = store.pack(16)
    batch = run.batch(np.arange(len(run)))
    assert leak_probe(as_model(net), batch, vocab_size=22).ok
    assert not leak_probe(as_model(net, segment_masking=False), batch, vocab_size=22).ok
    open_mask = torch.tensor(attention.dense_mask(batch.segment_ids, segment_masking=False))
    closed = torch.tensor(attention.dense_mask(batch.segment_ids))
    first, second = (
        losses(net, batch.tokens, batch.position_ids, mask, batch.labels)
        for mask in (open_mask, closed)
    )
    assert (first - second).abs().max() > 1e-3
