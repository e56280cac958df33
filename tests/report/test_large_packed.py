"""Reports of packed runs that are too large to be planned for a page: few groups, and so told."""

import numpy as np
import pytest
from toystore import keep_plans

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.inspect import simulate_run
from tokenloom.layout.pack import estimated_groups
from tokenloom.layout.pack import rows as grouping
from tokenloom.layout.pack.estimated_groups import sampled_plans, spread
from tokenloom.order.closed_costs import EvenCosts
from tokenloom.report import report_on, subject
from tokenloom.testing import tiny

pytestmark = pytest.mark.filterwarnings("ignore:.*are in no row")

LENGTHS = np.random.default_rng(4).integers(20, 200, 1500)


@pytest.fixture
def folder(tmp_path):
    with keep_plans(tmp_path / "cache") as made:
        yield made


@pytest.fixture
def planned(monkeypatch):
    """The numbers of the groups that were planned, in order."""
    calls, inner = [], grouping.plan_group

    def counting(lengths, spec, group=0, names=None):
        calls.append(group)
        return inner(lengths, spec, group, names)

    monkeypatch.setattr(grouping, "plan_group", counting)
    return calls


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    texts = [{"text": "x" * int(length)} for length in LENGTHS]
    folder = tmp_path_factory.mktemp("packed") / "store"
    return tl.build(texts, folder, tokenizer="bytes", progress=False)


def packed(store, **options):
    return tl.open(store._path).pack(64, group_docs=10, **options).shuffle().epochs(None)


def test_a_step_in_very_many_groups_is_estimated_from_some_of_its_rows(store, folder, monkeypatch):
    run = packed(store)
    right = simulate_run(run, 4, batch_size=512)
    for one in folder.glob("packed-rows-*"):
        one.unlink()
    fresh = packed(store)
    _ = fresh.run
    monkeypatch.setattr(subject, "PLANNED_ROWS", 400)
    about = subject.RunSubject(fresh, subject.Asked(batch_size=512)).simulation
    assert any("of the 512 rows of a step were looked at" in note for note in about.notes)
    assert "ranks.bytes" in about.estimated
    assert about.ranks[0].bytes <= 2 * right.ranks[0].bytes, "no more than the store has"
    assert about.exact_ranks[0].examples == 512


def test_rows_that_stand_for_a_step_read_their_share_of_it(store):
    settings = {"batch_size": 512, "fetch": "rows"}
    right = simulate_run(packed(store), 1, **settings)
    about = simulate_run(packed(store), 1, **settings, exact_examples=128)
    for name in ("useful_bytes", "requests"):
        known, told = (getattr(one.ranks[0], name) for one in (right, about))
        assert told == pytest.approx(known, rel=0.25), name
    assert "ranks.bytes" in about.estimated
    assert "ranks.bytes" in right.exact


def test_control_a_step_that_may_be_simulated_is_exact(store, folder):
    found = subject.RunSubject(packed(store), subject.Asked(batch_size=512)).simulation
    assert not any("were looked at" in note for note in found.notes)


@tiny(packing_sparse_rows=1)
def test_of_kept_rows_a_report_plans_nothing(store, folder, planned):
    packed(store).run.layout.keep_rows()
    fresh = packed(store)
    _ = fresh.run
    planned.clear()
    assert subject.RunSubject(fresh, subject.Asked(batch_size=512)).simulation is not None
    assert planned == []


@pytest.fixture
def sampling(monkeypatch):
    """Small runs are estimated, from a few groups."""
    monkeypatch.setattr(estimated_groups, "MANY_ROWS", 100)
    monkeypatch.setattr(estimated_groups, "SAMPLED", 24)


@pytest.mark.parametrize("options", [{}, {"strategy": "one_doc", "overflow": "truncate"}])
def test_without_a_kept_plan_rows_are_estimated_and_the_page_says_so(
    store, folder, planned, sampling, options
):
    with sampled_plans():
        run = packed(store, **options)
    groups = len(run.run.layout.groups)
    assert len(planned) == 24 < groups, "not all were planned"
    page = report_on(run, batch_size=16)
    assert list(folder.glob("*")) == [], "nothing of a sample is kept"
    (told,) = [one for one in page.cautions if "estimates from a sample" in one.words]
    assert f"24 of {groups} groups of main" in told.words
    assert told is page.cautions[0]
    right = packed(store, **options)
    assert run.run.rows == pytest.approx(right.run.rows, rel=0.03)
    for name in ("frame_tokens", "segments", "cells"):
        about, exact = (getattr(one.run.layout.groups.tally, name) for one in (run, right))
        assert about == pytest.approx(exact, rel=0.05), name
    assert not any("sample:" in one.words for one in report_on(right, batch_size=16).cautions)


def test_rows_of_a_sample_are_rows_of_their_groups(store, folder, sampling):
    with sampled_plans():
        run = packed(store).run
    layout = run.layout
    rows = np.arange(run.rows)
    spans = layout.spans(0, rows)
    spans.check()
    group = layout._group_of(rows)
    inside = layout.groups.document[group[spans.row] + 1] > spans.document
    assert inside.all()
    assert (layout.groups.document[group[spans.row]] <= spans.document).all()
    assert layout.costs(0, rows).sum() == layout.groups.tally.frame_tokens
    assert run.consumed(run.rows)[0].tokens == layout.groups.tally.frame_tokens


def test_the_command_estimates_and_a_kept_plan_is_used(store, folder, sampling, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    tl.save(packed(store), path)
    for one in folder.glob("*"):
        one.unlink()
    out = str(tmp_path / "r.html")
    assert main(["report", str(path), "-o", out, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "estimates from a sample" in said
    assert f"tokenloom at {path} 0" in said
    assert main(["at", str(path), "0"]) == 0
    capsys.readouterr()
    assert main(["report", str(path), "-o", out, "--quiet"]) == 0
    assert "estimates from a sample" not in capsys.readouterr().out


@pytest.mark.parametrize(("total", "rows"), [(5, 2), (7, 3), (3, 7), (2 * 10**12, 10**9 + 1)])
def test_costs_that_are_spread_evenly_agree_with_each_other(total, rows):
    costs = EvenCosts(total, rows, None)
    places = np.arange(40)
    assert spread(places, total, rows).tolist() == [k * total // rows for k in range(40)]
    assert [costs.upto(k) for k in range(40)] == spread(places, total, rows).tolist()
    assert costs.items(3, 30).tolist() == [costs.one(k)[1] for k in range(3, 30)]
    for cost in (0, 1, 2.5, 6, 13):
        found = costs.before(cost)
        assert costs.upto(found) >= cost
        assert not found or costs.upto(found - 1) < cost
    assert costs.items(rows * 500, rows * 500 + 1).tolist() == [costs.one(rows * 500)[1]]


def test_nothing_trains_on_estimates(store, folder, monkeypatch):
    monkeypatch.setattr(estimated_groups, "MANY_ROWS", 10)
    with sampled_plans():
        looked = packed(store)
        _ = looked.run
    with pytest.raises(tl.ConfigError, match="estimates from a sample"):
        next(tl.Loader(looked, 8))
    assert len(next(tl.Loader(packed(store), 8))) == 8
