"""How two runs differ: from which example on, in how many, and because of which settings.

Two examples are equal if the same stretches of documents are in the same cells, trained alike. Of
runs that read one content, spans tell; where the content or the rendering differs, rows are read
and their hashes are compared. A setting is judged by trying it: the first run is rebuilt with that
one setting of the second, and the two are compared. Nothing is guessed from names.

Up to `EXACT` examples are all compared. Of longer runs, a keyed sample of the first ones is, with
the interval in which the share lies with a probability of 95 %. The first examples are compared in
order; what two runs with the same first edits have in common is known without looking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api import describe as description
from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arrays import Int64
from tokenloom.batch.views.digest import row_hashes
from tokenloom.errors import TokenloomError, plural
from tokenloom.inspect.diff_keys import KeyPart, changes, with_change
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import SourceRun
from tokenloom.progress import Progress
from tokenloom.random.keys import draws, key

Bools = NDArray[np.bool_]

EXACT = 10**7  # examples; shorter runs are compared as a whole

SCANNED = 1 << 15  # leading examples that are compared in order

TRIED, FAR, TRIED_KEYS = 512, 16, 64  # leading and random examples that try a key, and keys

SAMPLED, FEWER = 4096, 256  # random examples; fewer where one costs more: in mixes, packed groups

LETTERS = 40  # of a value

WORDS = {
    "order": "the same rows in another order",
    "content": "other tokens in rows",
    "arrays": "the same tokens, other arrays",
    "end": "only where the run ends",
    "nothing": "nothing",
    "not alone": "cannot be changed alone",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyChange:
    """A setting in which two runs differ.

    Attributes:
        key: its path in `Dataset.describe()`.
        a, b: its values.
        verdict: what it changes alone: "order" (the same rows at other indices), "content" (rows
            hold other tokens), "arrays" (the same tokens, other labels, masks or positions), "end"
            (only how far the run goes), "nothing", or "not alone" (it was not possible to try).
        why: more about it, such as why it could not be tried.

    >>> KeyChange(key="seed", a=1, b=2, verdict="order").to_dict()["verdict"]
    'order'
    """

    key: str
    a: Any
    b: Any
    verdict: str
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The change as plain JSON."""
        named = {"key": self.key, "a": self.a, "b": self.b}
        return named | {"verdict": self.verdict, "why": self.why}


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunDiff:
    """How two runs differ.

    Attributes:
        first: the first example that differs; None if none was found. Where one run ends before the
            other, the first one after that end is different, too.
        is_first: whether every example before `first` (or every one, if it is None) is known to be
            equal; otherwise it is only the first of those that were compared.
        share: share of equal examples among those that both runs have.
        low, high: the interval of the share, 95 %; both are the share if all were compared.
        compared: how many examples were compared for the share.
        among: they were taken from the first this many examples; None for all of endless runs.
        examples: the number of examples of each run; None is endless.
        keys: settings that differ, with verdicts.

    >>> told = {"share": 1.0, "low": 1.0, "high": 1.0, "compared": 0, "among": 9, "keys": ()}
    >>> RunDiff(first=None, is_first=True, examples=(9, 9), **told)
    RunDiff: no example differs
      equal   100.00 % of 9 examples
    """

    first: int | None
    is_first: bool
    share: float
    low: float
    high: float
    compared: int
    among: int | None
    examples: tuple[int | None, int | None]
    keys: tuple[KeyChange, ...]

    @property
    def is_exact(self) -> bool:
        """Whether all examples were compared, or known to be equal."""
        return self.low == self.high

    def __bool__(self) -> bool:
        """Whether a difference was found."""
        return self.first is not None

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "keys"}
        plain["examples"] = list(self.examples)
        return plain | {"keys": [one.to_dict() for one in self.keys]}

    def __repr__(self) -> str:
        lines = [f"RunDiff: {self._head()}", f"  equal   {self._share()}"]
        if self.examples[0] != self.examples[1]:
            sizes = ["endless" if n is None else f"{n:,}" for n in self.examples]
            lines.append(f"  length  {sizes[0]} and {sizes[1]} examples")
        width = max((len(one.key) for one in self.keys), default=0)
        for one in self.keys:
            values = f"{_short(one.a)} → {_short(one.b)}"
            lines.append(f"  {one.key:<{width}}  {values}: {one.why or WORDS[one.verdict]}")
        return "\n".join(lines)

    def _head(self) -> str:
        if self.first is None:
            return "no example differs" if self.is_first else "no example differs of those compared"
        return f"example {self.first:,} is the first that differs" + (
            "" if self.is_first else " of those that were compared"
        )

    def _share(self) -> str:
        if self.among is None:
            return "all examples"
        if self.is_exact:
            return f"{100 * self.share:.2f} % of {plural(self.among, 'example')}"
        low, high = f"{100 * self.low:.2f}", f"{100 * self.high:.2f}"
        return (
            f"{100 * self.share:.2f} % (95 %: {low} to {high} %) of a sample of "
            f"{self.compared:,} among the first {self.among:,}"
        )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def diff(a: Dataset, b: Dataset, *, progress: bool | None = None) -> RunDiff:
    """How two runs differ, and because of which settings; false if no example differs.

    Args:
        a: a run.
        b: another one, also over another store.
        progress: a bar while long runs are compared; default: if someone is watching.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh" * 9}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(4).shuffle().seed(1)
    ...     print(tl.diff(run, run.seed(2)))
    RunDiff: example 0 is the first that differs
      equal   0.00 % of 18 examples
      seed  1 → 2: the same rows in another order
    """
    a, b = dataset_of("diff.a", a), dataset_of("diff.b", b)
    ends = a.run.n, b.run.n
    both = min((n for n in ends if n is not None), default=None)
    known = _known_equal(a, b)
    if known is None or (both is not None and known >= both):
        counted = _Counted(None, True, 1.0, 1.0, 1.0, 0, both)
    elif both is not None and both < EXACT:
        counted = _all(_EqualRows(a, b), known, both, progress)
    else:
        counted = _sampled(a, b, _EqualRows(a, b), known, both)
    if counted.first is None and ends[0] != ends[1]:
        counted = counted._replace(first=both)
    return RunDiff(examples=ends, keys=_judged(a, b), **counted._asdict())


