"""Every entry of the compiled module refuses every kind of bad argument, and says which it is."""

import collections
import os
import tempfile

import google_crc32c
import numpy as np
import pytest
from fuzz import ENTRIES, HUGE, METHODS, Fuzzer, fuzz, race

from tokenloom import native

COMPILED = native.compiled

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="the loops are not compiled here, or turned off"
)


def copier(*args):
    return COMPILED.Copier([np.arange(9, dtype=np.uint16)], *args)


def fill(*args):
    runs = np.array([(0, 0, 3, 0), (0, 5, 3, 4)], np.int64).T.copy()
    return COMPILED.Copier([np.arange(9, dtype=np.uint16)], *runs).fill(*args)


def woven(*args):
    runs = np.array([(0, 0, 3, 0), (0, 5, 3, 4)], np.int64).T.copy()
    return COMPILED.Copier([np.arange(9, dtype=np.uint16)], *runs).weave(*args)


def announced(*args):
    runs = np.array([(0, 0, 3, 0)], np.int64).T.copy()
    return COMPILED.Copier([COMPILED.Payload(*good("Payload"))], *runs).announce(*args)


def of_rows(*args):
    return COMPILED.Copier.of_rows([np.arange(9, dtype=np.uint16)] * 2, *args)


def cut(*args):
    return COMPILED.cut([np.array(one, np.uint32) for one in ([0, 3, 3, 7], [0, 9])], *args)


