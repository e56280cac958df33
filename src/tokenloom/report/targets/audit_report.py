"""A report on a certificate alone, without the run that it is of.

A certificate is what others compute again, so its report says what was looked at, what
was found, what was not looked at, and how to check it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.page.numbers import amount, counted, plural, share
from tokenloom.report.figures.law_verdicts import certificate_cautions, laws_figure
from tokenloom.report.report_file import Report
from tokenloom.report.told import Answer

__all__ = ["audit_report"]

FEW = 3  # things that are not looked at; more of them are counted, and named in the figure

ARRAYS = {
    "all": "every cell of them was judged",
    "sample": "the cells of a keyed sample of them were judged",
    "none": "no token was read",
}


def audit_report(found: Certificate, *, name: str = "audit", command: str = "") -> Report:
    """The report on a certificate."""
    about = found.subject
    rows = "endless" if about.rows is None else amount(about.rows, "row")
    return Report(
        title=name,
        about="certificate",
        lead=f"{rows} of {about.seq_len:,} tokens · fingerprint {about.fingerprint[:16]}",
        cautions=tuple(certificate_cautions(found, None)),
        answers=tuple(_answers(found)),
        tree="\n".join(_words(found)),
        figures=(laws_figure(found),),
        command=command,
    )


def _words(found: Certificate) -> Iterator[str]:
    """What it is of; verdicts are in the figure."""
    about = found.subject
    yield f"run {about.fingerprint}"
    yield f"├─ rendered as {about.render_fingerprint}"
    yield f"├─ orders of version {about.order_version}"
    names = ", ".join(about.sources[:8])
    more = f" and {len(about.sources) - 8:,} more" if len(about.sources) > 8 else ""
    yield f"└─ {plural(len(about.sources), 'source')}: {names}{more}"


def _answers(found: Certificate) -> Iterator[Answer]:
    scope, total = found.scope, found.subject.rows
    of = f" of {amount(total)} ({share(scope.rows, total)})" if total else ""
    if total == scope.rows:
        of = ", all of the run"
    sampled = "" if scope.sample is None else ", a keyed sample"
    yield Answer(
        name="looked",
        question="What was looked at?",
        sentence=f"{amount(scope.rows, 'row')}{of}{sampled}; {ARRAYS.get(scope.arrays, '')}.",
        numbers={"rows": scope.rows, "first": scope.first, "last": scope.last},
        figure="certificate",
        headline=counted(scope.rows, "row"),
    )
    known = {name: law for name, law in found.laws.items() if law.looked_at}
    broken = [name for name, law in known.items() if law.broken]
    words = f"No: {', '.join(broken)}." if broken else "Yes."
    violations = sum(law.broken for law in known.values())
    yield Answer(
        name="holds",
        question="Does every law hold?",
        sentence=f"{words} {len(known)} of {plural(len(found.laws), 'law')} looked at, "
        f"{amount(violations, 'violation')}.",
        numbers={"laws": len(known), "broken": violations},
        figure="certificate",
        headline=counted(violations, "violation"),
    )
    left = len(found.not_looked_at)
    named = f": {'; '.join(found.not_looked_at)}" if left <= FEW else ", named in the figure"
    yield Answer(
        name="left_out",
        question="What does it say nothing about?",
        sentence=f"{plural(left, 'thing')}{named}." if left else "Nothing.",
        numbers={"not_looked_at": left},
        figure="certificate",
        headline=counted(left, "thing"),
    )
    counts = found.counts.get("sources", {}).values()
    tokens = sum(one.get("tokens", 0) for one in counts)
    yield Answer(
        name="trained",
        question="What do these rows train?",
        sentence=f"{amount(tokens, 'stored token')} of {plural(len(counts), 'source')}.",
        numbers={"tokens": tokens, "sources": len(counts)},
        figure="certificate",
        headline=counted(tokens, "token"),
    )
