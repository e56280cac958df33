"""A run that is killed anywhere resumes exactly, with any ranks, batch size and prefetch."""

import json
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from toyruns import close_all, joined, ranks_of, same, toy_run, toy_store
from virtual import VirtualStore

import tokenloom as tl
from tokenloom.testing import FaultSource

# -- every step ----------------------------------------------------------------------------


def test_endless_runs_resume_in_any_epoch(store):
    dataset = toy_run(store, epochs=None)
    with tl.Loader(dataset, 8) as first, tl.Loader(dataset, 8) as second:
        state = first.seek(10**6).state_dict()
        second.load_state_dict(state)
        assert second.step == 10**6
        assert same(next(first), next(second))
        assert first.state_dict() == second.state_dict()


# -- what is delivered counts --------------------------------------------------------------


def test_the_state_stands_still_while_batches_are_prefetched(store):
    with tl.Loader(toy_run(store), 4, prefetch=64, fetch="rows") as loader:
        next(loader)
        state = loader.state_dict()
        while loader._producer._running:  # until the whole run is made
            time.sleep(0.001)
        assert loader.state_dict() == state
        assert (state["examples"], state["step"]) == (4, 1)


def test_state_at_the_beginning_and_behind_the_end(store):
    dataset = toy_run(store, epochs=1)
    for end, examples, steps in (("drop", 36, 9), ("pad", 37, 10)):
        loader = tl.Loader(dataset, 4, end=end)
        assert loader.state_dict()["examples"] == 0
        assert len(list(loader)) == steps
        state = loader.state_dict()
        assert (state["examples"], state["step"]) == (examples, steps)
        again = tl.Loader(dataset, 4, end=end)
        again.load_state_dict(state)
        assert len(again) == 0
        assert next(again, None) is None
        assert again.state_dict() == state


def test_a_dropped_tail_comes_when_the_batch_size_allows_it(store):
    dataset = toy_run(store, epochs=1)
    with tl.Loader(dataset, 4) as loader:
        list(loader)
        state = loader.state_dict()
    single = tl.Loader(dataset, 1)
    single.load_state_dict(state)
    assert [batch.index.tolist() for batch in single] == [[36]]


# -- places --------------------------------------------------------------------------------


def test_seek_goes_to_any_step_at_any_time(store):
    dataset = toy_run(store)
    with tl.Loader(dataset, 4) as known:
        wanted = [batch.index.tolist() for batch in known]
    with tl.Loader(dataset, 4) as loader:
        for step in (5, 0, 26, 3, 3):
            assert next(loader.seek(step)).index.tolist() == wanted[step]
            assert loader.step == step + 1
            assert loader.examples == 4 * (step + 1)
    assert next(tl.Loader(dataset, 4).seek(27), None) is None
    with pytest.raises(tl.ConfigError, match="step: found -1"):
        loader.seek(-1)


def test_seek_after_a_state_of_another_batch_size_gives_the_steps_of_this_one(store):
    """A plan that was made for the steps after the state once stayed."""
    dataset = toy_run(store)
    with tl.Loader(dataset, 4) as first:
        next(first)
        state = first.state_dict()
    with tl.Loader(dataset, 7, prefetch=0) as loader:
        loader.load_state_dict(state)
        assert next(loader).index.tolist() == list(range(4, 11))
        assert next(loader.seek(1)).index.tolist() == list(range(7, 14))


def test_the_last_of_several_states_counts(store):
    dataset = toy_run(store)
    states = {}
    with tl.Loader(dataset, 1) as counter:
        for _ in counter:
            states[counter.examples] = counter.state_dict()
    loader = tl.Loader(dataset, 7, prefetch=0)
    loader.load_state_dict(states[4])
    loader.load_state_dict(states[14])
    assert next(loader).index.tolist() == list(range(14, 21))


def test_seek_behind_the_end_gives_a_state_that_can_be_loaded(store):
    dataset = toy_run(store, epochs=1)
    for end in ("drop", "pad"):
        far = tl.Loader(dataset, 4, end=end).seek(1000)
        assert far.examples == 37
        assert next(far, None) is None
        tl.Loader(dataset, 4, end=end).load_state_dict(far.state_dict())


def test_what_fails_on_delivery_is_not_counted_and_comes_again(tmp_path):
    """A failed look-up of the documents once skipped a batch without counting it."""
    toy_store(tmp_path)
    source = FaultSource(tl.open(tmp_path).reader.source, only="offsets/c")
    dataset = toy_run(tl.open(tmp_path, source=source, cache_bytes=0), "stored")
    with tl.Loader(dataset, 4, fields=("tokens", "segment_ids")) as loader:
        source.at = source._count + 1
        with pytest.raises(OSError, match="Input/output"):
            next(loader)
        assert loader.examples == 0
        assert [next(loader).index[0] for _ in range(3)] == [0, 4, 8]
        assert loader.examples == 12


# -- a machine that kills and restores -----------------------------------------------------

RUNS = {}


def machine_run(kind):
    """A run of 2 epochs in its kind, and the tokens of every index, read one by one."""
    if kind not in RUNS:
        dataset = toy_run(RUNS["store"], kind, epochs=2)
        RUNS[kind] = dataset, np.concatenate([dataset[i].tokens for i in range(len(dataset))])
    return RUNS[kind]


@pytest.fixture(scope="module", autouse=True)
def _store_of_the_machine(store):
    RUNS["store"] = store


