"""What the constructors were told, as the arguments of ``store.select(...).splice(...)``.

One idea: everything that can be known to be wrong is said at once and before there is a store,
because building one from text may take hours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tokenloom.dataset import Dataset, SourceConfig
from tokenloom.documents import Documents
from tokenloom.errors import ConfigError
from tokenloom.keys import check_seed
from tokenloom.layout.select import SelectSpec, training_cutoff, with_selector
from tokenloom.rendering import RenderSpec
from tokenloom.shuffle import parse_shuffle
from tokenloom.splice_configs.sources import Base, find_place
from tokenloom.splice_configs.stores import open_or_build
from tokenloom.splicing import OPTIONS, splice_settings
from tokenloom.stored import Store
from tokenloom.words import check_options, warn

__all__ = ["FURTHER", "keywords", "make_splices", "setting_names"]

MAX_ID = (1 << 31) - 1
SUBSET = ("restrict_to_training_subset", "max_train_batches", "initial_batch_size", "seq_len")


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments of a function and their defaults."""
    found = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in found if one.kind is one.KEYWORD_ONLY}


SPLICING = keywords(Documents.splice)
SELECTING = [name for name in keywords(Documents.select) if name not in (*SUBSET, "seed")]
FURTHER = sorted({*SPLICING, *OPTIONS, *SELECTING} - {"pad_id", "eos_id"})
"""What every constructor takes beside its own arguments: of `select` and of `splice`."""


def setting_names(constructor: Callable[..., Dataset]) -> list[str]:
    """All that a constructor takes, its further options included."""
    return sorted({*keywords(constructor), *FURTHER})


def make_splices(
    constructor: Callable[..., Dataset],
    *,
    base: Base,
    dataset_name: str | None,
    tokenizer: Any,
    pad_token_id: int | None,
    eos_token_id: int | None,
    restrict_to_training_subset: bool,
    max_train_batches: int | None,
    initial_batch_size: int | None,
    shuffle: bool | int,
    shuffle_per_epoch: bool,
    seq_len: int | None,
    epochs: int | None,
    seed: int,
    select_seed: int,
    options: dict[str, Any],
    **named: Any,
) -> Dataset:
    """The dataset that the arguments of a constructor mean; its docstring says what each is."""
    check_options(constructor.__name__, options, setting_names(constructor))
    place = find_place(base, dataset_name, tokenizer)
    splicing: dict[str, Any] = {"trailing": "doc", **named, **options}
    selecting = {name: splicing.pop(name) for name in SELECTING if name in splicing}
    subset: dict[str, Any] = {
        "restrict_to_training_subset": restrict_to_training_subset,
        "max_train_batches": _first(max_train_batches, place.max_train_batches),
        "initial_batch_size": initial_batch_size,
        "seq_len": seq_len,
    }
    all_trained = restrict_to_training_subset is True and subset["max_train_batches"] is None
    if all_trained:
        subset["restrict_to_training_subset"] = False
    order: dict[str, Any] = {
        "shuffle": _first(shuffle, False),
        "shuffle_per_epoch": shuffle_per_epoch,
        "epochs": epochs,
        "seed": seed,
        "select_seed": select_seed,
    }
    if splicing.get("shuffle_offsets") or splicing.get("shuffle_content"):
        splicing["shuffle_per_epoch"] = shuffle_per_epoch
    tokens = {"pad_token_id": pad_token_id, "eos_token_id": eos_token_id}
    problems = list(_problems(splicing, selecting, subset, tokens, order))
    if problems:
        raise ConfigError("\n".join(problems))
    store = open_or_build(place)
    if all_trained:
        warn(
            "restrict_to_training_subset: found True, but nothing says how many batches were "
            f"trained on, so all {store.num_tokens:,} tokens of {store.path} count. Give "
            "max_train_batches, or leave the restriction out."
        )
    documents = store.select(**selecting, **subset, seed=select_seed)
    made = documents.splice(subset["seq_len"], **_with_tokens(splicing, store, **tokens))
    return _ordered(made, by_axes="shuffle_per_epoch" in splicing, **order)


def _ordered(
    made: Dataset,
    by_axes: bool,
    shuffle: bool | int,
    shuffle_per_epoch: bool,
    epochs: int | None,
    seed: int,
    select_seed: int,
) -> Dataset:
    """Rows shuffled as asked; for ever only if that is how they are shuffled."""
    if epochs is not None or shuffle_per_epoch:
        made = made.epochs(epochs)
    if shuffle is not False:
        made = made.shuffle(shuffle)
    elif shuffle_per_epoch and not by_axes:
        made = made.shuffle()
    return made.seed(seed)


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value


def _with_tokens(
    splicing: dict[str, Any], store: Store, pad_token_id: int | None, eos_token_id: int | None
) -> dict[str, Any]:
    """Settings with the tokens that stand in filler; 0 is as good as any."""
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
) -> Iterator[str]:
    """One message for each check that fails."""
    for check, arguments in (
        (_check_splicing, (splicing, subset["seq_len"], order)),
        (_check_selecting, (selecting, subset)),
        (_check_tokens, (tokens,)),
        (_check_order, (order,)),
    ):
        try:
            check(*arguments)
        except ConfigError as error:
            yield str(error)


def _check_splicing(splicing: dict[str, Any], seq_len: int | None, order: dict[str, Any]) -> None:
    if seq_len is None:
        raise ConfigError(
            "seq_len: missing; the tokens of a frame. A trainer takes it from its model (the Pos "
            "axis), here say seq_len=4096."
        )
    asked = {**SPLICING, **splicing, "bos": None, "eos_before": None}
    layout, render = splice_settings(seq_len, **asked, eos=0)
    SourceConfig(
        layout=layout, render=RenderSpec(**render), epochs=order["epochs"], seed=order["seed"]
    )


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
                f"{name}: found {found!r}, allowed is the id of a token, 0 or more, or None for "
                "the tokenizer's own."
            )


def _check_order(order: dict[str, Any]) -> None:
    parse_shuffle(order["shuffle"])
    if not isinstance(order["shuffle_per_epoch"], bool):
        raise ConfigError(
            f"shuffle_per_epoch: found {order['shuffle_per_epoch']!r}, allowed are True and False."
        )
    try:
        check_seed(order["select_seed"])
    except ConfigError as error:
        raise ConfigError(f"select_{error}") from None
