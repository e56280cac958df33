"""Every entry of the compiled module refuses bad arguments by name, and answers as its oracle.

Names come from the declared signatures; the fuzzer spoils arguments in every other way.
"""

import collections
import inspect
import os
import tempfile

import google_crc32c
import numpy as np
import pytest
from fuzz import ENTRIES, METHODS, Fuzzer, fuzz, race

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


def merger(*args, cost=(3, 5)):
    clocks = [np.array([1.0, 2.0]), np.array([0.0, 0.5]), *np.array([(0, 0), cost, (0, 0), (9, 9)])]
    return COMPILED.Merger(*clocks, np.array([1, 2], np.uint64), False, False)


def counts(*args):
    return merger().counts(*args)


def merged(*args):
    return merger().cut(*args)


def take(*args):
    return merger(cost=(3, 0)).take(*args)


OWN = {  # entries that need an object, or a list of views first: (call, what declares it)
    "Copier": (copier, "Copier"),
    "of_rows": (of_rows, "Copier.of_rows"),
    "fill": (fill, "Copier.fill"),
    "weave": (woven, "Copier.weave"),
    "announce": (announced, "Copier.announce"),
    "cut": (cut, "cut"),
    "Merger.counts": (counts, "Merger.counts"),
    "Merger.cut": (merged, "Merger.cut"),
    "Merger.take": (take, "Merger.take"),
}
LISTS = {"views", "chunks"}  # given by the calls above


def declared(name):
    """The function or type of an entry."""
    made = COMPILED
    for part in OWN.get(name, (None, name))[1].split("."):
        made = getattr(made, part)
    return made


def call(name, args):
    """A call of an entry with a list of its arguments."""
    return (OWN[name][0] if name in OWN else declared(name))(*args)


