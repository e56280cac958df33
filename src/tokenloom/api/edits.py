"""Parses the arguments of `Dataset.edit` into an `Edit` and the stores it pins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tokenloom.api.source import Source
from tokenloom.arguments import check_names, mapping, number_map
from tokenloom.batch.plan import blank_rows
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.mixture.assemble import Appended
from tokenloom.mixture.spec import Edit, MixSpec, Pinned
from tokenloom.order.run import Run, check_grown
from tokenloom.store.reader import Reader


class OpenStore(Protocol):
    """The part of `tokenloom.Store` that an edit needs."""

    reader: Reader
    _path: str  # as the user wrote it


def check_changes(rule: MixSpec, new: Iterable[Edit], shuffled: bool, edited: bool) -> None:
    """Refuse edits that a rule does not take, and a shuffle of a mix that has none.

    Args:
        rule: how sources are mixed.
        new: edits that were not checked before.
        shuffled: whether the mix is shuffled as a whole.
        edited: whether it has edits.
    """
    for edit in new:
        rule.check_edit(edit)
    if shuffled and rule.rule == "levanter":
        raise ConfigError(
            "shuffle: found on a mix with rule='levanter', which is in the order that Levanter "
            "would train on. Shuffle its sources, or use rule='random'."
        )
    if shuffled and edited:
        raise ConfigError(
            "shuffle: this mix was edited, and what came before must not change. Shuffle it first."
        )


def read_edit(
    at: Any,
    weights: Any,
    add: tuple[str, ...],
    remove: Iterable[str],
    quarantine: Iterable[tuple[str, int]],
    stores: Mapping[str, OpenStore],
) -> Edit:
    """The edit of these arguments; sources that join weigh 1 unless another weight is given."""
    try:
        return Edit(
            at=at,
            weights=dict.fromkeys(add, 1.0) | weights_given("weights", weights),
            add=add,
            remove=remove,
            quarantine=quarantine,
            append={name: _pinned(store) for name, store in stores.items()},
        )
    except ConfigError as error:
        raise ConfigError(f"edit.{error}") from None


def weights_given(where: str, weights: Any) -> dict[str, float]:
    """Weights by name; one mapping inside another is a mistake with a remedy of its own."""
    inner = weights.get("weights") if isinstance(weights, Mapping) else None
    if isinstance(inner, Mapping):
        raise ConfigError(
            f"{where}: found {dict(weights)!r}, allowed: the weights themselves, "
            f"{dict(inner)!r}; other changes are made with .edit(...)."
        )
    return number_map(where, weights)


def read_stores(
    given: Any, sources: Mapping[str, Source], appended: Appended
) -> dict[str, OpenStore]:
    """The stores of sources that grew; each must extend its old store by more documents."""
    stores = mapping("edit.append", given, "{source: store}")
    for name, store in stores.items():
        check_names("edit.append", [name], list(sources))
        reader = getattr(store, "reader", None)
        if not isinstance(reader, Reader):
            raise ConfigError(
                f"edit.append.{name}: found {store!r} ({type(store).__name__}), allowed: a "
                "store, as returned by tokenloom.open."
            )
        known = [one for (_, source), one in sorted(appended.items()) if source == name]
        check_grown(name, known[-1] if known else sources[name].reader, reader)
    return stores


def refuse_if_given(**given: Any) -> None:
    """Refuse edits that a run of one source cannot take."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"edit.{name}: this run has one source and no mixing rule. Allowed: "
                "append and quarantine; for the others start with tokenloom.mix({name: dataset})."
            )


def tell_blank(change: Edit, run: Run) -> None:
    """Warn about rows that a quarantine leaves without a token; they keep their places."""
    for name in sorted({name for name, _ in change.quarantine}):
        source = run.sources[run.names.index(name)]
        assert source.blanks is not None  # one of its documents is quarantined
        blank, looked = blank_rows(source, source.blanks)
        if blank:
            of = "" if looked == source.rows else f" of the first {looked:,}"
            warn(
                f"edit.quarantine: {plural(blank, 'row')}{of} of source {name!r} will be entirely "
                "blank from then on: still counted, training nothing. To avoid them, make a new "
                "run with select."
            )


def _pinned(store: OpenStore) -> Pinned:
    """The snapshot of a store, as an edit records it."""
    manifest = store.reader.manifest
    return Pinned(
        path=store._path,
        snapshot=manifest.number,
        digest=manifest.digest,
        documents=manifest.documents,
        tokens=manifest.tokens,
    )
