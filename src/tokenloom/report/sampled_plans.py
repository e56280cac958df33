"""What a report says where the plan of packed rows was not kept, and is estimated from a sample."""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.layout.pack.rows import Packed
from tokenloom.report.subject import RunSubject
from tokenloom.report.told import Caution

__all__ = ["sample_cautions"]

NAMED = 3  # sources


def sample_cautions(subject: RunSubject) -> Iterator[Caution]:
    """That numbers are estimates, from how many groups, and what makes them exact."""
    found = [
        (one.name, one.layout.groups.sampled, len(one.layout.groups))
        for one in subject.run.run.sources
        if isinstance(one.layout, Packed) and one.layout.groups.sampled
    ]
    if not found:
        return
    parts = [f"{looked:,} of {every:,} groups of {name}" for name, looked, every in found[:NAMED]]
    more = f" and others ({len(found):,} sources)" if len(found) > NAMED else ""
    file = subject.run.file
    path = file.path if file is not None and file.path else "RUN"
    yield Caution(
        words="All numbers of rows, steps and tokens are estimates from a sample: the plan of the "
        f"packed rows is not kept, and only {', '.join(parts)}{more} were planned.",
        remedy=f"`tokenloom at {path} 0` makes the plan and keeps it; then this page is exact.",
        gravity=3,
    )
