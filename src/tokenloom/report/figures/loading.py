"""What feeding the run takes: bytes of each rank, its cache, and how long training waits.

Reads and cache follow from the run and the ranks alone. Waiting needs the speed of the source and
of a step; where nobody gave them, a table has three typical sources, with the numbers that it
assumes. The first step waits for its first request, whatever is fetched ahead later, so the first
wait and the later ones are always told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenloom.inspect.simulate.result import RankTotals, Simulation, Stalls
from tokenloom.inspect.simulate.stalls import group_seconds
from tokenloom.order.shuffle import BlockShuffle
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, binary_size, plural, seconds, share
from tokenloom.report.report_file import Answer, Caution
from tokenloom.report.subject import RunSubject, capital

PERCENT = re.compile(r"(\d)%")  # as commands write it; a page has a space before the sign

RANKS = 8  # that are drawn

HOW = {"fits": "fits the cache", "thrashes": "fetches again", "reads rows": "row by row"}

LOWER = "lower window_blocks"  # advice for orders that have windows

IN_WORDS = {
    "fits": "and what is needed at once fits the cache",
    "thrashes": "and blocks are fetched again, because the cache is too small",
    "reads rows": "row by row",
}

STALLS = 0.05  # of the time; more is worth a warning


class TypicalSource(NamedTuple):
    """A source of data, as the table assumes it.

    Attributes:
        name: what it is.
        latency: seconds from a request to its first byte.
        bandwidth: bytes per second of a rank.
        parallel: requests that are answered at the same time.
    """

    name: str
    latency: float
    bandwidth: float
    parallel: int

    def seconds(self, reads: int, size: int) -> float:
        """Seconds for some requests of so many bytes together."""
        return group_seconds(reads, size, (self.latency, self.bandwidth, self.parallel))


TYPICAL = (
    TypicalSource("local SSD", 0.0001, 2e9, 4),
    TypicalSource("network disk", 0.002, 5e8, 8),
    TypicalSource("bucket", 0.03, 2e8, 16),
)


def fed_by(found: Simulation, source: TypicalSource) -> float:
    """Seconds that a source is busy for one step, on the rank that reads most, on average.

    Most steps read nothing where blocks hold the rows of many steps; a loader fetches these blocks
    ahead, so that is what has to fit into the time of a step.
    """
    worst = max(found.ranks, key=lambda one: one.bytes)
    return source.seconds(worst.reads, worst.bytes) / max(1, found.steps)


def first_from(first: Sequence[RankTotals], source: TypicalSource) -> float:
    """Seconds until a source has answered everything that the first step reads, on any rank."""
    return max((source.seconds(one.reads, one.bytes) for one in first), default=0.0)


def waits_in_words(stalls: Stalls) -> str:
    """How long training waits: for its first step, and after it."""
    later, rest = stalls.waited - stalls.first_wait, stalls.seconds - stalls.first_wait
    told = f"training waits {seconds(stalls.first_wait)} for its first step"
    if later <= 0:
        return f"{told}, and never after it"
    return f"{told}, and {share(later, rest)} of the time after it"


def advice_for(subject: RunSubject, advice: str) -> str:
    """Advice about the cache as a sentence, without what an order of this run does not have."""
    if not any(isinstance(one.shuffle, BlockShuffle) for one in subject.run.run.sources):
        advice = advice.replace(LOWER, "use .block_shuffle()")
    return f"{capital(advice.rstrip('. '))}."


def loading_figure(subject: RunSubject) -> Figure | None:
    """Reads, cache and waiting; None for a run without a step."""
    found = subject.simulation
    if found is None:
        return None
    parts = [
        tag("h3", "Bytes read by each rank"),
        both(lambda width: bars(_bytes(found), width, "bytes read by each rank")),
    ]
    if found.stalls is None:
        busy = ((one.name, fed_by(found, one)) for one in TYPICAL)
        rows = [Bar(name, s, f"{seconds(s)}, {_feeds(found, s)}") for name, s in busy]
        parts += [
            tag("h3", "Fetching ahead from three typical sources, for each step on average"),
            both(lambda width: bars(rows, width, "seconds to fetch a step, on average")),
        ]
    else:
        parts += [tag("h3", "Where the time goes"), _time(found.stalls)]
    return Figure(
        name="loading",
        title="What feeding the run takes",
        message=fed_answer(subject).sentence,
        drawing=joined(parts),
        numbers=(
            _ranks(found),
            _typical(subject, found) if found.stalls is None else _stalls(found.stalls),
        ),
        notes=tuple(_notes(subject, found)),
    )


def _bytes(found: Simulation) -> list[Bar]:
    ranks = found.ranks
    if len(ranks) > RANKS:
        ordered = sorted(ranks, key=lambda one: one.bytes)
        places = [round(k * (len(ranks) - 1) / (RANKS - 1)) for k in range(RANKS)]
        ranks = tuple(ordered[place] for place in places)
    return [
        Bar(f"rank {one.rank}: {HOW[one.how]}", one.bytes, binary_size(one.bytes)) for one in ranks
    ]


def _time(stalls: Stalls) -> Markup:
    later = max(0.0, stalls.waited - stalls.first_wait)
    trained = max(0.0, stalls.seconds - stalls.waited)
    rows = [
        Bar("training", trained, seconds(trained), "s3"),
        Bar("waiting for the first step", stalls.first_wait, seconds(stalls.first_wait), "s2"),
        Bar("waiting later", later, seconds(later), "s6"),
    ]
    return both(lambda width: bars(rows, width, "time spent training and waiting"))


def _feeds(found: Simulation, each: float) -> str:
    """Tokens per second of a source that takes that long for a step."""
    if not each:
        return "nothing is read"
    tokens = found.tokens / max(1, found.steps) / each
    return f"{amount(tokens)} tokens/s"


def _typical(subject: RunSubject, found: Simulation) -> Numbers:
    rows = []
    for source in TYPICAL:
        each = fed_by(found, source)
        speed = seconds(source.latency), f"{source.bandwidth / 1e6:,.0f} MB/s", source.parallel
        wait = first_from(subject.first_step, source)
        rows.append((source.name, *speed, wait, each, _feeds(found, each)))
    head = (
        *("source", "latency", "bandwidth", "requests at a time", "seconds until the first step"),
        *("seconds of a step, on average", "feeds at most"),
    )
    return Numbers.of(head, rows, "assumed speeds, for each rank; what fetching ahead then takes")


def _ranks(found: Simulation) -> Numbers:
    head = (
        *("rank", "how", "rows", "reads", "bytes", "bytes asked for", "bytes of a step"),
        *("cache hits", "cache misses", "bytes needed at once", "bytes of cache"),
    )
    rows = (
        (
            *(one.rank, one.how, one.examples, one.reads, one.bytes, one.useful_bytes),
            *(one.bytes / max(1, found.steps), one.hits, one.misses),
            *(one.needed_bytes, one.cache_bytes),
        )
        for one in found.ranks
    )
    return Numbers.of(head, rows, "what each rank reads" + (", about" if found.estimated else ""))


def _stalls(one: Stalls) -> Numbers:
    later, rest = max(0.0, one.waited - one.first_wait), one.seconds - one.first_wait
    rows: Sequence[tuple[str, object]] = [
        ("seconds of a request", one.latency),
        ("bytes per second", one.bandwidth),
        ("seconds of a step", one.step_seconds),
        ("steps simulated", one.steps),
        ("seconds in all", one.seconds),
        ("seconds waited", one.waited),
        ("seconds waited after the first step", later),
        ("share of the time after it", later / rest if rest else 0.0),
        ("seconds until the first step", one.first_wait),
        ("longest wait after it", one.longest_wait),
        ("steps that wait", one.stalled_steps),
    ]
    return Numbers.of(("what", "value"), rows, "waiting, in a simple model of the source")


def _notes(subject: RunSubject, found: Simulation) -> list[str]:
    notes = [advice_for(subject, PERCENT.sub(r"\1 %", note)) for note in found.notes]
    if found.stalls is not None and found.stalls.steps < found.steps:
        notes.append(f"Waiting is that of the first {plural(found.stalls.steps, 'step')}.")
    if len(found.ranks) > RANKS:
        notes.append(f"Drawn are {RANKS} of {len(found.ranks):,} ranks, from least to most bytes.")
    if found.stalls is None:
        notes.append(
            "A step takes that long on average, because most steps find their rows in memory: "
            "fetching ahead hides it wherever a step takes longer. The first step waits for its "
            "own requests."
        )
        notes.append("Give --latency, --bandwidth and --step-seconds to see how long steps wait.")
    return notes


def fed_answer(subject: RunSubject) -> Answer:
    """What each step reads, and what share of the time is waiting, where speeds are known."""
    found, question = subject.simulation, "Will it be fed fast enough?"
    if found is None:
        sentence = "There is no whole step, so nothing is read."
        return Answer(name="fed", question=question, sentence=sentence, numbers={"bytes": 0})
    worst = max(found.ranks, key=lambda one: one.bytes)
    each = found.bytes / max(1, found.steps)
    numbers: dict[str, float] = {
        "bytes": found.bytes,
        "reads": found.reads,
        "step_bytes": each,
        "needed_bytes": max(one.needed_bytes for one in found.ranks),
        "cache_bytes": worst.cache_bytes,
    }
    about = "about " if found.estimated else ""
    size = f"{about}{binary_size(round(each))} on average"
    told = f"A step reads {size}, {IN_WORDS[worst.how]}"
    if found.bytes and each < 1:
        told = f"All steps together read {about}{binary_size(found.bytes)}, {IN_WORDS[worst.how]}"
    stalls = found.stalls
    if stalls is None:
        told += f"; {_from_bucket(subject, found, numbers)}"
    else:
        numbers |= {"waited": stalls.waited, "seconds": stalls.seconds}
        numbers |= {"stalled_steps": stalls.stalled_steps, "first_wait": stalls.first_wait}
        if stalls.step_seconds:
            told += f"; {waits_in_words(stalls)}"
        else:
            told += f"; fetching takes {seconds(stalls.seconds / max(1, stalls.steps))} a step"
    return Answer(
        name="fed",
        question=question,
        sentence=f"{told}.",
        numbers=numbers,
        figure="loading",
        headline=_headline(found, each),
    )


def _headline(found: Simulation, each: float) -> tuple[str, str]:
    stalls = found.stalls
    if stalls is not None and stalls.seconds:
        later, rest = stalls.waited - stalls.first_wait, stalls.seconds - stalls.first_wait
        return share(later, rest), "of the time after its first step training waits"
    if found.bytes and each < 1:
        return binary_size(found.bytes), "read for all steps together"
    return binary_size(round(each)), "read for a step"


def _from_bucket(subject: RunSubject, found: Simulation, numbers: dict[str, float]) -> str:
    """What a typical bucket takes: for the first step, and for the others, fetched ahead."""
    bucket = TYPICAL[-1]
    each = numbers["bucket_seconds"] = fed_by(found, bucket)
    wait = numbers["first_seconds"] = first_from(subject.first_step, bucket)
    speed = f"{bucket.bandwidth / 1e6:,.0f} MB/s and {seconds(bucket.latency)} a request"
    if not each:
        return f"from a bucket at {speed} nothing is fetched"
    if [one.reads for one in subject.first_step] == [one.reads for one in found.ranks]:
        later = ", and no later one fetches anything" if found.steps > 1 else ""
        which = "the first step" if later else "it"
        return f"from a bucket at {speed} {which} waits {seconds(wait)}{later}"
    ahead = seconds(each) if each < 1e-6 else f"about {seconds(each)}"
    return (
        f"from a bucket at {speed} the first step waits {seconds(wait)}, and fetching ahead takes "
        f"{ahead} a step, which is hidden if a step takes longer"
    )


def fed_cautions(subject: RunSubject) -> Iterator[Caution]:
    """A cache that thrashes, rows that are read one by one, and training that waits."""
    found = subject.simulation
    if found is None:
        return
    stalls = found.stalls
    later = 0.0 if stalls is None else stalls.waited - stalls.first_wait
    if stalls is not None and stalls.step_seconds and later > STALLS * stalls.seconds:
        verb = "waits" if stalls.stalled_steps == 1 else "wait"
        yield Caution(
            words=f"After its first step, training waits "
            f"{share(later, stalls.seconds - stalls.first_wait)} of the time: "
            f"{plural(stalls.stalled_steps, 'step')} of {stalls.steps:,} {verb} for data.",
            remedy="Read from a faster source, give the cache more memory, use .block_shuffle(), "
            "or a disk cache for buckets.",
            figure="loading",
            gravity=1,
        )
    thrashing = [one for one in found.ranks if one.how == "thrashes"]
    if thrashing:
        yield _thrashes(subject, max(thrashing, key=lambda one: one.needed_bytes))
    by_rows = [one for one in found.ranks if one.how == "reads rows"]
    if by_rows and by_rows[0].bytes > 2 * by_rows[0].useful_bytes:
        one = max(by_rows, key=lambda rank: rank.bytes)
        yield Caution(
            words=f"Rows are read one by one, and {binary_size(one.bytes)} are read for the "
            f"{binary_size(one.useful_bytes)} that are needed.",
            remedy="Use .block_shuffle(), or open the stores with more cache_bytes: "
            f"{binary_size(one.needed_bytes)} hold everything that is needed at once.",
            figure="loading",
            gravity=1,
        )


def _thrashes(subject: RunSubject, worst: RankTotals) -> Caution:
    found = subject.simulation
    assert found is not None  # a rank of it
    advice = next((note for note in found.notes if "too little cache" in note), "")
    own = advice.partition(": ")[2] or "Open the stores with more cache_bytes."
    return Caution(
        words=f"Rank {worst.rank} needs {binary_size(worst.needed_bytes)} at once, and its cache "
        f"has {binary_size(worst.cache_bytes)}: blocks are fetched again and again.",
        remedy=advice_for(subject, own),
        figure="loading",
        gravity=1,
    )
