"""`Mixed`: several datasets as one; what `tokenloom.mix` gives.

`tokenloom.mix`: several datasets as one run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api import describe as description
from tokenloom.api.dataset import Dataset
from tokenloom.arguments import check_names, integer, mapping, name_of, number, number_map, rounded
from tokenloom.arrays import checked
from tokenloom.batch.mixed import MixedRenderer
from tokenloom.batch.paint import trained_count
from tokenloom.batch.plan import Blanks, blank_rows
from tokenloom.bind import unbind
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.sources import MixSource, check_spec, mixed_run
from tokenloom.mixture.spec import LEAST, Edit, MixSpec, Pinned, weights_of
from tokenloom.order.grown import check_grown
from tokenloom.order.prices import TokenCount
from tokenloom.order.run import SourceRun
from tokenloom.order.shuffle import Shuffle, describe_shuffle
from tokenloom.random.keys import check_seed
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["Mixed", "mix"]

Int64 = NDArray[np.int64]


class Mixed(Dataset):
    """Several sources, mixed by their costs; otherwise a dataset like any other.

    Args:
        sources: by name, as listed; those that join later included.
        spec: how to mix.
        shuffle: of the whole.
        appended: (number of the edit, source) → its store as it was then.
        stages: so many of the first edits were known before: they do not fix the seed.
    """

    def __init__(
        self,
        sources: Mapping[str, Dataset],
        spec: MixSpec,
        shuffle: Shuffle | None = None,
        appended: Mapping[tuple[int, str], Reader] | None = None,
        stages: int = 0,
    ) -> None:
        self.sources, self.spec = dict(sources), spec
        self._whole_shuffle, self._stages = shuffle, stages
        self._appended = dict(appended or {})
        check_alike(self.sources)
        check_spec(self._drawn, spec, self._appended)
        if shuffle is not None and spec.edits:
            raise ConfigError("shuffle: this mix was edited; what was before must not change.")
        first = next(iter(self.sources.values()))
        self.reader, self.path = first.reader, ", ".join(self.sources)

    # -- what to change --------------------------------------------------------------------

    def _but(self, **fields: Any) -> Mixed:
        """The same with other sources, or another spec, shuffle, appended or stages."""
        usual: dict[str, Any] = {
            "sources": self.sources,
            "spec": self.spec,
            "shuffle": self._whole_shuffle,
            "appended": self._appended,
            "stages": self._stages,
        }
        return Mixed(**(usual | fields))

    def _with(self, **fields: Any) -> Mixed:
        if "epochs" in fields:
            raise ConfigError(
                "epochs: a mix has the epochs of its sources. Say .epochs(...) of each source, and "
                "stop=... of the mix."
            )
        if "render" in fields:
            render = fields["render"]
            return self._but(sources={n: ds._with(render=render) for n, ds in self.sources.items()})
        if "seed" in fields:
            if len(self.spec.edits) > self._stages:
                raise ConfigError(
                    "seed: this mix was edited; another seed would change what was before. Say "
                    ".seed(...) before .edit(...)."
                )
            return self._but(spec=replace(self.spec, seed=check_seed(fields["seed"])))
        if "take" in fields:
            return self._but(spec=replace(self.spec, take=fields["take"]))
        made = self._but(shuffle=fields["shuffle"])
        _ = made.run  # refuses to shuffle what has no end
        return made

    def render(self, **fields: Any) -> Mixed:
        """Other labels, masks or positions, for all sources; see `RenderSpec` for the fields."""
        return self._but(sources={name: ds.render(**fields) for name, ds in self.sources.items()})

    def edit(
        self,
        *,
        at: int,
        weights: Mapping[str, float] | None = None,
        add: Mapping[str, Dataset] | None = None,
        remove: Iterable[str] = (),
        quarantine: Iterable[tuple[str, int]] = (),
        append: Mapping[str, Any] | None = None,
    ) -> Mixed:
        """The same run with another future: nothing before `at` changes.

        Args:
            at: the first example that is concerned, such as `loader.examples`.
            weights: new weights of some sources, those that join included (1 if nothing is said).
            add: sources that join; each begins at the current moment, without catching up.
            remove: names of sources that end.
            quarantine: (source, document) pairs whose cells are filler without loss from there on;
                order, counts and costs stay.
            append: stores of some sources as they are now, after documents were appended: these
                come in between what is left of the epoch, and belong to all later ones.
        """
        joined = mapping("edit.add", add, "{name: dataset}")
        stores = mapping("edit.append", append, "{source: store}")
        for name in joined:
            if name in self.sources:
                raise ConfigError(f"edit.add.{name}: there is a source of that name already.")
        number, readers = len(self.spec.edits) + 1, dict(self._appended)
        for name, store in stores.items():
            check_names("edit.append", [name], list(self.sources))
            readers[number, name] = reader_of(f"edit.append.{name}", store)
            check_grown(name, self._newest(name), readers[number, name])
        try:
            change = Edit(
                at=at,
                weights=dict.fromkeys(joined, 1.0) | number_map("weights", weights),
                add=tuple(joined),
                remove=remove,
                quarantine=quarantine,
                append={n: _pinned(str(s.path), s.reader) for n, s in stores.items()},
            )
        except ConfigError as error:
            raise ConfigError(f"edit.{error}") from None
        made = self._changed({**self.sources, **joined}, change, readers, self._stages)
        made._tell_blank({name for name, _ in change.quarantine})
        return made

    def staged(self, at: int, weights: Mapping[str, float]) -> Mixed:
        """Other weights from an index on, known before the run begins."""
        try:
            change = Edit(at=at, weights=number_map("weights", weights))
            return self._changed(self.sources, change, self._appended, self._stages + 1)
        except ConfigError as error:
            raise ConfigError(f"stages.{at}: {error}") from None

    def _changed(
        self,
        sources: Mapping[str, Dataset],
        change: Edit,
        appended: Mapping[tuple[int, str], Reader],
        stages: int,
    ) -> Mixed:
        """The same with one edit more."""
        take = self.spec.take
        if take is not None and change.at > take:
            raise ConfigError(
                f"edit: at={change.at:,} is behind the end of the run, which has {take:,} examples."
            )
        if self._whole_shuffle is not None:
            raise ConfigError(
                "edit: this mix is shuffled as a whole, so its future cannot be told from its "
                "past. Shuffle the sources instead."
            )
        spec = replace(self.spec, edits=(*self.spec.edits, change))
        made = self._but(sources=sources, spec=spec, appended=appended, stages=stages)
        _ = made.run  # refuses an edit in the past
        return made

    def _tell_blank(self, names: set[str]) -> None:
        """Warn of rows that a quarantine leaves without a token; they stay where they are."""
        for name in sorted(names):
            blanks = self._blanks(name)
            run = self.run.sources[self.run.names.index(name)]
            assert blanks is not None  # one of its documents is meant
            blank, looked = blank_rows(run, blanks)
            if blank:
                of = "" if looked == run.rows else f" of the first {looked:,}"
                warn(
                    f"edit.quarantine: {plural(blank, 'row')}{of} of source {name!r} wholly blank "
                    "from then on: still counted, training nothing. For a run without, make a new "
                    "one with select."
                )

    def _newest(self, name: str) -> Reader:
        """The store of a source as it was last said to be."""
        known = [r for (_, one), r in sorted(self._appended.items()) if one == name]
        return known[-1] if known else self.sources[name].reader

    def _warn_if_too_large(self) -> None:
        """Sources have said so."""

    # -- what it is ------------------------------------------------------------------------

    @property
    def seq_len(self) -> int:
        """Tokens of a frame."""
        return next(iter(self.sources.values())).seq_len

    @functools.cached_property
    def run(self) -> MixedRun:  # type: ignore[override]
        """Index → (source, item), as plain integers."""
        return mixed_run(self._drawn, self.spec, self._appended, self._whole_shuffle)

    @functools.cached_property
    def _drawn(self) -> dict[str, MixSource]:
        """The sources as the mix takes them."""
        return {name: self._taken(ds) for name, ds in self.sources.items()}

    def _taken(self, ds: Dataset) -> MixSource:
        config, run = ds.config, ds.run
        return MixSource(
            reader=ds.reader,
            run=run,
            layout=config.layout,
            choice=config.choice,
            shuffle=config.shuffle,
            epochs=config.epochs,
            seed=config.seed,
            count=trained_count(run, config.render) if self.spec.cost == "loss_tokens" else None,
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of memory for blocks of all sources."""
        caches = {id(ds._cache): ds.cache_bytes for ds in self.sources.values()}
        return sum(caches.values())

    def tokens_in(self, examples: int) -> int:
        """Stored tokens of the first examples."""
        return self.run.tokens_in(examples)

    def consumed(self, examples: int) -> list[dict[str, Any]]:
        """What the first examples take from each source: rows, tokens, epochs."""
        return [one._asdict() for one in self.run.consumed(examples)]

    def rows_of(self, name: str) -> int | None:
        """Rows of all epochs of a source; None if it has no end."""
        check_names("source", [name], list(self.sources))
        return self.sources[name].run.n

    def counters(self) -> ReadCounters:
        """What was read since the stores were opened."""
        readers = {id(ds.reader): ds.reader for ds in self.sources.values()}
        found = [astuple(one.counters()) for one in readers.values()]
        return ReadCounters(*(sum(column) for column in zip(*found, strict=True)))

    def describe(self) -> dict[str, Any]:
        """The dataset as plain JSON; `tokenloom.from_config` gives it back."""
        sources = []
        for name, ds in self.sources.items():
            run = self.run.sources[self.run.names.index(name)]
            told = ds.describe() | {"name": name, "seed": run.seed}
            told["shuffle"] = describe_shuffle(run.shuffle)
            sources.append({k: v for k, v in told.items() if k not in ("format", "order_version")})
        mix = unbind(self.spec) | {
            "seed": self.spec.seed or 0,
            "shuffle": describe_shuffle(self._whole_shuffle),
        }
        return {
            "format": description.FORMAT,
            "order_version": ORDER_VERSION,
            "mix": mix,
            "sources": sources,
        }

    def __repr__(self) -> str:
        spec = self.spec
        lines = [f"Dataset {self.fingerprint[:12]}: {self._count()}"]
        lines.append(
            f"├─ mix     {spec.rule} by {spec.cost}, stop={spec.stop}, seed {spec.seed or 0}"
        )
        for edit in spec.edits:
            told = {k: v for k, v in unbind(edit).items() if v and k != "at"}
            lines.append(f"├─ edit    at {edit.at:,}: {told}")
        total = sum(spec.weights.values())
        for place, (name, ds) in enumerate(self.sources.items()):
            last = place == len(self.sources) - 1
            weight = spec.weights.get(name)
            share = "joins later" if weight is None else f"weight {weight:g} ({weight / total:.1%})"
            head = "└─" if last else "├─"
            inner = repr(ds).splitlines()[1:]
            rows = plural(self.run.sources[place].rows, "row")
            lines.append(f"{head} {name}: {share}, {rows} an epoch")
            lines += [f"{' ' if last else '│'}  {line}" for line in inner]
        return "\n".join(lines)

    # -- what is in it ---------------------------------------------------------------------

    def locate(self, indices: ArrayLike) -> tuple[Int64, Int64]:
        """(epoch, row) of each index, in its source."""
        plan = self.renderer(by_blocks=False).plan(self._wanted(indices))
        epoch, row = np.empty_like(plan.source), np.empty_like(plan.source)
        for place, part in plan.parts.values():
            epoch[place], row[place] = part.epoch, part.row
        return epoch, row

    def picked(self, indices: ArrayLike) -> tuple[list[str], Int64]:
        """The source of each index, and which of its items it is."""
        source, item = self.run.pick(self._wanted(indices))
        return [self.run.names[number] for number in source.tolist()], item

    def index(self, source: str, items: ArrayLike) -> Int64:
        """Where items of a source stand in the run, -1 for those that never come."""
        check_names("source", [source], self.run.names)
        wanted = np.atleast_1d(checked(items, None, "item"))
        return self.run.index(self.run.names.index(source), wanted)

    def renderer(self, *, by_blocks: bool) -> MixedRenderer:  # type: ignore[override]
        """What makes batches of it; the loader's way in."""
        renderers = [
            ds.renderer_of(run, by_blocks=by_blocks)
            for ds, run in zip(self.sources.values(), self.run.sources, strict=True)
        ]
        specs = [ds.config.render for ds in self.sources.values()]
        return MixedRenderer(self.run, renderers, specs, [self._blanks(n) for n in self.sources])

    def _blanks(self, name: str) -> Blanks | None:
        """Documents of a source that are in quarantine."""
        since: dict[int, int] = {}
        for edit in self.spec.edits:
            for source, document in edit.quarantine:
                if source == name:
                    since.setdefault(document, edit.at)
        if not since:
            return None
        documents = sorted(since)
        return Blanks(np.array(documents), np.array([since[one] for one in documents]))


