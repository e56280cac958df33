"""Every entry of the compiled module, slowly: what it must refuse, and what it must answer.

An oracle is given the arguments of a call before it is made. It raises `Refused` if the call must
be refused, and otherwise answers {place of an argument: what it must hold afterwards}.
"""

import numpy as np

MASK = 2**64 - 1
INT32, INT64, UINT64, BOOL = (np.dtype(one) for one in (np.int32, np.int64, np.uint64, np.bool_))
TOKENS = tuple(np.dtype(one) for one in (np.uint16, np.uint32, np.int32))


class Refused(Exception):
    """The call must be refused, with this name in the message; None for any."""


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
def paint(args):
    need(len(args) == 9, "takes")
    names = ("first", "length", "segment", "segment_ids", "position_ids", "loss_mask", "tokens")
    names = (*names, "labels")
    kinds = (INT64, INT64, INT32, INT32, INT32, BOOL, INT32, INT32)
    ignore = integer(args[8], "ignore", -(2**31), 2**31 - 1)
    found = {}
    for name, kind, value in zip(names, kinds, args, strict=False):
        optional, written = name not in names[:3], name not in (*names[:3], "tokens")
        if optional and value is None:
            continue
        found[name] = array(value, name, kind, written=written)
    outputs = {name: found[name] for name in names[3:] if name in found and name != "tokens"}
    apart(outputs, {name: found[name] for name in found if name not in outputs})
    first, length, segment = (found[name] for name in names[:3])
    need(len(first) == len(length) == len(segment), "length", "segment")
    sizes = {len(found[name]) for name in names[3:] if name in found}
    need(len(sizes) <= 1, *names[3:])
    need(("tokens" in found) == ("labels" in found), "tokens", "labels")
    if not sizes:
        return {}
    (cells,) = sizes
    done, answer = 0, {name: out.copy() for name, out in outputs.items()}
    for at, count, number in zip(first.tolist(), length.tolist(), segment.tolist(), strict=True):
        need(at == done and 0 <= count <= cells - done, "first", "length")
        part = slice(at, at + count)
        for name, out in answer.items():
            if name == "segment_ids":
                out[part] = number
            elif name == "position_ids":
                out[part] = np.arange(count)
            elif name == "loss_mask":
                out[part] = number != 0
                out[at + count - 1 : at + count] = False
            else:
                out[part] = found["tokens"][part] if number else ignore
                out[at : at + min(count, 1)] = ignore
        done += count
    need(done == cells, "first", "length")
    return {names.index(name): out for name, out in answer.items()}


# -- Copier ---------------------------------------------------------------------------------
def copier(args):
    need(len(args) == 5, "takes", "argument")
    need(isinstance(args[0], list), "views")
    for number, view in enumerate(args[0]):
        array(view, f"views[{number}]", *TOKENS, anywhere=True)
    parts = zip(("which", "low", "length", "cell"), args[1:], strict=True)
    columns = [array(value, name, INT64) for name, value in parts]
    need(len({len(column) for column in columns}) == 1, "length")
    for which, low, length, _ in zip(*(column.tolist() for column in columns), strict=True):
        need(0 <= which < len(args[0]), "which")
        need(low >= 0 and length >= 0 and low + length <= args[0][which].size, "low")
    return {}


def fill(made, args):
    """`made` are the arguments of the copier, as they were then."""
    need(len(args) == 5, "takes")
    out, first, last, base, filler = args
    for name, value in (("first", first), ("last", last), ("base", base)):
        integer(value, name, -(2**63), 2**63 - 1)
    integer(filler, "filler", -(2**31), 2**31 - 1)
    need(0 <= first <= last <= made[1].size, "first")
    flat = array(out, "out", INT32, written=True)
    apart({"out": flat}, {f"views[{n}]": view for n, view in enumerate(made[0])})
    answer, done = np.full(len(flat), filler, np.int32), 0
    columns = (column.reshape(-1)[first:last].tolist() for column in made[1:])
    for which, low, length, cell in zip(*columns, strict=True):
        need(done <= cell - base and cell - base + length <= len(flat), "out")
        done = cell - base + length
        tokens = made[0][which].reshape(-1)[low : low + length]
        answer[cell - base : done] = tokens.astype(np.int32)
    return {0: answer}


# -- packers --------------------------------------------------------------------------------
def _packer(args, chosen):
    need(len(args) == 4, "takes")
    capacity = integer(args[1], "capacity", 1, 2**31 - 1)
    most = integer(args[2], "most", 1, 2**63 - 1)
    lengths = array(args[0], "lengths", INT64)
    out = array(args[3], "out", INT64, written=True)
    apart({"out": out}, {"lengths": lengths})
    need(len(lengths) == len(out), "out")
    rooms, held, answer = [], [], []
    for length in lengths.tolist():
        need(0 <= length <= capacity, "lengths")
        fits = [i for i, room in enumerate(rooms) if room >= length and held[i] < most]
        if not fits:
            fits = [len(rooms)]
            rooms.append(capacity)
            held.append(0)
        place = chosen(fits, rooms)
        rooms[place] -= length
        held[place] += 1
        answer.append(place)
    return {3: np.array(answer, np.int64)}


def best_fit(args):
    return _packer(args, lambda fits, rooms: min(fits, key=lambda i: (rooms[i], -i)))


def first_fit(args):
    return _packer(args, lambda fits, rooms: fits[0])


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
    answer = [
        _walk(int(word), [row[place] for row in table], n, (side, other), backwards)
        for word, place in zip(words, places, strict=True)
    ]
    return {6: np.array(answer, np.uint64)}


def _walk(x, keys, n, sizes, backwards):
    while True:
        halves = list(divmod(x, sizes[1]))
        for at in reversed(range(8)) if backwards else range(8):
            here, size = at % 2, sizes[at % 2]
            mixed = ((halves[1 - here] ^ keys[at]) * 0xBF58476D1CE4E5B9) & MASK
            mixed = ((mixed ^ mixed >> 32) * 0x94D049BB133111EB) & MASK
            moved = (mixed >> 32) * size >> 32
            halves[here] = (halves[here] + (-moved if backwards else moved)) % size
        x = halves[0] * sizes[1] + halves[1]
        if x < n:
            return x


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
        order = sorted(range(n), key=lambda i, key=key: _hashed(key, i))
        answer.append(order.index(word) if backwards else order[word])
    return {4: np.array(answer, np.uint64)}


def _hashed(key, index):
    """A word of the splitmix64 stream of a key, with the index in its low 12 bits."""
    word = (key + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return (word ^ word >> 31) & ~4095 | index
