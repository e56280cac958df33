"""Buckets for the tests of this folder: a server per session, a bucket prefix per test."""

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "explore"))

import servers

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def ranges_process():
    with servers.range_server() as server:
        yield server


@pytest.fixture(scope="session")
def moto_process():
    with servers.moto_server("bucket") as server:
        yield server


def _reach(server, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def ranges(ranges_process, monkeypatch):
    """Our own server, empty and without faults; this process reaches it as S3."""
    ranges_process.forget()
    _reach(ranges_process, monkeypatch)
    return ranges_process


@pytest.fixture
def moto(moto_process, monkeypatch):
    """moto's server; this process reaches it as S3."""
    _reach(moto_process, monkeypatch)
    return moto_process


@pytest.fixture
def place():
    """A URL below which nobody else writes."""
    return f"s3://bucket/test-{next(_NUMBERS)}"
