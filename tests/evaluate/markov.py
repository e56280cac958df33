"""A toy language: the next token depends on the last one only, so everything about it is known."""

import numpy as np


class Markov:
    """A chain of V tokens as a model of language; `table` holds its logits."""

    def __init__(self, size=12, seed=0, spread=2.0):
        self.table = np.random.default_rng(seed).normal(0, spread, (size, size)).astype(np.float32)
        self.calls = 0

    def __call__(self, tokens, segment_ids, position_ids):
        self.calls += 1
        return self.table[tokens]

    def chances(self, decoding):
        """Next-token probabilities under a decoding, row by row, the slow way."""
        return np.stack([slow_distribution(row, decoding) for row in self.table])


def slow_distribution(logits, decoding):
    """What a sampler draws from: the five steps with Python lists."""
    logits = [float(one) for one in logits]
    if decoding.T == 0:
        best = logits.index(max(logits))
        return np.array([float(i == best) for i in range(len(logits))])
    scaled = [one / decoding.T for one in logits]
    kept = set(range(len(scaled)))
    if decoding.top_k is not None and decoding.top_k < len(scaled):
        least = sorted(scaled, reverse=True)[decoding.top_k - 1]
        kept = {i for i in kept if scaled[i] >= least}
    top = max(scaled)
    weights = {i: np.exp(scaled[i] - top) for i in kept}
    if decoding.top_p is not None and decoding.top_p < 1:
        total, mass, chosen = sum(weights.values()), 0.0, set()
        for i in sorted(kept, key=lambda i: (-weights[i], i)):
            if mass >= decoding.top_p - 1e-6 and chosen:
                break
            chosen.add(i)
            mass += weights[i] / total
        weights = {i: weights[i] for i in chosen}
    total = sum(weights.values())
    return np.array([weights.get(i, 0.0) / total for i in range(len(logits))])
