"""The numbers of the five answers are what simulations say, and what is counted cell by cell."""

from collections import defaultdict

import numpy as np
import pytest
from reports import LAYOUTS, SEQ_LEN, read_report, store_of

import tokenloom as tl
from tokenloom.quality import measure
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FINITE = (
    *("one source", "stored order", "packed", "lanes", "mix", "staged and edited", "runs out"),
    *("first ends", "rounds", "shuffled whole", "taken"),
)
ORDERS = (*FINITE, "endless", "endless mix")
SPEED = {"latency": 0.01, "bandwidth": 1e6, "step_seconds": 0.001}


def simulated(run, **settings):
    """A simulation of the steps that the report speaks of."""
    steps = read_report(run, **settings).answers["trained"]["steps"]
    return run.simulate(steps, **({"batch_size": 8} | settings))


def stored_tokens(run, examples):
    """(source, document, offset) of every stored token in the first examples."""
    spans, found = run.spans(range(examples)), set()
    names = np.array(spans.sources)[spans.source][spans.row].tolist()
    parts = (names, spans.document.tolist(), spans.start.tolist(), spans.length.tolist())
    for name, document, start, length in zip(*parts, strict=True):
        found |= {(name, document, start + n) for n in range(length)}
    return found


@pytest.mark.parametrize("name", ORDERS)
def test_what_is_trained_and_how_often_is_what_a_simulation_counts(orders, name):
    run = orders[name]
    found, answers = simulated(run), read_report(run).answers
    trained = answers["trained"]
    assert trained["tokens"] == found.tokens
    assert (trained["examples"], trained["steps"]) == (found.examples, found.steps)
    assert trained["sources"] == len(run.sources)
    spans = run.spans(range(found.examples))
    assert found.tokens == np.clip(run.seq_len - spans.at, 0, spans.length).sum()
    if run.is_finite:
        assert found.steps == len(run) // 8
    repeated = answers["repeated"]
    epochs = {
        one.name: rows.rows / one.rows
        for one, rows in zip(found.repeats, found.sources, strict=True)
    }
    worst = max(found.repeats, key=lambda one: (epochs[one.name], one.most))
    assert repeated["epochs"] == epochs[worst.name]
    assert (repeated["least"], repeated["most"]) == (worst.least, worst.most)
    assert repeated["shown"] == worst.shown
    assert repeated.get("median_gap") == (None if worst.gaps is None else worst.gaps[1])


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("speed", [{}, SPEED | {"ranks": 2}], ids=["no speed", "speed"])
def test_reading_and_waiting_is_what_a_simulation_counts(orders, name, speed):
    run = orders[name]
    found, fed = simulated(run, **speed), read_report(run, **speed).answers["fed"]
    assert (fed["bytes"], fed["reads"]) == (found.bytes, found.reads)
    assert fed["step_bytes"] == found.bytes / found.steps
    assert fed["needed_bytes"] == max(one.needed_bytes for one in found.ranks)
    if speed:
        assert (fed["waited"], fed["seconds"]) == (found.stalls.waited, found.stalls.seconds)
        assert fed["stalled_steps"] == found.stalls.stalled_steps


@pytest.mark.parametrize("name", ["one source", "mix", "lanes", "packed"])
def test_a_bucket_is_judged_by_its_first_request_and_by_what_is_fetched_ahead(orders, name):
    run = orders[name]
    fed = read_report(run).answers["fed"]
    bucket = {"batch_size": 8, "latency": 0.03, "bandwidth": 2e8, "parallel": 16}
    first = run.simulate(1, step_seconds=0.0, **bucket)
    assert fed["first_seconds"] == pytest.approx(first.stalls.first_wait)
    assert fed["first_seconds"] >= 0.03
    found = simulated(run)
    (rank,) = found.ranks
    moving = rank.bytes / 2e8
    whole = max(moving, (rank.reads * 0.03 + moving) / 16, 0.03)
    assert fed["bucket_seconds"] == pytest.approx(whole / found.steps)


