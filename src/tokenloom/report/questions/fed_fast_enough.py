"""Will it be fed fast enough? Bytes, the cache, and how long training waits."""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.inspect.simulate.answer import RankTotals, Simulation
from tokenloom.page.numbers import binary_size, plural, seconds, share
from tokenloom.report.figures.loading import (
    TYPICAL,
    advice_for,
    fed_by,
    first_from,
    waits_in_words,
)
from tokenloom.report.subject import RunSubject
from tokenloom.report.told import Answer, Caution

__all__ = ["STALLS", "answer", "cautions"]

HOW = {
    "fits": "and what is needed at once fits the cache",
    "thrashes": "and blocks are fetched again, because the cache is too small",
    "reads rows": "row by row",
}

STALLS = 0.05  # of the time; more is worth a warning


def answer(subject: RunSubject) -> Answer:
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
    about = "about " if found.bands else ""
    size = f"{about}{binary_size(round(each))} on average"
    told = f"A step reads {size}, {HOW[worst.how]}"
    if found.bytes and each < 1:
        told = f"All steps together read {about}{binary_size(found.bytes)}, {HOW[worst.how]}"
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


def cautions(subject: RunSubject) -> Iterator[Caution]:
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