def content(size=5000):
    """A file without a name, and what is in it."""
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    os.write(fd, np.arange(size // 2, dtype=np.uint16).tobytes())
    return fd, os.pread(fd, size, 0)


FD, CONTENT = content()


def call(name, args):
    """A call of an entry with a list of its arguments."""
    own = {"Copier": copier, "fill": fill, "weave": woven, "announce": announced}
    own |= {"of_rows": of_rows, "cut": cut}
    return own.get(name, getattr(COMPILED, name, None))(*args)


def sums_of(content):
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    return np.array([google_crc32c.value(page) for page in pages], np.uint32)


def painted():
    """What `paint` makes of the tiles below, and the tokens it is made of."""
    segments, mask = np.array([1] * 5 + [0] * 3, np.int32), np.array([1] * 4 + [0] * 4, np.bool_)
    positions = np.array([0, 1, 2, 3, 4, 0, 1, 2], np.int32)
    labels = np.array([-100, 0, 0, 0, 0, -100, -100, -100], np.int32)
    return [segments, positions, mask, np.zeros(8, np.int32), labels, np.zeros(8, np.int32)]


def good(name):
    """Arguments that work, made anew."""
    words, cells = np.arange(16, dtype=np.uint64), [np.zeros(8, np.int32) for _ in range(4)]
    tiles = [np.array([0, 5]), np.array([5, 3]), np.array([1, 0], np.int32)]
    return {
        "paint": [*tiles, *cells[:2], np.zeros(8, np.bool_), cells[2], cells[3], -100],
        "weave": [
            *(0, 2, 0, -1, 0, 2, 0, -100),
            *(*tiles, *cells[:2], np.zeros(8, np.bool_), cells[2], cells[3]),
        ],
        "same": [*tiles, *painted(), -100],
        "announce": [7],
        "Payload": [FD, 5000, "H", sums_of(CONTENT), np.zeros(2, np.uint8), True, True, "a name"],
        "crc32c": [np.arange(16, dtype=np.uint8), 0],
        "guard": [],
        "Copier": list(np.array([(0, 0, 3, 0), (0, 5, 3, 4)], np.int64).T.copy()),
        "of_rows": [
            *(np.array([0, 1]), np.array([50, 50]), np.array([0, 1, 2])),
            *(np.array([50, 55]), np.array([3, 3]), np.array([0, 1]), 4),
        ],
        "cut": [
            *(np.array([20, 27]), np.array([5, 8]), np.array([20, 22]), np.array([22, 30])),
            *(np.zeros(3, np.int64), *(np.zeros(4, np.int64) for _ in range(4))),
        ],
        "gather": [
            *(np.arange(9, dtype=np.uint16), np.array([2, 0]), np.array([3, 1])),
            *(np.array([10, 20]), np.zeros(4, np.int64)),
        ],
        "tile": [
            *(np.array([0, 1, 2]), np.array([0, 1]), np.array([3, 2]), np.array([0, 5])),
            *(np.zeros(2, np.uint8), np.zeros(9, np.int64), np.zeros(9, np.int64)),
            *(np.zeros(9, np.int32), np.zeros(9, np.bool_), 4),
        ],
        "fill": [np.zeros(7, np.int32), 0, 2, 0, -1],
        "best_fit": [np.array([3, 2, 4]), 8, 9, np.zeros(3, np.int64)],
        "first_fit": [np.array([3, 2, 4]), 8, 9, np.zeros(3, np.int64)],
        "feistel": [words, np.arange(16) % 3, np.ones((8, 3), np.uint64), 40, 7, False, 0 * words],
        "hash_rank": [words, np.full(16, 40), words + words, False, 0 * words],
    }[name]


NAMES = {
    "paint": "first length segment segment_ids position_ids loss_mask tokens labels ignore",
    "weave": "first last base filler tile tiles start ignore "
    "first length segment segment_ids position_ids loss_mask tokens labels",
    "same": "first length segment segment_ids position_ids loss_mask tokens labels cells ignore",
    "announce": "sample",
    "Payload": "fd bytes letter sums checked keep mapped name",
    "crc32c": "data plain",
    "guard": "",
    "Copier": "which low length cell",
    "of_rows": "which first edges address length at width",
    "cut": "base number start stop edges document begin length address",
    "gather": "column first count base out",
    "tile": "frame at length start flags first cells segment continues width",
    "fill": "out first last base filler",
    "best_fit": "lengths capacity most out",
    "first_fit": "lengths capacity most out",
    "feistel": "x which keys n side backwards out",
    "hash_rank": "keys sizes x backwards out",
}
WRITTEN = {"segment_ids", "position_ids", "loss_mask", "labels", "out", "checked"}
NO_INTEGERS = {"backwards", "letter", "keep", "mapped", "name"}
ALL = [(entry, place, name) for entry in NAMES for place, name in enumerate(NAMES[entry].split())]
ARRAYS = [one for one in ALL if isinstance(good(one[0])[one[1]], np.ndarray)] if COMPILED else []
INTEGERS = [one for one in ALL if one not in ARRAYS and one[2] not in NO_INTEGERS]
ALSO = {("weave", "tokens"), *(("tile", one) for one in ("first", "cells", "segment", "continues"))}
ALSO |= {("cut", one) for one in ("edges", "document", "begin", "length", "address")}
READ = [one for one in ARRAYS if one[0] == "same"]  # it writes nothing
OUTPUTS = [one for one in ARRAYS if one[2] in WRITTEN or one[::2] in ALSO if one not in READ]


def misaligned(array):
    made = np.frombuffer(bytearray(array.nbytes + 1), np.uint8)[1:].view(array.dtype)
    made[:] = array.reshape(-1)
    return made.reshape(array.shape)


def apart(array):
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


WRONG = {
    "another width": lambda a: a.astype(np.int16),
    "floats": lambda a: a.astype(np.float64 if a.itemsize == 8 else np.float32),
    "the other sign": lambda a: a.view(
        {"i": "u", "u": "i", "b": "i"}[a.dtype.kind] + f"{a.itemsize}"
    ),
    "another byte order": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "records": lambda a: a.reshape(-1).view([("a", a.dtype)]),
    "objects": lambda a: a.astype(object),
    "misaligned": misaligned,
    "not contiguous": apart,
    "backwards": lambda a: a.reshape(-1)[::-1],
    "too long": lambda a: np.concatenate([a.reshape(-1), a.reshape(-1)[:1]]),
    "too short": lambda a: a.reshape(-1)[:-1],
    "a list": lambda a: a.tolist(),
    "a text": lambda a: "x",
    "a number": lambda a: 7,
    "bytes": lambda a: a.tobytes(),
}


def test_what_is_altered_below_works():
    for entry in NAMES:
        assert call(entry, good(entry)) is not NotImplemented


RIGHT = {  # what looks wrong and is not
    ("feistel", "which", "the other sign"),
    ("fill", "out", "too long"),  # more cells than runs
    ("paint", "loss_mask", "misaligned"),
    ("paint", "loss_mask", "another byte order"),
    ("weave", "loss_mask", "misaligned"),
    ("weave", "loss_mask", "another byte order"),
    ("same", "loss_mask", "misaligned"),
    ("same", "loss_mask", "another byte order"),
    ("Payload", "checked", "the other sign"),
    ("Payload", "checked", "another byte order"),
    ("Payload", "checked", "misaligned"),
    ("gather", "column", "misaligned"),
    ("gather", "column", "too long"),
    ("gather", "column", "too short"),
    ("gather", "column", "bytes"),
    ("tile", "flags", "the other sign"),
    ("tile", "flags", "another byte order"),
    ("tile", "flags", "misaligned"),
    ("tile", "flags", "bytes"),
    ("tile", "continues", "misaligned"),
    ("tile", "continues", "another byte order"),
    ("crc32c", "data", "the other sign"),
    ("crc32c", "data", "another byte order"),
    ("crc32c", "data", "misaligned"),
    ("crc32c", "data", "too long"),
    ("crc32c", "data", "too short"),
    ("crc32c", "data", "bytes"),
}


@pytest.mark.parametrize("wrong", list(WRONG))
@pytest.mark.parametrize(("entry", "place", "name"), ARRAYS)
def test_an_array_of_another_kind_is_refused_by_name(entry, place, name, wrong):
    args = good(entry)
    args[place] = WRONG[wrong](args[place])
    if (entry, name, wrong) in RIGHT:
        call(entry, args)
        return
    errors, told = (TypeError, ValueError), f"(^|[ ,]){name}[:, ]"
    if wrong.startswith("too"):  # compared with another, which may be named instead
        errors, told = (ValueError, IndexError), r"^[a-z_, ]+: "
    with pytest.raises(errors, match=told):
        call(entry, args)


@pytest.mark.parametrize(("entry", "place", "name"), OUTPUTS)
def test_an_output_that_is_read_only_is_refused_by_name(entry, place, name):
    args = good(entry)
    args[place].flags.writeable = False
    with pytest.raises(ValueError, match=f"^{name}: .*(read-only|writ)"):
        call(entry, args)


@pytest.mark.parametrize(("entry", "place", "name"), OUTPUTS)
def test_an_output_that_shares_a_byte_with_another_array_is_refused_by_name(entry, place, name):
    count = 0
    for other, value in enumerate(good(entry)):
        if other == place or not isinstance(value, np.ndarray):
            continue
        item, size = good(entry)[place].itemsize, good(entry)[place].nbytes
        for shift in (item - size, 0, value.nbytes - item):  # its end, all of it, its start
            args, room = good(entry), np.zeros(4096, np.uint8)
            out, first = args[place], 2048 + shift - shift % item
            args[place] = room[first : first + size].view(out.dtype)
            shared = room[2048 : 2048 + value.nbytes].view(value.dtype).reshape(value.shape)
            shared[...] = value
            args[other] = shared
            with pytest.raises(ValueError, match="shares memory with") as caught:
                call(entry, args)
            assert name in str(caught.value)
            args[place] = room[1024 : 1024 + size].view(out.dtype)  # control
            call(entry, args)
            count += 1
    assert count or entry == "fill"


def test_cells_that_share_memory_with_a_view_are_refused():
    memory = np.zeros(64, np.int32)
    views = [np.zeros(4, np.uint16), memory[8:16]]
    made = COMPILED.Copier(views, *np.array([(1, 0, 4, 0)], np.int64).T.copy())
    for low in (1, 4, 8, 12, 15):
        with pytest.raises(ValueError, match=r"^out: it shares memory with views\[1\]"):
            made.fill(memory[low : low + 8], 0, 1, 0, 0)
    made.fill(memory[:8], 0, 1, 0, 0)
    made.fill(memory[16:24], 0, 1, 0, 0)


@pytest.mark.parametrize("way", ["fill", "weave"])
def test_cells_that_share_memory_with_the_marks_of_a_payload_are_refused(way):
    memory = np.zeros(64, np.int64)
    marks, sums = memory.view(np.uint8)[64:66], memory[16:17].view(np.uint32)
    sums[:] = sums_of(CONTENT)
    args = good("Payload")
    args[3], args[4] = sums, marks
    views = [np.zeros(4, np.uint16), COMPILED.Payload(*args)]
    made = COMPILED.Copier(views, *np.array([(1, 0, 4, 0)], np.int64).T.copy())

    def make(out):
        if way == "fill":
            return made.fill(out, 0, 1, 0, 0)
        tiles = np.array([0]), np.array([4]), np.array([1], np.int32)
        return made.weave(0, 1, 0, 0, 0, 1, 0, -100, *tiles, None, None, None, out, None)

    for low in (5, 8, 13, 16):
        with pytest.raises(ValueError, match=r"it shares memory with views\[1\]"):
            make(memory[low : low + 4])
    make(memory[:4])
    assert memory[:4].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_same_is_true_of_what_paint_makes_and_names_the_first_tile_that_differs(wide):
    rng = np.random.default_rng(0)
    for _ in range(40):
        length = rng.integers(1, 9, 12)
        first, segment = np.cumsum(length) - length, rng.integers(0, 3, 12).astype(np.int32)
        cells = int(length.sum())
        tokens = rng.integers(0, 9, cells).astype(wide)
        outputs = [np.empty(cells, kind) for kind in (np.int32, np.int32, np.bool_, wide)]
        tiles = first, length, segment
        COMPILED.paint(*tiles, *outputs[:3], tokens, outputs[3], -100)
        given = [*outputs[:3], tokens.copy(), outputs[3]]
        assert COMPILED.same(*tiles, *given, tokens, -100) == 12
        for array in given:
            cell = int(rng.integers(cells))
            old = array[cell]
            array[cell] = not old if array.dtype == bool else old ^ (1 << int(rng.integers(31)))
            tile = int(np.searchsorted(first, cell, side="right")) - 1
            assert COMPILED.same(*tiles, *given, tokens, -100) == tile
            array[cell] = old


@pytest.mark.parametrize("entry", ["paint", "weave"])
@pytest.mark.parametrize("which", ["tokens", "labels"])
def test_tokens_and_labels_of_two_types_are_refused(entry, which):
    place = NAMES[entry].split().index(which)
    args = good(entry)
    args[place] = args[place].astype(np.int64)
    with pytest.raises(TypeError, match="tokens and labels: not of one type"):
        call(entry, args)
    both = [NAMES[entry].split().index(name) for name in ("tokens", "labels")]
    args = good(entry)
    for place in both:
        args[place] = args[place].astype(np.int64)
    call(entry, args)
    narrow = good(entry)
    call(entry, narrow)
    for place in both:
        assert np.array_equal(args[place], narrow[place])


@pytest.mark.parametrize(
    ("place", "wrong", "told"),
    [
        (1, 5002, "^bytes: found 5002, the file has 5000"),
        (1, 4999, "^bytes: found 4999"),
        (1, -2, "^bytes: found -2"),
        (2, "B", "^letter: found 'B'"),
        (2, "Hi", "^letter: found 'Hi'"),
        (2, 72, "^letter: found 72"),
        (3, None, "^sums, checked: found 0 and 2 pages, wanted 2"),
        (4, None, "^sums, checked: found 2 and 0 pages, wanted 2"),
        (7, 7, "^name: allowed: a text"),
        (7, b"x", "^name: allowed: a text"),
    ],
)
def test_a_payload_that_is_not_what_is_said_is_refused_by_name(place, wrong, told):
    args = good("Payload")
    args[place] = wrong
    with pytest.raises((TypeError, ValueError), match=told):
        COMPILED.Payload(*args)


def test_a_payload_of_a_file_that_is_not_open_is_an_oserror():
    args = good("Payload")
    args[0] = 2**31 - 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        COMPILED.Payload(*args)


def test_named_arguments_are_refused():
    for entry in ("Payload", "Copier"):
        with pytest.raises(TypeError, match="no named arguments"):
            getattr(COMPILED, entry)(*good("Payload"), views=1)


def test_a_payload_holds_its_file_and_its_arrays_and_gives_them_back():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    marks = bytearray(2)
    args = good("Payload")
    args[4] = marks
    for wrong in (None, (1, 5002), (3, np.zeros(1, np.uint32)), (7, 7)):
        these = list(args)
        if wrong is not None:
            these[wrong[0]] = wrong[1]
            with pytest.raises((TypeError, ValueError)):
                COMPILED.Payload(*these)
            marks.extend(b"x")  # nobody holds it
            del marks[2:]
            continue
        made = COMPILED.Payload(*these)
        assert made.name == "a name"
        with pytest.raises(AttributeError):
            made.name = "another"
        with pytest.raises(BufferError):
            marks.extend(b"x")
        copier = COMPILED.Copier([made], *np.array([(0, 0, 2500, 0)], np.int64).T.copy())
        del made
        out = np.zeros(2500, np.int32)
        assert copier.fill(out, 0, 1, 0, 0) is None
        assert np.array_equal(out, np.arange(2500))
        assert marks == b"\1\1"
        del copier
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("plain", [0, 1])
def test_checksums_are_those_of_everybody(plain):
    rng = np.random.default_rng(0)
    assert COMPILED.crc32c(b"123456789", plain) == 0xE3069283
    data = rng.integers(0, 256, 5000, np.uint8)
    for size in (*range(70), 4095, 4096, 4991):
        for shift in range(9):
            part = data[shift : shift + size]
            assert COMPILED.crc32c(part, plain) == google_crc32c.value(part.tobytes())


@pytest.mark.parametrize("wrong", ["x", 1.5, None, [1], 2**63, -(2**63) - 1, 2**200])
@pytest.mark.parametrize(("entry", "place", "name"), INTEGERS)
def test_an_integer_that_is_none_is_refused_by_name(entry, place, name, wrong):
    args = good(entry)
    args[place] = wrong
    with pytest.raises((TypeError, ValueError), match=f"(^|[ ,]){name}[:, ]"):
        call(entry, args)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("fill", "filler"),
        ("paint", "ignore"),
        ("weave", "filler"),
        ("weave", "ignore"),
        ("best_fit", "capacity"),
    ],
)
def test_an_integer_beyond_32_bits_is_refused_and_not_cut(entry, name):
    args, place = good(entry), NAMES[entry].split().index(name)
    for wrong in (2**31, 2**32 - 100, -(2**31) - 1):
        args[place] = wrong
        with pytest.raises(ValueError, match=f"^{name}: found {wrong}, allowed: "):
            call(entry, args)


