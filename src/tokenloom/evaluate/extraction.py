"""What a model can give back of some documents, and every question about it.

All tables, pictures and intervals come from the few numbers of each window. Windows of a document
overlap and say nearly the same, so intervals come from drawing documents, never windows.

Text that is easy to guess has a high P(z) whether it was trained on or not. So the same windows of
documents that were held out are the control, and `contrast` gives the difference with an interval
from drawing documents of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer
from tokenloom.errors import ConfigError
from tokenloom.evaluate.answer_files import packed, unpacked
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.probabilities import draws_needed, log_threshold
from tokenloom.random.keys import draws as words_of
from tokenloom.random.keys import key

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

COMPARED = ("prefix", "suffix", "stride", "offsets", "decoding", "tau", "model")

SMALLEST = -64  # log10 P(z) below which a histogram has one bin


class WindowScores(NamedTuple):
    """Arrays over windows.

    Attributes:
        example: index of the window in the run of its offset.
        document: its document's number in the store.
        start: its first token in the document.
        offset: cells of filler before it.
        log_pz: log P(z) of its suffix, natural logarithm.
        greedy: whether greedy decoding gives the suffix.
        k_star: tokens of the longest suffix whose P(z) reaches tau.
    """

    example: Int64
    document: Int64
    start: Int64
    offset: Int64
    log_pz: Float64
    greedy: NDArray[np.bool_]
    k_star: Int64

    @staticmethod
    def joined(parts: Sequence[WindowScores]) -> WindowScores:
        """The windows of all parts, by offset and index."""
        if not parts:
            nothing = np.empty(0, np.int64)
            return WindowScores._make([*[nothing] * 4, np.empty(0), nothing > 0, nothing])
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[0], columns[3]))
        return WindowScores._make(column[order] for column in columns)

    def some(self, which: Int64) -> WindowScores:
        """Some of the windows, by number."""
        return WindowScores._make(column[which] for column in self)

    def summary(self) -> dict[str, float]:
        """Figures over all windows: P(z), its logarithm to base 10, and shares.

        A mean of log P(z) is -inf if decoding can't give one of the suffixes.
        """
        count = len(self.example)
        if not count:
            return {"windows": 0}
        chances = np.exp(self.log_pz)
        finite = bool(np.isfinite(self.log_pz).all())
        powers = np.quantile(np.maximum(self.log_pz, -1e300), (0.05, 0.5, 0.95)) / math.log(10)
        low, middle, high = (p if p > -1e200 else -math.inf for p in powers.tolist())
        return {
            "windows": count,
            "mean_pz": float(chances.mean()),
            "median_pz": float(np.median(chances)),
            "max_pz": float(chances.max()),
            "mean_log_pz": float(self.log_pz.mean()) if finite else -math.inf,
            "log10_pz_5": low,
            "log10_pz_50": middle,
            "log10_pz_95": high,
            "greedy": float(self.greedy.mean()),
            "never": int(np.isneginf(self.log_pz).sum()),
        }


class Interval(NamedTuple):
    """A figure and where it lies if other documents had been chosen."""

    value: float
    low: float
    high: float

    @staticmethod
    def around(value: float, drawn: Float64, level: float) -> Interval:
        """The interval that holds this part of what was drawn.

        >>> Interval.around(50.0, np.arange(101.0), 0.5)
        Interval(value=50.0, low=25.0, high=75.0)
        """
        if np.isnan(drawn).any():
            return Interval(value, math.nan, math.nan)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
        return Interval(value, low, high)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.4g} (too few documents for an interval)"
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def drawn_means(
    document: Int64, values: Sequence[Float64], *, draws: int, seed: int, name: str = "bootstrap"
) -> list[Float64]:
    """Means over the windows of documents that are drawn [draws], for each kind of value.

    One document says nothing about others: its means are NaN.

    Args:
        document: of each window.
        values: of each window, one array a kind.
        draws: how often documents are drawn.
        seed: of the draws.
        name: of the draws; others are independent of them.

    >>> windows = np.array([7, 7, 9])
    >>> (drawn,) = drawn_means(windows, [np.array([1.0, 1.0, 4.0])], draws=4, seed=0)
    >>> drawn.tolist()
    [4.0, 4.0, 1.0, 4.0]
    """
    integer("draws", draws, 1)
    numbers, group = np.unique(document, return_inverse=True)
    count = np.bincount(group, minlength=len(numbers)).astype(np.float64)
    sums = [np.bincount(group, one, len(numbers)) for one in values]
    found = np.full((len(values), draws), np.nan)
    if len(numbers) < 2:
        return list(found)
    places = np.arange(len(numbers), dtype=np.uint64)
    for time in range(draws):
        chosen = words_of(key(seed, name, time), places) % np.uint64(len(numbers))
        windows = count[chosen].sum()
        found[:, time] = [one[chosen].sum() / windows for one in sums]
    return list(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Extraction:
    """What a model can give back of some documents; made by `tokenloom.evaluate.pz`.

    Attributes:
        windows: what was found about each window, by offset and index.
        lengths: tokens of each document that was asked about, by its number; those without a window
            are among them.
        settings: prefix, suffix, stride, offsets, decoding, tau and model.
        content: the digest of the documents.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.evaluate import pz
    >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "to be or not to be"}], folder + "/toy", tokenizer="bytes")
    ...     found = pz(uniform, store, prefix=4, suffix=1, stride=4)
    >>> len(found), found.rate(177, 0.5), found.rate(178, 0.5), found.draws_for(0.5).tolist()[0]
    (4, 0.0, 1.0, 178.0)
    """

    windows: WindowScores
    lengths: Mapping[int, int]
    settings: Mapping[str, Any]
    content: str

    @staticmethod
    def joined(parts: Sequence[Extraction]) -> Extraction:
        """The shares of several ranks as one, equal to that of a single rank.

        Raises:
            ConfigError: they are of other documents or settings, or one came twice.
        """
        if not parts:
            raise ConfigError("parts: found none, allowed: the result of each rank")
        first = parts[0]
        for number, part in enumerate(parts):
            if (part.content, part.settings) != (first.content, first.settings):
                raise ConfigError(
                    f"parts[{number}]: other documents or settings than parts[0], allowed: the "
                    "shares of one evaluation"
                )
        windows = WindowScores.joined([part.windows for part in parts])
        pairs = np.stack([windows.offset, windows.example], 1)
        if len(np.unique(pairs, axis=0)) != len(pairs):
            raise ConfigError("parts: found a window twice, allowed: the share of each rank once.")
        return replace(first, windows=windows)

    @property
    def is_whole(self) -> bool:
        """Whether every window of the documents is in it."""
        asked, lengths = self.settings, np.array(list(self.lengths.values()), np.int64)
        spare = lengths - (asked["prefix"] + asked["suffix"])
        windows = int((spare[spare >= 0] // asked["stride"] + 1).sum())
        return len(self) == windows * len(asked["offsets"])

    def __len__(self) -> int:
        """The number of windows."""
        return len(self.windows.example)

    def rate(self, n: int, p: float) -> float:
        """The share of windows that are seen with probability p among n draws."""
        return float((self.windows.log_pz >= log_threshold(n, p)).mean()) if len(self) else math.nan

    def draws_for(self, p: float) -> Float64:
        """How many draws show each window's suffix with probability p."""
        return draws_needed(self.windows.log_pz, p)

    def summary(self) -> dict[str, float]:
        """Figures over all windows; see `WindowScores.summary`."""
        return self.windows.summary()

    def by_document(self) -> dict[int, dict[str, float]]:
        """The same for each document, by its number; those without a window have ``windows`` 0."""
        order = np.argsort(self.windows.document, kind="stable")
        numbers, first = np.unique(self.windows.document[order], return_index=True)
        some = dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=False))
        nothing = np.empty(0, np.int64)
        return {n: self.windows.some(some.get(n, nothing)).summary() for n in self.lengths}

    def by_offset(self) -> dict[int, dict[str, float]]:
        """The same for each frame offset, and the mean `loss` of a suffix token there, in nats.

        A model that does not care where in the frame a text is has the same loss at each.
        """
        found = {}
        for offset in self.settings["offsets"]:
            one = self.windows.some(np.flatnonzero(self.windows.offset == offset)).summary()
            loss = -one["mean_log_pz"] / self.settings["suffix"] if one["windows"] else math.nan
            found[offset] = {**one, "loss": loss}
        return found

    def histogram(self) -> list[tuple[float, float, int]]:
        """(low, high, windows) of log10 P(z), by powers of ten, from the smallest to 0.

        The first bin also holds all that is below 10^-64.
        """
        if not len(self):
            return []
        powers = np.maximum(self.windows.log_pz / math.log(10), SMALLEST)
        bins = np.ceil(powers).astype(int)  # (-1, 0] is bin 0
        low = int(bins.min())
        counts = np.bincount(bins - low, minlength=1 - low).tolist()
        return [(low + i - 1.0, low + i * 1.0, count) for i, count in enumerate(counts)]

    def heat(self, document: int) -> Float64:
        """Log P(z) over the tokens of a document: the largest of the windows whose suffix has each.

        Prefixes are left out: they were given to the model.

        Args:
            document: its number.

        Returns:
            One value a token; NaN where there is no window.
        """
        if document not in self.lengths:
            raise ConfigError(
                f"document: {document} was not evaluated, allowed: {len(self.lengths)} numbers, "
                f"for example {next(iter(self.lengths), None)}"
            )
        windows = self.windows.some(np.flatnonzero(self.windows.document == document))
        cells = (
            windows.start[:, None] + self.settings["prefix"] + np.arange(self.settings["suffix"])
        )
        found = np.full(self.lengths[document], np.nan)
        np.fmax.at(found, cells, windows.log_pz[:, None])
        return found

    def coverage(self, tau: float = 0.5) -> float:
        """The share of tokens in a suffix of P(z) >= tau, of those in any suffix."""
        seen = np.concatenate([np.empty(0), *map(self.heat, self.lengths)])
        seen = seen[~np.isnan(seen)]
        return float((seen >= math.log(tau)).mean()) if len(seen) else math.nan

    def figures(self, n: int = 100, p: float = 0.5) -> dict[str, Float64]:
        """One value for each window, by name: their means are what people ask for first.

        That of log10 P(z) is left out where decoding can't give one of the suffixes.

        Args:
            n: draws of whoever tries to extract.
            p: the probability with which they see the suffix.
        """
        log_pz = self.windows.log_pz
        powers = {"mean log10 P(z)": log_pz / math.log(10)} if np.isfinite(log_pz).all() else {}
        return {
            **powers,
            "mean P(z)": np.exp(log_pz),
            "extracted by greedy decoding": self.windows.greedy.astype(np.float64),
            f"seen in {n} draws with probability {p:g}": (log_pz >= log_threshold(n, p)) * 1.0,
        }

    def intervals(
        self, *, n: int = 100, p: float = 0.5, draws: int = 1000, level: float = 0.95, seed: int = 0
    ) -> dict[str, Interval]:
        """`figures` with their intervals, by drawing documents again and again (bootstrap).

        Args:
            n: draws of whoever tries to extract.
            p: the probability with which they see the suffix.
            draws: how often as many documents are drawn, with replacement.
            level: of the intervals.
            seed: of the draws.
        """
        values = self.figures(n, p)
        means = drawn_means(self.windows.document, list(values.values()), draws=draws, seed=seed)
        return {
            name: Interval.around(float(one.mean()) if len(one) else math.nan, drawn, level)
            for (name, one), drawn in zip(values.items(), means, strict=True)
        }

    def to_bytes(self) -> bytes:
        """As one `.npz` file, without pickle."""
        numbers = np.array(list(self.lengths.items()), np.int64).reshape(-1, 2)
        about = {"settings": self._plain_settings(), "content": self.content}
        return packed("extraction", about, {**self.windows._asdict(), "lengths": numbers})

    @classmethod
    def from_bytes(cls, data: bytes) -> Extraction:
        """The inverse of `to_bytes`.

        Raises:
            InputError: the bytes are something else.
        """
        about, arrays = unpacked("extraction", data)
        settings = about["settings"]
        lengths = arrays.pop("lengths")
        return cls(
            windows=WindowScores(**arrays),
            lengths=dict(lengths.tolist()),
            settings={**settings, "decoding": Decoding(**settings["decoding"])},
            content=about["content"],
        )

    def _plain_settings(self) -> dict[str, Any]:
        return {**self.settings, "decoding": asdict(self.settings["decoding"])}

    def as_json(self) -> dict[str, Any]:
        """Settings, figures of all windows and of each document; plain values."""
        return {
            "settings": self._plain_settings(),
            "content": self.content,
            "all": self.summary(),
            "intervals": {name: list(one) for name, one in self.intervals().items()},
            "documents": {str(number): one for number, one in self.by_document().items()},
            "histogram": [list(one) for one in self.histogram()],
        }

    def lines(self) -> Iterator[str]:
        """What people want to know first, and a bar for each power of ten."""
        whole = self.summary()
        if not len(self):
            yield "no window"
            return
        yield (
            f"{len(self):,} windows of {len(self.lengths):,} documents: mean P(z) "
            f"{whole['mean_pz']:.3g}, median {whole['median_pz']:.3g}, largest "
            f"{whole['max_pz']:.3g}; greedy {whole['greedy']:.1%}"
        )
        yield f"tokens in a suffix of P(z) >= 0.5: {self.coverage():.1%}"
        if len(self.settings["offsets"]) > 1:
            told = (f"{one['loss']:.4f} at {s}" for s, one in self.by_offset().items())
            yield f"loss of suffix tokens by frame offset: {', '.join(told)}"
        for name, one in self.intervals().items():
            yield f"{name}: {one}"
        bins = self.histogram()
        most = max(count for *_, count in bins)
        for low, high, count in reversed(bins):
            if count:
                bar = "#" * -(-40 * count // most)
                yield f"  10^{low:<4.0f} to 10^{high:<4.0f} {count:>9,} {bar}"

    def table(self) -> Iterator[tuple[Any, ...]]:
        """The names of the columns, then a row for each window; for `csv.writer`."""
        yield WindowScores._fields
        yield from zip(*(column.tolist() for column in self.windows), strict=True)


class Difference(NamedTuple):
    """One figure of both sides.

    Attributes:
        trained: its mean over the windows of trained documents.
        held: the same of documents that were held out.
        difference: trained - held, with its interval.
        ratio: trained / held; inf if only the second is 0, NaN of logarithms.
    """

    trained: float
    held: float
    difference: Interval
    ratio: float

    @property
    def verdict(self) -> str:
        """In a word: whether the difference is more than the choice of documents."""
        if math.isnan(self.difference.low):
            return "too few documents to say"
        if self.difference.low > 0:
            return "remembered"
        if self.difference.high < 0:
            return "below the control: these sides are not alike"
        return "no more than the control"


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Trained documents beside held-out ones; made by `contrast`.

    Attributes:
        figures: each by its name; see `Extraction.figures`.
        level: of the intervals.
        documents: of both sides.

    >>> one = Difference(0.4, 0.1, Interval(0.3, 0.2, 0.4), 4.0)
    >>> found = Contrast(figures={"mean P(z)": one}, level=0.95, documents=(20, 10))
    >>> list(found.lines())[1]
    '  mean P(z): 0.4 and 0.1, difference 0.3 (0.2 to 0.4), ratio 4: remembered'
    """

    figures: dict[str, Difference]
    level: float
    documents: tuple[int, int]

    def lines(self) -> Iterator[str]:
        """A line for each figure, with a verdict."""
        yield (
            f"{self.documents[0]:,} trained documents beside {self.documents[1]:,} that were held "
            f"out, intervals of {self.level:.0%} over documents:"
        )
        for name, one in self.figures.items():
            ratio = "" if math.isnan(one.ratio) else f", ratio {one.ratio:.3g}"
            yield (
                f"  {name}: {one.trained:.3g} and {one.held:.3g}, difference {one.difference}"
                f"{ratio}: {one.verdict}"
            )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "documents": list(self.documents),
            "level": self.level,
            "figures": {
                name: {
                    "trained": one.trained,
                    "held_out": one.held,
                    "difference": list(one.difference),
                    "ratio": one.ratio,
                    "verdict": one.verdict,
                }
                for name, one in self.figures.items()
            },
        }


def contrast(
    trained: Extraction,
    held: Extraction,
    *,
    n: int = 100,
    p: float = 0.5,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Contrast:
    """How much more a model gives back of what it was trained on.

    Args:
        trained: `tokenloom.evaluate.pz` of documents that were trained on.
        held: the same of documents that were not, with the same settings.
        n: draws of whoever tries to extract.
        p: the probability with which they see the suffix.
        draws: how often documents of both sides are drawn, with replacement.
        level: of the intervals.
        seed: of the draws.

    Raises:
        ConfigError: the two were judged with other settings.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.evaluate import pz
    >>> def remembers_a(tokens, segment_ids, position_ids):
    ...     return np.where(np.arange(256) == ord("a"), 9.0, 0.0) + np.zeros((*tokens.shape, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": c * 12} for c in "aaabbb"]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     ask = dict(prefix=4, suffix=2, stride=1)
    ...     one = pz(remembers_a, store.select(doc_index=[0, 1, 2]), **ask)
    ...     two = pz(remembers_a, store.select(doc_index=[3, 4, 5]), **ask)
    >>> [each.verdict for each in contrast(one, two).figures.values()]
    ['remembered', 'remembered', 'remembered', 'remembered']
    >>> {each.verdict for each in contrast(two, two).figures.values()}
    {'no more than the control'}
    """
    for name in COMPARED:
        if trained.settings[name] != held.settings[name]:
            raise ConfigError(
                f"held: {name} is {held.settings[name]!r:.60} there and "
                f"{trained.settings[name]!r:.60} in trained; allowed: the same for both, or they "
                "can't be compared."
            )
    sides = (trained, held)
    known = [one.figures(n, p) for one in sides]
    values = [
        {name: v for name, v in one.items() if all(name in k for k in known)} for one in known
    ]
    drawn = [
        drawn_means(one.windows.document, list(v.values()), draws=draws, seed=seed, name=name)
        for one, v, name in zip(
            sides, values, ("bootstrap", "bootstrap of the control"), strict=True
        )
    ]
    found = {}
    for place, name in enumerate(values[0]):
        first, second = (float(v[name].mean()) if len(v[name]) else math.nan for v in values)
        apart = Interval.around(first - second, drawn[0][place] - drawn[1][place], level)
        found[name] = Difference(first, second, apart, _ratio(first, second))
    counts = tuple(len(np.unique(one.windows.document)) for one in sides)
    return Contrast(figures=found, level=level, documents=(counts[0], counts[1]))


def _ratio(first: float, second: float) -> float:
    if min(first, second) < 0 or not max(first, second):
        return math.nan
    return first / second if second else math.inf
