"""Splices under the names that users of Levanter know, as functions or from plain data.

One idea: an existing configuration keeps its names and defaults, and becomes
``store.select(...).splice(...)``. Trailing filler has the segment of the document, as published. A
frame has `seq_len` tokens: in Levanter the size of the model's `Pos` axis, here an argument.
Everything that can be known to be wrong is reported together, before a store is built, because
building one from text may take hours.

`splice_from_config` takes the `data` section of a trainer's YAML, unchanged: the signature of a
constructor is its schema. Keys, types and records are checked together, and every message starts
with the path of its key, such as ``data.base.configs.wiki.cache_dir``. Other sections of the file
are ignored, except for the length of a frame.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, make_dataclass
from typing import Any, TypeVar

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.splice import splice_settings
from tokenloom.api.store import Store
from tokenloom.arguments import check_options, one_of, wrong_type
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import BindError, bind
from tokenloom.documents.spec import SelectSpec, training_cutoff, with_selector
from tokenloom.errors import ConfigError, InputError, StoreNotFound, choices, warn
from tokenloom.integrations.levanter.sources import (
    Base,
    LMMixtureDatasetConfig,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
    find_place,
    open_or_build,
)
from tokenloom.order.shuffle import Shuffle, parse_shuffle, rebuild_shuffle
from tokenloom.order.spec import SourceConfig
from tokenloom.random.keys import check_seed

MAX_ID = (1 << 31) - 1

SUBSET = ("restrict_to_training_subset", "max_train_batches", "initial_batch_size", "seq_len")

TOKENS = ("pad_token_id", "eos_token_id")

ORDER = ("shuffle", "shuffle_per_epoch", "epochs", "seed", "select_seed")


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments of a function and their defaults."""
    found = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}


SPLICING = keywords(Documents.splice)

SELECTING = [name for name in keywords(Documents.select) if name not in (*SUBSET, "seed")]

FURTHER = sorted({*SPLICING, *SELECTING} - {"pad_id", "eos_id"})

"""What every constructor takes in addition to its own arguments: those of `select` and `splice`."""


def setting_names(constructor: Callable[..., Dataset]) -> list[str]:
    """Everything that a constructor takes, including further options."""
    return sorted({*keywords(constructor), *FURTHER})


def make_splices(
    constructor: Callable[..., Dataset],
    *,
    base: Base,
    dataset_name: str | None,
    tokenizer: Any,
    options: dict[str, Any],
    **named: Any,
) -> Dataset:
    """The dataset for the arguments of a constructor; its docstring describes them."""
    check_options(constructor.__name__, options, setting_names(constructor))
    place = find_place(base, dataset_name, tokenizer)
    splicing: dict[str, Any] = {"trailing": "doc", **named, **options}
    selecting, subset, tokens, order = (
        {name: splicing.pop(name) for name in names if name in splicing}
        for names in (SELECTING, SUBSET, TOKENS, ORDER)
    )
    subset["max_train_batches"] = _first(subset["max_train_batches"], place.max_train_batches)
    restrict = subset["restrict_to_training_subset"]
    all_trained = restrict is True and subset["max_train_batches"] is None
    if all_trained:
        subset["restrict_to_training_subset"] = False
    anew = order["shuffle_per_epoch"]
    if splicing.get("shuffle_offsets") or splicing.get("shuffle_content"):
        splicing["shuffle_per_epoch"] = anew
    problems = list(_problems(splicing, selecting, subset, tokens, order, place.shuffle))
    if problems:
        raise ConfigError("\n".join(problems))
    store = open_or_build(place)
    if all_trained:
        warn(
            "restrict_to_training_subset: found True, but nothing tells how many batches were "
            f"trained on, so all {store.num_tokens:,} tokens of {store.path} count. Pass "
            "max_train_batches, or leave the restriction out."
        )
    documents = store.select(**selecting, **subset, seed=order["select_seed"])
    made = documents.splice(subset["seq_len"], **_with_tokens(splicing, store, **tokens))
    if order["epochs"] is not None or anew:  # endless only if every epoch is shuffled anew
        made = made.epochs(order["epochs"])
    shuffle = _shuffle_of(order["shuffle"], place.shuffle)
    if shuffle is not None:
        made = made.shuffle(shuffle)
    elif anew and "shuffle_per_epoch" not in splicing:
        made = made.shuffle()
    return made.seed(order["seed"])


