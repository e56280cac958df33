"""A fuzzer of the compiled module: `python tests/native/fuzz.py --seconds 60 --seed 0`.

Arguments of a valid call are spoiled, then the oracle says whether the call must be refused, naming
which argument, and what it must answer. Outputs lie between guards, which must not change, and a
refused call writes nothing. `race` has threads that change the numbers during a call: the answer
may be anything, but inside the arrays.
"""

import argparse
import array as arrays
import collections
import ctypes
import functools
import math
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import google_crc32c
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
sys.path.insert(0, str(Path(__file__).parent))

import oracles
from oracles import Refused

from tokenloom import native

GUARD = 16  # bytes on either side of an output

# a refusal may come after some items are written
WRITE_AS_THEY_CHECK = {"gather", "cut", "tile", "feistel"}

WILD = [0.0, -1.0, math.inf, -math.inf, math.nan, 1e301, -1e301]  # numbers that are no weights

HUGE = [-1, 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63)]


OTHER_KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c16", "q", "Q", "?"]
OTHER_KINDS += [">i8", ">i4", ">u8", ">u2"]


FILE_BYTES = 3 * 4096 + 1000

ENTRIES = ["paint", "Copier", "Copier", "Payload", "best_fit", "first_fit", "feistel", "crc32c"]
ENTRIES += ["hash_rank", "of_rows", "cut", "tile", "gather", "Merger", "Merger"]

METHODS = {  # of each type, with the oracle
    "Copier": {"fill": oracles.fill, "weave": oracles.weave, "announce": oracles.announce},
    "Merger": {"counts": oracles.counts, "cut": oracles.merged, "take": oracles.take},
}


def is_array(value):
    return isinstance(value, np.ndarray)


def is_view(value):
    return is_array(value) or type(value).__name__ == "Payload"


