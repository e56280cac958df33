"""What goes wrong in torch programs: an error or a warning that names the remedy, never a hang."""

import itertools
import subprocess
import sys

import pytest
from refusals import refused
from torch.utils.data import DataLoader, IterableDataset
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.integrations.torch import context_slice, dataloader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:Got pickle error"),  # torch warns beside its error
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def run(store):
    return toy_run(store, epochs=1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 2, "world_size": 2}, "2 of 2"),
        ({"rank": 1}, "world_size"),
        ({"batch_size": 1, "rank": 0, "world_size": 2}, "batch_size"),
        ({"contract": None}, "contract"),
        ({"fields": "segment_ids"}, "fields"),
        ({"shuffle": True}, "'shuffle'"),
        ({"drop_last": True}, "end='drop'"),
        ({"collate_fn": list}, "contract="),
        ({"context": (0, 2)}, "contract='plain'"),
        ({"context": (2, 2), "contract": "plain"}, "2 of 2"),
        ({"context": (0, 3), "contract": "plain"}, "3"),
        ({"context": (0, 2), "contract": "plain", "fields": ("cu_seqlens",)}, "cu_seqlens"),
        ({"context": (0, 2), "contract": "plain", "fields": ("labels",)}, "labels"),
    ],
)
def test_wrong_arguments_are_refused_before_any_process_starts(run, options, named):
    given = {"batch_size": 4} | options
    refused(lambda: dataloader(run, num_workers=2, **given), tl.ConfigError, named)


def test_a_contract_that_the_run_is_not_rendered_for_is_refused_at_once(store):
    absolute = store.pack(8).render(position_scheme="absolute")
    with pytest.raises(tl.ConfigError, match="sdpa"):
        dataloader(absolute, 4)
    shifted = store.pack(8).render(label_layout="shifted")
    with pytest.raises(tl.ConfigError, match="plain"):
        dataloader(tl.mix({"a": shifted.seed(5), "b": shifted}), 4)
    assert dataloader(absolute, 4, contract="sdpa")


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_state_or_an_epoch_set_in_the_middle_of_a_loop_ends_it(run, workers):
    loader = dataloader(run, 4, fields=("index",), num_workers=workers)
    for change in (lambda: loader.load_state_dict(run.state(20)), lambda: loader.set_epoch(3)):
        loop = iter(loader)
        next(loop)
        change()
        with pytest.raises(tl.StateError, match="loop"):
            next(loop)
        with pytest.raises(StopIteration):
            next(loop)
    assert next(iter(loader))["index"].tolist() == [111, 112, 113, 114]
    before = list(itertools.islice(loader, 2))
    loop = iter(loader)
    next(loop)
    loader.set_epoch(3)  # which it is in
    assert next(loop)["index"].tolist() == before[1]["index"].tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_beside_another_one_takes_nothing_from_it(run, workers):
    """Kept workers have one queue, so what the older loop takes would be missing in the younger."""
    kept = {"persistent_workers": True} if workers else {}
    loader = dataloader(run, 4, fields=("index",), num_workers=workers, **kept)
    older = iter(loader)
    next(older)
    younger = iter(loader)
    with pytest.raises(tl.StateError, match="loop"):
        next(older)
    assert next(younger)["index"].tolist() == [0, 1, 2, 3]
    with pytest.raises(tl.StateError, match="loop"):
        list(zip(loader, loader, strict=True))


