"""Every entry of the compiled module, slowly: what it must refuse, and what it must answer.

An oracle is given the arguments of a call before it is made. It raises `Refused` if the call must
be refused, and otherwise answers {place of an argument: what it must hold afterwards, or a law of
it}, and under "returned" what must come back.
"""

import bisect
import itertools
import math
import struct
from typing import NamedTuple

import numpy as np
from slow_orders import SlowFeistel, hash_sort, slow_child
from slowpack import slow_bins

MASK = 2**64 - 1
INT32, INT64, UINT64, BOOL = (np.dtype(one) for one in (np.int32, np.int64, np.uint64, np.bool_))
FLOAT64 = np.dtype(np.float64)
CELLS = (INT32, INT64)
TOKENS = tuple(np.dtype(one) for one in (np.uint16, np.uint32, np.int32))


class Refused(Exception):
    """The call must be refused, with this name in the message; None for any."""


class Unknown(Exception):
    """The call may be refused or answered in any way, inside its arrays."""


def need(right, *names):
    if not right:
        raise Refused(names)


def array(value, name, *dtypes, written=False, anywhere=False):
    """An array as C may take it, flat; anything else is refused."""
    need(isinstance(value, np.ndarray), name)
    need(value.dtype in dtypes and value.dtype.isnative and value.dtype.names is None, name)
    need(value.flags.c_contiguous and (value.flags.writeable or not written), name)
    place = value.__array_interface__["data"][0]
    need(anywhere or not value.nbytes or place % value.itemsize == 0, name)
    return value.reshape(-1)


def apart(outputs, others):
    """No output shares a byte with another array."""

    def stretch(value):
        place = value.__array_interface__["data"][0]
        return place, place + value.nbytes

    for name, out in outputs.items():
        for other, value in {**others, **outputs}.items():
            if other != name and out is not None and value is not None:
                (a, b), (c, d) = stretch(out), stretch(value)
                need(a == b or c == d or b <= c or d <= a, name, other)


def integer(value, name, least, most):
    need(isinstance(value, int) and least <= value <= most, name)
    return int(value)


# -- paint ----------------------------------------------------------------------------------
NAMES = ("first", "length", "segment", "segment_ids", "position_ids", "loss_mask", "tokens")
NAMES = (*NAMES, "labels")
KINDS = ((INT64,), (INT64,), (INT32,), (INT32,), (INT32,), (BOOL,), CELLS, CELLS)


def _arrays(args, written, optional):
    """The eight arrays of `paint` and `weave`, and how many tiles and cells they have."""
    found = {}
    for name, kinds, value in zip(NAMES, KINDS, args, strict=True):
        if not (name in optional and value is None):
            found[name] = array(value, name, *kinds, written=name in written)
    outputs = {name: found[name] for name in NAMES if name in found and name in written}
    apart(outputs, {name: found[name] for name in found if name not in outputs})
    first, length, segment = (found[name] for name in NAMES[:3])
    need(len(first) == len(length) == len(segment), "length", "segment")
    sizes = {len(found[name]) for name in NAMES[3:] if name in found}
    need(len(sizes) <= 1, *NAMES[3:])
    if "labels" in found and "tokens" in found:
        need(found["labels"].dtype == found["tokens"].dtype, "tokens", "labels")
    return found, outputs, sizes


def _painted(found, outputs, tokens, tiles, cells, start, ignore):
    """{name: array} of some tiles, the first of which is at cell `start`."""
    done, answer = 0, {name: out.copy() for name, out in outputs.items()}
    for at, count, number in tiles:
        need(at - start == done and 0 <= count <= cells - done, "first", "length")
        part = slice(done, done + count)
        for name, out in answer.items():
            if name == "segment_ids":
                out[part] = number
            elif name == "position_ids":
                out[part] = np.arange(count)
            elif name == "loss_mask":
                out[part] = number != 0
                out[done + count - 1 : done + count] = False
            elif name == "labels":
                out[part] = tokens[part] if number else ignore
                out[done : done + min(count, 1)] = ignore
        done += count
    need(done == cells, "first", "length")
    return answer


def _tiles(found, low, high):
    return zip(*(found[name].tolist()[low:high] for name in NAMES[:3]), strict=True)


