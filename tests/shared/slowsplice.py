"""Splicing with lists and loops: what the fast layout must equal.

A document is a list of cells, BOS first where one is inserted; a splice is (document, t, cells, s);
a row is a list of splices. Nothing here asks the code under test anything.
"""

import math
from fractions import Fraction

import numpy as np

BOS = "B"


def edge_weights(length, content_length, alpha, stride=1):
    """``(K / d)^alpha`` of every start, d being its distance to the nearer end, at most K."""
    t = np.arange(0, length - content_length + 1, stride)
    d = np.minimum(np.minimum(t + 1, length - content_length - t + 1), content_length)
    return (content_length / d) ** alpha


def slow_choices(length, spec, content_length, stride):
    """Every (t, offsets into the document, s) of one document, in order."""
    content = min(content_length or spec.seq_len, spec.seq_len)
    if spec.content_start_mode != "coverage_balanced":
        return slow_sweeps(length, spec, content, stride)
    asked = content_length is not None or spec.mode == "slide"  # else K = min(S, L): all fit
    if length < content and asked and not spec.adaptive_k:
        return []
    return slow_windows(length, spec, content, stride)


def slow_windows(length, spec, content, stride):
    """One offset for each start."""
    size, least = spec.seq_len, spec.min_copy_len
    if min(content, length) < least:
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
        for s in range(0, size, spec.offset_stride):
            put = have[: size - s]
            if spec.placement == "fit" and len(put) < len(have):
                break
            if len(put) >= least:
                found.append((t, put, s))
    return found


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


def slow_slots(choices, spec, most):
    """Choices that are shown together: two clipped ones that fit into the space of one."""
    if spec.edge != "clip" or spec.fill != "pack":
        return [[choice] for choice in choices]
    slots = [[choice] for choice in choices]
    # the longest prefix of left parts that can take right parts from the end, in order
    while True:
        pairs = len(choices) - len(slots) + 1
        tries = [
            (slots[i][0], choices[len(choices) - pairs + i]) for i in range(min(pairs, len(slots)))
        ]
        fits = all(len(a[1]) + len(b[1]) <= most for a, b in tries)
        if len(slots) <= pairs or not fits:
            break
        slots = [[choice] for choice in choices[: len(choices) - pairs]]
        for i in range(pairs):
            slots[i].append(choices[len(choices) - pairs + i])
    return slots


