"""Pack documents into frames: the cost is known in advance, nothing is lost, nothing leaks."""

from __future__ import annotations

import numpy as np

import tokenloom as tl
from examples.demo.printing import explain, prove, say
from examples.demo.world import World
from tokenloom.quality import alone_probe, leak_probe

__all__ = ["pack_documents"]

SEQ_LEN = 1024


def pack_documents(world: World) -> World:
    """The step: the planner's table, the run that it promises, and a check for leaks."""
    store = world.stores["prose"]
    plan = tl.plan_packing(store, seq_len=[SEQ_LEN], overflow=["split", "truncate"])
    for line in str(plan).splitlines():
        say(line)
    choice, _ = plan.recommended[0]
    run = store.pack(SEQ_LEN, strategy=choice.spec.strategy)
    spans = run.spans(np.arange(len(run)))
    batch = run.batch(np.arange(min(len(run), 64)))
    prove(
        f"{choice.spec.strategy}: {len(run):,} rows as planned, every token in exactly one cell",
        len(run) == choice.rows and int(spans.length.sum()) == store.num_tokens,
    )
    report = tl.check_batch(batch)
    prove(f"{len(report.checked)} laws of a batch hold for {len(batch)} rows", report.ok)
    busy = run.batch(np.argsort(-np.diff(spans.frame))[:2])  # the rows with most documents
    apart = leak_probe(_sums, busy, vocab_size=store.vocab_size)
    together = leak_probe(_leaking_sums, busy, vocab_size=store.vocab_size)
    prove("in a model that respects segments, documents do not see each other", apart.ok)
    prove("a model that ignores them is caught", not together.ok)
    prove("documents in a row give the same logits as alone", alone_probe(_sums, busy).ok)
    explain("The probe changes one document and checks the logits of all others.")
    return world


def _sums(tokens: np.ndarray, batch: tl.Batch) -> np.ndarray:
    """A toy model: the logit is a running sum over the tokens of the same document."""
    return _running(tokens, np.asarray(batch.segment_ids))


def _leaking_sums(tokens: np.ndarray, batch: tl.Batch) -> np.ndarray:
    """The same over the whole row."""
    return _running(tokens, np.ones_like(tokens))


def _running(tokens: np.ndarray, segment: np.ndarray) -> np.ndarray:
    same = np.tril(segment[:, :, None] == segment[:, None, :])
    sums = (same @ (tokens[:, :, None] % 97)).astype(np.float64)
    return np.concatenate([sums, -sums], axis=-1) / 97
