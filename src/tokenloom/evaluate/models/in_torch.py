"""Models of PyTorch and Transformers: scores are made on the device, and only they come back.

One idea: the same five steps as `tokenloom.evaluate.decoding`, without a sort of the vocabulary.
Exponentials are float32 and sums float64. The probability of a token under top-k needs the k-th
largest logit and what is at least as large; under top-p it needs the mass of what is larger than
the token, and the mass at which the most likely ones reach p, which is nearly always found among a
few. Logits on the CPU are NumPy's: see `tokenloom.evaluate.models.in_memory`.

torch is not imported here: whoever has a model of it has imported it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tokenloom.evaluate.decoding import SLACK, Decoding, TokenScores
from tokenloom.evaluate.models import in_memory
from tokenloom.evaluate.models.scorers import JudgedRows, check_shape

__all__ = ["TorchScorer", "evaluation_mode"]

PIECE = 1 << 24  # logits that are reduced together: 64 MiB in float32

FEW = 64  # the most likely tokens among which top-p is looked for first


class TorchScorer:
    """Scores of a `torch.nn.Module`.

    A model of Transformers is called by name, as its own Trainer does, with a mask where a row has
    filler or several documents. Any other module is called as ``model(tokens, segment_ids,
    position_ids)``.

    Args:
        model: the module; it stays where it is.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.torch: Any = sys.modules["torch"]
        weights = list(model.parameters())
        self.device = weights[0].device if weights else self.torch.device("cpu")
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in weights})
        count = sum(one.numel() for one in weights)
        self.told = (
            f"{type(model).__name__}, {count:,} parameters, {' and '.join(kinds) or 'no'} weights "
            f"on {self.device}"
        )
        self.by_name = hasattr(model, "config") and hasattr(model, "generate")

    def fingerprint(self) -> str | None:
        """A digest of every parameter and buffer: name, type, shape and bytes."""
        sha256 = hashlib.sha256(b"tokenloom weights")
        for name, one in sorted(self.model.state_dict().items()):
            sha256.update(f"{name} {one.dtype} {list(one.shape)};".encode())
            flat = one.detach().contiguous().reshape(-1).view(self.torch.uint8)
            for part in flat.split(1 << 26):
                sha256.update(memoryview(part.cpu().numpy()))
        return sha256.hexdigest()

    @contextmanager
    def ready(self) -> Iterator[None]:
        """In evaluation mode and without gradients; every module's own mode is restored."""
        with evaluation_mode(self.model), self.torch.no_grad():
            yield

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        logits = self._logits(rows)
        check_shape(tuple(logits.shape), rows)
        targets = rows.targets[rows.judged].astype(np.int64)
        cells = np.flatnonzero(rows.judged)
        flat = logits.reshape(-1, logits.shape[-1])
        if flat.device.type == "cpu":
            return self._in_memory(flat, cells, targets, decoding)
        return self._on_device(flat, self._sent(cells), self._sent(targets), decoding)

    def _in_memory(self, flat: Any, cells: Any, targets: Any, decoding: Decoding) -> TokenScores:
        """Scores of logits that NumPy can see."""
        piece = in_memory.rows_at_once(flat.shape[1])
        parts = [
            in_memory.scores_in_memory(
                flat[cells[i : i + piece]].float().numpy(), targets[i : i + piece], decoding
            )
            for i in range(0, len(cells), piece)
        ]
        return TokenScores.joined(parts)

    def _on_device(self, flat: Any, cells: Any, targets: Any, decoding: Decoding) -> TokenScores:
        """Scores that are made where the logits are."""
        piece = max(1, PIECE // flat.shape[1])
        found = [
            reduced(self.torch, flat[cells[i : i + piece]], targets[i : i + piece], decoding)
            for i in range(0, len(cells), piece)
        ]
        return TokenScores.joined([[part.cpu().numpy() for part in one] for one in found])

    def _sent(self, values: Any) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def _logits(self, rows: JudgedRows) -> Any:
        tokens = self._sent(rows.tokens.astype(np.int64))
        positions = self._sent(rows.position_ids.astype(np.int64))
        if not self.by_name:
            found = self.model(tokens, self._sent(rows.segment_ids.astype(np.int64)), positions)
            return getattr(found, "logits", found)
        return self.model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=self._mask(rows.segment_ids),
            use_cache=False,
        ).logits

    def _mask(self, segment_ids: Any) -> Any:
        """None where causal attention is all: one document in every row, from its first cell on."""
        if (segment_ids == segment_ids[:, :1]).all():
            return None
        segments = self._sent(segment_ids.astype(np.int64))
        size = segments.shape[1]
        same = segments[:, None, :, None] == segments[:, None, None, :]
        kind = next(iter(self.model.parameters())).dtype
        earlier = self.torch.ones(size, size, dtype=self.torch.bool, device=self.device).tril()
        closed = self.torch.zeros(same.shape, dtype=kind, device=self.device)
        return closed.masked_fill_(~(same & earlier), self.torch.finfo(kind).min)


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Without dropout; every part of the model is in its own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # torch's evaluation mode
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def reduced(torch: Any, logits: Any, targets: Any, decoding: Decoding) -> tuple[Any, Any, Any]:
    """(log probabilities, greedy, margins) of tokens, from the logits that predict each."""
    scores = logits.float()
    own = scores.gather(1, targets[:, None])[:, 0]
    two = scores.topk(min(2, scores.shape[1]), 1).values
    top, second = two[:, 0], two[:, -1]
    margins = torch.where(own == top, own - second, own - top)
    greedy = own == top
    tied = (greedy & (margins == 0)).nonzero()[:, 0]
    if len(tied):  # of equal ones the lowest id
        first = (scores[tied] == top[tied, None]).to(torch.uint8).argmax(1)
        greedy[tied] = first == targets[tied]
    log_probs = _log_probs(torch, scores, own, top, greedy, targets, decoding)
    log_probs[~torch.isfinite(top)] = torch.nan
    return log_probs, greedy, margins


