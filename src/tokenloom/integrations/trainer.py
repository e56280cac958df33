"""Packing settings under the names that trainers already use: `data.packing_mode` and its like.

One idea: a mapping as it stands in somebody's YAML becomes the arguments of `Store.pack`, of
`stream_packer` and of `attention.dense_mask`; what it does not say keeps the meaning it has there.
Rows have one cell more than `seq_len`, so that labels are shifted already, as trainers expect.

================================================  ================================================
data.packing_mode                                 "sequential" (default there), "bin", "multipack"
data.packing_buffer_docs                          documents to wait for; streams only
data.packing_max_docs_per_bin                     documents of a row, at most
data.max_doc_tokens                               tokens of a document that are used
data.mask_boundary_loss, data.train_on_eos        what is trained
data.tokenizer.add_bos, data.tokenizer.add_eos    specials around documents
model.bos_token_id, .eos_token_id, .pad_token_id  which ones
model.segment_masking                             block-diagonal attention
================================================  ================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import check_options
from tokenloom.errors import ConfigError, near_miss

__all__ = ["PackingSettings", "packing_settings"]

MODES = {
    "sequential": "sequential",
    "bin": "first_fit_decreasing",
    "multipack": "first_fit_decreasing",
}

DATA = (
    "packing_mode",
    "packing_buffer_docs",
    "packing_max_docs_per_bin",
    "max_doc_tokens",
    "mask_boundary_loss",
    "train_on_eos",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingSettings:
    """The same settings as arguments.

    Attributes:
        pack: of `Store.pack`, without `seq_len`.
        stream: of `stream_packer`, with its mode, without `seq_len`.
        attention: of `tokenloom.batch.attention.dense_mask` and `mask_mod`.
    """

    pack: dict[str, Any]
    stream: dict[str, Any]
    attention: dict[str, Any]


def packing_settings(config: Mapping[str, Any]) -> PackingSettings:
    """Arguments from settings; other keys of `data` and `model` are left to their owners.

    >>> made = packing_settings({"data": {"packing_mode": "bin", "packing_max_docs_per_bin": 4}})
    >>> made.pack["strategy"], made.pack["max_docs_per_bin"], made.stream["mode"]
    ('first_fit_decreasing', 4, 'bin')
    """
    data, model = _section(config, "data"), _section(config, "model")
    check_options("data", [name for name in data if name.startswith("packing")], DATA)
    mode = data.get("packing_mode", "sequential")
    if mode not in MODES:
        raise ConfigError(
            f"data.packing_mode: found {mode!r}, allowed: {', '.join(MODES)}."
            f"{near_miss(str(mode), list(MODES))}"
        )
    specials = _specials(_section(data, "tokenizer"), model)
    common = {"max_doc_tokens": data["max_doc_tokens"]} if "max_doc_tokens" in data else {}
    common |= specials
    pack = {"strategy": MODES[mode], "lookahead": True, **common}
    pack |= {f"add_{name}": True for name in ("bos", "eos") if f"{name}_id" in specials}
    stream = {"mode": mode, "window": "T+1", **common}
    if mode == "sequential":
        pack["overlap"] = stream["overlap"] = 1
    elif data.get("packing_max_docs_per_bin") is not None:
        pack["max_docs_per_bin"] = data["packing_max_docs_per_bin"]
        stream["packing_max_docs_per_bin"] = data["packing_max_docs_per_bin"]
    if "packing_buffer_docs" in data:
        stream["packing_buffer_docs"] = data["packing_buffer_docs"]
    trained = {n: data[n] for n in ("mask_boundary_loss", "train_on_eos") if n in data}
    attention = {"segment_masking": bool(model.get("segment_masking", True))}
    return PackingSettings(pack=pack | trained, stream=stream, attention=attention)


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name, {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"{name}: found {type(found).__name__}, allowed is a mapping.")
    return found


def _specials(tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    found = {"pad_id": model["pad_token_id"]} if model.get("pad_token_id") is not None else {}
    for name in ("bos", "eos"):
        if not tokenizer.get(f"add_{name}", False):
            continue
        if model.get(f"{name}_token_id") is None:
            raise ConfigError(
                f"model.{name}_token_id: missing; data.tokenizer.add_{name} needs the token to add."
            )
        found[f"{name}_id"] = model[f"{name}_token_id"]
    return found
