"""A data section of Levanter's trainer as a run: components, weights, one shuffle.

One idea: a component is ``store.windows(seq_len)`` with the shuffle of the section, and the mixture
is ``tokenloom.mix`` with the rule "random", whose blocks have fixed shares like Levanter's. A block
shuffle has the published defaults: windows of 8 blocks, 8 of them in memory.

With a permutation of Levanter (``permutation_type: levanter``) the rule is "levanter", too, and the
seed is Levanter's data key: the run is then the one that Levanter would train on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.mix import mix
from tokenloom.arguments import check_names, integer, one_of
from tokenloom.bind import BindError, unbind
from tokenloom.errors import ConfigError
from tokenloom.integrations.levanter.mapping import base_of, frame_of
from tokenloom.integrations.levanter.sources import (
    LMMixtureDatasetConfig,
    find_place,
    open_or_build,
)
from tokenloom.mixture.levanter_rule import levanter_counts
from tokenloom.mixture.spec import STOPS, weights_of
from tokenloom.order.shuffle import BlockShuffle, Shuffle, parse_shuffle, rebuild_shuffle
from tokenloom.random.levanter import split, subkeys
from tokenloom.random.permute import check_perm_type

ABSENT = ("max_train_batches", "num_validation_sequences", "cache_options")

"""Keys that Levanter's trainer uses and a run has no use for; they are told."""


def is_lm_data(config: Mapping[str, Any]) -> bool:
    """Whether a mapping, or its `data` section, has components by name."""
    data = config.get("data", config)
    if not isinstance(data, Mapping):
        return False
    named = isinstance(data.get("configs"), Mapping) or isinstance(data.get("components"), Mapping)
    return named and not str(data.get("type", "")).startswith("splice")