def _shuffle_of(shuffle: Any, base_shuffle: Any) -> Shuffle | None:
    """The shuffle of the settings, else of the base; a mapping has the fields of `BlockShuffle`."""
    name, given = ("base.shuffle", base_shuffle) if shuffle is None else ("shuffle", shuffle)
    try:
        if isinstance(given, Mapping | str | list):  # as written in a file
            return rebuild_shuffle(given, path=name)
        return parse_shuffle(given)
    except (BindError, ConfigError) as error:
        text = str(error)
        raise ConfigError(text if text.startswith(name) else f"base.{text}") from None


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value


def _with_tokens(
    splicing: dict[str, Any], store: Store, pad_token_id: int | None, eos_token_id: int | None
) -> dict[str, Any]:
    """Settings with the tokens used for filler; 0 is an id like any other."""
    found = dict(splicing)
    if eos_token_id is not None:
        found["eos_id"] = eos_token_id
        if found.get("eos_before") is True:
            found["eos_before"] = eos_token_id
        if found.get("filler") == "eos":
            del found["filler"]
            return found | {"pad_id": eos_token_id}
        if store.tokenizer is None or store.tokenizer.pad is None:
            pad_token_id = _first(pad_token_id, eos_token_id)
    if pad_token_id is not None and found.get("filler") != "eos":
        found["pad_id"] = pad_token_id
    return found


# -- what is wrong, before there is a store --------------------------------------------------------
def _problems(
    splicing: dict[str, Any],
    selecting: dict[str, Any],
    subset: dict[str, Any],
    tokens: dict[str, int | None],
    order: dict[str, Any],
    base_shuffle: Any,
) -> Iterator[str]:
    """One message per failed check."""
    for check, arguments in (
        (_check_splicing, (splicing, subset["seq_len"], order)),
        (_check_selecting, (selecting, subset)),
        (_check_tokens, (tokens,)),
        (_check_order, (order, base_shuffle)),
    ):
        try:
            check(*arguments)
        except ConfigError as error:
            yield str(error)


def _check_splicing(splicing: dict[str, Any], seq_len: int | None, order: dict[str, Any]) -> None:
    if seq_len is None:
        raise ConfigError(
            "seq_len: missing; the tokens of a frame. A trainer takes it from its model (the Pos "
            "axis); here, pass it, e.g. seq_len=4096."
        )
    asked = {**SPLICING, **splicing, "bos": None, "eos_before": None}
    layout, render = splice_settings(seq_len, **asked, eos=0)
    RenderSpec(**render)
    SourceConfig(layout=layout, epochs=order["epochs"], seed=order["seed"])


def _check_selecting(selecting: dict[str, Any], subset: dict[str, Any]) -> None:
    training_cutoff(*(subset[name] for name in SUBSET))
    fields = dict(selecting)
    selector, index = fields.pop("doc_selector", None), fields.get("doc_index")
    if isinstance(index, list | range | np.ndarray):
        fields["doc_index"] = tuple(np.asarray(index).tolist())
    if callable(fields.get("doc_key")):
        del fields["doc_key"]
    SelectSpec(**with_selector(selector, fields))


def _check_tokens(tokens: dict[str, int | None]) -> None:
    for name, found in tokens.items():
        is_number = isinstance(found, int | np.integer) and not isinstance(found, bool)
        if found is not None and not (is_number and 0 <= found <= MAX_ID):
            raise ConfigError(
                f"{name}: found {found!r}, allowed: the id of a token, 0 or more, or None for "
                "the tokenizer's own."
            )


def _check_order(order: dict[str, Any], base_shuffle: Any) -> None:
    _shuffle_of(order["shuffle"], base_shuffle)
    if not isinstance(order["shuffle_per_epoch"], bool):
        raise ConfigError(
            f"shuffle_per_epoch: found {order['shuffle_per_epoch']!r}, allowed: True and False."
        )
    try:
        check_seed(order["select_seed"])
    except ConfigError as error:
        raise ConfigError(f"select_{error}") from None


