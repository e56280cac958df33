"""The settings of a run: order, epochs, seed, end, rendering; one call for each.

One idea: every method answers a changed copy, so settings are chained, and the order of the calls
does not matter: ``.seed(7).shuffle()`` is ``.shuffle().seed(7)``. `tokenloom.Dataset` is what is
set; what it shows is in `tokenloom.api.dataset`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

from tokenloom.api.source import Source
from tokenloom.arguments import AS_IS, AsIs, given_fields, near_misses
from tokenloom.batch.spec import RenderSpec
from tokenloom.errors import ConfigError
from tokenloom.mixture.spec import Edit, MixSpec
from tokenloom.order.prices import examples_for
from tokenloom.order.run import Run
from tokenloom.order.shuffle import BlockShuffle, EraShuffle, Shuffle, parse_shuffle
from tokenloom.random.keys import check_seed

__all__ = ["Settings"]


SEED = "The seed is set on the run: .shuffle().seed(3)."

BUFFER = "Every row may come anywhere; .era_shuffle(n) keeps rows inside stretches of n."


class Settings(ABC):
    """What may be set in a dataset.

    Attributes:
        sources: its sources by name; a single source is called "main".
        rule: how sources are mixed; None for a single source.
        edits: the changes made during the run, oldest first.
    """

    sources: dict[str, Source]
    rule: MixSpec | None
    edits: tuple[Edit, ...]
    run: Run
    _stages: int  # edits known from the start: the seed may still change after them

    @abstractmethod
    def _but(self, **fields: Any) -> Self:
        """A copy with other sources, or another rule, shuffle, edits, appended or stages."""

    @property
    @abstractmethod
    def cache_bytes(self) -> int:
        """Memory for blocks of tokens."""

    @abstractmethod
    def tokens_in(self, examples: int) -> int:
        """The number of stored tokens in the first `examples`."""

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
