"""Ruling 40: loops over epochs. A pass is n examples; the next loop is the next pass, fresh.

The same for the DataLoader of torch and for the loop under an iterator of Grain.
"""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.integrations.grain import iterator
from tokenloom.integrations.torch import dataloader


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


LOOPS = {
    "torch": lambda run, size, **given: dataloader(run, size, contract=None, **given),
    "grain": lambda run, size, **given: iterator(run, size, contract="plain", **given).loop,
}


@pytest.fixture(params=LOOPS)
def looped(request):
    """Makes an iterable whose loops are passes: of steps with `index` and `input_ids`."""
    fields = ("index", "input_ids", "examples_after")
    return lambda run, size, **given: LOOPS[request.param](run, size, fields=fields, **given)


def slow_passes(n, size, end, passes, start=0):
    """Which examples each step of each pass has, one by one; `start` is where the first begins."""
    found = []
    for number in range(start // n, start // n + passes):
        here = list(range(max(start, number * n), (number + 1) * n))
        steps = [here[k : k + size] for k in range(0, len(here), size)]
        found.append([step for step in steps if len(step) == size or end == "pad"])
    return found


def indices(loop):
    return [[i for i in np.asarray(step["index"]).tolist() if i >= 0] for step in loop]


def examples(loop):
    return loop.state_dict()["examples"]


def there_and_back(loop):
    return json.loads(json.dumps(loop.state_dict()))


@pytest.mark.parametrize(("end", "size"), [("drop", 1), ("drop", 4), ("pad", 5), ("drop", 37)])
def test_every_loop_is_the_next_n_examples_of_the_run_without_its_end(store, looped, end, size):
    run = toy_run(store, "block", epochs=1)
    loop, endless = looped(run, size, end=end), toy_run(store, "block", epochs=None)
    for number, steps in enumerate(slow_passes(37, size, end, 3)):
        assert loop.epoch == number
        assert len(loop) == len(steps)
        made = list(loop)
        assert indices(made) == steps
        assert examples(loop) == 37 * (number + 1)  # what a pass drops counts at its end
        for step, wanted in zip(made, steps, strict=True):
            tokens = np.asarray(step["input_ids"])
            assert (tokens[: len(wanted)] == endless.batch(wanted).tokens).all()
    assert loop.epoch == 3


@pytest.mark.parametrize("end", ["drop", "pad"])
def test_a_position_after_each_step_is_that_of_what_was_handed_over(store, looped, end):
    loop, step = looped(toy_run(store, epochs=1), 5, end=end), 0
    steps = slow_passes(37, 5, end, 2)
    for pass_ in steps:
        for place, wanted in enumerate(pass_):
            if place == 0:
                taken = iter(loop)
            one = next(taken)
            step += 1
            last = place == len(pass_) - 1
            after = -(-wanted[-1] // 37) * 37 if last else wanted[-1] + 1
            state = loop.state_dict()
            assert (state["examples"], state["step"]) == (after, step)
            assert np.asarray(one["examples_after"]).tolist() == [after] * 5


@given(
    size=st.integers(1, 9),
    later=st.integers(1, 9),
    taken=st.integers(0, 30),
    end=st.sampled_from(["drop", "pad"]),
)
def test_a_state_continues_in_its_pass_with_any_batch_size(store, size, later, taken, end):
    run, given = toy_run(store, epochs=1), {"end": end, "fields": ("index",)}
    loop = LOOPS["torch"](run, size, **given)
    stream = itertools.chain.from_iterable(loop for _ in range(9))
    for _ in range(taken):
        next(stream)
    state, again = there_and_back(loop), LOOPS["torch"](run, later, **given)
    again.load_state_dict(state)
    wanted = [p for p in slow_passes(37, later, end, 3, state["examples"]) if p]
    assert [indices(again) for _ in range(2)] == wanted[:2]


def test_a_state_at_the_end_of_a_pass_starts_the_next_one_and_skips_nothing(store, looped):
    run = toy_run(store, epochs=1)
    loop = looped(run, 4)
    assert len(indices(loop)) == 9
    for size in (4, 3, 1):
        again = looped(run, size)
        again.load_state_dict(there_and_back(loop))
        assert (again.epoch, examples(again)) == (1, 37)
        assert indices(again) == slow_passes(37, size, "drop", 2)[1]


def test_a_loop_that_was_left_starts_the_same_pass_again_unless_a_state_was_loaded(store, looped):
    first, second = slow_passes(37, 4, "drop", 2)
    loop = looped(toy_run(store, epochs=1), 4)
    assert indices(itertools.islice(loop, 3)) == first[:3]
    assert indices(itertools.islice(loop, 3)) == first[:3]
    loop.load_state_dict(there_and_back(loop))
    assert indices(loop) == first[3:]
    assert indices(loop) == second


def test_a_loop_that_never_asks_for_more_than_the_last_step_has_delivered_the_pass(store, looped):
    """`for _, batch in zip(range(steps), loader)` must not repeat the same order endlessly."""
    loop = looped(toy_run(store, epochs=1), 4)
    for number in range(3):
        found = indices(itertools.islice(loop, 9))
        assert found == slow_passes(37, 4, "drop", number + 1)[number]
        assert loop.epoch == number  # still being delivered
        assert examples(loop) == 37 * (number + 1)
    loop.set_epoch(2)  # which was delivered: this asks for it again
    assert examples(loop) == 74
    assert indices(loop) == found


def test_set_epoch_keeps_a_loaded_state_of_that_pass(store, looped):
    """Trainers call it before every loop, also before the first after a resume."""
    run = toy_run(store, epochs=1)
    loop = looped(run, 4)
    loop.load_state_dict(run.state(37 + 12, step=12))
    loop.set_epoch(1)
    assert examples(loop) == 49
    assert indices(loop) == slow_passes(37, 4, "drop", 2)[1][3:]
    loop.load_state_dict(run.state(37 + 12, step=12))
    loop.set_epoch(0)  # another one is another one
    assert examples(loop) == 0
    assert indices(loop) == slow_passes(37, 4, "drop", 1)[0]
    refused(lambda: loop.set_epoch(-1), tl.ConfigError, "epoch", -1)


def test_what_would_change_a_running_loop_ends_it(store, looped):
    loop = looped(toy_run(store, epochs=1), 4)
    changes = {
        "state": lambda: loop.load_state_dict(there_and_back(loop)),
        "epoch": lambda: loop.set_epoch(loop.epoch + 1),
        "loop": lambda: next(iter(loop)),
    }
    for change in changes.values():
        running = iter(loop)
        next(running)
        change()
        with pytest.raises(tl.StateError):
            next(running)


def test_evaluation_repeats_the_same_pass(store, looped):
    loop = looped(toy_run(store, epochs=1), 4, repeat=True)
    assert indices(loop) == indices(loop) == slow_passes(37, 4, "drop", 1)[0]
    assert loop.epoch == 0


def test_an_endless_run_is_a_single_pass(store, looped):
    for run, options in (
        (toy_run(store, epochs=None), {}),
        (toy_run(store, epochs=1).take(10), {"end": "wrap"}),
    ):
        loop = looped(run, 4, **options)
        with pytest.raises(TypeError):
            len(loop)
        found = [step["index"] for step in itertools.islice(loop, 20)]
        wanted = [k % 10 if options else k for k in range(80)]
        assert np.concatenate(found).tolist() == wanted
        assert (examples(loop), loop.epoch) == (80, 0)
        loop.set_epoch(0)
        refused(lambda loop=loop: loop.set_epoch(1), tl.ConfigError, "epoch", 1)
        state, again = there_and_back(loop), looped(run, 3, **options)
        again.load_state_dict(state)
        (step,) = itertools.islice(again, 1)
        assert np.asarray(step["index"]).tolist() == ([0, 1, 2] if options else [80, 81, 82])


def test_a_wrapped_state_is_refused_where_passes_have_fresh_orders(store, looped):
    run = toy_run(store, epochs=1)
    state = tl.Loader(run, 4, end="wrap").seek(12).state_dict()
    loop = looped(run, 4)
    refused(lambda: loop.load_state_dict(state), tl.StateError, "wrap")
    wrapping = looped(run, 4, end="wrap")
    wrapping.load_state_dict(state)
    assert examples(wrapping) == 48


def test_schedules_count_examples_over_all_passes(store, looped):
    loop = looped(toy_run(store, epochs=1), [(0, 4), (50, 10)])
    sizes = [[len(step) for step in indices(loop)] for _ in range(3)]
    assert sizes == [[4] * 9, [4] * 4 + [10, 10], [10] * 3]


# -- mixes -----------------------------------------------------------------------------------


def sources(store):
    return {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}


GO_ON = {
    "restart": lambda parts: tl.mix(parts),
    "first_exhausted": lambda parts: tl.mix(parts, stop="first_exhausted", weights={"a": 3}),
    "round_robin": lambda parts: tl.mix(parts, rule="round_robin"),
    "take": lambda parts: tl.mix(parts).take(19),
}

IMPOSSIBLE = {
    "all_exhausted": lambda parts: tl.mix(parts, stop="all_exhausted"),
    "rounds": lambda parts: tl.mix(parts, rule="rounds", block=8),
    "random": lambda parts: tl.mix(parts, rule="random", block=8),
    "max_epochs": lambda parts: tl.mix(parts, max_epochs=2),
    "edits": lambda parts: tl.mix(parts).edit(at=5, weights={"a": 2}),
    "shuffle": lambda parts: tl.mix(parts, stop="all_exhausted").shuffle(),
}


@pytest.mark.parametrize("kind", GO_ON)
def test_the_sources_of_a_mix_go_on_into_fresh_epochs(store, kind):
    run = GO_ON[kind](sources(store))
    endless, n = run.endless(), len(run)
    assert not endless.is_finite
    assert endless.plan_digest(0, n) == run.plan_digest(0, n)
    loop = LOOPS["torch"](run, 3, fields=("index",))
    for number in range(3):
        assert indices(loop) == slow_passes(n, 3, "drop", number + 1)[number]
    state = loop.state_dict()
    assert (state["fingerprint"], state["examples"]) == (run.fingerprint, 3 * n)


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_where_another_pass_is_impossible_the_second_loop_says_why(store, looped, why):
    run = IMPOSSIBLE[why](sources(store))
    loop = looped(run, 3)
    assert indices(loop) == slow_passes(len(run), 3, "drop", 1)[0]
    refused(lambda: next(iter(loop)), tl.ConfigError, why)
    refused(lambda: loop.set_epoch(1), tl.ConfigError, why)
    state, again = there_and_back(loop), looped(run, 3)
    again.load_state_dict(state)  # the last state of a run also loads
    assert examples(again) == len(run)
    refused(lambda: next(iter(again)), tl.ConfigError, why)
