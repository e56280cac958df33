"""The laws that an audit judges, and what was found about each of them.

A law is looked at a number of times and broken a number of times, so a verdict is two counts and
the first few places. A law that nobody looked at is never reported as kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64

Array = NDArray[Any]

SHOWN = 3  # places reported per law; the rest are only counted

NOT_LOOKED_AT = "not looked at"

MEANINGS = {
    "items": "every item of a source comes at its own index: none left out, none twice",
    "order": "the row shown is the one at that place of its epoch's order",
    "rows": "a whole epoch shows every row exactly once",
    "coverage": "a whole epoch shows every token as often as the lengths of documents say",
    "quarantine": "no document is shown after it was quarantined",
    "mixture": "every source has shown as many rows as `consumed` says",
    "tokens": "every cell holds the stored token, the inserted one or the padding",
    "batch_laws": "every law of tokenloom.check_batch: segments, positions, masks, labels",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LawVerdict:
    """What was found about one law.

    Attributes:
        verdict: "holds", "broken" or "not looked at".
        looked_at: how many things were judged by it.
        unit: what these are: rows, items, cells, epochs.
        broken: how many of them break it.
        examples: the first few, as sentences.
    """

    verdict: str
    looked_at: int
    unit: str
    broken: int
    examples: tuple[str, ...]


class Findings:
    """Counts what is looked at and what is wrong, law by law.

    Attributes:
        verdicts: the verdict on every law so far, in order.

    >>> found = Findings(("rows", "spans"))
    >>> found.record("rows", "rows", 10, [4, 7], lambda place: f"row {place} comes twice")
    >>> found.verdicts["rows"].examples, found.verdicts["spans"].verdict
    (('row 4 comes twice', 'row 7 comes twice'), 'not looked at')
    """

    def __init__(self, laws: Iterable[str]) -> None:
        nothing = LawVerdict(verdict=NOT_LOOKED_AT, looked_at=0, unit="", broken=0, examples=())
        self.verdicts = dict.fromkeys(laws, nothing)

    def record(
        self,
        law: str,
        unit: str,
        looked_at: int,
        wrong: Int64 | Sequence[int] = (),
        describe: Callable[[int], str] = str,
        broken: int | None = None,
    ) -> None:
        """Add what was looked at, and the places that are wrong.

        Args:
            law: one of the laws.
            unit: what is counted.
            looked_at: how many more were judged.
            wrong: the places among them that break the law.
            describe: the sentence about one such place.
            broken: how many there are, if `wrong` has only the first of them.
        """
        known = self.verdicts[law]
        total = known.looked_at + looked_at
        count = known.broken + (len(wrong) if broken is None else broken)
        first = wrong[: max(0, SHOWN - len(known.examples))]
        self.verdicts[law] = LawVerdict(
            verdict="broken" if count else "holds" if total else NOT_LOOKED_AT,
            looked_at=total,
            unit=unit if looked_at or count else known.unit,
            broken=count,
            examples=(*known.examples, *(describe(int(place)) for place in first)),
        )

    def record_whole(self, law: str, unit: str, looked_at: int, problem: str) -> None:
        """Add what was judged as a whole; `problem` says what is wrong with it, "" for nothing.

        >>> found = Findings(("rows",))
        >>> found.record_whole("rows", "rows", 10, "they are not those of the epoch")
        >>> found.verdicts["rows"].broken
        1
        """
        self.record(law, unit, looked_at, [0] if problem else [], lambda _: problem)

    def record_cells(self, law: str, found: Array, right: Array, index: Int64) -> None:
        """Add cells [rows, S], compared with what they must be.

        Args:
            law: one of the laws.
            found: what is there.
            right: what should be there.
            index: the index of each row, for sentences [rows].

        >>> laws = Findings(("tokens",))
        >>> laws.record_cells("tokens", np.array([[5, 6]]), np.array([[5, 7]]), np.array([40]))
        >>> laws.verdicts["tokens"].examples
        ('index 40, cell 1: found 6, right is 7',)
        """
        if found.shape != right.shape:
            shapes = f"found shape {list(found.shape)}, right is {list(right.shape)}"
            self.record_whole(law, "cells", right.size, shapes)
            return

        def describe(place: int) -> str:
            row, cell = divmod(place, right.shape[1])
            values = f"found {found[row, cell]}, right is {right[row, cell]}"
            return f"index {index[row]:,}, cell {cell}: {values}"

        wrong = np.flatnonzero((found != right).reshape(-1))
        self.record(law, "cells", right.size, wrong, describe)