def SpliceSingleDocumentLMConfig(  # noqa: N802 - the name that its users know
    *,
    base: Base = None,
    dataset_name: str | None = None,
    tokenizer: Any = None,
    doc_index: int | None = None,
    doc_key: Any = None,
    doc_selector: dict[str, Any] | None = None,
    min_doc_length: int | None = None,
    max_doc_length: int | None = None,
    doc_select_mode: str = "first",
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    offset_stride: int = 1,
    shuffle_offsets: bool | int = False,
    offset_seed: int = 0,
    content_length: int | None = None,
    content_stride: int = 1,
    shuffle_content: bool | int = False,
    content_seed: int = 0,
    content_start_mode: str = "coverage_balanced",
    min_copy_len: int = 2,
    alpha: float = 0.0,
    mode: str = "splice",
    restrict_to_training_subset: bool = False,
    initial_batch_size: int | None = None,
    max_train_batches: int | None = None,
    shuffle: bool | int | dict[str, Any] | None = None,
    shuffle_per_epoch: bool = False,
    seq_len: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    select_seed: int = 0,
    **options: Any,
) -> Dataset:
    """One document of a base, at many positions of frames.

    Args:
        base: where the documents are; see `tokenloom.integrations.levanter.sources`.
        dataset_name: dataset of a mixture; may be left out if there is only one.
        tokenizer: tokenizer of the text, if the store must be built; else compared with the
            store's.
        doc_index: the number of the document in the store.
        doc_key: conditions on its metadata; this and the following as for `Documents.select`.
        doc_selector: a mapping of `min_len`, `max_len` and `hash`.
        min_doc_length: smallest number of tokens. If no document has that many, the longest is
            used; if the one at `doc_index` does not, the mode chooses; each with a warning.
        max_doc_length: largest number of tokens; likewise.
        doc_select_mode: "first", "longest", "shortest" or "random".
        pad_token_id: token in filler cells; default: the tokenizer's pad, else EOS, else 0.
        eos_token_id: EOS, if the tokenizer has none or to override it.
        offset_stride: cells from one offset to the next; this and the following are fields of
            `tokenloom.layout.splice.spec.SpliceSpec`, which has the details.
        shuffle_offsets: iterate over offsets in random order.
        offset_seed: seed of that order.
        content_length: tokens of a splice, 2 or more; None is as many as fit.
        content_stride: tokens from one start to the next.
        shuffle_content: iterate over starts in random order.
        content_seed: seed of that order.
        content_start_mode: "coverage_balanced", "slide_within", "anchor_start" or "cyclic_roll".
        min_copy_len: splices with fewer tokens are skipped.
        alpha: prefer starts near the ends of the document.
        mode: "splice", or "slide": full frames of a document, without filler.
        restrict_to_training_subset: only documents inside the first `max_train_batches` x
            `initial_batch_size` x `seq_len` tokens of the store.
        initial_batch_size: rows of a batch.
        max_train_batches: number of batches trained on; default: the mixture's. If neither is
            given, the whole store counts, with a warning.
        shuffle: True, the number of rows to shuffle among each other, a `BlockShuffle`, or a
            mapping of its fields, such as {"window_blocks": 8}; None takes the base's, else False.
        shuffle_per_epoch: shuffle anew in every epoch: the orders of `shuffle_offsets` and
            `shuffle_content` if there are any, else all rows.
        seq_len: tokens of a frame.
        epochs: number of epochs; None is one, or endless with `shuffle_per_epoch`.
        seed: seed of the order of examples.
        select_seed: seed for doc_select_mode="random".
        options: options of `Documents.select` and `Documents.splice`, such as
            position_scheme="relative". They are passed on as they are, not listed: Levanter does
            not have them, and the two methods describe and check them.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcd"}, {"text": "xyz"}], folder + "/toy", tokenizer="bytes")
    ...     made = SpliceSingleDocumentLMConfig(base=folder + "/toy", doc_index=1, seq_len=5)
    ...     len(made), made[0].tokens.tolist(), made[0].segment_ids.tolist()
    (1, [[0, 0, 120, 121, 122]], [[0, 0, 1, 1, 1]])
    """
    return make_splices(SpliceSingleDocumentLMConfig, **locals())


