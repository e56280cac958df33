"""What a run must hold, cell by cell, from its recipe and the known documents alone.

Rows of the layout, orders of epochs and draws of the mix come from the slow oracles of
`tests/shared`; the arrays of a row are loops over its cells. A row is a list of `Piece`s in order
of their columns. Only the choice of documents is taken from the store.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import slowpack
import slowsplice
from greedy_mix import Loop, Slow, slow_rounds
from random_runs import BOS, CHOICES, EOS, SEQ_LEN, Recipe, Source, expanded
from slow_orders import (
    GOLDEN,
    WORD,
    cut_blocks,
    equal_blocks,
    slow_block,
    slow_era,
    slow_full,
)

FIRST, LAST = -1, -2  # offsets of an inserted BOS and EOS


@dataclass(frozen=True)
class Piece:
    """Neighbouring cells of one document in one row."""

    document: int
    at: int  # column of the first cell
    offsets: tuple[int, ...]  # into the document; FIRST or LAST where a special was inserted
    seen: int = 0  # leading cells that another row trains
    continues: bool = False
    seams: tuple[int, ...] = ()  # cells that the cell before them does not predict
    eos_before: bool = False  # in the filler cell before it


@dataclass(frozen=True)
class Cell:
    """One cell of a row; segment 0 is filler."""

    token: int
    segment: int = 0
    is_inserted: bool = False
    is_target: bool = False
    weight: float = 1.0


class SlowRows:
    """The rows of some documents of a source, by epoch.

    Args:
        source: how they are cut.
        known: their store.
        chosen: the documents.
    """

    def __init__(self, source: Source, known, chosen: list[int]) -> None:
        self.source, self.chosen = source, chosen
        self.lengths = [len(known.documents[d]) for d in chosen]
        self.options = expanded(source.options, len(chosen))
        self.width = SEQ_LEN + bool(self.options.get("lookahead"))
        self._rows: dict[int, list[list[Piece]]] = {}

    def rows(self, epoch: int) -> list[list[Piece]]:
        kind = self.source.layout
        if kind != "splice":
            epoch = 0  # every epoch has the same rows
        if epoch not in self._rows:
            self._rows[epoch] = getattr(self, f"_{kind}")(epoch)
        return self._rows[epoch]

    def phases(self) -> list[tuple[int, int, int]]:
        """(first item, first epoch, rows of an epoch) of epochs with the same number of rows."""
        if self.source.layout != "splice":
            return [(0, 0, len(self.rows(0)))]
        found = [(0, 0, self._count(0))]
        for number, (begin, _, _) in enumerate(self._stages[1:], 1):
            item, epoch, rows = found[-1]
            if self._spec.doc_growth:
                found.append((item + (begin - epoch) * rows, begin, self._count(number)))
            else:  # the running epoch ends at this example
                after = epoch + -(-(begin - item) // max(rows, 1))
                found.append((begin, after, self._count(number)))
        return found

    def _count(self, phase: int) -> int:
        return len(self._phases[phase].rows(0))

    def count(self, epoch: int) -> int:
        """Rows of an epoch."""
        return [rows for _, first, rows in self.phases() if first <= epoch][-1]

    # -- windows and packed rows -----------------------------------------------------------

    def _windows(self, epoch: int) -> list[list[Piece]]:
        line = [(d, o) for d, n in zip(self.chosen, self.lengths, strict=True) for o in range(n)]
        overlap = self.options["overlap"]
        rows, start = [], 0
        while True:
            row = line[start : start + self.width]
            if len(row) < self.width:
                fresh = row[overlap:] if rows else row  # what no row has had
                if self.options["tail"] == "keep" and fresh:
                    rows.append(row)
                return [_pieces_of_cells(one) for one in rows]
            rows.append(row)
            start += self.width - overlap

    @cached_property
    def packed_groups(self) -> list[list[list[Piece]]]:
        """The rows of documents that are packed together."""
        options = {
            "overflow": "split", "stride": 0, "mask_overlap": True, "max_docs_per_bin": None,
            "overlap": 0, "shuffle_seed": 0, "bos_id": None, "eos_id": None,
        }  # fmt: skip
        spec = SimpleNamespace(**{**options, **self.options, "width": self.width})
        found = []
        for number, group in enumerate(self._groups()):
            lengths = [self.lengths[place] for place in group]
            rows = slowpack.slow_rows(lengths, spec, number)
            found.append([self._packed_row(row, group, spec) for row in rows])
        return found

    def _groups(self) -> list[range]:
        """Documents that are packed together, as places among the chosen ones."""
        size, most = self.options["group_docs"], self.options.get("group_tokens", 1 << 25)
        found, start = [], 0
        for stop in range(1, len(self.chosen) + 1):
            here = self.lengths[start:stop]
            if len(here) == size or stop == len(self.chosen) or sum(here) >= most:
                found.append(range(start, stop))
                start = stop
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

    # -- splices ---------------------------------------------------------------------------

    @cached_property
    def _spec(self):
        spec = slowsplice.spec_of(SEQ_LEN, **self.options)
        spec.bos_id = self.options.get("bos")
        return spec

    @cached_property
    def _stages(self):
        return slowsplice.slow_stages(self._spec, len(self.chosen))

    @cached_property
    def _phases(self) -> list[slowsplice.SlowPhase]:
        return [
            slowsplice.SlowPhase(self.lengths, self.chosen, self._spec, content, active)
            for _, content, active in self._stages
        ]

    def _splice(self, epoch: int) -> list[list[Piece]]:
        first = [epoch for _, epoch, _ in self.phases()]
        phase = self._phases[max(n for n, one in enumerate(first) if one <= epoch)]
        return [[self._spliced(*splice) for splice in row] for row in phase.rows(epoch)]

    def _spliced(self, place, t, inside, at) -> Piece:
        spec, lead = self._spec, self._spec.bos_id is not None
        offsets = tuple(FIRST if lead and one == 0 else one - lead for one in inside)
        seams = () if spec.roll_loss else tuple(k for k, one in enumerate(inside) if k and not one)
        has_eos = bool(self.options.get("eos_before")) and at > 0 and spec.fill == "one"
        return Piece(self.chosen[place], at, offsets, 0, offsets[0] > 0, seams, has_eos)

    # -- blocks ----------------------------------------------------------------------------

    @property
    def block_size(self) -> int | None:
        """Rows of a storage-local block, if all have the same by rule."""
        if self.source.layout != "windows" or self.options["align"]:
            return None
        step = self.width - self.options["overlap"]
        return max(1, 64 // step)  # the io blocks of the known stores have 64 tokens

    def block_starts(self, epoch: int) -> list[int]:
        """The first row of every storage-local block, and the number of rows."""
        count = self.count(epoch)
        if self.block_size is not None:
            return [*range(0, count, self.block_size), count]
        if self.source.layout == "pack":
            return list(itertools.accumulate(map(len, self.packed_groups), initial=0))
        if self.source.layout == "splice":
            return [0, count]  # all documents of a toy are in one block
        starts, every = {0, count}, self.options["align"]
        step = self.width - self.options["overlap"]
        for end in range(every, sum(self.lengths) + every, every):
            starts.add(min(-(-end // step), count))
        return sorted(starts)


BLOCKS = {"block": (None, 3, 1), "cut block": (2, 3, 1), "merged block": (None, 2, 1),
          "lanes": (2, 2, 3)}  # fmt: skip
"""Rows of an io block (None: as the layout has them), blocks of a window, and lanes."""
MERGED = 5  # rows


class SlowSource:
    """The rows of a source in every epoch, and their order; appended documents are more parts."""

    def __init__(self, name: str, source: Source, known, seed: int) -> None:
        self.name, self.source, self.seed = name, source, seed
        self.known = known[source.store]
        self.parts = [SlowRows(source, self.known, chosen_documents(source, self.known))]
        self.width = self.parts[0].width
        self._growths: list[int] = []  # the item from which each appended part is shown
        self._walk()

    def grow(self, at: int, known) -> None:
        """From item `at` on its store has more documents."""
        chosen = chosen_documents(self.source, known)
        fresh = [one for one in chosen if one >= len(self.known.documents)]
        self.parts.append(SlowRows(self.source, known, fresh))
        self.known = known
        self._growths.append(at)
        self._walk()

    def rows(self, epoch: int) -> list[list[Piece]]:
        """The rows of all parts, one part after the other."""
        return [row for part in self.parts for row in part.rows(epoch)]

    # -- items -----------------------------------------------------------------------------

    def _walk(self) -> None:
        """Begin anew: items come epoch by epoch."""
        self._items: list[tuple[int, int, float | None]] = []  # (epoch, row, lane over lanes)
        self._epoch, self._grown = 0, 0
        self._rest: list[tuple[int, float | None]] = []  # of the epoch that comes next
        self._bridges: list[int] = []  # epochs that continue the one before them
        self._starts: list[int] = []  # the first item of every epoch

    def _until(self, k: int) -> None:
        """Walk on until item k has come."""
        while len(self._items) <= k:
            self._next_epoch()

    def _next_epoch(self) -> None:
        """The rest of an epoch that an append cut, or a new one, up to its end or to an append."""
        here, cuts = len(self._items), [at for at in self._growths if at >= len(self._items)]
        bridged = self._epoch in self._bridges
        while self._grown < len(self._growths) and self._growths[self._grown] <= here:
            if bridged:  # a second append where the first one was
                self._bridge(self._rest)
            else:
                self._grown += 1
        order = self._rest if bridged else self._order(self._epoch)
        size = len(order) if bridged else self._length(self._epoch, here, len(order))
        cuts = [at - here for at in self._growths[self._grown :] if at - here < size]
        shown = order[: cuts[0]] if cuts else order[:size]
        self._starts.append(here)
        self._items += [(self._epoch, *one) for one in shown]
        self._epoch += 1
        if cuts:
            self._bridges.append(self._epoch)
            self._bridge(order[cuts[0] :])

    def _length(self, epoch: int, here: int, rows: int) -> int:
        """Items of an epoch; a curriculum cuts it where its next phase starts."""
        if self._growths:
            return rows
        later = [item for item, first, _ in self.parts[0].phases() if first > epoch]
        return min([rows, *(item - here for item in later)])

    def _bridge(self, old: list[tuple[int, float | None]]) -> None:
        """The rest of an epoch, with the rows of an appended part spread evenly through it."""
        self._grown += 1
        before = sum(len(part.rows(0)) for part in self.parts[: self._grown])
        part = self.parts[self._grown]
        name = f"{self.name}/{before}"
        fresh = [before + row for row, _ in self._ordered([part], self._epoch, name)]
        middles = [((2 * x + 1) * len(fresh), 0, one) for x, one in enumerate(old)]
        middles += [((2 * y + 1) * len(old), 1, (row, None)) for y, row in enumerate(fresh)]
        # old row x comes after those new rows whose middle is before its own
        middles.sort(key=lambda one: one[:2])
        self._rest = [(row, None) for _, _, (row, _) in middles]

    def item(self, k: int) -> tuple[int, int]:
        """(epoch, row) of item k."""
        self._until(k)
        return self._items[k][:2]

    def fraction(self, k: int) -> float:
        """Where item k stands among the lanes of a step: its lane over the lanes of its band."""
        self._until(k)
        found = self._items[k][2]
        return (k * GOLDEN % WORD) / WORD if found is None else found

    def pieces(self, k: int) -> list[Piece]:
        epoch, row = self.item(k)
        return self.rows(epoch)[row]

    def end_of(self, epochs: int) -> int:
        """Items of some epochs; one that an append extended counts once, with what it became."""
        if not epochs or not any(part.count(0) for part in self.parts):
            return 0
        if not self._growths:
            phases = self.parts[0].phases()
            if self.parts[0].options.get("doc_growth"):  # sums of whole epochs
                item, epoch, rows = [one for one in phases if one[1] <= epochs][-1]
                return item + (epochs - epoch) * rows
            item, _, rows = phases[-1]  # of a curriculum, those of its last phase count
            return item + epochs * rows
        self._until(self._growths[-1])
        last = epochs - 1
        for bridge in self._bridges:
            last += bridge <= last + 1
        while len(self._starts) <= last + 1:
            self._next_epoch()
        return self._starts[last + 1]

    # -- orders ----------------------------------------------------------------------------

    def order(self, epoch: int) -> list[int]:
        """The row at every place of an epoch that no append cuts."""
        return [row for row, _ in self._order(epoch)]

    def _order(self, epoch: int) -> list[tuple[int, float | None]]:
        return self._ordered(self.parts[: self._grown + 1], epoch, self.name)

    def _ordered(self, parts: list[SlowRows], epoch: int, name: str):
        """(row, lane over lanes) at every place of an epoch of some parts."""
        n = sum(part.count(epoch) for part in parts)
        kind, perm_type = self._order_kind
        if kind == "stored":
            rows = list(range(n))
        elif kind == "full":
            rows = slow_full(n, self.seed, epoch, name, perm_type)
        elif kind == "era":
            length = 5 if perm_type == "feistel" else 4
            rows = slow_era(n, length, self.seed, epoch, name, perm_type)
        else:
            return self._blocks_ordered(parts, n, epoch, name)
        return [(row, None) for row in rows]

    @property
    def _order_kind(self) -> tuple[str, str]:
        """How rows are shuffled, and by which permutations."""
        if self.source.order == "linear":
            return "full", "linear"
        kind = self.source.order.removeprefix("linear ")
        return kind, "feistel" if kind == self.source.order else "linear"

    def _blocks_ordered(self, parts: list[SlowRows], n: int, epoch: int, name: str):
        kind, perm_type = self._order_kind
        size, window, lanes = BLOCKS[kind]
        size = size or self.parts[0].block_size
        least = MERGED if kind == "merged block" else 1
        if size is not None:
            size *= -(-least // size)
            blocks = equal_blocks(n, size)
        else:
            blocks = cut_blocks(_merged(self._block_starts(parts, epoch), least))
        options = {"size": size, "epoch": epoch, "source": name, "perm_type": perm_type}
        found = slow_block(blocks, window, lanes, self.seed, **options)
        return [(row, one if lanes > 1 else None) for row, one in found]

    def _block_starts(self, parts: list[SlowRows], epoch: int) -> list[int]:
        if len(parts) == 1:
            return parts[0].block_starts(epoch)
        starts, before = {0}, 0
        for part in parts:
            starts |= {before + one for one in part.block_starts(epoch)}
            before = max(starts)
        return sorted(starts)

    # -- arrays ----------------------------------------------------------------------------

    def tokens(self, k: int) -> int:
        """What item k costs by tokens: stored ones in the frame, at least 1."""
        return max(1, stored(self.pieces(k)))

    def trained(self, k: int) -> int:
        """What item k costs by loss tokens: predictions that count, at least 1."""
        return max(1, sum(self.arrays(self.pieces(k))["loss_mask"]))

    def cells(self, pieces: list[Piece]) -> list[Cell]:
        """Every cell of a row [width]."""
        render = self.source.render
        row = [Cell(render["pad_id"])] * self.width
        for number, piece in enumerate(pieces, 1):
            ids = self.known.documents[piece.document]
            if piece.eos_before:
                row[piece.at - 1] = Cell(EOS)
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


def _merged(starts: list[int], least: int) -> list[int]:
    """Where blocks start that have at least so many rows each, but for the last one."""
    if least == 1:
        return starts
    kept = [0]
    for edge in starts[1:]:
        if edge - kept[-1] >= least:
            kept.append(edge)
    return kept if kept[-1] == starts[-1] else [*kept, starts[-1]]


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
        self._begin_again()

    def _begin_again(self) -> None:
        self.sources = [self._source(name, one) for name, one in self.recipe.sources.items()]

    def _source(self, name: str, source: Source) -> SlowSource:
        own = self.recipe.mix is not None  # alone, a source has the seed that was given last
        seed = source.seed if own and source.seed is not None else self.recipe.seed
        return SlowSource(name, source, self.known, seed)

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
        self._begin_again()
        mix, take = self.recipe.mix, self.recipe.take
        most = most if take is None else min(most, take)
        if mix is None:
            (one,) = self.sources
            for edit in self.recipe.edits:
                for store in edit.get("append", {}).values():
                    one.grow(edit["at"], self.known[store])
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
        return source.end_of(epochs or 0)

    def _mixed(self, mix, most: int | None) -> list[tuple[int, int]]:
        rule, block = mix["rule"], mix.get("block", 1)
        weights = self._weights(mix)
        loop = Loop(
            [self._begin(one, mix, weights.get(one.name, 1.0)) for one in self.sources],
            self.recipe.seed,
            rule in ("weights", "rounds", "random"),
            in_turn=rule == "round_robin",
            stop=mix["stop"],
        )
        stages = [{"at": int(at), "weights": one} for at, one in mix.get("stages", {}).items()]
        for edit in [*stages, *self.recipe.edits]:
            loop.run(edit["at"] - len(loop.picks))
            self._edit(loop, edit, mix)
        more = None if most is None else max(0, -(-most // block) * block - len(loop.picks))
        picks = loop.run(more)
        if rule not in ("rounds", "random"):
            return picks
        count, seed = len(self.sources), self.recipe.seed
        return slow_rounds(picks, block, count, is_shuffled=rule == "random", seed=seed)

    def _edit(self, loop: Loop, edit, mix) -> None:
        weights = edit.get("weights", {})
        for name, store in edit.get("append", {}).items():
            (place,) = (i for i, one in enumerate(self.sources) if one.name == name)
            source, timed = self.sources[place], loop.sources[place]
            source.grow(timed.k, self.known[store])
            timed.declared, timed.n = self._ends(source, mix, timed.k)
        added = [self._source(name, one) for name, one in edit.get("add", {}).items()]
        self.sources += added
        joining = [self._begin(one, mix, weights.get(one.name, 1.0)) for one in added]
        loop.edit(weights=weights, add=joining, remove=edit.get("remove", ()))

    def _weights(self, mix) -> dict[str, float]:
        """By name, or by size to the power of a temperature."""
        if "temperature" not in mix:
            return mix.get("weights", {})
        sizes = {}
        for one in self.sources:
            epoch = one.parts[0].phases()[-1][1]
            rows = one.rows(epoch)
            by_rows = mix.get("cost") == "rows"
            sizes[one.name] = len(rows) if by_rows else sum(stored(row) for row in rows)
        top = max(sizes.values()) or 1
        found = {name: (max(n, 1) / top) ** mix["temperature"] for name, n in sizes.items()}
        return {name: float(f"{weight:.12g}") for name, weight in found.items()}

    def _begin(self, source: SlowSource, mix, weight: float) -> Slow:
        """A source before its first item."""
        usual = "tokens" if mix["rule"] == "least_consumed" else "rows"
        cost = {"rows": _one, "tokens": source.tokens, "loss_tokens": source.trained}
        declared, n = self._ends(source, mix, 0)
        base = mix.get("initial", {}).get(source.name, 0) / weight
        return Slow(source.name, cost[mix.get("cost") or usual], n, weight, declared, base)

    def _ends(self, source: SlowSource, mix, shown: int) -> tuple[int | None, int | None]:
        """How many items exhaust a source, and how many it may show."""
        declared, cap = self._end_of(source), mix.get("max_epochs")
        cap = cap.get(source.name) if isinstance(cap, dict) else cap
        most = None
        if cap is not None:
            whole = int(cap)
            begin, end = source.end_of(whole), source.end_of(whole + 1)
            most = max(shown, begin + int((cap - whole) * (end - begin) + 1e-9))
            declared = most if declared is None else min(most, declared)
        return declared, declared if mix["stop"] == "all_exhausted" else most


def _one(item: int) -> int:
    return 1


def stored(pieces: list[Piece]) -> int:
    """Stored tokens of a row in its frame."""
    cells = [(p.at + i, o) for p in pieces for i, o in enumerate(p.offsets)]
    return sum(offset >= 0 and column < SEQ_LEN for column, offset in cells)


def chosen_documents(source: Source, known) -> list[int]:
    if source.choice == "all":
        return list(range(len(known.documents)))
    found: list[int] = CHOICES[source.choice](known.store).indices.tolist()
    return found
