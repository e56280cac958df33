"""A diff lists its keys in one order, whatever the hash seed of the process."""

import os
import subprocess
import sys

import tokenloom as tl

NAMES = ("wiki", "code", "books", "forums", "papers", "laws")

SCRIPT = """
import sys
import tokenloom as tl

store = tl.open(sys.argv[1])
names = sys.argv[2].split(",")
sources = {name: store.windows(4).shuffle() for name in names}
runs = [
    tl.mix(sources, rule="weights", weights={name: by + k for k, name in enumerate(names)})
    for by in (1, 2)
]
print(*[change.key for change in tl.diff(*runs).keys])
"""


def keys_in_a_process(path, hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", SCRIPT, str(path), ",".join(NAMES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_keys_are_in_the_order_of_the_sources_in_every_process(tmp_path):
    records = [{"input_ids": list(range(40))}]
    tl.build(records, tmp_path / "store", tokenizer=None, vocab_size=99, progress=False)
    wanted = [f"mix.weights.{name}" for name in NAMES]
    for hash_seed in (0, 1):
        assert keys_in_a_process(tmp_path / "store", hash_seed) == wanted
