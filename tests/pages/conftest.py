"""One browser for the tests of a file."""

import sys
from pathlib import Path

import browsing
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "explore"))


@pytest.fixture(scope="module")
def chromium():
    """A running browser; while it runs, nothing else in this process may use asyncio."""
    with browsing.browser() as running:
        yield running