class Fuzzer:
    """Calls with arguments from one seed; the same seed makes the same calls."""

    def __init__(self, module, seed):
        self.module, self.rng = module, np.random.default_rng(seed)
        self.guards, self.seen, self.spoils = [], collections.Counter(), 0
        self.named = collections.defaultdict(set)  # arguments that a refusal named, by entry
        self.fd, path = tempfile.mkstemp()
        os.unlink(path)
        os.write(self.fd, self.rng.integers(0, 256, FILE_BYTES, np.uint8).tobytes())
        self.content = os.pread(self.fd, FILE_BYTES, 0)
        self.payloads = [self.module.Payload(*self.payload(number)) for number in range(8)]

    def __del__(self):
        os.close(self.fd)

    # -- arguments -------------------------------------------------------------------------

    def guarded(self, count, dtype):
        """An output between two guards."""
        size = count * np.dtype(dtype).itemsize
        memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        self.guards.append((memory, size))
        return memory[GUARD : GUARD + size].view(dtype)

    def cut(self, total, parts):
        """`parts` numbers of 0 or more that add up to `total`."""
        edges = np.sort(self.rng.integers(0, total + 1, max(0, parts - 1)))
        return np.diff(edges, prepend=0, append=total).astype(np.int64)

    def paint(self):
        rng = self.rng
        cells = int(rng.integers(0, 60))
        length = self.cut(cells, int(rng.integers(1, 9)))
        first, segment = np.cumsum(length) - length, rng.integers(0, 3, len(length), np.int32)
        wide = rng.choice([np.int32, np.int64])
        outputs = [self.guarded(cells, kind) for kind in (np.int32, np.int32, np.bool_, wide)]
        tokens = rng.integers(0, 99, cells).astype(wide)
        args = [first, length, segment, *outputs[:3], tokens, outputs[3], -100]
        if rng.random() < 0.3:
            args[6] = args[7] = None
        for place in (3, 4, 5):
            args[place] = None if rng.random() < 0.2 else args[place]
        return args

    def copier(self):
        rng = self.rng
        kinds = rng.choice([np.uint16, np.uint32, np.int32], int(rng.integers(1, 4)))
        views = [rng.integers(0, 2**15, int(rng.integers(0, 20))).astype(kind) for kind in kinds]
        for place in range(len(views)):
            if rng.random() < 0.3:
                views[place] = self.payloads[int(rng.integers(len(self.payloads)))]
        sizes = [len(oracles.tokens_of(view)) for view in views]
        runs, cell = [], int(rng.integers(-5, 5))
        for _ in range(int(rng.integers(0, 6))):
            which = int(rng.integers(len(views)))
            low = int(rng.integers(0, sizes[which] + 1))
            most = sizes[which] - low if rng.random() < 0.1 else min(20, sizes[which] - low)
            length = int(rng.integers(0, most + 1))
            runs.append((which, low, length, cell))
            cell += length + int(rng.integers(-1 if rng.random() < 0.1 else 0, 4))
        return [views, *np.array(runs, np.int64).reshape(-1, 4).T.copy()]

    def of_rows(self):
        """The runs of a copier by row: all runs of a row in one view, at addresses."""
        rng, (views, *_) = self.rng, self.copier()
        sizes, width = [len(oracles.tokens_of(view)) for view in views], int(rng.integers(1, 9))
        first, rows = rng.integers(0, 99, len(views)), int(rng.integers(0, 5))
        which, edges, runs = rng.integers(0, len(views), rows), [0], []
        for row in range(rows):
            at = 0
            for _ in range(int(rng.integers(0, 3))):
                low = int(rng.integers(0, sizes[which[row]] + 1))
                length = int(rng.integers(0, min(width - at, sizes[which[row]] - low) + 1))
                runs.append((first[which[row]] + low, length, at))
                at += length
            edges.append(len(runs))
        columns = np.array(runs, np.int64).reshape(-1, 3).T.copy()
        return [views, which, first, np.array(edges), *columns, width]

    def tile(self):
        rng, width = self.rng, int(self.rng.integers(1, 12))
        frame, spans = [0], []
        for _ in range(int(rng.integers(0, 5))):
            at = 0
            while at < width and rng.random() < 0.7:
                at += int(rng.integers(0, 2))
                flags = int(rng.choice([0, 0, 1, 2, 3, 4, 8, 12]))
                room = width - at - (flags & 1) - ((flags & 2) >> 1)
                if room < 0:
                    break
                length = int(rng.integers(0, room + 1))
                spans.append((at, length, int(rng.integers(0, 2)), flags))
                at += length + (flags & 1) + ((flags & 2) >> 1)
            frame.append(len(spans))
        at, length, start, flags = np.array(spans, np.int64).reshape(-1, 4).T.copy()
        room = 2 * len(spans) + len(frame) + int(rng.integers(0, 3))
        kinds = (np.int64, np.int64, np.int32, np.bool_)
        outputs = [self.guarded(room, kind) for kind in kinds]
        return [np.array(frame), at, length, start, flags.astype(np.uint8), *outputs, width]

    def gather(self):
        rng, rows = self.rng, int(self.rng.integers(0, 6))
        kind = rng.choice([np.uint8, np.uint16, np.uint32, np.uint64])
        column = rng.integers(0, 200, int(rng.integers(0, 30))).astype(kind)
        first = rng.integers(0, len(column) + 1, rows)
        count = (rng.random(rows) * (len(column) - first + 1)).astype(np.int64)
        base = None if rng.random() < 0.3 else rng.integers(-9, 9, rows)
        return [column, first, count, base, self.guarded(int(count.sum()), np.int64)]

    def cut_ranges(self):
        rng, chunks, base, number = self.rng, [], [], []
        place, document = int(rng.integers(0, 9)), int(rng.integers(0, 9))
        low = place
        for _ in range(int(rng.integers(1, 5))):
            lengths = rng.integers(0, 5, int(rng.integers(1, 6)))
            before = int(rng.integers(0, min(place, 3) + 1))  # offsets need not start with 0
            chunks.append((np.cumsum([before, *lengths])).astype(np.uint32))
            base.append(place - before)
            number.append(document)
            place, document = place + int(lengths.sum()), document + len(lengths)
        ranges = np.sort(rng.integers(low, place + 1, (int(rng.integers(0, 6)), 2)), axis=1)
        ranges = ranges[ranges[:, 0] < ranges[:, 1]]
        room = int(rng.integers(0, 30))
        outputs = [self.guarded(size, np.int64) for size in (len(ranges) + 1, *(room,) * 4)]
        numbers = np.array(base, np.int64), np.array(number, np.int64)
        return [chunks, *numbers, *ranges.T.copy(), *outputs]

    def fill(self, made):
        rng, total = self.rng, len(made[1])
        first = int(rng.integers(0, total + 1))
        last = int(rng.integers(first, total + 1))
        base = int(made[4][first]) - int(rng.integers(0, 3)) if first < last else 0
        end = int(made[4][last - 1]) + int(made[3][last - 1]) if first < last else 0
        cells = min(max(0, end - base + int(rng.integers(-1, 4))), 5000)
        return [self.guarded(cells, rng.choice([np.int32, np.int64])), first, last, base, -7]

    def weave(self, made):
        rng = self.rng
        out, first, last, base, filler = self.fill(made)
        length = self.cut(len(out), int(rng.integers(1, 9)))
        before, after = rng.integers(0, 3, 2)
        start = int(rng.integers(-9, 9))
        tiles = np.cumsum(length) - length + start
        more = rng.integers(-9, 9, (2, before + after))
        tiles = np.concatenate([more[0, :before], tiles, more[0, before:]])
        lengths = np.concatenate([more[1, :before], length, more[1, before:]])
        segment = rng.integers(0, 3, len(tiles), np.int32)
        kinds = (np.int32, np.int32, np.bool_, out.dtype)
        arrays = [None if rng.random() < 0.2 else self.guarded(len(out), kind) for kind in kinds]
        part = [first, last, base, filler, int(before), int(before) + len(length), start, -100]
        return [*part, tiles, lengths, segment, *arrays[:3], out, arrays[3]]

    def merger(self):
        """Sources that often have items of one moment; some have costs of their own (0)."""
        rng, count = self.rng, int(self.rng.integers(1, 7))
        first = rng.integers(0, 5, count)
        far = rng.choice([0, 0, 0, 2**40], count)
        return [
            rng.choice([1.0, 1.0, 2.0, 0.5, 3.7, 1e-3], count),
            rng.choice([0.0, 0.0, 1.0, -2.5, 1e17], count),
            rng.choice([0, 0, 3, 50], count),
            rng.choice([1, 1, 2, 3, 7, 100] + [0] * (rng.random() < 0.4), count),
            first,
            first + rng.integers(0, 30, count) + far,
            rng.choice(np.array([1, 2, 2**64 - 1], np.uint64), count),
            bool(rng.random() < 0.5),
            bool(rng.random() < 0.3),
        ]

    def counts(self, made):
        clock = self.rng.choice(oracles.clocks(made)[0].base + np.arange(-3, 30) / 2)
        moments = [float(clock), int(clock), float(self.rng.normal(0, 40)), 1e18, math.inf]
        return [
            moments[int(self.rng.integers(len(moments)))],
            self.guarded(made[0].size, np.int64),
        ]

    def merged(self, made):
        index = int(self.rng.choice([0, 1, 9, 50, 200, 2**30]))
        return [index, self.guarded(made[0].size, np.int64)]

    def take(self, made):
        rng, known, edges, times = self.rng, oracles.clocks(made), [0], []
        counts = self.guarded(len(known), np.int64)
        for at, one in enumerate(known):
            counts[at] = min(one.limit, one.first + int(rng.integers(0, 9)))
            size = 0 if one.cost else int(rng.integers(0, min(9, one.limit - counts[at]) + 1))
            times += sorted(rng.choice([0.0, -0.0, 1.5, 2.0, 1e17, math.inf], size).tolist())
            edges.append(len(times))
        outputs = [self.guarded(int(rng.integers(0, 40)), np.int64)] * 2
        outputs[1] = self.guarded(outputs[0].size, np.int64)
        if all(one.cost for one in known) and rng.random() < 0.7:
            return [counts, None, None, *outputs]
        return [counts, np.array(edges), np.array(times, np.float64), *outputs]

    def announce(self, made):
        return [int(self.rng.integers(1, 9))]

    def payload(self, number=None):
        rng = self.rng
        given = int(rng.integers(8)) if number is None else number
        letter, name = "HiI"[given % 3], f"payload {given}" if number is not None else "other"
        size = FILE_BYTES if given < 6 else 4 * int(rng.integers(0, 2000))
        kind = {"H": np.uint16, "i": np.int32, "I": np.uint32}[letter]
        if number is not None:
            oracles.FILES[name] = np.frombuffer(self.content, kind, size // np.dtype(kind).itemsize)
        parts = [self.content[at : min(at + 4096, size)] for at in range(0, size, 4096)]
        sums, checked = (np.array([google_crc32c.value(part) for part in parts], np.uint32), None)
        checked = self.guarded(len(sums), np.uint8)
        checked[:] = 0
        if rng.random() < 0.3:
            sums = checked = None
        return [self.fd, size, letter, sums, checked, given % 2 == 0, given % 4 < 2, name]

    def crc32c(self):
        size = int(self.rng.choice([0, 1, 7, 8, 9, 63, 200]))
        return [self.rng.integers(0, 256, size, np.uint8), int(self.rng.integers(2))]

    def packer(self):
        rng = self.rng
        count, capacity = int(rng.integers(0, 40)), int(rng.integers(1, 70))
        lengths = rng.integers(0, capacity + 1, count)
        wide = capacity if rng.random() < 0.8 else int(rng.choice([200, 5000, 2**31 - 1]))
        return [lengths, wide, int(rng.choice([1, 2, 5, 2**40])), self.guarded(count, np.int64)]

    def feistel(self):
        rng = self.rng
        count, keys = int(rng.choice([0, 1, 3, 63, 64, 65, 130])), int(rng.integers(1, 4))
        n = int(rng.choice([1, 2, 7, 1000, 2**31, 2**32 + 1, 2**62, 2**63 - 1]))
        side = math.isqrt(n - 1) + 1
        if n < 2**32 and rng.random() < 0.3:
            side = int(rng.integers(1, min(n, 99) + 1))
        x = rng.integers(0, n, count, np.uint64)
        which = None if rng.random() < 0.4 else rng.integers(0, keys, count)
        words = rng.integers(0, 2**64, (8, keys), np.uint64)
        return [x, which, words, n, side, bool(rng.random() < 0.5), self.guarded(count, np.uint64)]

    def hash_rank(self):
        rng, count = self.rng, int(self.rng.choice([0, 1, 3, 20]))
        sizes = rng.choice([1, 2, 7, 100, 4095, 4096], count)
        x = (rng.random(count) * sizes).astype(np.uint64)
        keys = rng.integers(0, 2**64, count, np.uint64)
        return [keys, sizes, x, bool(rng.random() < 0.5), self.guarded(count, np.uint64)]

    # -- spoiling --------------------------------------------------------------------------

    def spoil(self, args):
        """One argument is replaced or altered."""
        place = int(self.rng.integers(len(args)))
        value = args[place]
        if place == 0 and value is self.fd:  # another number may be another file
            return
        if isinstance(value, list) and value and self.rng.random() < 0.8:
            value[int(self.rng.integers(len(value)))] = self.other(value[0], args)
        elif isinstance(value, (int, bool)) and self.rng.random() < 0.8:
            args[place] = int(self.rng.choice(HUGE[:4])) if self.rng.random() < 0.5 else 2**63
        elif self.rng.random() < 0.05:
            args[:] = args[:-1] if self.rng.random() < 0.5 else [*args, args[-1]]
        else:
            args[place] = self.other(value, args)

    def other(self, value, args):
        """Another argument in place of one."""
        known = isinstance(value, np.ndarray) and value.dtype.kind in "iubf"
        if not known or self.rng.random() < 0.1:
            return self.odd()
        ways = sorted(name for name in dir(self) if name.startswith("as_"))
        return getattr(self, str(self.rng.choice(ways)))(value, args)

    def odd(self):
        odd = [None, 3, -1, 2.5, "x", b"12345678" * 4, [1, 2], object(), 2**64, np.int64(3), ()]
        odd += [
            memoryview(bytes(64)),
            arrays.array("q", [1, 2]),
            (ctypes.c_int64 * 4)(),
            bytearray(),
        ]
        odd += [np.zeros(3, object), np.zeros(2, "M8[s]"), np.zeros(2, "i8,i8"), np.zeros((), int)]
        return odd[int(self.rng.integers(len(odd)))]

    def as_values(self, value, args):
        """Some huge or negative numbers in it."""
        if value.dtype.kind not in "iuf" or not value.size or not value.flags.writeable:
            return value
        made, wanted = value.copy(), WILD
        if value.dtype.kind != "f":
            bounds = np.iinfo(value.dtype)
            wanted = [one for one in HUGE if bounds.min <= one <= bounds.max]
        made.reshape(-1)[int(self.rng.integers(made.size))] = wanted[
            int(self.rng.integers(len(wanted)))
        ]
        return made

    def as_dtype(self, value, args):
        return np.zeros(value.shape, str(self.rng.choice(OTHER_KINDS)))

    def as_misaligned(self, value, args):
        memory = bytearray(value.nbytes + 8)
        made = np.frombuffer(memory, value.dtype, value.size, int(self.rng.integers(1, 8)))
        made[:] = value.reshape(-1)
        return made

    def as_strided(self, value, args):
        step = int(self.rng.choice([2, -1, 3]))
        made = np.zeros(abs(step) * value.size, value.dtype)[::step][: value.size]
        made[:] = value.reshape(-1)
        return made

    def as_fortran(self, value, args):
        return np.asfortranarray(np.stack([value.reshape(-1)] * 2))

    def as_shape(self, value, args):
        """Another shape, or one axis more: contiguous memory is all that counts."""
        return value.reshape(1, *value.shape, 1)

    def as_longer(self, value, args):
        flat = value.reshape(-1)
        return np.append(flat, flat[:1]) if self.rng.random() < 0.5 else flat[:-1]

    def as_read_only(self, value, args):
        made = value.copy()
        made.flags.writeable = False
        return made

    def as_overlap(self, value, args):
        """Memory of another argument, at the same place or a little later."""
        others = [one for one in args if isinstance(one, np.ndarray) and one.nbytes]
        others = [one for one in others if one.flags.c_contiguous and one.dtype.kind in "iub"]
        if not others:
            return value
        chosen = others[int(self.rng.integers(len(others)))].reshape(-1).view(np.uint8)
        return chosen[: chosen.size // value.itemsize * value.itemsize].view(value.dtype)

    # -- calls -----------------------------------------------------------------------------

    def one(self):
        """One call of one entry; of a type, of its constructor and perhaps of its methods."""
        self.guards.clear()
        name = str(self.rng.choice(ENTRIES))
        if name in ("Copier", "of_rows"):
            made = self.spoiled(self.copier() if name == "Copier" else self.of_rows())
            entry = self.module.Copier if name == "Copier" else self.module.Copier.of_rows
            oracle = oracles.copier if name == "Copier" else oracles.of_rows
            called = name if name == "Copier" else "Copier.of_rows"
            found = self.call(called, entry, oracle, made)
            known = found is not None and isinstance(made[0], list)
            if known and all(map(is_view, made[0])) and all(map(is_array, made[1:7])):
                made = [made[0], *(one.reshape(-1) for one in made[1:7]), *made[7:]]
                made = oracles.runs_of_rows(made) if name == "of_rows" else made
                self.methods("Copier", found, made)
            return
        if name == "Merger":
            made = self.spoiled(self.merger())
            found = self.call(name, self.module.Merger, oracles.merger, made)
            if found is not None and all(map(is_array, made[:7])):
                self.methods(name, found, made)
            return
        if name == "Payload":
            oracle = functools.partial(oracles.payload, FILE_BYTES)
            self.call(name, self.module.Payload, oracle, self.spoiled(self.payload()))
            return
        make = self.cut_ranges if name == "cut" else getattr(self, name, self.packer)
        args = self.spoiled(make())
        self.call(name, getattr(self.module, name), getattr(oracles, name), args)

    def methods(self, name, found, made):
        """A call of every method of an object."""
        for method, slowly in METHODS[name].items():
            self.guards.clear()
            args = self.spoiled(getattr(self, slowly.__name__)(made))
            oracle = functools.partial(slowly, made)
            self.call(f"{name}.{method}", getattr(found, method), oracle, args)

    def spoiled(self, args):
        self.spoils = int(self.rng.choice([0, 1, 1, 1, 2, 3]))
        for _ in range(self.spoils):
            if args:
                self.spoil(args)
        return args

    def call(self, name, entry, oracle, args):
        """The call and its oracle; what the call returned, or None if it was refused."""
        inside = args[0] if args and isinstance(args[0], list) else []
        plain = all(
            one is None or isinstance(one, (np.ndarray, float, int, str, list)) for one in args
        )
        plain = plain and all(map(is_view, inside))  # what oracles know
        try:
            expected, refused = oracle(args), None
        except Refused as error:
            expected, refused = {}, error.args[0]
        except oracles.Unknown:
            expected, refused, plain = {}, None, None
        words, found = None, None
        before = [one.tobytes() if is_array(one) else None for one in args]
        try:
            found = entry(*args)
        except (TypeError, ValueError, IndexError) as error:
            words = str(error)
        except MemoryError:
            assert self.spoils, f"{name}{args}: takes too much memory"
            return None
        self.seen[name, "accepted" if words is None else "refused"] += 1
        for memory, size in self.guards:
            ends = np.concatenate([memory[:GUARD], memory[GUARD + size :]])
            assert (ends == 0xA5).all(), f"{name}: written outside its output"
        if words is None:
            assert refused is None or not plain, f"{name}{args}: accepted, but {refused} is wrong"
            returned = expected.pop("returned", found)
            assert found == returned, (name, args, found, returned)
            for place, answer in expected.items():
                flat = args[place].reshape(-1)
                right = answer(flat) if callable(answer) else np.array_equal(flat, answer)
                assert right, (name, place, args, answer)
        else:
            assert refused is not None or plain is None, f"{name}{args}: right, but: {words}"
            refused = refused or ()
            if self.spoils == 1:
                self.named[name] |= {one for one in refused if re.search(rf"\b{one}\b", words)}
            after = [one.tobytes() if is_array(one) else None for one in args]
            assert before == after or name in WRITE_AS_THEY_CHECK, f"{name}: refused, but written"
            named = any(str(one).split("[")[0] in words for one in refused)
            assert named or self.spoils > 1 or not plain, (name, words, refused)
        return found


def race(module, seconds, seed):
    """Other threads change lengths and indices during calls; counts the calls."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(FILE_BYTES))
        entries, kept = raced(module, file.fileno(), np.random.default_rng(seed))
        stop, calls = threading.Event(), collections.Counter()
        threads = [
            threading.Thread(target=change, args=(kept, seed + 1, stop), daemon=True)
            for _ in range(2)
        ]
        for one in threads:
            one.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                for name, entry in entries.items():
                    try:
                        entry()
                        calls[name, "accepted"] += 1
                    except (ValueError, IndexError):
                        calls[name, "refused"] += 1
        finally:
            stop.set()
            for one in threads:
                one.join()
    return calls


def change(kept, seed, stop):
    """Put wild numbers into arrays, and take them out again, until told to stop."""
    mine = np.random.default_rng(seed)
    while not stop.is_set():
        for one, right in kept:
            place = int(mine.integers(one.size))
            old = one.reshape(-1)[place]
            wild = int(mine.integers(0, 2**62)) >> int(mine.integers(0, 62))
            one.reshape(-1)[place] = wild & int(np.iinfo(one.dtype).max)
            one.reshape(-1)[place] = old if mine.random() < 0.5 else right.reshape(-1)[place]


def raced(module, fd, rng):
    """Calls by name, and the arrays that may change during them, each with its right numbers."""
    count = 20_000
    length = np.full(count, 4)
    first, segment = np.cumsum(length) - length, np.ones(count, np.int32)
    lengths, which = rng.integers(0, 64, count), rng.integers(0, 3, count)
    x, keys = rng.integers(0, 1000, count, np.uint64), rng.integers(0, 2**64, (8, 3), np.uint64)
    cells = [np.zeros(4 * count, kind) for kind in (np.int32, np.int32, np.bool_, np.int32)]
    tokens, out, words = np.zeros(4 * count, np.int32), np.zeros(count, np.int64), x.copy()
    kept = [(one, one.copy()) for one in (length, first, lengths, which, x, keys)]
    index = (np.zeros(count, np.int64), first, length, first.copy())
    few = keys.reshape(-1)[np.arange(200) % 24], np.full(200, 1000), x[:200]
    still, words_of_two = [one.copy() for one in index], np.zeros(4 * count, np.uint16)
    cells_of_tokens = tokens.copy()
    edges, offsets = np.arange(count + 1), (4 * np.arange(count + 1)).astype(np.uint32)
    kept += [(edges, edges.copy()), (offsets, offsets.copy())]
    clocks = [np.ones(3), np.zeros(3), *(np.full(3, one) for one in (0, 2, 0, 1000))]
    clocks[3][0], ties, times = 0, [np.arange(3, dtype=np.uint64)], np.arange(90.0)
    counts, edges_of_times = np.zeros(3, np.int64), np.array([0, 90, 90, 90])
    parts = [bytes(min(4096, FILE_BYTES - at)) for at in range(0, FILE_BYTES, 4096)]
    sums = np.array([google_crc32c.value(part) for part in parts], np.uint32)
    checked = np.zeros(len(sums), np.uint8)
    changed = (*clocks[2:], counts, edges_of_times, sums, checked)
    kept += [(one, one.copy()) for one in changed]

    def entries():
        yield "paint", lambda: module.paint(first, length, segment, *cells[:3], tokens, cells[3], 1)
        yield "best_fit", lambda: module.best_fit(lengths, 63, 9, out)
        yield "first_fit", lambda: module.first_fit(lengths, 63, 9, out)
        yield "feistel", lambda: module.feistel(x, which, keys, 1000, 32, False, words)
        yield "hash_rank", lambda: module.hash_rank(*few, False, words[:200])
        yield "Copier", lambda: module.Copier([tokens], *index).fill(cells[0], 0, count, 0, 0)
        made = module.Copier([words_of_two], *still)
        part = (0, count, 0, 0, 0, count, 0, -100)
        outputs = (*cells[:3], cells_of_tokens, cells[3])
        yield "weave", lambda: made.weave(*part, first, length, segment, *outputs)
        rows = np.zeros(count, np.int64), np.zeros(1, np.int64), edges, first, length, first
        fill = (cells[0], 0, 0, 0, 0)
        yield "of_rows", lambda: module.Copier.of_rows([words_of_two], *rows, 0).fill(*fill)
        ranges = first, first + 3, np.zeros(count + 1, np.int64)
        pieces = [np.zeros(2 * count, np.int64) for _ in range(4)]
        zero = np.zeros(1, np.int64)
        yield "cut", lambda: module.cut([offsets], zero, zero, *ranges, *pieces)
        table = np.zeros(4 * count, np.uint16)
        yield "gather", lambda: module.gather(table, first, length, None, np.zeros(4 * count, int))
        spans = edges, np.zeros(count, np.int64), length, first, np.zeros(count, np.uint8)
        tiles = [np.zeros(3 * count + 1, kind) for kind in (np.int64, np.int64, np.int32, np.bool_)]
        yield "tile", lambda: module.tile(*spans, *tiles, 4)
        merging = module.Merger(*clocks, *ties, True, False)
        yield "Merger", lambda: module.Merger(*clocks, *ties, True, False)
        taken = [np.zeros(200, np.int64) for _ in range(2)]
        yield "take", lambda: merging.take(counts, edges_of_times, times, *taken)
        runs = [np.array([one]) for one in (0, 0, FILE_BYTES // 2, 0)]
        cells_of_file = np.zeros(FILE_BYTES // 2, np.int32)

        def payload():
            pages = module.Payload(fd, FILE_BYTES, "H", sums, checked, 1, 1, "raced")
            return module.Copier([pages], *runs).fill(cells_of_file, 0, 1, 0, 0)

        yield "Payload", payload

    return dict(entries()), kept


def fuzz(module, seed, *, seconds=None, calls=None):
    """Calls until the time is over or there were enough; counts them by entry and outcome."""
    fuzzer, end = Fuzzer(module, seed), None if seconds is None else time.monotonic() + seconds
    number = 0
    while (calls is None or number < calls) and (end is None or time.monotonic() < end):
        fuzzer.one()
        number += 1
    return fuzzer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    assert native.compiled is not None, "the loops are not compiled here"
    print(f"seed {asked.seed}, {native.compiled.__file__}", flush=True)
    seen = fuzz(native.compiled, asked.seed, seconds=asked.seconds * 0.75).seen
    raced = race(native.compiled, asked.seconds * 0.25, asked.seed)
    for title, counts in (("fuzzed", seen), ("raced", raced)):
        for (name, outcome), count in sorted(counts.items()):
            print(f"{title} {name:>14} {outcome}: {count:,}")


if __name__ == "__main__":
    main()
