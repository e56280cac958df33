"""Every entry of the compiled module refuses bad arguments by name, and answers as its oracle."""

import collections
import inspect
import os
import tempfile

import google_crc32c
import numpy as np
import pytest
from fuzz import Fuzzer, fuzz, race

from tokenloom import native

COMPILED = native.compiled

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="the loops are not compiled here, or turned off"
)


def content(size=5000):
    """A file without a name, and what is in it."""
    fd, path = tempfile.mkstemp()
    os.unlink(path)
    os.write(fd, np.arange(size // 2, dtype=np.uint16).tobytes())
    return fd, os.pread(fd, size, 0)


FD, CONTENT = content()


def sums_of(content):
    pages = [content[at : at + 4096] for at in range(0, len(content), 4096)]
    return np.array([google_crc32c.value(page) for page in pages], np.uint32)


def payload_arguments(**changes):
    made = {"fd": FD, "bytes": 5000, "letter": "H", "sums": sums_of(CONTENT)}
    made |= {"checked": np.zeros(2, np.uint8), "keep": True, "mapped": True, "name": "a name"}
    return [*(made | changes).values()]


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
    given = payload_arguments(sums=sums, checked=marks)
    views = [np.zeros(4, np.uint16), COMPILED.Payload(*given)]
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


def test_a_payload_of_a_file_that_is_not_open_is_an_oserror():
    with pytest.raises(OSError, match="Bad file descriptor"):
        COMPILED.Payload(*payload_arguments(fd=2**31 - 1))


def test_named_arguments_are_refused():
    for entry in ("Payload", "Copier"):
        with pytest.raises(TypeError, match="no named arguments"):
            getattr(COMPILED, entry)(*payload_arguments(), views=1)


def test_a_payload_holds_its_file_and_its_arrays_and_gives_them_back():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    marks = bytearray(2)
    spoiled = ({}, {"bytes": 5002}, {"sums": np.zeros(1, np.uint32)}, {"name": 7})
    for changes in spoiled:
        given = payload_arguments(**{"checked": marks} | changes)
        if changes:
            with pytest.raises((TypeError, ValueError)):
                COMPILED.Payload(*given)
            marks.extend(b"x")  # nobody holds it
            del marks[2:]
            continue
        made = COMPILED.Payload(*given)
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


def clocks(cost=(3, 5)):
    """Two sources, as `Merger` takes them."""
    columns = [np.array(one) for one in ((0, 0), cost, (0, 0), (9, 9))]
    return [np.array([1.0, 2.0]), np.array([0.0, 0.5]), *columns, np.array([1, 2], np.uint64)]


def merger():
    return COMPILED.Merger(*clocks(), False, False)


def test_odd_moments_have_an_answer():
    out = np.zeros(2, np.int64)
    for moment, expected in ((float("inf"), [9, 9]), (float("-inf"), [0, 0]), (1e308, [9, 9])):
        merger().counts(moment, out)
        assert out.tolist() == expected
    merger().counts(float("nan"), out)
    assert ((out >= 0) & (out <= 9)).all()


def test_the_ends_of_what_is_allowed_do_not_overflow():
    for midpoint in (False, True):
        args = clocks((2**53, 1))
        args[2][:] = 2**61
        args[5][:] = 2**62
        made, out = COMPILED.Merger(*args, midpoint, False), np.zeros(2, np.int64)
        made.counts(1e200, out)
        assert out.tolist() == [2**8, 2**61]
        made.cut(2**53, out)
        assert out.sum() == 2**53
        source, item = np.zeros((2, 9), np.int64)
        out[:] = 2**8, 2**61 - 3
        assert made.take(out, None, None, source, item) == 3  # then both are at their ends
        assert out.tolist() == [2**8, 2**61]


def test_more_than_there_is_gives_what_there_is():
    source, item, out = np.full(40, -1), np.full(40, -1), np.zeros(2, np.int64)
    assert merger().take(out, None, None, source, item) == 18
    assert out.tolist() == [9, 9]
    assert (source[18:] == -1).all()
    merger().cut(10**6, out)
    assert out.tolist() == [9, 9]


NOTHING_TO_SPOIL = {"guard"}  # takes no argument
ANY_VALUE = {"backwards", "keep", "mapped", "midpoint", "listed", "fd"}


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


def arguments(entry):
    """Names of its arguments, as declared."""
    made = COMPILED
    for part in entry.split("."):
        made = getattr(made, part)
    declared = inspect.signature(made).parameters
    return {name.removeprefix("tile_") for name in declared} - {"self"}  # of `weave`: its tiles


def test_random_calls_are_refused_or_answered_as_the_oracles_say():
    """Every argument of every entry is spoiled and refused by its declared name."""
    found = fuzz(COMPILED, 1, calls=4_000)
    assert min(found.seen.values()) > 30
    for outcome in ("accepted", "refused"):
        assert {name for name, seen in found.seen if seen == outcome} == entries(COMPILED)
    for entry in entries(COMPILED):
        assert found.named[entry] - {"takes"} >= arguments(entry) - ANY_VALUE, entry


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
                    args[4].reshape(-1)[:1] += 1
                return found

            return method

    for wrong in ("best_fit", "crc32c", "Merger.take"):
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
    calls = race(COMPILED, 0.5, 3)
    expected = {"paint", "Copier", "weave", "best_fit", "first_fit", "feistel", "hash_rank"}
    expected |= {"of_rows", "cut", "tile", "gather", "Merger", "take", "Payload"}
    assert {name for name, _ in calls} == expected
