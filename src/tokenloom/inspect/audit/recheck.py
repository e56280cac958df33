"""`check_certificate`: computes a certificate again, all of it or a keyed hundredth.

A certificate has a digest for every stretch of rows, so whoever doubts it draws a few stretches
with a seed of their own and computes only those. A certificate that is wrong in a share of its
stretches is found out with the probability that the report gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.batch.views.digest import digest_of, plan_hashes, row_hashes
from tokenloom.bind import unbind
from tokenloom.errors import ConfigError, plural
from tokenloom.inspect.audit.certificate import (
    ARRAYS,
    Certificate,
    made_here,
    miss_chance,
    subject_of,
)
from tokenloom.inspect.audit.run_audit import certified, rendered, rows_at
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations

SHARE = 100  # one of this many stretches is computed again

SHOWN = 8  # differences

MOST_ROWS, MOST_SAMPLE = 1 << 62, 1 << 28


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """What `check_certificate` found; `print` it.

    Attributes:
        ok: whether everything that was computed again is the same.
        differences: what differs, as sentences.
        stretches: how many stretches were computed again.
        of: how many there are.
        missed: the probability that one stretch that differs was not among them.
        made_with: the versions that made the certificate, and those that checked it.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.inspect import audit_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(4).shuffle()
    ...     print(check_certificate(audit_run(run), run, full=True))
    the same: 4 of 4 digests computed again
    """

    ok: bool
    differences: tuple[str, ...]
    stretches: int
    of: int
    missed: float
    made_with: dict[str, list[Any]]

    def __str__(self) -> str:
        verdict = "the same" if self.ok else "NOT THE SAME"
        again = f"{self.stretches:,} of {plural(self.of, 'digest')}"
        lines = [f"{verdict}: {again} computed again"]
        lines += [f"  {one}" for one in self.differences]
        if self.ok and self.missed:
            lines.append(
                f"  one stretch that differs would be missed with probability {self.missed:.3g}"
            )
        lines += [f"  {name}: {a} then, {b} now" for name, (a, b) in self.made_with.items()]
        return "\n".join(lines)


def check_certificate(
    certificate: Certificate | str | bytes | dict[str, Any],
    run: Dataset,
    *,
    full: bool = False,
    seed: int = 0,
    progress: bool | None = None,
) -> CheckReport:
    """Whether a certificate is right about a run, computed again here.

    Args:
        certificate: as `audit_run` gave it, or as JSON.
        run: the run, opened here.
        full: audit all of it again and compare every field; else the digests of a keyed hundredth
            of the stretches.
        seed: which hundredth.
        progress: show a bar; default: if standard error is a terminal.

    Raises:
        ConfigError: it is no certificate.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.inspect import audit_run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     found = audit_run(store.windows(4).shuffle())
    ...     other = check_certificate(found, store.windows(4).shuffle().seed(1))
    ...     check_certificate(found, store.windows(4).shuffle(), full=True).ok, other.ok
    (True, False)
    """
    known = certificate if isinstance(certificate, Certificate) else Certificate.read(certificate)
    dataset_of("check_certificate", run)
    _check_scope(known)
    different = list(_different("subject", unbind(known.subject), unbind(subject_of(run))))
    of, chosen = len(known.digests.plan), 0
    if full and not different:
        again = certified(run, known.scope, progress=progress)
        different, chosen = list(_different("", known.claim, again.claim)), of
    elif not different:
        some = _chosen(known, seed)
        different, chosen = list(_differing_stretches(known, run, some)), len(some)
    return CheckReport(
        ok=not different,
        differences=tuple(different[:SHOWN]),
        stretches=chosen,
        of=of,
        missed=miss_chance(of, chosen, 1) if of else 0.0,
        made_with=_versions(known),
    )


def _check_scope(known: Certificate) -> None:
    """Refuse a certificate that no audit could have made: it would only cost time."""
    scope, digests = known.scope, known.digests
    end = MOST_ROWS if known.subject.rows is None else known.subject.rows
    sizes = 0 <= scope.first <= scope.last <= end
    sizes &= scope.sample is None or 1 <= scope.sample <= min(scope.last - scope.first, MOST_SAMPLE)
    if not sizes or scope.arrays not in ARRAYS:
        raise ConfigError(
            f"certificate.scope: found {unbind(scope)}, allowed: rows of a run of {end:,}. It was "
            "not made by an audit; make another one."
        )
    count = -(-scope.rows // digests.stretch) if digests.stretch > 0 else -1
    if len(digests.plan) != count or len(digests.arrays) not in (0, count):
        raise ConfigError(
            f"certificate.digests: found {len(digests.plan)} and {len(digests.arrays)} for "
            f"{scope.rows:,} rows in stretches of {digests.stretch}. Make another certificate."
        )


def _versions(known: Certificate) -> dict[str, list[Any]]:
    """What made the certificate and what checks it, where they differ."""
    then, now = unbind(known.made_with), unbind(made_here())
    return {name: [then[name], now[name]] for name in then if then[name] != now[name]}


def _different(path: str, one: Any, other: Any) -> Iterator[str]:
    """What differs between two pieces of JSON, as sentences."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in {**one, **other}:
            here = f"{path}.{name}" if path else name
            yield from _different(here, one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _different(f"{path}[{place}]", a, b)
    elif one != other:
        yield f"{path}: the certificate says {one!s:.80}, computed here: {other!s:.80}"


def _chosen(known: Certificate, seed: int) -> list[int]:
    """A keyed hundredth of the stretches, at least one."""
    of = len(known.digests.plan)
    if not of:
        return []
    path = key(seed, "audit", "check", known.subject.fingerprint)
    drawn = permutations(of, [path]).forward(np.arange(-(-of // SHARE), dtype=np.uint64))
    return sorted(drawn.tolist())


def _differing_stretches(known: Certificate, run: Dataset, chosen: list[int]) -> Iterator[str]:
    """What differs in the digests of some stretches."""
    for number in chosen:
        low = number * known.digests.stretch
        indices = known.scope.at(low, min(low + known.digests.stretch, known.scope.rows))
        where = f"stretch {number}, rows {indices[0]:,} to {indices[-1]:,}"
        shown = rows_at(run.run, indices)
        plan = digest_of(plan_hashes(shown.spans, shown.epoch, shown.source))
        yield from _different(f"{where}, plan", known.digests.plan[number], plan)
        if known.digests.arrays:
            some = indices[known.scope.rendered(indices, run.seq_len)]
            hashes = (one for _, batch in rendered(run, some) for one in row_hashes(batch))
            yield from _different(
                f"{where}, arrays", known.digests.arrays[number], digest_of(hashes)
            )