def program(text, store, *arguments, warnings="ignore"):
    """What a program in a process of its own prints; its first argument is the store."""
    command = [sys.executable, "-W", warnings, "-c", text, str(store.path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


KILLS = """
import multiprocessing, os, signal, sys
import tokenloom as tl
from tokenloom.integrations.torch import dataloader

run = tl.open(sys.argv[1]).windows(8).shuffle().epochs(20)
kept = sys.argv[2] == "True"
loader = dataloader(run, 4, fields=("index",), num_workers=2, persistent_workers=kept)
seen, told = [], []
while len(told) < 3:
    try:
        for batch in loader:
            seen.append(batch["index"][0].item())
            if len(seen) == 3:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
        break
    except tl.WorkerError as error:
        told.append(str(error))
        loader.load_state_dict(loader.state_dict())
assert len(told) == 1 and "load_state_dict(state_dict())" in told[0], told
assert seen == list(range(0, 737, 4)), seen
print("done")
"""


class Around(IterableDataset):
    """What many write first: every worker would deliver every row."""

    def __init__(self, run):
        self.run = run

    def __iter__(self):
        for batch in tl.Loader(self.run, 4):
            yield batch.tokens


def test_a_bare_loader_in_a_worker_is_refused_with_the_name_of_the_adapter(run):
    assert len(list(DataLoader(Around(run), batch_size=None))) == 9
    with pytest.raises(tl.ConfigError, match=r"tokenloom.integrations.torch.dataloader"):
        list(DataLoader(Around(run), batch_size=None, num_workers=2))


class Before(IterableDataset):
    """The loader is made in the training process, and iterated over in the workers."""

    def __init__(self, run, begun=False, ask=iter):
        self.loader, self.ask = tl.Loader(run, 4), ask
        if begun:
            next(self.loader)

    def __iter__(self):
        return iter([len(next(self.loader))]) if self.ask is next else iter(self.loader)


@pytest.mark.parametrize(
    ("method", "begun", "ask"),
    [
        ("fork", False, iter),
        ("fork", True, next),
        pytest.param("spawn", False, iter, marks=pytest.mark.slow),  # imports torch again
    ],
)
def test_a_loader_made_before_the_workers_is_refused_in_them(run, method, begun, ask):
    """Every worker delivered every row, without a word."""
    rows = Before(run, begun, ask)
    there = DataLoader(rows, batch_size=None, num_workers=1, multiprocessing_context=method)
    with pytest.raises(tl.ConfigError, match="worker 0 of 1"):
        list(there)
    assert len(list(DataLoader(rows, batch_size=None))) == (1 if ask is next else 9 - begun)


def test_a_loader_taken_for_a_dataset_is_told_what_to_use(run):
    for loader in (tl.Loader(run, 4), dataloader(run, 4)):
        with pytest.raises(TypeError, match="dataloader"):
            next(iter(DataLoader(loader, batch_size=2)))


def test_a_dataset_that_cannot_be_sent_to_workers_is_told(run):
    loader = dataloader(run, 4, num_workers=2, multiprocessing_context="spawn")
    loader.dataset.own = lambda: 0
    with pytest.raises(tl.ConfigError, match="fork"):
        iter(loader)
    forked = dataloader(run, 4, num_workers=2, multiprocessing_context="fork")
    forked.dataset.own = lambda: 0
    assert len(list(forked)) == 9


FORKS = """
import sys, threading
import tokenloom as tl
from tokenloom.integrations.torch import dataloader

run = tl.open(sys.argv[1]).windows(8).shuffle().seed(7).epochs(1)
busy = tl.Loader(run.epochs(None), 4, prefetch=64)

def read():
    for batch in busy:
        batch.labels

threading.Thread(target=read, daemon=True).start()
own = dataloader(run, 4, fields=("index",))
first = next(iter(own))
for _ in range(int(sys.argv[2])):
    loader = dataloader(run, 4, fields=("index",), num_workers=2, multiprocessing_context="fork")
    found = [batch["index"].tolist() for batch in loader]
    assert found == [[*range(k, k + 4)] for k in range(0, 36, 4)], found
print("done", flush=True)
"""


LEFT = """
import sys
import tokenloom as tl
from tokenloom.integrations.torch import dataloader

run = tl.open(sys.argv[1]).windows(8).shuffle()
for kept in dataloader(run, 4, num_workers=int(sys.argv[2])):
    break
loader = dataloader(run, 4, num_workers=int(sys.argv[2]))
loop = iter(loader)
first, second = next(loop), next(loop)
"""


@pytest.mark.parametrize(
    ("kept", "forks", "workers"), [(False, 2, 0), pytest.param(True, 30, 2, marks=pytest.mark.slow)]
)
def test_killed_workers_forks_beside_threads_and_a_loop_left_alone(store, kept, forks, workers):
    """In one program, because importing torch takes longest.

    A worker that is killed is an error, and the loader continues; workers forked beside live
    threads give the same rows; a program that ends in the middle of a loop prints nothing. Torch
    looks after its workers every five seconds. Usually its signal handler is faster and raises
    wherever the program is; here it is taken out, since that may be in the middle of anything.
    """
    parts = (
        KILLS.replace("sys.argv[2]", repr(str(kept))),
        FORKS.replace("sys.argv[2]", str(forks)),
        LEFT.replace("sys.argv[2]", str(workers)),
    )
    done = program("\n".join(parts), store)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\ndone\n", "")


def test_context_slice_refuses_what_it_cannot_cut(store):
    (batch,) = itertools.islice(dataloader(store.pack(8), 4), 1)
    with pytest.raises(tl.ConfigError, match="contract='plain'"):
        context_slice(batch, 0, 2)
