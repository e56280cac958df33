"""Runs to explore, made once for all tests of a file."""

import browsing
import pytest
from buckets import moto, moto_process, place, ranges, ranges_process  # noqa: F401
from exploring import Asked
from pagetoys import everything_run, hostile_run

from tokenloom.explore.session import Session


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A mix of windows, packed and spliced rows with an edit."""
    return everything_run(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def asked(run):
    """The same, explored."""
    return Asked(Session([run], ["everything"], 16))


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A run whose every word is an attack, explored."""
    from pagetoys import EVIL

    return Asked(Session([hostile_run(tmp_path_factory.mktemp("evil"))], [EVIL], 4))


@pytest.fixture(scope="module")
def chromium():
    """A running browser; while it runs, nothing else in this process may use asyncio."""
    with browsing.browser() as running:
        yield running
