"""Fixtures of the fault tests."""

import pytest
from buckets import moto, moto_process, place, ranges, ranges_process  # noqa: F401
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
