"""Ranks and workers of torch itself, in processes of their own."""

import subprocess
import sys
import textwrap

from toyruns import toy_store

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
    assert "ConfigError" in ran.stdout, ran.stderr
    assert "worker 0 of 2" in ran.stdout
