"""Fixtures of the tests of many processes."""

import pytest
import servers
from kit import Nursery, quick_folder


@pytest.fixture
def scratch():
    """A directory in memory."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    """Forks children that have everything imported."""
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()


@pytest.fixture
def bucket(monkeypatch):
    """The URL of an empty bucket that this process and its children reach."""
    with servers.range_server() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield "s3://bucket/ray"