def _pinned(path: str, reader: Reader) -> Pinned:
    """Which snapshot of a store is meant."""
    manifest = reader.manifest
    return Pinned(
        path=path,
        snapshot=manifest.number,
        digest=manifest.digest,
        documents=manifest.documents,
        tokens=manifest.tokens,
    )


def reader_of(where: str, store: Any) -> Reader:
    """What reads a store that somebody gave."""
    reader = getattr(store, "reader", None)
    if not isinstance(reader, Reader):
        raise ConfigError(
            f"{where}: found {store!r} ({type(store).__name__}), allowed is a store, as "
            "tokenloom.open gives it."
        )
    return reader


def check_alike(sources: Mapping[str, Dataset]) -> None:
    """Refuse sources whose rows do not fit into one batch."""
    for name, ds in sources.items():
        if not isinstance(ds, Dataset):
            raise ConfigError(
                f"mix.{name}: found {type(ds).__name__}, allowed is a dataset, such as "
                "store.pack(2048)."
            )
        if not isinstance(ds.run, SourceRun):
            raise ConfigError(f"mix.{name}: it is a mix already. Name its sources here.")
        if ds.config.take is not None:
            raise ConfigError(
                f"mix.{name}: it was cut by take({ds.config.take}). Leave that out and cut the mix."
            )
    for what, found in (
        ("seq_len", {name: ds.seq_len for name, ds in sources.items()}),
        ("cells of a row", {name: ds.run.layout.width for name, ds in sources.items()}),
        ("label_layout", {name: ds.config.render.label_layout for name, ds in sources.items()}),
    ):
        if len(set(found.values())) > 1:
            raise ConfigError(f"mix: sources differ in {what}: {found}. Give all of them the same.")


