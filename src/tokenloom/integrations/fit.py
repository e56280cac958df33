"""Whether a model and a tokenizer go with a run: every id has an embedding, and means the same.

Checked before training starts. An id without an embedding ends training with an IndexError, on a
GPU with an assertion of a kernel; ids of another tokenizer train without any error at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.source import Source
from tokenloom.api.store import Store
from tokenloom.errors import ConfigError, TokenloomError, warn
from tokenloom.loader.prefetch import log
from tokenloom.store.format import MAX_ID
from tokenloom.tokenizer.spec import resolve
from tokenloom.tokenizer.vocabulary import first_difference


def check_embedding(where: str, runs: Mapping[str, Dataset], model: Any) -> None:
    """Refuse runs with ids that a model has no embedding for.

    Args:
        where: the function that was called, for the message.
        runs: by what messages call them.
        model: a module of torch, or anything with `get_input_embeddings`.

    Raises:
        ConfigError: names the source, its largest id and the rows of the embedding.
    """
    rows = embedding_rows(model)
    if rows is None:
        return
    for title, run in runs.items():
        for name, source in run.sources.items():
            _check_source(f"{where}: {title}, source {name!r}", source, rows)


def _check_source(where: str, source: Source, rows: int) -> None:
    fits = f"the model embeds {rows:,} ids, 0 to {rows - 1:,}"
    for what, number in source.special_ids.items():
        if number >= rows:
            raise ConfigError(f"{where}: its {what} is {number:,}, but {fits}. Give another one.")
    size = source.reader.manifest.vocab_size
    if size <= rows:
        return
    if _is_limit_of_dtype(source):
        warn(
            f"{where}: its files do not say how large their ids are, and {fits}; a larger id ends "
            f"training. Open them with vocab_size={rows}, which checks every id that is read."
        )
        return
    raise ConfigError(
        f"{where}: its ids go up to {size - 1:,}, but {fits}. Train a model with vocab_size={size}"
        f", enlarge this one (model.resize_token_embeddings({size})), or build the store with the "
        "model's tokenizer."
    )


def _is_limit_of_dtype(source: Source) -> bool:
    """Whether nothing is known of the ids of other formats but what their dtype can hold."""
    manifest = source.reader.manifest
    return "format" in manifest.producer and manifest.vocab_size in (1 << 16, MAX_ID + 1)


def embedding_rows(model: Any) -> int | None:
    """The number of ids that a model has embeddings for; None if it cannot be known.

    That of `get_input_embeddings` of the model, or of a model inside it; of other modules, the
    largest embedding. A module whose embeddings take no ids says so with a `get_input_embeddings`
    that returns None.
    """
    if callable(getattr(model, "get_input_embeddings", None)):
        return _rows_of(_input_embedding(model))
    parts = list(model.modules()) if hasattr(model, "modules") else []
    inner = [one for one in parts if callable(getattr(one, "get_input_embeddings", None))]
    found = [_rows_of(_input_embedding(one)) for one in inner] or [_rows_of(one) for one in parts]
    return max((one for one in found if one), default=None)


def _input_embedding(model: Any) -> Any:
    try:
        return model.get_input_embeddings()
    except (NotImplementedError, AttributeError):  # of models without one
        return None


def _rows_of(module: Any) -> int | None:
    """Rows of an embedding, also of one whose weight is spread over processes."""
    rows = getattr(module, "num_embeddings", None)
    return rows if isinstance(rows, int) and rows > 0 else None


def check_tokenizer(where: str, runs: Mapping[str, Dataset], tokenizer: Any) -> None:
    """Refuse runs whose ids mean other tokens than those of the tokenizer that a trainer holds.

    Ids that only one of both has do not count, so tokens may have been added. Nothing is said where
    a tokenizer is not known: ready-made ids, functions.

    Raises:
        ConfigError: names the source and the first id that differs, with both tokens.
    """
    stores = dict(_stores(runs))
    known = {title: one.tokenizer for title, one in stores.items() if one.tokenizer is not None}
    if tokenizer is None or not known:
        return
    try:
        mine, _ = resolve(getattr(tokenizer, "tokenizer", tokenizer))  # a processor has one
    except (TokenloomError, TypeError, ValueError) as error:
        log.info("%s: its tokenizer cannot be read, so it is not compared (%s)", where, error)
        return
    for title, one in known.items():
        found = first_difference(one.spec, mine)
        if found is not None:
            number, stored, held = found
            raise ConfigError(
                f"{where}: {title} was tokenized by {one.spec.name}, where id {number:,} is "
                f"{_shown(stored)}; in the trainer's tokenizer ({mine.name}) it is {_shown(held)}. "
                "Give the trainer the tokenizer of the store, or pass different_tokenizers=True."
            )


def _stores(runs: Mapping[str, Dataset]) -> Iterator[tuple[str, Store]]:
    """One store of each tokenizer, and what messages call it."""
    seen = set()
    for title, run in runs.items():
        for name, source in run.sources.items():
            store = Store(source.reader, source.path)
            if store.tokenizer_identity not in seen:
                seen.add(store.tokenizer_identity)
                yield f"{title}, source {name!r},", store


def _shown(token: bytes) -> str:
    return repr(token.decode("utf-8", "backslashreplace"))
