"""Ruling 40: loops over epochs. A pass is n examples; the next loop is the next pass, fresh."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toyruns import toy_run

import tokenloom as tl
from tokenloom.loader.passes import LoopPlace, Passes
from tokenloom.loader.step_reader import StepReader


def slow_passes(n, size, end, passes, start=0):
    """Which examples each step of each pass has, one by one; `start` is where the first begins."""
    found = []
    for number in range(start // n, start // n + passes):
        here = list(range(max(start, number * n), (number + 1) * n))
        steps = [here[k : k + size] for k in range(0, len(here), size)]
        found.append([step for step in steps if len(step) == size or end == "pad"])
    return found


def loop(reader, place):
    """One loop over a reader, as adapters do it."""
    turn = place.begin()
    count = reader.passes.count(turn)
    for step in range(turn.step, turn.step + count):
        batch = reader.batch(turn, step)
        place.deliver(turn, step)
        assert batch.examples_after == place.examples
        yield batch
    place.finish(turn)


def indices(batches):
    return [[i for i in batch.index.tolist() if i >= 0] for batch in batches]


@pytest.mark.parametrize("end", ["drop", "pad"])
@pytest.mark.parametrize("size", [1, 4, 5, 37])
@pytest.mark.parametrize("kind", ["full", "block"])
def test_ruling_40_every_loop_is_the_next_n_examples_of_the_run_without_its_end(
    store, kind, size, end
):
    run = toy_run(store, kind, epochs=1)
    reader = StepReader(run, size, end=end)
    place = LoopPlace(reader.passes)
    endless = run.endless()
    for number, steps in enumerate(slow_passes(len(run), size, end, 3)):
        assert place.epoch == number
        batches = list(loop(reader, place))
        assert indices(batches) == steps
        for batch, wanted in zip(batches, steps, strict=True):
            assert (batch.tokens[: len(wanted)] == endless.batch(wanted).tokens).all()
    assert place.examples == 3 * len(run)
    assert place.epoch == 3


@given(
    size=st.integers(1, 9),
    later=st.integers(1, 9),
    taken=st.integers(0, 30),
    end=st.sampled_from(["drop", "pad"]),
)
def test_a_state_goes_on_in_the_pass_it_was_made_in_with_any_batch_size(
    store, size, later, taken, end
):
    run = toy_run(store, epochs=1)
    reader = StepReader(run, size, end=end, scattered=True)
    place = LoopPlace(reader.passes)
    stream = itertools.chain.from_iterable(loop(reader, place) for _ in range(9))
    for _ in range(taken):
        next(stream)
    state = place.state()
    again = StepReader(run, later, end=end, scattered=True)
    resumed = LoopPlace(again.passes)
    resumed.load(state)
    found = [indices(loop(again, resumed)) for _ in range(2)]
    wanted = [p for p in slow_passes(37, later, end, 3, state["examples"]) if p]
    assert found == wanted[:2]


def test_a_state_at_the_end_of_a_pass_starts_the_next_one_and_skips_nothing(store):
    """verl 7401: a checkpoint exactly at an epoch's end skipped or repeated the next epoch."""
    run = toy_run(store, epochs=1)
    reader = StepReader(run, 4)
    place = LoopPlace(reader.passes)
    batches = list(loop(reader, place))
    assert place.state()["examples"] == batches[-1].examples_after == 37
    assert batches[-1].state() == place.state()
    for size in (4, 3, 1):
        again = StepReader(run, size)
        resumed = LoopPlace(again.passes)
        resumed.load(batches[-1].state())
        assert resumed.epoch == 1
        assert indices(loop(again, resumed)) == slow_passes(37, size, "drop", 2)[1]


def test_a_loop_that_was_left_starts_the_same_pass_again(store):
    reader = StepReader(toy_run(store, epochs=1), 4)
    place = LoopPlace(reader.passes)
    left = indices(itertools.islice(loop(reader, place), 3))
    whole = indices(loop(reader, place))
    assert whole[:3] == left
    assert len(whole) == 9
    assert place.epoch == 1


def test_after_a_state_was_loaded_the_loop_goes_on_and_the_one_after_it_is_the_next_pass(store):
    reader = StepReader(toy_run(store, epochs=1), 4)
    place = LoopPlace(reader.passes)
    list(itertools.islice(loop(reader, place), 3))
    place.load(place.state())
    rest, after = indices(loop(reader, place)), indices(loop(reader, place))
    assert rest == slow_passes(37, 4, "drop", 1)[0][3:]
    assert after == slow_passes(37, 4, "drop", 2)[1]


