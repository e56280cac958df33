"""A store of 10^12 tokens that is not there: indices, batches and resume as for any other."""

import subprocess
import sys
from pathlib import Path

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
