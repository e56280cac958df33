"""Models that care where a text is are told apart by why."""

import numpy as np
import pytest
import torch

import tokenloom as tl
from tokenloom.evaluate import check_position_invariance

RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (RNG.normal(0, 0.5, (20, 8)) for _ in range(3))
OUT = RNG.normal(0, 1.0, (8, 20))
LEARNED = RNG.normal(0, 0.5, (4096, 8))


def attention(tokens, segment_ids, position_ids, *, positions="rope", masked=True, bits=64):
    """One head of causal attention, with every fault that the check is there to find."""
    query, keys, value = QUERY[tokens], KEY[tokens], VALUE[tokens]
    if positions == "learned":
        query, keys = query + LEARNED[position_ids], keys + LEARNED[position_ids]
    if positions == "rope":
        query, keys = rotated(query, position_ids, bits), rotated(keys, position_ids, bits)
    scores = np.einsum("bqd,bkd->bqk", query, keys)
    cells = tokens.shape[1]
    seen = np.tril(np.ones((cells, cells), bool))[None]
    if masked:
        seen = seen & (segment_ids[:, :, None] == segment_ids[:, None, :])
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bqk,bkd->bqd", weights, value) @ OUT


def rotated(vectors, position_ids, bits):
    """RoPE; angles with 16 bits have the seven of bfloat16 behind the point."""
    angles = position_ids[..., None] * np.array([1.0, 0.3, 0.1, 0.03])
    if bits == 16:
        angles = (angles.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(
            np.float32
        )
    cos, sin = np.cos(angles), np.sin(angles)
    one, other = vectors[..., :4], vectors[..., 4:]
    return np.concatenate([one * cos - other * sin, one * sin + other * cos], -1)


def judged(**how):
    def model(tokens, segment_ids, position_ids):
        return attention(tokens, segment_ids, position_ids, **how)

    return check_position_invariance(model, vocab_size=20, offsets=(1, 7, 127, 1024))


def test_models_are_told_apart_by_what_moves_their_logits():
    for how in ({}, {"positions": "none"}):
        found = judged(**how)
        assert (found.ok, found.verdict) == (True, "invariant")
        assert max(found.moved + found.after_filler + found.both) < 1e-9
    absolute = judged(positions="learned")
    assert absolute.verdict == "absolute"
    assert max(absolute.after_filler) < 1e-9  # positions that start again change nothing
    leaking = judged(masked=False)
    assert leaking.verdict == "leaks"
    assert max(leaking.moved) < 1e-9
    imprecise = judged(bits=16)
    assert imprecise.verdict == "imprecise"
    assert imprecise.moved[0] < imprecise.moved[-1]


def test_a_model_that_ignores_its_input_proves_nothing():
    found = check_position_invariance(
        lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 20)), vocab_size=20
    )
    assert found.verdict == "proves nothing"
    assert not found.ok


def test_a_module_of_torch_is_checked_and_left_in_its_mode():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.9)

        def forward(self, tokens, segment_ids, position_ids):
            given = (one.numpy() for one in (tokens, segment_ids, position_ids))
            return self.drop(torch.from_numpy(attention(*given)))

    net = Net()
    assert check_position_invariance(net, vocab_size=20).ok
    assert net.training


@pytest.mark.parametrize("offsets", [(), (7, 1), (3, 3)])
def test_offsets_must_ascend(offsets):
    with pytest.raises(tl.ConfigError, match="offsets"):
        check_position_invariance(attention, vocab_size=20, offsets=offsets)
