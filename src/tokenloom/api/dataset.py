"""`Dataset`: store → layout → order as one immutable value; the fluent face of a run.

Every method gives a new dataset; nothing is read until something is asked for. The order of calls
does not matter: ``.seed(7).shuffle()`` is ``.shuffle().seed(7)``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api import describe as description
from tokenloom.arguments import check_options, field_names
from tokenloom.arrays import checked
from tokenloom.batch.batch import Batch
from tokenloom.batch.render import Renderer
from tokenloom.batch.spec import RenderSpec
from tokenloom.bind import check_fields, unbind
from tokenloom.documents.line import Line
from tokenloom.documents.resolve import Choice, describe_choice, line_of
from tokenloom.errors import ConfigError, plural
from tokenloom.layout.kinds import LayoutSpec, kind_of, make_layout
from tokenloom.layout.spans import Spans
from tokenloom.order.prices import TokenCount
from tokenloom.order.run import SourceRun
from tokenloom.order.shuffle import (
    BlockShuffle,
    EraShuffle,
    Shuffle,
    describe_shuffle,
    parse_shuffle,
)
from tokenloom.random.keys import check_seed
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import ReadCounters
from tokenloom.store.reader import Reader
from tokenloom.version import ORDER_VERSION

__all__ = ["Dataset", "SourceConfig", "with_known_eos"]

MOST = 1 << 62  # examples


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceConfig:
    """Everything that decides what a source gives at an index.

    Attributes:
        layout: how rows are cut.
        choice: which documents; None is all of them.
        shuffle: how rows are ordered; None is as stored.
        epochs: how often they are gone through; None is for ever.
        seed: of the order; None until somebody says one, and then 0.
        take: at most that many examples.
        name: of the source, part of its keys.
        render: how arrays are derived.
    """

    layout: LayoutSpec
    choice: Choice | None = None
    shuffle: Shuffle | None = None
    epochs: int | None = 1
    seed: int | None = None
    take: int | None = None
    name: str = "main"
    render: RenderSpec = field(default_factory=RenderSpec)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs is not None and self.epochs < 0:
            raise ConfigError(
                f"epochs: found {self.epochs}, allowed is 0 or more, or None for ever."
            )
        if self.take is not None and self.take < 0:
            raise ConfigError(f"take: found {self.take}, allowed is 0 examples or more.")
        if self.seed is not None:
            check_seed(self.seed)


class Dataset:
    """Examples by their index.

    Made by `Store.windows` and its like. ``ds[i]`` is one example, ``ds.batch(indices)`` several,
    ``len(ds)`` how many there are; `tokenloom.Loader` walks through them.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(2).shuffle().epochs(3).seed(7)
    ...     len(run), run[11].tokens.tolist(), run.spans([11]).document.tolist()
    (12, [[99, 100]], [0, 1])
    """

    def __init__(
        self, reader: Reader, path: str, config: SourceConfig, line: Line | None = None
    ) -> None:
        self.reader, self.path, self.config = reader, path, config
        if line is not None:  # known already: a choice by content reads the whole store
            self.line = line

    # -- what to change --------------------------------------------------------------------

    def shuffle(
        self,
        shuffle: bool | int | Shuffle | None = None,
        *,
        block_shuffle: BlockShuffle | None = None,
        perm_type: str | None = None,
    ) -> Dataset:
        """Rows in another order.

        Args:
            shuffle: True (every row anywhere; this is meant when nothing is said), False (as
                stored), an integer (inside stretches of that many rows), or a shuffle such as
                `BlockShuffle`.
            block_shuffle: says the same as `shuffle=BlockShuffle(...)`.
            perm_type: "feistel", "linear", "levanter" or "levanter_linear".
        """
        if shuffle is None and block_shuffle is None:
            shuffle = True
        found = parse_shuffle(shuffle, block_shuffle)
        if found is not None and perm_type is not None:
            found = replace(found, perm_type=perm_type)
        made = self._with(shuffle=found)
        made._warn_if_too_large()
        return made

    def era_shuffle(self, length: int, *, perm_type: str = "feistel") -> Dataset:
        """Rows shuffled inside stretches of `length` rows."""
        return self._with(shuffle=EraShuffle(length=length, perm_type=perm_type))

    def block_shuffle(self, shuffle: BlockShuffle | None = None, **fields: Any) -> Dataset:
        """Storage-local blocks in shuffled order, rows mixed inside windows of blocks.

        Args:
            shuffle: a whole setting; or its fields one by one:
            fields: `io_block_size`, `window_blocks`, `lanes`, `perm_type`, `shuffle_block_size`,
                `cache_windows`; see `BlockShuffle`.
        """
        if shuffle is not None and fields:
            raise ConfigError(
                f"block_shuffle: found both a setting and {', '.join(fields)}. Give one of them."
            )
        check_options("block_shuffle", fields, field_names(BlockShuffle))
        made = self._with(shuffle=shuffle or BlockShuffle(**fields))
        made._warn_if_too_large()
        return made

    def epochs(self, count: int | None) -> Dataset:
        """The rows that many times, each time in a fresh order; None is for ever."""
        return self._with(epochs=count)

    def seed(self, seed: int) -> Dataset:
        """Another order."""
        return self._with(seed=check_seed(seed))

    def take(self, examples: int | None = None, *, tokens: int | None = None) -> Dataset:
        """The first examples only.

        Args:
            examples: how many.
            tokens: as many as it takes to have so many tokens in them, or all.
        """
        if (examples is None) == (tokens is None):
            raise ConfigError(
                f"take: found examples={examples} and tokens={tokens}. Give one of them."
            )
        if tokens is not None:
            examples = _examples_for(self.run.n, self.tokens_in, tokens)
        return self._with(take=examples)

    def render(self, **fields: Any) -> Dataset:
        """Other labels, masks or positions; see `RenderSpec` for the fields."""
        check_options("render", fields, field_names(RenderSpec))
        wanted = with_known_eos(unbind(self.config.render) | fields, self.reader)
        return self._with(render=RenderSpec(**wanted))

    def _warn_if_too_large(self) -> None:
        if self.run.lanes == 1:  # with lanes it depends on the ranks: the loader knows them
            self.run.warn_if_too_large(self.cache_bytes)

    def _with(self, **fields: Any) -> Dataset:
        return Dataset(self.reader, self.path, replace(self.config, **fields), self.line)

    # -- what it is ------------------------------------------------------------------------

    @property
    def seq_len(self) -> int:
        """Tokens of a frame."""
        return self.config.layout.seq_len

    @property
    def is_finite(self) -> bool:
        """Whether it has an end, and so a length."""
        return self.run.n is not None

    def __len__(self) -> int:
        if self.run.n is None:
            raise TypeError("this dataset is endless (epochs=None), so it has no length.")
        return self.run.n

    @functools.cached_property
    def line(self) -> Line:
        """The documents, end to end."""
        return line_of(self.reader, self.config.choice)

    @functools.cached_property
    def run(self) -> SourceRun:
        """Index → (epoch, row), as plain integers."""
        config = self.config
        return SourceRun(
            name=config.name,
            layout=make_layout(config.layout, self.line),
            shuffle=config.shuffle,
            epochs=config.epochs,
            seed=config.seed or 0,
            take=config.take,
        )

    @property
    def cache_bytes(self) -> int:
        """Bytes of memory for blocks of this dataset."""
        return self._cache.capacity

    @functools.cached_property
    def _cache(self) -> BlockCache:
        windows = getattr(self.config.shuffle, "cache_windows", None)
        if windows is None:
            return self.reader.cache
        return BlockCache(windows * self.run.working_bytes() // self.run.lanes)

    def tokens_in(self, examples: int) -> int:
        """Stored tokens of the first examples."""
        most = MOST if self.run.n is None else self.run.n
        if int(checked(examples, None, "examples")) > most:
            raise IndexError(f"examples {examples}: out of range, the run has {most:,}.")
        return self._tokens.upto(int(examples))

    @functools.cached_property
    def _tokens(self) -> TokenCount:
        return TokenCount(self.run)

    def consumed(self, examples: int) -> list[dict[str, Any]]:
        """What the first examples take: rows, tokens and complete epochs of its source."""
        run = self.run
        epochs = run.epochs_in(examples)
        tokens = self.tokens_in(examples)
        return [{"name": run.name, "rows": examples, "tokens": tokens, "epochs": epochs}]

    def rows_of(self, name: str) -> int | None:
        """Rows of all epochs of a source; None if it has no end."""
        return self.run.n

    def counters(self) -> ReadCounters:
        """What was read since the store was opened."""
        return self.reader.counters()

    def describe(self) -> dict[str, Any]:
        """The dataset as plain JSON; `tokenloom.from_config` gives it back."""
        manifest, config = self.reader.manifest, self.config
        return {
            "format": description.FORMAT,
            "order_version": ORDER_VERSION,
            "name": config.name,
            "store": {
                "path": self.path,
                "snapshot": manifest.number,
                "digest": manifest.digest,
                "documents": manifest.documents,
                "tokens": manifest.tokens,
            },
            "choice": describe_choice(config.choice),
            "layout": {"kind": kind_of(config.layout), **unbind(config.layout)},
            "shuffle": describe_shuffle(self.run.shuffle),
            "epochs": config.epochs,
            "seed": config.seed or 0,
            "take": config.take,
            "render": unbind(config.render),
        }

    @functools.cached_property
    def fingerprint(self) -> str:
        """Identity of what is trained when: 64 hex digits."""
        return description.fingerprint(self.describe())

    def __repr__(self) -> str:
        from_store = f"{self.path}  {self.reader.manifest.tokens:,} tokens"
        lines = [f"Dataset {self.fingerprint[:12]}: {self._count()}"]
        lines.append(f"├─ store   {from_store}, digest {self.reader.manifest.digest[:12]}")
        choice = self.config.choice
        if choice is not None:
            lines.append(f"├─ choice  {choice.words}, {self.line.tokens:,} tokens")
        spec = self.config.layout
        usual = unbind(type(spec)(seq_len=self.seq_len))
        special = {k: v for k, v in unbind(spec).items() if v != usual[k]}
        layout = ", ".join([str(self.seq_len), *(f"{k}={v}" for k, v in special.items())])
        rows = plural(self.run.rows, "row")
        lines.append(f"├─ layout  {kind_of(spec)}({layout}): {rows} an epoch")
        order = describe_shuffle(self.run.shuffle) or {}
        fields = ", ".join(f"{k}={v}" for k, v in order.items() if k != "kind" and v is not None)
        shuffled = f"{order['kind']}({fields})" if order else "as stored"
        epochs = self.config.epochs
        often = "for ever" if epochs is None else plural(epochs, "epoch")
        lines.append(f"├─ order   {shuffled}, {often}, seed {self.config.seed or 0}")
        needed = self.run.working_bytes() / 2**20
        lines.append(
            f"└─ memory  {needed:,.1f} MiB at once, {self.cache_bytes / 2**20:,.0f} MiB cache"
        )
        return "\n".join(lines)

    def _count(self) -> str:
        count = self.run.n
        if count is None:
            return f"endless examples of {self.seq_len:,} tokens"
        return f"{count:,} examples of {self.seq_len:,} tokens, {count * self.seq_len:,} in all"

    # -- what is in it ---------------------------------------------------------------------

    def __getitem__(self, index: SupportsIndex) -> Batch:
        """One example, as a batch of one row."""
        if isinstance(index, bool):
            raise TypeError("index: found bool, allowed are integers.")
        return self.batch([operator.index(index)])

    def spans(self, indices: ArrayLike) -> Spans:
        """Which documents stand where in these examples; no token is read."""
        wanted = self._wanted(indices)
        return self._renderer.plan(wanted).spans

    def batch(self, indices: ArrayLike) -> Batch:
        """These examples, in this order; one coalesced read for all of them."""
        wanted = self._wanted(indices)
        return self._renderer.batches(self._renderer.plan(wanted), [0, len(wanted)])[0].make()

    def locate(self, indices: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(epoch, row) of each index."""
        return self.run.locate(self._wanted(indices))

    def _wanted(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Indices that are in the run, as one axis [N]."""
        wanted = np.atleast_1d(checked(indices, self.run.n, "index"))
        if wanted.ndim > 1:
            raise TypeError(f"indices: found the shape {wanted.shape}, allowed is one axis.")
        return wanted

    @functools.cached_property
    def _renderer(self) -> Renderer:
        return self.renderer(by_blocks=False)

    def renderer(self, *, by_blocks: bool) -> Renderer:
        """What makes batches of it; the loader's way in."""
        return self.renderer_of(self.run, by_blocks=by_blocks)

    def renderer_of(self, run: SourceRun, *, by_blocks: bool) -> Renderer:
        """The same for its run under another name."""
        return Renderer(run, self.config.render, by_blocks=by_blocks, cache=self._cache)


def _examples_for(n: int | None, tokens_in: Callable[[int], int], tokens: int) -> int:
    """The fewest first examples of n that have so many tokens; all of them if none have."""
    if isinstance(tokens, bool) or not isinstance(tokens, (int, np.integer)) or tokens < 0:
        raise ConfigError(f"take: found tokens={tokens!r}, allowed is an integer, 0 or more.")
    most = MOST if n is None else n
    low, high = 0, min(1, most)
    while high < most and tokens_in(high) < tokens:
        low, high = high, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if tokens_in(middle) >= tokens else (middle + 1, high)
    return low


def with_known_eos(render: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """The fields of a rendering, with the tokenizer's EOS where one is needed and none is named."""
    if render.get("train_on_eos", True) or render.get("eos_id") is not None:
        return render
    tokenizer = reader.manifest.tokenizer
    return render | {"eos_id": tokenizer.eos if tokenizer else None}
