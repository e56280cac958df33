"""Documents that are learned first: against a search through every step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import learned

CURVES = st.lists(st.sampled_from([0.2, 0.5, 0.9, 1.0, 1.1, 2.0, 3.5]), min_size=4, max_size=4)


def records(curves, figure="loss", steps=(10, 20, 40, 80)):
    return [
        {
            "step": step,
            "results": {
                "held": {"by": {"document": {n: {figure: c[i]} for n, c in curves.items()}}}
            },
        }
        for i, step in enumerate(steps)
    ]


def slow_step(curve, line, better, steps=(10, 20, 40, 80)):
    """The first place of a fine grid from which on the straight lines stay beyond the line."""

    def at(x):
        for i in range(3):
            if x <= steps[i + 1]:
                share = (x - steps[i]) / (steps[i + 1] - steps[i])
                return curve[i] + share * (curve[i + 1] - curve[i])
        return curve[-1]

    grid = [10 + 70 * i / 7000 for i in range(7001)]
    found = None
    for x in reversed(grid):
        if not (at(x) <= line + 1e-9 if better == "below" else at(x) >= line - 1e-9):
            break
        found = x
    return found


@given(st.dictionaries(st.sampled_from(["0", "1", "wiki/7"]), CURVES, min_size=1))
def test_a_document_is_learned_where_its_curve_stays_below_the_line(curves):
    found = learned(records(curves), "held", line=1.0)
    assert {one.document for one in found.documents} == set(curves)
    for one in found.documents:
        wanted = slow_step(curves[one.document], 1.0, "below")
        if one.step is None:
            assert wanted is None
        else:
            assert wanted == pytest.approx(one.step, abs=0.02)
    order = [math.inf if one.step is None else one.step for one in found.documents]
    assert order == sorted(order)
    assert [one.document for one in found.never] == [
        one.document for one in found.documents if one.step is None
    ]


@given(CURVES)
def test_figures_that_grow_are_learned_above_the_line(curve):
    found = learned(records({"3": curve}, "greedy"), "held", figure="greedy", line=1.0)
    wanted = slow_step(curve, 1.0, "above")
    step = found.documents[0].step
    assert (step is None) == (wanted is None)
    assert step is None or step == pytest.approx(wanted, abs=0.02)


def test_answers_of_windows_are_read_too():
    made = [
        {"step": s, "results": {"pz": {"documents": {"4": {"mean_pz": p}, "9": {"windows": 0}}}}}
        for s, p in ((1, 0.0), (3, 0.5))
    ]
    found = learned(made, "pz", figure="mean_pz", line=0.25)
    assert [tuple(one) for one in found.documents] == [("4", 2.0, 0.0, 0.5, 0.25)]


def test_what_has_no_documents_is_refused():
    one = records({"0": [1.0] * 4})
    refused(lambda: learned(one, "other"), tl.ConfigError, "held")
    refused(lambda: learned(one, "held", figure="greedy"), tl.ConfigError, "greedy")
