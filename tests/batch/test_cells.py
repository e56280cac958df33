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

from tokenloom import native
from tokenloom.batch import cells

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
