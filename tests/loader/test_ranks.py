"""Ranks are found where launchers and frameworks keep them (ruling 36)."""

import logging
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.loader import ranks
from tokenloom.loader.ranks import Ranks, find_ranks

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", *ranks.LAUNCHERS)


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch):
    """No launcher, no framework, nothing told before."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "torch.utils.data", "jax", "jax.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    ranks._tell.cache_clear()
    yield
    ranks._tell.cache_clear()


def environment(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def torch_with(monkeypatch, rank, size, groups=None):
    """A torch.distributed that was initialised."""
    known = {None: (rank, size), **(groups or {})}
    module = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda group=None: known[group][0],
        get_world_size=lambda group=None: known[group][1],
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", module)


def jax_with(monkeypatch, rank, size, *, up=True):
    told = SimpleNamespace(process_index=lambda: rank, process_count=lambda: size)
    monkeypatch.setitem(sys.modules, "jax", told)
    monkeypatch.setitem(sys.modules, "jax.distributed", SimpleNamespace(is_initialized=lambda: up))


def test_nothing_known_is_rank_0_of_1(caplog):
    with caplog.at_level(logging.INFO, "tokenloom"):
        assert find_ranks(None, None) == Ranks(0, 1)
    assert not caplog.records


def test_the_first_that_knows_is_believed(monkeypatch):
    """torch.distributed, then RANK and WORLD_SIZE, then JAX; numbers given win over all."""
    jax_with(monkeypatch, 1, 2)
    assert find_ranks(None, None) == Ranks(1, 2)
    environment(monkeypatch, RANK=2, WORLD_SIZE=3, LOCAL_RANK=0)
    assert find_ranks(None, None) == Ranks(2, 3)
    torch_with(monkeypatch, 3, 4)
    assert find_ranks(None, None) == Ranks(3, 4)
    assert find_ranks(0, 1) == Ranks(0, 1)


def test_who_is_not_ready_is_not_asked(monkeypatch):
    jax_with(monkeypatch, 1, 2, up=False)
    assert find_ranks(None, None) == Ranks(0, 1)
    torch_with(monkeypatch, 1, 2)
    sys.modules["torch.distributed"].is_initialized = lambda: False
    assert find_ranks(None, None) == Ranks(0, 1)
    sys.modules["torch.distributed"].is_available = lambda: False
    assert find_ranks(None, None) == Ranks(0, 1)


@pytest.mark.parametrize("only", ["RANK", "WORLD_SIZE"])
def test_half_of_an_environment_is_not_believed(monkeypatch, only):
    environment(monkeypatch, **{only: 1})
    assert find_ranks(None, None) == Ranks(0, 1)


def test_a_found_rank_is_told_once(monkeypatch, caplog):
    torch_with(monkeypatch, 3, 8)
    with caplog.at_level(logging.INFO, "tokenloom"):
        for _ in range(3):
            find_ranks(None, None)
    (record,) = caplog.records
    assert record.getMessage() == (
        "rank 3 of 8 (from torch.distributed): each of 8 processes gets other rows"
    )


def test_rank_without_local_rank_warns(monkeypatch):
    environment(monkeypatch, RANK=1, WORLD_SIZE=2)
    with pytest.warns(UserWarning, match="LOCAL_RANK is not"):
        assert find_ranks(None, None) == Ranks(1, 2)


@pytest.mark.parametrize("name", ranks.LAUNCHERS)
def test_a_launcher_of_several_beside_a_world_of_one_warns(monkeypatch, name):
    environment(monkeypatch, **{name: 4})
    with pytest.warns(UserWarning, match=f"{name} is 4.*each of 4 processes gets the same rows"):
        assert find_ranks(None, None) == Ranks(0, 1)
    assert find_ranks(0, 1) == Ranks(0, 1)  # given: nothing is said
    torch_with(monkeypatch, 1, 4)
    assert find_ranks(None, None) == Ranks(1, 4)
    environment(monkeypatch, **{name: 1})


@pytest.mark.parametrize("given", [(1, None), (None, 2)])
def test_half_a_rank_is_refused(given):
    with pytest.raises(tl.ConfigError, match=r"allowed: both, or neither.*Add (rank|world_size)\."):
        find_ranks(*given)


@pytest.mark.parametrize("value", ["", "one", "1.5"])
def test_an_environment_that_is_no_number_is_refused(monkeypatch, value):
    environment(monkeypatch, RANK=value, WORLD_SIZE=2, LOCAL_RANK=0)
    with pytest.raises(tl.ConfigError, match=r"RANK: found .* in the environment"):
        find_ranks(None, None)


def test_a_rank_outside_its_world_is_refused_wherever_it_came_from(monkeypatch, tmp_path):
    environment(monkeypatch, RANK=2, WORLD_SIZE=2, LOCAL_RANK=0)
    with pytest.raises(tl.ConfigError, match="found 2 of 2"):
        tl.Loader(toy_run(toy_store(tmp_path, rows=8)), 4)


# -- groups --------------------------------------------------------------------------------


def test_a_group_names_the_ranks_that_share_rows(monkeypatch):
    torch_with(monkeypatch, 5, 8, {"dp": (1, 2), "other": (-1, 2)})
    assert find_ranks(None, None, "dp") == Ranks(1, 2)
    with pytest.raises(tl.ConfigError, match="this process is not in it"):
        find_ranks(None, None, "other")
    with pytest.raises(tl.ConfigError, match="one of the two"):
        find_ranks(0, 2, "dp")


def test_a_group_before_torch_is_initialised_is_refused():
    with pytest.raises(tl.ConfigError, match="Call init_process_group first"):
        find_ranks(None, None, object())


def test_an_axis_of_a_mesh_names_them_too():
    mesh = SimpleNamespace(ndim=1, get_local_rank=lambda: 2, size=lambda: 4)
    assert find_ranks(None, None, mesh) == Ranks(2, 4)
    mesh.ndim = 2
    with pytest.raises(tl.ConfigError, match=r'of 2 dimensions.*group=mesh\["dp"\]'):
        find_ranks(None, None, mesh)


# -- with torch itself ---------------------------------------------------------------------

TRAIN = """
    import sys
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    import tokenloom as tl

    rank, meeting, store = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=4)
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    groups = {
        "none": None,
        "mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["dp"],
        "group": pairs[rank % 2],
    }
    for axes, group in groups.items():
        with tl.Loader(tl.open(store).windows(8), 4, group=group) as loader:
            print("rows", axes, rank, loader.rank, loader.world_size, next(loader).index.tolist())
    dist.destroy_process_group()
