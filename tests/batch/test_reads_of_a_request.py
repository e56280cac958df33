"""One request of the dataset is one request of the store, and nobody else is asked."""

import subprocess
import sys
import time

import numpy as np

import tokenloom as tl
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import write_store


class SlowSource:
    """Every request takes 10 ms, however many ranges it has, as a store far away does."""

    def __init__(self, root):
        self.inner, self.requests = LocalSource(root), []

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        self.requests.append(list(ranges))
        time.sleep(0.01)
        return self.inner.read(ranges)


def make(root):
    write_store(root, [[list(range(1, 900))]], vocab_size=1000, inner=64, chunk_tokens=256)
    source = SlowSource(root)
    return tl.open(root, source=source, verify="never"), source


def test_cr_06_the_reads_of_one_batch_go_out_together(tmp_path):
    store, source = make(tmp_path / "s")
    dataset = store.windows(8)
    dataset.batch([0])  # the shard is open
    source.requests.clear()
    dataset.batch(np.arange(0, 100, 5))  # 20 reads, none near another
    assert [len(ranges) for ranges in source.requests] == [20]  # one request, not one after another


def test_cr_04_the_counters_have_the_published_names_too(tmp_path):
    store, _ = make(tmp_path / "s")
    before = store.reads
    store.windows(8).batch([5, 3, 4, 9, 3])
    reads = store.reads
    assert before.examples == 0
    assert (reads.examples, reads.unique_examples, reads.ranges, reads.read_ops) == (5, 4, 2, 2)
    assert reads.examples_requested == 5
    assert reads.unique_examples_requested == 4
    assert reads.coalesced_ranges == 2
    assert reads.reads_issued == 2
    assert reads.reads_per_example == 0.4


CODE = """
import sys
import tokenloom as tl
store = tl.open(sys.argv[1])
seen = []
def hook(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "pickle.", "shutil.")):
        seen.append(event)
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & 3:
        seen.append(f"writes {arguments[0]}")
sys.addaudithook(hook)
run = store.windows(8).block_shuffle(window_blocks=2, lanes=2).epochs(2)
for rank in range(2):
    with tl.Loader(run, 8, rank, 2) as loader:
        for batch in loader:
            batch.labels
print(seen)
"""


def test_ca_03_ranks_talk_to_nobody_and_write_nothing(tmp_path):
    make(tmp_path / "s")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "s")], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