@pytest.mark.parametrize("entry", list(NAMES))
def test_another_number_of_arguments_is_refused(entry):
    args = good(entry)
    for wrong in ([], args[:-1], [*args, 1]) if args else ([1], [None, None]):
        with pytest.raises(TypeError, match="argument"):
            call(entry, wrong)


AS_THEY_GO = {"cut", "tile", "gather"}  # wrong numbers are found when outputs are half written

NUMBERS = [one for one in ARRAYS if one[2] != "segment" and one[0] not in AS_THEY_GO]


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize(("entry", "place", "name"), NUMBERS)
def test_a_number_out_of_range_is_refused_before_anything_is_written(entry, place, name, value):
    for at in range(good(entry)[place].size):
        args = good(entry)
        kind = args[place].dtype
        read_only = name in WRITTEN or name in ("tokens", "keys", "cell", "at")
        if read_only or kind.itemsize < 8 or (kind.kind == "u" and value < 0) or value == 1:
            continue
        before = [one.copy() for one in args if isinstance(one, np.ndarray)]
        args[place].reshape(-1)[at] = value
        before[[id(one) for one in args if isinstance(one, np.ndarray)].index(id(args[place]))] = (
            args[place].copy()
        )
        with pytest.raises((ValueError, IndexError), match=rf"(^|[ ,]){name}[:, ]"):
            call(entry, args)
        after = [one for one in args if isinstance(one, np.ndarray)]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("entry", ["best_fit", "first_fit"])
