"""`Dataset`: store → layout → order → mix as one immutable value; the fluent interface of a run.

A dataset is one or more named sources, a rule that mixes them if there are several, and a list of
edits. Every method returns a new dataset, and nothing is read until an example is requested. The
order of calls does not matter: ``.seed(7).shuffle()`` is ``.shuffle().seed(7)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api import describe as description
from tokenloom.api.edits import (
    check_changes,
    read_edit,
    read_stores,
    refuse_if_given,
    tell_blank,
    weights_given,
)
from tokenloom.api.origin import RunFile
from tokenloom.api.questions import Questions
from tokenloom.api.settings import Settings
from tokenloom.api.source import Source, check_alike, check_tokenizers, count_words, described, tree
from tokenloom.api.state import examples_of, make_state
from tokenloom.arguments import check_between, check_names, mapping, near_misses, wrong_type
from tokenloom.arrays import checked, sliced
from tokenloom.batch.batch import Batch
from tokenloom.batch.read import RowReader
from tokenloom.batch.render import Renderer
from tokenloom.batch.views.collated import Rows
from tokenloom.batch.views.digest import digest_of, plan_hashes, row_hashes
from tokenloom.errors import ConfigError, warn
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.mixture.assemble import Appended, MixSource, check_edits, mixed_run, single_run
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit, MixSpec, no_edits
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.shuffle import Shuffle
from tokenloom.page.document import preformatted
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.handles import lazy

__all__ = ["Dataset", "dataset_of", "source_of"]

Int64 = NDArray[np.int64]

OF_STORES = ("windows", "pack", "splice", "select", "split")

INSTEAD = dict.fromkeys(OF_STORES, "This run is laid out already; call it on the store.") | {
    "num_examples": "Use len(run).",
    "num_tokens": "Use len(run) * run.seq_len for its cells, run.tokens_in(len(run)) for the "
    "stored tokens in them, or store.num_tokens.",
}


class Dataset(Settings, Questions):
    """Given an index, answers an example.

    Made by `Store.windows`, `Store.pack` and `Store.splice`, and from several of these by
    `tokenloom.mix`. ``ds[i]`` is one example, ``ds.batch(indices)`` several, ``len(ds)`` their
    number; `tokenloom.Loader` iterates over them.

    Attributes:
        sources: its sources by name; a single source is called "main".
        rule: how sources are mixed; None for a single source.
        edits: the changes made during the run, oldest first.
        file: what its run file says beside the run, if it was loaded from one.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     len(run), run[11].tokens.tolist(), run.spans([11]).document.tolist()
    (12, [[99, 100]], [0, 1])
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        rule: MixSpec | None = None,
        *,
        shuffle: Shuffle | None = None,
        edits: Iterable[Edit] = (),
        appended: Appended | None = None,
        stages: int = 0,
        before: Dataset | None = None,
        file: RunFile | None = None,
    ) -> None:
        self.sources, self.rule, self.edits = dict(sources), rule, tuple(edits)
        self.file = file
        self._shuffle = shuffle  # of a whole mix; a source has its own
        self._appended = dict(appended or {})
        self._told_of_another_order = False
        self._stages = stages  # edits known from the start: the seed may still change after them
        readers = {name: source.reader for name, source in self.sources.items()}
        first = list(self.sources if rule is None else rule.weights)
        # one more edit follows from the run without it, so it need not be computed again
        self._before = None if before is None else before.run
        done = 0 if before is None else len(before.edits)
        check_edits(readers, first, self.edits, self._appended, done)
        if rule is None:
            return
        check_alike(self.sources)
        if not rule.different_tokenizers:
            check_tokenizers("mix", self.sources)
        if isinstance(rule.max_epochs, Mapping):
            check_names("max_epochs", rule.max_epochs, list(self.sources))
        check_names("initial", rule.initial, list(self.sources))
        check_changes(rule, self.edits[done:], shuffle is not None, bool(self.edits))

    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __getattr__(self, name: str) -> object:
            if name in INSTEAD:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}. {INSTEAD[name]}")
            return object.__getattribute__(self, name)  # raises Python's own error

    # -- what to change ------------------------------------------------------------------

    @near_misses("edit")
    def edit(
        self,
        *,
        at: int,
        weights: Mapping[str, float] | None = None,
        add: Mapping[str, Dataset] | None = None,
        remove: Iterable[str] = (),
        quarantine: Iterable[tuple[str, int]] = (),
        append: Mapping[str, Any] | None = None,
        different_tokenizers: bool = False,
    ) -> Dataset:
        """A copy with another future: nothing before `at` changes.

        A run of one source takes `append` and `quarantine`; its source is called "main".

        Args:
            at: the first example that may change, such as `loader.examples`.
            weights: new weights of some sources, including those that join (default 1).
            add: sources that join; each starts at `at` without catching up.
            remove: names of sources that end.
            quarantine: (source, document) pairs whose cells become filler without loss from `at`
                on; order, counts and costs stay the same.
            append: newly opened stores of some sources, after documents were appended to them. The
                new rows are spread through the rest of the epoch and belong to all later ones.
            different_tokenizers: let sources join whose ids mean other tokens.
        """
        joined = mapping("edit.add", add, "{name: dataset}")
        if self.rule is None:
            refuse_if_given(
                weights=weights,
                add=joined or None,
                remove=remove or None,
                different_tokenizers=different_tokenizers or None,
            )
        elif self.rule.rule == "levanter":
            raise no_edits()
        new = {name: source_of(f"edit.add.{name}", ds) for name, ds in joined.items()}
        stores = read_stores(append, self.sources, self._appended)
        change = read_edit(at, weights, tuple(new), remove, quarantine, stores)
        for name in new:
            if name in self.sources:
                raise ConfigError(
                    f"edit.add.{name}: a source of that name already exists. Choose another name."
                )
        number = len(self.edits) + 1
        grown = {(number, name): store.reader for name, store in stores.items()}
        every, rule = {**self.sources, **new}, self.rule
        if rule is not None and different_tokenizers:
            rule = replace(rule, different_tokenizers=True)
        if rule is not None and not rule.different_tokenizers:
            check_tokenizers("edit.add", every)
        appended = {**self._appended, **grown}
        made = self._changed(change, sources=every, appended=appended, rule=rule)
        tell_blank(change, made.run)
        return made

    def _staged(self, at: int, weights: Mapping[str, float]) -> Dataset:
        """A copy with other weights from an index on, known before the run starts."""
        try:
            given = weights_given("weights", weights)
            assert self.rule is not None  # a mix
            weights = self.rule.stage_weights(given, list(self.sources))
            change = Edit(at=at, weights=weights)
            return self._changed(change, stages=self._stages + 1)
        except ConfigError as error:
            raise ConfigError(f"stages.{at}: {error}") from None

    def _changed(self, change: Edit, **fields: Any) -> Dataset:
        """A copy with one more edit."""
        take = None if self.rule is None else self.rule.take
        if take is not None and change.at > take:
            raise ConfigError(
                f"edit: at={change.at:,} is after the end of the run, which has {take:,} examples."
                " Give an earlier one, or take more."
            )
        if self._shuffle is not None:
            raise ConfigError(
                "edit: found a mix that is shuffled as a whole, so its future cannot be separated "
                "from "
                "its past. Shuffle the sources instead."
            )
        made = self._but(edits=(*self.edits, change), before=self, **fields)
        _ = made.run  # refuses an edit in the past
        return made

    def _but(self, **fields: Any) -> Self:
        """A copy with other sources, or another rule, shuffle, edits, appended or stages."""
        usual: dict[str, Any] = {
            "sources": self.sources,
            "rule": self.rule,
            "shuffle": self._shuffle,
            "edits": self.edits,
            "appended": self._appended,
            "stages": self._stages,
            "file": self.file,
        }
        return type(self)(**(usual | fields))

    # -- what it is ------------------------------------------------------------------------

    @property
    def seq_len(self) -> int:
        """Tokens of a frame."""
        return next(iter(self.sources.values())).config.layout.seq_len

    @property
    def vocab_size(self) -> int:
        """Every id is below this: of the stores of all sources, of inserted tokens and filler.

        Of files of other formats that do not say it, what their dtype can hold.
        """
        sources = self.sources.values()
        largest = max(max(one.special_ids.values(), default=0) for one in sources)
        return max(largest + 1, *(one.reader.manifest.vocab_size for one in sources))

    @property
    def is_finite(self) -> bool:
        """Whether it has an end, and so a length."""
        return self.run.n is not None

    def __len__(self) -> int:
        if self.run.n is None:
            raise TypeError(
                "len: this dataset is endless (epochs=None), so it has no length. Use is_finite, "
                "or take(n)."
            )
        return self.run.n

    def __bool__(self) -> bool:
        return self.run.n != 0  # an endless dataset has no length, but it has examples

    @lazy
    def run(self) -> Run:
        """Index → spans, as plain integers; no token is read."""
        if self.rule is None:
            (source,) = self.sources.values()
            alone = self._before if isinstance(self._before, SourceRun) else None
            taken_alone = MixSource(source.config, source.layout)
            return single_run(taken_alone, self.edits, self._appended, alone)
        known = self._before if isinstance(self._before, MixedRun) else None
        counts = self.rule.cost == "loss_tokens"
        taken = {name: source.taken(name, counts) for name, source in self.sources.items()}
        return mixed_run(taken, self.rule, self.edits, self._appended, self._shuffle, known)

    @property
    def cache_bytes(self) -> int:
        """Bytes of memory for blocks of all sources."""
        return sum({id(cache): cache.capacity for cache in self._caches}.values())

    @lazy
    def _caches(self) -> list[BlockCache]:
        """The cache of each source."""
        found = []
        for source, run in zip(self.sources.values(), self.run.sources, strict=True):
            windows = getattr(source.config.shuffle, "cache_windows", None)
            own = None if windows is None else windows * run.working.bytes // run.lanes
            found.append(source.reader.cache if own is None else BlockCache(own))
        return found

    def tokens_in(self, examples: int) -> int:
        """The number of stored tokens in the first `examples`."""
        return self.run.tokens_in(examples)

    def consumed(self, examples: int) -> list[dict[str, Any]]:
        """What the first `examples` take from each source: rows, tokens and complete epochs."""
        return [one._asdict() for one in self.run.consumed(examples)]

    def state(self, examples: ArrayLike, *, step: int = 0, wrapped: bool = False) -> dict[str, Any]:
        """The state that resumes this run after its first `examples`, as JSON.

        Args:
            examples: what the `examples_after` of a batch says (an integer, or the same one for
                each of its rows), or `Loader.examples`.
            step: how many steps that were, for people, and for a batch size that starts no step
                there.
            wrapped: whether more examples than the run has were made with ``end="wrap"``.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     run = store.windows(2).shuffle()
        ...     batch = next(tl.Loader(run, batch_size=3))
        ...     run.state(batch.examples_after, step=1) == batch.state()
        True
        """
        return make_state(self, examples_of(examples), step, wrapped=wrapped)

    def endless(self) -> Dataset:
        """The same run without its end: its sources go on into fresh epochs.

        Raises:
            ConfigError: it has no such continuation; the message says why.
        """
        if self.run.n is None:
            return self
        if self.rule is None:
            return self._with(epochs=None, take=None)
        rule = self.rule
        why = {
            "stop='all_exhausted'": rule.stop == "all_exhausted",
            f"rule={rule.rule!r}": rule.rule in ("rounds", "random"),
            "max_epochs": bool(rule.max_epochs),
            "edits": bool(self.edits),
            "a shuffle of the whole mix": self._shuffle is not None,
        }
        found = [reason for reason, holds in why.items() if holds]
        if found:
            raise ConfigError(
                f"passes: this mix ends after {self.run.n:,} examples and cannot go on, because of "
                f"{' and '.join(found)}. Give its sources as many epochs as you want passes, or "
                "make it endless."
            )
        sources = {name: one.with_config(epochs=None) for name, one in self.sources.items()}
        return self._but(sources=sources, rule=replace(rule, stop="restart", take=None))

    def rows_of(self, name: str) -> int | None:
        """The rows of all epochs of a source; None if it is endless."""
        check_names("source", [name], list(self.sources))
        if self.rule is None:
            return self.run.n
        source = self.sources[name]
        return single_run(MixSource(source.config, source.layout)).n

    def counters(self) -> ReadCounters:
        """What has been read since the stores were opened, those of appended documents included."""
        readers = [*(source.reader for source in self.sources.values()), *self._appended.values()]
        found = [astuple(one.counters()) for one in {id(one): one for one in readers}.values()]
        return ReadCounters(*(sum(column) for column in zip(*found, strict=True)))

    def describe(self) -> dict[str, Any]:
        """The dataset as plain JSON; `tokenloom.from_config` turns it back into a dataset."""
        plain: dict[str, Any] = description.copied(self._described)
        return plain

    @lazy
    def _described(self) -> dict[str, Any]:
        return described(self.sources, self.rule, self._shuffle, self.edits, self.run)

    @lazy
    def fingerprint(self) -> str:
        """Identity of what is trained when: 64 hex digits. It excludes where the run ends."""
        return description.fingerprint(self._described)

    @lazy
    def render_fingerprint(self) -> str:
        """Identity of how tokens become arrays: 64 hex digits."""
        return description.render_fingerprint(self._described)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same examples, order, arrays and end."""
        if not isinstance(other, Dataset):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, int | None]:
        return self.fingerprint, self.render_fingerprint, self.run.n

    def __repr__(self) -> str:
        head = f"Dataset {self.fingerprint[:12]}: {count_words(self.run.n, self.seq_len)}"
        memory, counts = [cache.capacity for cache in self._caches], self._examples_by_edit()
        lines = tree(self.sources, self.rule, self.edits, counts, self.run, memory)
        return "\n".join([head, *lines])

    def _examples_by_edit(self) -> list[int | None]:
        """The number of examples without edits, then after each of them; None is endless."""
        if isinstance(self.run, MixedRun):
            return self.run.examples_by_stage
        (source,) = self.sources.values()
        alone = MixSource(source.config, source.layout)
        before = [self.edits[:count] for count in range(len(self.edits))]
        return [*(single_run(alone, edits, self._appended).n for edits in before), self.run.n]

    def _repr_html_(self) -> str:
        """The same tree, for notebooks."""
        return preformatted(repr(self))

    # -- what is in it ---------------------------------------------------------------------

    def __getitem__(self, index: slice | ArrayLike) -> Batch:
        """One example as a batch of one row; or those of a slice, a list or an array of indices."""
        if isinstance(index, (bool, tuple)):
            kind = type(index).__name__
            raise TypeError(f"index: found {kind}, allowed: an integer, a slice, a list of them.")
        return self.batch(sliced(index, self.run.n) if isinstance(index, slice) else index)

    def spans(self, indices: ArrayLike) -> Spans:
        """Which documents are where in these examples; no token is read."""
        return self.run.spans(self._wanted(indices))

    def batch(self, indices: ArrayLike) -> Batch:
        """These examples, in this order, with one coalesced read for all."""
        return self._renderer.batch(self._wanted(indices))

    def __getitems__(self, indices: Sequence[int]) -> Rows:
        """Examples for a plain ``torch.utils.data.DataLoader(run, batch_size=…)``, in one read.

        Its sampler decides the order, and its state is torch's:
        `tokenloom.integrations.torch.dataloader` keeps the run's own.
        """
        wanted = self._wanted(indices)
        if len(wanted) > 1 and not self._told_of_another_order and (np.diff(wanted) != 1).any():
            self._told_of_another_order = True
            warn(
                f"{self.__class__.__name__}: a sampler asks for examples {wanted[:4].tolist()}…, "
                "which is not the order of the run: it shuffles again what is already shuffled, "
                "and the run's state does not know where it is. Use shuffle=False, or "
                "tokenloom.integrations.torch.dataloader(run, …)."
            )
        return Rows(self.batch(wanted))

    def digest(self, first: int, last: int) -> str:
        """Identity of the arrays of examples [first, last): 64 hex digits.

        The rule is in `tokenloom.batch.views.digest`: ranks and frameworks make the same digest
        from the rows that they got, put back in order of index.
        """
        return digest_of(
            one for some in self._stretches(first, last) for one in row_hashes(self.batch(some))
        )

    def plan_digest(self, first: int, last: int) -> str:
        """Identity of what is where in examples [first, last); no token is read."""
        return digest_of(one for some in self._stretches(first, last) for one in self._plan(some))

    def _plan(self, indices: Int64) -> list[bytes]:
        source, _ = self.run.pick(indices)
        return plan_hashes(self.run.spans(indices), self.run.locate(indices)[0], source)

    def _stretches(self, first: int, last: int) -> Iterator[Int64]:
        """Consecutive indices, some at a time."""
        check_between("first", first, 0, self.run.n, unit="examples")
        check_between("last", last, first, self.run.n, unit="examples")
        chunk = limits().digest_chunk_examples
        for low in range(first, last, chunk):
            yield np.arange(low, min(low + chunk, last))

    def locate(self, indices: ArrayLike) -> tuple[Int64, Int64]:
        """The (epoch, row) of each index in its source."""
        return self.run.locate(self._wanted(indices))

    def picked(self, indices: ArrayLike) -> tuple[list[str], Int64]:
        """The source of each index, and which item of the source it is."""
        source, item = self.run.pick(self._wanted(indices))
        return [self.run.names[number] for number in source.tolist()], item

    def index(self, source: str, items: ArrayLike) -> Int64:
        """Where items of a source are in the run; -1 for those that never come."""
        check_names("source", [source], self.run.names)
        wanted = np.atleast_1d(checked(items, None, "item"))
        return self.run.index(self.run.names.index(source), wanted)

    def _wanted(self, indices: ArrayLike) -> Int64:
        """Indices as one axis [N], all of them inside the run."""
        wanted = np.atleast_1d(checked(indices, self.run.n, "index"))
        if wanted.ndim > 1:
            raise TypeError(f"indices: found shape {wanted.shape}, allowed: one axis.")
        return wanted

    @lazy
    def _renderer(self) -> Renderer:
        return self.renderer(by_blocks=False)

    def renderer(self, *, by_blocks: bool, dtype: str = "int32") -> Renderer:
        """The renderer that makes its batches; used by the loader."""
        readers = [
            RowReader(run, by_blocks=by_blocks, cache=cache)
            for run, cache in zip(self.run.sources, self._caches, strict=True)
        ]
        specs = [source.render for source in self.sources.values()]
        return Renderer(self.run, readers, specs, dtype)


def dataset_of(where: str, value: Any) -> Dataset:
    """The value, if it is a dataset; a store has no examples until it has a layout.

    >>> dataset_of("Loader", "stores/wiki")
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: Loader: found str, allowed: a dataset, such as store.pack(2048).
    """
    if not isinstance(value, Dataset):
        raise wrong_type(where, value, "a dataset, such as store.pack(2048)")
    return value


def source_of(where: str, value: Any) -> Source:
    """The source of a dataset that will be mixed with others."""
    dataset = dataset_of(where, value)
    if dataset.rule is not None:
        raise ConfigError(f"{where}: it is already a mix. Name its sources here.")
    (source,) = dataset.sources.values()
    if source.config.take is not None:
        raise ConfigError(
            f"{where}: it was cut by take({source.config.take}). Remove that and cut the mix."
        )
    if dataset.edits:
        raise ConfigError(f"{where}: it was edited. Mix the unedited dataset, then edit the mix.")
    return source
