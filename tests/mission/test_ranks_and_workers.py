"""Ranks are found where launchers and frameworks keep them (ruling 36)."""

import logging
import sys
from types import SimpleNamespace

import pytest
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl

LAUNCHERS = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_run(toy_store(tmp_path_factory.mktemp("toy")))


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch):
    """No launcher, no framework."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", *LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "torch.utils.data", "jax", "jax.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def found(run):
    """Rank and number of ranks of a loader with these arguments."""

    def found(*place, **options):
        loader = tl.Loader(run, 64, *place, **options)
        return loader.rank, loader.world_size

    return found


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


def test_the_first_that_knows_is_believed(found, monkeypatch, caplog):
    """torch.distributed, then RANK and WORLD_SIZE, then JAX; numbers given win over all."""
    with caplog.at_level(logging.INFO, "tokenloom"):
        assert found() == (0, 1)
        assert not caplog.records
    jax_with(monkeypatch, 1, 2)
    assert found() == (1, 2)
    environment(monkeypatch, RANK=2, WORLD_SIZE=3, LOCAL_RANK=0)
    assert found() == (2, 3)
    torch_with(monkeypatch, 3, 4)
    assert found() == (3, 4)
    assert found(0, 1) == (0, 1)
    assert found(1, 2) == (1, 2)
    torch_with(monkeypatch, 0, 1)
    assert found() == (0, 1)  # whoever is initialised is believed, also about a world of one


def test_who_is_not_ready_is_not_asked(found, monkeypatch):
    jax_with(monkeypatch, 1, 2, up=False)
    assert found() == (0, 1)
    torch_with(monkeypatch, 1, 2)
    sys.modules["torch.distributed"].is_initialized = lambda: False
    assert found() == (0, 1)
    sys.modules["torch.distributed"].is_initialized = lambda: True
    sys.modules["torch.distributed"].is_available = lambda: False
    assert found() == (0, 1)


@pytest.mark.parametrize("only", ["RANK", "WORLD_SIZE"])
def test_half_of_an_environment_is_not_believed(found, monkeypatch, only):
    environment(monkeypatch, **{only: 1})
    assert found() == (0, 1)


def test_a_found_rank_is_logged_once(found, monkeypatch, caplog):
    torch_with(monkeypatch, 41, 43)  # numbers that no other test has
    with caplog.at_level(logging.INFO, "tokenloom"):
        for _ in range(3):
            found()
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "41 of 43" in record.getMessage()


def test_rank_without_local_rank_warns(found, monkeypatch, recwarn):
    environment(monkeypatch, RANK=1, WORLD_SIZE=2, LOCAL_RANK=1)
    assert found() == (1, 2)
    assert not recwarn.list
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.warns(UserWarning, match="LOCAL_RANK"):
        assert found() == (1, 2)
    torch_with(monkeypatch, 1, 2)  # who asks torch needs no LOCAL_RANK
    recwarn.clear()
    assert found() == (1, 2)
    assert not recwarn.list


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_of_several_beside_a_world_of_one_warns(found, monkeypatch, recwarn, name):
    for harmless in (1, 0, "", "many"):
        environment(monkeypatch, **{name: harmless})
        assert found() == (0, 1)
    assert not recwarn.list
    for several in (2, 4):
        environment(monkeypatch, **{name: several})
        with pytest.warns(UserWarning, match=f"{name}.*{several}"):
            assert found() == (0, 1)
    recwarn.clear()
    assert found(0, 1) == (0, 1)  # given: nothing is said
    torch_with(monkeypatch, 1, 2)
    assert found() == (1, 2)
    assert not recwarn.list
    torch_with(monkeypatch, 0, 1)  # initialised, and still alone
    with pytest.warns(UserWarning, match=name):
        found()


@pytest.mark.parametrize(
    ("given", "missing"), [({"rank": 1}, "world_size"), ({"world_size": 2}, "rank")]
)
def test_half_a_rank_is_refused(found, given, missing):
    refused(lambda: found(**given), tl.ConfigError, f"Add {missing}")


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
@pytest.mark.parametrize("value", ["", "one", "1.5"])
def test_an_environment_that_is_no_number_is_refused(found, monkeypatch, name, value):
    environment(monkeypatch, **{"RANK": 0, "WORLD_SIZE": 2, "LOCAL_RANK": 0, name: value})
    refused(found, tl.ConfigError, name, repr(value))


def test_a_rank_outside_its_world_is_refused_wherever_it_came_from(found, monkeypatch):
    environment(monkeypatch, RANK=2, WORLD_SIZE=2, LOCAL_RANK=0)
    refused(found, tl.ConfigError, "rank", "2 of 2")


# -- groups --------------------------------------------------------------------------------


def test_a_group_names_the_ranks_that_share_rows(found, monkeypatch, recwarn):
    torch_with(monkeypatch, 5, 8, {"dp": (0, 2), "other": (-1, 2)})
    environment(monkeypatch, SLURM_NTASKS=8)
    assert found(group="dp") == (0, 2)
    assert not recwarn.list
    refused(lambda: found(group="other"), tl.ConfigError, "group")
    refused(lambda: found(0, 2, group="dp"), tl.ConfigError, "group", "rank")


def test_a_group_before_torch_is_initialised_is_refused(found):
    refused(lambda: found(group=object()), tl.ConfigError, "group", "object")


def test_an_axis_of_a_mesh_names_them_too(found):
    mesh = SimpleNamespace(ndim=1, get_local_rank=lambda: 2, size=lambda: 4)
    assert found(group=mesh) == (2, 4)
    mesh.ndim = 2
    refused(lambda: found(group=mesh), tl.ConfigError, "group", "2 dimensions")


# -- workers of torch ------------------------------------------------------------------------


def workers_of_torch(monkeypatch, worker):
    module = SimpleNamespace(get_worker_info=lambda: worker)
    monkeypatch.setitem(sys.modules, "torch.utils.data", module)


def test_a_loader_is_refused_in_a_worker_of_torch_wherever_it_was_made(run, found, monkeypatch):
    """Each worker would deliver every row."""
    made, begun = tl.Loader(run, 4), tl.Loader(run, 4, prefetch=0)
    assert next(begun).index[0] == 0
    workers_of_torch(monkeypatch, SimpleNamespace(id=1, num_workers=3))
    for call in (found, lambda: iter(made), lambda: next(made)):
        refused(call, tl.ConfigError, "worker 1 of 3")
    workers_of_torch(monkeypatch, None)  # the training process
    assert found() == (0, 1)
    assert next(made).index[0] == 0
    assert next(begun).index[0] == 4
