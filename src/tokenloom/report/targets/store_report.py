"""A report on a store: what is in it, what guards it, and what rows can be made of it.

One idea: a store has no order and no steps, so the five answers of a run do not apply. Its own are:
what is in it, how long documents are, which are equal, what is guarded, and what it makes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.api.store import Store
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers, numbers_html
from tokenloom.page.markup import EMPTY
from tokenloom.page.numbers import amount, binary_size, counted, plural, share
from tokenloom.report.figures.lengths import lengths_drawn
from tokenloom.report.report_file import Report
from tokenloom.report.targets.stored_facts import FRAME, StoreFacts
from tokenloom.report.told import Answer, Caution

__all__ = ["store_figures", "store_report"]

EQUAL = 0.01  # share of documents that are copies, from which on it is a warning


def store_report(store: Store, *, name: str = "", command: str = "") -> Report:
    """The report on a store."""
    facts = StoreFacts(store)
    counts = f"{amount(store.num_documents, 'document')}, {amount(store.num_tokens, 'token')}"
    return Report(
        title=name or store.path.name or str(store.path),
        about="store",
        lead=f"{counts} · {binary_size(facts.bytes)} · digest {store.digest[:16]}",
        cautions=tuple(_cautions(facts)),
        answers=tuple(_answers(facts)),
        tree="\n".join(_words(facts)),
        figures=tuple(store_figures(facts)),
        command=command,
    )


def _words(facts: StoreFacts) -> Iterator[str]:
    store, manifest = facts.store, facts.store.reader.manifest
    yield repr(store)
    kind = f"files of format {facts.foreign}" if facts.foreign else f"snapshot {store.snapshot}"
    shards, parts = plural(len(manifest.shards), "shard"), plural(len(manifest.parts), "part")
    yield f"├─ {kind}, {shards}, {parts}"
    tokenizer = manifest.tokenizer
    if tokenizer is None:
        yield f"├─ no tokenizer: ready-made ids below {store.vocab_size:,}"
    else:
        ids = f"{tokenizer.vocab_size:,} ids"
        yield f"├─ tokenizer {tokenizer.name} ({tokenizer.kind}), {ids}"
    for column, dtype in store.columns.items():
        yield f"├─ column {column} ({dtype})"
    if facts.metadata_keys:
        yield f"├─ kept about a document: {', '.join(facts.metadata_keys)}"
    *rest, last = facts.guards
    yield from (f"├─ {line}" for line in rest)
    yield f"└─ {last}"


def _answers(facts: StoreFacts) -> Iterator[Answer]:
    store, counts = facts.store, facts.lengths
    columns = len(store.columns)
    further = plural(columns, "further column") if columns else "no further column"
    yield Answer(
        name="contents",
        question="What is in it?",
        sentence=f"{amount(store.num_tokens, 'token')} in {amount(store.num_documents, 'document')}"
        f", ids below {store.vocab_size:,}, {further}, "
        f"{binary_size(facts.bytes)}.",
        numbers={
            "tokens": store.num_tokens,
            "documents": store.num_documents,
            "vocab_size": store.vocab_size,
            "columns": columns,
            "bytes": facts.bytes,
        },
        figure="contents",
        headline=counted(store.num_tokens, "token"),
    )
    if store.num_tokens:
        median, longest = counts.percentile(50), int(counts.length[-1])
        about = " in a sample" if facts.is_sampled else ""
        yield Answer(
            name="lengths",
            question="How long are documents?",
            sentence=f"The median has {amount(median, 'token')}, the mean "
            f"{amount(round(counts.mean), 'token')}, the longest "
            f"{amount(longest, 'token')}{about}.",
            numbers={"median": median, "mean": counts.mean, "longest": longest},
            figure="lengths",
            headline=(amount(median), "tokens in the median document"),
        )
    yield _equal_answer(facts)
    yield Answer(
        name="guarded",
        question="What guards it?",
        sentence=_capital(" ".join(f"{line}." for line in facts.guards)),
        numbers={"sealed": float(facts.is_sealed)},
        figure="contents",
        headline=("Sealed", "and checked when read")
        if facts.is_sealed
        else ("No seal", "nothing guards it"),
    )
    yield _rows_answer(facts)


def _equal_answer(facts: StoreFacts) -> Answer:
    groups = facts.duplicates
    question, total = "Are there duplicates?", facts.store.num_documents
    if isinstance(groups, str):
        return Answer(
            name="duplicates", question=question, sentence=groups, numbers={}, figure="duplicates"
        )
    copies = sum(groups) - len(groups)
    told = "No two documents have the same tokens."
    if groups:
        verb, others = ("repeats", "another") if copies == 1 else ("repeat", "others")
        told = f"{amount(copies, 'document')} ({share(copies, total)}) {verb} {others}."
    numbers = {"groups": len(groups), "copies": copies}
    return Answer(
        name="duplicates",
        question=question,
        sentence=told,
        numbers=numbers,
        figure="duplicates",
        headline=(amount(copies), "document is a copy" if copies == 1 else "documents are copies"),
    )


def _rows_answer(facts: StoreFacts) -> Answer:
    question, name = "What can be made of it?", "rows"
    choices = facts.packings.get(FRAME, ())
    if not choices:
        told = "Nothing yet: it holds no token."
        return Answer(name=name, question=question, sentence=told, numbers={"windows": 0})
    best = choices[-1]
    fill, one = best.fill, choices[0].fill
    about = "" if facts.packs_all else " (packing: from a sample)"
    return Answer(
        name=name,
        question=question,
        sentence=f"{amount(facts.windows, 'row')} of {FRAME:,} tokens as windows; packed, rows are "
        f"{share(fill)} full, and with one document each {share(one)}{about}.",
        numbers={"windows": facts.windows, "fill": fill, "one_doc_fill": one, "rows": best.rows},
        figure="packing",
        headline=(share(fill), "of the cells filled by packing"),
    )


def _cautions(facts: StoreFacts) -> Iterator[Caution]:
    store, groups = facts.store, facts.duplicates
    if not store.num_tokens:
        yield Caution(
            words=f"The store holds {plural(store.num_documents, 'document')} and no token.",
            remedy="Look at what the build skipped: tokenloom info STORE.",
            figure="contents",
        )
        return
    if not facts.is_sealed:
        yield Caution(
            words="The files have no checksums: a changed byte is found only if it is no id.",
            remedy="Seal them: tokenloom seal STORE.",
            figure="contents",
        )
    copies = 0 if isinstance(groups, str) else sum(groups) - len(groups)
    if copies > EQUAL * store.num_documents:
        yield Caution(
            words=f"{share(copies, store.num_documents)} of the documents are copies of others.",
            remedy="Leave them out: keep the first document of each group of store.duplicates().",
            figure="duplicates",
        )
    empty = int(facts.lengths.documents[facts.lengths.length == 0].sum())
    if empty:
        yield Caution(
            words=f"{amount(empty, 'document')} hold no token.",
            remedy="They take no row; filter them in the build to be rid of them.",
            figure="lengths",
        )
    lost = sum(part.skipped for part in store.reader.manifest.parts)
    if lost:
        yield Caution(
            words=f"The build skipped {amount(lost, 'record')} that it could not read.",
            remedy="Look at its log, and build again with on_error='raise' to see the first.",
            figure="contents",
        )


def store_figures(facts: StoreFacts) -> Iterator[Figure]:
    """What is in it, lengths, duplicates, packing."""
    yield _contents(facts)
    if facts.store.num_tokens:
        yield _lengths(facts)
    yield _duplicates(facts)
    if facts.packings:
        yield _packing(facts)


def _contents(facts: StoreFacts) -> Figure:
    store, manifest = facts.store, facts.store.reader.manifest
    tokenizer = manifest.tokenizer
    rows: list[tuple[str, object]] = [
        ("format", facts.foreign or f"tokenloom, version {manifest.version}"),
        ("snapshot", str(store.snapshot)),
        ("ids", f"{store.dtype.name}, below {store.vocab_size:,}"),
        ("columns", ", ".join(f"{a} ({b})" for a, b in store.columns.items()) or "none"),
        ("tokenizer", f"{tokenizer.name} ({tokenizer.kind})" if tokenizer else "not known"),
        ("kept about a document", ", ".join(facts.metadata_keys) or "nothing"),
        ("io block", f"{store.chunk_tokens:,} tokens"),
        ("digest", store.digest),
        *(("guard", line) for line in facts.guards),
    ]
    head = ("part", "documents", "tokens", "shards", "records skipped", "records filtered")
    parts = [
        (number, one.documents, one.tokens, one.shards, one.skipped, one.filtered)
        for number, one in enumerate(manifest.parts)
    ]
    return Figure(
        name="contents",
        title="What is in it",
        message=f"{plural(len(manifest.parts), 'part')} in "
        f"{plural(len(manifest.shards), 'shard')}, {binary_size(facts.bytes)}.",
        drawing=numbers_html(Numbers.of(("property", "value"), rows), wraps=True),
        numbers=(Numbers.of(head, parts, "what each build or append added"),),
    )


def _lengths(facts: StoreFacts) -> Figure:
    counts = facts.lengths
    bins = counts.doublings()
    total = sum(one.documents for one in bins) or 1
    head = ("tokens of a document", "documents", "share of documents", "share of tokens")
    rows = [(one.name, one.documents, one.documents / total, one.share) for one in bins]
    long = int(counts.documents[counts.length > FRAME].sum())
    note = f"From a keyed sample of {total:,} documents." if facts.is_sampled else ""
    return Figure(
        name="lengths",
        title="How long documents are",
        message=f"The median document has {amount(counts.percentile(50), 'token')}; "
        f"{share(long, total)} of the documents are longer than {FRAME:,} tokens.",
        drawing=lengths_drawn(bins),
        numbers=(Numbers.of(head, rows, "documents by length"),),
        notes=(note,) if note else (),
    )


def _duplicates(facts: StoreFacts) -> Figure:
    title = "Which documents are equal"
    groups = facts.duplicates
    if isinstance(groups, str):
        return Figure(name="duplicates", title=title, message="Not known.", reason=groups)
    sizes: dict[str, int] = {}
    for size in sorted(groups):
        low = 1 << (size.bit_length() - 1)
        name = str(size) if size < 4 else f"{low:,} to {2 * low - 1:,}"
        sizes[name] = sizes.get(name, 0) + 1
    rows = [Bar(f"{name} equal", count, amount(count, "group")) for name, count in sizes.items()]
    copies = sum(groups) - len(groups)
    said = "groups of equal documents by their size"
    return Figure(
        name="duplicates",
        title=title,
        message=f"{amount(copies, 'document')} of {facts.store.num_documents:,} "
        f"{'has' if copies == 1 else 'have'} the tokens of an earlier one, in "
        f"{amount(len(groups), 'group')}."
        if groups
        else "No two documents have the same tokens.",
        drawing=both(lambda width: bars(rows, width, said)) if rows else EMPTY,
        numbers=(Numbers.of(("documents of a group", "groups"), sizes.items(), said),),
    )


def _packing(facts: StoreFacts) -> Figure:
    every = [one for choices in facts.packings.values() for one in choices]
    rows = [Bar(one.spec.strategy, one.fill, share(one.fill)) for one in facts.packings[FRAME]]
    head = ("tokens of a row", "strategy", "rows", "fill", "tokens lost", "documents cut")
    numbers = [
        (
            one.spec.seq_len,
            one.spec.strategy,
            one.rows,
            one.fill,
            one.tokens_lost,
            one.documents_cut,
        )
        for one in every
    ]
    packed = len(facts.some_lengths)
    note = f"From a keyed sample of {packed:,} documents in stretches; rows are of that sample."
    said = f"share of cells that hold a token, rows of {FRAME:,}"
    best = facts.packings[FRAME][-1]
    cut = plural(best.documents_cut, "document") if best.documents_cut else "no document"
    windows = plural(facts.windows, "row") if facts.windows else "no row"
    return Figure(
        name="packing",
        title="What rows can be made of it",
        message=f"Rows of {FRAME:,} tokens are {share(best.fill)} full with {best.spec.strategy}, "
        f"which cuts {cut}; windows make {windows}.",
        drawing=both(lambda width: bars(rows, width, said, top=1.0)),
        numbers=(Numbers.of(head, numbers, "what packing costs"),),
        notes=() if facts.packs_all else (note,),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
