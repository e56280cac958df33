"""Answers about repeats, order and loading have the numbers of `simulate`, to the last digit."""

import shutil

import pytest
from orderruns import order_runs
from readwords import plain
from toyruns import toy_store

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.page.numbers import digits
from tokenloom.report import report_on
from tokenloom.report import subject as report_subject
from tokenloom.report.figures.loading import loading_figure
from tokenloom.report.figures.mix_shares import mixture_figure
from tokenloom.report.headlines import headline_of
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


@pytest.mark.parametrize("name", ["tiny", "empty"])
def test_runs_of_hardly_any_rows_are_answered(runs, name):
    subject = RunSubject(runs[name], Asked())
    for question in (how_often, is_it_shuffled, fed_fast_enough):
        assert question.answer(subject).sentence.endswith(".")
        assert list(question.cautions(subject)) == []


def warnings_of(question, run, **settings):
    subject = RunSubject(run, Asked(**({"batch_size": 8} | settings)))
    return [plain(f"{one.words} {one.remedy}") for one in question.cautions(subject)]


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
    (told,) = (one for one in warnings_of(how_often, twice) if "a, b select" in one)
    assert f"{store.num_documents} documents of one store more than once" in told
    assert not any("more than once" in one for one in warnings_of(how_often, runs["mix"]))


def test_disjoint_selections_of_a_store_share_nothing(tmp_path):
    store = toy_store(tmp_path / "a", rows=60)
    count = store.num_documents
    first, second, other = range(count // 2), range(count // 2, count), range(count // 2 - 2, count)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")

    def said(one, two, path="a"):
        opened = tl.open(tmp_path / path)
        pair = {
            "one": store.select(doc_index=list(one)).windows(8).shuffle(),
            "two": opened.select(doc_index=list(two)).windows(8).shuffle(),
        }
        return " ".join(warnings_of(how_often, tl.mix(pair)))

    assert "more than once" not in said(first, second)
    assert "2 documents of one store more than once" in said(first, other)
    assert "2 documents of stores with the same content" in said(first, other, "copy")


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


def test_stored_order_is_warned_about_in_a_store_of_one_block(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 40}], tmp_path / "s", tokenizer="bytes")
    run = store.windows(8)
    (look,) = RunSubject(run, Asked(batch_size=4)).looks.values()
    assert (look.blocks, look.rows) == (1, 40)
    (told,) = warnings_of(is_it_shuffled, run, batch_size=4)
    assert "main comes in stored order: 100 % of its rows follow" in told
    assert ".shuffle()" in told
    assert warnings_of(is_it_shuffled, run.shuffle(), batch_size=4) == []
    assert warnings_of(is_it_shuffled, run, batch_size=40) == []  # one step has no order


def test_orders_are_told_in_whole_sentences(tmp_path, runs):
    def said(run):
        return plain(is_it_shuffled.answer(RunSubject(run, Asked(batch_size=8))).sentence)

    web, few = toy_store(tmp_path / "web", rows=400), toy_store(tmp_path / "few", rows=2)
    assert said(runs["stored order"]).startswith("Rows come in stored order: 8 neighbouring rows")
    assert said(few.windows(8).shuffle()) == "There are too few rows to tell."
    pair = {"web": web.windows(8), "few": few.windows(8).shuffle()}
    assert said(tl.mix(pair)).startswith("web comes in stored order: 8 neighbouring rows")
    assert said(tl.mix(pair)).endswith("1 in stored order, 1 with too few rows to tell.")
    whole = "Before the mix is shuffled as a whole, web comes in stored order: "
    assert said(tl.mix(pair).shuffle()).startswith(whole)


def test_sources_of_which_no_row_comes_twice_are_not_told_as_repeated(tmp_path):
    a, b = toy_store(tmp_path / "a", rows=40), toy_store(tmp_path / "b", rows=80)
    run = tl.mix({"a": a.windows(8).shuffle(), "b": b.windows(8).shuffle()}, stop="first_exhausted")
    subject, found = asked_about(run)
    told = how_often.answer(subject)
    shown = {one.name: one.rows for one in found.sources}
    epochs = max(shown["a"] / 40, shown["b"] / 80)
    assert told.numbers["epochs"] == epochs <= 1
    said = f"No row comes twice; a gets furthest, {digits(epochs)} epoch{'s' * (epochs != 1)}"
    assert plain(told.sentence).startswith(said)
    unit = headline_of("repeated", told.numbers)[1]
    assert unit.endswith(" of the source that gets furthest")
    assert "a gets furthest, " in plain(mixture_figure(subject).message)
    twice = tl.mix({"a": a.windows(8).shuffle().epochs(3), "b": b.windows(8).shuffle()})
    subject, _ = asked_about(twice)
    assert plain(how_often.answer(subject).sentence).startswith("a is repeated most: ")
    assert "is repeated most" in mixture_figure(subject).message


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
    later = found.stalls.waited - found.stalls.first_wait
    part = f"{100 * later / (found.stalls.seconds - found.stalls.first_wait):.1f} % of the time"
    assert any(f"After its first step, training waits {part}" in plain(one) for one in told)
    assert any("fetched again and again" in one and "cache_bytes" in one for one in told)
    large = tl.open(tmp_path, cache_bytes=1 << 24).windows(8).block_shuffle(window_blocks=16)
    fast = {"latency": 1e-9, "bandwidth": 1e12, "step_seconds": 1.0}
    assert warnings_of(fed_fast_enough, large, **fast) == []