def test_lengths_that_overlap_their_bins_are_refused(entry):
    """The finding: bins were written over lengths that had been checked already."""
    memory = np.ones(5, np.int64)
    with pytest.raises(ValueError, match="out: it shares memory with lengths"):
        getattr(COMPILED, entry)(memory[:-1], 2, 2, memory[1:])


@pytest.mark.parametrize("entry", ["best_fit", "first_fit"])
def test_more_capacity_than_all_items_need_takes_no_memory_and_changes_nothing(entry):
    lengths = np.array([3, 0, 7, 7, 1])
    found = []
    for capacity in (18, 19, 1000, 2**31 - 1):
        out = np.zeros(5, np.int64)
        for most in (1, 2, 9):
            getattr(COMPILED, entry)(lengths, capacity, most, out)
            found.append((most, out.tolist()))
    assert len(set(map(str, found))) == 3


def test_random_calls_are_refused_or_answered_as_the_oracles_say():
    seen = fuzz(COMPILED, 1, calls=4_000)
    assert min(seen.values()) > 30
    for outcome in ("accepted", "refused"):
        assert {name for name, found in seen if found == outcome} == entries(COMPILED)


NOTHING_TO_SPOIL = {"guard"}  # takes no argument


def entries(module):
    """Every function of a module, every type, and the methods of each type."""
    names = {name for name in dir(module) if callable(getattr(module, name)) and name[:1] != "_"}
    types = {
        name: getattr(module, name) for name in names if isinstance(getattr(module, name), type)
    }
    for name, one in types.items():
        methods = (way for way in dir(one) if way[:1] != "_" and callable(getattr(one, way)))
        names |= {f"{name}.{way}" for way in methods}
    return names - NOTHING_TO_SPOIL


