"""Settings of other trainers, recognised by their keys and read as runs.

One idea: a file that trains elsewhere should load here with a stated, small difference (local
paths, a local tokenizer), and whoever loads it is told how it was read and what was not used. No
key is swallowed: it decides something, or it is told, or it is refused.

==============================  =================================================================
splice settings                 ``data.type: splice_single_document`` or ``splice_multi_document``
Levanter's data section         ``data.configs`` or ``data.components``, weights, shuffle
packing settings of a trainer   ``data.packing_mode`` and its like, with ``data.store``
preprocessor and collator       ``datasets_preprocessor_args``, ``datacollator``, with ``store``
==============================  =================================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store, open_store
from tokenloom.bind import BindError, bind
from tokenloom.errors import ConfigError, near_miss
from tokenloom.integrations.hf.tokenize import STRATEGIES, BlockOptions
from tokenloom.integrations.levanter.lm_data import ABSENT, is_lm_data, lm_from_config
from tokenloom.integrations.levanter.mapping import (
    is_splice_config,
    outer_frame,
    splice_from_config,
)
from tokenloom.integrations.trainer import KEYS, packing_settings

Plain = Mapping[str, Any]

Made = tuple[Dataset, list[str]]

URLS = ("cache_dir", "train_urls", "validation_urls", "tokenizer", "base")

OF_BASE = {*ABSENT, "train_weights", "shuffle_per_epoch", "permutation_type", "stop_strategy"}
OF_BASE |= {"mixture_block_size"}  # settings for training on the base itself


class Dialect(NamedTuple):
    """A way of writing settings.

    Attributes:
        name: what it is called in messages.
        fits: whether plain data is written that way.
        make: plain data, folder of the file, seq_len if given → the run, and what was not used.
    """

    name: str
    fits: Callable[[Plain], bool]
    make: Callable[..., Made]


def dialect_of(config: Any) -> Dialect | None:
    """The dialect that plain data is written in; None if it is none that is known.

    >>> dialect_of({"data": {"packing_mode": "bin"}}).name
    'packing settings of a trainer'
    """
    if not isinstance(config, Mapping):
        return None
    return next((one for one in DIALECTS if one.fits(config)), None)


def _section(config: Plain, name: str) -> Plain:
    found = config.get(name, {})
    return found if isinstance(found, Mapping) else {}


def _placed(value: Any, folder: str, key: str = "") -> Any:
    """Settings whose local paths are relative to the folder of their file."""
    if isinstance(value, Mapping):
        return {name: _placed(one, folder, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, folder, key) for one in value]
    if not isinstance(value, str) or key not in URLS or not folder or "://" in value:
        return value
    joined = os.path.join(folder, os.path.expanduser(value))
    return value if key == "tokenizer" and not os.path.exists(joined) else joined


def _outside(config: Plain, used: set[str]) -> list[str]:
    """What a file says beside the sections that were used."""
    found = []
    for name, value in config.items():
        if name in used:
            continue
        inner = {f"{name}.{key}" for key in value} if isinstance(value, Mapping) else {name}
        left = sorted(inner - used)
        if left and len(left) == len(inner):
            found.append(f"{name}: not used; it is about something else than the data.")
        else:
            found += [f"{one}: not used." for one in left]
    return found


# -- splices -------------------------------------------------------------------------------------
def _splice(config: Plain, folder: str = "", *, seq_len: int | None = None) -> Made:
    run = splice_from_config(_placed(config, folder), seq_len=seq_len)
    unused, base = _beside_data(config), config.get("data", config).get("base")
    if isinstance(base, Mapping):
        path = "data.base" if "data" in config else "base"
        unused += [
            f"{path}.{name}: not used; it is for training on the base itself."
            for name in sorted(OF_BASE & base.keys())
        ]
    return run, unused


def _beside_data(config: Plain) -> list[str]:
    """What a file says beside its data section and the length of a frame."""
    if "data" not in config:
        return []
    frame = "" if config["data"].get("seq_len") is not None else outer_frame(config)[0]
    return _outside(config, {"data", frame or "data"})


# -- Levanter's mixtures --------------------------------------------------------------------------
def _lm_data(config: Plain, folder: str = "", *, seq_len: int | None = None) -> Made:
    run, unused = lm_from_config(_placed(config, folder), seq_len=seq_len)
    return run, unused + _beside_data(config)


# -- data.packing_mode and its like ----------------------------------------------------------------
def _fits_packing(config: Plain) -> bool:
    data = _section(config, "data")
    ours = {key for key in KEYS["data"] if key not in ("seq_len", "tokenizer")}
    near = any(str(key).startswith("packing_mod") for key in data)
    return (bool(ours & data.keys()) or near) and "type" not in data


def _packing(config: Plain, folder: str = "", *, seq_len: int | None = None) -> Made:
    given = {name: dict(_section(config, name)) for name in ("data", "model")}
    place = given["data"].pop("store", None)
    others = {name for name in config if name not in given}
    for section, known in (("data", KEYS["data"]), ("model", KEYS["model"])):
        strange = [key for key in given[section] if key not in known]
        others |= {f"{section}.{key}" for key in strange if not near_miss(str(key), known)}
    made = packing_settings({**config, **given}, others=others)
    frame = seq_len or made.seq_len
    if frame is None:
        raise ConfigError("data.seq_len: missing. Give the tokens of a frame.")
    unused = [f"{name}: not used; it is about something else than packing." for name in others]
    if "packing_buffer_docs" in given["data"]:
        unused.append(
            "data.packing_buffer_docs: not used; a store is packed by a plan over all its "
            "documents, only streams have a buffer."
        )
    if "segment_masking" in given["model"]:
        unused.append(
            f"model.segment_masking: {given['model']['segment_masking']}; attention is the "
            "model's: batch.segment_ids, or tokenloom.batch.attention.dense_mask(…, "
            "segment_masking=…)."
        )
    store = _store(place, "data.store", folder)
    return store.pack(frame, **made.pack), sorted(unused)


# -- preprocessor and collator ---------------------------------------------------------------------
BLOCKS = "datasets_preprocessor_args"


def _preprocessor(config: Plain, folder: str = "", *, seq_len: int | None = None) -> Made:
    store = _store(config.get("store"), "store", folder)
    try:
        options = bind(BlockOptions, config[BLOCKS], path=BLOCKS)
    except BindError as error:
        raise ConfigError(str(error)) from None
    collator = _section(config, "datacollator")
    frame, given = seq_len or options.max_length, config[BLOCKS]
    if collator.get("max_length", frame) != frame:
        raise ConfigError(
            f"datacollator.max_length: found {collator['max_length']}, but {BLOCKS}.max_length is "
            f"{frame}; a frame has one length. Make them equal."
        )
    line = options.packed and options.packing_strategy == "greedy" and options.overflow
    strategy = STRATEGIES[options.packing_strategy] if options.packed else "one_doc"
    specials = {name: given[name] for name in ("add_bos", "add_eos") if name in given}
    tokenizer = store.reader.manifest.tokenizer
    if "add_bos" not in given and tokenizer is not None and tokenizer.bos is not None:
        specials["add_bos"] = True  # its default: wherever there is one
    names = ("stride", "min_len", "max_len", "min_row_len", "shuffle_output", "bos_id", "eos_id")
    fields = {name: given[name] for name in (*names, "strict_special_tokens") if name in given}
    run = store.pack(
        frame,
        strategy="sequential" if line else strategy,
        overflow="split" if options.overflow or line else "truncate",
        shuffle_seed=options.seed,
        **specials,
        **fields,
    )
    unused = _outside(config, {"store", BLOCKS, "datacollator"})
    unused += [
        f"datacollator.{name}: not used; a batch is made when it is asked for, as "
        "batch.torch(…) or dict(batch)."
        for name in collator
        if name != "max_length"
    ]
    if options.truncate_at is not None:
        raise ConfigError(
            f"{BLOCKS}.truncate_at: not of a store, which holds ids. Leave it out, and cut the "
            "text when it is built."
        )
    return run, unused


def _store(path: Any, where: str, folder: str) -> Store:
    if not isinstance(path, str):
        raise ConfigError(
            f"{where}: missing; the path of the store that holds the documents, which "
            "`tokenloom build` makes."
        )
    is_url = "://" in path
    return open_store(path if is_url else os.path.join(folder, os.path.expanduser(path)))


DIALECTS = (
    Dialect("splice settings", is_splice_config, _splice),
    Dialect("Levanter's data section", is_lm_data, _lm_data),
    Dialect("preprocessor and collator settings", lambda config: BLOCKS in config, _preprocessor),
    Dialect("packing settings of a trainer", _fits_packing, _packing),
)
