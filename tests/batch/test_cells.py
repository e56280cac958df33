"""Runs into cells: the compiled loop and NumPy do the same, and neither leaves its arrays."""

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom import native
from tokenloom.batch import cells, paint, spec
from tokenloom.batch import tiles as tiles_room
from tokenloom.testing import write_flat

COMPILED = native.compiled
WAYS = ["numpy"] if COMPILED is None else ["numpy", "compiled"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setattr(native, "compiled", COMPILED if request.param == "compiled" else None)
    return request.param


def test_where_there_is_a_compiler_the_loops_are_compiled():
    """An installation without them works, so nobody would notice if they were never built."""
    if os.environ.get("TOKENLOOM_NATIVE") == "0":
        assert COMPILED is None
    elif shutil.which("cc"):
        assert COMPILED is not None
        assert importlib.util.find_spec("tokenloom._native") is not None


@pytest.mark.parametrize("setting", ["0", "1"])
def test_the_environment_chooses(setting):
    there = setting != "0" and importlib.util.find_spec("tokenloom._native") is not None
    code = "import tokenloom.native as n; print(n.compiled is not None)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TOKENLOOM_NATIVE": setting},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(there)


# -- copying -------------------------------------------------------------------------------


@st.composite
def copies(draw):
    """Views, runs in them with ascending cells, and a stretch of these runs with room for it."""
    dtype = draw(st.sampled_from([np.uint16, np.uint32]))
    top = np.iinfo(np.int32).max if dtype == np.uint32 else 65_535
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    views = [rng.integers(0, top, size, endpoint=True).astype(dtype) for size in sizes]
    runs, cell = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        which = draw(st.integers(0, len(sizes) - 1))
        low = draw(st.integers(0, sizes[which]))
        length = draw(st.integers(0, sizes[which] - low))
        runs.append((which, low, length, cell))
        cell += length + draw(st.integers(0, 3))
    first = draw(st.integers(0, len(runs)))
    last = draw(st.integers(first, len(runs)))
    begin = runs[first][3] if first < last else cell
    base = begin - draw(st.integers(0, 3))
    end = runs[last - 1][3] + runs[last - 1][2] if first < last else begin
    return views, runs, first, last, base, end - base + draw(st.integers(0, 3))


@pytest.mark.parametrize("way", WAYS)
@given(made=copies())
def test_every_cell_holds_its_token_or_filler(way, made):
    views, runs, first, last, base, size = made
    expected = [-7] * size
    for which, low, length, cell in runs[first:last]:
        for i in range(length):
            expected[cell - base + i] = int(views[which][low + i])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "compiled", COMPILED if way == "compiled" else None)
        columns = np.array(runs, np.int64).reshape(-1, 4).T
        copier = cells.copier(views, *columns)
        out = np.full(size, 99, np.int32)
        copier.fill(out, first, last, base, -7)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    "run",
    [
        *[(-1, 0, 1, 0), (2, 0, 1, 0), (0, -1, 1, 0), (0, 0, 5, 0), (0, 4, 1, 0), (0, 5, 0, 0)],
        *[(0, 1, -1, 0), (1, 2**62, 2**62, 0), (0, 1, 2**63 - 1, 0), (2**62, 0, 1, 0)],
    ],
)
def test_a_run_outside_its_view_is_refused(way, run):
    views = [np.arange(4, dtype=np.uint16), np.arange(3, dtype=np.uint16)]
    with pytest.raises(IndexError):
        cells.copier(views, *np.array([(0, 0, 4, 0), run], np.int64).T)


@pytest.mark.parametrize(
    "asked",
    [
        *[(0, 2, 0, 5), (0, 2, 1, 6), (0, 2, -1, 6), (0, 3, 0, 9), (-1, 1, 0, 9), (2, 1, 0, 9)],
        *[(0, 2, -(2**62), 6), (0, 2, 2**62, 6)],
    ],
)
def test_cells_that_are_not_there_are_refused(way, asked):
    first, last, base, size = asked
    views = [np.arange(9, dtype=np.uint16)]
    copier = cells.copier(views, *np.array([(0, 0, 3, 0), (0, 5, 3, 3)], np.int64).T)
    guarded = np.full(size + 8, 42, np.int32)
    with pytest.raises(IndexError):
        copier.fill(guarded[4:-4], first, last, base, 0)
    assert (guarded[[0, 1, 2, 3, -4, -3, -2, -1]] == 42).all()