class _Counted(NamedTuple):
    """See `RunDiff`."""

    first: int | None
    is_first: bool
    share: float
    low: float
    high: float
    compared: int
    among: int | None


def _known_equal(a: Dataset, b: Dataset) -> int | None:
    """Examples that are equal by construction; None for all of them.

    Runs with the same start and the same first edits are equal up to the next edit of either.
    """
    told = [ds.describe() for ds in (a, b)]
    chains = [
        list(zip(description.chain(one), description.render_chain(one), strict=True))
        for one in told
    ]
    shared = 0
    while all(len(one) > shared for one in chains) and chains[0][shared] == chains[1][shared]:
        shared += 1
    if not shared:
        return 0
    edits = [description.edits_of(one)[shared - 1 :] for one in told]
    return min((int(one[0]["at"]) for one in edits if one), default=None)


def _all(rows: _EqualRows, known: int, n: int, progress: bool | None) -> _Counted:
    """All examples compared."""
    chunk = limits().inspected_chunk_examples
    first, equal = None, known
    shown = progress if n - known > chunk else False
    with Progress("comparing", total=n - known, unit=" examples", show=shown) as bar:
        for low in range(known, n, chunk):
            some = np.arange(low, min(low + chunk, n))
            same = rows.of(some)
            equal += int(same.sum())
            if first is None and not same.all():
                first = int(some[~same][0])
            bar.advance(len(some))
    share = equal / n
    return _Counted(first, True, share, share, share, n - known, n)


def _sampled(a: Dataset, b: Dataset, rows: _EqualRows, known: int, n: int | None) -> _Counted:
    """The first examples compared in order, and a keyed sample."""
    first = _scanned(rows, known, min(known + SCANNED, n or known + SCANNED))
    costly = any(isinstance(ds.run, MixedRun) or _is_planned(ds) for ds in (a, b))
    among = n or max(known + SCANNED, _longest(a, b))
    some = _random(a, b, FEWER if costly else SAMPLED, 0, among)
    same = np.ones(len(some), np.bool_)
    unknown = some >= known
    same[unknown] = rows.of(some[unknown])
    is_first = first is not None
    if first is None and not same.all():
        first = int(some[~same][0])
    low, high = wilson(int(same.sum()), len(same))
    return _Counted(first, is_first, float(same.mean()), low, high, len(some), among)


def _longest(a: Dataset, b: Dataset) -> int:
    """Rows of an epoch of the longest source: of most mixes, less than an epoch of each."""
    return max(one.rows for ds in (a, b) for one in ds.run.sources)


def _random(a: Dataset, b: Dataset, count: int, low: int, high: int | None) -> Int64:
    """Indices that are drawn with a key of both runs, ascending; none if there are none [N]."""
    high = low + _longest(a, b) if high is None else high
    words = draws(
        key(0, "diff", a.fingerprint, b.fingerprint),
        np.arange(count if high > low else 0, dtype=np.uint64),
    )
    return np.sort((words % np.uint64(max(1, high - low))).astype(np.int64)) + low


def _is_planned(ds: Dataset) -> bool:
    """Whether a random row may take the plan of its group."""
    few = limits().min_cached_packing_documents
    return any(
        isinstance(one.layout, Packed) and one.layout.line.documents >= few
        for one in ds.run.sources
    )


def _scanned(rows: _EqualRows, low: int, high: int) -> int | None:
    """The first example in [low, high) that differs."""
    chunk = limits().inspected_chunk_examples
    size = 64
    while low < high:
        some = np.arange(low, min(low + size, high))
        same = rows.of(some)
        if not same.all():
            return int(some[~same][0])
        low, size = low + size, min(4 * size, chunk)
    return None


