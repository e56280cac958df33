"""What a rank needs in memory, how it should read, and what it will fetch.

One idea: a rank returns to the blocks of the shuffle windows it touches until their band is done.
If the cache holds those windows, every block is fetched once ("fits"). If it holds most of them,
blocks are still cheaper than single rows, but some are fetched again ("thrashes"). Otherwise rows
are read one by one ("reads rows"). Which windows a rank touches follows from the lanes, the batch
size and the ranks (`tokenloom.order.working_set.touched_lanes`), so this is known before anything
is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenloom.api.dataset import Dataset
from tokenloom.errors import binary_size, plural, warn
from tokenloom.loader.maker import Maker
from tokenloom.order.working_set import RankShare, WorkingSet
from tokenloom.store.cache import BlockCache

FITS, ROWS, THRASHES = "fits", "reads rows", "thrashes"

LANES_EACH = 8  # for each rank: then shifts of a step touch few lanes of others

SLACK = 1.1  # fetches of a block; at the edges of bands a few are fetched twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the next steps of a rank will fetch, if nothing else uses the cache.

    Attributes:
        steps, examples: the steps simulated, and their examples on this rank.
        blocks: distinct blocks they need.
        fetches: fetches of blocks; a block that was evicted is fetched again.
        how: "fits": each block is fetched once; "thrashes": blocks are fetched again and again;
            "reads rows": no blocks are kept, and each row is read by itself.
        needed_bytes: memory for all blocks that this rank needs at the same time.
        cache_bytes: memory of the caches they go through.
        advice: what would mend it; empty if it fits.
        tokens: tokens of the examples.
        fetch_bytes: the most bytes that one fetch takes.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     found = tl.Loader(store.windows(2), batch_size=2).forecast(2)
    ...     found.how, found.steps, found.examples, found.blocks, found.fetches
    ('fits', 2, 4, 1, 1)
    """

    steps: int
    examples: int
    blocks: int
    fetches: int
    how: str = FITS
    needed_bytes: int = 0
    cache_bytes: int = 0
    advice: str = ""
    tokens: int = 0
    fetch_bytes: int = 0

    def feeds(self, *, latency: float, bandwidth: float, parallel: int = 16) -> float:
        """Tokens per second that a source can feed these steps with, whatever consumes them.

        Args:
            latency: seconds from a request to its first byte.
            bandwidth: bytes per second of all requests together.
            parallel: requests that are answered at the same time.

        A block of 500 kB takes 20 ms, and 5 ms more at 100 MB/s, so five requests at a time are
        enough to fill the line:

        >>> one = Forecast(steps=1, examples=64, blocks=1, fetches=1, tokens=250_000,
        ...                fetch_bytes=500_000)
        >>> [one.feeds(latency=0.02, bandwidth=100e6, parallel=n) / 1e6 for n in (1, 4, 5, 16)]
        [10.0, 40.0, 50.0, 50.0]
        """
        size = self.fetches * self.fetch_bytes
        if not size:
            return float("inf")
        alone = self.fetch_bytes / (latency + self.fetch_bytes / bandwidth)
        return self.tokens * min(bandwidth, parallel * alone) / size

    def __str__(self) -> str:
        each = self.fetches / self.examples if self.examples else 0.0
        times = self.fetches / self.blocks if self.blocks else 0.0
        told = (
            f"{self.steps:,} steps, {self.examples:,} rows of this rank: {self.fetches:,} fetches "
            f"of {self.blocks:,} blocks, {each:.4f} a row, each block {times:.2f} times; "
            f"{self.how}: needs {binary_size(self.needed_bytes)}, the cache has "
            f"{binary_size(self.cache_bytes)}."
        )
        return f"{told} {self.advice}" if self.advice else told


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReading:
    """How a rank should read.

    Attributes:
        fits: whether the caches hold everything that it needs at the same time.
        by_blocks: whether blocks are cheaper than rows.
        needed: bytes of the blocks that it needs at the same time.
        capacity: bytes of the caches.
        total: bytes of all blocks of the run.
        advice: what would make it fit, or fit better.
        why: the arithmetic, if lanes do not fit.
    """

    fits: bool
    by_blocks: bool
    needed: int
    capacity: int
    total: int
    advice: str
    why: str

    def warn_if_too_large(self) -> None:
        """Warn, with the arithmetic, when the windows of a rank do not fit into its cache."""
        if self.why and self.capacity:  # no warning if the cache was turned off on purpose
            then = "Blocks are then fetched more than once" if self.by_blocks else "Rows are then"
            ending = "" if self.by_blocks else " read one by one"
            warn(f"block_shuffle: {self.why} {then}{ending}. {self.advice}")


