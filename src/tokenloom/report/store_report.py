"""A report on a store: what is in it, what guards it, and what rows can be made of it.

A store has no order and no steps, so the five answers of a run do not apply. Its own are: what is
in it, how long documents are, which are equal, what is guarded, and what it makes. Lengths,
duplicates and packing are exact where that takes less than a second; else they come from keyed
stretches of documents, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.api.store import Store
from tokenloom.documents.line import WholeLine
from tokenloom.errors import TokenloomError
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.seals import foreign_bytes, guard_lines
from tokenloom.layout.windows import WindowsSpec
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers, numbers_html
from tokenloom.page.markup import EMPTY
from tokenloom.page.numbers import amount, binary_size, counted, plural, share
from tokenloom.report.figures.lengths import lengths_of
from tokenloom.report.report_file import Answer, Caution, Report
from tokenloom.report.some_lengths import SomeLengths, some_lengths
from tokenloom.report.subject import capital
from tokenloom.report.ways_to_pack import PackingWay, PackingWays, ways_of
from tokenloom.store.handles import lazy

FRAME = 2048  # tokens of the rows that a store is judged by

EXACT_PACKING = 1 << 18  # documents and rows that are planned to see what packing makes

EXACT_HASHES = 1 << 22  # documents whose hashes are compared

EQUAL = 0.01  # share of documents that are copies, from which on it is a warning


class StoreFacts:
    """A store, and what is known about it.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def foreign(self) -> str | None:
        """The format of files that are not ours."""
        reader = self.store.reader
        return reader.inside.described.kind if isinstance(reader, ForeignReader) else None

    @property
    def is_sealed(self) -> bool:
        """Whether every chunk has a checksum."""
        reader = self.store.reader
        return not isinstance(reader, ForeignReader) or reader.inside.is_sealed

    @property
    def guards(self) -> list[str]:
        """What guards its bytes, a sentence each."""
        reader = self.store.reader
        if isinstance(reader, ForeignReader):
            return guard_lines(reader)
        return ["sealed: every chunk is compared with its crc32c when it is first read"]

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        reader, manifest = self.store.reader, self.store.reader.manifest
        if isinstance(reader, ForeignReader):
            return foreign_bytes(reader)
        shards = sum(sum(shard.files.values()) for shard in manifest.shards)
        return shards + sum(file.bytes for file in manifest.files.values())

    @lazy
    def metadata_keys(self) -> list[str]:
        """What is kept about a document, beside its tokens: names only."""
        return sorted(self.store.reader.metadata(0)) if self.store.num_documents else []

    @lazy
    def lengths(self) -> SomeLengths:
        """Lengths of its documents."""
        return some_lengths(WholeLine(self.store.reader))

    @lazy
    def duplicates(self) -> list[int] | str:
        """Documents in each group of equal ones; or why that is not known."""
        documents = self.store.num_documents
        if documents > EXACT_HASHES:
            return (
                f"The hashes of {documents:,} documents take longer to compare than a report may. "
                "store.duplicates() lists equal documents."
            )
        try:
            return [len(group) for group in self.store.duplicates()]
        except TokenloomError as error:
            return str(error)

    @lazy
    def packings(self) -> PackingWays:
        """What each way of cutting rows of FRAME tokens makes of its documents."""
        return ways_of(WholeLine(self.store.reader), WindowsSpec(seq_len=FRAME), EXACT_PACKING)

    def packing(self, strategy: str) -> PackingWay:
        """One of these ways."""
        return next(one for one in self.packings.ways if one.strategy == strategy)

    @property
    def windows(self) -> int:
        """Rows of FRAME tokens that are cut without regard to documents."""
        return self.store.num_tokens // FRAME


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
        figures=tuple(_figures(facts)),
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
    store = facts.store
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
        counts = facts.lengths.counts
        median, longest = counts.percentile(50), int(counts.length[-1])
        about = " in a sample" if facts.lengths.is_sample else ""
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
        sentence=capital(" ".join(f"{line}." for line in facts.guards)),
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
    if not facts.store.num_tokens:
        told = "Nothing yet: it holds no token."
        return Answer(name=name, question=question, sentence=told, numbers={"windows": 0})
    best, one = facts.packing("best_fit_decreasing").tally, facts.packing("one_doc").tally
    about = " (packing: from a sample)" if facts.packings.is_sample else ""
    return Answer(
        name=name,
        question=question,
        sentence=f"{amount(facts.windows, 'row')} of {FRAME:,} tokens as windows; packed, rows are "
        f"{share(best.fill)} full, and with one document each {share(one.fill)}{about}.",
        numbers={
            "windows": facts.windows,
            "fill": best.fill,
            "one_doc_fill": one.fill,
            "rows": best.rows,
        },
        figure="packing",
        headline=(share(best.fill), "of the cells filled by packing"),
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
    counts = facts.lengths.counts
    empty = int(counts.documents[counts.length == 0].sum())
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


def _figures(facts: StoreFacts) -> Iterator[Figure]:
    """What is in it, lengths, duplicates, packing."""
    yield _contents(facts)
    if facts.store.num_tokens:
        yield lengths_of(facts.lengths.counts, FRAME, [facts.lengths])
    yield _duplicates(facts)
    if facts.store.num_tokens:
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
    ways = facts.packings
    packed = [one for one in ways.ways if not one.own]
    rows = [Bar(one.strategy, one.tally.fill, share(one.tally.fill)) for one in packed]
    head = ("strategy", "rows", "share of cells filled", "share of tokens lost", "documents cut")
    numbers = [
        (one.strategy, one.tally.rows, one.tally.fill, one.lost, one.tally.cut) for one in packed
    ]
    note = f"From a keyed sample of {amount(ways.looked, 'document')}; rows are of that sample."
    said = f"share of cells that hold a token, rows of {FRAME:,}"
    best = facts.packing("best_fit_decreasing")
    cut = plural(best.tally.cut, "document") if best.tally.cut else "no document"
    windows = plural(facts.windows, "row") if facts.windows else "no row"
    return Figure(
        name="packing",
        title="What rows can be made of it",
        message=f"Rows of {FRAME:,} tokens are {share(best.tally.fill)} full with "
        f"{best.strategy}, which cuts {cut}; windows make {windows}.",
        drawing=both(lambda width: bars(rows, width, said, top=1.0)),
        numbers=(Numbers.of(head, numbers, "what packing costs"),),
        notes=(note,) if ways.is_sample else (),
    )