"""


def test_processes_of_torch_find_their_rows(tmp_path):
    toy_store(tmp_path / "store", rows=8)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    told = [str(tmp_path / "meeting"), str(tmp_path / "store")]
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), *told], stdout=subprocess.PIPE, text=True
        )
        for rank in range(4)
    ]
    printed = [process.communicate(timeout=900)[0] for process in running]
    rows = [line.split(" ", 5) for out in printed for line in out.splitlines() if "rows" in line]
    found = {axes: [] for axes in ("none", "mesh", "group")}
    for _, axes, _, *place in sorted(rows):
        found[axes].append(place)
    halves = [
        ["0", "2", "[0, 1]"],
        ["0", "2", "[0, 1]"],
        ["1", "2", "[2, 3]"],
        ["1", "2", "[2, 3]"],
    ]
    assert found == {
        "none": [[str(rank), "4", f"[{rank}]"] for rank in range(4)],
        "mesh": halves,  # ranks 0 and 1 are one tensor-parallel pair
        "group": halves,
    }


def test_a_loader_inside_a_worker_of_torch_is_refused(tmp_path):
    """newcomer.md, A4: with two workers everything was delivered twice."""
    store = toy_store(tmp_path, rows=8)
    script = """
        import sys, torch, tokenloom as tl

        class Rows(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(tl.Loader(tl.open(sys.argv[1]).windows(8), 2))

        try:
            next(iter(torch.utils.data.DataLoader(Rows(), num_workers=2, batch_size=None)))
        except Exception as error:
            print(str(error).splitlines()[-1])
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(store.path)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert "ConfigError: Loader: found inside worker 0 of 2" in ran.stdout, ran.stderr