def paint(args):
    need(len(args) == 9, "takes")
    ignore = integer(args[8], "ignore", -(2**31), 2**31 - 1)
    written = {*NAMES[3:6], "labels"}
    found, outputs, sizes = _arrays(args[:8], written, NAMES[3:])
    need(("tokens" in found) == ("labels" in found), "tokens", "labels")
    if not sizes:
        return {}
    (cells,) = sizes
    tiles = _tiles(found, 0, None)
    answer = _painted(found, outputs, found.get("tokens"), tiles, cells, 0, ignore)
    return {NAMES.index(name): out for name, out in answer.items()}


# -- Copier ---------------------------------------------------------------------------------
FILES = {}  # the tokens of every payload, by its name


def tokens_of(view):
    """The tokens of a view: an array, or a payload."""
    return view.reshape(-1) if isinstance(view, np.ndarray) else FILES[view.name]


def copier(args):
    need(len(args) == 5, "takes", "argument")
    need(isinstance(args[0], list), "views")
    for number, view in enumerate(args[0]):
        if type(view).__name__ != "Payload":
            array(view, f"views[{number}]", *TOKENS, anywhere=True)
    parts = zip(("which", "low", "length", "cell"), args[1:], strict=True)
    columns = [array(value, name, INT64) for name, value in parts]
    need(len({len(column) for column in columns}) == 1, "length")
    for which, low, length, _ in zip(*(column.tolist() for column in columns), strict=True):
        need(0 <= which < len(args[0]), "which")
        need(low >= 0 and length >= 0 and low + length <= len(tokens_of(args[0][which])), "low")
    return {}


def of_rows(args):
    need(len(args) == 8, "takes")
    integer(args[7], "width", 0, 2**31 - 1)
    need(isinstance(args[0], list), "views")
    for number, view in enumerate(args[0]):
        if type(view).__name__ != "Payload":
            array(view, f"views[{number}]", *TOKENS, anywhere=True)
    names = ("which", "first", "edges", "address", "length", "at")
    flat = [array(value, name, INT64) for name, value in zip(names, args[1:7], strict=True)]
    which, first, edges, address, length, at = flat
    need(len(address) == len(length) == len(at), "address")
    need(len(first) == len(args[0]) and len(edges) == len(which) + 1, "first", "edges")
    need(not edges[0], "edges")
    done = 0
    for row, view in enumerate(which.tolist()):
        stop = int(edges[row + 1])
        need(0 <= view < len(args[0]) and done <= stop <= len(address), "which", "edges")
        for run in range(done, stop):
            low, count = int(address[run]) - int(first[view]), int(length[run])
            need(-(2**63) <= int(at[run]) + row * args[7] < 2**63, "address")
            need(low >= 0 and count >= 0, "address")
            need(low + count <= len(tokens_of(args[0][view])), "address")
        done = stop
    need(done == len(address), "edges")
    return {}


def runs_of_rows(made):
    """The arguments of `Copier` for the same runs."""
    views, which, first, edges, address, length, at, width = made
    row = np.repeat(np.arange(len(which)), np.diff(edges))
    view = which[row]
    return [views, view, address - first[view], length, row * width + at]


def _part(made, args):
    first, last, base, filler = args
    for name, value in (("first", first), ("last", last), ("base", base)):
        integer(value, name, -(2**63), 2**63 - 1)
    integer(filler, "filler", -(2**31), 2**31 - 1)
    need(0 <= first <= last <= made[1].size, "first")


def _copied(made, part, cells, dtype):
    first, last, base, filler = part
    answer, done = np.full(cells, filler, dtype), 0
    columns = (column.reshape(-1)[first:last].tolist() for column in made[1:])
    for which, low, length, cell in zip(*columns, strict=True):
        need(done <= cell - base and cell - base + length <= cells, "out")
        done = cell - base + length
        answer[cell - base : done] = tokens_of(made[0][which])[low : low + length].astype(dtype)
    return answer


def _views(made):
    named = {f"views[{n}]": view for n, view in enumerate(made[0])}
    return {name: view for name, view in named.items() if isinstance(view, np.ndarray)}


def fill(made, args):
    """`made` are the arguments of the copier, as they were then."""
    need(len(args) == 5, "takes")
    _part(made, args[1:])
    flat = array(args[0], "out", *CELLS, written=True)
    apart({"out": flat}, _views(made))
    return {0: _copied(made, args[1:], len(flat), flat.dtype), "returned": None}


