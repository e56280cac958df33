"""`tiny` changes the limits that it says, and puts them back."""

import dataclasses

import pytest

import tokenloom as tl
from tokenloom.limits import limits
from tokenloom.testing import tiny


def test_tiny_changes_every_limit_or_those_that_are_named():
    usual = dataclasses.asdict(limits())
    with tiny():
        small = dataclasses.asdict(limits())
        with tiny(plan_examples=7):
            assert dataclasses.asdict(limits()) == small | {"plan_examples": 7}
    assert all(0 < small[name] < usual[name] for name in usual)
    with tiny(plan_examples=7):
        assert dataclasses.asdict(limits()) == usual | {"plan_examples": 7}
    assert dataclasses.asdict(limits()) == usual
    with pytest.raises(tl.ConfigError, match="plan_exampels"), tiny(plan_exampels=7):
        pass


@tiny(kept_orders=1)
def test_tiny_decorates_a_test():
    assert limits().kept_orders == 1
