"""Whether a run takes the items of its sources one after the other, and when the rule says.

One idea: how many items of each source come before an index is known, so the items of a range are
known as well: in a run of one source they are the indices, in a mix those between two counts, in
order. Only "random" blocks and a mix that is shuffled as a whole mix them; their items are then
compared as a collection. A sample has no neighbours, so each of its rows is looked up backwards:
the item's own index must be the one that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.inspect.audit.boundary_sums import number_sum
from tokenloom.inspect.audit.mix_times import MixTimes
from tokenloom.inspect.audit.plan_laws import ShownRows
from tokenloom.inspect.audit.scope import Scope
from tokenloom.inspect.audit.verdicts import Findings
from tokenloom.limits import limits
from tokenloom.mixture.run import MixedRun
from tokenloom.order.run import Placed

__all__ = ["ItemLaws"]

Int64 = NDArray[np.int64]

BACKWARDS = 4096  # rows that are looked up backwards, at most


class ItemLaws:
    """Judges which items come when, chunk after chunk.

    Args:
        run: the run.
        scope: what is looked at.
        findings: where to note what was found.
        here: the places that are looked at here, [low, high); others look at the rest.

    Attributes:
        low, high: the part of the range that has whole blocks of a mix, [low, high).
        cuts: indices that no chunk may cross.
        block: chunks must be whole multiples of this many rows.
        not_looked_at: what is left out, as sentences.
        errors: the largest error of every source at any prefix, in units of cost.
    """

    def __init__(
        self, run: Dataset, scope: Scope, findings: Findings, here: tuple[int, int]
    ) -> None:
        self._run, self._scope, self._findings = run, scope, findings
        ranged = scope.sample is None
        self._first = scope.first + (here[0] if ranged else 0)
        self._last = scope.first + here[1] if ranged else scope.last
        self._mix = None if run.rule is None else cast(MixedRun, run.run)
        self.low, self.high, self.block = scope.first, scope.last, 1
        self.cuts: list[int] = []
        self.not_looked_at: list[str] = []
        self._is_ordered = True
        if run.rule is not None and self._mix is not None:
            rule = run.rule
            self.block = rule.edges or 1
            self._is_ordered = rule.rule not in ("random", "levanter") and self._mix.shuffle is None
            self.low = -(-scope.first // self.block) * self.block
            if scope.last != self._mix.stages[-1].end:  # `take` may cut the last block
                self.high = scope.last // self.block * self.block
            if self._mix.shuffle is not None and (scope.first or scope.last != self._mix.n):
                self.low = self.high = scope.last
            self.cuts = [self.low, self.high, *(stage.at for stage in self._mix.stages)]
        self._between = self.low < self.high and scope.sample is None
        self._before = self.counts(self.low) if self._between else []
        self._after = self.counts(self.high) if self._between else []
        self._next: dict[int, int] = dict(enumerate(self.counts(self._first)))
        self._backwards = here[0] if not ranged else self._outside(self._first)
        self._sums = [0] * len(self._before)
        self._times = self._mix_times()
        self.errors: dict[str, float] = {} if self._times is None else self._times.errors

    def counts(self, index: int) -> list[int]:
        """The items of every source before an index."""
        mix = self._mix
        if mix is None:
            return [index]
        if mix.shuffle is not None and 0 < index != mix.n:
            return [0] * len(mix.sources)  # nobody can tell, and nobody uses it
        starts = [stage.at for stage in mix.stages]
        stage = mix.stages[int(np.searchsorted(starts, index, side="right")) - 1]
        found: list[int] = stage.order.cut(index).tolist()
        return found + [0] * (len(mix.sources) - len(found))

    def _mix_times(self) -> MixTimes | None:
        mix, rule = self._mix, self._run.rule
        if mix is None or rule is None or not self._between:
            if mix is not None:
                self.not_looked_at.append("the mixture: it is judged over ranges, not samples")
            return None
        if mix.shuffle is not None:
            self.not_looked_at.append("shares at prefixes: the mix is shuffled as a whole")
            return None
        first = max(self.low, self._first)
        if first >= min(self.high, self._last):
            return None  # others look at the blocks of the mix
        return MixTimes(mix, rule, first, self.low, self._findings)

    def _outside(self, index: int) -> int:
        """How many rows before an index have no whole block."""
        low, high = min(self.low, index), min(self.high, index)
        return index - self._scope.first - max(0, high - low)

    def ranges(self) -> list[tuple[int, int] | None]:
        """Of every source, the items that are all looked at, [first, last)."""
        if not self._between:
            return [None] * len(self._run.run.sources)
        return list(zip(self._before, self._after, strict=True))

    def look(self, shown: ShownRows, parts: Sequence[Placed]) -> None:
        """Judge a chunk; `parts` are its rows, source by source."""
        inside = self._between and self.low <= shown.index[0] < self.high
        if self._mix is None:
            wrong = np.flatnonzero(shown.item != shown.index)
            self._note(len(shown.index), wrong, shown)
        elif self._scope.sample is not None or not (inside or self._is_ordered):
            self._look_up(shown)
        elif self._is_ordered:
            self._count(shown, parts)
        else:
            for part in parts:
                self._sums[part.number] += number_sum(part.item)
        if self._times is not None and inside:
            self._times.look(shown.index, parts)

    def _count(self, shown: ShownRows, parts: Sequence[Placed]) -> None:
        """Every source shows its next items."""
        wrong = []
        for part in parts:
            at = np.arange(len(shown.index)) if part.at is None else part.at
            item = shown.item[at]
            before = np.append(self._next[part.number] - 1, item[:-1])
            wrong.append(at[item != before + 1])
            self._next[part.number] = int(item[-1]) + 1
        self._note(len(shown.index), np.sort(np.concatenate(wrong)), shown)

    def _look_up(self, shown: ShownRows) -> None:
        """The inverse of the run gives back the index."""
        some = slice(0, max(0, BACKWARDS - self._backwards))
        source, item, index = shown.source[some], shown.item[some], shown.index[some]
        if len(source) < len(shown.source):
            told = f"items of more than {BACKWARDS:,} rows: they are looked up one by one"
            if told not in self.not_looked_at:
                self.not_looked_at.append(told)
        self._backwards += len(source)
        found = np.empty_like(index)
        for number in np.unique(source).tolist():
            here = source == number
            found[here] = self._run.run.index(number, item[here])
        self._note(len(index), np.flatnonzero(found != index), shown)

    def _note(self, looked_at: int, wrong: Int64, shown: ShownRows) -> None:
        names = self._run.run.names
        self._findings.note(
            "items",
            "rows",
            looked_at,
            wrong,
            lambda p: (
                f"index {shown.index[p]:,}: it shows item {shown.item[p]:,} of source "
                f"{names[shown.source[p]]}, which is not the next one"
            ),
        )

    def end(self) -> None:
        """Judge what only the end of what was looked at here shows."""
        if self._times is not None:
            self._times.finish(min(self.high, self._last))
        if self._mix is None or self._scope.sample is not None or not self._is_ordered:
            return
        due, names = self.counts(self._last), self._run.run.names
        wrong = [number for number, count in enumerate(due) if self._next[number] != count]
        self._findings.note(
            "items",
            "rows",
            0,
            wrong,
            lambda n: (
                f"source {names[n]}: before index {self._last:,} its last item is "
                f"{self._next[n] - 1:,}, right is {due[n] - 1:,}"
            ),
        )

    def plain(self) -> dict[str, Any]:
        """What was seen here, as plain data."""
        sums = [one % (1 << 64) for one in self._sums]
        return {"sums": sums, "errors": self.errors, "left_out": self.not_looked_at}

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add what was seen elsewhere."""
        self._sums = [a + b for a, b in zip(self._sums, plain["sums"], strict=True)]
        for name, error in plain["errors"].items():
            self.errors[name] = max(self.errors.get(name, 0.0), error)
        new = [one for one in plain["left_out"] if one not in self.not_looked_at]
        self.not_looked_at += new

    def finish(self) -> None:
        """Judge what only all pieces together show."""
        chunk = limits().audit_chunk_examples
        if self._is_ordered or not self._between:
            return
        names: Any = self._run.run.names
        for number, (low, high) in enumerate(zip(self._before, self._after, strict=True)):
            right = sum(
                number_sum(np.arange(at, min(at + chunk, high))) for at in range(low, high, chunk)
            )
            same = (self._sums[number] - right) % (1 << 64) == 0
            self._findings.note(
                "items",
                "rows",
                high - low,
                [] if same else [number],
                lambda n: f"source {names[n]}: its items are not those due in the range, once each",
            )
