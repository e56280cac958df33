"""Perplexity and bits per byte, over all tokens and along every axis.

A loss belongs to a token, a token has a place, and every table is the same sum with another key. So
one pass of the model gives all tables, and tables of several ranks are added.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.store import Store
from tokenloom.arguments import check_options
from tokenloom.errors import ConfigError
from tokenloom.evaluate.answer_files import packed, unpacked
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.evaluation_sets import one_document_rows
from tokenloom.evaluate.models import scorer_of
from tokenloom.evaluate.scoring import (
    AXES,
    DOUBLING,
    SOURCE,
    Judged,
    Range,
    bin_name,
    judged_batches,
    places,
    trained_targets,
)
from tokenloom.tokenizer.vocabulary import byte_lengths

PENDING = 1 << 18  # tokens that are kept before they are added up


class LossSums(NamedTuple):
    """Losses of tokens, summed by key; keys ascend.

    Attributes:
        key: what the tokens of a sum have in common, for example their document.
        tokens: how many there are.
        never: how many of them have probability 0; their losses are in no sum.
        text: bytes of the text that the tokens stand for.
        greedy: how many greedy decoding would have given.
        nats: the sum of losses, added one token after the other.
    """

    key: NDArray[np.int64]
    tokens: NDArray[np.int64]
    never: NDArray[np.int64]
    text: NDArray[np.int64]
    greedy: NDArray[np.int64]
    nats: NDArray[np.float64]

    @staticmethod
    def joined(parts: Sequence[LossSums]) -> LossSums:
        """The sums of several parts, in their order.

        >>> key, once, nats = np.array([5, 3, 5]), np.ones(3, int), np.array([0.1, 0.3, 0.2])
        >>> found = LossSums.joined([LossSums(key, once, once, once, once, nats)])
        >>> found.key.tolist(), found.tokens.tolist(), found.nats.tolist() == [0.3, 0.1 + 0.2]
        ([3, 5], [1, 2], True)
        """
        key, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        keys, place = np.unique(key, return_inverse=True)
        *counts, nats = (np.bincount(place, column, len(keys)) for column in columns)
        return LossSums._make([keys, *(one.astype(np.int64) for one in counts), nats])


@dataclass(frozen=True, eq=False, kw_only=True)
class Losses:
    """What a model's losses on a run are; made by `tokenloom.evaluate.evaluate`.

    Attributes:
        tables: sums by axis; see `tokenloom.evaluate.scoring`.
        sources: names of the sources, by number.
        settings: fingerprint of the run, model, decoding, and whether bytes are known.
        judged: ranges of examples, first and one after the last, that are in the tables.
        examples: of the whole run.

    >>> nothing = np.array([0])
    >>> sums = LossSums(nothing, np.array([3]), nothing, nothing, nothing, 3 * np.log([2.0]))
    >>> about = dict(sources=("main",), settings={}, judged=((0, 2),), examples=2)
    >>> found = Losses(tables={"all": sums}, **about)
    >>> found.all["tokens"], round(found.all["perplexity"], 9)
    (3, 2.0)
    """

    tables: Mapping[str, LossSums]
    sources: tuple[str, ...]
    settings: Mapping[str, Any]
    judged: tuple[tuple[int, int], ...]
    examples: int

    @property
    def is_whole(self) -> bool:
        """Whether every example of the run is in it."""
        return sum(last - first for first, last in self.judged) == self.examples

    @staticmethod
    def joined(parts: Sequence[Losses]) -> Losses:
        """The shares of several ranks as one; sums are those of a single rank, up to rounding.

        Raises:
            ConfigError: they are of other runs, models or axes, or one came twice.
        """
        if not parts:
            raise ConfigError("parts: found none, allowed: the result of each rank")
        parts = sorted(parts, key=lambda part: part.judged)
        first = parts[0]
        for number, part in enumerate(parts):
            if part.settings != first.settings or part.tables.keys() != first.tables.keys():
                raise ConfigError(
                    f"parts[{number}]: another run, model or other axes than parts[0], allowed: "
                    "the shares of one evaluation"
                )
        tables = {
            axis: LossSums.joined([part.tables[axis] for part in parts]) for axis in first.tables
        }
        judged = sorted(one for part in parts for one in part.judged)
        for (_, end), (begin, _) in itertools.pairwise(judged):
            if begin < end:
                raise ConfigError(
                    f"parts: found example {begin:,} twice, allowed: the share of each rank once."
                )
        return Losses(
            tables=tables,
            sources=first.sources,
            settings=first.settings,
            judged=tuple(judged),
            examples=first.examples,
        )

    @property
    def all(self) -> dict[str, float]:
        """Tokens, mean loss in nats, perplexity, bits per byte and more, over all of the run."""
        nothing = {"tokens": 0, "loss": math.nan, "perplexity": math.nan, "greedy": math.nan}
        return next(iter(_figures(self.tables["all"]).values()), nothing)

    def by(self, axis: str) -> dict[Any, dict[str, float]]:
        """The same along an axis: by document, source, or bin of places.

        Args:
            axis: one of those that were asked for. Documents of a mix are named (source, document).

        >>> import tempfile, tokenloom as tl
        >>> from tokenloom.evaluate import evaluate
        >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     texts = [{"text": "abc"}, {"text": "defgh"}]
        ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
        ...     found = evaluate(uniform, store.pack(8), by=("document",))
        >>> found.all["tokens"], round(found.all["perplexity"]), found.all["bits_per_byte"]
        (6, 256, 8.0)
        >>> {number: one["tokens"] for number, one in found.by("document").items()}
        {0: 2, 1: 4}
        """
        check_options("by", [axis], list(self.tables))
        figures = _figures(self.tables[axis])
        return {self._name(axis, number): one for number, one in figures.items()}

    def _name(self, axis: str, number: int) -> Any:
        if axis in DOUBLING:
            return bin_name(number)
        if axis == "source":
            return self.sources[number]
        if axis == "document" and len(self.sources) > 1:
            return self.sources[number // SOURCE], number % SOURCE
        return number

    def to_bytes(self) -> bytes:
        """As one `.npz` file, without pickle."""
        arrays = {
            f"{axis}.{name}": column
            for axis, sums in self.tables.items()
            for name, column in sums._asdict().items()
        }
        about = {
            "sources": self.sources,
            "settings": dict(self.settings),
            "axes": list(self.tables),
            "judged": self.judged,
            "examples": self.examples,
        }
        return packed("losses", about, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Losses:
        """The inverse of `to_bytes`.

        Raises:
            InputError: the bytes are something else.
        """
        about, arrays = unpacked("losses", data)
        return cls(
            tables={
                axis: LossSums(*(arrays[f"{axis}.{name}"] for name in LossSums._fields))
                for axis in about["axes"]
            },
            sources=tuple(about["sources"]),
            settings=about["settings"],
            judged=tuple((first, last) for first, last in about["judged"]),
            examples=about["examples"],
        )

    def as_json(self) -> dict[str, Any]:
        """Settings and every table but that of rows; plain values."""
        tables = {axis: self.by(axis) for axis in self.tables if axis not in ("all", "row")}
        return {
            "settings": dict(self.settings),
            "all": self.all,
            "by": {
                axis: {_plain_name(name): one for name, one in table.items()}
                for axis, table in tables.items()
            },
        }

    def lines(self) -> Iterator[str]:
        """What people want to know first."""
        yield _line("all", self.all)
        for axis in self.tables:
            if axis in (*DOUBLING, "source"):
                yield f"by {axis}:"
                yield from (f"  {_line(str(name), one)}" for name, one in self.by(axis).items())


def evaluate(
    model: Any,
    run: Dataset | Documents,
    *,
    by: Sequence[str] = ("document", "source", "index", "position", "context", "start"),
    seq_len: int | None = None,
    overlap: int = 0,
    batch_size: int = 32,
    rank: int | None = None,
    world_size: int | None = None,
    progress: bool | None = None,
) -> Losses:
    """The losses of a model on every trained token of a run.

    Args:
        model: as for `tokenloom.evaluate.pz`.
        run: a run that ends; what it trains is judged. Or documents: then one row for each
            document, or for each `seq_len` tokens of it, whatever the layout of training is, and
            every token but the first of a document is judged, once.
        by: the axes of the tables.
        seq_len: tokens of a row, if documents are given.
        overlap: tokens that rows of one document share, if documents are given. By default none:
            row k starts at token k * seq_len, where packed training rows start. With more, every
            judged token has more than that many tokens before it, or all that there are.
        batch_size: rows that the model gets at a time.
        rank: the number of this rank, as for `tokenloom.Loader`: each gets its share, and
            `Losses.joined` or `gathered` puts the shares together.
        world_size: the number of ranks.
        progress: whether to draw a bar; None: on a terminal.

    Raises:
        ConfigError: an argument is not allowed, the run has no end, or the model gives NaN.

    >>> import tempfile, tokenloom as tl
    >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "to be or not"}], folder + "/toy", tokenizer="bytes")
    ...     found = evaluate(uniform, store, seq_len=8)
    >>> found.all["tokens"], found.all["bits_per_byte"], list(found.by("context"))
    (11, 8.0, ['1', '2 to 3', '4 to 7', '8 to 15'])
    """
    check_options("by", by, list(AXES))
    scorer = scorer_of(model)
    rows = run if isinstance(run, Dataset) else one_document_rows(run, seq_len, overlap)
    if not rows.is_finite:
        raise ConfigError(
            "run: it has no end, allowed: a run that ends. Ask for one epoch: run.epochs(1), or "
            "for some examples: run.take(1000)"
        )
    lengths = token_lengths(rows)
    names = tuple(rows.sources)
    settings = {
        "run": rows.fingerprint,
        "content": rows.render_fingerprint,
        "model": scorer.description,
        "bytes_known": lengths is not None,
    }
    mine = Range.of_rank(len(rows), rank, world_size)
    axes = ("all", *by)
    nothing = np.empty(0, np.int64)
    found = {axis: [LossSums._make([*[nothing] * 5, np.empty(0)])] for axis in axes}
    pending = 0
    for one in judged_batches(
        scorer,
        rows,
        some=mine,
        targets=trained_targets,
        decoding=Decoding(),
        batch_size=batch_size,
        show=progress,
    ):
        for axis, losses in _losses(one, axes, names, lengths).items():
            found[axis].append(losses)
        pending += len(one.targets)
        if pending > PENDING:
            found = {axis: [LossSums.joined(parts)] for axis, parts in found.items()}
            pending = 0
    return Losses(
        tables={axis: LossSums.joined(parts) for axis, parts in found.items()},
        sources=names,
        settings=settings,
        judged=((mine.first, mine.last),),
        examples=len(rows),
    )


def token_lengths(run: Dataset) -> NDArray[np.int64] | None:
    """Bytes of the text of every token id; None if the tokenizer is not known."""
    stores = [Store(source.reader, source.path) for source in run.sources.values()]
    known = {one.tokenizer_identity: one.tokenizer for one in stores}
    tokenizer = next(iter(known.values()))
    return byte_lengths(tokenizer.spec) if tokenizer is not None and len(known) == 1 else None


def _losses(
    one: Judged, axes: Sequence[str], sources: Sequence[str], lengths: NDArray[np.int64] | None
) -> dict[str, LossSums]:
    """The losses of a batch by axis, each token by itself."""
    at = places(one, sources)
    nats = np.maximum(-one.scores.log_probs, 0.0)  # a probability may be rounded to more than 1
    never, greedy = np.isinf(nats).astype(np.int64), one.scores.greedy.astype(np.int64)
    once = np.ones(len(nats), np.int64)
    text = 0 * once if lengths is None else lengths[one.targets]
    nats[never == 1] = 0.0
    keys = {axis: AXES[axis](at) if axis in AXES else 0 * once for axis in axes}
    return {axis: LossSums(key, once, never, text, greedy, nats) for axis, key in keys.items()}


def _figures(sums: LossSums) -> dict[int, dict[str, float]]:
    """The figures of each key."""
    found = {}
    for key, count, never, text, greedy, nats in zip(*(c.tolist() for c in sums), strict=True):
        mean = math.inf if never else nats / count
        one: dict[str, float] = {
            "tokens": count,
            "loss": mean,
            "perplexity": math.exp(mean) if mean < 709 else math.inf,
            "greedy": greedy / count,
        }
        if text:
            one["bits_per_byte"] = math.inf if never else nats / math.log(2) / text
        if never:
            one["never"] = never
        found[key] = one
    return found


def _plain_name(name: Any) -> str:
    return "/".join(map(str, name)) if isinstance(name, tuple) else str(name)


def _line(name: str, one: Mapping[str, float]) -> str:
    bits = f", {one['bits_per_byte']:.4f} bits per byte" if "bits_per_byte" in one else ""
    return (
        f"{name}: {one['tokens']:,} tokens, loss {one['loss']:.4f}, perplexity "
        f"{one['perplexity']:.4g}{bits}"
    )