def test_runs_that_want_the_same_cell_are_refused(way):
    views = [np.arange(9, dtype=np.uint16)]
    copier = cells.copier(views, *np.array([(0, 0, 3, 0), (0, 5, 3, 2)], np.int64).T)
    with pytest.raises(IndexError):
        copier.fill(np.empty(8, np.int32), 0, 2, 0, 0)


def test_a_copier_holds_its_views(way):
    views = [np.arange(100_000, dtype=np.uint16) for _ in range(3)]
    index = np.array([(k, 10, 5, 5 * k) for k in range(3)], np.int64).T
    copier = cells.copier(views, *index)
    index[:] = 0  # the compiled copier also keeps its index
    del views
    out = np.empty(15, np.int32)
    copier.fill(out, 0, 3, 0, 0)
    assert out.tolist() == [*range(10, 15)] * 3 or way == "numpy"


def test_other_dtypes_than_tokens_are_copied_as_they_are():
    views = [np.array([0.5, 1.5, 2.5], np.float32)]
    out = np.empty(4, np.float32)
    cells.copier(views, *np.array([(0, 1, 2, 1)], np.int64).T).fill(out, 0, 1, 0, 0)
    assert out.tolist() == [0, 1.5, 2.5, 0]


@pytest.mark.skipif(COMPILED is None, reason="the loops are not compiled here, or turned off")
class TestCompiled:
    """What Python code cannot do by mistake, but somebody else might: all of it is refused."""

    GOOD = ([np.arange(4, dtype=np.uint16)], *np.array([(0, 0, 4, 0)], np.int64).T)

    @pytest.mark.parametrize("place", range(5))
    @pytest.mark.parametrize(
        "wrong", [None, 3, [1.5], [np.zeros(4)], np.zeros(1, np.int32), np.zeros((4, 2))[:, 0]]
    )
    def test_arguments_that_are_no_arrays_of_their_kind(self, place, wrong):
        arguments = [np.ascontiguousarray(a) if i else a for i, a in enumerate(self.GOOD)]
        arguments[place] = wrong
        with pytest.raises((TypeError, ValueError, IndexError, BufferError)):
            COMPILED.Copier(*arguments)

    def test_numbers_of_arguments(self):
        copier = cells.copier(*self.GOOD)
        for call in (COMPILED.Copier, copier.fill, COMPILED.paint):
            with pytest.raises(TypeError):
                call()
        with pytest.raises(TypeError):
            COMPILED.Copier(*self.GOOD, names=1)

    def test_lengths_that_differ(self):
        views, which, low, length, cell = self.GOOD
        with pytest.raises(ValueError, match="one length"):
            COMPILED.Copier(views, *(a.copy() for a in (which, low, length)), np.zeros(2, np.int64))
        with pytest.raises(TypeError, match=r"views\[1\]: tokens: found items B of 1 bytes"):
            COMPILED.Copier([*views, np.zeros(2, np.uint8)], which, low, length, cell)

    def test_views_of_two_widths(self):
        views = [np.array([5, 6], np.uint16), np.array([70_000, 8], np.uint32)]
        runs = np.array([[0, 1], [0, 0], [2, 2], [0, 3]])
        for made in (COMPILED.Copier(views, *runs.copy()), cells._NumpyCopier(views, *runs)):
            out = np.empty((1, 5), np.int32)
            made.fill(out, 0, 2, 0, -1)
            assert out.tolist() == [[5, 6, -1, 70_000, 8]]

    @pytest.mark.parametrize(
        "out", [np.zeros(4), np.zeros((4, 2), np.int32)[:, 0], b"0123", None, np.zeros(4, np.int16)]
    )
    def test_cells_of_another_kind(self, out):
        with pytest.raises((TypeError, ValueError, BufferError)):
            cells.copier(*self.GOOD).fill(out, 0, 1, 0, 0)

    def test_cells_that_are_read_only(self):
        out = np.zeros(4, np.int32)
        out.flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            cells.copier(*self.GOOD).fill(out, 0, 1, 0, 0)

    @pytest.mark.parametrize(
        ("first", "length"),
        [
            *[([0, 3], [3, 6]), ([0, 2], [3, 5]), ([0, 4], [3, 4]), ([0, 3], [3, 4]), ([1], [7])],
            *[([0, 3], [3, -1]), ([0, 8], [8, 2**62]), ([-1], [9]), ([2**62], [1]), ([], [])],
        ],
    )
    def test_tiles_that_do_not_cover_the_cells(self, first, length):
        arrays = np.array(first, np.int64), np.array(length, np.int64)
        segment, guarded = np.ones(len(first), np.int32), np.full(16, 42, np.int32)
        with pytest.raises(IndexError):
            COMPILED.paint(*arrays, segment, guarded[4:12], None, None, None, None, -100)
        assert (guarded[:4] == 42).all()
        assert (guarded[12:] == 42).all()

    def test_labels_need_tokens_and_arrays_one_length(self):
        tiles = np.zeros(1, np.int64), np.full(1, 8, np.int64), np.ones(1, np.int32)
        cells_8, cells_7 = np.zeros(8, np.int32), np.zeros(7, np.int32)
        for tokens, labels in ((None, cells_8), (cells_8, None), (cells_7, cells_8)):
            with pytest.raises(ValueError, match="labels"):
                COMPILED.paint(*tiles, None, None, None, tokens, labels, -100)
        with pytest.raises(ValueError, match="length"):
            COMPILED.paint(tiles[0], np.zeros(2, np.int64), tiles[2], cells_8, *[None] * 4, -100)


