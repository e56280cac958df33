"""The tables of a report's figures are what the run, its plan and its simulation say."""

import itertools

import numpy as np
import pytest
from reports import LAYOUTS, SEQ_LEN, Read, read_report, store_of

import tokenloom as tl
from tokenloom.inspect import coverage
from tokenloom.report import report_on

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

MIXES = ("mix", "staged and edited", "runs out", "rounds", "taken", "endless mix")
SPEED = {"ranks": 2, "latency": 0.02, "bandwidth": 1e6, "step_seconds": 0.01}


# -- mixtures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("batch_size", [8, 60])
def test_shares_between_two_steps_are_those_of_the_tokens_of_these_steps(orders, name, batch_size):
    run = orders[name]
    listed = read_report(run, batch_size=batch_size).table("mixture", "up to step")
    first = 0
    for row in listed:
        last = row["up to step"]
        spans = run.spans(range(first * batch_size, last * batch_size))
        names = np.array(spans.sources)[spans.source][spans.row]
        for source in run.sources:
            share = spans.length[names == source].sum() / spans.length.sum()
            assert row[f"share of {source}"] == pytest.approx(share)
        first = last


@pytest.mark.parametrize("name", MIXES)
def test_rows_and_repeats_of_a_mix_are_those_of_its_rows(orders, name):
    run, read = orders[name], read_report(orders[name])
    steps = read.answers["trained"]["steps"]
    found = run.simulate(steps, batch_size=8)
    totals = {one["source"]: one for one in read.table("mixture", "runs out at step")}
    repeats = {one["source"]: one for one in read.table("mixture", "most times of a row")}
    picked = np.array(run.picked(range(found.examples))[0])
    rows = run.locate(range(found.examples))[1]
    for one, repeated in zip(found.sources, found.repeats, strict=True):
        assert (totals[one.name]["rows"], totals[one.name]["tokens"]) == (one.rows, one.tokens)
        row = repeats[one.name]
        times = np.bincount(rows[picked == one.name], minlength=row["rows of an epoch"])
        assert (row["least times of a row"], row["most times of a row"]) == (
            times.min(),
            times.max(),
        )
        assert row["rows"] == times.sum()
        assert row["epochs"] == times.sum() / row["rows of an epoch"]
        told = [row[key] for key in ("steps to its next row: least", "median", "mean", "most")]
        assert told == list(repeated.gaps or (None,) * 4)


