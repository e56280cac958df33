"""Large stores that are not there, memory, and the end of a process: in processes of their own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from toyruns import toy_store

ROOT = Path(__file__).parents[2]

CODE = """
import json, resource, sys, tempfile, threading
import numpy as np
sys.path.insert(0, {fault!r})
from virtual import VirtualStore, value
import tokenloom as tl

shards = [(131_072, 1 << 27)] * 7_451          # 1.0e12 tokens, 9.8e8 documents
virtual = VirtualStore(shards)
root = virtual.write_manifest(__import__("pathlib").Path(tempfile.mkdtemp()) / "huge")

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

before = peak()
store = tl.open(root, verify="never", source=virtual, cache_bytes=32 << 20)
assert store.num_tokens > 10**12
for dataset in (
    store.windows(2048).shuffle().seed(3),
    store.windows(2048).block_shuffle(window_blocks=8, lanes=4).seed(3),
):
    n = len(dataset)
    for indices in ([0, 1, n - 1], [n // 2, n // 3]):
        batch = dataset.batch(indices)
        epoch, row = dataset.locate(indices)
        address = row[:, None] * 2048 + np.arange(2048)
        assert (batch.tokens == value(address)).all()
        document = int(batch.spans.document[0])
        assert indices[0] in [place.index for place in dataset.where("main", document)]
        batch.spans.check()
        assert batch.loss_tokens > 0
    for step in (0, 10**6, n // 64 - 1):
        loader = tl.Loader(dataset, 64, prefetch=0).seek(step)
        tokens = next(loader).tokens
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["examples"] == (step + 1) * 64
        again = tl.Loader(dataset, 64, rank=2, world_size=3, prefetch=0).seek(step)
        assert (next(again).tokens == tokens[42:]).all()
print((peak() - before) // 1024, peak() // 1024)
"""


def test_ten_to_the_twelve_tokens_take_less_than_200_mb():
    """The manifest, the orders, the boundaries of the rows asked for, and nothing else."""
    code = CODE.format(fault=str(ROOT / "tests/shared"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    growth, _ = map(int, done.stdout.split())
    assert growth < 200


MEMORY = """
import mmap, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import numpy as np
from virtual import VirtualStore
import tokenloom as tl

class Bucket(VirtualStore):
    parallel, who = 8, set()

    def _bytes(self, name, start, count):  # tokens without arithmetic: it takes memory, too
        if "input_ids/c" not in name:
            return super()._bytes(name, start, count)
        self.who.add(threading.get_ident())
        found = np.frombuffer(mmap.mmap(-1, count), np.uint8)  # a thread's own heap would keep it
        found[:] = 7
        return found

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) >> 10

bucket = Bucket([(64, 1 << 25)] * 4)
root = bucket.write_manifest(Path(sys.argv[1]))
store = tl.open(root, source=bucket, cache_bytes=16 << 20, verify="never")
run = store.windows(2048).block_shuffle(window_blocks=8).seed(1)  # 4 MiB
with tl.Loader(run, 8, prefetch=4) as loader:
    next(loader)
    before, steps = peak(), 1
    for batch in loader:
        steps += 1
    stats = loader.stats().cache
print(peak() - before, steps * 8 * 2048, stats.bytes >> 20, len(bucket.who))
"""


def run_python(code, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_windows_fetched_ahead_take_little_more_memory_than_the_cache(tmp_path):
    """The peak of a process through which 256 MiB of tokens go; all in MiB."""
    done = run_python(MEMORY, tmp_path / "s", ROOT / "tests/shared")
    assert done.returncode == 0, done.stderr[-2000:]
    grown, delivered, kept, threads = map(int, done.stdout.split())
    assert (delivered, threads > 2) == (4 << 25, True), "or nothing was fetched ahead"
    assert kept <= 16
    assert grown < 64  # the cache, blocks on their way, those of the steps being made, plans


GROWTH = """
import sys, tokenloom as tl

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

store = tl.open(sys.argv[1], cache_bytes=1 << 20)
dataset = store.windows(8).block_shuffle(window_blocks=2, lanes=2).epochs(None)
with tl.Loader(dataset, 8, prefetch=16, fields=("tokens", "labels", "position_ids")) as loader:
    sizes = []
    for step in range(int(sys.argv[2])):
        next(loader)
        if step % 500 == 499:
            sizes.append(resident())
print(*sizes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("batches", [6000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_w6_memory_does_not_grow_with_the_batches(tmp_path, batches):
    toy_store(tmp_path, rows=300)
    done = run_python(GROWTH, tmp_path, batches)
    assert done.returncode == 0, done.stderr
    sizes = [int(word) for word in done.stdout.split()]
    half = sizes[len(sizes) // 2 :]
    slope = np.polyfit(np.arange(len(half)) * 500, half, 1)[0]  # bytes added with each batch
    assert slope < 1024


def test_a_process_ends_though_a_loader_is_still_at_work(tmp_path):
    toy_store(tmp_path)
    code = """
import sys, time, tokenloom as tl
sys.path.insert(0, sys.argv[2])
from counted import CountedFiles
source = CountedFiles(sys.argv[1], latency=float(sys.argv[3]))
loader = tl.Loader(tl.open(sys.argv[1], source=source).windows(8).epochs(None), 4)
print(next(loader).index.tolist())
"""
    for latency in (0, 0.05):
        done = run_python(code, tmp_path, ROOT / "tests/shared", latency)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")
