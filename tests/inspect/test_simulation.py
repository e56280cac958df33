"""What a simulation tells besides reads: tokens, repeats, waiting, and steps beyond counting."""

import json

import numpy as np
import pytest
from refusals import refused
from toyruns import toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.inspect import simulate_run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("simulated"), rows=400)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("other"), rows=90)


@pytest.fixture(scope="module")
def run(store, other):
    sources = {"a": store.windows(8).block_shuffle(), "b": other.pack(8, group_docs=9).shuffle()}
    return tl.mix(sources, weights={"a": 3, "b": 1}).seed(3)


def test_tokens_by_source_are_those_of_the_spans(run):
    found = simulate_run(run, 30, batch_size=8, first=5)
    spans = run.spans(np.arange(40, 280))
    names = np.array(spans.sources)[spans.source][spans.row]
    for one in found.sources:
        assert one.tokens == spans.length[names == one.name].sum()
        assert one.rows == (np.array(spans.sources)[spans.source] == one.name).sum()
    last = found.over_time[-1]
    assert (last.step, last.examples) == (35, 280)
    assert sum(last.tokens.values()) == run.tokens_in(280)
    assert found.tokens == run.tokens_in(280) - run.tokens_in(40)


def slow_gaps(run, source, first, last, batch_size):
    """Steps between rows that show the same document, by visiting every row."""
    seen, gaps, shown = {}, [], set()
    for index in range(first, last):
        spans = run.spans([index])
        if spans.sources[spans.source[0]] != source:
            continue
        for document in sorted(set(spans.document.tolist())):
            if document in seen:
                gaps.append(index // batch_size - seen[document])
            seen[document] = index // batch_size
            shown.add((document, index))
    return gaps, len(shown) / len(seen), len(seen)


@pytest.mark.parametrize("first", [0, 7])
def test_repeats_are_those_of_a_walk_over_all_rows(run, first):
    found = simulate_run(run, 40, batch_size=8, first=first)
    for one in found.repeats:
        gaps, shown, documents = slow_gaps(run, one.name, first * 8, (first + 40) * 8, 8)
        assert one.gaps == (min(gaps), np.median(gaps), np.mean(gaps), max(gaps))
        assert (one.shown, one.documents, one.is_sample) == (shown, documents, False)


def test_documents_of_a_large_source_are_sampled_and_followed_exactly(tmp_path):
    store = toy_store(tmp_path, rows=9000)
    run = store.windows(8).shuffle().epochs(3).seed(1)
    (one,) = simulate_run(run, batch_size=90).repeats
    assert one.is_sample
    assert 0 < one.documents < store.num_documents / 2
    assert (one.least, one.most, one.epochs) == (3, 3, 3)
    # every document of the sample has all its rows: as many as documents have on average
    every = run.spans(np.arange(9000))
    mean = len(every.document) / len(np.unique(every.document))
    assert one.shown == pytest.approx(3 * mean, rel=0.1)


def test_a_fast_source_waits_only_for_the_first_step(store):
    run = store.windows(8).shuffle().epochs(4)
    slow = simulate_run(run, batch_size=8, latency=0.5, bandwidth=1e4, step_seconds=0.01).stalls
    fast = simulate_run(run, batch_size=8, latency=1e-6, bandwidth=1e9, step_seconds=0.01).stalls
    assert slow.waited > 100 * fast.waited
    assert fast.stalled_steps == 0
    assert simulate_run(run, batch_size=8).stalls is None


@pytest.mark.parametrize("kind", ["block", "full"])
def test_after_the_first_steps_reads_are_estimated_and_listed_as_estimates(tmp_path, kind):
    store = toy_store(tmp_path, rows=3000, cache_bytes=2000, verify="never").windows(8)
    run = store.block_shuffle(window_blocks=8) if kind == "block" else store.shuffle()
    run, settings = run.epochs(None).seed(1), {"batch_size": 8, "ranks": 2}
    exact = simulate_run(run, 3000, **settings)
    about = simulate_run(run, 3000, **settings, exact_examples=6000)
    assert (exact.estimated, exact.exact_steps) == ((), 3000)
    assert about.exact_steps < 1000
    assert about.exact_ranks == simulate_run(run, about.exact_steps, **settings).ranks
    assert "ranks.reads" in about.estimated
    assert "ranks.reads" not in about.exact
    for name in ("sources", "over_time", "repeats"):  # what is no estimate is the same
        assert getattr(about, name) == getattr(exact, name)
    assert about.bytes == pytest.approx(exact.bytes, rel=0.1)
    assert about.reads == pytest.approx(exact.reads, rel=0.1)


def test_a_simulation_is_plain_json_and_readable(run):
    found = simulate_run(run, 30, batch_size=8, ranks=2, latency=0.1, bandwidth=1e6)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["reads"] == found.reads
    assert again["ranks"][1]["bytes"] == found.ranks[1].bytes
    assert again["sources"][0]["name"] == "a"
    assert again["stalls"]["waited"] == found.stalls.waited


@pytest.mark.parametrize(
    ("steps", "options", "named"),
    [
        (1000, {}, "steps"),
        (3, {"ranks": 0}, "ranks"),
        (3, {"latency": -1}, "latency"),
        (3, {"batch_size": 2, "ranks": 3}, "batch_size"),
        (3, {"latencies": 3}, "latencies"),
    ],
)
def test_wrong_arguments_are_refused(run, steps, options, named):
    options = {"batch_size": 8} | options
    refused(lambda: simulate_run(run, steps, **options), ConfigError, named)


def test_an_endless_run_needs_a_number_of_steps(store):
    endless = store.windows(8).epochs(None)
    refused(lambda: simulate_run(endless, batch_size=8), ConfigError, "endless")
    refused(lambda: simulate_run(store, 3, batch_size=2), ConfigError)
