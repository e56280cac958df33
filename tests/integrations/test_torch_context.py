"""Context parallelism: ranks that share rows get parts of them that make up the whole."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from toyruns import toy_run, toy_store

from tokenloom.integrations.torch import dataloader

CELLS = ("inputs", "targets", "position_ids", "segment_ids", "loss_weights")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy"))


def parts_of(run, size, zigzag, world=1, rank=0):
    """The loaders of one context group, each with the rank's rows."""
    return [
        dataloader(
            run,
            6,
            contract="plain",
            fields=("loss_weights", "step_loss_tokens", "index"),
            context=(part, size, zigzag),
            rank=rank,
            world_size=world,
        )
        for part in range(size)
    ]


def put_together(parts, name, zigzag):
    """Whole rows again; with zigzag, second halves of the parts go in reverse behind the first."""
    if not zigzag:
        return torch.cat([part[name] for part in parts], dim=-1)
    halves = [part[name].chunk(2, dim=-1) for part in parts]
    cells = [first for first, _ in halves] + [second for _, second in reversed(halves)]
    return torch.cat(cells, dim=-1)


@pytest.mark.parametrize("zigzag", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("layout", ["windows", "pack"])
def test_the_parts_of_all_ranks_are_the_row(store, layout, size, zigzag):
    run = toy_run(store) if layout == "windows" else store.pack(16).shuffle().seed(1)
    whole = dataloader(run, 6, contract="plain", fields=("loss_weights", "index"))
    for parts, row in zip(zip(*parts_of(run, size, zigzag), strict=True), whole, strict=True):
        for name in CELLS:
            assert parts[0][name].is_contiguous()
            assert torch.equal(put_together(parts, name, zigzag), row[name]), name
        for name in ("index", "examples_after"):
            assert all(torch.equal(part[name], row[name]) for part in parts)


@pytest.mark.parametrize("zigzag", [False, True])
def test_the_loss_over_parts_is_the_loss_of_the_row(store, zigzag):
    """Targets are shifted before the cut, so no prediction is lost or made twice at a cut."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 16), torch.nn.Linear(16, 1000))

    def loss(batch):
        logits = model(batch["inputs"])
        return cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="sum")

    run = store.pack(16).shuffle()
    fields = ("step_loss_tokens", "loss_mask")
    whole = dataloader(run, 6, contract="plain", fields=fields)
    for parts, row in zip(zip(*parts_of(run, 4, zigzag), strict=True), whole, strict=True):
        count = row["step_loss_tokens"][0]
        assert count == (row["targets"] != -100).sum() == row["loss_mask"].sum()
        assert sum((part["targets"] != -100).sum() for part in parts) == count
        mean = sum(loss(part) for part in parts) / count
        assert torch.isclose(mean, loss(row) / count, rtol=1e-6)


def test_data_and_context_ranks_together_make_up_the_step(store):
    run = store.pack(16).shuffle()
    whole = dataloader(run, 6, contract="plain", fields=("index",))
    ranks = [zip(*parts_of(run, 2, True, world=3, rank=r), strict=True) for r in range(3)]
    for step, row in zip(zip(*ranks, strict=True), whole, strict=True):
        joined = torch.cat([put_together(parts, "targets", True) for parts in step])
        assert torch.equal(joined, row["targets"])
