"""Packing settings under the names that trainers already use: `data.packing_mode` and similar.

One idea: a mapping from a trainer's YAML becomes the arguments of `Store.pack`, of `stream_packer`
and of `attention.dense_mask`; settings that are not given keep the trainer's defaults. Rows have
one cell more than `seq_len`, so that labels are already shifted, as trainers expect. Every key is
accepted, refused with its near miss, or skipped because `others` names it: none is dropped
silently.

================================================  ==============================================
data.seq_len                                      tokens of a frame
data.packing_mode                                 "sequential" (the default), "bin", "multipack"
data.packing_buffer_docs                          documents to buffer; streams only
data.packing_max_docs_per_bin                     largest number of documents in a row
data.max_doc_tokens                               tokens of a document that are used
data.mask_boundary_loss, data.train_on_eos        what is trained
data.tokenizer.add_bos, data.tokenizer.add_eos    specials around documents
model.bos_token_id, .eos_token_id, .pad_token_id  ids of the specials
model.segment_masking                             block-diagonal attention
================================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import integer, one_of
from tokenloom.errors import ConfigError, near_miss, warn

__all__ = ["PackingSettings", "packing_settings"]

MODES = {
    "sequential": "sequential",
    "bin": "first_fit_decreasing",
    "multipack": "first_fit_decreasing",
}

# setting → bool, or its smallest number; None: checked elsewhere
SETTINGS: dict[str, type[bool] | int | None] = {
    "data.mask_boundary_loss": bool,
    "data.max_doc_tokens": 1,
    "data.packing_buffer_docs": 1,
    "data.packing_max_docs_per_bin": 1,
    "data.packing_mode": None,
    "data.seq_len": 2,
    "data.tokenizer.add_bos": bool,
    "data.tokenizer.add_eos": bool,
    "data.train_on_eos": bool,
    "model.bos_token_id": 0,
    "model.eos_token_id": 0,
    "model.pad_token_id": 0,
    "model.segment_masking": bool,
}

# section → its keys; "" is the top
KEYS = {
    section: sorted(
        {
            path[len(section) :].strip(".").split(".")[0]
            for path in SETTINGS
            if path.startswith(section)
        }
    )
    for section in ("", "data", "data.tokenizer", "model")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingSettings:
    """The same settings as arguments.

    Attributes:
        seq_len: tokens of a frame, if the settings contain it.
        pack: arguments of `Store.pack`, without `seq_len`.
        stream: arguments of `stream_packer`, with its mode, without `seq_len`.
        attention: arguments of `tokenloom.batch.attention.dense_mask` and `mask_mod`.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.batch.attention import dense_mask
    >>> made = packing_settings({"data": {"seq_len": 4, "packing_mode": "bin"}})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "de"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     batch = store.pack(made.seq_len, **made.pack)[0]
    ...     dense_mask(batch.segment_ids, **made.attention)[0].astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 0, 0, 1]])
    """

    seq_len: int | None
    pack: dict[str, Any]
    stream: dict[str, Any]
    attention: dict[str, Any]


def packing_settings(config: Mapping[str, Any], *, others: Iterable[str] = ()) -> PackingSettings:
    """Arguments from settings.

    Args:
        config: the sections `data` and `model`, as in a trainer's YAML.
        others: paths of keys to skip, such as "optimizer" or "model.layers"; a key that is neither
            there nor in the table of this module is refused.

    Raises:
        ConfigError: a key or value is invalid; names the path of the first.

    >>> made = packing_settings({"data": {"packing_mode": "bin", "packing_max_docs_per_bin": 4}})
    >>> made.pack["strategy"], made.pack["max_docs_per_bin"], made.stream["mode"]
    ('first_fit_decreasing', 4, 'bin')
    >>> packing_settings({"data": {"mask_boundry_loss": False}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: data.mask_boundry_loss: found an unknown key, ... Did you mean ...
    """
    if isinstance(others, str):
        raise ConfigError(f"others: found {others!r}, allowed: a list of paths of keys.")
    found = _flat(config, set(others))
    mode = found.get("data.packing_mode", "sequential")
    one_of("data.packing_mode", mode, list(MODES))
    common = {f"{name}_id": found[f"model.{name}_token_id"] for name in _inserted(found)}
    for name, path in (("pad_id", "model.pad_token_id"), ("max_doc_tokens", "data.max_doc_tokens")):
        if path in found:
            common[name] = found[path]
    pack = {"strategy": MODES[mode], "lookahead": True, **common}
    pack |= {f"add_{name}": True for name in _inserted(found)}
    stream = {"mode": mode, "window": "T+1", **common}
    if mode == "sequential":
        pack["overlap"] = stream["overlap"] = 1
        if "data.packing_max_docs_per_bin" in found:
            warn(
                "data.packing_max_docs_per_bin: it has no effect with packing_mode sequential, "
                "which has no bins. Leave it out, or choose bin or multipack."
            )
    elif "data.packing_max_docs_per_bin" in found:
        pack["max_docs_per_bin"] = found["data.packing_max_docs_per_bin"]
        stream["packing_max_docs_per_bin"] = found["data.packing_max_docs_per_bin"]
    if "data.packing_buffer_docs" in found:
        stream["packing_buffer_docs"] = found["data.packing_buffer_docs"]
    masks = ("mask_boundary_loss", "train_on_eos")
    pack |= {name: found[f"data.{name}"] for name in masks if f"data.{name}" in found}
    if pack.get("train_on_eos") is False and "model.eos_token_id" in found:
        pack["eos_id"] = found["model.eos_token_id"]  # the one that is not to be trained
    return PackingSettings(
        seq_len=found.get("data.seq_len"),
        pack=pack,
        stream=stream,
        attention={"segment_masking": found.get("model.segment_masking", True)},
    )


def _inserted(found: Mapping[str, Any]) -> list[str]:
    """The specials to insert around documents; their ids must be given."""
    names = [name for name in ("bos", "eos") if found.get(f"data.tokenizer.add_{name}", False)]
    for name in names:
        if f"model.{name}_token_id" not in found:
            raise ConfigError(
                f"model.{name}_token_id: missing; data.tokenizer.add_{name} needs the token to "
                "add. Give it."
            )
    return names


def _flat(config: Any, others: set[str], section: str = "") -> dict[str, Any]:
    """Path → value of every key that is ours, checked; None counts as not given."""
    if not isinstance(config, Mapping):
        where = section or "settings"
        raise ConfigError(f"{where}: found {type(config).__name__}, allowed: a mapping.")
    found: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{section}.{key}" if section else str(key)
        if path in others:
            continue
        if key not in KEYS[section]:
            raise ConfigError(
                f"{path}: found an unknown key, allowed: {', '.join(KEYS[section])}. To skip a key "
                f"that is not about packing, pass others=[{path!r}]."
                f"{near_miss(str(key), KEYS[section])}"
            )
        if path in KEYS:
            found |= _flat(value, others, path)
        elif value is not None:
            found[path] = _checked(path, value)
    return found


def _checked(path: str, value: Any) -> Any:
    allowed = SETTINGS[path]
    if allowed is bool:
        one_of(path, value, (True, False))
    elif isinstance(allowed, int):
        return integer(path, value, least=allowed, most=(1 << 31) - 1)
    return value
