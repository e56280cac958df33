"""What holds over seeds, and what does not."""

import math

import pytest
from science.verdicts import Check, Found, interval, verdict


def found(**arms):
    """Records with one figure: values of each arm by seed."""
    return Found(
        {"arm": arm, "seed": seed, "figures": {"loss": value}, "curves": {"c": [(0, value)]}}
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    )


def test_an_interval_is_that_of_students_t():
    one = interval([1.0, 2.0, 4.0])
    spread = math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2)
    assert one.mean == pytest.approx(7 / 3)
    assert one.half == pytest.approx(4.303 * spread / math.sqrt(3))


def test_an_ordering_holds_only_if_the_interval_of_the_differences_excludes_zero():
    clear = found(a=[1.0, 1.1, 0.9], b=[2.0, 2.1, 1.9])
    noisy = found(a=[1.0, 3.0, 0.9], b=[2.0, 2.1, 1.9])
    assert clear.below("a", "b", "loss", "").holds
    assert not noisy.below("a", "b", "loss", "").holds
    assert not clear.below("b", "a", "loss", "").holds
    assert not clear.below("a", "b", "loss", "", factor=0.5).holds


def test_a_verdict_counts_what_is_known():
    yes, no, unknown = Check("", True, ""), Check("", False, ""), Check("", None, "")
    assert verdict([yes, unknown]) == "holds"
    assert verdict([yes, no]) == "holds in part"
    assert verdict([no, no]) == "does not hold"
    assert verdict([unknown]) == "not measured"


def test_a_control_that_fails_leaves_nothing_shown_and_one_that_holds_claims_nothing():
    yes = Check("", True, "")
    failed, passed = (Check("", holds, "", control=True) for holds in (False, True))
    assert verdict([yes, failed]) == "shows nothing: a control fails"
    assert verdict([yes, passed]) == "holds"
    assert verdict([passed]) == "its control holds, no claim was measured"
