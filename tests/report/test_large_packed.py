"""Reports of packed runs that are too large to be planned for a page: few groups, and so told."""

import numpy as np
import pytest
from toystore import keep_plans

import tokenloom as tl
from tokenloom.layout.pack import estimated_groups
from tokenloom.layout.pack import rows as grouping
from tokenloom.layout.pack.estimated_groups import sampled_plans
from tokenloom.report import report_on

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


def test_nothing_trains_on_estimates(store, folder, monkeypatch):
    monkeypatch.setattr(estimated_groups, "MANY_ROWS", 10)
    with sampled_plans():
        looked = packed(store)
        _ = looked.run
    with pytest.raises(tl.ConfigError, match="estimates from a sample"):
        next(tl.Loader(looked, 8))
    assert len(next(tl.Loader(packed(store), 8))) == 8