def weave(made, args):
    need(len(args) == 16, "takes")
    _part(made, args[:4])
    tile = integer(args[4], "tile", 0, 2**63 - 1)
    last = integer(args[5], "tiles", 0, 2**63 - 1)
    start = integer(args[6], "start", -(2**63), 2**63 - 1)
    ignore = integer(args[7], "ignore", -(2**31), 2**31 - 1)
    written = {*NAMES[3:]}
    found, outputs, (cells,) = _arrays(args[8:], written, {*NAMES[3:]} - {"tokens"})
    tokens = _copied(made, args[:4], cells, found["tokens"].dtype)
    for name, out in outputs.items():
        apart({name: out}, _views(made))
    need(tile <= last <= len(found["first"]), "tile", "tiles")
    tiles = list(_tiles(found, tile, last))
    answer = _painted(found, outputs, tokens, tiles, cells, start, ignore)
    answer["tokens"] = tokens
    trained = any(number and count > 1 for _, count, number in tiles)
    return {**{8 + NAMES.index(name): out for name, out in answer.items()}, "returned": trained}


def announce(made, args):
    need(len(args) == 1, "takes")
    integer(args[0], "sample", 1, 2**63 - 1)
    return {}


# -- tile ------------------------------------------------------------------------------------
def tile(args):
    need(len(args) == 10, "takes")
    width = integer(args[9], "width", 1, 2**31 - 1)
    names = ["frame", "at", "length", "start", "flags", "first", "cells", "segment", "continues"]
    kinds = [(INT64,)] * 4 + [tuple(np.dtype(one) for one in "Bb?")] + [(INT64,)] * 2
    kinds += [(INT32,), (BOOL,)]
    found = {}
    for name, kind, value in zip(names, kinds, args, strict=False):
        found[name] = array(value, name, *kind, written=name in names[5:])
    outputs = {name: found[name] for name in names[5:]}
    apart(outputs, {name: found[name] for name in names[:5]})
    frame, at, length, start, flags = (found[name] for name in names[:5])
    need(len(at) == len(length) == len(start) == len(flags), "frame")
    need(len({len(out) for out in outputs.values()}) == 1 and len(frame), "frame")
    made, room, done = [], len(outputs["first"]), 0
    for row in range(len(frame) - 1):
        cell, segment, last = 0, 0, int(frame[row + 1])
        need(done <= last <= len(at) and 2 * (last - done) + 1 <= room - len(made), "frame")
        for span in range(done, last):
            flag, begin, cells = int(flags.view(np.uint8)[span]), int(at[span]), int(length[span])
            need(cell <= begin <= width and cells >= 0, "frame")
            cells += (flag & 1) + ((flag & 2) >> 1)
            need(begin + cells <= width, "frame")
            if flag & 8 and segment and begin == cell:
                made[-1][1] += cells
            else:
                if begin > cell:
                    made.append([row * width + cell, begin - cell, 0, False])
                segment += 1
                goes_on = int(start[span]) > 0 or bool(flag & 4)
                made.append([row * width + begin, cells, segment, goes_on])
            cell = begin + cells
        if cell < width:
            made.append([row * width + cell, width - cell, 0, False])
        done = last
    need(done == len(at), "frame")
    answer = {"returned": len(made)}
    for place, name in enumerate(names[5:]):
        out = outputs[name].copy()
        out[: len(made)] = [one[place] for one in made]
        answer[5 + place] = out
    return answer