def test_a_source_runs_out_after_the_step_of_its_last_row(orders):
    run = orders["runs out"]
    listed = read_report(run).table("mixture", "runs out at step")
    names = run.picked(range(len(run)))[0]
    for one in listed:
        last = max(k for k, name in enumerate(names) if name == one["source"])
        assert one["runs out at step"] == -(-(last + 1) // 8)
    for name in ("mix", "endless mix"):
        listed = read_report(orders[name]).table("mixture", "runs out at step")
        assert {one["runs out at step"] for one in listed} == {None}


def test_stages_and_edits_are_listed_at_their_steps(orders):
    changes = read_report(orders["staged and edited"]).table("mixture", "what changes")
    found = [(one["from example"], one["from step"]) for one in changes]
    assert found == [(120, 15), (240, 30), (300, 38)]
    for one, names in zip(changes, (("web 1", "code 1"), ("code 3",), ("code",)), strict=True):
        assert all(name in one["what changes"] for name in names)


def test_many_sources_are_eight_and_the_rest_and_a_page_of_them_is_small(tmp_path):
    store = store_of(tmp_path / "s")
    many = tl.mix({f"s{k:03d}": store.windows(8).shuffle() for k in range(250)})
    report = report_on(many, batch_size=8)
    totals, shares = Read(report.to_dict()).figures["mixture"]["numbers"][:2]
    assert (len(totals["rows"]), totals["more"]) == (200, 50)
    assert len(shares["head"]) == 1 + 8 + 1
    assert all(sum(row[1:]) == pytest.approx(1) for row in shares["rows"])
    assert len(report.tree.splitlines()) < 60
    assert len(report.html) < 1_000_000


# -- rows, lengths, packing, splices -----------------------------------------------------------


@pytest.mark.parametrize("name", ["pack, specials", "windows, overlap", "splice", "epochs"])
def test_pieces_of_rows_are_those_that_at_gives(layouts, name):
    store, runs = layouts
    run = runs[name]
    listed = read_report(run, batch_size=5).table("rows", "first cell")
    assert len({one["step"] for one in listed}) == 3  # the first, the middle and the last
    for index, pieces in itertools.groupby(listed, key=lambda one: one["example"]):
        example = run.at(index, batch_size=5)
        for one, span in zip(pieces, example.spans, strict=True):
            stored = [cells for cells in span.cells if not cells.inserted]
            assert (one["step"], one["row"]) == (example.step, example.row)
            assert (one["source"], one["document"]) == (span.source, span.document)
            assert one["first cell"] == span.cells[0].column
            assert one["tokens of the document"] == len(store.document(span.document))
            assert one["cut before"] == (bool(stored) and stored[0].start > 0)
    trained = sum(one["trained"] for one in listed)
    batch = run.batch(sorted({one["example"] for one in listed}))
    assert trained == batch.loss_mask[:, :-1].sum()


def test_lengths_are_those_of_the_documents_that_are_selected(layouts):
    store, _ = layouts
    lengths = np.sort(store.lengths)[-20:]
    run = store.select(num_docs=20, doc_select_mode="longest").windows(SEQ_LEN)
    (row,), bins = read_report(run).tables("lengths")
    assert (row["documents"], row["tokens"]) == (20, lengths.sum())
    assert (row["min"], row["median"], row["max"]) == (
        lengths.min(),
        np.median(lengths),
        lengths.max(),
    )
    assert row["mean"] == pytest.approx(lengths.mean())
    assert row["std"] == pytest.approx(lengths.std())
    assert sum(one["documents"] for one in bins) == 20
    assert sum(one["share of tokens"] for one in bins) == pytest.approx(1)
    twice = tl.mix({"a": store.windows(SEQ_LEN), "b": store.pack(SEQ_LEN)})
    assert sum(one["documents"] for one in read_report(twice).tables("lengths")[1]) == (
        store.num_documents  # counted once
    )


@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
def test_ways_to_pack_are_those_of_plan_packing(layouts, overflow):
    store, _ = layouts
    run = store.pack(SEQ_LEN, overflow=overflow, add_eos=True, eos_id=2, group_docs=7)
    ways = read_report(run).table("packing", "way")
    own = [one for one in ways if one["this run"]]
    assert [one["way"].partition(",")[0] for one in own] == ["best_fit_decreasing"]
    options = {"seq_len": SEQ_LEN, "add_eos": True, "group_docs": 7, "overflow": overflow}
    plan = tl.plan_packing(store, strategy="best_fit_decreasing", **options)
    assert own[0]["rows"] == plan.rows == len(run)
    assert own[0]["share of cells filled"] == pytest.approx(plan.fill)
    assert own[0]["documents cut"] == plan.documents_cut
    assert own[0]["segments a row"] == pytest.approx(plan.segments_per_row)
    assert own[0]["attention"] == pytest.approx(plan.attention)
    if overflow == "split":
        for one in ways:
            if one["way"] != "windows":
                plan = tl.plan_packing(store, strategy=one["way"], **options)
                assert (one["rows"], one["documents cut"]) == (plan.rows, plan.documents_cut)
                assert one["share of cells filled"] == pytest.approx(plan.fill)


@pytest.mark.parametrize("settings", [{}, {"tail": "keep"}, {"lookahead": True, "overlap": 1}])
def test_windows_among_the_ways_are_tallied_as_their_spans_say(layouts, settings):
    store, _ = layouts
    run = store.windows(SEQ_LEN, **settings)
    (own,) = (one for one in read_report(run).table("packing", "way") if one["this run"])
    spans = run.spans(range(len(run)))
    inside = np.clip(SEQ_LEN - spans.at, 0, spans.length)
    times = np.bincount(spans.document, minlength=store.num_documents)
    assert (own["way"], own["rows"]) == ("windows", len(run))
    assert own["share of cells filled"] == pytest.approx(inside.sum() / (len(run) * SEQ_LEN))
    assert own["documents cut"] == (times > 1).sum()
    assert own["cut needlessly"] == ((times > 1) & (np.asarray(store.lengths) <= SEQ_LEN)).sum()
    assert own["segments a row"] == pytest.approx((inside > 0).sum() / len(run))
    assert own["attention"] == pytest.approx((inside**2).sum() / (len(run) * SEQ_LEN**2))


def test_splices_are_the_coverage_of_an_epoch(layouts):
    store, _ = layouts
    run = store.splice(SEQ_LEN, content_length=5).shuffle().epochs(2)
    found, (listed, *_) = coverage(run, epochs=1), read_report(run).tables("splices")
    real = [one for one in found.documents.tolist() if len(store.document(one))]
    assert sorted(one["document"] for one in listed) == sorted(real)
    for row in listed:
        about = found.about(row["document"])
        targets = about["targets"]
        assert list(row.values())[1:9] == [
            *(about["length"], about["splices"]),
            *(targets["min"], targets["mean"], targets["max"], targets["cv"]),
            *(about["starts"], about["starts_shown"]),
        ]
    mixed = tl.mix({"a": store.windows(SEQ_LEN), "b": store.splice(SEQ_LEN, content_length=5)})
    assert read_report(mixed).tables("splices") == read_report(run).tables("splices")


# -- reading, resuming, audits -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["mix", "lanes", "packed"])
def test_reads_and_waits_are_those_of_a_simulation(orders, name):
    run, read = orders[name], read_report(orders[name], **SPEED)
    steps = read.answers["trained"]["steps"]
    found = run.simulate(steps, batch_size=8, **SPEED)
    loading, waiting = read.tables("loading")[:2]
    for row, rank in zip(loading, found.ranks, strict=True):
        assert (row["rank"], row["how"], row["rows"]) == (rank.rank, rank.how, rank.examples)
        assert (row["reads"], row["bytes"]) == (rank.reads, rank.bytes)
        assert row["bytes asked for"] == rank.useful_bytes
        assert (row["cache hits"], row["cache misses"]) == (rank.hits, rank.misses)
        assert (row["bytes needed at once"], row["bytes of cache"]) == (
            rank.needed_bytes,
            rank.cache_bytes,
        )
    values = {one["what"]: one["value"] for one in waiting}
    stalls = found.stalls
    assert values["seconds in all"] == stalls.seconds
    assert values["seconds waited"] == stalls.waited
    assert values["seconds until the first step"] == stalls.first_wait
    assert values["longest wait after it"] == stalls.longest_wait
    assert values["steps that wait"] == stalls.stalled_steps


@pytest.mark.parametrize("name", ["mix", "packed", "endless"])
def test_a_position_is_the_state_there(orders, name):
    run = orders[name]
    decides, sources = read_report(run, examples=80).tables("resume")
    state = run.state(80, step=10)
    assert {one["key"]: one["value"] for one in decides} == {
        one["key"]: state[one["key"]] for one in decides
    }
    assert state["examples"] == 80
    for row, one in zip(sources, run.consumed(80), strict=True):
        assert list(row.values())[:4] == list(one.values())
    assert "resume" not in read_report(run).figures  # without a position


# -- any size ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_has_its_figures_with_numbers(layouts, name):
    _, runs = layouts
    figures = read_report(runs[name], batch_size=4).figures
    assert {"rows", "lengths", "lost", "loading"} <= figures.keys()
    assert ("splices" in figures) == ("splice" in name) == ("packing" not in figures)
    for one in figures.values():
        assert one["numbers"]
        assert "nan" not in one["message"]
        assert "None" not in one["message"]
