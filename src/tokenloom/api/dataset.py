"""`Dataset`: store → layout → order → mix as one immutable value; the fluent interface of a run.

A dataset is one or more named sources, a rule that mixes them if there are several, and a list of
edits. Every method returns a new dataset, and nothing is read until an example is requested. The
order of calls does not matter: ``.seed(7).shuffle()`` is ``.shuffle().seed(7)``.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike

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
from tokenloom.api.source import Source, check_alike, check_tokenizers, count_words, described, tree
from tokenloom.arguments import (
    AS_IS,
    AsIs,
    check_between,
    check_names,
    given_fields,
    integer,
    mapping,
    near_misses,
    wrong_type,
)
from tokenloom.arrays import Int64, checked, sliced
from tokenloom.batch.batch import Batch
from tokenloom.batch.read import RowReader
from tokenloom.batch.render import Renderer
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.views.annexes import annex
from tokenloom.batch.views.collated import Rows
from tokenloom.batch.views.digest import digest_of, plan_hashes, row_hashes
from tokenloom.errors import ConfigError, warn
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.mixture.assemble import Appended, MixSource, check_edits, mixed_run, single_run
from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit, MixSpec, no_edits
from tokenloom.order.costs import examples_for
from tokenloom.order.run import Run, SourceRun
from tokenloom.order.schedule import Steps, examples_of_step, row_of_step
from tokenloom.order.shuffle import BlockShuffle, EraShuffle, Shuffle, parse_shuffle
from tokenloom.page.document import preformatted
from tokenloom.random.keys import check_seed
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.handles import lazy
from tokenloom.store.id_index import find_id
from tokenloom.trace.answers import Example, Examples, Nowhere, Place
from tokenloom.trace.backward import Places, Search, places_of
from tokenloom.trace.forward import look_at

OF_STORES = ("windows", "pack", "splice", "select", "split")

INSTEAD = dict.fromkeys(OF_STORES, "This run is laid out already; call it on the store.") | {
    "num_examples": "Use len(run).",
    "num_tokens": "Use len(run) * run.seq_len for its cells, run.tokens_in(len(run)) for the "
    "stored tokens in them, or store.num_tokens.",
}

SEED = "The seed is set on the run: .shuffle().seed(3)."

BUFFER = "Every row may come anywhere; .era_shuffle(n) keeps rows inside stretches of n."

WITHIN = 1000  # epochs


class Dataset:
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

    @near_misses("shuffle", seed=SEED, buffer_size=BUFFER)
    def shuffle(
        self,
        shuffle: bool | int | Shuffle | None = None,
        *,
        block_shuffle: BlockShuffle | None = None,
        perm_type: str | None = None,
    ) -> Self:
        """A copy with its rows in another order.

        Args:
            shuffle: True (every row anywhere; the default), False (as stored), an integer (inside
                stretches of that many rows), or a shuffle such as `BlockShuffle`.
            block_shuffle: same as ``shuffle=BlockShuffle(...)``.
            perm_type: "feistel", "linear", "levanter" or "levanter_linear".
        """
        if shuffle is None and block_shuffle is None:
            shuffle = True
        found = parse_shuffle(shuffle, block_shuffle)
        if found is not None and perm_type is not None:
            found = replace(found, perm_type=perm_type)
        return self._shuffled(found)

    @near_misses("era_shuffle", seed=SEED)
    def era_shuffle(self, length: int, *, perm_type: str = "feistel") -> Self:
        """A copy with its rows shuffled inside stretches of `length` rows."""
        return self._shuffled(EraShuffle(length=length, perm_type=perm_type))

    @near_misses("block_shuffle", seed=SEED)
    def block_shuffle(
        self,
        shuffle: BlockShuffle | None = None,
        *,
        io_block_size: int | None = None,
        window_blocks: int | None = None,
        lanes: int = 1,
        perm_type: str = "feistel",
        shuffle_block_size: int | None = None,
        cache_windows: int | None = None,
    ) -> Self:
        """A copy with storage-local blocks in shuffled order, rows mixed inside shuffle windows.

        Args:
            shuffle: a complete setting, instead of its individual fields.
            io_block_size: rows of a block; None uses the blocks of the layout.
            window_blocks: blocks that are mixed together; None uses 128 Mi tokens or 512 blocks,
                whichever is less, over all lanes.
            lanes: shuffle windows open at once; with at least 8 times as many as ranks, each rank
                can read its own.
            perm_type: "feistel", "linear", "levanter" or "levanter_linear".
            shuffle_block_size: a unit to shuffle that is larger than a block, in rows.
            cache_windows: shuffle windows to keep in memory, instead of using the cache that all
                stores share.
        """
        given = BlockShuffle(
            io_block_size=io_block_size,
            window_blocks=window_blocks,
            lanes=lanes,
            perm_type=perm_type,
            shuffle_block_size=shuffle_block_size,
            cache_windows=cache_windows,
        )
        if shuffle is not None and given != BlockShuffle():
            raise ConfigError(f"block_shuffle: found both {shuffle} and {given}. Give one of them.")
        return self._shuffled(shuffle or given)

    def _shuffled(self, shuffle: Shuffle | None) -> Self:
        if self.rule is not None:
            made = self._but(shuffle=shuffle)
            _ = made.run  # refuses to shuffle an endless mix
            return made
        self._refuse_if_edited("shuffle")
        made = self._with(shuffle=shuffle)
        if made.run.lanes == 1:  # with lanes it depends on the ranks, which only the loader knows
            made.run.warn_if_too_large(made.cache_bytes)
        return made

    def epochs(self, count: int | None) -> Self:
        """A copy that shows its rows `count` times, each time in a fresh order; None: endlessly."""
        if self.rule is not None:
            raise ConfigError(
                "epochs: not of a mix, which has those of its sources. Call .epochs(...) on each "
                "source, "
                "and pass stop=... to the mix."
            )
        return self._with(epochs=count)

    def seed(self, seed: int) -> Self:
        """A copy with another seed, and so another order."""
        self._refuse_if_edited("seed")
        if self.rule is None:
            return self._with(seed=check_seed(seed))
        return self._but(rule=replace(self.rule, seed=check_seed(seed)))

    def take(self, examples: int | None = None, *, tokens: int | None = None) -> Self:
        """A copy with the first examples only.

        Args:
            examples: the number of examples.
            tokens: take as many examples as it takes to reach that many tokens; all examples if
                they have fewer.
        """
        if (examples is None) == (tokens is None):
            raise ConfigError(
                f"take: found examples={examples} and tokens={tokens}. Give one of them."
            )
        if tokens is not None:
            examples = examples_for(tokens, self.tokens_in, self.run.n)
        if self.rule is None:
            return self._with(take=examples)
        return self._but(rule=replace(self.rule, take=examples))

    @near_misses("render")
    def render(
        self,
        *,
        label_layout: str | AsIs = AS_IS,
        mask_boundary_loss: bool | AsIs = AS_IS,
        position_scheme: str | AsIs = AS_IS,
        ignore_id: int | AsIs | None = AS_IS,
        train_on_eos: bool | AsIs = AS_IS,
        eos_mask: str | AsIs = AS_IS,
        segments: str | AsIs = AS_IS,
        eos_id: int | AsIs | None = AS_IS,
        pad_id: int | AsIs = AS_IS,
        trailing: str | AsIs = AS_IS,
        attend_prefix: bool | AsIs = AS_IS,
        position_offset: int | AsIs = AS_IS,
    ) -> Self:
        """A copy with other labels, masks or positions; what is left out stays as it is.

        The arguments are those of `Store.windows`.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcd"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(4).render(label_layout="shifted", ignore_id=98)[0].labels.tolist()
        [[-100, 99, 100, -100]]
        """
        fields = given_fields(RenderSpec, locals())
        made = {name: source.with_render(**fields) for name, source in self.sources.items()}
        return self._but(sources=made)

    def _with(self, **fields: Any) -> Self:
        """A copy with other settings of its only source."""
        return self._but(sources={n: one.with_config(**fields) for n, one in self.sources.items()})

    def _refuse_if_edited(self, what: str) -> None:
        if len(self.edits) > self._stages:
            raise ConfigError(
                f"{what}: this run was edited; another {what} would change what came before. Call "
                f".{what}(...) before .edit(...)."
            )

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
        count, n = _examples_of(examples), self.run.n
        # past its end a run has wrapped around, or continues without its end; what comes next after
        # it has wrapped depends on where the run ends
        around = n if wrapped and n is not None and count > n else 0
        return {  # what decides has the same keys in every state, as some checkpoints require
            "format": description.STATE_FORMAT,
            "examples": count,
            "step": step,
            "fingerprint": self.fingerprint,
            "render": self.render_fingerprint,
            "wrapped": around,
            "dataset": self.describe(),
            "sources": self._consumed_to(count, wrapped=around > 0),
        }

    def _consumed_to(self, examples: int, *, wrapped: bool) -> list[dict[str, Any]]:
        """What was taken from each source, also past the end of the run."""
        n = self.run.n
        if n is None or examples <= n:
            return self.consumed(examples)
        if not wrapped:
            return self.endless().consumed(examples)
        rounds, rest = divmod(examples, n)
        consumed = self.consumed(rest)
        for source, whole in zip(consumed, self.consumed(n), strict=True):
            for name in ("rows", "tokens", "epochs"):  # all of it, `rounds` times
                source[name] += rounds * whole[name]
        return consumed

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
        return description.copied(self._described)

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

    # -- questions -------------------------------------------------------------------------

    @overload
    def at(
        self,
        index: int,
        *,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Example: ...

    @overload
    def at(
        self,
        index: range | slice | Sequence[int],
        *,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Examples: ...

    @overload
    def at(
        self,
        *,
        step: int,
        row: int,
        batch_size: int | Sequence[tuple[int, int]],
        text: bool = False,
        metadata: bool = False,
    ) -> Example: ...

    @overload
    def at(
        self,
        *,
        step: int,
        batch_size: int | Sequence[tuple[int, int]],
        text: bool = False,
        metadata: bool = False,
    ) -> Examples: ...

    @near_misses("at")
    def at(
        self,
        index: int | range | slice | Sequence[int] | None = None,
        *,
        step: int | None = None,
        row: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        text: bool = False,
        metadata: bool = False,
    ) -> Example | Examples:
        """What is trained at an index, or at a row of a step, and how it came to be there.

        Nothing is read unless `text` or `metadata` asks for it.

        Args:
            index: an index; or several, as a range, a slice or a list.
            step: instead of `index`: a step of a loader with this `batch_size`.
            row: the row of the step; default: all of them, in order.
            batch_size: rows of a step over all ranks, or pairs (examples, rows), as for
                `tokenloom.Loader`; with an index it only tells its step and row.
            text: also the text of each span.
            metadata: also what was kept about each document.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     store.windows(4).at(0, text=True)
        Example 0: source main, epoch 0
          stage 0 → item 0 → epoch 0 → row 0
          cells  document  tokens
          0–2    0         0–2     'abc'
          3      1         0       'd'
        """
        steps = None if batch_size is None else Steps(batch_size)
        options = {"steps": steps, "text": text, "metadata": metadata}
        if (index is None) == (step is None):
            raise ConfigError("at: found both or neither of index and step, allowed: one of them.")
        if step is not None:
            if steps is None:
                raise ConfigError(
                    f"at: step={step} needs batch_size, the rows of a step. Pass both."
                )
            number = integer("step", step)
            if row is None:
                return self._examples(examples_of_step(self.run, steps, number), options)
            one = row_of_step(self.run, steps, number, integer("row", row))
            return self._examples([one], options)[0]
        if row is not None:
            raise ConfigError("at: found row with an index, allowed: with step=….")
        if isinstance(index, SupportsIndex):
            return self._examples([operator.index(index)], options)[0]
        wanted = sliced(index, self.run.n) if isinstance(index, slice) else index
        return self._examples(wanted, options)

    def _examples(self, indices: Any, options: dict[str, Any]) -> Examples:
        wanted = np.atleast_1d(checked(list(indices), self.run.n, "index"))
        edits = [edit.at for edit in self.edits]
        return Examples(tuple(look_at(self.run, wanted, edits=edits, **options)))

    @near_misses("where")
    def where(
        self,
        source: str | None = None,
        doc: int | None = None,
        *,
        id: str | int | None = None,
        tokens: int | range | tuple[int, int] | None = None,
        epochs: int | Iterable[int] | None = None,
        after: int = -1,
        before: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
    ) -> Places:
        """Every place where a document is trained, in order of index, computed as asked for.

        `at` and `where` are inverse: each cell of each place is found by `at`, and no other cell
        holds the document. A document that no row can show gives an empty answer with its `reason`.

        Args:
            source: name of the source; a single source need not be named.
            doc: number of the document in its store.
            id: instead of `doc`: every document with this id, in `source` or in all sources.
            tokens: only places that hold these document offsets, cut to them: one, a range, or a
                pair (first, after the last).
            epochs: how many epochs of the source, from the first on; or which ones. Costs of other
                epochs are not added up.
            after: only examples after this index; epochs before it are not visited.
            before: only examples before this index.
            batch_size: also tell the step and the row, as in `at`.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     run = store.windows(4).shuffle().epochs(None)
        ...     for place in run.where(doc=1, epochs=1):
        ...         place
        Place 0: cells 0–3 hold tokens 1–4 of main document 1, epoch 0
        Place 1: cell 3 holds token 0 of main document 1, epoch 0
        """
        if (doc is None) == (id is None):
            raise ConfigError("where: found both or neither of doc and id, allowed: one of them.")
        settings: dict[str, Any] = {
            "tokens": _offsets(tokens),
            "epochs": _epochs(epochs),
            "after": integer("after", after, least=-1),
            "before": None if before is None else integer("before", before),
            "steps": None if batch_size is None else Steps(batch_size),
        }
        if id is None:
            assert doc is not None
            return places_of(self._search(source, doc, **settings))
        names = self.run.names if source is None else (self._named(source),)
        found = [
            places_of(self._search(name, document, **settings))
            for name in names
            for document in self._with_id(name, id)
        ]
        words = f"the documents with id {id!r}"
        if not found:
            return Places(words, iter(()), f"no document of {', '.join(names)} has the id {id!r}.")
        merged = heapq.merge(*found, key=operator.attrgetter("index", "column"))
        reasons = [one.reason for one in found]
        return Places(words, merged, None if None in reasons else reasons[0])

    @near_misses("next")
    def next(
        self,
        source: str | None = None,
        doc: int | None = None,
        *,
        after: int,
        within: int = WITHIN,
        tokens: int | range | tuple[int, int] | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
    ) -> Place | Nowhere:
        """Where a document is trained next after an index; false, with a reason, if nowhere.

        Args:
            source: name of the source; a single source need not be named.
            doc: number of the document in its store.
            after: an index, such as that of the last trained example; it is not searched itself.
            within: how many epochs of the source are searched.
            tokens: as in `where`.
            batch_size: also tell the step and the row, as in `at`.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     run = store.windows(4).shuffle().epochs(2)
        ...     run.next(doc=0, after=0)
        ...     run.next(doc=0, after=100)
        Place 1: cells 0–2 hold tokens 0–2 of main document 0, epoch 0
        Nowhere: the run ends before 101.
        """
        if doc is None:
            raise ConfigError("next: doc is missing, allowed: the number of a document.")
        index = integer("after", after, least=-1)
        steps = None if batch_size is None else Steps(batch_size)
        asked = self._search(source, doc, tokens=_offsets(tokens), after=index, steps=steps)
        first = asked.first_epoch
        epochs = range(first, first + integer("within", within, least=1))
        found = places_of(asked.over(epochs))
        if found.reason is not None:
            return Nowhere(found.reason)
        for place in found:
            return place
        if not asked.reaches(epochs.stop):
            return Nowhere(f"after index {index:,} the run does not show {asked.words} again.")
        return Nowhere(
            f"{asked.words} is not shown in epochs {first:,} to {epochs.stop - 1:,} of its source; "
            "within=… searches more of them."
        )

    @near_misses("audit")
    def audit(
        self,
        first: int | None = None,
        last: int | None = None,
        *,
        arrays: bool | str = True,
        sample: int | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Any:
        """Whether the run shows what it promises, as a `tokenloom.inspect.Certificate`.

        Args:
            first: the first example to look at; default: 0.
            last: the example after the last one; default: the end of the run, or of the first epoch
                of an endless run of one source.
            arrays: True renders every row of up to 2^26 tokens and judges every cell; of more
                tokens it renders a keyed sample of about as many. "all" renders every row; False
                reads no token.
            sample: look at this many rows only, a keyed sample of the range.
            seed: names the samples.
            progress: show a bar; default: if standard error is a terminal.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(2).shuffle().audit().ok
        True
        """
        options = {"arrays": arrays, "sample": sample, "seed": seed, "progress": progress}
        return annex("inspect").audit_run(self, first, last, **options)

    @near_misses("simulate")
    def simulate(
        self,
        steps: int | None = None,
        *,
        batch_size: int | Sequence[tuple[int, int]],
        ranks: int = 1,
        first: int = 0,
        cache_bytes: int | None = None,
        latency: float | None = None,
        bandwidth: float | None = None,
        step_seconds: float | None = None,
        parallel: int = 1,
    ) -> Any:
        """What steps will show, read and wait for, as a `tokenloom.inspect.Simulation`.

        Nothing is read. `tokenloom.inspect.simulate_run` has further settings.

        Args:
            steps: how many steps; None is all that remain of a finite run.
            batch_size: rows of a step over all ranks, or a schedule, as for `tokenloom.Loader`.
            ranks: processes that share every step.
            first: the step to start with, as after a resume.
            cache_bytes: memory for decoded blocks of each store; default: as its stores have it.
            latency: seconds from a request to its first byte.
            bandwidth: bytes per second that a rank's source delivers.
            step_seconds: time that a step takes once it has its data; needed to tell stalls.
            parallel: requests of a rank that are answered at the same time.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(2).shuffle().simulate(batch_size=2).steps
        2
        """
        options = {"ranks": ranks, "first": first, "cache_bytes": cache_bytes, "latency": latency}
        options |= {"bandwidth": bandwidth, "step_seconds": step_seconds, "parallel": parallel}
        return annex("inspect").simulate_run(self, steps, batch_size=batch_size, **options)

    @near_misses("view")
    def view(
        self,
        *,
        step: int | None = None,
        batch_size: int | Sequence[tuple[int, int]] | None = None,
        rows: int = 8,
    ) -> Any:
        """The run for a notebook: answers and figures of its report, or the rows of a step.

        Args:
            step: show the rows of this step instead.
            batch_size: rows of a step over all ranks, or a schedule, as for `tokenloom.Loader`;
                default: what the run file says, or 64.
            rows: how many rows of the step.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(4).view(step=0, batch_size=2)
        step 0, 2 rows
        row 0, index 0: a b c d
        row 1, index 1: e f g h
        """
        return annex("report").view_run(self, step=step, batch_size=batch_size, rows=rows)

    def _search(self, source: str | None, doc: int, **settings: Any) -> Search:
        name = self._named(source)
        number = self.run.names.index(name)
        known = self.run.sources[number].layout.line.reader.manifest.documents
        document = int(checked(operator.index(doc), known, f"{name} document"))
        return Search(run=self.run, number=number, document=document, **settings)

    def _named(self, source: str | None) -> str:
        """The name of a source; a single one need not be named."""
        names = self.run.names
        if source is None and len(names) == 1:
            return names[0]
        if source is None:
            raise ConfigError(f"source: missing, allowed: {', '.join(names)}.")
        check_names("source", [source], names)
        return source

    def _with_id(self, name: str, id: str | int) -> list[int]:
        """The documents of a source that have an id."""
        run = self.run.sources[self.run.names.index(name)]
        return find_id(run.layout.line.reader, id).tolist()


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


def _offsets(tokens: int | range | tuple[int, int] | None) -> tuple[int, int] | None:
    """Document offsets as (first, after the last)."""
    if tokens is None:
        return None
    if isinstance(tokens, range):
        if tokens.step != 1:
            raise ConfigError(f"tokens: found {tokens}, allowed: a range of adjacent offsets.")
        first, last = tokens.start, tokens.stop
    elif isinstance(tokens, SupportsIndex):
        first = operator.index(tokens)
        last = first + 1
    else:
        first, last = (integer("tokens", one, least=-1) for one in tokens)
    if not -1 <= first < last:
        raise ConfigError(
            f"tokens: found {first} to {last}, allowed: a first offset of -1 (an inserted BOS) or "
            "more, and one after the last."
        )
    return first, last


def _epochs(epochs: int | Iterable[int] | None) -> Sequence[int] | None:
    """Epochs, ascending; a number means the first ones."""
    if epochs is None:
        return None
    if isinstance(epochs, range) and epochs.step > 0 and epochs.start >= 0:
        return epochs
    if isinstance(epochs, SupportsIndex):
        return range(integer("epochs", epochs))
    return sorted({integer("epochs", one) for one in epochs})


def _examples_of(value: Any) -> int:
    """A number of examples, given as one, or as the `examples_after` of all rows of a batch."""
    if isinstance(value, int):
        return integer("examples", value)
    found = sorted({*np.asarray(value).ravel().tolist()})
    if len(found) != 1:
        raise ConfigError(
            f"examples: found {found[:8]}, allowed: a number, or the examples_after of one batch, "
            "which is the same in all rows."
        )
    return integer("examples", found[0])