def reading_of(dataset: Dataset, share: RankShare) -> RankReading:
    """How a rank should read a dataset."""
    sources, caches = dataset.run.sources, dataset._caches
    working = [source.working for source in sources]
    needs = [one.share_bytes(share, len(sources)) for one in working]
    used: dict[int, int] = {}  # of each cache; sources may share one
    for cache, need in zip(caches, needs, strict=True):
        used[id(cache)] = used.get(id(cache), 0) + need
    capacity = {id(cache): cache.capacity for cache in caches}
    fits = all(used[one] <= capacity[one] for one in used)
    cheaper = fits
    if dataset.run.lanes > 1:  # otherwise a window that does not fit is read by rows
        missing = [1 - capacity[id(c)] / max(1, used[id(c)]) for c in caches]
        pairs = zip(working, missing, strict=True)
        cheaper = all(one.cheaper_by_blocks(max(0.0, share_)) for one, share_ in pairs)
    largest = max(range(len(needs)), key=lambda i: needs[i])
    # a cache that only just holds a window refetches where a group of steps reaches into the next
    advice = _advice(working[largest], share, len(sources), sum(needs), 2 if fits else 1)
    why = ""
    if not fits and working[largest].lanes > 1:
        held = working[largest].arithmetic(working[largest].touched(share, len(sources)))
        why = (
            f"rank {share.rank} of {share.world_size} touches {held}, {binary_size(sum(needs))} in "
            f"all; the cache has {binary_size(sum(capacity.values()))}."
        )
    return RankReading(
        fits=fits,
        by_blocks=fits or cheaper,
        needed=sum(needs),
        capacity=sum(capacity.values()),
        total=sum(one.total_bytes for one in working),
        advice=advice,
        why=why,
    )


def _advice(working: WorkingSet, share: RankShare, sources: int, needed: int, times: int) -> str:
    """What would make a rank's windows fit into its cache, or fit `times` as often."""
    memory = f"Open the store with cache_bytes={times * needed:,}"
    ranks, lanes, enough = share.world_size, working.lanes, LANES_EACH * share.world_size
    touched = working.touched(share, sources)
    if working.has_own_cache:
        memory = f"Set cache_windows={times * touched}"
    if lanes == 1:
        other = f", or give it lanes: at least {enough} for {ranks} ranks" if ranks > 1 else ""
        return f"{memory}, or lower window_blocks{other}."
    found = [memory]
    sizes = [size for size in share.batch_sizes if size % ranks]
    if sizes:
        whole = -(-sizes[0] // ranks) * ranks
        fewer = working.touched(RankShare(share.rank, ranks, (whole,)), sources)
        if fewer < touched:
            found.append(f"use a batch size that is a multiple of {ranks}, such as {whole:,}")
            found[-1] += f", which touches {plural(fewer, 'window')} instead of {touched}"
    if lanes < enough:
        found.append(
            f"use lanes={enough} or more, {LANES_EACH} for each rank, with smaller windows"
        )
    elif lanes % ranks:
        found.append(f"use a number of lanes that is a multiple of {ranks}")
    return "; or ".join(found) + "; or lower window_blocks."


def forecast_of(maker: Maker, reading: RankReading, first: int, steps: int, group: int) -> Forecast:
    """Given the steps from `first` on, answers what they fetch, by simulating them."""
    maker = maker.over(maker.steps)
    seq_len, working = maker.run.seq_len, [source.working for source in maker.run.sources]
    by_blocks = maker.renderer.by_blocks
    largest = max(one.block_bytes if by_blocks else one.row_bytes for one in working)
    how = ROWS
    if by_blocks:
        caches = maker.renderer.caches
        real = {id(cache): BlockCache(cache.capacity) for cache in caches}
        endless = {id(cache): BlockCache(1 << 62) for cache in caches}
        step, rows = maker.pretend(first, steps, group, [real[id(cache)] for cache in caches])
        maker.pretend(first, steps, group, [endless[id(cache)] for cache in caches])
        fetches, blocks = (sum(o.stats().misses for o in each.values()) for each in (real, endless))
        how = THRASHES if fetches > SLACK * blocks else FITS
    else:
        step, rows = maker.pretend(first, steps, group, None)
        fetches = blocks = rows
    return Forecast(
        steps=step,
        examples=rows,
        blocks=blocks,
        fetches=fetches,
        how=how,
        needed_bytes=reading.needed,
        cache_bytes=reading.capacity,
        advice="" if how == FITS else reading.advice,
        tokens=rows * seq_len,
        fetch_bytes=largest,
    )
