"""The quick form: two arms of each experiment, one seed, and the orderings that it can show."""

import pytest
from science.measuring import measure_all
from science.records import Shelf
from science.registry import EXPERIMENTS
from science.verdicts import Found


@pytest.mark.slow
@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_the_orderings_of_the_quick_form_hold(one, tmp_path):
    shelf = Shelf(tmp_path)
    assert measure_all([one], shelf, quick=True, workers=0) == 2
    found = Found(shelf.read(one, quick=True))
    checks = [check for check in one.judge(found) if check.holds is not None]
    assert checks
    assert [check for check in checks if not check.holds] == []
    assert {record["steps"] for record in found.records} == {one.quick_steps}