@pytest.mark.parametrize("name", ["one source", "stored order", "lanes"])
def test_the_order_is_what_its_measures_say(orders, name):
    run = orders[name]
    shuffled = read_report(run).answers["shuffled"]
    assert shuffled["rows"] == 400
    rows = run.locate(range(400))[1]  # an epoch
    found = measure(rows, 4, 8)  # 4 rows are a storage block
    assert shuffled["moved"] == pytest.approx(found.mean_abs_displacement_norm, abs=0.06)
    assert shuffled["same_block"] == pytest.approx(found.same_block_transition_rate, abs=0.06)
    assert shuffled["batch_blocks"] == pytest.approx(found.blocks_per_group, rel=0.15)
    assert (shuffled["same_block"] > 0.7) == (name == "stored order")


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_what_is_lost_is_counted_token_by_token(layouts, name, batch_size):
    store, runs = layouts
    run, n = runs[name], len(runs[name])
    lost = read_report(run, batch_size=batch_size).answers["lost"]
    examples = n // batch_size * batch_size
    assert lost["dropped"] == n - examples
    assert lost["tokens"] + lost["unselected_tokens"] == store.num_tokens
    assert lost["lost"] == lost["tokens"] - len(stored_tokens(run, n))
    assert lost["lost"] == sum(v for key, v in lost.items() if key.startswith("lost_"))
    assert lost["once"] == len(stored_tokens(run, examples))
    if name not in ("select", "split"):
        batch = run.batch(range(examples))
        inside = (batch.spans.length > 0) & (batch.spans.at < SEQ_LEN)
        shown = set(batch.spans.document[inside].tolist())
        stored = int((np.asarray(store.lengths) > 0).sum())
        assert lost["never_documents"] == stored - len(shown)
        if "specials" not in name:
            assert lost["filler"] == pytest.approx((batch.segment_ids == 0).mean())
    parts = read_report(run, batch_size=batch_size).table("lost", "where")
    assert sum(one["tokens"] for one in parts) == store.num_tokens
    assert parts[0]["tokens"] == lost["once"]


@pytest.mark.parametrize("name", FINITE)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_rows_that_are_never_shown_are_counted_row_by_row(orders, name, batch_size):
    run = orders[name]
    read = read_report(run, batch_size=batch_size)
    examples = len(run) // batch_size * batch_size
    shown = defaultdict(set)
    for one, row in zip(
        run.picked(range(examples))[0], run.locate(range(examples))[1], strict=True
    ):
        shown[one].add(int(row))
    by_source = {one["source"]: one for one in read.table("lost", "rows not reached")}
    for one, row in by_source.items():
        assert row["rows not reached"] == row["rows of an epoch"] - len(shown[one])
    assert read.answers["lost"]["never_rows"] == sum(
        one["rows not reached"] for one in by_source.values()
    )


def test_rows_of_a_long_run_are_counted_without_visiting_them(tmp_path):
    """More than 65,536 examples: the report does not go through them, this test does."""
    for name, tokens in (("long", 120_000), ("short", 30_001)):
        write_store(tmp_path / name, [[[1, 2, 3]] * (tokens // 3), [[4] * (tokens % 3)]])
    sources = {name: tl.open(tmp_path / name).windows(2).shuffle() for name in ("long", "short")}
    run = tl.mix(sources, weights={"long": 3, "short": 1}).take(70_003)
    read = read_report(run)
    names, rows = np.array(run.picked(range(70_000))[0]), run.locate(range(70_000))[1]
    for one in read.table("lost", "rows not reached"):
        shown = len(np.unique(rows[names == one["source"]]))
        assert one["rows not reached"] == one["rows of an epoch"] - shown
    assert read.answers["lost"]["never_rows"] > 0
    assert read.answers["lost"]["never_tokens"] == 2 * read.answers["lost"]["never_rows"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"overflow": "truncate"}, "lost_truncated"),
        ({"overflow": "drop"}, "lost_overlong"),
        ({"min_len": 3}, "lost_filtered"),
        ({"strategy": "one_doc", "min_row_len": 4}, "lost_short_rows"),
    ],
)
def test_why_packing_loses_tokens_is_what_its_plan_says(layouts, options, reason):
    store, _ = layouts
    lost = read_report(store.pack(SEQ_LEN, **options)).answers["lost"]
    options = {"strategy": "best_fit_decreasing", **options}
    plan = tl.plan_packing(store, seq_len=SEQ_LEN, **options)
    assert lost["lost"] == lost[reason] == plan.tokens_lost > 0


