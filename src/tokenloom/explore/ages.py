"""How long ago a document was shown: steps since its last place before an example.

One idea: `where` lists the places of a document in order, and nothing is searched; so the last one
before an example is found in the epoch of the example and the few before it. A document that was
not shown in these is said to be older, or new in the first epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenloom.errors import NotKept
from tokenloom.explore.session import ExploredRun
from tokenloom.trace.backward import Search, places_of

__all__ = ["AGED", "Age", "ages_of"]

BACK = 3  # epochs before that of the example

AGED = 16  # documents of a page that are looked up

PLACES = 4096  # of one document, at most

BUCKETS = ((1, "in this step"), (10, "1 to 9 steps ago"), (100, "10 to 99"), (1000, "100 to 999"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Age:
    """When a document was shown last.

    Attributes:
        words: in words.
        bucket: 0 for new, then from just now (1) to long ago (5); -1 if it was not looked up.
    """

    words: str
    bucket: int


def ages_of(
    explored: ExploredRun, source: str, epoch: int, index: int, documents: Sequence[int]
) -> dict[int, Age]:
    """The age of each document of a source at an example; of the first `AGED` of them."""
    late = Age(words="not looked up", bucket=-1)
    try:
        found = {one: _age(explored, source, epoch, index, one) for one in documents[:AGED]}
    except NotKept as missing:
        late = Age(words=f"not known: {missing.what} are not kept", bucket=-1)
        return dict.fromkeys(documents, late)
    return found | dict.fromkeys(documents[AGED:], late)


def _age(explored: ExploredRun, source: str, epoch: int, index: int, document: int) -> Age:
    run = explored.run.run
    back = max(0, epoch - BACK)
    last = None
    for one in range(epoch, back - 1, -1):
        asked = Search(
            run=run,
            number=run.names.index(source),
            document=document,
            epochs=[one],
            before=index,
        )
        for seen, place in enumerate(places_of(asked)):
            if seen >= PLACES:
                break
            last = place.index
        if last is not None:
            break
    if last is None:
        words = "never before" if back == 0 else f"not in the last {epoch - back + 1} epochs"
        return Age(words=words, bucket=0 if back == 0 else len(BUCKETS) + 1)
    steps = explored.steps.step_of(index) - explored.steps.step_of(last)
    bucket = next((k for k, (most, _) in enumerate(BUCKETS, 1) if steps < most), len(BUCKETS) + 1)
    ago = "in this step" if not steps else f"{steps:,} step{'s' if steps > 1 else ''} ago"
    return Age(words=f"{ago} (example {last:,})", bucket=bucket)


def age_legend() -> list[tuple[int, str]]:
    """Number and words of each bucket, from just now to never."""
    named = [(k, words) for k, (_, words) in enumerate(BUCKETS, 1)]
    return [*named, (len(BUCKETS) + 1, "1,000 or more"), (0, "never before")]