# -- both ways give the same batches ---------------------------------------------------------


@st.composite
def any_tiles(draw):
    width, frames = draw(st.integers(1, 9)), draw(st.integers(0, 4))
    length, segment = [], []
    for _ in range(frames):
        cuts = sorted(draw(st.sets(st.integers(1, width - 1)))) if width > 1 else []
        for count in np.diff([0, *cuts, width]).tolist():
            length.append(count)
            segment.append(draw(st.integers(0, 3)))
    sizes = np.array(length, np.int64)
    first = np.cumsum(sizes) - sizes
    continues, blank = np.zeros(len(sizes), np.bool_), np.empty(0, np.int64)
    return tiles_room.Tiles(
        frames, width, sizes, np.array(segment, np.int32), first, continues, blank
    )


@given(any_tiles(), st.sets(st.sampled_from(list(spec.PAINTED)), min_size=1))
def test_painted_arrays_are_the_same_both_ways(tiles, names):
    tokens = np.arange(tiles.frames * tiles.width, dtype=np.int32).reshape(-1, tiles.width)
    found = []
    for compiled in (None, COMPILED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "compiled", compiled)
            found.append(paint.paint(tiles, sorted(names), tokens))
    for name, array in found[0].items():
        assert array.dtype == spec.PAINTED[name]
        np.testing.assert_array_equal(array, found[1][name], name)


@pytest.mark.parametrize("fetch", ["blocks", "rows"])
@pytest.mark.parametrize("vocabulary", [300, 100_000])
@pytest.mark.parametrize(
    "cut",
    [{}, {"tail": "keep"}, {"lookahead": True}, {"lookahead": True, "label_layout": "aligned"}],
)
def test_a_run_has_the_same_bytes_both_ways(tmp_path, monkeypatch, cut, vocabulary, fetch):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, vocabulary, 40_000)
    edges = np.sort(rng.integers(0, len(ids), 90))
    write_flat(
        tmp_path / "s",
        ids.astype(np.uint16 if vocabulary < 1 << 16 else np.uint32),
        np.diff(edges, prepend=0, append=len(ids)),
        vocab_size=vocabulary,
    )
    fields = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")
    found = []
    for compiled in (None, COMPILED):
        monkeypatch.setattr(native, "compiled", compiled)
        dataset = tl.open(tmp_path / "s").windows(256, **cut).block_shuffle(window_blocks=2).seed(1)
        for asked in (fields, ("tokens",)):
            with tl.Loader(dataset, 7, end="pad", fetch=fetch, fields=asked) as loader:
                batches = [[getattr(batch, name) for name in fields] for batch in loader]
            found.append([array.tobytes() for batch in batches for array in batch])
    assert len(found[0]) == 5 * 23
    assert found[1:] == found[:1] * 3


# -- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(3))
def test_arrays_side_by_side_keep_their_memory_as_long_as_one_of_them_lives(kept):
    shape, kinds = (64, 1024), (np.int32, np.bool_, np.int32)
    arrays = cells.new_arrays(shape, kinds)
    assert [array.dtype for array in arrays] == [np.dtype(kind) for kind in kinds]
    for value, array in enumerate(arrays, 1):
        array[...] = value
    assert [int(array.max()) for array in arrays] == [1, 1, 3]  # none overlaps another
    last = arrays[kept][3:5]
    expected = last.copy()
    del arrays, array
    others = [cells.new_arrays(shape, kinds) for _ in range(4)]
    for array in itertools.chain(*others):
        array[...] = 9
    assert np.array_equal(last, expected)


def test_memory_is_used_again_when_nobody_holds_it():
    shape, kinds = (64, 1024), (np.int32, np.bool_)

    def place():
        return cells.new_arrays(shape, kinds)[0].__array_interface__["data"][0]

    assert place() == place()
