"""The harness of the fault tests does what it says, and stays out of the package."""

import doctest

import crashdisk
import crashfiles
import faultfiles
import pytest

import tokenloom.testing


@pytest.mark.parametrize("module", [crashdisk, crashfiles, faultfiles], ids=lambda m: m.__name__)
def test_the_examples_of_the_harness_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_an_action_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="action: found 'explode', allowed: raise, short"):
        faultfiles.FaultFiles(action="explode")


def test_users_get_what_they_can_use():
    """Nobody else can supply a `Files`, so what fails on writing is not theirs."""
    assert sorted(tokenloom.testing.__all__) == [
        "FaultSource",
        "assert_elastic",
        "assert_exactly_once",
        "assert_resumable",
        "first_manifest",
        "tiny",
        "write_store",
    ]
