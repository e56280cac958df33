"""What a run must hold, cell by cell, from its recipe and the known documents alone.

Rows of the layout, orders of epochs and draws of the mix come from the slow oracles of
`tests/shared`; the arrays of a row are loops over its cells. A row is a list of `Piece`s in order
of their columns. Only the choice of documents is taken from the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import slowpack
import slowsplice
from greedy_mix import Loop, Slow, slow_rounds
from random_runs import BOS, EOS, SEQ_LEN, Recipe, Source, documents_of, sources_of
from slow_orders import (
    GOLDEN,
    WORD,
    SlowLinear,
    cut_blocks,
    equal_blocks,
    order_key,
    slow_block,
    slow_child,
    slow_era,
    slow_full,
)

FIRST, LAST = -1, -2  # offsets of an inserted BOS and EOS

SPLICE_DEFAULTS = {
    "mode": "splice", "content_start_mode": "coverage_balanced", "placement": "fit",
    "content_length": None, "content_stride": 1, "offset_stride": 1, "min_copy_len": 2,
    "include_tail": False, "adaptive_k": True, "balance_mode": "by_temperature",
    "balance_tau": 1, "epoch_length": None, "max_epochs": None, "doc_weights": None,
    "doc_strides": None, "doc_groups": None, "roll_loss": False, "eos_id": None,
}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Neighbouring cells of one document in one row."""

    document: int
    at: int  # column of the first cell
    offsets: tuple[int, ...]  # into the document; FIRST or LAST where a special was inserted
    seen: int = 0  # leading cells that another row trains
    continues: bool = False
    seams: tuple[int, ...] = ()  # cells that the cell before them does not predict


@dataclass(frozen=True)
class Cell:
    """One cell of a row; segment 0 is filler."""

    token: int
    segment: int = 0
    is_inserted: bool = False
    is_target: bool = False
    weight: float = 1.0