@pytest.mark.parametrize("name", ["mix", "packed", "taken", "rounds"])
def test_an_audit_counts_the_same_rows_and_tokens(orders, name):
    run = orders[name]
    audit = run.audit(arrays=False, progress=False)
    for one in read_report(run, batch_size=1).table("mixture", "epochs"):
        counted = audit.counts["sources"][one["source"]]
        assert (one["rows"], one["tokens"]) == (counted["rows"], counted["tokens"])


def test_blank_documents_are_counted(layouts):
    store, runs = layouts
    run = store.pack(SEQ_LEN).shuffle().edit(at=0, quarantine=[("main", 7)])
    lost = read_report(run, batch_size=1).answers["lost"]
    assert lost["blank_documents"] == 1
    assert read_report(runs["pack"], batch_size=1).answers["lost"]["blank_documents"] == 0


def test_selections_of_one_store_are_judged_together(tmp_path):
    store = store_of(tmp_path / "s")
    lengths = np.asarray(store.lengths)
    full = np.flatnonzero(lengths).tolist()
    half = len(full) // 2

    def lost_of(*selections):
        sources = {
            f"s{k}": store.select(doc_index=some).windows(SEQ_LEN, tail="keep")
            for k, some in enumerate(selections)
        }
        return read_report(tl.mix(sources, stop="all_exhausted"), batch_size=1).answers["lost"]

    whole = lost_of(full[:half], full[half:])
    assert whole["unselected_documents"] == store.num_documents - len(full)
    assert (whole["lost"], whole["once"]) == (0, store.num_tokens)
    part = lost_of(full[:20], [*full[:2], full[25]])
    assert part["unselected_documents"] == store.num_documents - 21
    assert part["unselected_tokens"] == store.num_tokens - lengths[[*full[:20], full[25]]].sum()


@pytest.mark.parametrize("documents", [[], [[]], [[5]], [[], [5, 6], []]])
def test_empty_and_tiny_runs_have_answers(tmp_path, documents):
    write_store(tmp_path / "s", [documents])
    store = tl.open(tmp_path / "s")
    for run in (store.windows(4), store.pack(4), store.windows(4, tail="keep")):
        for batch_size in (1, 64):
            answers = read_report(run, batch_size=batch_size).answers
            assert answers["lost"]["tokens"] == sum(map(len, documents))
            assert answers["trained"]["steps"] == len(run) // batch_size


@pytest.mark.parametrize("name", ["windows", "packed", "splices"])
@pytest.mark.parametrize("batch_size", [1, 7])
def test_an_endless_run_has_the_numbers_of_its_first_epoch(tmp_path, name, batch_size):
    store = store_of(tmp_path / "s")
    once = {
        "windows": store.windows(8).shuffle(),
        "packed": store.pack(8).shuffle(),
        "splices": store.splice(8, content_length=3).shuffle(),
    }[name]
    endless = read_report(once.epochs(None), batch_size=batch_size).answers
    for answer, numbers in read_report(once, batch_size=batch_size).answers.items():
        same = numbers.keys() - {"dropped"}
        assert {key: endless[answer][key] for key in same} == {key: numbers[key] for key in same}
