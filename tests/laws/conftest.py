"""The stores that every law draws its runs over."""

import pytest
from known_stores import make_known


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    return make_known(tmp_path_factory.mktemp("known"))
