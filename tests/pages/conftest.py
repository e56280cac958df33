"""One browser for all tests of pages in a process."""

import browsing
import pytest


@pytest.fixture(scope="session")
def chromium():
    """A running browser."""
    with browsing.browser() as running:
        yield running
