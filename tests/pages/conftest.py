"""One browser for the tests of a file."""

import browsing
import pytest


@pytest.fixture(scope="module")
def chromium():
    """A running browser; while it runs, nothing else in this process may use asyncio."""
    with browsing.browser() as running:
        yield running
