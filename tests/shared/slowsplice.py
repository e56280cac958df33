"""Splicing with lists and loops: what the fast layout must equal.

A document is a list of cells, BOS first where one is inserted; a splice is (t, cells, s); a row is
a list of (document place, t, cells, s). Nothing here asks the code under test anything.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace

from slow_orders import GOLDEN, hash_sort, slow_child, slow_draw, slow_key

DEFAULTS = {
    "mode": "splice", "content_start_mode": "coverage_balanced", "placement": "fit",
    "content_length": None, "content_stride": 1, "offset_stride": 1, "min_copy_len": 2,
    "include_tail": False, "adaptive_k": True, "balance_mode": "by_temperature",
    "balance_tau": 1, "balance_measure": None, "epoch_length": None, "max_epochs": None,
    "doc_weights": None, "doc_strides": None, "doc_groups": None, "doc_alphas": None, "alpha": 0.0,
    "edge_mode": "continuous", "offset_jitter": 0, "jitter_mode": "uniform", "grid": None,
    "shuffle_content": False, "shuffle_offsets": False, "shuffle_per_epoch": True,
    "content_seed": 0, "offset_seed": 0, "doc_growth": None, "doc_schedule": None,
    "roll_loss": False, "eos_id": None, "bos_id": None,
}  # fmt: skip


def spec_of(seq_len, **settings):
    """All settings of a splice, those that are left out as they are by default."""
    spec = SimpleNamespace(**{**DEFAULTS, **settings, "seq_len": seq_len})
    relative = settings.get("position_scheme") == "relative"
    spec.edge = settings.get("edge") or ("clip" if relative else "inside")
    spec.fill = settings.get("fill") or ("pack" if relative else "one")
    balanced = spec.content_start_mode == "coverage_balanced"
    is_share = balanced and spec.mode == "splice" and not spec.grid
    spec.sampler = settings.get("sampler") or ("quota" if is_share else "enumerate")
    spec.balance_measure = spec.balance_measure or ("starts" if spec.edge == "clip" else "length")
    return spec


# -- the choices of a document --------------------------------------------------------------


def slow_starts(length, spec, content_length, stride):
    """The splices of every start of a document: lists of (t, offsets into the document, s)."""
    content = min(content_length or spec.seq_len, spec.seq_len)
    if spec.grid:
        return slow_grid(length, spec, content, content_length, stride)
    if spec.content_start_mode != "coverage_balanced" and spec.mode == "splice":
        return slow_sweeps(length, spec, content, stride)
    return [[one] for one in slow_windows(length, spec, content, content_length, stride)]


def slow_windows(length, spec, content, asked, stride):
    """One offset for each start."""
    size, least = spec.seq_len, spec.min_copy_len
    must_fit = asked is not None or spec.mode == "slide"  # else K = min(S, L): all fit
    if min(content, length) < least or (must_fit and not spec.adaptive_k and length < content):
        return []
    if spec.edge == "clip":  # K as asked, also where the document is shorter
        found = []
        for t in range(least - content, length - least + 1, stride):
            inside = [i for i in range(t, t + content) if 0 <= i < length]
            found.append((t, inside, size - content + inside[0] - t))
        return found
    content = min(content, length)
    starts = list(range(0, length - content + 1, stride))
    if spec.include_tail and starts[-1] != length - content:
        starts.append(length - content)
    return [(t, list(range(t, t + content)), size - content) for t in starts]


def slow_grid(length, spec, content, asked, stride):
    """A few starts and offsets, evenly spaced from the first to the last."""
    every = slow_windows(length, spec, content, asked, stride)
    starts, offsets = min(spec.grid[0], len(every)), spec.grid[1]
    found = []
    for i in range(starts):
        t, inside, _ = every[i * (len(every) - 1) // max(starts - 1, 1)]
        room = spec.seq_len - len(inside)
        many = min(offsets, room + 1)
        found.append([(t, inside, j * room // max(many - 1, 1)) for j in range(many)])
    return found


def slow_sweeps(length, spec, content, stride):
    """Many offsets for each start."""
    size, least = spec.seq_len, spec.min_copy_len
    found = []
    for t in range(0, length, stride):
        if t and spec.content_start_mode == "anchor_start":
            break
        ring = spec.content_start_mode == "cyclic_roll"
        have = [(t + i) % length if ring else t + i for i in range(content)]
        have = [i for i in (have[:length] if ring else have) if i < length]
        offsets = []
        for s in range(0, size, spec.offset_stride):
            put = have[: size - s]
            if spec.placement == "fit" and len(put) < len(have):
                break
            if len(put) >= least:
                offsets.append((t, put, s))
        if offsets:
            found.append(offsets)
    return found


def edge_distance(x, length, content, stride):
    """Tokens from start x to the nearer end, at most K; 1 at the ends."""
    t = min(x * stride, length - content)
    return min(t + 1, length - content - t + 1, content)


def slow_copies(document, count, length, content, alpha, stride, spec):
    """Numbers of choices, those near the ends twice with probability (w - 1) / (w_max - 1)."""
    stream = slow_child(slow_key(spec.content_seed, "splice", "duplicates"), document)
    found, most = [], float(content) ** alpha
    for x in range(count):
        weight = (content / edge_distance(x, length, content, stride)) ** alpha
        chance = (weight - 1) / (most - 1) if most > 1 else 0.0
        twice = alpha > 0 and slow_draw(stream, x) / 2.0**64 < chance
        found += [x] * (1 + twice)
    return found


def slow_pairs(choices, spec, most):
    """How many clipped choices share the space of one: x with the choice `pairs` from the end."""
    if spec.edge != "clip" or spec.fill != "pack":
        return 0
    pairs = 0
    while True:  # the longest prefix of left parts that can take right parts from the end, in order
        more = pairs + 1
        right = choices[len(choices) - more :]
        fits = all(
            len(a[1]) + len(b[1]) <= most for a, b in zip(choices[:more], right, strict=False)
        )
        if 2 * more > len(choices) or not fits:
            return pairs
        pairs = more


# -- which choice comes when ----------------------------------------------------------------


def slow_weights(starts, length, content, content_most, alpha, stride):
    """Integer weights of the starts of a document: (K / d)^alpha, in units that fit 30 bits."""
    if content < content_most:
        return [1]  # a document shorter than K has a single choice
    ends = sum((content / d) ** alpha for d in range(1, content + 1))
    total = (length - content) / stride + 1 + 2 * ends
    scale = 2.0 ** min(10, 30 - math.ceil(math.log2(max(2.0, total))))
    distances = [edge_distance(x, length, content, stride) for x in range(starts)]
    return [max(1, round((content / d) ** alpha * scale)) for d in distances]


def slow_even(count, quota, epoch):
    """Evenly spaced choices; each epoch shifts the points."""
    common = math.gcd(count, quota)
    shift = (count // 2 // common * common + epoch * quota) % count
    return [(k * count + shift) // quota for k in range(quota)]


def slow_edged(weights, quota, epoch):
    """Evenly spaced points on a line of weights; each epoch shifts them by a golden step."""
    total = sum(weights)
    step = max(total * (GOLDEN >> 32) >> 32, 1)
    while math.gcd(step, total) != 1:
        step += 1
    shift = (total // 2 + epoch * step) % total
    found = []
    for k in range(quota):
        point, x = (k * total + shift) // quota, 0
        while point >= weights[x]:
            point, x = point - weights[x], x + 1
        found.append(x)
    return found


# -- quotas ---------------------------------------------------------------------------------


def slow_quotas(weights, total, caps=None):
    """Largest remainders; what a capped document cannot take goes to the others."""
    weights = [Fraction(weight) for weight in weights]
    if caps is not None:
        total = min(total, sum(cap for cap, weight in zip(caps, weights, strict=True) if weight))
    fixed = {}
    while True:
        free = [i for i in range(len(weights)) if i not in fixed and weights[i]]
        if not free:
            break
        left, mass = total - sum(fixed.values()), sum(weights[i] for i in free)
        exact = {i: left * weights[i] / mass for i in free}
        shares = {i: math.floor(exact[i]) for i in free}
        rest = sorted(free, key=lambda i: (-(exact[i] - shares[i]), i))
        for i in rest[: left - sum(shares.values())]:
            shares[i] += 1
        over = [i for i in free if caps is not None and shares[i] > caps[i]]
        if not over:
            fixed.update(shares)
            break
        fixed.update({i: caps[i] for i in over})
    return [fixed.get(i, 0) for i in range(len(weights))]


def slow_framed(heat, frames, caps, many):
    """Quotas that fill exactly `frames`: first frames to groups, then slots to documents.

    Documents that share frames are a group; one that has its frames alone is a group of its own.
    """
    groups = {}
    for i, m in enumerate(many):
        groups.setdefault(("shared", m) if m > 1 else i, []).append(i)
    mass = [sum(Fraction(heat[i]) for i in own) / many[own[0]] for own in groups.values()]
    most = None
    if caps is not None:
        held = [sum(caps[i] for i in own if heat[i]) for own in groups.values()]
        most = [-(-h // many[own[0]]) for h, own in zip(held, groups.values(), strict=True)]
    quota = [0] * len(heat)
    for own, share in zip(groups.values(), slow_quotas(mass, frames, most), strict=True):
        inside = None if caps is None else [caps[i] for i in own]
        units = slow_quotas([heat[i] for i in own], share * many[own[0]], inside)
        for i, unit in zip(own, units, strict=True):
            quota[i] = unit
    return quota


def slow_shares(measure, spec):
    """The integer weight of every document."""
    tau = {"by_coverage": 1, "by_document": 0}.get(spec.balance_mode, spec.balance_tau)
    if spec.doc_weights is None and spec.doc_groups is None and tau in (0, 1):
        return [m if tau else int(m > 0) for m in measure]
    top = max(measure) or 1
    heat = [(m / top) ** tau if m else 0.0 for m in measure]
    if spec.doc_weights:
        heat = [h * w for h, w in zip(heat, spec.doc_weights, strict=True)]
    if spec.doc_groups:
        mass = dict.fromkeys(spec.doc_groups, 0.0)
        for h, g in zip(heat, spec.doc_groups, strict=True):
            mass[g] += h
        heat = [h / (mass[g] or 1.0) for h, g in zip(heat, spec.doc_groups, strict=True)]
    scale = 2.0**40 / max(heat) if max(heat) else 0.0
    return [max(1, round(h * scale)) if h > 0 else 0 for h in heat]


# -- epochs ---------------------------------------------------------------------------------


@dataclass
class SlowDocument:
    """What a document can show, and how often in an epoch.

    Attributes:
        starts: the splices of every start, each with its offsets.
        shown: which choice each unit shows; choices are numbered start by start.
        weights: of the units, if they differ.
    """

    number: int
    length: int
    content: int
    starts: list
    pairs: int
    shown: list
    quota: int = 0
    weights: list | None = None
    counts: dict = field(default_factory=dict)

    @property
    def choices(self):
        return [one for start in self.starts for one in start]


class SlowPhase:
    """Epochs in which the same documents are spliced with the same K.

    Args:
        lengths: tokens of each document.
        numbers: its number in the store.
        spec: see `spec_of`; lists have a value for each document.
        content_length: K.
        active: how many documents take part.
    """

    def __init__(self, lengths, numbers, spec, content_length, active):
        self.spec, self.content_length = spec, content_length
        self.documents = [
            self._document(place, length if place < active else 0, numbers[place])
            for place, length in enumerate(lengths)
        ]
        self.wraps = spec.balance_mode == "by_document" and not (
            spec.doc_weights or spec.doc_groups or spec.epoch_length or spec.max_epochs
        )
        for document, quota in zip(self.documents, self._quotas(), strict=True):
            document.quota = quota
        self._weigh()

    def _of(self, name, place, usual):
        values = getattr(self.spec, name)
        return usual if values is None else values[place]

    def _document(self, place, length, number):
        spec = self.spec
        stride = self._of("doc_strides", place, spec.content_stride)
        length = length + (spec.bos_id is not None) if length else 0
        starts = slow_starts(length, spec, self.content_length, stride) if length else []
        size = min(self.content_length or spec.seq_len, spec.seq_len)
        content = (size if spec.edge == "clip" else min(size, length)) if starts else 0
        choices = [one for start in starts for one in start]
        pairs = slow_pairs(choices, spec, min(size, length))
        shown = list(range(len(choices) - pairs))
        alpha = self._of("doc_alphas", place, spec.alpha)
        if spec.edge_mode == "duplicate" and starts:
            shown = slow_copies(number, len(choices), length, content, alpha, stride, spec)
        return SlowDocument(number, length, content, starts, pairs, shown)

    def together(self, document):
        """How many units of a document fit into a frame: a unit takes the cells that it has."""
        cells = max(1, min(document.content, document.length))
        return self.spec.seq_len // cells if self.spec.fill == "pack" else 1

    def _quotas(self):
        spec, counts = self.spec, [len(one.shown) for one in self.documents]
        if self.wraps:
            return [max(counts) if count else 0 for count in counts]
        if spec.sampler == "enumerate":
            return counts
        by_starts = spec.balance_mode == "by_coverage" or spec.balance_measure == "starts"
        lengths = [one.length if one.shown else 0 for one in self.documents]
        heat = slow_shares(counts if by_starts else lengths, spec)
        caps = None
        if spec.max_epochs is not None:
            caps = [math.floor(count * spec.max_epochs) for count in counts]
        if spec.epoch_length is not None:
            many = [self.together(one) for one in self.documents]
            return slow_framed(heat, spec.epoch_length, caps, many)
        return slow_quotas(heat, sum(counts) * self._rounds(heat, counts), caps)

    def _rounds(self, heat, counts):
        once = sum(counts)
        exact = all(once * weight % max(1, sum(heat)) == 0 for weight in heat)
        if self.spec.sampler != "stream" or exact:
            return 1
        return -(-1000 * (math.isqrt(sum(count > 0 for count in counts)) + 1) // once)

    def _weigh(self):
        spec, most = self.spec, max(one.content for one in self.documents)
        if spec.edge_mode != "continuous" or spec.sampler == "enumerate":
            return
        for place, one in enumerate(self.documents):
            alpha = self._of("doc_alphas", place, spec.alpha)
            stride = self._of("doc_strides", place, spec.content_stride)
            if alpha > 0 and one.content > 1:
                one.weights = slow_weights(
                    len(one.shown), one.length, one.content, most, alpha, stride
                )

    def turns(self, document, epoch):
        """Which of the shown choices each unit of an epoch shows."""
        count, quota = len(document.shown), document.quota
        if not quota or not count:
            return []
        if document.weights is not None:
            return slow_edged(document.weights, quota, epoch)
        if self.wraps:
            return [(epoch * quota + k) % count for k in range(quota)]
        return slow_even(count, quota, epoch)

    def units(self, document, epoch):
        """The splices of every unit of an epoch."""
        found, seen = [], {}
        if self.spec.offset_jitter:
            for before in range(epoch):
                for x in self.turns(document, before):
                    seen[x] = seen.get(x, 0) + 1
        ordered = self._ordered(document, epoch)
        for x in self.turns(document, epoch):
            choice = document.shown[x]
            if document.pairs:
                slots = len(document.shown)
                choice = self._moved(document, choice, slots, epoch)
                some = [document.choices[choice]]
                if choice < document.pairs:
                    some.append(document.choices[choice + slots])
            else:
                some = [self._jittered(document, ordered[choice], choice, seen.get(x, 0))]
                seen[x] = seen.get(x, 0) + 1
            found.append(some)
        return found

    def _jittered(self, document, splice, choice, visit):
        spec, (t, inside, s) = self.spec, splice
        if not spec.offset_jitter or spec.fill == "pack":
            return splice
        many = min(spec.offset_jitter, spec.seq_len - document.content) + 1
        root = slow_key(spec.offset_seed, "splice", "jitter")
        stream = slow_draw(slow_child(root, document.number), choice)
        if spec.jitter_mode == "low_discrepancy":
            shift = (visit + stream % many) % many
        else:
            shift = hash_sort(many, slow_draw(stream, visit // many))[visit % many]
        return t, inside, s - shift

    def _ordered(self, document, epoch):
        """All choices, starts and offsets in the order of this epoch."""
        spec, starts = self.spec, document.starts
        if spec.shuffle_content:
            starts = [
                starts[self._moved(document, p, len(starts), epoch)] for p in range(len(starts))
            ]
        found = []
        for start in starts:
            number = document.starts.index(start)
            for o in range(len(start)):
                if spec.shuffle_offsets:
                    stream = self._stream(spec.offset_seed, "offsets", document, epoch)
                    o = moved(o, len(start), slow_draw(stream, number), spec.shuffle_offsets)
                found.append(start[o])
        return found

    def _moved(self, document, place, count, epoch):
        if not self.spec.shuffle_content:
            return place
        stream = self._stream(self.spec.content_seed, "content", document, epoch)
        return moved(place, count, stream, self.spec.shuffle_content)

    def _stream(self, seed, name, document, epoch):
        stream = slow_child(slow_key(seed, "splice", name), document.number)
        return slow_draw(stream, epoch) if self.spec.shuffle_per_epoch else stream

    def rows(self, epoch):
        """The rows of an epoch: lists of (document place, t, offsets, s)."""
        cells = {}  # splices per frame → units
        for place, document in enumerate(self.documents):
            units = self.units(document, epoch)
            many = self.together(document) if units else 1
            cells.setdefault(many, []).extend((place, unit) for unit in units)
        rows = []
        for many, units in sorted(cells.items()):
            count = -(-len(units) // many)
            golden = (epoch * GOLDEN % 2**64) >> 33
            turn = golden * count >> 31
            for r in range(count):
                row = []
                for j in range(many):
                    unit = j * count + (r + j * turn) % count
                    if unit < len(units):
                        place, splices = units[unit]
                        row += [(place, t, inside, s) for t, inside, s in splices]
                rows.append(side_by_side(row) if self.spec.fill == "pack" else row)
        return rows


def side_by_side(row):
    at, found = 0, []
    for place, t, inside, _ in row:
        found.append((place, t, inside, at))
        at += len(inside)
    return found


@lru_cache(maxsize=1 << 12)
def _table(count, stream):
    return hash_sort(count, stream)


def moved(place, count, stream, how):
    """Where a place goes among `count`, or inside its stretch of `how`."""
    if how is True:
        return _table(count, stream)[place]
    stretch, inside = divmod(place, how)
    begin = stretch * how
    return begin + _table(min(how, count - begin), slow_draw(stream, stretch))[inside]


def slow_stages(spec, documents):
    """(start, K, documents) of every phase; starts are epochs with `doc_growth`, else examples."""

    def last(pairs, begin, usual):
        found = [value for at, value in sorted(pairs.items()) if at <= begin]
        return found[-1] if found else usual

    content = spec.content_length if isinstance(spec.content_length, dict) else {}
    usual = None if content else spec.content_length
    schedules = content, spec.doc_schedule or {}, spec.doc_growth or {}
    stages = []
    for begin in sorted({0, *(at for pairs in schedules for at in pairs)}):
        active = last(schedules[1], begin, last(schedules[2], begin, documents))
        stages.append((begin, last(content, begin, usual), active))
    return stages
