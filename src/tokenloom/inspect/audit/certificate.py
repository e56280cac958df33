"""A certificate: what was audited, with which result, in a form that others can compute again.

A certificate has a part that follows from the run alone (what was looked at, verdicts, counts,
digests of stretches) and a part that tells who made it (versions). The first part has no time, path
or name of a machine in it, so two people who audit the same run get the same bytes, and a
difference is followed through the digests to the stretch that differs.

What is looked at is all of a range, or keyed samples. A sample of N rows is the first N places of a
keyed permutation of the range, so it is drawn without replacement, two machines draw the same one,
and a larger sample holds every smaller one. Of more rows than can be rendered in some seconds, a
keyed share is rendered.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom import native
from tokenloom.api.dataset import Dataset
from tokenloom.arguments import integer, wrong
from tokenloom.arrays import Int64, grouped
from tokenloom.bind import BindError, bind, unbind
from tokenloom.errors import ConfigError, plural
from tokenloom.inspect.audit.laws import LawVerdict
from tokenloom.order.run import SourceRun
from tokenloom.random.keys import check_seed, draws, key
from tokenloom.random.permute import permutations
from tokenloom.version import ORDER_VERSION, __version__

FORMAT = "tokenloom-audit/2"

MOST = 128  # stretches with a digest of their own

ARRAYS = ("all", "sample", "none")

WHOLE_TOKENS = 1 << 26  # of rows that are all rendered; of more, about this many are

SIZES = (1, 10, 100, 1_000, 10_000)  # defective rows that a certificate names

RARELY = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The run that was audited.

    Attributes:
        fingerprint: identity of what is trained when.
        render_fingerprint: identity of how tokens become arrays.
        rows: rows of the run; None is endless.
        seq_len: tokens of a row.
        sources: the names of its sources.
        order_version: version of the orders.
    """

    fingerprint: str
    render_fingerprint: str
    rows: int | None
    seq_len: int
    sources: tuple[str, ...]
    order_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What is looked at.

    Attributes:
        first, last: the range of indices, [first, last).
        sample: rows of a keyed sample of the range; None is all of them.
        seed: names the samples.
        arrays: "all" rows that are looked at are rendered, or a keyed "sample", or "none".
    """

    first: int
    last: int
    sample: int | None
    seed: int
    arrays: str

    @property
    def rows(self) -> int:
        """Rows that are looked at."""
        return self.last - self.first if self.sample is None else self.sample

    def at(self, low: int, high: int) -> Int64:
        """The indices at places [low, high) among all that are looked at, ascending."""
        if self.sample is None:
            return np.arange(self.first + low, min(self.first + high, self.last))
        return _sampled(self)[low:high]

    def chunks(self, size: int, cuts: Sequence[int] = ()) -> Iterator[Int64]:
        """All indices, some at a time; no chunk crosses one of the indices `cuts`."""
        inner = {cut - self.first for cut in cuts if self.sample is None}
        edges = sorted({0, self.rows, *(cut for cut in inner if 0 < cut < self.rows)})
        for begin, end in itertools.pairwise(edges):
            for low in range(begin, end, size):
                yield self.at(low, min(low + size, end))

    def share(self, indices: Int64, most: int, name: str) -> Int64:
        """The places of a keyed share of some indices: about `most` of all rows, or all."""
        one_in = -(-self.rows // max(1, most))
        if one_in <= 1:
            return np.arange(len(indices))
        drawn = draws(key(self.seed, "audit", name), indices.astype(np.uint64))
        return np.flatnonzero(drawn % np.uint64(one_in) == 0)

    def rendered(self, indices: Int64, seq_len: int) -> Int64:
        """The places of those of some indices whose arrays are looked at."""
        if self.arrays == "none":
            return np.empty(0, np.int64)
        most = self.rows if self.arrays == "all" else WHOLE_TOKENS // seq_len
        return self.share(indices, most, "arrays")


@functools.lru_cache(maxsize=1)
def _sampled(scope: Scope) -> Int64:
    """The indices of a sample, ascending."""
    order = permutations(scope.last - scope.first, [key(scope.seed, "audit", "rows")])
    found = order.forward(np.arange(scope.rows, dtype=np.uint64)).astype(np.int64)
    found.sort()
    found += scope.first
    found.setflags(write=False)
    return found


def scope_of(
    run: Dataset,
    first: int | None,
    last: int | None,
    arrays: bool | str,
    sample: int | None,
    seed: int,
) -> Scope:
    """The scope that was asked for, or why there is none."""
    if arrays not in (True, False, "all"):
        raise wrong("arrays", arrays, "True, False or 'all'")
    low = integer("first", 0 if first is None else first)
    high = _end_of(run) if last is None else integer("last", last)
    n = run.run.n
    if n is not None and high > n:
        raise ConfigError(f"last: found {high:,}, but the run has {n:,} rows. Leave it out.")
    if low > high:
        raise ConfigError(f"first: found {low:,}, allowed: up to last, which is {high:,}.")
    rows = high - low
    if sample is not None:
        rows = min(rows, integer("sample", sample, least=1))
    whole = arrays == "all" or rows * run.seq_len <= WHOLE_TOKENS
    return Scope(
        first=low,
        last=high,
        sample=rows if rows < high - low else None,
        seed=check_seed(seed),
        arrays="none" if arrays is False else "all" if whole else "sample",
    )


def _end_of(run: Dataset) -> int:
    """The end of a run; of an endless one of a single source, the end of its first epoch."""
    if run.run.n is not None:
        return run.run.n
    if isinstance(run.run, SourceRun):
        return run.run.end_of(1)
    raise ConfigError(
        "last: missing; this mix is endless, so there is no last row. Give last=…, such as the "
        "rows of your training."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Digests:
    """Digests of stretches of the rows that were looked at, as `Dataset.digest` makes them.

    Attributes:
        stretch: rows of a stretch; the last one may be shorter.
        plan: digest of the spans of each stretch.
        arrays: digest of the arrays of those rows of each stretch that were rendered.
    """

    stretch: int
    plan: tuple[str, ...]
    arrays: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeWith:
    """Who made a certificate; not part of what is compared.

    Attributes:
        tokenloom, python, numpy: versions.
        native: whether the compiled loops were used.
    """

    tokenloom: str
    python: str
    numpy: str
    native: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What `audit_run` found; `print` it for a table.

    Attributes:
        format: version of this form.
        subject: the run.
        scope: what was looked at.
        laws: the verdict on every law.
        counts: rows and tokens by source, and the largest error of the mixture.
        digests: what others compare.
        not_looked_at: what the verdicts say nothing about.
        missed: of a sample, defective rows → the probability that none of them was looked at; the
            last size is the smallest that is missed with at most 1 %.
        made_with: versions, for people.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.inspect import audit_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     found = audit_run(store.windows(2).shuffle())
    ...     found.ok, found.laws["coverage"].looked_at, Certificate.read(found.as_json()) == found
    (True, 8, True)
    """

    format: str
    subject: Subject
    scope: Scope
    laws: dict[str, LawVerdict]
    counts: dict[str, Any]
    digests: Digests
    not_looked_at: tuple[str, ...]
    missed: dict[str, float]
    made_with: MadeWith

    @property
    def ok(self) -> bool:
        """Whether no law that was looked at is broken."""
        return not any(law.broken for law in self.laws.values())

    @property
    def interval(self) -> str:
        """How many rows may be defective though none was found; empty if all were looked at."""
        if not self.missed or not self.ok:
            return ""
        rows = self.scope.last - self.scope.first
        most = max(map(int, self.missed))
        return f"with 99 % confidence, fewer than {most:,} of {rows:,} rows are defective"

    @property
    def claim(self) -> dict[str, Any]:
        """The part that follows from the run alone, as JSON: the same wherever it is made."""
        plain: dict[str, Any] = self.as_json()
        del plain["made_with"]
        return plain

    def as_json(self) -> dict[str, Any]:
        """The certificate as plain JSON."""
        plain: dict[str, Any] = unbind(self)
        return plain

    @staticmethod
    def read(value: Any) -> Certificate:
        """A certificate from JSON.

        Args:
            value: the JSON text, or what it means.

        Raises:
            ConfigError: it is no certificate; every problem is named.
        """
        plain = _parsed(value)
        found = plain.get("format") if isinstance(plain, Mapping) else None
        if found != FORMAT:
            raise ConfigError(
                f"certificate.format: found {found!r}, allowed: {FORMAT!r}. Make one with "
                "tokenloom audit RUN -o FILE."
            )
        try:
            made = bind(Certificate, plain, path="certificate")
        except BindError as error:
            raise ConfigError(str(error)) from None
        _check_counts(made)
        return made

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The certificate as lines of text."""
        scope = self.scope
        looked = f"{scope.rows:,} of rows {scope.first:,} to {scope.last:,}"
        if scope.sample is None:
            looked = f"rows {scope.first:,} to {scope.last:,}"
        verdict = "every law that was looked at holds" if self.ok else "BROKEN"
        yield f"run {self.subject.fingerprint[:12]}, {looked}: {verdict}"
        for name, law in self.laws.items():
            if law.verdict != "not looked at":
                told = f"{law.broken:,} broken" if law.broken else "holds"
                yield f"  {name:<13} {told:<12} {law.looked_at:>16,} {law.unit}"
                yield from (f"    {one}" for one in law.examples)
        yield from (f"  {one}" for one in self._counted())
        yield from (f"  not looked at: {one}" for one in self.not_looked_at)
        for size, chance in self.missed.items():
            rows = plural(int(size), "defective row")
            yield f"  {rows} would be missed with probability {chance:.3g}"
        if self.interval:
            yield f"  {self.interval}"

    def _counted(self) -> Iterator[str]:
        for name, counts in self.counts["sources"].items():
            yield (
                f"{name}: {counts['rows']:,} rows, {counts['tokens']:,} stored tokens, "
                f"{plural(counts['whole_epochs'], 'whole epoch')}"
            )
        errors = self.counts["mixture_error"]
        if errors:
            worst = max(errors, key=lambda name: errors[name])
            yield f"largest error of the mixture that was measured: {errors[worst]:g} ({worst})"


def _parsed(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"certificate: it is not JSON ({error}). Allowed: what audit wrote."
        ) from None


def _check_counts(made: Certificate) -> None:
    """Refuse counts that are not those of an audit: they are shown, and files come from others."""
    sources, errors = made.counts.get("sources"), made.counts.get("mixture_error")
    names = ("rows", "tokens", "whole_epochs")
    right = isinstance(sources, Mapping) and all(
        isinstance(one, Mapping) and all(type(one.get(name)) is int for name in names)
        for one in sources.values()
    )
    known = isinstance(errors, Mapping) and all(
        isinstance(one, int | float) for one in errors.values()
    )
    if not (right and known and all(size.isdigit() for size in made.missed)):
        raise ConfigError(
            "certificate.counts: found something else than the counts of an audit, allowed: rows, "
            "tokens and whole_epochs by source. Make one with tokenloom audit RUN -o FILE."
        )


def subject_of(run: Dataset) -> Subject:
    """The run that a certificate is about."""
    return Subject(
        fingerprint=run.fingerprint,
        render_fingerprint=run.render_fingerprint,
        rows=run.run.n,
        seq_len=run.seq_len,
        sources=tuple(run.run.names),
        order_version=ORDER_VERSION,
    )


def made_here() -> MadeWith:
    """The versions of this process."""
    return MadeWith(
        tokenloom=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        native=native.compiled is not None,
    )


def miss_chance(rows: int, looked_at: int, defective: int) -> float:
    """The probability that a sample shows none of the defective rows.

    N rows drawn without replacement from n, of which D are defective, hold none of the D with
    probability ``C(n - D, N) / C(n, N)``. It is one division of two integers, which Python rounds
    correctly, so the number is the same on every machine. Worked example: 100 of 1,000 rows are
    looked at, 10 are defective: (900 · 899 · … · 891) / (1,000 · 999 · … · 991) = 0.347.

    Args:
        rows: all rows, n.
        looked_at: rows of the sample, N.
        defective: defective rows among all, D.

    >>> miss_chance(1000, 100, 1), round(miss_chance(1000, 100, 10), 3), miss_chance(10, 6, 5)
    (0.9, 0.347, 0.0)
    """
    if looked_at + defective > rows:
        return 0.0
    few, many = sorted((looked_at, defective))
    return math.perm(rows - many, few) / math.perm(rows, few)


def chances(rows: int, looked_at: int) -> dict[str, float]:
    """Defective rows → the probability that none was looked at.

    Sizes are powers of ten, and the smallest that is missed with at most 1 %.

    >>> chances(1000, 100)["10"] == miss_chance(1000, 100, 10), list(chances(1000, 100))
    (True, ['1', '10', '43'])
    """
    high = 1
    while miss_chance(rows, looked_at, high) > RARELY:
        high *= 2
    found = bisect.bisect_left(
        range(high), -RARELY, lo=high // 2, key=lambda size: -miss_chance(rows, looked_at, size)
    )
    return {str(n): miss_chance(rows, looked_at, n) for n in (*SIZES, found) if n <= found}


class StretchDigests:
    """Makes the digests of stretches from the hashes of rows, in order of index.

    Args:
        rows: all rows that will come; they are cut into at most `MOST` stretches.

    Attributes:
        stretch: rows of a stretch.

    >>> made = StretchDigests(3)
    >>> made.add([b"0" * 16, b"1" * 16, b"2" * 16], np.arange(3))
    >>> [one[:8] for one in made.digests()]
    ['fcdb4b42', '807ae5f3', '8d7329c8']
    """

    def __init__(self, rows: int) -> None:
        self.stretch = max(1, -(-rows // MOST))
        self._made = [hashlib.sha256() for _ in range(-(-rows // self.stretch))]

    def add(self, hashes: Sequence[bytes], places: Int64) -> None:
        """Add the hashes of rows, each with its place among all rows."""
        for number, here in grouped(places // self.stretch):
            self._made[number].update(b"".join(hashes[here[0] : here[-1] + 1]))

    def digests(self) -> tuple[str, ...]:
        """The digest of every stretch: 64 hex digits."""
        return tuple(one.hexdigest() for one in self._made)
