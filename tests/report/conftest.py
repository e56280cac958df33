"""The runs of `reports`, made once for all tests of a file."""

import pytest
import reports


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """A store and a run of each layout over it."""
    return reports.layout_runs(tmp_path_factory.mktemp("layouts"))


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """A run of each order, rule and end."""
    return reports.order_runs(tmp_path_factory.mktemp("orders"))
