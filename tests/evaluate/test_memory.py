"""Logits of one batch are all that is ever held, however many batches there are."""

import subprocess
import sys

import numpy as np
import pytest

import tokenloom as tl

VOCABULARY, BATCH, LENGTH = 20_000, 6, 100
LOGITS = VOCABULARY * BATCH * LENGTH * 4  # bytes of a batch of them: 46 MiB

CHILD = """
import sys
import numpy as np
import tokenloom as tl
from tokenloom.evaluate import evaluate, pz

kind, path, windows, held = sys.argv[1], sys.argv[2], int(sys.argv[3]), []


def logits(tokens):
    made = np.zeros((*tokens.shape, int(sys.argv[4])), np.float32)
    made += 1  # every page is there
    if kind == "held":
        held.append(made)
    return made


if kind == "torch":
    import torch

    class Model(torch.nn.Module):
        def forward(self, tokens, segment_ids, position_ids):
            return torch.from_numpy(logits(tokens))

    model = Model()
else:
    model = lambda tokens, segment_ids, position_ids: logits(tokens)
store = tl.open(path).select(doc_index=0 if windows == 1 else 1)
pz(model, store, stride=1, batch_size=int(sys.argv[5]), progress=False)
evaluate(model, store, seq_len=100, batch_size=int(sys.argv[5]), progress=False)
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) * 1024)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    lengths = (LENGTH + BATCH - 1, LENGTH + 6 * BATCH - 1)  # one batch of windows, or six
    rows = [{"input_ids": rng.integers(0, VOCABULARY, n).tolist()} for n in lengths]
    path = tmp_path_factory.mktemp("memory") / "store"
    tl.build(rows, path, tokenizer=None, vocab_size=VOCABULARY)
    return path


def peak(kind, store, batches):
    command = [sys.executable, "-c", CHILD, kind, str(store)]
    command += map(str, (batches, VOCABULARY, BATCH))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_six_batches_take_the_memory_of_one(store):
    one, six, kept = (
        peak(*ask) for ask in (("numpy", store, 1), ("numpy", store, 6), ("held", store, 6))
    )
    assert six - one < LOGITS * 9 // 10  # pieces and what was found, but no second batch
    assert kept - six > 4 * LOGITS  # the control


@pytest.mark.slow
def test_six_batches_of_torch_take_the_memory_of_one(store):
    assert peak("torch", store, 6) - peak("torch", store, 1) < LOGITS * 9 // 10
