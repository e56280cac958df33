"""Answers about repeats, order and loading have the numbers of `simulate`, to the last digit."""

import pytest
from orderruns import order_runs
from toyruns import toy_store

import tokenloom as tl
from tokenloom.quality.order_sample import look_at_order
from tokenloom.report.questions import fed_fast_enough, how_often, is_it_shuffled
from tokenloom.report.subject import Asked, RunSubject

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SPEED = {"latency": 0.01, "bandwidth": 1e6, "step_seconds": 0.001}

NAMES = (
    *("one source", "stored order", "packed", "lanes", "mix", "staged and edited", "endless"),
    *("endless mix", "runs out", "first ends", "rounds", "shuffled whole", "taken"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return order_runs(tmp_path_factory.mktemp("asked"))


def asked_about(run, **settings):
    subject = RunSubject(run, Asked(batch_size=8, **settings))
    found = run.simulate(subject.step_count, batch_size=8, **settings)
    return subject, found


@pytest.mark.parametrize("name", NAMES)
def test_repeats_are_those_of_a_simulation(runs, name):
    subject, found = asked_about(runs[name])
    told = how_often.answer(subject).numbers
    epochs = {
        one.name: rows.rows / one.rows
        for one, rows in zip(found.repeats, found.sources, strict=True)
    }
    worst = max(found.repeats, key=lambda one: (epochs[one.name], one.most))
    assert told["epochs"] == epochs[worst.name] == max(epochs.values())
    assert (told["least"], told["most"], told["shown"]) == (worst.least, worst.most, worst.shown)
    assert told.get("median_gap") == (None if worst.gaps is None else worst.gaps[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("speed", [{}, SPEED | {"ranks": 2}], ids=["no speed", "speed"])
def test_loading_is_that_of_a_simulation(runs, name, speed):
    subject, found = asked_about(runs[name], **speed)
    told = fed_fast_enough.answer(subject).numbers
    assert (told["bytes"], told["reads"]) == (found.bytes, found.reads)
    assert told["step_bytes"] == found.bytes / found.steps
    assert told["needed_bytes"] == max(one.needed_bytes for one in found.ranks)
    if speed:
        assert (told["waited"], told["seconds"]) == (found.stalls.waited, found.stalls.seconds)
        assert told["stalled_steps"] == found.stalls.stalled_steps


@pytest.mark.parametrize("name", NAMES)
def test_the_order_is_the_one_that_was_looked_at(runs, name):
    subject = RunSubject(runs[name], Asked(batch_size=8))
    told = is_it_shuffled.answer(subject)
    looks = {
        one.name: look_at_order(one.order(0), one.working.blocks, 8, one.name)
        for one in runs[name].run.sources
    }
    assert any(
        (told.numbers["batch_blocks"], told.numbers["window"]) == (one.batch_blocks, one.window)
        for one in looks.values()
    )
    assert ("stored order" in told.sentence) == (name == "stored order")


@pytest.mark.parametrize("name", ["tiny", "empty"])
def test_runs_of_hardly_any_rows_are_answered(runs, name):
    subject = RunSubject(runs[name], Asked())
    for question in (how_often, is_it_shuffled, fed_fast_enough):
        assert question.answer(subject).sentence.endswith(".")
        assert list(question.cautions(subject)) == []


def warnings_of(question, run, **settings):
    subject = RunSubject(run, Asked(**({"batch_size": 8} | settings)))
    return [f"{one.words} {one.remedy}" for one in question.cautions(subject)]


def test_a_source_that_is_repeated_often_is_warned_about(runs):
    (told,) = warnings_of(how_often, runs["lanes"])
    assert "6 epochs" in told
    assert "max_epochs" in told
    assert warnings_of(how_often, runs["one source"]) == []  # three epochs are fine


def test_a_source_that_runs_out_is_warned_about_with_the_step(runs):
    run = runs["runs out"]
    (told,) = warnings_of(how_often, run)
    last = int(run.index("code", [run.run.sources[1].rows - 1])[0])
    assert f"code runs out at step {-(-(last + 1) // 8):,} of {run.run.n // 8:,}" in told
    for name in ("mix", "endless mix", "staged and edited"):  # it starts over, or was removed
        assert not any("runs out" in one for one in warnings_of(how_often, runs[name]))


def test_a_store_that_is_there_twice_is_warned_about(tmp_path, runs):
    store = toy_store(tmp_path, rows=50)
    twice = tl.mix({"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()})
    assert any("a, b show the same store" in one for one in warnings_of(how_often, twice))
    assert not any("same store" in one for one in warnings_of(how_often, runs["mix"]))


def test_copies_of_documents_are_counted_over_all_stores(tmp_path, monkeypatch):
    texts = [{"text": one} for one in ("aaaa", "bbbb", "aaaa", "", "")]
    a = tl.build(texts, tmp_path / "a", tokenizer="bytes", progress=False)
    b = tl.build(texts[1:2], tmp_path / "b", tokenizer="bytes", progress=False)
    mix = tl.mix({"a": a.windows(2).shuffle(), "b": b.windows(2).shuffle()})
    assert how_often.copies_in(RunSubject(mix, Asked())) == (2, 4)
    told = warnings_of(how_often, mix, batch_size=1)
    assert any("2 documents of 4 (50.0 %) are copies" in one for one in told)
    assert how_often.copies_in(RunSubject(b.windows(2), Asked())) == (0, 1)
    monkeypatch.setattr(how_often, "HASHED", 3)  # too many to look at
    assert how_often.copies_in(RunSubject(mix, Asked())) is None


def test_stored_order_and_weak_permutations_are_warned_about(tmp_path, runs):
    (told,) = warnings_of(is_it_shuffled, runs["stored order"])
    assert "main comes in stored order: 100 %" in told
    assert warnings_of(is_it_shuffled, runs["one source"]) == []
    store = toy_store(tmp_path, rows=3000)
    for kind in ("linear", "levanter"):
        (told,) = warnings_of(is_it_shuffled, store.windows(8).shuffle(perm_type=kind))
        assert "with a pattern" in told
        assert "feistel" in told
    assert warnings_of(is_it_shuffled, store.windows(8).shuffle()) == []
    (told,) = warnings_of(is_it_shuffled, store.windows(8).block_shuffle(window_blocks=2))
    assert "window_blocks" in told


def test_a_mix_that_is_shuffled_as_a_whole_needs_no_shuffled_sources(tmp_path):
    store = toy_store(tmp_path, rows=60)
    whole = tl.mix({"a": store.windows(8), "b": store.pack(8)}).shuffle()
    assert warnings_of(is_it_shuffled, whole) == []


def test_waiting_and_thrashing_are_warned_about(tmp_path):
    store = toy_store(tmp_path, rows=3000, cache_bytes=6000)
    run = store.windows(8).block_shuffle(window_blocks=16, lanes=16)
    found = run.simulate(batch_size=8, **SPEED)
    told = warnings_of(fed_fast_enough, run, **SPEED)
    assert found.ranks[0].how == "thrashes"
    assert any("Training waits" in one for one in told)
    assert any("fetched again and again" in one and "cache_bytes" in one for one in told)
    large = tl.open(tmp_path, cache_bytes=1 << 24).windows(8).block_shuffle(window_blocks=16)
    fast = {"latency": 1e-9, "bandwidth": 1e12, "step_seconds": 1.0}
    assert warnings_of(fed_fast_enough, large, **fast) == []