def lm_from_config(
    config: Mapping[str, Any], *, seq_len: int | None = None
) -> tuple[Dataset, list[str]]:
    """The run of a data section, and what of it was not used.

    Args:
        config: the section, or a mapping that has it under `data`; paths are local.
        seq_len: tokens of a frame; default: as for `splice_from_config`.

    Raises:
        ConfigError: a key or value is invalid; two shuffles are given.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     data = {"configs": {"toy": {"cache_dir": folder + "/toy"}}, "shuffle": True}
    ...     run, unused = lm_from_config({"data": data, "train_seq_len": 2})
    >>> run.seq_len, run.is_finite, unused
    (2, False, [])
    """
    path = "data" if "data" in config else "$"
    data = dict(config.get("data", config))
    problems: list[str] = []
    if "components" in data:
        data["configs"] = data.pop("components")
    settings = {
        name: data.pop(name) for name in ("block_shuffle", "seq_len", "seed") if name in data
    }
    base = base_of(data, path, problems)
    frame = frame_of(config, seq_len, settings.get("seq_len"), problems)
    shuffle = _shuffle(base, settings.get("block_shuffle"), path, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    if frame is None:
        raise ConfigError(
            f"{path}.seq_len: missing. Give the tokens of a frame there, or as model.seq_len."
        )
    assert isinstance(base, LMMixtureDatasetConfig)
    weights, unused = _weights(base, path)
    stores = {name: open_or_build(find_place(base, name, None)) for name in weights}
    made = {}
    for name, store in stores.items():
        rows = store.windows(integer(f"{path}.seq_len", frame, least=1)).epochs(None)
        made[name] = rows if shuffle is None else rows.shuffle(shuffle)
    seed = integer(f"{path}.seed", settings.get("seed", 0))
    unused += _unused(base, shuffle, path)
    if shuffle is not None and shuffle.perm_type.startswith("levanter"):
        return _as_in_levanter(base, made, seed, path), unused
    if len(made) == 1:
        return next(iter(made.values())).seed(seed), unused
    return _mixed(base, made, weights, path).seed(seed), unused


def _unused(base: LMMixtureDatasetConfig, shuffle: Shuffle | None, path: str) -> list[str]:
    """Keys that are set and mean nothing here."""
    told = [f"{path}.{name}: not used." for name in ABSENT if getattr(base, name) is not None]
    if base.permutation_type is not None and shuffle is None:
        told.append(f"{path}.permutation_type: not used; nothing is shuffled.")
    if base.shuffle_per_epoch is not None:
        told.append(f"{path}.shuffle_per_epoch: not used; every epoch has an order of its own.")
    return told


def _mixed(
    base: LMMixtureDatasetConfig, made: dict[str, Dataset], weights: dict[str, float], path: str
) -> Dataset:
    stop = "restart" if base.stop_strategy is None else base.stop_strategy
    one_of(f"{path}.stop_strategy", stop, STOPS)
    if stop != "restart":
        made = {name: one.epochs(1) for name, one in made.items()}
    block = 2048 if base.mixture_block_size is None else base.mixture_block_size
    block = integer(f"{path}.mixture_block_size", block, least=1)
    return mix(made, rule="random", weights=weights, stop=stop, block=block)


def _as_in_levanter(
    base: LMMixtureDatasetConfig, made: dict[str, Dataset], key: int, path: str
) -> Dataset:
    """The mixture with Levanter's keys; a single component is a mixture there, too."""
    one_of(f"{path}.stop_strategy", base.stop_strategy or "restart", ["restart"])
    block = 2048 if base.mixture_block_size is None else base.mixture_block_size
    made = {name: made[name] for name in base.configs if name in made}  # their order has the keys
    given = base.train_weights or dict.fromkeys(made, 1.0)
    counts = levanter_counts(f"{path}.train_weights", given, list(made), block)
    mixing, shuffling = split(key)
    keyed = zip(made.items(), subkeys(shuffling), strict=False)
    sources = {name: rows.seed(own) for (name, rows), own in keyed}
    return mix(sources, rule="levanter", weights=counts, block=block).seed(mixing)


def _weights(base: LMMixtureDatasetConfig, path: str) -> tuple[dict[str, float], list[str]]:
    """The weight of every component that is drawn from, and which are not."""
    where, given = f"{path}.train_weights", base.train_weights
    if given is None:
        return dict.fromkeys(base.configs, 1.0), []
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{where}: found {type(given).__name__}, allowed: {{component: weight}}. Weights that "
            "change at a step need the batch size: use continue_run, or write a run file with "
            "mix.stages, in examples."
        )
    check_names(where, given, list(base.configs))
    drawn = {name: one for name, one in given.items() if one != 0}
    idle = [name for name in base.configs if name not in drawn]
    return weights_of(where, drawn), [
        f"{path}.configs.{name}: not used; its weight is 0 or missing." for name in idle
    ]


def _shuffle(base: Any, block: Any, path: str, problems: list[str]) -> Shuffle | None:
    """The one shuffle of a section, given as `shuffle` or as `block_shuffle`."""
    given = getattr(base, "shuffle", None)
    try:
        of_blocks = None if block is None else _published(block, f"{path}.block_shuffle")
        if isinstance(given, Mapping):
            given = _published(given, f"{path}.shuffle")
        found = parse_shuffle(given, of_blocks)
        kind = getattr(base, "permutation_type", None)
        if kind is not None:
            check_perm_type(kind)
        return found if found is None or kind is None else replace(found, perm_type=kind)
    except BindError as error:
        problems += error.problems
    except ConfigError as error:
        text = str(error)
        problems.append(text if text.startswith(path) else f"{path}.{text}")
    return None


def _published(fields: Any, path: str) -> BlockShuffle:
    """A block shuffle whose fields default to the published ones."""
    usual = {name: one for name, one in unbind(BlockShuffle.published()).items() if one is not None}
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{path}: found {fields!r}, allowed: fields, such as window_blocks: 8.")
    found = rebuild_shuffle({**usual, **fields, "kind": "block"}, path=path)
    assert isinstance(found, BlockShuffle)
    return found
