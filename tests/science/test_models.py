"""The model sees what its three arrays say, and nothing else."""

import numpy as np
import pytest
import torch
from science.models import Shape, TinyLlama

from tokenloom.evaluate.positions import check_position_invariance


def rows(batch):
    return [
        torch.as_tensor(getattr(batch, name)).long()
        for name in ("tokens", "segment_ids", "position_ids")
    ]


@pytest.mark.parametrize(("positions", "extra"), [("RoPE", 0), ("learned", 192 * 96)])
def test_it_has_the_size_that_its_page_says(positions, extra):
    model = TinyLlama(Shape(vocabulary=512, positions=positions), seed=0)
    assert sum(one.numel() for one in model.parameters()) == 319_968 + extra


def test_weights_are_a_function_of_the_seed_and_both_schemes_share_them(small):
    one, same, other = small(seed=1), small(seed=1), small(seed=2)
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not torch.equal(one.embed, other.embed)
    learned = small(seed=1, positions="learned")
    assert torch.equal(learned.layers[1].down, one.layers[1].down)


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [
        ({}, "invariant"),
        ({"positions": "learned"}, "absolute"),
        ({"isolated": False}, "leaks"),
    ],
)
def test_its_positions_are_what_they_are_called(small, shape, verdict):
    found = check_position_invariance(
        small(**shape), vocab_size=256, length=16, offsets=(1, 7, 40), rows=2
    )
    assert found.verdict == verdict, str(found)


@pytest.mark.parametrize(("isolated", "moved"), [(True, False), (False, True)])
def test_filler_changes_a_document_only_without_segments(small, trio, isolated, moved):
    model = small(isolated=isolated)
    run = trio.splice(64, content_length=16, position_scheme="absolute")
    here, other = (run.render(pad_id=filler).batch([0, 5]) for filler in (0, 99))
    assert (here.tokens != other.tokens).any()
    with torch.no_grad():
        first, second = model(*rows(here)), model(*rows(other))
    inside = torch.as_tensor(here.segment_ids > 0)
    assert torch.equal(first[inside], second[inside]) != moved


@pytest.mark.parametrize(("isolated", "same"), [(True, True), (False, False)])
def test_packed_documents_have_the_losses_that_they_have_alone(small, trio, isolated, same):
    """Without segments the same comparison fails."""
    model = small(isolated=isolated)
    packed = trio.pack(128).batch([0])
    assert packed.segment_ids.max() == 3
    with torch.no_grad():
        together = model(*rows(packed)).log_softmax(-1)[0]
        worst = 0.0
        for segment, number in zip((1, 2, 3), packed.spans.document.tolist(), strict=True):
            tokens = torch.as_tensor(np.array(trio.document(number))).long()[None]
            places = torch.arange(tokens.shape[1])[None]
            alone = model(tokens, torch.ones_like(tokens), places).log_softmax(-1)[0]
            there = together[torch.as_tensor(packed.segment_ids[0] == segment)]
            worst = max(worst, (alone - there).abs().max().item())
    assert (worst < 1e-5) == same
