"""The harness of the fault tests does what it says."""

import doctest

import crashdisk
import pytest

from tokenloom.testing import FaultFiles


def test_the_examples_of_the_harness_run():
    result = doctest.testmod(crashdisk)
    assert result.attempted > 0
    assert result.failed == 0


def test_an_action_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="explode"):
        FaultFiles(action="explode")