# -- cut -------------------------------------------------------------------------------------
def cut(args):
    need(len(args) == 10, "takes")
    names = ["base", "number", "start", "stop", "edges", "document", "begin", "length", "address"]
    found = {}
    for name, value in zip(names, args[1:], strict=True):
        found[name] = array(value, name, INT64, written=name in names[4:])
    outputs = {name: found[name] for name in names[4:]}
    apart(outputs, {name: found[name] for name in names[:4]})
    need(isinstance(args[0], list), "chunks", "object")
    base, number, start, stop = (found[name].tolist() for name in names[:4])
    room = len(outputs["document"])
    need(len(args[0]) == len(base) == len(number), "chunks")
    need(len(start) == len(stop) == len(outputs["edges"]) - 1, "chunks")
    need(all(len(outputs[name]) == room for name in names[5:]), "chunks")
    before, documents = None, []
    for place, chunk in enumerate(args[0]):
        offsets = array(chunk, "chunks", np.dtype(np.uint32)).tolist()
        need(len(offsets) > 1 and 0 <= base[place] < 2**62 and 0 <= number[place] < 2**62, "chunks")
        need(offsets[0] <= offsets[-1], "chunks")
        need(before is None or base[place] + offsets[0] >= before, "chunks")
        apart(outputs, {"chunks": chunk})
        before = base[place] + offsets[0]
        documents.append((base[place], number[place], offsets))
    edges, made = [0], []
    for low, high in zip(start, stop, strict=True):
        which = max((i for i, (b, _, o) in enumerate(documents) if b + o[0] <= low), default=None)
        need(which is not None, "start")
        while low < high:
            need(which < len(documents), "start")
            first, document, offsets = documents[which]
            if low == first + offsets[0] == first + offsets[-1]:
                which += 1
                continue
            need(first + offsets[0] <= low < first + offsets[-1], "start")
            if any(a > b for a, b in itertools.pairwise(offsets)):
                raise Unknown
            for i, (a, b) in enumerate(itertools.pairwise(offsets)):
                if first + a <= low < min(first + b, high):
                    end = min(first + b, high)
                    made.append((document + i, low - first - a, end - low, low))
                    low = end
            which += 1
        edges.append(len(made))
    answer = {"returned": len(made), 5: np.array(edges)}
    for place, name in enumerate(names[5:]):
        out = outputs[name].copy()
        kept = [one[place] for one in made[:room]]
        out[: len(kept)] = kept
        answer[6 + place] = out
    return answer


# -- gather ----------------------------------------------------------------------------------
def gather(args):
    need(len(args) == 5, "takes")
    column = array(args[0], "column", *(np.dtype(one) for one in "BHILQ"), anywhere=True)
    first, count = array(args[1], "first", INT64), array(args[2], "count", INT64)
    base = None if args[3] is None else array(args[3], "base", INT64)
    out = array(args[4], "out", INT64, written=True)
    apart({"out": out}, {"column": column, "first": first, "count": count, "base": base})
    need(len(first) == len(count) and (base is None or len(base) == len(first)), "first", "base")
    made = []
    for row, (low, some) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        need(0 <= low <= len(column) and 0 <= some <= len(column) - low, "first", "count")
        add = 0 if base is None else int(base[row])
        made += [int(value) + add for value in column[low : low + some]]
        need(len(made) <= len(out), "out")
    need(len(made) == len(out), "out")
    wrapped = [(value + 2**63) % 2**64 - 2**63 for value in made]
    return {4: np.array(wrapped, np.int64)}


# -- payloads -------------------------------------------------------------------------------
PAGE = 4096


