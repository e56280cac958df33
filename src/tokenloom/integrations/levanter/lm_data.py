"""A data section of Levanter's trainer as a run: from its start, or going on at a step.

`lm_from_config`: a component is ``store.windows(seq_len)`` with the shuffle of the section, and the
mixture is ``tokenloom.mix`` with the rule "random", whose blocks have fixed shares like Levanter's.
A block shuffle has the published defaults: windows of 8 blocks, 8 of them in memory. With a
permutation of Levanter (``permutation_type: levanter``) the rule is "levanter", too, and the seed
is Levanter's data key: the run is then the one that Levanter would train on.

`continue_run`: the next batch is the one that Levanter would have given. Levanter's data is a
function of a key, the batch sizes and the number of the step, and so is a run here. From its
settings follow the keys (the data key is split into one for the mixture and one for the shuffles,
which gives every component its own), the weights of each stage in examples, and the number of
examples before a step: Levanter counts steps, so each is converted once, by the sizes of all
batches before it (`BatchSizes`). The caches are opened in place. Settings under which Levanter's
rows are other ones are refused with the reason, and so are defaults that changed between its
versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.mix import mix
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import check_names, check_options, integer, one_of, wrong_type
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
from tokenloom.order.shuffle import (
    BlockShuffle,
    FullShuffle,
    Shuffle,
    parse_shuffle,
    rebuild_shuffle,
)
from tokenloom.random.keys import check_seed
from tokenloom.random.levanter import split, subkeys
from tokenloom.random.permute import check_perm_type


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Examples of every step.

    Attributes:
        segments: (first step, first example, size), ascending.
    """

    segments: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, given: Any) -> BatchSizes:
        """A number, or a list of {start, value}.

        >>> BatchSizes.of([{"start": 0, "value": 8}, {"start": 10, "value": 16}]).for_loader
        [(0, 8), (80, 16)]
        """
        if not isinstance(given, (list, tuple)):
            return cls(((0, 0, integer("batch_size", given, least=1)),))
        found: list[tuple[int, int, int]] = []
        for number, one in enumerate(given):
            where = f"batch_size[{number}]"
            pair = (one.get("start"), one.get("value")) if isinstance(one, Mapping) else one
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise wrong_type(where, one, "{start, value}")
            start, size = integer(where, pair[0]), integer(where, pair[1], least=1)
            first, examples, before = found[-1] if found else (0, 0, 0)
            if (start <= first) if found else start:
                raise ConfigError(
                    f"{where}: found start {start}, allowed: 0 first, then ascending."
                )
            found.append((start, examples + (start - first) * before, size))
        if not found:
            raise ConfigError(
                "batch_size: found an empty list, allowed: at least one {start, value}."
            )
        return cls(tuple(found))

    def examples_before(self, step: int) -> int:
        """Examples of all steps before one."""
        first, examples, size = [one for one in self.segments if one[0] <= step][-1]
        return examples + (step - first) * size

    @property
    def for_loader(self) -> int | list[tuple[int, int]]:
        """The same, as `Loader` takes it."""
        if len(self.segments) == 1:
            return self.segments[0][2]
        return [(examples, size) for _, examples, size in self.segments]


def stages_of(
    data: Mapping[str, Any], path: str, sizes: BatchSizes
) -> list[tuple[int, Mapping[str, Any]]]:
    """(first example, weights), ascending; Levanter writes them by step."""
    where, given = f"{path}.train_weights", data.get("train_weights")
    if given is None:
        named = data.get("components", data.get("configs", {}))
        return [(0, dict.fromkeys(named, 1.0))]
    if isinstance(given, Mapping):
        return [(0, given)]
    if not isinstance(given, (list, tuple)) or not given:
        raise wrong_type(where, given, "{component: weight} or a list of [step, weights]")
    found = []
    for number, one in enumerate(given):
        pair = one if isinstance(one, (list, tuple)) and len(one) == 2 else (None, None)
        if not isinstance(pair[1], Mapping):
            raise wrong_type(f"{where}[{number}]", one, "[step, {component: weight}]")
        found.append((sizes.examples_before(integer(f"{where}[{number}]", pair[0])), pair[1]))
    firsts = [at for at, _ in found]
    if firsts[0] or any(a >= b for a, b in itertools.pairwise(firsts)):
        raise ConfigError(
            f"{where}: found steps {[one[0] for one in given]}, allowed: 0, ascending."
        )
    return found


