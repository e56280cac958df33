"""A tiny model in plain torch: killed runs have the curve of one that was not."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torchtrain
from torchtrain import curve
from toyruns import toy_store

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(autouse=True)
def one_thread():
    """Sums have one order then."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- killed and resumed ----------------------------------------------------------------------


def started(store, folder, steps, workers=0, world=1, dropout=0.1):
    """The processes of a training program."""
    program = [sys.executable, str(Path(torchtrain.__file__)), str(store.path), str(folder)]
    program += [str(steps), str(workers), str(dropout)]
    port = _free_port()
    ranks = []
    for rank in range(world):
        more = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        more |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
        environment = {**os.environ, **more}
        with open(folder / f"errors-{rank}", "wb") as errors:
            ranks.append(subprocess.Popen(program, env=environment, stderr=errors))
    return ranks


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def finished(folder, ranks):
    for number, rank in enumerate(ranks):
        assert rank.wait(timeout=900) == 0, (folder / f"errors-{number}").read_text()


def killed(folder, ranks, after):
    """Kill all processes as soon as the log has that many lines."""
    while _lines(folder) < after:
        assert all(rank.poll() is None for rank in ranks), (folder / "errors-0").read_text()
        time.sleep(0.002)
    for rank in ranks:
        os.kill(rank.pid, signal.SIGKILL)
    for rank in ranks:
        rank.wait(timeout=300)


def _lines(folder):
    log = folder / "log"
    return log.read_text().count("\n") if log.exists() else 0


@pytest.mark.slow
def test_killed_at_random_steps_and_resumed_the_curve_is_bit_identical(store, tmp_path):
    workers = 2
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    steps, chance = 120, random.Random(workers)
    finished(whole, started(store, whole, steps))
    kills = 0
    while kills < 2:
        ranks = started(store, parts, steps, workers=workers)
        killed(parts, ranks, _lines(parts) + chance.randrange(1, 40))
        kills += 1
    finished(parts, started(store, parts, steps, workers=workers))
    assert curve(parts) == curve(whole)
    assert sorted(curve(parts)) == list(range(1, steps + 1))
    assert _lines(parts) >= steps


@pytest.mark.slow
def test_ddp_on_1_then_3_then_2_processes_has_the_curve_of_one(store, tmp_path):
    """Sums of floats differ in the last digits with the number of ranks; the rows do not."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    finished(whole, started(store, whole, 24, dropout=0))
    finished(parts, started(store, parts, 8, dropout=0))
    killed(parts, started(store, parts, 10**6, world=3, dropout=0), after=15)
    last = max(curve(parts))
    finished(parts, started(store, parts, last + 8, world=2, dropout=0))
    assert max(curve(parts)) == last + 8
    one, many = curve(whole), curve(parts)
    for step in range(1, 1 + min(24, len(many))):
        (wanted,) = one[step]
        assert max(abs(loss - wanted) for loss in many[step]) < 1e-6 * max(1, wanted)


GROUPS = """
import json, os, sys
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import tokenloom as tl
from tokenloom.integrations.torch import dataloader

dist.init_process_group("gloo")
rank = dist.get_rank()
run = tl.open(sys.argv[1]).pack(16).shuffle()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # data-parallel ranks, by hand

def rows(**options):
    return [one["index"].tolist() for one in dataloader(run, 8, fields=("index",), **options)]

found = {"mesh": rows(group=mesh["dp"]), "group": rows(group=pairs[rank % 2]), "all": rows()}
for name, group in (("outside", pairs[(rank + 1) % 2]), ("whole", mesh)):
    try:
        rows(group=group)
    except tl.ConfigError as error:
        found[name] = str(error)
with open(f"{sys.argv[2]}/{rank}.json", "w") as out:
    json.dump(found, out)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_process_group_and_an_axis_of_a_mesh_name_the_ranks_that_share_rows(store, tmp_path):
    """2 x 2: the two processes of a tensor-parallel pair get the same rows."""
    (tmp_path / "program.py").write_text(GROUPS)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4"]
    command += ["--master-port", str(_free_port()), str(tmp_path / "program.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(store.path), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json_of(tmp_path / f"{rank}.json") for rank in range(4)]
    run = tl.open(store.path).pack(16).shuffle()

    def rows(rank, world):
        loader = dataloader(run, 8, rank=rank, world_size=world, fields=("index",))
        return [one["index"].tolist() for one in loader]

    for rank, one in enumerate(found):
        assert one["mesh"] == one["group"] == rows(rank // 2, 2)
        assert one["all"] == rows(rank, 4)
        assert "group" in one["outside"]
        assert "group" in one["whole"]


def json_of(path):
    return json.loads(path.read_text())