def wilson(hits: int, tries: int, z: float = 1.96) -> tuple[float, float]:
    """The interval in which a share lies with 95 %, from a sample (Wilson).

    >>> [round(one, 3) for one in wilson(0, 100)], [round(one, 3) for one in wilson(50, 100)]
    ([0.0, 0.037], [0.404, 0.596])
    """
    share, more = hits / tries, z * z / tries
    middle = (share + more / 2) / (1 + more)
    half = z * math.sqrt(share * (1 - share) / tries + more / (4 * tries)) / (1 + more)
    return max(0.0, middle - half), min(1.0, middle + half)


class _EqualRows:
    """Compares examples of two runs by index; epochs and names of sources are no part of one."""

    def __init__(self, a: Dataset, b: Dataset) -> None:
        self._runs = a, b
        self._alike = a.run.width == b.run.width and a.seq_len == b.seq_len
        sources = [one for ds in (a, b) for one in ds.sources.values()]
        lines = [one.layout.line for ds in (a, b) for one in ds.run.sources]
        self._one_content = len({line.reader.manifest.digest for line in lines}) == 1
        first = sources[0]
        self._by_spans = self._one_content and all(
            one.render == first.render and one.layout.inserted == first.layout.inserted
            for one in sources
        )

    def of(self, indices: Int64) -> Bools:
        """Whether the examples at each index, inside both runs, are equal [N]."""
        if not self._alike or not len(indices):
            return np.zeros(len(indices), np.bool_)
        equal = np.ones(len(indices), np.bool_)
        if self._one_content:
            equal = _same_spans(*(ds.spans(indices) for ds in self._runs))
        if self._by_spans:
            return equal
        places, chunk = np.flatnonzero(equal), limits().compared_chunk_examples
        for low in range(0, len(places), chunk):
            some = places[low : low + chunk]
            a, b = (ds.batch(indices[some]) for ds in self._runs)
            pairs = zip(row_hashes(a), row_hashes(b), strict=True)
            same = np.array([x == y for x, y in pairs])
            equal[some] = same & (a.labels == b.labels).all(axis=1)
        return equal


def _same_spans(a: Spans, b: Spans) -> Bools:
    """Whether the same stretches of documents are in the same cells of each row [rows]."""
    equal: Bools = np.diff(a.frame) == np.diff(b.frame)
    here = np.flatnonzero(equal)
    mine, yours = a.take(here), b.take(here)
    names = "document", "start", "length", "at", "flags", "seen"
    same = [getattr(mine, name) == getattr(yours, name) for name in names]
    wrong = np.concatenate([[0], np.cumsum(~np.logical_and.reduce(same))])[mine.frame]
    equal[here] = np.diff(wrong) == 0
    return equal


# -- verdicts ------------------------------------------------------------------------------


def _judged(a: Dataset, b: Dataset) -> tuple[KeyChange, ...]:
    """Every setting that differs, tried alone."""
    found = []
    for number, part in enumerate(changes(a.describe(), b.describe())):
        told = {"key": part.key, "a": part.a, "b": part.b}
        verdict, why = _verdict(a, b, part) if number < TRIED_KEYS else ("not alone", "not tried")
        found.append(KeyChange(**told, verdict=verdict, why=why))
    return tuple(found)


def _verdict(a: Dataset, b: Dataset, part: KeyPart) -> tuple[str, str]:
    """What one setting of the second run changes in the first, and a remark."""
    if not part.set:
        return "not alone", "one run is a mix, the other is not"
    try:
        made = with_change(a, b, part)
        ends = a.run.n, made.run.n
        if a == made:
            return "nothing", ""
        return _compared(a, made, ends)
    except (TokenloomError, TypeError, ValueError, LookupError) as error:
        return "not alone", f"cannot be changed alone: {error}"


def _compared(a: Dataset, made: Dataset, ends: tuple[int | None, int | None]) -> tuple[str, str]:
    """The verdict on a run in which one setting was changed."""
    known = _known_equal(a, made)
    both = min((n for n in ends if n is not None), default=None)
    if known is None or (both is not None and known >= both):
        return "end", ""
    rows, last = _EqualRows(a, made), known + TRIED if both is None else min(known + TRIED, both)
    tried = last - known
    if rows.of(np.arange(known, last)).all():
        far = _random(a, made, FAR, last, both)
        if rows.of(far).all():
            if ends[0] != ends[1]:
                return "end", ""
            return "nothing", f"nothing in {plural(tried + len(far), 'example')} that were tried"
    if a.fingerprint == made.fingerprint:
        return "arrays", ""
    return ("order" if _same_rows(a, made) else "content"), ""


def _same_rows(a: Dataset, b: Dataset) -> bool:
    """Whether both have the same rows: the same layouts over the same documents, none hidden."""
    return _rows(a) == _rows(b)


def _rows(ds: Dataset) -> dict[str, Any]:
    def told(run: SourceRun) -> Any:
        hidden = None if run.blanks is None else [one.tolist() for one in run.blanks]
        rows = run.layout.phases.rows.tolist()
        return run.layout.line.identity, run.layout.tag, rows, hidden

    return {run.name: told(run) for run in ds.run.sources}
