"""One small store for all tests of the loader."""

import pytest
from toyruns import toy_store


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="session")
def weighted(tmp_path_factory):
    """The same with a loss column."""
    return toy_store(tmp_path_factory.mktemp("weighted"), weights=True)