def SpliceMultiDocumentLMConfig(  # noqa: N802 - the name that its users know
    *,
    base: Base = None,
    dataset_name: str | None = None,
    tokenizer: Any = None,
    num_docs: int | None = 10,
    min_doc_length: int | None = None,
    max_doc_length: int | None = None,
    doc_select_mode: str = "longest",
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    content_length: int | None = None,
    content_stride: int = 1,
    offset_stride: int = 1,
    content_start_mode: str = "coverage_balanced",
    min_copy_len: int = 2,
    alpha: float = 0.0,
    adaptive_k: bool = True,
    offset_jitter: int = 0,
    jitter_mode: str = "uniform",
    balance_mode: str = "by_temperature",
    balance_tau: float = 1.0,
    epoch_length: int | None = None,
    restrict_to_training_subset: bool = False,
    initial_batch_size: int | None = None,
    max_train_batches: int | None = None,
    shuffle: bool | int | dict[str, Any] | None = None,
    shuffle_per_epoch: bool = False,
    seq_len: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    select_seed: int = 0,
    **options: Any,
) -> Dataset:
    """Several documents of a base, balanced, at chosen positions of frames.

    Arguments shared with `SpliceSingleDocumentLMConfig` mean the same here. `num_docs` documents
    are selected; fewer are an error, unless the options contain ``on_shortage="fewer"``.
    `adaptive_k` splices documents shorter than `content_length` as a whole; `offset_jitter` moves
    splices to the left by up to that many cells, in the order of `jitter_mode`; `balance_mode` and
    `balance_tau` decide how often each document is shown; `epoch_length` is the number of examples
    in an epoch (None: as many as show every splice once). See
    `tokenloom.layout.splice.spec.SpliceSpec`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcd"}, {"text": "xyz"}], folder + "/toy", tokenizer="bytes")
    ...     made = SpliceMultiDocumentLMConfig(
    ...         base=folder + "/toy", num_docs=2, content_length=3, seq_len=4
    ...     )
    ...     made.batch([0, 1, 2]).tokens.tolist()
    [[0, 97, 98, 99], [0, 98, 99, 100], [0, 120, 121, 122]]
    """
    return make_splices(SpliceMultiDocumentLMConfig, **locals())


def recommended(seq_len: int, *, offset_jitter: int = 0) -> dict[str, Any]:
    """The recommended settings for frames of `seq_len` tokens, without their contradictions.

    Splices fill the frame, or leave the room that `offset_jitter` needs to move them. Every
    document has at least one full splice; for very long frames, the longest allowed document has
    two.

    >>> made = recommended(4096, offset_jitter=4)
    >>> made["content_length"], made["min_doc_length"], made["balance_tau"]
    (4092, 4096, 0.7)
    """
    if offset_jitter < 0 or seq_len - offset_jitter < 2:
        raise ConfigError(
            f"offset_jitter: found {offset_jitter}, allowed: 0 to {seq_len - 2} with frames of "
            f"{seq_len} tokens: a splice has 2 or more."
        )
    shortest = max(4096, seq_len)
    return {
        "num_docs": 10,
        "min_doc_length": shortest,
        "max_doc_length": 100_000 if shortest < 100_000 else 2 * shortest,
        "doc_select_mode": "longest",
        "balance_mode": "by_temperature",
        "balance_tau": 0.7,
        "content_length": seq_len - offset_jitter,
        "content_stride": 1,
        "content_start_mode": "coverage_balanced",
        "alpha": 0.8,
        "adaptive_k": True,
        "offset_jitter": offset_jitter,
    }


T = TypeVar("T")

Constructor = Callable[..., Dataset]

KINDS: dict[str, Constructor] = {
    "splice_single_document": SpliceSingleDocumentLMConfig,
    "splice_multi_document": SpliceMultiDocumentLMConfig,
}

BASES: dict[str, type] = {
    "mixture": LMMixtureDatasetConfig,
    "url_single_dataset": UrlSingleDatasetLMConfig,
}

OUTSIDE = ("train_seq_len", "model.seq_len", "model.max_seq_len")


def is_splice_config(config: Any) -> bool:
    """Whether a mapping, or its `data` section, has a splice type."""
    if not isinstance(config, Mapping):
        return False
    data = config.get("data", config)
    return isinstance(data, Mapping) and str(data.get("type", "")).startswith("splice")


def splice_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> Dataset:
    """The dataset of a `data` section of type splice_single_document or splice_multi_document.

    Args:
        config: the section, or a mapping that has it under `data`. Paths in it are local; relative
            ones are relative to the working directory.
        seq_len: tokens of a frame; default: `seq_len` of the section, or outside of it the first of
            `train_seq_len`, `model.seq_len` and `model.max_seq_len` that is given.

    Raises:
        ConfigError: keys are unknown, missing or invalid.

    >>> splice_from_config({"data": {"type": "splice_single_document", "doc_idx": 3}})
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: data.doc_idx: unknown key. Allowed: ... Did you mean 'doc_index'?
    """
    path, data = _section(config)
    kind = data.get("type")
    one_of(f"{path}.type", kind, KINDS)
    constructor, problems = KINDS[str(kind)], list[str]()
    given = {name: value for name, value in data.items() if name not in ("type", "base")}
    bound = _bind(_schema(constructor), given, path, problems)
    base = base_of(data.get("base"), f"{path}.base", problems)
    frame = frame_of(config, seq_len, given.get("seq_len"), problems)
    if problems:
        raise ConfigError("\n".join(problems))
    settings = {name: getattr(bound, name) for name in given} | {"seq_len": frame}
    try:
        return constructor(base=base, **settings)
    except (ConfigError, InputError, StoreNotFound) as error:
        raise type(error)(_under(path, error, constructor)) from error


