"""Grain: a source whose item is a step, and an iterator with its state."""

import importlib
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError, StateError

grain = iterator = source = None  # set by `imported`


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports Grain when a test runs, not when every worker collects them."""
    ours = importlib.import_module("tokenloom.integrations.grain")
    globals().update(
        grain=importlib.import_module("grain"), iterator=ours.iterator, source=ours.source
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("grain") / "store")


@pytest.fixture(scope="module")
def run(store):
    return toy_run(store, epochs=1)


def tokens_of(run, size, **options):
    return [batch.tokens.tolist() for batch in tl.Loader(run, size, 0, 1, **options)]


def inputs_of(items):
    return [item["inputs"].tolist() for item in items]


def test_items_of_a_source_are_the_steps_of_the_loader(run):
    steps = grain.MapDataset.source(source(run, 4))
    assert isinstance(source(run, 4), grain.sources.RandomAccessDataSource)
    assert inputs_of(steps) == tokens_of(run, 4)
    assert inputs_of([steps[8], steps[2]]) == [tokens_of(run, 4)[k] for k in (8, 2)]
    read = steps.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=8))
    assert inputs_of(read) == tokens_of(run, 4)


def test_several_threads_may_ask_and_a_pickle_is_the_same_source(run):
    wanted = tokens_of(run, 4)
    made = source(run, 4)
    copied = pickle.loads(pickle.dumps(made))
    assert repr(copied) == repr(made)
    for one in (made, copied):
        with ThreadPoolExecutor(8) as pool:
            assert inputs_of(pool.map(one.__getitem__, range(9))) == wanted


def test_the_repr_says_what_decides_so_that_grain_refuses_a_state_of_another_run(run, store):
    other = toy_run(store, "block", epochs=1)
    assert repr(source(run, 4)) == repr(source(run, 4, rank=1, world_size=2))
    different = [source(other, 4), source(run, 3), source(run, 4, end="pad")]
    different.append(source(run, 4, contract="plain"))
    assert len({repr(one) for one in (source(run, 4), *different)}) == 5
    longer = source(toy_run(store, epochs=2), 4)
    assert repr(longer) == repr(source(run, 4))  # an end is no identity: a longer run goes on

    def loaded(one):
        sampler = grain.samplers.SequentialSampler(len(one))
        return iter(grain.DataLoader(data_source=one, sampler=sampler, worker_count=0))

    first = loaded(source(run, 4))
    next(first)
    state = first.get_state()
    again = loaded(source(run, 4))
    again.set_state(state)
    assert next(again)["inputs"].tolist() == tokens_of(run, 4)[1]
    with pytest.raises(ValueError, match="does not match"):
        loaded(source(other, 4)).set_state(state)


def test_out_of_range_is_an_error_though_grain_itself_wraps(run):
    made = source(run, 4)
    for step in (-1, 9):
        with pytest.raises(IndexError, match="8"):
            made[step]
    assert inputs_of([grain.MapDataset.source(made)[9]]) == tokens_of(run, 4)[:1]


def test_an_endless_run_goes_on_and_its_epochs_differ(store):
    endless = toy_run(store, epochs=None)
    made = source(endless, 37)
    assert len(made) > 10**12
    epochs = [made[epoch]["inputs"].tolist() for epoch in (0, 1, 10**6)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert len({str(sorted(one)) for one in epochs}) == 1  # all rows, in other orders


def test_states_of_grain_and_of_other_runs_are_refused(run, store):
    for state in ({"next_index": 3}, toy_run(store, "block", epochs=1).state(4)):
        with pytest.raises(StateError):
            iterator(run, 4).set_state(state)


def test_micro_batches_have_an_axis_in_front(run):
    wanted = np.array(tokens_of(run, 6)[2]).reshape(3, 2, 8)
    for item in (source(run, 6, accumulate=3)[2], list(iterator(run, 6, accumulate=3))[2]):
        np.testing.assert_array_equal(item["inputs"], wanted)
        assert item["loss_mask"].shape == (3, 2, 8)
    with pytest.raises(ConfigError, match="accumulate: found 4"):
        source(run, 6, accumulate=4)


WORKERS = """
    import sys
    import grain, tokenloom as tl
    from absl import flags
    from tokenloom.integrations.grain import source

    def main():
        flags.FLAGS.mark_as_parsed()
        run = tl.open(sys.argv[1]).windows(8).shuffle().seed(7).epochs(1)
        steps = grain.MapDataset.source(source(run, 4)).to_iter_dataset()
        options = grain.MultiprocessingOptions(num_workers=2)
        for item in steps.mp_prefetch(options):
            print("ROW", *item["inputs"].ravel().tolist())

    if __name__ == "__main__":
        main()
"""


@pytest.mark.slow
def test_worker_processes_of_grain_give_the_same_steps(store, run, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(textwrap.dedent(WORKERS))
    done = subprocess.run(
        [sys.executable, str(script), str(store.path)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = [
        [int(word) for word in line.split()[1:]]
        for line in done.stdout.splitlines()
        if line.startswith("ROW")
    ]
    assert found == [np.ravel(step).tolist() for step in tokens_of(run, 4)], done.stderr[-2000:]