class KilledAndRestored(RuleBasedStateMachine):
    """The oracle is a list of indices and how far it was delivered."""

    @initialize(kind=st.sampled_from(["full", "block", "lanes 3"]))
    def begin(self, kind):
        self.dataset, self.tokens = machine_run(kind)
        self.oracle, self.position = list(range(len(self.dataset))), 0
        self.saved, self.ranks = None, None
        self.start(1, 0, 5)

    def start(self, world, prefetch, batch_size):
        self.size = batch_size
        options = {"prefetch": prefetch, "end": "pad"}
        self.ranks = ranks_of(self.dataset, batch_size, world, **options)

    @precondition(lambda self: self.ranks)
    @rule(steps=st.integers(1, 4))
    def advance(self, steps):
        for _ in range(steps):
            wanted = self.oracle[self.position : self.position + self.size]
            found = joined(self.ranks)
            if not wanted:
                assert found is None
                return
            index, tokens = found
            assert sorted(index[: len(wanted)]) == wanted
            assert index[len(wanted) :] == [-1] * (self.size - len(wanted))
            assert np.array_equal(tokens[: len(wanted)], self.tokens[index[: len(wanted)]])
            self.position += len(wanted)

    @precondition(lambda self: self.ranks)
    @rule(data=st.data())
    def save(self, data):
        rank = data.draw(st.sampled_from(self.ranks))
        self.saved = self.position, json.dumps(rank.state_dict())

    @precondition(lambda self: self.ranks)
    @rule(politely=st.booleans())
    def kill(self, politely):
        if politely:
            close_all(self.ranks)
        self.ranks = None

    @precondition(lambda self: self.ranks)
    @rule()
    def close_and_go_on(self):
        close_all(self.ranks)

    @precondition(lambda self: not self.ranks)
    @rule(
        world=st.sampled_from([1, 2, 3, 7, 16]),
        prefetch=st.sampled_from([0, 1, 4, 64]),
        batch_size=st.sampled_from([16, 17, 24, 31]),
    )
    def restore(self, world, prefetch, batch_size):
        self.start(world, prefetch, batch_size)
        self.position = 0
        if self.saved:
            self.position = self.saved[0]
            for rank in self.ranks:
                rank.load_state_dict(json.loads(self.saved[1]))

    @invariant()
    def every_rank_knows_where_the_run_is(self):
        assert all(rank.examples == self.position for rank in self.ranks or ())

    def teardown(self):
        close_all(self.ranks or ())


TestKilledAndRestored = KilledAndRestored.TestCase
TestKilledAndRestored.settings = settings(max_examples=150, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("kind", ["full", "block", "lanes 3"])
def test_the_history_of_worlds_that_is_always_tried(kind):
    """1, 7, 3, 16 and 1 ranks, with a kill in between, two steps each, then to the end."""
    machine = KilledAndRestored()
    machine.begin(kind)
    plans = ((1, 0, 5), (7, 4, 16), (3, 64, 17), (16, 1, 24), (1, 4, 4))
    for world, prefetch, batch_size in plans:
        state = json.dumps(machine.ranks[-1].state_dict())
        machine.kill(politely=False)
        machine.saved = machine.position, state
        machine.restore(world, prefetch, batch_size)
        machine.every_rank_knows_where_the_run_is()
        machine.advance(2)
    assert machine.position == 2 * 5 + 2 * 16 + min(2 * 17 + 2 * 24 + 2 * 4, 74 - 42)
    machine.advance(100)
    assert machine.position == len(machine.dataset) == 74


# -- the cost ------------------------------------------------------------------------------


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_going_to_step_a_million_reads_what_one_step_needs(tmp_path, fetch):
    """A store of 2^31 tokens that is not there; reads are counted, not timed."""
    virtual = VirtualStore([(2000, 1 << 29)] * 4)
    root = virtual.write_manifest(tmp_path / "big")
    source = FaultSource(virtual, only="input_ids/c")
    big = tl.open(root, source=source, verify="never", cache_bytes=1 << 26)
    assert not source.requests
    dataset = big.windows(2048).block_shuffle(lanes=4).epochs(None)
    took = {}
    for step in (0, 10**3, 10**6, 10**9):
        source.requests.clear()
        before = big.reads.bytes
        with tl.Loader(dataset, 16, prefetch=0, fetch=fetch) as loader:
            batch = next(loader.seek(step))
            assert sorted(batch.index.tolist()) == list(range(16 * step, 16 * step + 16))
            state = loader.state_dict()
        assert len(json.dumps({k: v for k, v in state.items() if k != "dataset"})) < 1024
        asked = [one for request in source.requests for one in request if "input_ids/c" in one[0]]
        took[step] = len(source.requests), len(asked), big.reads.bytes - before
        row, block = 2048 * 2, 262_144 * 2
        assert len(asked) <= 16
        assert took[step][2] <= 16 * (row if fetch == "rows" else block)
    requests = [requests for requests, _, _ in took.values()]
    assert max(requests[1:]) <= requests[0]  # flat; the first one opens the shards


def test_a_resume_reads_nothing_before_the_first_batch(tmp_path):
    virtual = VirtualStore([(2000, 1 << 29)] * 4)
    source = FaultSource(virtual)
    root = virtual.write_manifest(tmp_path / "big")
    big = tl.open(root, source=source, verify="never")
    dataset = big.windows(2048).shuffle().epochs(None)
    state = tl.Loader(dataset, 16).seek(10**6).state_dict()
    loader = tl.Loader(dataset, 24, 1, 3)
    loader.load_state_dict(state)
    assert loader.examples == 16 * 10**6
    assert len(source.requests) == 0
