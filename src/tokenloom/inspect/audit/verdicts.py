"""The laws of a run, and what was found about each of them.

One idea: a law is looked at a number of times and broken a number of times, so a verdict is two
counts and the first few places. A law that nobody looked at is never reported as kept.

`MEANINGS` says what each law is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARRAY_LAWS", "MEANINGS", "PLAN_LAWS", "SHOWN", "Findings", "LawVerdict"]

Int64 = NDArray[np.int64]

SHOWN = 3  # places reported per law; the rest are only counted

MEANINGS = {
    "items": "the items of every source come one after the other: none left out, none twice",
    "mixture": "every item comes when the rule's time says, at every prefix",
    "epochs": "an item belongs to the epoch that its number gives",
    "order": "the row shown is the one at that place of its epoch's order",
    "fresh_orders": "no two epochs of a shuffled source have the same order",
    "rows": "a whole epoch shows every row exactly once",
    "spans": "a row shows the stretches of documents that its layout puts there",
    "documents": "every stretch lies where its store has it, inside a document of its source",
    "coverage": "a whole epoch shows every token as often as the lengths of documents say",
    "quarantine": "no document is shown after it was quarantined",
    "index": "a batch has the rows that were asked for, in that order",
    "tokens": "every cell holds the stored token, the inserted one or the padding",
    "segments": "segment_ids and cu_seqlens separate the documents: nothing leaks",
    "positions": "positions count from where the settings say",
    "loss_mask": "the loss counts exactly where it should: no filler, no boundary, no token twice",
    "loss_weights": "the weights are those of the store's loss columns, 0 where nothing counts",
    "labels": "a label is the token to predict, in its place",
    "batch_laws": "every law of tokenloom.check_batch, in some of the batches",
}

PLAN_LAWS = (
    "items",
    "mixture",
    "epochs",
    "order",
    "fresh_orders",
    "rows",
    "spans",
    "documents",
    "coverage",
    "quarantine",
)

ARRAY_LAWS = (
    "index",
    "tokens",
    "segments",
    "positions",
    "loss_mask",
    "loss_weights",
    "labels",
    "batch_laws",
)


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

    >>> found = Findings(("rows", "spans"))
    >>> found.note("rows", "rows", 10, [4, 7], lambda place: f"row {place} comes twice")
    >>> found.verdicts()["rows"].examples, found.verdicts()["spans"].verdict
    (('row 4 comes twice', 'row 7 comes twice'), 'not looked at')
    """

    def __init__(self, laws: Sequence[str]) -> None:
        self._counts: dict[str, list[int]] = {law: [0, 0] for law in laws}
        self._examples: dict[str, list[str]] = {law: [] for law in laws}
        self._units: dict[str, str] = dict.fromkeys(laws, "")

    def note(
        self,
        law: str,
        unit: str,
        looked_at: int,
        wrong: Int64 | Sequence[int] = (),
        tell: Callable[[int], str] = str,
        broken: int | None = None,
    ) -> None:
        """Add what was looked at, and the places that are wrong.

        Args:
            law: one of the laws.
            unit: what is counted.
            looked_at: how many more were judged.
            wrong: the places among them that break the law.
            tell: the sentence about one such place.
            broken: how many there are, if `wrong` has only the first of them.
        """
        if looked_at or len(wrong):
            self._units[law] = unit
        self._counts[law][0] += looked_at
        self._counts[law][1] += len(wrong) if broken is None else broken
        known = self._examples[law]
        known += [tell(int(place)) for place in wrong[: max(0, SHOWN - len(known))]]

    def tell(self, law: str, unit: str, looked_at: int, told: str) -> None:
        """Add what was looked at as a whole; `told` says what is wrong with it, empty for nothing.

        >>> found = Findings(("rows",))
        >>> found.tell("rows", "rows", 10, "they are not those of the epoch")
        >>> found.verdicts()["rows"].broken
        1
        """
        self.note(law, unit, looked_at, [0] if told else [], lambda _: told)

    def plain(self) -> dict[str, list[Any]]:
        """What was found so far, as plain data: law → looked at, broken, unit, examples."""
        return {
            law: [*counts, self._units[law], list(self._examples[law])]
            for law, counts in self._counts.items()
        }

    def add(self, plain: Mapping[str, Sequence[Any]]) -> None:
        """Add what was found elsewhere, in what comes after everything so far.

        >>> one, other = Findings(("rows",)), Findings(("rows",))
        >>> other.tell("rows", "rows", 10, "they are not those of the epoch")
        >>> one.add(other.plain())
        >>> one.verdicts() == other.verdicts()
        True
        """
        for law, (looked_at, broken, unit, examples) in plain.items():
            self._counts[law][0] += looked_at
            self._counts[law][1] += broken
            self._units[law] = unit or self._units[law]
            known = self._examples[law]
            known += examples[: max(0, SHOWN - len(known))]

    def verdicts(self) -> dict[str, LawVerdict]:
        """The verdict on every law, in order."""
        made: dict[str, LawVerdict] = {}
        for law, (looked_at, broken) in self._counts.items():
            word = "broken" if broken else "holds" if looked_at else "not looked at"
            made[law] = LawVerdict(
                verdict=word,
                looked_at=looked_at,
                unit=self._units[law],
                broken=broken,
                examples=tuple(self._examples[law]),
            )
        return made

    @property
    def broken(self) -> int:
        """How often any law was broken so far."""
        return sum(broken for _, broken in self._counts.values())
