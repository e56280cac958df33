"""Objects of buckets by URL, by obstore alone, and the fixtures of the servers they are on.

A conftest that wants the fixtures imports them from here.
"""

import itertools
from pathlib import Path

import obstore
import obstore.store
import pytest
import servers

PAYLOAD = "input_ids/c/0"

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
    return server


@pytest.fixture
def ranges(ranges_process, monkeypatch):
    """Our own server, empty and without faults; this process reaches it as S3."""
    ranges_process.forget()
    return _reach(ranges_process, monkeypatch)


@pytest.fixture
def moto(moto_process, monkeypatch):
    """moto's server; this process reaches it as S3."""
    return _reach(moto_process, monkeypatch)


@pytest.fixture
def place():
    """A URL below which nobody else writes."""
    return f"s3://bucket/test-{next(_NUMBERS)}"


def _opened(url):
    """A bucket, and the key inside it."""
    scheme, _, rest = url.partition("://")
    host, _, key = rest.partition("/")
    if scheme == "s3":
        return obstore.store.S3Store(host, client_options={"allow_http": True}), key
    return obstore.store.AzureStore(host, client_options={"allow_http": True}), key


def put(url, data):
    """Write one object."""
    bucket, key = _opened(url)
    obstore.put(bucket, key, data, use_multipart=False)


def get(url):
    """The bytes of one object."""
    bucket, key = _opened(url)
    return bytes(obstore.get(bucket, key).bytes())


def delete(url):
    """Remove one object."""
    bucket, key = _opened(url)
    obstore.delete(bucket, key)


def names(url):
    """The names of all objects below a URL, from there."""
    bucket, key = _opened(url)
    skip = len(key) + 1 if key else 0
    return [one["path"][skip:] for one in obstore.list(bucket, key or None).collect()]


def objects(url):
    """Every object below a URL, by its name from there."""
    return {name: get(f"{url}/{name}") for name in names(url)}


def files(folder):
    """Every file below a folder, by its name from there, but for the lock."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def upload(folder, url):
    """A folder's files, copied into a bucket."""
    for name, data in files(folder).items():
        put(f"{url}/{name}", data)


def copied(url, folder):
    """A bucket's objects as files."""
    for name, data in objects(url).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def asked(ranges, part=PAYLOAD):
    """The requests for a file, in the order of their starts."""
    return sorted(
        (one["key"], one["start"], one["size"]) for one in ranges.log() if part in one["key"]
    )