def payload(size, args):
    """`size` is that of the file, in bytes."""
    need(len(args) == 8, "argument")
    fd, count, letter, sums, checked, keep, mapped, name = args
    integer(fd, "fd", 0, 2**31 - 1)
    integer(count, "bytes", 0, 2**63 - 1)
    need(isinstance(letter, str) and letter in ("H", "i", "I"), "letter")
    for flag in (keep, mapped):
        try:
            bool(flag)
        except (TypeError, ValueError):
            raise Refused(("truth",)) from None
    need(isinstance(name, str), "name")
    need(count <= size and count % (2 if letter == "H" else 4) == 0, "bytes")
    if sums is not None:
        array(sums, "sums", np.dtype(np.uint32))
    if checked is not None:
        array(checked, "checked", *(np.dtype(one) for one in "Bb?"), written=True)
    if sums is not None and checked is not None:
        apart({"checked": checked}, {"sums": sums})
    need((sums is None) == (checked is None), "sums", "checked")
    pages = -(-count // PAGE)
    need(sums is None or (sums.size == pages and checked.size == pages), "sums", "checked")
    return {}


def crc32c(args):
    need(len(args) == 2, "takes")
    integer(args[1], "plain", 0, 1)
    crc = MASK >> 32
    for byte in array(args[0], "data", *(np.dtype(one) for one in "Bb?")).tobytes():
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return {"returned": crc ^ MASK >> 32}


# -- packers --------------------------------------------------------------------------------
def _packer(args, strategy):
    need(len(args) == 4, "takes")
    capacity = integer(args[1], "capacity", 1, 2**31 - 1)
    most = integer(args[2], "most", 1, 2**63 - 1)
    lengths = array(args[0], "lengths", INT64)
    out = array(args[3], "out", INT64, written=True)
    apart({"out": out}, {"lengths": lengths})
    need(len(lengths) == len(out), "out")
    need(all(0 <= length <= capacity for length in lengths.tolist()), "lengths")
    answer = np.zeros(len(out), np.int64)
    for number, items in enumerate(slow_bins(lengths.tolist(), capacity, strategy, most)):
        answer[items] = number
    return {3: answer}


def best_fit(args):
    return _packer(args, "best_fit")


def first_fit(args):
    return _packer(args, "first_fit")


# -- feistel --------------------------------------------------------------------------------
def feistel(args):
    need(len(args) == 7, "takes")
    x, which, keys, n, side, backwards, out = args
    try:
        backwards = bool(backwards)
    except (TypeError, ValueError):
        raise Refused(("backwards",)) from None
    integer(n, "n", 1, 2**63)
    integer(side, "side", 1, min(n, 2**32 - 1))
    other = -(-n // side)
    need(other < 2**32, "side")
    words = array(x, "x", UINT64)
    columns = None if which is None else array(which, "which", INT64, UINT64)
    rows = array(keys, "keys", UINT64)
    flat = array(out, "out", UINT64, written=True)
    named = {"x": words, "which": columns, "keys": rows}
    apart({"out": flat}, named)
    need(len(words) == len(flat) and len(rows) % 8 == 0, "x", "keys")
    need(columns is None or len(columns) == len(words), "which")
    count = len(rows) // 8
    table = [[int(key) for key in row] for row in rows.reshape(8, count)]
    places = [0] * len(words) if columns is None else columns.tolist()
    need(all(0 <= place < count for place in places), "which")
    need(all(int(word) < n for word in words), "x")
    answer = []
    for word, place in zip(words.tolist(), places, strict=True):
        network = Network(n, side, [row[place] for row in table])
        answer.append(network.inverse(word) if backwards else network.forward(word))
    return {6: np.array(answer, np.uint64)}


class Network(SlowFeistel):
    """With a side and keys that are given."""

    def __init__(self, n, side, keys):
        self.n, self.a, self.b, self.keys = n, side, -(-n // side), keys


# -- hash_rank ------------------------------------------------------------------------------
def hash_rank(args):
    need(len(args) == 5, "takes")
    keys, sizes, x, backwards, out = args
    try:
        backwards = bool(backwards)
    except (TypeError, ValueError):
        raise Refused(("backwards",)) from None
    streams, counts = array(keys, "keys", UINT64), array(sizes, "sizes", INT64)
    words, flat = array(x, "x", UINT64), array(out, "out", UINT64, written=True)
    apart({"out": flat}, {"keys": streams, "sizes": counts, "x": words})
    need(len(streams) == len(counts) == len(words) == len(flat), "keys", "sizes", "x", "out")
    need(all(1 <= n <= 4096 for n in counts.tolist()), "sizes")
    need(all(int(w) < n for w, n in zip(words, counts.tolist(), strict=True)), "x")
    answer = []
    for key, n, word in zip(streams.tolist(), counts.tolist(), words.tolist(), strict=True):
        order = hash_sort(n, key)
        answer.append(order.index(word) if backwards else order[word])
    return {4: np.array(answer, np.uint64)}


# -- Merger ----------------------------------------------------------------------------------
GIVEN = ("weight", "base", "ref", "cost", "first", "end", "ties")


def truth(value, *names):
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise Refused((*names, "truth")) from None


def merger(args):
    need(len(args) == 9, "takes", "argument")
    kinds = (FLOAT64, FLOAT64, INT64, INT64, INT64, INT64, UINT64)
    found = [
        array(one, *two) for one, two in zip(args[:7], zip(GIVEN, kinds, strict=True), strict=True)
    ]
    truth(args[7]), truth(args[8])
    need(len({len(one) for one in found}) == 1 and len(found[0]), *GIVEN)
    for weight, base, ref, cost, first, end, _ in zip(*map(np.ndarray.tolist, found), strict=True):
        need(0 < weight < 1e300, "weight")
        need(-1e300 < base < 1e300, "base")
        need(0 <= ref <= 2**61, "ref")
        need(0 <= cost <= 2**53, "cost")
        need(0 <= end <= 2**62, "end")
        need(0 <= first <= min(end, 2**61 // cost if cost else end), "first")
    return {}


class Clock(NamedTuple):
    """A source of a merger; what its items are is said by `time` and `key` alone."""

    weight: float
    base: float
    ref: int
    cost: int
    first: int
    end: int
    tie: int
    number: int
    midpoint: bool
    listed: bool

    @property
    def limit(self):
        return min(self.end, 2**61 // self.cost) if self.cost else self.end

    def time(self, item):
        begin = item * self.cost - self.ref
        if self.midpoint:
            return self.base + float(2 * begin + self.cost) / (2 * self.weight)
        return self.base + float(begin) / self.weight

    def key(self, time):
        """The order of items of several sources."""
        (bits,) = struct.unpack("<Q", struct.pack("<d", time))
        tie = 0 if self.listed else slow_child(self.tie, bits)
        return time, tie, self.number

    def before(self, moment):
        return max(self.first, bisect.bisect_left(range(self.limit), moment, key=self.time))


def clocks(made):
    columns = [one.reshape(-1).tolist() for one in made[:7]]
    flags = bool(made[7]), bool(made[8])
    return [Clock(*row, at, *flags) for at, row in enumerate(zip(*columns, strict=True))]


def counts(made, args):
    """`made` are the arguments of the merger, as they were then."""
    need(len(args) == 2, "takes")
    need(not isinstance(args[0], (str, bytes, bytearray)), "moment")
    try:
        moment = float(args[0])
    except (TypeError, ValueError, OverflowError):
        raise Refused(("moment",)) from None
    out, known = array(args[1], "out", INT64, written=True), clocks(made)
    need(len(out) == len(known), "out")
    if math.isnan(moment):
        raise Unknown
    pairs = zip(known, out.tolist(), strict=True)
    return {1: [one.before(moment) if one.cost else old for one, old in pairs]}


def merged(made, args):
    """What `Merger.cut` gives: the last items before the index come before the next ones."""
    need(len(args) == 2, "takes")
    index, known = integer(args[0], "index", 0, 2**53), clocks(made)
    need(all(one.cost for one in known), "cut")
    out = array(args[1], "out", INT64, written=True)
    need(len(out) == len(known), "out")
    total = min(max(index, sum(c.first for c in known)), sum(c.limit for c in known))

    def law(found):
        pairs = list(zip(known, found.tolist(), strict=True))
        last = [one.key(one.time(at - 1)) for one, at in pairs if at > one.first]
        rest = [one.key(one.time(at)) for one, at in pairs if at < one.limit]
        inside = all(one.first <= at <= one.limit for one, at in pairs)
        in_order = not last or not rest or max(last) <= min(rest)
        return inside and in_order and sum(at for _, at in pairs) == total

    return {1: law}


def take(made, args):
    need(len(args) == 5, "takes")
    names, kinds = ("counts", "edges", "times", "source", "item"), "iifii"
    found = {}
    for name, kind, value in zip(names, kinds, args, strict=True):
        if value is not None or name not in ("edges", "times"):
            kind = INT64 if kind == "i" else FLOAT64
            found[name] = array(value, name, kind, written=name in ("counts", "source", "item"))
    outputs = {name: found[name] for name in ("counts", "source", "item")}
    apart(outputs, {name: found[name] for name in found if name not in outputs})
    known, edges = clocks(made), found.get("edges")
    need(len(outputs["counts"]) == len(known), "counts")
    need(len(outputs["source"]) == len(outputs["item"]), "source", "item")
    need(edges is None or len(edges) == len(known) + 1, "edges")
    need(all(one.cost for one in known) or {"edges", "times"} <= set(found), "edges", "times")
    at, waiting = outputs["counts"].tolist(), []
    for i, one in enumerate(known):
        need(0 <= at[i] <= one.limit, "counts")
        if one.cost:
            waiting.append(map(one.time, range(at[i], one.limit)))
            continue
        low, high = int(edges[i]), int(edges[i + 1])
        need(0 <= low <= high <= len(found["times"]) and high - low <= one.limit - at[i], "edges")
        waiting.append(iter(found["times"][low:high].tolist()))
        if np.isnan(found["times"][low:high]).any():
            raise Unknown
    keys = [_next(one, times) for one, times in zip(known, waiting, strict=True)]
    answer = [outputs["source"].copy(), outputs["item"].copy()]
    done = 0
    while done < len(answer[0]) and any(keys):
        i = min(filter(None, keys))[2]
        answer[0][done], answer[1][done] = i, at[i]
        at[i], keys[i], done = at[i] + 1, _next(known[i], waiting[i]), done + 1
    return {0: at, 3: answer[0], 4: answer[1], "returned": done}


def _next(clock, times):
    time = next(times, None)
    return None if time is None else clock.key(time)
