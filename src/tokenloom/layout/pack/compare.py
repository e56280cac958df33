"""What each way of packing costs, before anything is packed: `plan_packing`.

One idea: packing is planned from lengths, so its cost is known exactly without reading a token. The
table is the tally of the very plan that a run would use; it is not an estimate.

==============  ====================================================================================
fill            share of cells that hold a token; the rest is filler
lost            source tokens in no row
cut             documents in several pieces; *needless* if they would fit into a frame
segments        pieces per row, on average
attention       sum of squared piece lengths relative to full frames: block-diagonal attention cost
trained         predictions that count toward the loss, by the loss columns of the store
==============  ====================================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tokenloom.layout.pack.packers import STRATEGIES
from tokenloom.layout.pack.plan import Tally
from tokenloom.layout.pack.rows import Bounded, Groups, groups_of
from tokenloom.layout.pack.spec import SEQUENTIAL, PackSpec

ALL = (SEQUENTIAL, *STRATEGIES)

SIMPLE = ("one_doc", "greedy", SEQUENTIAL, "best_fit", "best_fit_decreasing")  # shown by default

NEAR = 0.001  # share of cells; a packer that trains at most this much less counts as equal


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingChoice:
    """One way of packing and what it costs.

    Attributes:
        spec: how to pack.
        tally: what becomes of every document and token.
    """

    spec: PackSpec
    tally: Tally

    @property
    def rows(self) -> int:
        """Rows of an epoch."""
        return self.tally.rows

    @property
    def fill(self) -> float:
        """Share of cells that hold a token."""
        return self.tally.fill

    @property
    def tokens_lost(self) -> int:
        """Source tokens in no row."""
        return self.tally.lost

    @property
    def documents_cut(self) -> int:
        """Documents in several pieces."""
        return self.tally.cut

    @property
    def padding(self) -> float:
        """Share of cells that hold filler."""
        return 1 - self.tally.fill if self.tally.cells else 0.0

    @property
    def lost(self) -> float:
        """Share of source tokens in no row."""
        return self.tally.lost / self.tally.tokens if self.tally.tokens else 0.0

    @property
    def segments_per_row(self) -> float:
        """Pieces per row, on average."""
        return self.tally.segments / self.tally.rows if self.tally.rows else 0.0

    @property
    def attention(self) -> float:
        """Cost of block-diagonal attention, relative to frames that each hold one document."""
        full = self.tally.rows * self.spec.seq_len**2
        return self.tally.attention / full if full else 0.0

    @property
    def trained_share(self) -> float:
        """Predictions that count toward the loss, per cell."""
        return self.tally.trained / self.tally.cells if self.tally.cells else 0.0

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON."""
        named = ["rows", "fill", "tokens_lost", "documents_cut", "padding", "lost"]
        named += ["segments_per_row", "attention", "trained_share"]
        options = {name: getattr(self.spec, name) for name in ("seq_len", "strategy", "overflow")}
        found = {name: getattr(self, name) for name in named}
        return options | found | {"tally": asdict(self.tally)}


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingPlan:
    """Ways of packing side by side.

    Attributes:
        choices: in the order requested.
        recommended: the best choice for each frame length, and why, in words.
    """

    choices: tuple[PackingChoice, ...]
    recommended: tuple[tuple[PackingChoice, str], ...]

    def __str__(self) -> str:
        head = ("seq_len", "strategy", "overflow", "rows", "fill", "lost", "cut", "needless")
        table = [(*head, "segments", "attention", "trained"), *map(_line, self.choices)]
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines = []
        for number, row in enumerate(table):
            cells = [
                cell.ljust(width) if i in (1, 2) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
            if number == 0:
                lines.append("  ".join("-" * width for width in widths))
        lines += [f"\n{reason}" for _, reason in self.recommended]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "choices": [choice.as_json() for choice in self.choices],
            "recommended": [
                {"seq_len": c.spec.seq_len, "strategy": c.spec.strategy, "reason": reason}
                for c, reason in self.recommended
            ],
        }


def _line(choice: PackingChoice) -> tuple[str, ...]:
    spec, tally = choice.spec, choice.tally
    return (
        f"{spec.seq_len:,}",
        spec.strategy,
        spec.overflow,
        f"{tally.rows:,}",
        f"{tally.fill:.3%}",
        f"{choice.lost:.2%}",
        f"{tally.cut:,}",
        f"{tally.cut_needlessly:,}",
        f"{choice.segments_per_row:.1f}",
        f"{choice.attention:.3f}",
        f"{tally.trained:,}",
    )


def compare_packings(
    line: Bounded,
    seq_lens: Sequence[int],
    strategies: Sequence[str] = SIMPLE,
    overflows: Sequence[str] = ("split",),
    trained: Callable[[PackSpec, Groups], int] | None = None,
    **options: Any,
) -> PackingPlan:
    """What packing the documents of a line would cost, for every combination of settings.

    Args:
        line: the documents.
        seq_lens: frame lengths to compare.
        strategies: see `tokenloom.layout.pack.packers`.
        overflows: what to do with documents longer than a frame; sequential allows only "split".
        trained: counts the predictions that count; None if all tokens are trained on.
        options: further fields of `PackSpec`, the same for all combinations.
    """
    choices = []
    for seq_len, strategy, overflow in itertools.product(seq_lens, strategies, overflows):
        if strategy == SEQUENTIAL and overflow != "split":
            continue
        spec = PackSpec(seq_len=seq_len, strategy=strategy, overflow=overflow, **options)
        groups = groups_of(line, spec)
        tally = groups.tally
        if trained is not None:
            tally = replace(tally, trained=trained(spec, groups))
        choices.append(PackingChoice(spec=spec, tally=tally))
    lengths = dict.fromkeys(choice.spec.seq_len for choice in choices)
    best = [_recommend([c for c in choices if c.spec.seq_len == length]) for length in lengths]
    return PackingPlan(choices=tuple(choices), recommended=tuple(one for one in best if one))


def _recommend(choices: Sequence[PackingChoice]) -> tuple[PackingChoice, str] | None:
    """The simplest choice that loses nothing, cuts nothing needlessly and trains nearly most."""
    honest = [c for c in choices if not c.tally.lost and c.tally.rows]
    if not honest:
        return None
    whole = [c for c in honest if not c.tally.cut_needlessly] or honest
    most = max(c.trained_share for c in whole)
    near = [c for c in whole if c.trained_share >= most - NEAR]
    best = min(near, key=lambda c: ALL.index(c.spec.strategy))
    tally, spec = best.tally, best.spec
    documents = tally.documents - tally.empty
    what = f"{spec.seq_len:,}: {spec.strategy}, overflow={spec.overflow!r}: loses nothing"
    reason = [f"{what}, fills {tally.fill:.2%}, cuts {tally.cut:,} of {documents:,} documents"]
    reason.append(
        "all of them longer than a frame" if tally.cut and not tally.cut_needlessly else ""
    )
    cutter = next((c for c in honest if c.tally.cut_needlessly and c is not best), None)
    if cutter is not None:
        share = cutter.tally.cut_needlessly / max(1, documents)
        reason.append(f"{cutter.spec.strategy} would cut {share:.1%} of them needlessly")
    loser = max(choices, key=lambda c: c.lost)
    if loser.tally.lost:
        reason.append(f"overflow={loser.spec.overflow!r} would lose {loser.lost:.1%} of the tokens")
    return best, "; ".join(part for part in reason if part) + "."