def test_a_loop_that_never_asks_for_more_than_the_last_step_has_delivered_the_pass(store):
    """`for _, batch in zip(range(steps), loader)` must not repeat the same order endlessly."""
    reader = StepReader(toy_run(store, epochs=1), 4)
    place = LoopPlace(reader.passes)
    for number in range(3):
        found = indices(itertools.islice(loop(reader, place), 9))
        assert found == slow_passes(37, 4, "drop", number + 1)[number]
        assert place.epoch == number  # still being delivered
        assert place.state()["examples"] == 37 * (number + 1)
    place.set_epoch(2)  # which was delivered: this asks for it again
    assert indices(loop(reader, place)) == found


def test_set_epoch_keeps_a_loaded_state_of_that_pass(store):
    """Trainers call it before every loop, also before the first after a resume."""
    reader = StepReader(toy_run(store, epochs=1), 4)
    place = LoopPlace(reader.passes)
    place.load(toy_run(store, epochs=1).state(37 + 12, step=12))
    place.set_epoch(1)
    assert place.state()["examples"] == 49
    assert indices(loop(reader, place)) == slow_passes(37, 4, "drop", 2)[1][3:]
    place.load(toy_run(store, epochs=1).state(37 + 12, step=12))
    place.set_epoch(0)  # another one is another one
    assert indices(loop(reader, place)) == slow_passes(37, 4, "drop", 1)[0]


def test_evaluation_repeats_the_same_pass(store):
    reader = StepReader(toy_run(store, epochs=1), 4)
    place = LoopPlace(reader.passes, repeat=True)
    first, second = indices(loop(reader, place)), indices(loop(reader, place))
    assert first == second
    assert place.epoch == 0


def mixes(store):
    sources = {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}
    return {
        "restart": tl.mix(sources).seed(3),
        "first_exhausted": tl.mix(sources, stop="first_exhausted", weights={"a": 3}).seed(3),
        "round_robin": tl.mix(sources, rule="round_robin").seed(3),
        "take": tl.mix(sources).seed(3).take(19),
    }


@pytest.mark.parametrize("kind", ["restart", "first_exhausted", "round_robin", "take"])
def test_the_sources_of_a_mix_go_on_into_fresh_epochs(store, kind):
    run = mixes(store)[kind]
    endless, n = run.endless(), len(run)
    assert endless.run.n is None
    assert endless.plan_digest(0, n) == run.plan_digest(0, n)
    reader = StepReader(run, 3)
    place = LoopPlace(reader.passes)
    for number in range(3):
        assert indices(loop(reader, place)) == slow_passes(n, 3, "drop", number + 1)[number]
    state = place.state()
    assert state["fingerprint"] == run.fingerprint
    assert state["examples"] == 3 * n
    assert [one["rows"] for one in state["sources"]] == [
        one["rows"] for one in endless.consumed(3 * n)
    ]


def impossible(store):
    sources = {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}
    mixed = tl.mix(sources).seed(3)
    return {
        "all_exhausted": tl.mix(sources, stop="all_exhausted"),
        "rounds": tl.mix(sources, rule="rounds", block=8),
        "random": tl.mix(sources, rule="random", block=8),
        "max_epochs": tl.mix(sources, max_epochs=2),
        "edits": mixed.edit(at=5, weights={"a": 2}),
        "shuffle": tl.mix(sources, stop="all_exhausted").shuffle(),
    }


@pytest.mark.parametrize(
    "why", ["all_exhausted", "rounds", "random", "max_epochs", "edits", "shuffle"]
)
def test_where_another_pass_is_impossible_the_second_loop_says_why(store, why):
    run = impossible(store)[why]
    reader = StepReader(run, 3)
    place = LoopPlace(reader.passes)
    first = indices(loop(reader, place))
    assert first == slow_passes(len(run), 3, "drop", 1)[0]
    with pytest.raises(tl.ConfigError, match=f"cannot go on, because of .*{why}"):
        next(loop(reader, place))
    with pytest.raises(tl.ConfigError, match=why):
        place.set_epoch(1)


def test_a_wrapped_state_is_refused_where_passes_have_fresh_orders(store):
    run = toy_run(store, epochs=1)
    loader = tl.Loader(run, 4, end="wrap").seek(12)
    place = LoopPlace(Passes(run, 4))
    with pytest.raises(tl.StateError, match="had wrapped around"):
        place.load(loader.state_dict())
    wrapping = LoopPlace(Passes(run, 4, "wrap"))
    wrapping.load(loader.state_dict())
    assert wrapping.examples == 48


def test_schedules_count_examples_over_all_passes(store):
    run = toy_run(store, epochs=1)
    reader = StepReader(run, [(0, 4), (50, 10)])
    place = LoopPlace(reader.passes)
    sizes = [[len(batch) for batch in loop(reader, place)] for _ in range(3)]
    assert sizes == [[4] * 9, [4] * 4 + [10, 10], [10] * 3]
