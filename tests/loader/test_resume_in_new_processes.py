"""A run resumes in another process from its state alone: nothing else is kept."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from toyruns import FIELDS, toy_run

import tokenloom as tl

CHILD = """
import json, sys
sys.path[:0] = sys.argv[2:]
from test_resume_in_new_processes import digests
import tokenloom as tl
for work in json.load(open(sys.argv[1])):
    dataset = tl.from_config(work["state"]["dataset"])
    loader = tl.Loader(dataset, **work["options"])
    loader.load_state_dict(work["state"])
    assert loader.state_dict() == work["state"]
    print(json.dumps(digests(loader)))
    loader.close()
"""


def digests(loader):
    """Of every batch that is left: its rows, and a hash of every array with shape and dtype."""
    found = []
    for batch in loader:
        sha = hashlib.sha256()
        for name in FIELDS:
            array = getattr(batch, name)
            sha.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        found.append([batch.index.tolist(), sha.hexdigest()])
    return found


def in_a_new_process(tmp_path, works):
    """The digests of each piece of work, by a process that starts from nothing."""
    (tmp_path / "work.json").write_text(json.dumps(works))
    command = [sys.executable, "-c", CHILD, str(tmp_path / "work.json"), *sys.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def states_and_digests(dataset, **options):
    """The state before every step, the last one after the end, and the digest of every step."""
    states = []
    loader = tl.Loader(dataset, **options)
    for _ in range(len(loader) + 1):
        states.append(loader.state_dict())
        next(loader, None)
    loader.close()
    return states, digests(tl.Loader(dataset, **options))


OPTIONS = [
    {"batch_size": 11, "prefetch": 0},
    {"batch_size": 11, "rank": 2, "world_size": 3, "prefetch": 4, "end": "pad"},
    {"batch_size": [[0, 4], [24, 9]], "prefetch": 64, "end": "pad"},
]


@pytest.mark.parametrize("kind", ["full", "lanes 3"])
def test_sampled_states_go_on_in_one_new_process(store, tmp_path, kind):
    works, wanted = [], []
    for options in OPTIONS:
        states, known = states_and_digests(toy_run(store, kind, epochs=2), **options)
        for step in (0, 1, len(known) // 2, len(known) - 1, len(known)):
            works.append({"state": states[step], "options": options})
            wanted.append(known[step:])
    assert in_a_new_process(tmp_path, works) == wanted
