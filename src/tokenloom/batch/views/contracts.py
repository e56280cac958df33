"""Contracts: what a kind of model wants of a batch, and exactly that.

One idea: a contract names arrays, and each follows from the fields of a batch. So a contract is
data (`Contract`), made here in NumPy; an adapter turns the arrays into those of its framework and
adds nothing. Every contract also has ``examples_after``, from which ``run.state`` makes the state
that resumes after the batch (see `Batch.state`).

=======  ==========================================================================================
hf       input_ids, labels (the model shifts), position_ids (from 0 in every document), use_cache.
         No attention_mask: transformers separates the documents of a row by their positions, but
         only without one (and from version 4.53 on)
flash    hf, and cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k over the flattened batch
flex     input_ids, labels, position_ids, segment_ids, mask_mod for FlexAttention
sdpa     hf, and attention_mask: added to the scores, 0 where a cell may attend [B, 1, S, S]
plain    inputs, targets (already shifted: ``cross_entropy(logits, targets)``), position_ids,
         segment_ids
jax      plain, and loss_mask; targets are 0 where they do not count, because a gather of JAX takes
         -100 for an index
maxtext  the same under the names of MaxText: inputs, inputs_segmentation, inputs_position, and the
         same for targets; targets_segmentation is 0 where a target does not count
=======  ==========================================================================================
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.arguments import one_of
from tokenloom.arrays import Array
from tokenloom.batch import attention
from tokenloom.batch.paint import IGNORE
from tokenloom.batch.spec import RenderSpec
from tokenloom.errors import ConfigError, MissingExtra

Arrays = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What a kind of model wants.

    Attributes:
        name: how users call it.
        fields: the fields of a batch that it is made of.
        arrays: makes the arrays of a batch.
        settings: what goes beside the arrays, the same for every batch.
        by_position: documents are told apart by positions that start from 0 in each.
        aligned: the model shifts labels, so they must not be shifted before.
        mask_mod: adds the function for FlexAttention.
    """

    name: str
    fields: tuple[str, ...]
    arrays: Callable[[Any], Arrays]
    settings: tuple[tuple[str, Any], ...] = ()
    by_position: bool = False
    aligned: bool = True
    mask_mod: bool = False

    def check(self, renders: Sequence[RenderSpec]) -> None:
        """Refuse rows that a model would misunderstand."""
        for render in renders:
            if self.by_position and render.position_scheme != "reset":
                raise ConfigError(
                    f"contract: found {self.name!r}, which shows a model where documents start by "
                    f"positions that count from 0 in each, but position_scheme is "
                    f"{render.position_scheme!r}, so they would attend to each other. Use "
                    "contract='sdpa', or run.render(position_scheme='reset')."
                )
            if self.aligned and render.label_layout != "aligned":
                raise ConfigError(
                    f"contract: found {self.name!r}, whose model shifts labels, but label_layout "
                    f"is {render.label_layout!r}, so they would be shifted twice. Use "
                    "contract='plain', or run.render(label_layout='aligned')."
                )

    def complete(self, arrays: Arrays) -> Arrays:
        """Add what is no array, once the arrays are those of their framework."""
        if self.mask_mod:
            arrays["mask_mod"] = MaskOf(arrays["segment_ids"])
        arrays.update(self.settings)
        return arrays


class MaskOf:
    """`attention.mask_mod` of some segments; it pickles, and moves to a device with its arrays."""

    def __init__(self, segment_ids: Any) -> None:
        self.segment_ids = segment_ids
        self._may = attention.mask_mod(segment_ids)

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        """Whether `q_idx` may attend to `kv_idx`."""
        return self._may(b, h, q_idx, kv_idx)

    def __reduce__(self) -> tuple[Any, ...]:
        return MaskOf, (self.segment_ids,)

    def to(self, *device: Any, **options: Any) -> MaskOf:
        """The same on another device."""
        return MaskOf(self.segment_ids.to(*device, **options))

    def pin_memory(self, *device: Any) -> MaskOf:
        """The same in pinned memory."""
        return MaskOf(self.segment_ids.pin_memory(*device))


