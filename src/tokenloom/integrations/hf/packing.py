"""`check_packing`: do documents that share a row stay apart inside a model of transformers?

One idea: which version, which attention and which arrays keep them apart is known only by trying.
So two small packed rows go through the model as training would send them (`contract`), and two
questions of `tokenloom.quality` are asked: does changing one document move another, and has each
the logits that it has alone? About a dozen forward passes of 96 tokens, without gradients.

What is known of transformers (measured, see docs/trainers/hugging-face.md):

- Before 4.53 positions alone never separate documents: ``contract="sdpa"`` sends a mask.
- Later versions separate them by positions, but only without ``attention_mask`` and with
  ``use_cache=False``, which the contract "hf" sees to.
- FlashAttention needs the edges of documents: ``contract="flash"``.
- FlexAttention takes no mask of four dimensions (the process dies), so that is refused untried.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch

from tokenloom.arguments import one_of, wrong_type
from tokenloom.batch import attention
from tokenloom.errors import ConfigError, warn
from tokenloom.evaluate.models import evaluation_mode
from tokenloom.quality.leaks import AloneReport, LeakReport, alone_probe, leak_probe

OFFERED = ("hf", "sdpa", "flash")  # contracts that models of transformers take

LENGTHS = ((13, 7, 20, 8), (9, 21, 5, 13))  # documents of the two rows of 48 cells

SHARE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}

"""How far logits may be apart, alone and packed, as a share of the largest: rounding, not leaks."""

ROUNDING = 4  # times the machine epsilon: how far a document moves when another one changes


class PackingReport(NamedTuple):
    """What `check_packing` saw of a model that keeps documents apart; `print` it for a verdict.

    Attributes:
        changed: what moved when one document of a row was changed.
        alone: how far logits are from those that a document has alone.
        told: which model, attention, contract and version of transformers.
    """

    changed: LeakReport
    alone: AloneReport
    told: str

    @property
    def ok(self) -> bool:
        """Whether it is proved that documents stay apart."""
        return self.changed.ok and self.alone.ok

    @property
    def verdict(self) -> str:
        """One of: apart, proves little."""
        return "apart" if self.ok else "proves little"

    def __str__(self) -> str:
        if not self.ok:
            doubts = "; ".join(self.changed.doubts) or str(self.alone)
            return (
                f"proves little: {self.told} showed no leak, but {doubts}. Check it again once it "
                "has learned something."
            )
        far = max((one.difference for one in self.alone.documents), default=0.0)
        return (
            f"apart: documents that share a row do not see each other in {self.told}. Changing one "
            f"moved no other, and packed logits are those of each document alone to {far:.2g} "
            f"({self.alone.tolerance:.2g} is rounding)."
        )


def check_packing(
    model: Any, *, contract: str = "hf", tolerance: float | None = None
) -> PackingReport:
    """What two packed rows show about a model; refuses one whose documents see each other.

    Args:
        model: a causal language model of transformers (or a module called like one).
        contract: what a batch of training holds: "hf", "sdpa" or "flash".
        tolerance: differences of logits up to this are ignored; None: by dtype, as a share of the
            largest logit.

    Returns:
        What `tokenloom.quality.leak_probe` and `alone_probe` saw, with a verdict in words.

    Raises:
        ConfigError: documents see each other, or have other logits than alone; with the remedy.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(hidden_size=16, intermediate_size=16, vocab_size=64)
    >>> tiny = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    >>> report = check_packing(LlamaForCausalLM(tiny))
    >>> report.verdict, str(report)[:57]
    ('apart', 'apart: documents that share a row do not see each other i')
    """
    one_of("contract", contract, OFFERED)
    if not hasattr(model, "get_input_embeddings"):
        wrapped = " Give the model inside: model.module." if hasattr(model, "module") else ""
        allowed = f"a model of transformers, with get_input_embeddings().{wrapped}"
        raise wrong_type("model", model, allowed.removesuffix("."))
    _refuse_deadly(model, contract)
    changed, alone = _probed(model, contract, tolerance)
    told = (
        f"{type(model).__name__} (attention {_attention(model)!r}, contract {contract!r}, "
        f"transformers {version('transformers')})"
    )
    apart = [one for one in alone.documents if not one.difference <= alone.tolerance]
    if changed.leaks or apart:
        seen = "\n".join(str(changed if changed.leaks else alone).splitlines()[:3])
        raise ConfigError(
            f"check_packing: documents of a row see each other inside {told}:\n{seen}\n"
            f"{_remedy(model, contract)}"
        )
    report = PackingReport(changed, alone, told)
    if not report.ok:
        warn(f"check_packing: {report}")
    return report


def choose_contract(model: Any, *, tolerance: float | None = None) -> str:
    """The first contract whose documents stay apart: "flash" for FlashAttention, "hf", "sdpa"."""
    tried = []
    for name in ("flash",) if "flash" in _attention(model) else ("hf", "sdpa"):
        try:
            check_packing(model, contract=name, tolerance=tolerance)
        except ConfigError as error:
            tried.append(error)
        else:
            return name
    raise tried[0]


def _attention(model: Any) -> str:
    """The name of the attention in use."""
    return str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "unknown")


def _refuse_deadly(model: Any, contract: str) -> None:
    """A mask of four dimensions ends the process in FlexAttention, so it is never tried."""
    if contract == "sdpa" and "flex" in _attention(model):
        raise ConfigError(
            "contract: found 'sdpa' with FlexAttention, whose kernels crash on a dense mask; "
            "allowed: contract='hf', from which transformers makes its block mask."
        )


def _remedy(model: Any, contract: str) -> str:
    if "flash" in _attention(model) and contract != "flash":
        return "FlashAttention wants the edges of documents: contract='flash'."
    if contract == "hf" and "flex" not in _attention(model):
        return (
            "Use contract='sdpa', which sends a mask. (Positions alone are enough from "
            "transformers 4.53 on, for models that attend and nothing else.)"
        )
    return (
        "This model mixes cells by other means than attention, or ignores its mask: train rows of "
        "one document each, or another attention (attn_implementation='sdpa', contract='sdpa')."
    )


def _probed(model: Any, contract: str, tolerance: float | None) -> tuple[LeakReport, AloneReport]:
    weight = model.get_input_embeddings().weight
    dtype = weight.dtype if weight.dtype.is_floating_point else torch.float32
    batch = _rows(int(weight.shape[0]), weight.device)
    called = functools.partial(_logits, model, contract)
    with evaluation_mode(model), torch.no_grad():
        size = float(called(batch["input_ids"], batch).abs().max()) or 1.0
        rounding = ROUNDING * torch.finfo(dtype).eps * size
        near = SHARE.get(dtype, 8e-2) * size
        changed = leak_probe(
            called,
            batch,
            trials=6,
            vocab_size=int(weight.shape[0]),
            tolerance=rounding if tolerance is None else tolerance,
        )
        alone = alone_probe(
            called, batch, trials=4, tolerance=near if tolerance is None else tolerance
        )
    return changed, alone


def _rows(vocabulary: int, device: Any) -> dict[str, Any]:
    """Two packed rows of four documents."""
    segments = [np.repeat(np.arange(1, 5), row) for row in LENGTHS]
    positions = [np.concatenate([np.arange(size) for size in row]) for row in LENGTHS]
    cells = np.arange(len(LENGTHS) * sum(LENGTHS[0])).reshape(len(LENGTHS), -1)
    tokens = (cells * 7919 + 16) % vocabulary  # no two neighbours alike
    arrays = {"input_ids": tokens, "segment_ids": segments, "position_ids": positions}
    made = {name: torch.as_tensor(np.array(value), device=device) for name, value in arrays.items()}
    return made | {"tokens": made["input_ids"]}


def _logits(model: Any, contract: str, tokens: Any, view: Mapping[str, Any]) -> Any:
    """The logits of a model that gets what training would send it."""
    segments = view["segment_ids"]
    sent = {"input_ids": tokens, "position_ids": view["position_ids"], "use_cache": False}
    if contract == "sdpa":
        may = attention.dense_mask(segments)[:, None]  # [B, 1, S, S]
        sent["attention_mask"] = torch.where(may, 0.0, torch.finfo(torch.float32).min)
    if contract == "flash":
        edges, longest = attention.cu_seqlens(segments), attention.max_seqlen(segments)
        sent |= {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges}
        sent |= {"max_length_q": longest, "max_length_k": longest}
    return model(**sent).logits.float()