BLOCK = 2048  # examples, Levanter's default

PERM_TYPES = {"feistel": "levanter", "linear": "levanter_linear"}

# of a data section: what decides nothing here, and what would give other rows
ASIDE = (
    *("tokenizer", "vocab_size", "cache_options", "enforce_eos", "auto_build_caches", "type"),
    *("chat_template", "block_cross_document_attention", "shuffle_before_trainval_split"),
)
USED = (
    *("cache_dir", "components", "configs", "train_weights", "shuffle", "permutation_type"),
    *("mixture_block_size", "stop_strategy", "seq_len"),
)
REFUSED = {
    "max_train_batches": "it repeats the start of a component, and such a run has no inverse here",
    "num_validation_sequences": "it takes out rows by an order of its own before the shuffle",
    "experiment_budget": "it repeats the start of every component",
    "target_budget": "it repeats the start of every component",
}
OF_COMPONENT = (
    *("type", "source", "cache_dir", "format", "pack", "tags", "split", "flat_cache"),
    *("train_urls", "validation_urls", "id", "name", "stream"),
)

SEGMENTS = "segments: documents are told apart by the offsets of the cache, in Levanter by EOS."

LOSS = (
    "loss: every prediction but the last of an example counts, as in Levanter; "
    ".render(mask_boundary_loss=True) leaves out those across documents."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContinuedRun:
    """A run of Levanter, as a run here.

    Attributes:
        run: all its examples, from the first step on.
        state: the state before the step, for `Loader.load_state_dict`.
        batch_size: for `Loader`: a number, or (examples, size) pairs.
        notes: what is not as it is in Levanter, a sentence each.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     data = {"cache_dir": folder, "components": {"toy": {}}, "shuffle": False}
    ...     made = continue_run({"data": data}, step=3, batch_size=2, key=0, seq_len=2)
    ...     made.state["examples"], made.batch_size, len(made.notes)
    (6, 2, 2)
    """

    run: Dataset
    state: dict[str, Any]
    batch_size: int | list[tuple[int, int]]
    notes: tuple[str, ...]


def continue_run(
    config: Mapping[str, Any],
    *,
    step: int,
    batch_size: int | Sequence[Any] | None = None,
    key: int | Sequence[int] | None = None,
    seq_len: int | None = None,
) -> ContinuedRun:
    """The run of Levanter's settings, at a step.

    Args:
        config: the trainer's settings with the section `data`, as in its YAML; paths are local, and
            caches are opened in place, or stores that were converted from them.
        step: the number of steps that were trained: the state's step in Levanter.
        batch_size: examples of a step, or a list of {start, value}; default: that of
            `trainer.train_batch_size`.
        key: the data key as an integer or as its two words; default: from `data_seed`, else from
            `trainer.seed`, as `train_lm` does it.
        seq_len: tokens of an example; default: as for `splice_from_config`.

    Raises:
        ConfigError: a setting would give other rows here; the message says which, and why.

    >>> continue_run({"data": {"components": {}, "shuffle": 1000}}, step=0)
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: data.shuffle: found 1000; whole numbers were eras until ...
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("data", config), Mapping):
        raise wrong_type("config", config, "the settings of a trainer, with a section `data`")
    path = "data" if "data" in config else "$"
    data = config.get("data", config)
    _check_keys(data, path)
    shuffle = _shuffle(data, path)
    sizes = BatchSizes.of(_batch_size(config, batch_size))
    frame = _frame(config, seq_len, data, path)
    data_key = _data_key(config, key)
    stages = stages_of(data, path, sizes)
    components = _components(data, path)
    for _, weights in stages:
        check_names(f"{path}.train_weights", weights, list(components))
    drawn = [name for name in components if any(w.get(name, 0) > 0 for _, w in stages)]
    rows = {
        name: _opened(name, components[name], data, path).windows(frame, mask_boundary_loss=False)
        for name in drawn
    }
    block = _block(data.get("mixture_block_size"), path)
    run = _levanter_mix(f"{path}.train_weights", rows, shuffle, stages, block, data_key)
    at = sizes.examples_before(integer("step", step))
    return ContinuedRun(
        run=run,
        state=run.state(at, step=step),
        batch_size=sizes.for_loader,
        notes=_notes(data),
    )


# -- what is asked of the settings -----------------------------------------------------------------
def _check_keys(data: Mapping[str, Any], path: str) -> None:
    check_options(path, data, [*USED, *REFUSED, *ASIDE])
    for name, why in REFUSED.items():
        if data.get(name):
            raise ConfigError(f"{path}.{name}: found {data[name]!r}, not supported: {why}.")
    stop = data.get("stop_strategy", "restart")
    if stop != "restart":
        raise ConfigError(
            f"{path}.stop_strategy: found {stop!r}, allowed: 'restart'. Levanter ends the other "
            "two at places that miss or repeat examples, so there is no run to go on with."
        )


def _components(data: Mapping[str, Any], path: str) -> dict[str, Mapping[str, Any]]:
    found = data.get("components", data.get("configs"))
    if not isinstance(found, Mapping) or not found:
        raise ConfigError(f"{path}.components: missing. Give the caches by name.")
    for name, one in found.items():
        where = f"{path}.components.{name}"
        if not isinstance(one, Mapping):
            raise wrong_type(where, one, "a mapping")
        check_options(where, one, OF_COMPONENT)
        form = one.get("format") or {}
        kind = form.get("type", "text") if isinstance(form, Mapping) else form
        if one.get("type", "cached") not in ("cached", "url", "hf") or kind != "text":
            raise ConfigError(
                f"{where}: found {one.get('type', kind)!r}, allowed: caches of format text, whose "
                "examples are windows. Chat, prebuilt and joined components are laid out otherwise."
            )
        if one.get("pack"):
            raise ConfigError(
                f"{where}.pack: found {one['pack']!r}, allowed: false. Packed rows of Levanter are "
                "cut by rules of its own."
            )
    return dict(found)


def _shuffle(data: Mapping[str, Any], path: str) -> Shuffle | None:
    """The shuffle of every component; settings whose default changed must be given."""
    where = f"{path}.shuffle"
    if "shuffle" not in data:
        raise ConfigError(
            f"{where}: missing. Levanter did not shuffle by default until 2026-04 and shuffles "
            "blocks since. Give what the run had: false, true, or "
            "{io_block_size: 256, window_blocks: 512}."
        )
    found = data["shuffle"]
    if found is False or found is None:
        return None
    if isinstance(found, Mapping):
        check_options(where, found, ("io_block_size", "window_blocks", "perm_type"))
        sizes = {
            name: integer(f"{where}.{name}", found.get(name), least=1)
            for name in ("io_block_size", "window_blocks")
        }
        kind = found.get("perm_type", "feistel")
        one_of(f"{where}.perm_type", kind, PERM_TYPES)
        return BlockShuffle(**sizes, perm_type=PERM_TYPES[kind])
    if found is not True:
        raise ConfigError(
            f"{where}: found {found!r}; whole numbers were eras until 2026-04 and are ignored "
            "since. Allowed: false, true, or {io_block_size, window_blocks}."
        )
    kind = data.get("permutation_type")
    if kind is None:
        raise ConfigError(
            f"{path}.permutation_type: missing. Its default was linear until 2026-04 and is "
            "feistel since. Give what the run had."
        )
    one_of(f"{path}.permutation_type", kind, PERM_TYPES)
    return FullShuffle(perm_type=PERM_TYPES[kind])


def _frame(config: Mapping[str, Any], given: int | None, data: Any, path: str) -> int:
    problems: list[str] = []
    frame = frame_of(config, given, data.get("seq_len"), problems)
    if problems:
        raise ConfigError(problems[0])
    return _needed(frame, path)


def _needed(frame: int | None, path: str) -> int:
    if frame is None:
        raise ConfigError(
            f"{path}.seq_len: missing. Give seq_len, or train_seq_len or model.max_seq_len beside "
            "the section."
        )
    return integer(f"{path}.seq_len", frame, least=1)


def _data_key(config: Mapping[str, Any], key: Any) -> int:
    """The key of the data as an integer."""
    if isinstance(key, Sequence):
        words = [integer("key", word, most=(1 << 32) - 1) for word in key]
        if len(words) != 2:
            raise ConfigError(f"key: found {len(words)} words, allowed: two, or one integer.")
        return words[0] << 32 | words[1]
    if key is not None:
        return check_seed(key)
    seed = config.get("data_seed")
    if seed is not None:
        return integer("data_seed", seed, most=(1 << 32) - 1)
    trainer = config.get("trainer")
    of_trainer = trainer.get("seed", 0) if isinstance(trainer, Mapping) else None
    if of_trainer is None:
        raise ConfigError(
            "key: missing. Give the key of the data, or the sections with `data_seed` or "
            "`trainer.seed`, from which train_lm makes it."
        )
    return split(integer("trainer.seed", of_trainer, most=(1 << 32) - 1), 4)[0]


def _batch_size(config: Mapping[str, Any], given: Any) -> Any:
    trainer = config.get("trainer")
    found = trainer.get("train_batch_size") if isinstance(trainer, Mapping) else None
    if given is None and found is None:
        raise ConfigError("batch_size: missing. Give it, or trainer.train_batch_size.")
    return found if given is None else given


# -- caches ----------------------------------------------------------------------------------------
def _opened(name: str, component: Mapping[str, Any], data: Mapping[str, Any], path: str) -> Store:
    """The cache of a component, or the store that it was converted to."""
    own, root = component.get("cache_dir"), data.get("cache_dir")
    if own is None and root is None:
        raise ConfigError(
            f"{path}.components.{name}.cache_dir: missing. Give it, or that of the section."
        )
    place = str(own) if own is not None else f"{str(root).rstrip('/')}/{name}"
    train = f"{place.rstrip('/')}/train"
    is_flat = bool(component.get("flat_cache")) or not Path(train).expanduser().is_dir()
    return open_store(place if is_flat else train)


def _notes(data: Mapping[str, Any]) -> tuple[str, ...]:
    told = [SEGMENTS, LOSS]
    if data.get("block_cross_document_attention", True) is False:
        told.append("attention: it crosses documents in that run; use segment_ids accordingly.")
    return tuple(told)


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
    shuffle = _one_shuffle(base, settings.get("block_shuffle"), path, problems)
    if problems:
        raise ConfigError("\n".join(problems))
    frame = _needed(frame, path)
    assert isinstance(base, LMMixtureDatasetConfig)
    weights, unused = _weights(base, path)
    stores = {name: open_or_build(find_place(base, name, None)) for name in weights}
    rows = {name: store.windows(frame) for name, store in stores.items()}
    seed = integer(f"{path}.seed", settings.get("seed", 0))
    unused += _unused(base, shuffle, path)
    if shuffle is not None and shuffle.perm_type.startswith("levanter"):
        one_of(f"{path}.stop_strategy", base.stop_strategy or "restart", ["restart"])
        rows = {name: rows[name] for name in base.configs if name in rows}  # in order of the keys
        stages = [(0, base.train_weights or dict.fromkeys(rows, 1.0))]
        block = _block(base.mixture_block_size, path)
        return _levanter_mix(f"{path}.train_weights", rows, shuffle, stages, block, seed), unused
    made = {name: one.epochs(None) for name, one in rows.items()}
    if shuffle is not None:
        made = {name: one.shuffle(shuffle) for name, one in made.items()}
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
    block = _block(base.mixture_block_size, path)
    return mix(made, rule="random", weights=weights, stop=stop, block=block)


def _levanter_mix(
    where: str,
    rows: dict[str, Dataset],
    shuffle: Shuffle | None,
    stages: list[tuple[int, Mapping[str, Any]]],
    block: int,
    key: int,
) -> Dataset:
    """The mixture with Levanter's keys; a single component is a mixture there, too."""
    counts = {at: levanter_counts(where, one, list(rows), block) for at, one in stages}
    mixing, shuffling = split(key)
    endless = {name: one.epochs(None) for name, one in rows.items()}
    keyed = zip(endless.items(), subkeys(shuffling), strict=False)
    sources = {
        name: one if shuffle is None else one.shuffle(shuffle).seed(own)
        for (name, one), own in keyed
    }
    run = mix(sources, rule="levanter", weights=counts.pop(0), block=block, stages=counts)
    return run.seed(mixing)


def _block(given: Any, path: str) -> int:
    """Examples of a block of a mixture."""
    return integer(f"{path}.mixture_block_size", BLOCK if given is None else given, least=1)


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


def _one_shuffle(base: Any, block: Any, path: str, problems: list[str]) -> Shuffle | None:
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