class SlowSource:
    """The rows of a source in every epoch, and their order."""

    def __init__(self, name: str, source: Source, known, seed: int) -> None:
        self.name, self.source, self.seed = name, source, seed
        self.known = known[source.store]
        chosen = documents_of(source, known)
        self.chosen = (
            chosen.indices.tolist()
            if source.choice != "all"
            else list(range(len(self.known.documents)))
        )
        self.lengths = [len(self.known.documents[d]) for d in self.chosen]
        self.width = SEQ_LEN + bool(source.options.get("lookahead"))
        self._rows: dict[int, list[list[Piece]]] = {}
        self._orders: dict[int, list[int]] = {}

    # -- rows ------------------------------------------------------------------------------

    def rows(self, epoch: int) -> list[list[Piece]]:
        kind = self.source.layout
        if kind != "splice":
            epoch = 0  # every epoch has the same rows
        if epoch not in self._rows:
            self._rows[epoch] = getattr(self, f"_{kind}")(epoch)
        return self._rows[epoch]

    def _windows(self, epoch: int) -> list[list[Piece]]:
        line = [(d, o) for d, n in zip(self.chosen, self.lengths, strict=True) for o in range(n)]
        overlap = self.source.options["overlap"]
        rows, start = [], 0
        while True:
            row = line[start : start + self.width]
            if len(row) < self.width:
                fresh = row[overlap:] if rows else row  # what no row has had
                if self.source.options["tail"] == "keep" and fresh:
                    rows.append(row)
                return [_pieces_of_cells(one) for one in rows]
            rows.append(row)
            start += self.width - overlap

    @cached_property
    def groups(self) -> list[range]:
        """Documents that are packed together, as places among the chosen ones."""
        size = self.source.options["group_docs"]
        return [range(a, min(a + size, len(self.chosen))) for a in range(0, len(self.chosen), size)]

    @cached_property
    def packed_groups(self) -> list[list[list[Piece]]]:
        options = {
            "overflow": "split", "stride": 0, "mask_overlap": True, "max_docs_per_bin": None,
            "overlap": 0, "shuffle_seed": 0, "bos_id": None, "eos_id": None,
        }  # fmt: skip
        spec = SimpleNamespace(**{**options, **self.source.options, "width": self.width})
        found = []
        for number, group in enumerate(self.groups):
            lengths = [self.lengths[place] for place in group]
            rows = slowpack.slow_rows(lengths, spec, number)
            found.append([self._packed_row(row, group, spec) for row in rows])
        return found

    def _pack(self, epoch: int) -> list[list[Piece]]:
        return [row for group in self.packed_groups for row in group]

    def _packed_row(self, row, group, spec) -> list[Piece]:
        pieces, at = [], 0
        for place, cells, seen in row:
            special = {slowpack.B: FIRST, slowpack.E: LAST}
            offsets = tuple(special[c] if c in (slowpack.B, slowpack.E) else c[1] for c in cells)
            begins = cells[0] == slowpack.B or (offsets[0] == 0 and spec.bos_id is None)
            document = self.chosen[group[place]]
            pieces.append(Piece(document, at, offsets, seen, not begins))
            at += len(cells)
        return pieces

    def _splice(self, epoch: int) -> list[list[Piece]]:
        asked = self.source.options
        spec = SimpleNamespace(**{**SPLICE_DEFAULTS, **asked, "seq_len": SEQ_LEN})
        spec.bos_id = asked.get("bos")
        relative = asked.get("position_scheme") == "relative"
        spec.edge = asked.get("edge") or ("clip" if relative else "inside")
        spec.fill = asked.get("fill") or ("pack" if relative else "one")
        balanced = spec.content_start_mode == "coverage_balanced"
        is_share = balanced and spec.mode == "splice"
        spec.sampler = asked.get("sampler") or ("quota" if is_share else "enumerate")
        spec.balance_measure = "starts" if spec.edge == "clip" else "length"
        lead = spec.bos_id is not None
        rows = slowsplice.slow_rows(self.lengths, spec, epoch)
        return [[self._spliced(*splice, lead, spec) for splice in row] for row in rows]

    def _spliced(self, place, t, inside, at, lead, spec) -> Piece:
        offsets = tuple(FIRST if lead and one == 0 else one - lead for one in inside)
        seams = () if spec.roll_loss else tuple(k for k, one in enumerate(inside) if k and not one)
        return Piece(self.chosen[place], at, offsets, 0, offsets[0] > 0, seams)

    # -- orders ----------------------------------------------------------------------------

    def blocks(self) -> tuple[list[list[int]], int | None]:
        """Storage-local blocks of rows, and their size if they are equal by rule."""
        count = len(self.rows(0))
        kind, options = self.source.layout, self.source.options
        if self.source.order in ("cut block", "lanes"):
            return equal_blocks(count, 2), 2
        step = self.width - options.get("overlap", 0)
        if kind == "windows" and not options["align"]:
            size = max(1, 64 // step)  # the io blocks of the known stores have 64 tokens
            return equal_blocks(count, size), size
        if kind == "windows":
            starts = {0, count}
            for end in range(
                options["align"], sum(self.lengths) + options["align"], options["align"]
            ):
                starts.add(min(-(-end // step), count))
            return cut_blocks(sorted(starts)), None
        if kind == "pack":
            starts = [0]
            for group in self.packed_groups:
                starts.append(starts[-1] + len(group))
            return cut_blocks(starts), None
        return [list(range(count))], None  # all documents of a toy are in one block

    def fraction(self, k: int) -> float:
        """Where item k stands among the lanes of a step: its lane over the lanes of its band."""
        if self.source.order != "lanes":
            return (k * GOLDEN % WORD) / WORD
        epoch = 0
        while k >= len(self.rows(epoch)):
            k -= len(self.rows(epoch))
            epoch += 1
        return self._lanes(epoch)[k][1]

    def _lanes(self, epoch: int) -> list[tuple[int, float]]:
        """(row, fraction) at every place of an epoch of a block shuffle."""
        blocks, size = self.blocks()
        lanes, window = (3, 2) if self.source.order == "lanes" else (1, 3)
        return slow_block(
            blocks, window, lanes, self.seed, size=size, epoch=epoch, source=self.name
        )

    def order(self, epoch: int) -> list[int]:
        """The row at every place of an epoch."""
        n, kind = len(self.rows(epoch)), self.source.order
        if kind == "stored":
            return list(range(n))
        if kind == "full":
            return slow_full(n, self.seed, epoch, self.name)
        if kind == "era":
            return slow_era(n, 5, self.seed, epoch, self.name)
        if kind == "linear":
            linear = SlowLinear(n, slow_child(order_key(self.seed, epoch, self.name), "full"))
            return [linear.forward(place) for place in range(n)]
        return [row for row, _ in self._lanes(epoch)]

    def item(self, k: int) -> tuple[int, int]:
        """(epoch, row) of item k."""
        epoch = 0
        while k >= len(self.rows(epoch)):
            k -= len(self.rows(epoch))
            epoch += 1
        if epoch not in self._orders:
            self._orders[epoch] = self.order(epoch)
        return epoch, self._orders[epoch][k]

    def pieces(self, k: int) -> list[Piece]:
        epoch, row = self.item(k)
        return self.rows(epoch)[row]

    # -- arrays ----------------------------------------------------------------------------

    def tokens(self, k: int) -> int:
        """What item k costs by tokens: stored ones in the frame, at least 1."""
        cells = [(p.at + i, o) for p in self.pieces(k) for i, o in enumerate(p.offsets)]
        return max(1, sum(offset >= 0 and column < SEQ_LEN for column, offset in cells))

    def trained(self, k: int) -> int:
        """What item k costs by loss tokens: predictions that count, at least 1."""
        return max(1, sum(self.arrays(self.pieces(k))["loss_mask"]))

    def cells(self, pieces: list[Piece]) -> list[Cell]:
        """Every cell of a row [width]."""
        render = self.source.render
        row = [Cell(render["pad_id"])] * self.width
        for number, piece in enumerate(pieces, 1):
            ids = self.known.documents[piece.document]
            for k, offset in enumerate(piece.offsets):
                special = {FIRST: BOS, LAST: EOS}.get(offset)
                row[piece.at + k] = Cell(
                    token=ids[offset] if special is None else special,
                    segment=number,
                    is_inserted=special is not None,
                    is_target=k >= piece.seen and k not in piece.seams,
                    weight=self._weight(piece.document, offset),
                )
        if render.get("segments") == "eos":
            number, before = 0, Cell(render["pad_id"])
            for i, cell in enumerate(row):
                begins = not before.segment or before.token == render["eos_id"]
                number += cell.segment > 0 and begins
                row[i] = before = replace(cell, segment=number if cell.segment else 0)
        return row

    def _weight(self, document: int, offset: int) -> float:
        if self.known.weights is None or offset < 0:
            return 1.0
        return self.known.weights[document][offset]

    def arrays(self, pieces: list[Piece]) -> dict[str, list]:
        """The arrays of a row, cell by cell [S]."""
        render = self.source.render
        row = self.cells(pieces)
        segments = [cell.segment for cell in row[:SEQ_LEN]]
        shifted = self._labels_are_shifted
        weights = [self._counts(row, i, shifted) for i in range(SEQ_LEN)]
        mask = [weight > 0 for weight in weights]
        tokens = [cell.token for cell in row]
        if shifted:
            labels = [tokens[i + 1] if mask[i] else -100 for i in range(SEQ_LEN)]
        else:
            labels = [-100] + [tokens[i] if mask[i - 1] else -100 for i in range(1, SEQ_LEN)]
        runs = [_cells_before_in_segment(segments, i) for i in range(SEQ_LEN)]
        positions = range(SEQ_LEN) if self._positions_are_absolute else runs
        shown, real = _lent(segments, render)
        starts = [i for i in range(SEQ_LEN) if segments[i] and runs[i] == 0]
        by_tokens = render.get("segments") == "eos"
        continues = {piece.at: piece.continues for piece in pieces}
        return {
            "tokens": tokens[:SEQ_LEN],
            "labels": labels,
            "loss_mask": mask,
            "loss_weights": weights,
            "segment_ids": shown,
            "position_ids": [p + render.get("position_offset", 0) for p in positions],
            "attention_mask": real,
            "document_starts": starts,
            "continues": [not by_tokens and continues[i] for i in starts],
            "cu_seqlens": [i for i in range(SEQ_LEN) if runs[i] == 0],
        }

    @property
    def _labels_are_shifted(self) -> bool:
        usual = "shifted" if self.width > SEQ_LEN else "aligned"
        return (self.source.render.get("label_layout") or usual) == "shifted"

    @property
    def _positions_are_absolute(self) -> bool:
        usual = "absolute" if self.source.layout == "splice" else "reset"
        scheme = self.source.render.get("position_scheme")
        scheme = scheme or self.source.options.get("position_scheme") or usual
        return scheme == "absolute"

    def _counts(self, row: list[Cell], i: int, shifted: bool) -> float:
        """The weight of the prediction at cell i; 0 where it does not count."""
        render = self.source.render
        if i + 1 >= (self.width if shifted else SEQ_LEN):
            return 0.0
        cell, target = row[i], row[i + 1]
        if not (cell.segment and target.segment and target.is_target):
            return 0.0
        if render.get("mask_boundary_loss", True) and cell.segment != target.segment:
            return 0.0
        if target.token == render.get("ignore_id"):
            return 0.0
        is_masked = render.get("eos_mask") == "all" or target.is_inserted
        if not render.get("train_on_eos", True) and target.token == EOS and is_masked:
            return 0.0
        return target.weight


def _pieces_of_cells(cells) -> list[Piece]:
    """Pieces of a row that holds these (document, offset) one after the other."""
    pieces: list[Piece] = []
    for at, (document, offset) in enumerate(cells):
        if pieces and pieces[-1].document == document:
            last = pieces[-1]
            pieces[-1] = replace(last, offsets=(*last.offsets, offset))
        else:
            pieces.append(Piece(document, at, (offset,), 0, offset > 0))
    return pieces


def _cells_before_in_segment(segments: list[int], i: int) -> int:
    """Neighbouring cells of the same segment right before this one."""
    count = 0
    while count < i and segments[i - count - 1] == segments[i]:
        count += 1
    return count


def _lent(segments: list[int], render) -> tuple[list[int], list[bool]]:
    """Segments and attention where filler is given the segment of a neighbouring document."""
    shown, real = list(segments), [one > 0 for one in segments]
    inside = [i for i, one in enumerate(segments) if one]
    if inside and render.get("attend_prefix"):
        shown[: inside[0]] = [segments[inside[0]]] * inside[0]
        real[: inside[0]] = [True] * inside[0]
    if inside and render.get("trailing") == "doc":
        behind = SEQ_LEN - inside[-1] - 1
        shown[inside[-1] + 1 :] = [segments[inside[-1]]] * behind
    return shown, real


# -- runs ----------------------------------------------------------------------------------


class SlowRun:
    """Every example of a run: (place of its source, item), and the pieces of its row."""

    def __init__(self, recipe: Recipe, known) -> None:
        self.recipe, self.known = recipe, known
        self.sources = [self._source(name, one) for name, one in recipe.sources.items()]

    def _source(self, name: str, source: Source) -> SlowSource:
        own = self.recipe.mix is not None  # alone, a source has the seed that was given last
        seed = source.seed if own and source.seed is not None else self.recipe.seed
        return SlowSource(name, source, self.known, seed)

    @property
    def is_known(self) -> bool:
        """Whether this oracle knows such a run: no rows that keys decide, and no append."""
        if any("append" in edit for edit in self.recipe.edits):
            return False
        return not any(one.is_drawn for one in sources_of(self.recipe).values())

    def examples(self, most: int) -> list[tuple[SlowSource, list[Piece]]]:
        """The first examples: at most that many, or to the end; without quarantined pieces."""
        found = []
        for index, (place, item) in enumerate(self.picks(most)):
            source = self.sources[place]
            hidden = {
                document
                for edit in self.recipe.edits
                for name, document in edit.get("quarantine", ())
                if name == source.name and edit["at"] <= index
            }
            pieces = [p for p in source.pieces(item) if p.document not in hidden]
            found.append((source, pieces))
        return found

    def picks(self, most: int) -> list[tuple[int, int]]:
        """(place of the source, item) of the first examples."""
        mix, take = self.recipe.mix, self.recipe.take
        most = most if take is None else min(most, take)
        if mix is None:
            (one,) = self.sources
            end = self._end_of(one)
            return [(0, k) for k in range(most if end is None else min(most, end))]
        if self.recipe.shuffled:
            picks = self._mixed(mix, None)
            order = slow_full(len(picks), self.recipe.seed, 0, "mix")
            return [picks[place] for place in order][:most]
        return self._mixed(mix, most)[:most]

    def _end_of(self, source: SlowSource) -> int | None:
        """Items of the epochs of a source."""
        epochs = source.source.epochs
        if epochs is None and source.rows(0):
            return None
        return sum(len(source.rows(epoch)) for epoch in range(epochs or 0))

    def _mixed(self, mix, most: int | None) -> list[tuple[int, int]]:
        rule, block = mix["rule"], mix.get("block", 1)
        self.sources = self.sources[: len(self.recipe.sources)]
        loop = Loop(
            [self._begin(one, mix) for one in self.sources],
            self.recipe.seed,
            rule in ("weights", "rounds", "random"),
            in_turn=rule == "round_robin",
            stop=mix["stop"],
        )
        for edit in self.recipe.edits:
            loop.run(edit["at"] - len(loop.picks))
            added = [self._source(name, one) for name, one in edit.get("add", {}).items()]
            self.sources += added
            joining = [self._begin(one, mix) for one in added]
            loop.edit(weights=edit.get("weights"), add=joining, remove=edit.get("remove", ()))
        more = None if most is None else max(0, -(-most // block) * block - len(loop.picks))
        picks = loop.run(more)
        if rule not in ("rounds", "random"):
            return picks
        count, seed = len(self.sources), self.recipe.seed
        return slow_rounds(picks, block, count, is_shuffled=rule == "random", seed=seed)

    def _begin(self, source: SlowSource, mix) -> Slow:
        """A source before its first item."""
        usual = "tokens" if mix["rule"] == "least_consumed" else "rows"
        cost = {"rows": _one, "tokens": source.tokens, "loss_tokens": source.trained}
        declared, cap = self._end_of(source), None
        caps = mix.get("max_epochs")
        if isinstance(caps, dict):
            caps = caps.get(source.name)
        if caps is not None:
            cap = math.floor(caps * len(source.rows(0)))
            declared = cap if declared is None else min(cap, declared)
        n = declared if mix["stop"] == "all_exhausted" else cap
        weight = mix.get("weights", {}).get(source.name, 1.0)
        base = mix.get("initial", {}).get(source.name, 0) / weight
        return Slow(source.name, cost[mix.get("cost") or usual], n, weight, declared, base)


def _one(item: int) -> int:
    return 1
