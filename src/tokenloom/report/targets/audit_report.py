"""A report on a certificate alone, without the run that it is of.

One idea: a certificate is what others compute again, so its report says what was looked at, what
was found, what was not looked at, and how to check it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.figures.law_verdicts import certificate_cautions, laws_figure
from tokenloom.report.report_file import Report
from tokenloom.report.told import Answer

__all__ = ["audit_report"]


def audit_report(found: Certificate, *, name: str = "audit", command: str = "") -> Report:
    """The report on a certificate."""
    about = found.subject
    rows = "endless" if about.rows is None else amount(about.rows, "row")
    check = "tokenloom audit RUN --check CERTIFICATE"
    return Report(
        title=name,
        about="certificate",
        lead=f"{rows} of {about.seq_len:,} tokens · fingerprint {about.fingerprint[:16]}",
        cautions=tuple(certificate_cautions(found, None)),
        answers=tuple(_answers(found)),
        tree=str(found),
        figures=(laws_figure(found, check),),
        command=command,
    )


def _answers(found: Certificate) -> Iterator[Answer]:
    scope, total = found.scope, found.subject.rows
    of = f" of {amount(total, 'row')} ({share(scope.rows, total)})" if total else ""
    sampled = "" if scope.sample is None else ", a keyed sample"
    yield Answer(
        name="looked",
        question="What was looked at?",
        sentence=f"{amount(scope.rows, 'row')}{of}{sampled}; arrays of "
        f"{'a sample of them' if scope.arrays == 'sample' else scope.arrays}.",
        numbers={"rows": scope.rows, "first": scope.first, "last": scope.last},
        figure="certificate",
    )
    known = {name: law for name, law in found.laws.items() if law.looked_at}
    broken = [name for name, law in known.items() if law.broken]
    words = f"No: {', '.join(broken)}." if broken else "Yes."
    yield Answer(
        name="holds",
        question="Does every law hold?",
        sentence=f"{words} {plural(len(known), 'law')} looked at, "
        f"{amount(sum(law.broken for law in known.values()), 'violation')}.",
        numbers={
            "laws": len(known),
            "broken": sum(law.broken for law in known.values()),
        },
        figure="certificate",
    )
    left = len(found.not_looked_at)
    yield Answer(
        name="left_out",
        question="What does it say nothing about?",
        sentence=f"{plural(left, 'thing')}, listed below the figure." if left else "Nothing.",
        numbers={"not_looked_at": left},
        figure="certificate",
    )
    counts = found.counts.get("sources", {}).values()
    tokens = sum(one.get("tokens", 0) for one in counts)
    yield Answer(
        name="trained",
        question="What do these rows train?",
        sentence=f"{amount(tokens, 'stored token')} of {plural(len(counts), 'source')}.",
        numbers={"tokens": tokens, "sources": len(counts)},
        figure="certificate",
    )