def mix(
    sources: Mapping[str, Dataset],
    *,
    rule: str = "least_consumed",
    weights: Mapping[str, float] | None = None,
    cost: str | None = None,
    stop: str = "restart",
    temperature: float | None = None,
    max_epochs: float | Mapping[str, float] | None = None,
    initial: Mapping[str, int] | None = None,
    block: int = 2048,
    stages: Mapping[int, Mapping[str, float]] | None = None,
) -> Mixed:
    """Several datasets as one: which source an example is from is a function of its index.

    Args:
        sources: datasets by name. The name is part of a source's keys, so it has another order here
            than alone, and the same whatever stands beside it.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as they can be at every prefix; "rounds": blocks of fixed
            shares, one source after the other; "random": the same, shuffled inside each block;
            "round_robin": one of each in turn, as listed.
        weights: of some sources or all; 1 where nothing is said.
        cost: what is shared, "tokens", "rows" or "loss_tokens" (predictions that count); tokens
            for "least_consumed", else rows.
        stop: "restart": sources go on into fresh epochs until each has had its own;
            "first_exhausted"; "all_exhausted": sources drop out, nothing is repeated.
        temperature: weights in proportion to size ** temperature; instead of `weights`.
        max_epochs: the most epochs of every source, or of some by name; it ends then.
        initial: what sources have consumed before, by name.
        block: examples of a block, for "rounds" and "random".
        stages: {example: weights}: other weights from there on; edits that are known before.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     a = tl.build([{"text": "aaaa"}], folder + "/a", tokenizer="bytes").windows(2)
    ...     b = tl.build([{"text": "bbbbbbbbbbbb"}], folder + "/b", tokenizer="bytes").windows(2)
    ...     run = tl.mix({"a": a, "b": b}, rule="round_robin", stop="all_exhausted")
    ...     "".join(run.batch(range(len(run))).source)
    'ababbbbb'
    """
    known = mapping("mix", sources, "{name: dataset}")
    if not known:
        raise ConfigError("mix: found no source; give at least one.")
    for name in known:
        name_of("mix", name)
    if rule == "round_robin" and (weights or temperature is not None or cost not in (None, "rows")):
        raise ConfigError(
            "rule: found 'round_robin' with weights, temperature or a cost; it takes one row of "
            "each in turn. Take rule='weights'."
        )
    if cost is None:
        cost = "tokens" if rule == "least_consumed" else "rows"
    resolved = dict.fromkeys(known, 1.0)
    if weights is not None:
        if temperature is not None:
            raise ConfigError("temperature: found beside weights; both say the same. Give one.")
        given = weights_of("weights", weights)
        if not given:
            raise ConfigError("weights: found none; give at least one source.")
        check_names("weights", given, list(known))
        resolved |= given
    check_alike(known)
    if temperature is not None:
        resolved = _by_size(known, cost, temperature)
    spec = MixSpec(
        weights=resolved,
        rule=rule,
        cost=cost,
        stop=stop,
        block=block,
        max_epochs=max_epochs,
        initial=mapping("initial", initial, "{source: count}"),
    )
    made = Mixed(known, spec)
    planned = mapping("stages", stages, "{example: weights}")
    for at in sorted(planned, key=lambda at: integer("stages: at", at)):
        made = made.staged(at, planned[at])
    return made


def _by_size(sources: Mapping[str, Dataset], cost: str, temperature: Any) -> dict[str, float]:
    power = number("temperature", temperature)
    if not (np.isfinite(power) and power >= 0):
        raise ConfigError(f"temperature: found {power:g}, allowed is 0 or more.")
    sizes = {
        name: ds.run.rows if cost == "rows" else TokenCount(ds.run).of_epoch()
        for name, ds in sources.items()
    }
    top = max(sizes.values()) or 1
    found = {name: (max(size, 1) / top) ** power for name, size in sizes.items()}
    if min(found.values()) < LEAST:
        raise ConfigError(
            f"temperature: found {power:g}, with which the smallest source has a weight of "
            f"{min(found.values()):g} beside 1; allowed is as little as makes that {LEAST:g}."
        )
    return {name: rounded(weight) for name, weight in found.items()}
