"""Forks: a child never waits for a thread that stayed in the parent."""

import subprocess
import sys

import pytest
from toyruns import toy_store

FORKS = """
import os, signal, sys, tempfile, threading, time
import numpy as np
import tokenloom as tl

rows = [{"text": "abcdefgh" * (100 + i), "id": str(i)} for i in range(300)]
root = tempfile.mkdtemp() + "/s"
tl.build(rows, root, tokenizer="bytes", id_key="id", progress=False)
store = tl.open(root, cache_bytes=300_000)  # blocks come and go
windows = store.windows(64).block_shuffle()
packed = store.pack(64).shuffle()
mixed = tl.mix({"a": windows, "b": packed})
runs = (windows, packed, mixed)
wanted = [run.batch(range(16)).tokens.tobytes() for run in runs]
loaded = [tl.Loader(mixed, 16, fetch=fetch) for fetch in ("rows", "blocks")]
steps = [next(loader).tokens.tobytes() for loader in loaded]
steps = [[one, next(loader).tokens.tobytes()] for one, loader in zip(steps, loaded)]
document = store.document(7).tobytes()

def read(number):
    rng = np.random.default_rng(number)
    while True:
        for run in runs:
            run.batch(rng.integers(0, len(run), 64))
        store.documents(rng.integers(0, 300, 20))
        store.metadata(int(rng.integers(0, 300)))
        tl.open(root).pack(128)[0]  # computes plans, anew each time

def load(number):
    while True:
        prefetch, fetch = ((1, "rows"), (8, "blocks"))[number]
        loader = tl.Loader(mixed, 32, prefetch=prefetch, fetch=fetch)
        for _, batch in zip(range(50), loader):
            batch.labels

def child():
    signal.alarm(int(sys.argv[2]))  # against a hang; the machine may be slow
    for run, known in zip(runs, wanted):
        assert run.batch(range(16)).tokens.tobytes() == known
    assert store.document(7).tobytes() == document
    assert store.metadata(5)["id"] == "5"
    for loader, known in zip(loaded, steps):  # a loader of the parent, with a thread there
        assert [next(loader.seek(0)).tokens.tobytes(), next(loader).tokens.tobytes()] == known

for number in range(2):
    threading.Thread(target=read, args=(number,), daemon=True).start()
    threading.Thread(target=load, args=(number,), daemon=True).start()
time.sleep(0.2)
for number in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print("child", number, "ended with", status, file=sys.stderr, flush=True)
        os._exit(1)  # at once: an ordinary end aborts if a thread is inside NumPy
    next(loaded[0]), next(loaded[1])  # the parent's go on, too
    time.sleep(0.002)
print("done", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
@pytest.mark.parametrize("forks", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_forks_beside_reading_threads_never_hang_and_read_the_same(forks):
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(forks), "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_forked_child_goes_on_with_the_loader_of_its_parent(tmp_path):
    toy_store(tmp_path)
    code = """
import os, sys, tokenloom as tl
loader = tl.Loader(tl.open(sys.argv[1]).windows(8).epochs(None), 4, prefetch=2)
next(loader)
for _ in range(20):
    first, child = loader.examples, os.fork()
    found = [next(loader).index[0] for _ in range(100)]
    assert found == list(range(first, first + 400, 4)), found
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