def test_the_first_wait_is_no_warning_and_told_apart_from_later_ones(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 88}], tmp_path / "one", tokenizer="bytes")
    run = store.windows(8).shuffle()
    slow_start = {"latency": 5.0, "bandwidth": 1e9, "step_seconds": 0.1, "ranks": 1}
    subject, found = asked_about(run, **slow_start)
    stalls = found.stalls
    assert stalls.waited == stalls.first_wait > stalls.seconds / 2
    assert stalls.stalled_steps == 0
    assert warnings_of(fed_fast_enough, run, **slow_start) == []
    answer = fed_fast_enough.answer(subject)
    told = plain(answer.sentence)
    assert plain(headline_of("fed", answer.numbers)[0]) == "0 %"
    assert told.endswith(
        f"training waits {stalls.first_wait:.1f} s for its first step, and never after it."
    )


@pytest.mark.parametrize("name", ["one source", "mix", "lanes", "packed"])
def test_a_bucket_is_told_by_its_first_request_and_by_what_is_fetched_ahead(runs, name):
    subject, _ = asked_about(runs[name])
    told = fed_fast_enough.answer(subject)
    first = runs[name].simulate(
        1, batch_size=8, latency=0.03, bandwidth=2e8, parallel=16, step_seconds=0.0
    )
    assert told.numbers["first_seconds"] == pytest.approx(first.stalls.first_wait)
    assert told.numbers["first_seconds"] >= 0.03  # a request takes that long
    busy = runs[name].simulate(
        subject.step_count, batch_size=8, latency=0.03, bandwidth=2e8, parallel=16, step_seconds=0.0
    )
    (rank,) = busy.ranks
    moving = rank.bytes / 2e8
    each = max(moving, (rank.reads * 0.03 + moving) / 16, 0.03) / busy.steps
    assert told.numbers["bucket_seconds"] == pytest.approx(each)
    words = plain(told.sentence)
    assert f"the first step waits {1000 * first.stalls.first_wait:.3g} ms" in words
    assert "about below" not in words


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_store_that_the_first_step_reads_whole_is_not_told_to_be_fetched_ahead(tmp_path, ranks):
    store = tl.build([{"text": "abcdefgh" * 400}], tmp_path / "s", tokenizer="bytes")
    run = store.windows(8).shuffle()
    subject, found = asked_about(run, ranks=ranks)
    first = run.simulate(1, batch_size=8, ranks=ranks)
    assert first.reads == found.reads == ranks  # one block, read once by each
    told = plain(fed_fast_enough.answer(subject).sentence)
    assert told.endswith("the first step waits 30 ms, and no later one fetches anything.")
    alone = fed_fast_enough.answer(RunSubject(run, Asked(batch_size=run.run.n, ranks=ranks)))
    assert plain(alone.sentence).endswith("30 ms a request it waits 30 ms.")
    more, other = asked_about(toy_store(tmp_path / "more", rows=400).windows(8).shuffle())
    assert other.reads > more.first_step[0].reads
    assert "fetching ahead takes about" in fed_fast_enough.answer(more).sentence


@pytest.fixture
def simulated(monkeypatch):
    """Steps of every simulation that a report asks for."""
    asked = []

    def counted(run, steps, **settings):
        asked.append(steps)
        return simulate_run(run, steps, **settings)

    monkeypatch.setattr(report_subject, "simulate_run", counted)
    return asked


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", ["one source", "packed", "endless"])
def test_a_first_step_is_simulated_once_where_no_other_step_is(
    runs, name, ranks, simulated, monkeypatch
):
    monkeypatch.setattr(report_subject, "EXACT_EXAMPLES", 8)
    subject = RunSubject(runs[name], Asked(batch_size=8, ranks=ranks))
    fed_fast_enough.answer(subject)
    loading_figure(subject)
    assert simulated == [subject.step_count]
    assert subject.simulation.exact_steps == 1 < subject.step_count
    alone = simulate_run(runs[name], 1, batch_size=8, ranks=ranks)
    assert subject.first_step == alone.ranks
    assert len(alone.ranks) == ranks


@pytest.mark.parametrize("name", ["one source", "packed", "lanes"])
def test_control_a_first_step_that_others_follow_is_simulated_by_itself(runs, name, simulated):
    subject = RunSubject(runs[name], Asked(batch_size=8))
    fed_fast_enough.answer(subject)
    loading_figure(subject)
    assert simulated == [subject.step_count, 1]
    assert subject.first_step == simulate_run(runs[name], 1, batch_size=8).ranks
    assert subject.first_step != subject.simulation.exact_ranks


def test_advice_is_about_what_the_run_has(tmp_path):
    store = toy_store(tmp_path, rows=3000, cache_bytes=6000)
    for shuffled, has in ((store.windows(8).shuffle(), False), (
        store.windows(8).block_shuffle(window_blocks=16, lanes=16), True
    )):  # fmt: skip
        subject, _ = asked_about(shuffled)
        notes = " ".join(loading_figure(subject).notes)
        assert "too little cache" in notes
        assert ("lower window_blocks" in notes) == has
        assert ".." not in notes


@pytest.mark.parametrize(
    ("rows", "said"), [(1, "1 row of 8 tokens ·"), (2, "2 rows of 8 tokens ·")]
)
def test_the_line_below_the_title_counts_rows(tmp_path, rows, said):
    run = toy_store(tmp_path, rows=rows).windows(8)
    assert plain(report_on(run).lead).startswith(said)
