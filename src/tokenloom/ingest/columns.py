"""What ready-made columns mean: which tokens of a record are trained on, and which are padding.

One idea: people who fine-tune bring the columns of their trainer, and each says the same thing in
its own way. All of them become the one or two columns that a store keeps, a value for each token,
and it belongs to the token itself: it weights the prediction *of* that token.

==================  ===========================================  =============================
column              a token is trained on where                  stored as
==================  ===========================================  =============================
labels              it equals the token (-100: not trained)      loss_mask
completion_mask     it is 1                                      loss_mask
assistant_masks     it is 1, and completion_mask too if given    loss_mask
loss_mask           it is 1                                      loss_mask
loss_weights        it is more than 0                            loss_weights
attention_mask      (0: padding on either side, which is cut     not stored
                    off from all columns alike)
==================  ===========================================  =============================

Whatever cannot be kept that way is refused: columns that disagree, a record that lacks a column of
the first one or has one more, values that mean nothing. A list with a number for each id under
another name is metadata, with a warning that everything is trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, choices, warn
from tokenloom.store import format as fmt
from tokenloom.store.loss_counts import LOSS_VALUES, first_wrong_loss
from tokenloom.tokenizer.chat.conversation import a_kind

Array = NDArray[Any]

Bool = NDArray[np.bool_]

MASKS: Final = ("completion_mask", "assistant_masks", "loss_mask")

PER_TOKEN: Final = frozenset({"labels", *MASKS, "loss_weights", "attention_mask"})

STORED: Final = {"loss_mask": "uint8", "loss_weights": "float32"}

IGNORE: Final = -100  # the label of a token that is not trained on

SAYS: Final = ("labels", *MASKS, "loss_weights")  # each says alone which tokens are trained on

HARMLESS: Final = frozenset({"token_type_ids", "special_tokens_mask", "position_ids"})

"""What tokenizers of transformers add for each token; nothing about training."""

LISTS: Final = (list, tuple, np.ndarray)


class BadRecord(ValueError):
    """Why a record cannot be used."""


def given_columns(first: Mapping[str, Any], asked: Iterable[str] = ()) -> tuple[str, ...]:
    """The columns of this module that records have: those of the first one, and those asked for."""
    found = {name for name in PER_TOKEN if first.get(name) is not None}
    wanted = {name for name in asked if name in STORED}
    if found & {"labels", *MASKS}:
        wanted.discard("loss_mask")  # it is made from these
    return tuple(sorted(found | wanted))


def stored_columns(given: Sequence[str], asked: Mapping[str, str]) -> dict[str, str]:
    """The columns that a store keeps, name → dtype.

    Args:
        given: what `given_columns` found.
        asked: columns that the user named, with their dtypes.

    Raises:
        ConfigError: a name or dtype that a store cannot have.

    >>> stored_columns(["attention_mask", "labels"], {"score": "float32"})
    {'loss_mask': 'uint8', 'score': 'float32'}
    """
    found = {}
    masked = any(name in given for name in ("labels", *MASKS))
    if masked and ("loss_mask" in given or "loss_weights" not in given):
        found["loss_mask"] = STORED["loss_mask"]
    if "loss_weights" in given:
        found["loss_weights"] = STORED["loss_weights"]
    for name, dtype in asked.items():
        if name in PER_TOKEN and name not in STORED:
            raise ConfigError(
                f"columns.{name}: it is not stored as it is: it decides which tokens the store "
                "trains on, in its column loss_mask. Leave it out of columns; it is found in the "
                "records."
            )
        if not fmt.COLUMN_NAME.fullmatch(name) or name in fmt.RESERVED_COLUMNS:
            raise ConfigError(
                f"columns.{name}: no column has this name, allowed: a to z, then letters, digits "
                f"and _, and none of {', '.join(sorted(fmt.RESERVED_COLUMNS))}."
            )
        if dtype not in fmt.COLUMN_DTYPES:
            raise ConfigError(
                f"columns.{name}: dtype {dtype!r}, allowed: {', '.join(fmt.COLUMN_DTYPES)}."
            )
        found[name] = str(np.dtype(dtype))
    return found


def check_keys(record: Mapping[str, Any], given: Sequence[str]) -> None:
    """Refuse a record with a column that the first one did not have."""
    if PER_TOKEN.isdisjoint(record):
        return
    for name in sorted(PER_TOKEN.intersection(record)):
        if name not in given and record[name] is not None:
            raise BadRecord(
                f"it has {name!r}, which the first record had not, so what it means would be lost; "
                "allowed: the same columns in all records"
            )


def warn_of_unknown(
    first: Mapping[str, Any], ids_key: str, given: Sequence[str], known: Iterable[str]
) -> None:
    """Warn of numbers for each id that do not decide what is trained on.

    Args:
        first: the first record.
        ids_key: key of its ids.
        given: what `given_columns` found; if one of them says what is trained on, others do not.
        known: keys that the user named as something else.
    """
    ids = first.get(ids_key)
    if not isinstance(ids, LISTS) or not set(SAYS).isdisjoint(given):
        return
    others = {ids_key, *known, *PER_TOKEN, *HARMLESS}
    for name, value in first.items():
        if (
            name not in others
            and isinstance(value, LISTS)
            and len(value) == len(ids) > 0
            and _are_numbers(value)
        ):
            warn(
                f"{name!r} has a number for each id of the first record, but it does not decide "
                f"what is trained on: every token is. Rename it to one of {', '.join(SAYS)} if it "
                "should (a mask is 1 where a token is trained on), or name it in metadata_keys."
            )


def _are_numbers(value: Any) -> bool:
    try:
        return len(number_array(value, "", "biuf")) > 0
    except BadRecord:
        return False


def refuse_beside_text(record: Mapping[str, Any], metadata_keys: Sequence[str] | None) -> None:
    """Refuse per-token columns of a record whose text is tokenised here: nothing fits them."""
    if PER_TOKEN.isdisjoint(record):
        return
    for name in sorted(PER_TOKEN.intersection(record)):
        if name not in (metadata_keys or ()) and isinstance(record[name], LISTS):
            raise BadRecord(
                f"it has {name!r}, a value for each token, but its text is tokenised here, so they "
                "cannot be matched; allowed: per-token columns beside ready-made ids "
                f"(ids_key='input_ids'). If {name!r} is something else, name it in metadata_keys"
            )


# -- one record ----------------------------------------------------------------------------
def token_values(
    record: Mapping[str, Any], ids: Array, given: Sequence[str], stored: Mapping[str, str]
) -> tuple[Array, dict[str, Array]]:
    """The ids of a record without padding, and the values of every stored column.

    Args:
        record: the record.
        ids: all its ids.
        given: which columns of this module it has.
        stored: the columns to keep, name → dtype.

    Raises:
        BadRecord: a column is missing, does not fit the ids, or disagrees with another one.

    >>> row = {"attention_mask": [0, 1, 1], "labels": [-100, -100, 7]}
    >>> ids, columns = token_values(row, np.array([0, 5, 7]), tuple(row), {"loss_mask": "uint8"})
    >>> ids.tolist(), columns["loss_mask"].tolist()
    ([5, 7], [0, 1])
    """
    for name in given:
        take(record, name, "a per-token column, as in the first record")
    whole = {name: _values(record, name, len(ids)) for name in (*given, *stored) if name in record}
    low, high = 0, len(ids)
    if "attention_mask" in given:
        low, high = _kept(whole.pop("attention_mask"))
    ids = ids[low:high]
    values = {name: column[low:high] for name, column in whole.items()}
    trained = {
        name: _trained(name, values[name], ids, low) for name in given if name != "attention_mask"
    }
    mask = _agreed(trained, low)
    columns = {}
    for name, dtype in stored.items():
        if name == "loss_mask":
            assert mask is not None  # it is stored only if some column says what is trained
            columns[name] = mask.astype(dtype)
        else:
            take(record, name, "a per-token column")
            columns[name] = _stored(name, values[name], dtype, low)
    return ids, columns


def _values(record: Mapping[str, Any], name: str, length: int) -> Array:
    kinds = "iu" if name == "labels" else "biuf"
    values = number_array(take(record, name, "a per-token column"), name, kinds)
    if len(values) != length:
        raise BadRecord(
            f"{name!r} has {len(values)} values for {length} ids, allowed: one for each"
        )
    return values


def _kept(mask: Array) -> tuple[int, int]:
    """The tokens that an attention mask keeps, [low, high); zeros are allowed on the sides only."""
    _refuse_wrong_loss("attention_mask", "loss_mask", mask, 0)
    ones = np.flatnonzero(mask)
    if not len(ones):
        return 0, 0
    low, high = int(ones[0]), int(ones[-1]) + 1
    if high - low != len(ones):
        hole = low + int(np.flatnonzero(mask[low:high] == 0)[0])
        raise BadRecord(
            f"'attention_mask' is 0 at position {hole}, between tokens that it keeps; allowed: "
            "zeros before and after them, as padding, which is cut off"
        )
    return low, high


def _refuse_wrong_loss(name: str, column: str, values: Array, low: int) -> None:
    at = first_wrong_loss(column, values)
    if at is not None:
        raise BadRecord(
            f"{name!r} is {values[at]} at position {low + at}, allowed: {LOSS_VALUES[column]}"
        )


def _trained(name: str, values: Array, ids: Array, low: int) -> Bool:
    """The tokens that a column trains on; `low` is the position of the first."""
    if name == "labels":
        return _labelled(values, ids, low)
    if name == "loss_weights":
        _refuse_wrong_loss(name, name, values, low)
        found: Bool = values > 0
        return found
    _refuse_wrong_loss(name, "loss_mask", values, low)
    one: Bool = values != 0
    return one


def _labelled(labels: Array, ids: Array, low: int) -> Bool:
    trained: Bool = labels != IGNORE
    wrong = trained & (labels != ids)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        shifted = (labels[:-1] == ids[1:]) | ~trained[:-1]
        hint = ""
        if len(ids) > 2 and trained[:-1].any() and shifted.all():
            hint = ". They are shifted by one: the label of a token is that token, not the next one"
        raise BadRecord(
            f"'labels' is {labels[at]} at position {low + at}, where the token is {ids[at]}; "
            f"allowed: the token itself, or {IGNORE} where it is not trained on{hint}"
        )
    return trained


def _agreed(trained: Mapping[str, Bool], low: int) -> Bool | None:
    """The tokens that all columns train on; None without any column."""
    said = dict(trained)
    if "completion_mask" in said and "assistant_masks" in said:
        both = said.pop("completion_mask") & said.pop("assistant_masks")
        said["completion_mask and assistant_masks"] = both
    first, *others = said or [""]
    for name in others:
        differ = said[name] != said[first]
        if differ.any():
            at = int(np.flatnonzero(differ)[0])
            yes, no = (first, name) if said[first][at] else (name, first)
            raise BadRecord(
                f"{yes} trains the token at position {low + at}, {no} does not; allowed: columns "
                "that agree. Leave one of them out"
            )
    return said.get(first)


def _stored(name: str, values: Array, dtype: str, low: int) -> Array:
    """Values in their stored dtype, if they fit."""
    with np.errstate(over="ignore", invalid="ignore"):
        kept = values.astype(dtype)
    if np.dtype(dtype).kind in "biu":
        if not np.array_equal(kept, values):
            raise BadRecord(
                f"{name!r} holds values that do not fit {dtype}; allowed: its values. Name a "
                "larger dtype in columns"
            )
        return kept
    lost = np.isinf(kept) & ~np.isinf(values)
    if lost.any():
        at = int(np.flatnonzero(lost)[0])
        raise BadRecord(
            f"{name!r} is {values[at]} at position {low + at}, which does not fit {dtype}; "
            "allowed: "
            "its values. Name a larger dtype in columns"
        )
    return kept


# -- values of a record --------------------------------------------------------------------
def take(record: Mapping[str, Any], key: str, what: str, others: Iterable[str | None] = ()) -> Any:
    """The value under a key, which must be there; null is not there for a per-token column.

    Args:
        record: the record.
        key: the key.
        what: what is under it, for the message.
        others: keys that hold something else.
    """
    if key in record and (record[key] is not None or key not in PER_TOKEN):
        return record[key]
    has = choices(key, record) + _likely(record, what, others)
    raise BadRecord(f"no key {key!r}; the record has: {has}")


def _likely(record: Mapping[str, Any], what: str, others: Iterable[str | None]) -> str:
    """The option to pass, if one of the record's keys looks like what is missing."""
    kinds: dict[str, tuple[str, Any]] = {
        "the text": ("text_key", str),
        "the ids": ("ids_key", list),
    }
    name, kind = kinds.get(what, ("", ()))
    known = set(others)
    found = [key for key, value in record.items() if isinstance(value, kind) and key not in known]
    longest = max(found, key=lambda key: len(record[key]), default=None)
    return "" if longest is None else f" For {what} in {longest!r}, pass {name}={longest!r}."


def number_array(value: Any, key: str, kinds: str) -> Array:
    """A list of numbers of these kinds (as in `numpy.dtype.kind`) as an array."""
    try:
        array = np.asarray(value)
        if array.size == 0:
            array = np.empty(0, np.int64)
    except (ValueError, OverflowError) as error:
        raise BadRecord(
            f"{key!r} is {a_kind(value)}, allowed: a list of numbers ({error})"
        ) from error
    if array.ndim != 1 or array.dtype.kind not in kinds:
        allowed = "a list of whole numbers" if kinds == "iu" else "a list of numbers"
        raise BadRecord(f"{key!r} is {a_kind(value)} of {array.dtype}, allowed: {allowed}")
    if "b" not in kinds and isinstance(value, list) and bool in set(map(type, value)):
        raise BadRecord(f"{key!r} holds true or false, allowed: a list of whole numbers")
    return array