def _hf(batch: Any) -> Arrays:
    return {
        "input_ids": batch.tokens,
        "labels": batch.labels,
        "position_ids": batch.position_ids,
    }


def _flash(batch: Any) -> Arrays:
    edges, longest = batch.cu_seqlens, batch.max_seqlen
    lengths = {"max_length_q": longest, "max_length_k": longest}
    return _hf(batch) | {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges} | lengths


def _flex(batch: Any) -> Arrays:
    return _hf(batch) | {"segment_ids": batch.segment_ids}


def _sdpa(batch: Any) -> Arrays:
    may = attention.dense_mask(batch.segment_ids)[..., None, :, :]  # [B, 1, S, S]: all heads alike
    return _hf(batch) | {
        "attention_mask": np.where(may, np.float32(0), np.finfo(np.float32).min),
    }


def _plain(batch: Any) -> Arrays:
    return {
        "inputs": batch.tokens,
        "targets": shifted(batch.labels) if batch.label_layout == "aligned" else batch.labels,
        "position_ids": batch.position_ids,
        "segment_ids": batch.segment_ids,
    }


def _jax(batch: Any) -> Arrays:
    made = _plain(batch)
    made["targets"] = np.where(
        made["targets"] == IGNORE, made["targets"].dtype.type(0), made["targets"]
    )
    return made | {"loss_mask": batch.loss_mask}


def _maxtext(batch: Any) -> Arrays:
    made = _jax(batch)
    segments, positions = made["segment_ids"], made["position_ids"]
    return {
        "inputs": made["inputs"],
        "inputs_segmentation": segments,
        "inputs_position": positions,
        "targets": made["targets"],
        "targets_segmentation": np.where(made["loss_mask"], segments, segments.dtype.type(0)),
        "targets_position": positions,
    }


def shifted(labels: Array) -> Array:
    """Aligned labels, one cell earlier: the target of each cell [..., S].

    >>> shifted(np.array([[-100, 5, 6]]))
    array([[   5,    6, -100]])
    """
    targets = np.empty_like(labels)
    targets[..., :-1], targets[..., -1] = labels[..., 1:], IGNORE
    return targets


_NO_CACHE = (("use_cache", False),)  # with a cache, transformers ignores positions

_IDS = ("tokens", "labels", "position_ids")

_MASKED = (*_IDS, "segment_ids", "loss_mask")

CONTRACTS = {
    one.name: one
    for one in (
        Contract(name="hf", fields=_IDS, arrays=_hf, settings=_NO_CACHE, by_position=True),
        Contract(name="flash", fields=(*_IDS, "cu_seqlens"), arrays=_flash, settings=_NO_CACHE),
        Contract(name="flex", fields=(*_IDS, "segment_ids"), arrays=_flex, mask_mod=True),
        Contract(name="sdpa", fields=(*_IDS, "segment_ids"), arrays=_sdpa, settings=_NO_CACHE),
        Contract(name="plain", fields=(*_IDS, "segment_ids"), arrays=_plain, aligned=False),
        Contract(name="jax", fields=_MASKED, arrays=_jax, aligned=False),
        Contract(name="maxtext", fields=_MASKED, arrays=_maxtext, aligned=False),
    )
}


def contract_of(name: str) -> Contract:
    """The contract of that name."""
    if name not in CONTRACTS:
        one_of("contract", name, tuple(CONTRACTS))
    return CONTRACTS[name]


BY_NAME = Contract(name="none", fields=(), arrays=lambda batch: {}, aligned=False)

"""No contract: what is asked for by name, and nothing else."""


def contract_or_names(name: str | None) -> Contract:
    """The contract of that name; None asks for arrays by name alone."""
    return BY_NAME if name is None else contract_of(name)


def to_torch(arrays: Mapping[str, Any], device: Any = None) -> Arrays:
    """The same with torch tensors, which share the memory of the arrays unless they are moved."""
    from_numpy, found = _torch().from_numpy, Arrays(arrays)
    for name, value in arrays.items():
        if isinstance(value, np.ndarray):
            tensor = from_numpy(np.ascontiguousarray(value))
            found[name] = tensor if device is None else tensor.to(device, non_blocking=True)
    return found


@functools.cache
def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra("batch.torch", "torch", "torch") from None