def test_every_entry_of_the_module_is_fuzzed():
    fuzzed = set(ENTRIES) - {"of_rows"} | {"Copier.of_rows"}
    fuzzed |= {f"{name}.{way}" for name, ways in METHODS.items() for way in ways}
    assert fuzzed == entries(COMPILED)
    altered = {f"Copier.{name}" if hasattr(COMPILED.Copier, name) else name for name in NAMES}
    others = {name for name in entries(COMPILED) if name.startswith("Merger")}  # test_merger.py
    assert altered - NOTHING_TO_SPOIL == entries(COMPILED) - others


def test_control_an_entry_that_nobody_fuzzes_is_found():
    class Larger:
        """The module with one function and one method more."""

        def __dir__(self):
            return [*dir(COMPILED), "spin", "Wheel"]

        def __getattr__(self, name):
            wheel = type("Wheel", (), {"turn": lambda self: None})
            return {"spin": len, "Wheel": wheel}.get(name) or getattr(COMPILED, name)

    assert entries(Larger()) - entries(COMPILED) == {"spin", "Wheel", "Wheel.turn"}


def test_control_a_module_with_other_answers_is_found():
    class Other:
        """Everything right but one number of one entry."""

        Copier = COMPILED.Copier if COMPILED else None

        def __getattr__(self, name):
            def entry(*args):
                found = getattr(COMPILED, name)(*args)
                if name == wrong == "best_fit" and args[3].size:
                    args[3].reshape(-1)[-1] += 1
                if name == "Merger" and wrong.startswith(name):
                    return OtherMerger(found, wrong.split(".")[1])
                return found + 1 if name == wrong == "crc32c" else found

            return entry

    class OtherMerger:
        """A merger with one wrong method."""

        def __init__(self, right, wrong):
            self.right, self.wrong = right, wrong

        def __getattr__(self, name):
            def method(*args):
                found = getattr(self.right, name)(*args)
                if name == self.wrong:
                    place = {"take": 4}.get(name, 1)
                    args[place].reshape(-1)[:1] += 1
                return found

            return method

    for wrong in ("best_fit", "crc32c", "Merger.counts", "Merger.cut", "Merger.take"):
        with pytest.raises(AssertionError, match=wrong):
            fuzz(Other(), 1, calls=4_000)


def test_control_bytes_beside_an_output_are_found():
    class Wild:
        Copier = COMPILED.Copier if COMPILED else None

        def __getattr__(self, name):
            def entry(*args):
                found = getattr(COMPILED, name)(*args)
                for memory, _ in made[0].guards[:1] if made else ():
                    memory[0] = 1
                return found

            return entry

    made = []
    made.append(Fuzzer(Wild(), 0))
    with pytest.raises(AssertionError, match="written outside"):
        collections.deque(iter(made[0].one, 1), maxlen=0)  # until something is found


def test_numbers_that_change_during_a_call_never_lead_outside():
    calls = race(COMPILED, 1.0, 3)
    expected = {"paint", "Copier", "weave", "best_fit", "first_fit", "feistel", "hash_rank"}
    expected |= {"of_rows", "cut", "tile", "gather", "same", "Merger", "take", "Payload"}
    assert {name for name, _ in calls} == expected
