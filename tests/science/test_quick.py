"""Every experiment measures two arms; the quick form holds the orderings that it can show."""

import math
from xml.etree import ElementTree

import pytest
from science.measuring import measure_all, record_of
from science.records import Shelf
from science.registry import EXPERIMENTS
from science.report import table
from science.verdicts import Found

STEPS = 10

EVERY = pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=name, marks=() if name in ("packing", "splice") else pytest.mark.slow)
        for name, one in EXPERIMENTS.items()
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_experiment_trains_a_few_steps_and_is_judged_and_drawn(one, tmp_path):
    records = [record_of((one.name, arm, one.seeds[0], STEPS), tmp_path) for arm in one.quick]
    found = Found(records)
    assert {record["arm"] for record in found.records} == set(one.quick)
    for record in found.records:
        assert record["figures"]
        assert all(math.isfinite(value) for value in record["figures"].values())
    assert any(check.holds is not None for check in one.judge(found))
    assert len(list(table(one, found))) == 4
    ElementTree.fromstring(one.picture(found))


@pytest.mark.slow
@EVERY
def test_the_orderings_of_the_quick_form_hold(one, tmp_path):
    shelf = Shelf(tmp_path)
    assert measure_all([one], shelf, quick=True, workers=0) == 2
    found = Found(shelf.read(one, quick=True))
    checks = [check for check in one.judge(found) if check.holds is not None]
    assert checks
    assert [check for check in checks if not check.holds] == []
    assert {record["steps"] for record in found.records} == {one.quick_steps}