def names(entry):
    """Names of its arguments, as declared."""
    every = inspect.signature(declared(entry)).parameters
    named = [name for name in every if name not in LISTS | {"self"}]
    return [name.removeprefix("tile_") for name in named]  # of `weave`, beside its own first


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
    clocks = [np.ones(2), np.zeros(2), *np.array([(0, 0), (3, 5), (0, 0), (9, 9)])]
    pair = [np.zeros(5, np.int64) for _ in range(2)]
    return {
        "Merger": [*clocks, np.array([1, 2], np.uint64), False, False],
        "Merger.counts": [1.0, np.zeros(2, np.int64)],
        "Merger.cut": [1, np.zeros(2, np.int64)],
        "Merger.take": [np.zeros(2, np.int64), np.array([0, 0, 4]), np.arange(4.0), *pair],
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


GOOD = [
    *("paint", "same", "weave", "fill", "announce", "Copier", "of_rows", "Payload", "crc32c"),
    *("guard", "cut", "gather", "tile", "best_fit", "first_fit", "feistel", "hash_rank"),
    *("Merger", "Merger.counts", "Merger.cut", "Merger.take"),
]
WRITTEN = {"segment_ids", "position_ids", "loss_mask", "labels", "out", "checked", "source", "item"}
ALSO = {("weave", "tokens"), *(("tile", one) for one in ("first", "cells", "segment", "continues"))}
ALSO |= {("cut", one) for one in ("edges", "document", "begin", "length", "address")}
ALSO |= {("Merger.take", "counts")}
NO_NUMBERS = {"backwards", "letter", "keep", "mapped", "name", "midpoint", "listed"}


def is_written(entry, name):
    return entry != "same" and (name in WRITTEN or (entry, name) in ALSO)


def apart(array):
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


ARRAYS = [  # of another kind, in memory that C cannot walk through, or no arrays
    lambda a: a.astype(np.int16),
    lambda a: a.astype(complex),
    lambda a: a.astype(object),
    apart,
    lambda a: "x",
]
NUMBERS = ["x", None, [1], 2**200]


@pytest.mark.parametrize("entry", GOOD)
def test_a_spoiled_argument_is_refused_by_its_declared_name(entry):
    assert len(names(entry)) == len(good(entry))
    call(entry, good(entry))  # what is spoiled below works
    for place, name in enumerate(names(entry)):
        value = good(entry)[place]
        spoils = [] if name in NO_NUMBERS else NUMBERS[: 3 if name == "moment" else None]
        if isinstance(value, np.ndarray):
            spoils = [spoil(value) for spoil in ARRAYS]
        for wrong in spoils:
            args = good(entry)
            args[place] = wrong
            with pytest.raises((TypeError, ValueError), match=rf"(^|[ ,]){name}[:, ]"):
                call(entry, args)


@pytest.mark.parametrize("entry", GOOD)
def test_another_number_of_arguments_is_refused(entry):
    args = good(entry)
    for wrong in ([], args[:-1], [*args, 1]) if args else ([1], [None, None]):
        with pytest.raises(TypeError, match="argument"):
            call(entry, wrong)


@pytest.mark.parametrize("entry", GOOD)
def test_an_output_that_is_read_only_or_shares_a_byte_is_refused_by_name(entry):
    for place, name in enumerate(names(entry)):
        value = good(entry)[place]
        if not (isinstance(value, np.ndarray) and is_written(entry, name)):
            continue
        args = good(entry)
        args[place].flags.writeable = False
        with pytest.raises(ValueError, match=f"^{name}: "):
            call(entry, args)
        for other, array in enumerate(good(entry)):
            if other != place and isinstance(array, np.ndarray):
                args, room = good(entry), np.zeros(4096, np.uint8)
                args[place] = room[1024 : 1024 + value.nbytes].view(value.dtype)
                last = 1024 + value.nbytes - array.itemsize  # one item of both
                last -= last % array.itemsize
                args[other] = room[last : last + array.nbytes].view(array.dtype)
                args[other].reshape(-1)[:] = array.reshape(-1)
                with pytest.raises(ValueError, match="shares memory with"):
                    call(entry, args)


@pytest.mark.parametrize(
    ("entry", "name", "values"),
    [
        *((entry, "filler", (2**31, -(2**31) - 1)) for entry in ("fill", "weave")),
        *((entry, "ignore", (2**31, 2**32 - 100)) for entry in ("paint", "weave")),
        ("best_fit", "capacity", (0, 2**31, 1 << 40)),
        ("first_fit", "most", (0,)),
        ("feistel", "n", (0, 2**63 + 1, 2**64)),
        ("feistel", "side", (0, 1001, 2**70)),
        ("Merger.cut", "index", (-1, 2**54)),
    ],
)
def test_a_number_out_of_range_is_refused_and_not_cut(entry, name, values):
    args, place = good(entry), names(entry).index(name)
    for wrong in values:
        args[place] = wrong
        with pytest.raises(ValueError, match=name):
            call(entry, args)


@pytest.mark.parametrize(
    ("entry", "name", "value"),
    [
        ("best_fit", "lengths", 9),
        ("first_fit", "lengths", -1),
        ("feistel", "x", 40),
        ("feistel", "which", 3),
        ("hash_rank", "x", 40),
        ("paint", "length", 2**62),
        ("Copier", "low", -1),
        ("Copier", "length", 2**62),
        ("of_rows", "address", 2**62),
        ("Merger", "first", 10),
        ("Merger", "cost", 2**54),
        ("Merger.take", "counts", 10),
    ],
)
def test_an_item_out_of_range_is_refused_before_anything_is_written(entry, name, value):
    place = names(entry).index(name)
    for at in range(good(entry)[place].size):
        args = good(entry)
        args[place].reshape(-1)[at] = value
        before = [one.copy() for one in args if isinstance(one, np.ndarray)]
        with pytest.raises((ValueError, IndexError), match=name):
            call(entry, args)
        after = [one for one in args if isinstance(one, np.ndarray)]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


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
    place = names(entry).index(which)
    args = good(entry)
    args[place] = args[place].astype(np.int64)
    with pytest.raises(TypeError, match="tokens and labels: not of one type"):
        call(entry, args)
    both = [names(entry).index(name) for name in ("tokens", "labels")]
    args = good(entry)
    for place in both:
        args[place] = args[place].astype(np.int64)
    call(entry, args)
    narrow = good(entry)
    call(entry, narrow)
    for place in both:
        assert np.array_equal(args[place], narrow[place])


@pytest.mark.parametrize(
    ("place", "wrong", "named"),
    [
        (1, 5002, "bytes"),
        (1, -2, "bytes"),
        (2, "B", "letter"),
        (3, None, "sums, checked"),
        (4, None, "sums, checked"),
        (7, b"x", "name"),
    ],
)
def test_a_payload_that_is_not_what_is_said_is_refused_by_name(place, wrong, named):
    args = good("Payload")
    args[place] = wrong
    with pytest.raises((TypeError, ValueError), match=f"^{named}: "):
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
        assert len(os.listdir("/proc/self/fd")) <= before  # others may have let go of theirs


@pytest.mark.parametrize("plain", [0, 1])
def test_checksums_are_those_of_everybody(plain):
    rng = np.random.default_rng(0)
    assert COMPILED.crc32c(b"123456789", plain) == 0xE3069283
    data = rng.integers(0, 256, 5000, np.uint8)
    for size in (*range(70), 4095, 4096, 4991):
        for shift in range(9):
            part = data[shift : shift + size]
            assert COMPILED.crc32c(part, plain) == google_crc32c.value(part.tobytes())


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
    spoiled = {OWN.get(name, (None, name))[1] for name in GOOD}
    assert spoiled - NOTHING_TO_SPOIL == entries(COMPILED)


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