def _section(config: Any) -> tuple[str, Mapping[str, Any]]:
    """The `data` section and its path."""
    path, data = "$", config
    if isinstance(config, Mapping) and "data" in config:
        path, data = "data", config["data"]
    if not isinstance(data, Mapping):
        raise wrong_type(path, data, "a mapping")
    return path, data


@functools.cache
def _schema(constructor: Constructor) -> type:
    """The arguments of a constructor as a dataclass; further options are checked elsewhere."""
    hints = typing.get_type_hints(constructor)
    own = {name: default for name, default in keywords(constructor).items() if name != "base"}
    fields: list[Any] = [(name, hints[name], field(default=own[name])) for name in own]
    fields += [(name, Any, field(default=None)) for name in FURTHER if name not in own]
    return make_dataclass(constructor.__name__, fields, frozen=True, kw_only=True)


def _bind(cls: type[T], value: Any, path: str, problems: list[str]) -> T | None:
    try:
        return bind(cls, value, path=path)
    except BindError as error:
        problems += error.problems
        return None


def base_of(value: Any, path: str, problems: list[str]) -> Base:
    """The record for the `base` of a section."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {type(value).__name__}, allowed: a mapping.")
        return None
    usual = "mixture" if "configs" in value else "url_single_dataset"
    kind, rest = _typed(value, usual, list(BASES), path, problems)
    if kind == "mixture" and isinstance(rest.get("configs"), Mapping):
        rest["configs"] = {
            str(name): _read_source(one, f"{path}.configs.{name}", problems)
            for name, one in rest["configs"].items()
        }
        if None in rest["configs"].values():  # already reported
            rest["configs"] = {}
    _read_format(rest, path, problems)
    made: Base = _bind(BASES[kind], rest, path, problems)
    return made


def _read_source(value: Any, path: str, problems: list[str]) -> UrlDatasetSourceConfig | None:
    if isinstance(value, Mapping):
        _, value = _typed(value, "url", ["url"], path, problems)
        _read_format(value, path, problems)
    return _bind(UrlDatasetSourceConfig, value, path, problems)


def _read_format(source: dict[str, Any], path: str, problems: list[str]) -> None:
    if isinstance(source.get("format"), Mapping):
        where = f"{path}.format"
        _, source["format"] = _typed(source["format"], "text", ["text"], where, problems)


def _typed(
    value: Mapping[str, Any], usual: str, allowed: list[str], path: str, problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """The `type` of a mapping, and its other keys."""
    kind = value.get("type", usual)
    if kind not in allowed:
        problems.append(f"{path}.type: found {kind!r}, allowed: {choices(kind, allowed)}")
        kind = usual
    return kind, {name: each for name, each in value.items() if name != "type"}


def frame_of(
    config: Mapping[str, Any], given: int | None, inside: Any, problems: list[str]
) -> int | None:
    """Tokens of a frame: as given, from the section, or from the sections next to it."""
    if given is not None or inside is not None:
        return inside if given is None else given
    path, found = outer_frame(config) if "data" in config else ("", None)
    if found is not None and type(found) is not int:
        problems.append(f"{path}: found {found!r}, allowed: an integer, tokens of a frame.")
        return None
    return found


def outer_frame(config: Mapping[str, Any]) -> tuple[str, Any]:
    """The key next to a data section that gives the length of a frame, and the length."""
    for path in OUTSIDE:
        section, _, name = path.rpartition(".")
        place = config.get(section) if section else config
        found = place.get(name) if isinstance(place, Mapping) else None
        if found is not None:
            return path, found
    return "", None


def _under(path: str, error: Exception, constructor: Constructor) -> str:
    """A message in which every line that starts with a key has the key's full path."""
    is_setting = isinstance(error, ConfigError)
    names = setting_names(constructor) if is_setting else ["base"]  # others start with files
    lines = str(error).split("\n")
    told = [f"{path}.{one}" if re.split(r"[:.,[]", one)[0] in names else one for one in lines]
    if is_setting and told[0] == lines[0]:
        told[0] = f"{path}: {lines[0]}"
    return "\n".join(told)