def slow_shown(slots, quota, epoch, wraps):
    """What the examples of a document show in an epoch."""
    count = len(slots)
    if not quota or not count:
        return []
    if wraps:
        return [slots[(epoch * quota + k) % count] for k in range(quota)]
    common = math.gcd(count, quota)
    shift = (count // 2 // common * common + epoch * quota) % count
    return [slots[(k * count + shift) // quota] for k in range(quota)]


def slow_together(length, spec, content_length):
    """How many slots of a document fit into a frame: a slot takes the cells that it has."""
    size = min(content_length or spec.seq_len, spec.seq_len, length)
    return spec.seq_len // size if spec.fill == "pack" and size else 1


def slow_plan(lengths, spec, content_length, active, blocks=None):
    """(slots, quota, wraps) of every document."""
    plans = []
    blocks = [0] * len(lengths) if blocks is None else blocks
    for place, length in enumerate(lengths):
        stride = spec.doc_strides[place] if spec.doc_strides else spec.content_stride
        virtual = length + (spec.bos_id is not None) if length else 0
        virtual = virtual if place < active else 0
        content = min(content_length or spec.seq_len, spec.seq_len, virtual)
        choices = slow_choices(virtual, spec, content_length, stride)
        plans.append((virtual, slow_slots(choices, spec, content)))
    counts = [len(slots) for _, slots in plans]
    plain = not (spec.doc_weights or spec.doc_groups or spec.epoch_length or spec.max_epochs)
    wraps = spec.balance_mode == "by_document" and plain
    if wraps:
        quota = [max(counts) if count else 0 for count in counts]
    elif spec.sampler == "enumerate":
        quota = counts
    else:
        starts = spec.balance_mode == "by_coverage" or spec.balance_measure == "starts"
        measure = (
            counts if starts else [v if c else 0 for (v, _), c in zip(plans, counts, strict=True)]
        )
        tau = {"by_coverage": 1, "by_document": 0}.get(spec.balance_mode, spec.balance_tau)
        heat = [Fraction(m**tau) if m else Fraction(0) for m in measure]
        if spec.doc_weights:
            heat = [h * Fraction(w) for h, w in zip(heat, spec.doc_weights, strict=True)]
        if spec.doc_groups:
            mass = {g: Fraction(0) for g in spec.doc_groups}
            for h, g in zip(heat, spec.doc_groups, strict=True):
                mass[g] += h
            heat = [h / (mass[g] or 1) for h, g in zip(heat, spec.doc_groups, strict=True)]
        caps = None
        if spec.max_epochs is not None:
            caps = [math.floor(count * spec.max_epochs) for count in counts]
        if spec.epoch_length is None:
            quota = slow_quotas(heat, sum(counts), caps)
        else:
            many = [slow_together(virtual, spec, content_length) for virtual, _ in plans]
            quota = slow_framed(heat, spec.epoch_length, caps, blocks, many)
    return [slots for _, slots in plans], quota, wraps


def slow_framed(heat, frames, caps, blocks, many):
    """Quotas that fill exactly `frames`: first frames to groups, then slots to documents.

    Documents that share frames are a group; one that has its frames alone is a group of its own.
    """
    groups = {}
    for i, (block, m) in enumerate(zip(blocks, many, strict=True)):
        groups.setdefault((block, m) if m > 1 else i, []).append(i)
    mass = [sum(heat[i] for i in own) / many[own[0]] for own in groups.values()]
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


def slow_rows(lengths, spec, epoch, *, content_length=None, active=None, blocks=None):
    """The rows of an epoch: lists of (document place, t, offsets, s)."""
    active = len(lengths) if active is None else active
    content = spec.content_length if content_length is None else content_length
    blocks = [0] * len(lengths) if blocks is None else blocks
    slots, quota, wraps = slow_plan(lengths, spec, content, active, blocks)
    cells = {}  # (block, splices per frame) → units
    for place in range(len(lengths)):
        virtual = lengths[place] + (spec.bos_id is not None)
        many = slow_together(virtual, spec, content) if quota[place] else 1
        shown = slow_shown(slots[place], quota[place], epoch, wraps)
        cells.setdefault((blocks[place], many), []).extend((place, unit) for unit in shown)
    rows = []
    for (_, many), units in sorted(cells.items()):
        count = -(-len(units) // many)
        golden = (epoch * 0x9E3779B97F4A7C15 % 2**64) >> 33
        turn = golden * count >> 31
        for r in range(count):
            row = []
            for j in range(many):
                unit = j * count + (r + j * turn) % count
                if unit < len(units):
                    place, splices = units[unit]
                    row += [(place, t, inside, s) for t, inside, s in splices]
            if spec.fill == "pack":
                at, side = 0, []
                for place, t, inside, _ in row:
                    side.append((place, t, inside, at))
                    at += len(inside)
                row = side
            rows.append(row)
    return rows


def slow_arrays(rows, documents, spec, render):
    """The arrays of a batch, cell by cell."""
    out = {n: [] for n in ("tokens", "segment_ids", "loss_mask", "position_ids", "attention_mask")}
    for row in rows:
        tokens, segments = [render.pad_id] * spec.seq_len, [0] * spec.seq_len
        trained = [False] * spec.seq_len
        for number, (place, _, inside, s) in enumerate(row, 1):
            whole = documents[place] if spec.bos_id is None else [spec.bos_id, *documents[place]]
            if spec.eos_id is not None and s > 0 and spec.fill == "one":
                tokens[s - 1] = spec.eos_id
            for cell, offset in enumerate(inside, s):
                tokens[cell], segments[cell] = whole[offset], number
                seam = cell > s and offset == 0 and not spec.roll_loss
                if cell > s and not seam:
                    trained[cell - 1] = True
        positions = [
            i if render.position_scheme == "absolute" else _run(segments, i)
            for i in range(spec.seq_len)
        ]
        real = [one > 0 for one in segments]
        prefix = next((i for i, one in enumerate(segments) if one), spec.seq_len)
        last = max((i for i, one in enumerate(segments) if one), default=-1)
        shown = list(segments)
        if render.attend_prefix and last >= 0:
            shown[:prefix] = [segments[prefix]] * prefix
            real[:prefix] = [True] * prefix
        if render.trailing == "doc" and last >= 0:
            shown[last + 1 :] = [segments[last]] * (spec.seq_len - last - 1)
        out["tokens"].append(tokens)
        out["segment_ids"].append(shown)
        out["loss_mask"].append(trained)
        out["position_ids"].append([p + render.position_offset for p in positions])
        out["attention_mask"].append(real)
    return out


def _run(segments, i):
    """Cells of the same segment right before this one."""
    count = 0
    while count < i and segments[i - count - 1] == segments[i]:
        count += 1
    return count