def _log_probs(
    torch: Any, scores: Any, own: Any, top: Any, greedy: Any, targets: Any, decoding: Decoding
) -> Any:
    if decoding.T == 0:
        return torch.where(greedy, 0.0, -torch.inf).double()
    if decoding.T != 1:
        scores, own, top = scores / decoding.T, own / decoding.T, top / decoding.T
    size = scores.shape[1]
    kept = None
    if decoding.top_k is not None and decoding.top_k < size:
        least = scores.topk(decoding.top_k, 1).values[:, -1:]
        kept = scores >= least
        scores = scores.masked_fill(~kept, -torch.inf)
    mass = (scores - top[:, None]).exp_()
    total = mass.sum(1, dtype=torch.float64)
    allowed = own >= least[:, 0] if kept is not None else None
    if decoding.top_p is not None and decoding.top_p < 1:
        enough = total * max(decoding.top_p - SLACK, SLACK)
        share = (own - top).double().exp()
        equal = (scores == own[:, None]) & (
            torch.arange(size, device=scores.device) < targets[:, None]
        )
        before = (mass * (scores > own[:, None])).sum(1, dtype=torch.float64)
        inside = before + equal.sum(1) * share < enough
        allowed = inside if allowed is None else allowed & inside
        total = _reached(torch, mass, enough)
    log_probs = (own.double() - top.double()) - total.log()
    return log_probs if allowed is None else log_probs.masked_fill(~allowed, -torch.inf)


def _reached(torch: Any, mass: Any, enough: Any) -> Any:
    """The mass of the most likely ones when it first reaches enough."""
    few = FEW
    while True:
        few = min(few, mass.shape[1])
        summed = mass.topk(few, 1).values.double().cumsum(1)
        if few == mass.shape[1] or bool((summed[:, -1] >= enough).all()):
            break
        few *= 8
    last = (summed < enough[:, None]).sum(1, keepdim=True).clamp(max=few - 1)
    return summed.gather(1, last)[:, 0]
