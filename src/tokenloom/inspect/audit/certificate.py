"""A certificate: what was audited, with which result, in a form that others can compute again.

One idea: a certificate has a part that follows from the run alone (what was looked at, verdicts,
counts, digests of stretches) and a part that tells who made it (versions). The first part has no
time, path or name of a machine in it, so two people who audit the same run get the same bytes, and
a difference is followed through the digests to the stretch that differs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom import native
from tokenloom.api.dataset import Dataset
from tokenloom.bind import BindError, bind, unbind
from tokenloom.errors import ConfigError, plural
from tokenloom.inspect.audit.scope import Scope
from tokenloom.inspect.audit.verdicts import LawVerdict
from tokenloom.version import ORDER_VERSION, __version__

__all__ = [
    "Certificate",
    "Digests",
    "MadeWith",
    "StretchDigests",
    "Subject",
    "made_here",
    "subject_of",
]

FORMAT = "tokenloom-audit/1"

MOST = 128  # stretches with a digest of their own


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

    def _counted(self) -> Iterator[str]:
        for name, counts in self.counts["sources"].items():
            yield (
                f"{name}: {counts['rows']:,} rows, {counts['tokens']:,} stored tokens, "
                f"{plural(counts['whole_epochs'], 'whole epoch')}"
            )
        errors = self.counts["mixture_error"]
        if errors:
            worst = max(errors, key=lambda name: errors[name])
            yield f"largest error of the mixture at any prefix: {errors[worst]:g} ({worst})"


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


class StretchDigests:
    """Makes the digests of stretches from the hashes of rows, in order of index.

    Args:
        rows: all rows that will come.
        stretch: rows of a stretch; default: so that there are at most `MOST`.
        block: the default is rounded up to a multiple of this.

    >>> made = StretchDigests(3, 2)
    >>> made.add([b"0" * 16, b"1" * 16, b"2" * 16], [0, 1, 2])
    >>> [one[:8] for one in made.digests()]
    ['dc3b9742', '8d7329c8']
    """

    def __init__(self, rows: int, stretch: int | None = None, block: int = 1) -> None:
        usual = -(-max(1, -(-rows // MOST)) // block) * block
        self.stretch = usual if stretch is None else stretch
        count = -(-rows // self.stretch)
        self._made = [hashlib.sha256() for _ in range(count)]

    def add(self, hashes: Sequence[bytes], places: Sequence[int]) -> None:
        """Add the hashes of rows, each with its place among all rows."""
        number = np.asarray(places, np.int64) // self.stretch
        edges = np.flatnonzero(np.diff(number, prepend=-1, append=-1)).tolist()
        for low, high in itertools.pairwise(edges):
            self._made[number[low]].update(b"".join(hashes[low:high]))

    def digests(self) -> tuple[str, ...]:
        """The digest of every stretch: 64 hex digits."""
        return tuple(one.hexdigest() for one in self._made)
