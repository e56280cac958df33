"""What P(z) costs beside the forward passes that it needs.

A small transformer judges sliding windows of 50 + 50 tokens. The reference is the model alone: the
same batches, made before, in evaluation mode and without gradients, its logits dropped. P(z) has
the same passes, and also brings the windows, reduces their logits to log-probabilities, and keeps
what was found about each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tokenloom as tl
from benchmarks.clock import Case, Table, against, cost, interleave, want
from tokenloom.evaluate import Decoding, evaluate, pz, window_run

__all__ = ["run"]

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH = 2048, 96, 4, 2, 64

# size → (windows, rounds); many short rounds, because the speed of a machine drifts within minutes
SIZES = {"tiny": (60, 1), "small": (1_000, 3), "default": (1_000, 15), "full": (10_000, 7)}

# top-k and top-p are NumPy alone and have no goal
WAYS = {
    "raw": (Decoding(), 1.2),
    "T = 0.7": (Decoding(0.7), 1.2),
    "top-k of 40": (Decoding(1.0, 40), None),
    "top-p of 0.9": (Decoding(1.0, None, 0.9), None),
}


class Model(torch.nn.Module):
    """Two blocks of attention and a feed-forward layer each; positions are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Embedding(128, WIDTH)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any, segment_ids: Any, position_ids: Any) -> Any:
        """Logits of every cell; rows have one document, so segments say nothing."""
        size = tokens.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(size)
        found = self.tokens(tokens) + self.places(position_ids)
        for block in self.blocks:
            found = block(found, src_mask=mask, is_causal=True)
        return self.head(found)


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of evaluation."""
    windows, rounds = SIZES[size]
    random = np.random.default_rng(0)
    each = 100 + 5 * (windows // 10 - 1)  # tokens of each of ten documents
    rows = [{"input_ids": random.integers(0, VOCABULARY, each).tolist()} for _ in range(10)]
    store = tl.build(rows, folder / "windows", tokenizer=None, vocab_size=VOCABULARY)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_table(store, windows, rounds, command)]
    finally:
        torch.set_num_threads(threads)


def _table(store: tl.Store, windows: int, rounds: int, command: str) -> Table:
    torch.manual_seed(0)
    model = Model()
    names = [f"P(z), {name}" for name in WAYS]
    cases: dict[str, Callable[[], object] | Case] = {
        "forward passes alone": Case(
            prepare=lambda: _batches(store), run=lambda made: _forward(model, made)
        )
    }
    for name, (decoding, _) in zip(names, WAYS.values(), strict=True):
        cases[name] = lambda d=decoding: pz(model, store, decoding=d, progress=False)
    cases["losses of every token"] = lambda: evaluate(
        model, store, seq_len=100, batch_size=BATCH, progress=False
    )
    timing = interleave(cases, rounds)
    alone = cost("forward passes alone", timing["forward passes alone"], windows)
    rows = [alone]
    for name, (_, bound) in zip(names, WAYS.values(), strict=True):
        row = against(cost(name, timing[name], windows), alone, "the passes alone")
        rows.append(row if bound is None else want(row, "<=", bound, of_ratio=True))
    every = store.num_tokens // 99
    rows.append(cost("losses of every token", timing["losses of every token"], every))
    notes = [
        f"{windows:,} windows of 50 + 50 tokens, {BATCH} a batch; costs are those of one window.",
        f"{_size(model):,} parameters, vocabulary {VOCABULARY:,}, one thread.",
        "Losses are of rows of 100 tokens, every token once, along all axes; the cost of one row.",
    ]
    return Table(title="evaluation", command=command, rows=rows, notes=notes)


def _batches(store: tl.Store) -> list[tuple[Any, ...]]:
    """The windows as tensors."""
    rows = window_run(store)
    names = ("tokens", "segment_ids", "position_ids")
    found = []
    for first in range(0, len(rows), BATCH):
        batch = rows[first : min(first + BATCH, len(rows))]
        found.append(tuple(torch.from_numpy(getattr(batch, n).astype(np.int64)) for n in names))
    return found


def _forward(model: Model, batches: list[tuple[Any, ...]]) -> None:
    model.eval()  # torch's evaluation mode
    with torch.no_grad():
        for one in batches:
            model(*one)
    model.train()


def _size(model: Model) -> int:
    return sum(one.numel() for one in model.parameters())
