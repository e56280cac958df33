"""The certificate of an audit, in the report on a run and alone.

A law that nobody looked at is never shown as kept. Every law has its own line with a word for its
verdict, so nothing hangs on a colour; the digests of stretches are in the numbers, for whoever
computes a stretch again.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect.audit.certificate import Certificate, Scope
from tokenloom.inspect.audit.laws import MEANINGS, LawVerdict
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import amount, bound, counted, digits, plural, share
from tokenloom.report.report_file import Answer, Caution, Report
from tokenloom.report.subject import RunSubject

TITLE = "What an audit found"

SIGNS = {"holds": "✓", "broken": "✗", "not looked at": "–"}

SIZE = 12  # digits of a digest that are shown

FEW = 3  # things that are not looked at; more of them are counted, and named in the figure

ARRAYS = {
    "all": "every cell of them was judged",
    "sample": "the cells of a keyed sample of them were judged",
    "none": "no token was read",
}


def certificate_figure(subject: RunSubject) -> Figure | None:
    """The certificate that a report on a run was given."""
    found = subject.asked.certificate
    if found is None:
        return None
    if found.subject.fingerprint == subject.run.fingerprint:
        return laws_figure(found)
    return Figure(
        name="certificate",
        title=TITLE,
        message="The certificate is of another run, so it says nothing about this one.",
        reason=f"It is of run {found.subject.fingerprint[:16]}, this is run "
        f"{subject.run.fingerprint[:16]}. Audit this run: tokenloom audit RUN -o FILE.",
    )


def certificate_cautions(found: Certificate, run: tuple[str, str] | None) -> Iterator[Caution]:
    """What a reader must know before a certificate is believed.

    Args:
        found: the certificate.
        run: fingerprints of the run that it should be of (what is trained, how it is rendered);
            None if there is no run to compare with.
    """
    audited = found.subject
    if run is not None and audited.fingerprint != run[0]:
        yield Caution(
            words=f"The certificate is of run {audited.fingerprint[:16]}, not of this one.",
            remedy="Audit this run again: tokenloom audit RUN -o FILE.",
            figure="certificate",
            gravity=3,
        )
        return
    if run is not None and audited.render_fingerprint != run[1]:
        yield Caution(
            words="The certificate is of the same examples with other labels, masks or positions.",
            remedy="Audit this run again: tokenloom audit RUN -o FILE.",
            figure="certificate",
            gravity=3,
        )
    for name, law in found.laws.items():
        if law.broken:
            example = f" First: {law.examples[0]}" if law.examples else ""
            yield Caution(
                words=f"The law {name!r} is broken {amount(law.broken, 'time')} in "
                f"{amount(law.looked_at)} {law.unit}.{example}",
                remedy="Do not train on it before it is explained.",
                figure="certificate",
                gravity=3,
            )


def laws_figure(found: Certificate) -> Figure:
    """Every law with its verdict."""
    return Figure(
        name="certificate",
        title=TITLE,
        message=_message(found),
        drawing=_laws(found),
        numbers=tuple(_numbers(found)),
        notes=tuple(_notes(found)),
    )


def _message(found: Certificate) -> str:
    looked = [one for one in found.laws.values() if one.verdict != "not looked at"]
    broken = [name for name, one in found.laws.items() if one.broken]
    scope = found.scope
    rows = _rows(scope)
    if scope.sample is not None:
        rows = f"a sample of {amount(scope.rows, 'row')} of {rows}"
    if broken:
        return f"{plural(len(broken), 'law')} broken in {rows}: {', '.join(broken)}."
    if len(looked) == 1:
        return f"The one law that was looked at holds, in {rows}."
    return f"All {plural(len(looked), 'law')} that were looked at hold, in {rows}."


def _rows(scope: Scope) -> str:
    """The rows that were looked at; `last` is the first that was not."""
    if scope.last - scope.first <= 1:
        return f"row {scope.first:,}" if scope.last > scope.first else "no row"
    return f"rows {scope.first:,} to {scope.last - 1:,}"


def _laws(found: Certificate) -> Markup:
    head = tag("tr", *(tag("th", word, scope="col") for word in ("law", "verdict")))
    rows = (_law(name, law) for name, law in found.laws.items())
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="laws")
    said = "verdict on every law"
    return tag("div", table, class_="scroll tall", tabindex=0, role="region", aria_label=said)


def _law(name: str, law: LawVerdict) -> Markup:
    word = law.verdict.replace(" ", "-")
    examples = tag("ul", *(tag("li", one) for one in law.examples)) if law.examples else None
    sign = tag("span", f"{SIGNS.get(law.verdict, '?')} {law.verdict}", class_=f"verdict {word}")
    broken = f" {law.broken:,} times" if law.broken else ""
    seen = f"{law.looked_at:,} {law.unit}" if law.looked_at else ""
    told = tag("div", MEANINGS.get(name, ""), class_="soft")
    words = tag("td", tag("b", name), told, examples)
    return tag("tr", words, tag("td", sign, broken, tag("div", seen, class_="soft")))


def _numbers(found: Certificate) -> Iterator[Numbers]:
    head = ("law", "verdict", "looked at", "of", "broken")
    rows = [
        (name, law.verdict, law.looked_at, law.unit, law.broken) for name, law in found.laws.items()
    ]
    yield Numbers.of(head, rows, "laws")
    sources = found.counts.get("sources", {})
    counted = [
        (name, one.get("rows"), one.get("tokens"), one.get("whole_epochs"))
        for name, one in sources.items()
    ]
    yield Numbers.of(("source", "rows", "stored tokens", "whole epochs"), counted, "by source")
    digests, first = found.digests, found.scope.first
    stretches = []
    for number, plan in enumerate(digests.plan):
        arrays = digests.arrays[number] if number < len(digests.arrays) else ""
        at = first + number * digests.stretch if found.scope.sample is None else None
        stretches.append((number, at, plan[:SIZE], arrays[:SIZE]))
    columns = ("stretch", "first row", "digest of the plan", "digest of the arrays")
    yield Numbers.of(columns, stretches, f"digests of stretches of {digests.stretch:,} rows")


def _notes(found: Certificate) -> Iterator[str]:
    yield from (f"Not looked at: {one}." for one in found.not_looked_at)
    for size, chance in found.missed.items():
        rows = plural(int(size), "defective row")
        yield f"A sample: {rows} would be missed with probability {digits(chance)}."
    if found.interval:
        yield f"{found.interval[0].upper()}{found.interval[1:]}."
    errors = found.counts.get("mixture_error", {})
    if errors:
        worst = max(errors, key=lambda name: errors[name])
        yield (
            f"Where it was measured, the mixture is never further from its weights than "
            f"{bound(errors[worst])}, in units of its cost ({worst})."
        )
    made = found.made_with
    loops = "compiled loops" if made.native else "NumPy alone"
    yield (
        f"Made by tokenloom {made.tokenloom}, Python {made.python}, NumPy {made.numpy}, with "
        f"{loops}."
    )


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
