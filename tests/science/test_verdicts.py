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


def test_arms_are_compared_in_pairs_so_a_spread_that_both_share_does_not_hide_a_difference():
    shared = found(a=[1.0, 5.0, 9.0], b=[1.1, 5.11, 9.09])
    assert shared.below("a", "b", "loss", "").holds
    assert shared.below("a", "b", "loss", "").numbers.endswith("3 seeds")


def test_one_seed_shows_a_sign_and_says_that_it_is_one():
    check = found(a=[1.0], b=[2.0]).below("a", "b", "loss", "")
    assert check.holds
    assert check.numbers.endswith("1 seed")


def test_arms_that_were_not_measured_hold_nothing():
    some = found(a=[1.0])
    assert some.below("a", "b", "loss", "").holds is None
    assert some.under("b", "loss", 1, "").holds is None
    assert some.as_good("a", "b", "loss", "").holds is None
    assert verdict([some.below("a", "b", "loss", "")]) == "not measured"


def test_as_good_allows_the_spread_of_the_other_arms_seeds():
    some = found(full=[2.0, 2.1, 1.9], block=[2.1, 2.2, 2.2], bad=[2.5, 2.5, 2.5])
    assert some.as_good("block", "full", "loss", "").holds
    assert not some.as_good("bad", "full", "loss", "").holds


def test_under_asks_every_seed():
    assert found(a=[0.1, 0.2]).under("a", "loss", 0.3, "").holds
    assert not found(a=[0.1, 0.4]).under("a", "loss", 0.3, "").holds


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


def test_over_asks_every_seed():
    assert found(a=[0.1, 0.2]).over("a", "loss", 0.05, "").holds
    assert not found(a=[0.1, 0.4]).over("a", "loss", 0.2, "").holds
    assert found(a=[0.1]).over("b", "loss", 0.2, "").holds is None


def test_an_order_of_means_without_a_clear_interval_is_not_shown_and_a_wrong_one_is_no():
    some = found(a=[1.0, 3.0, 0.9], b=[2.0, 2.1, 1.9], c=[1.5, 1.6, 1.4])
    assert some.below("a", "b", "loss", "").answer == "not shown"
    assert some.below("b", "a", "loss", "").answer == "no"
    assert some.below("c", "b", "loss", "").answer == "yes"
    assert some.below("c", "d", "loss", "").answer == "not measured"


def test_counts_are_compared_seed_by_seed():
    some = found(few=[0.1, 0.1, 0.1], many=[0.3, 0.3, 9.0], some=[0.1, 0.1, 5.0])
    assert some.always_below("few", "many", "loss", "", factor=0.5).holds
    assert not some.always_below("some", "many", "loss", "", factor=0.5).holds
    assert some.always_below("few", "none", "loss", "", factor=0.5).holds is None
