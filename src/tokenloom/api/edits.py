"""What people give to `Dataset.edit`, read: an `Edit`, and the stores that it pins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tokenloom.api.source import Source
from tokenloom.arguments import check_names, mapping, number_map
from tokenloom.batch.plan import blank_rows
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.mixture.assemble import Appended
from tokenloom.mixture.spec import Edit, Pinned
from tokenloom.order.grown import check_grown
from tokenloom.order.run import Run
from tokenloom.store.reader import Reader

__all__ = ["OpenStore", "read_edit", "read_stores", "refuse_if_given", "tell_blank"]


class OpenStore(Protocol):
    """What `tokenloom.open` gives, as far as an edit asks."""

    reader: Reader

    @property
    def path(self) -> Any:
        """Where it is, as it was written."""


def read_edit(
    at: Any,
    weights: Any,
    add: tuple[str, ...],
    remove: Iterable[str],
    quarantine: Iterable[tuple[str, int]],
    stores: Mapping[str, OpenStore],
) -> Edit:
    """The edit that was meant; sources that join weigh 1 unless another weight is given."""
    try:
        return Edit(
            at=at,
            weights=dict.fromkeys(add, 1.0) | number_map("weights", weights),
            add=add,
            remove=remove,
            quarantine=quarantine,
            append={name: _pinned(store) for name, store in stores.items()},
        )
    except ConfigError as error:
        raise ConfigError(f"edit.{error}") from None


def read_stores(
    given: Any, sources: Mapping[str, Source], appended: Appended
) -> dict[str, OpenStore]:
    """Stores of sources that grew, if each is what it was with documents after it."""
    stores = mapping("edit.append", given, "{source: store}")
    for name, store in stores.items():
        check_names("edit.append", [name], list(sources))
        reader = getattr(store, "reader", None)
        if not isinstance(reader, Reader):
            raise ConfigError(
                f"edit.append.{name}: found {store!r} ({type(store).__name__}), allowed is a "
                "store, as tokenloom.open gives it."
            )
        known = [one for (_, source), one in sorted(appended.items()) if source == name]
        check_grown(name, known[-1] if known else sources[name].reader, reader)
    return stores


def refuse_if_given(**given: Any) -> None:
    """Refuse what a run of one source cannot be edited to."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"edit.{name}: this run has one source and no rule that mixes it. Allowed are "
                "append and quarantine; for the others start with tokenloom.mix({name: dataset})."
            )


def tell_blank(change: Edit, run: Run) -> None:
    """Warn of rows that a quarantine leaves without a token; they stay where they are."""
    for name in sorted({name for name, _ in change.quarantine}):
        source = run.sources[run.names.index(name)]
        assert source.blanks is not None  # one of its documents is meant
        blank, looked = blank_rows(source, source.blanks)
        if blank:
            of = "" if looked == source.rows else f" of the first {looked:,}"
            warn(
                f"edit.quarantine: {plural(blank, 'row')}{of} of source {name!r} wholly blank from "
                "then on: still counted, training nothing. For a run without, make a new one with "
                "select."
            )


def _pinned(store: OpenStore) -> Pinned:
    """Which snapshot of a store is meant."""
    manifest = store.reader.manifest
    return Pinned(
        path=str(store.path),
        snapshot=manifest.number,
        digest=manifest.digest,
        documents=manifest.documents,
        tokens=manifest.tokens,
    )
