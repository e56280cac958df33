"""Small stores of known documents, and the commands."""

import contextlib
import functools
import io
import itertools
import runpy
import sys
from pathlib import Path

import pytest
import servers
from toybucket import ToyBucket

import tokenloom as tl

NUMBERS = itertools.count()


@pytest.fixture
def store_of(tmp_path):
    """Builds a store from lists of ids: `store_of([[1, 2, 3], [], [4, 5]])`.

    Options are those of `tl.build`; `more=[{"id": "a"}, …]` adds columns to the records.
    """
    count = iter(range(1_000_000))

    def make(documents, *, more=None, **options):
        records = [{"input_ids": list(ids)} for ids in documents]
        for record, extra in zip(records, more or [], strict=False):
            record.update(extra)
        options = {"tokenizer": None, "vocab_size": 1000, "progress": False} | options
        return tl.build(records, tmp_path / f"store-{next(count)}", **options)

    return make


@pytest.fixture(scope="session")
def shared_store_of(tmp_path_factory):
    """Opens a store of documents that are built once a session: `shared_store_of([1, 2], [3])`.

    For tests that only read.
    """
    folder = tmp_path_factory.mktemp("shared")
    count = iter(range(1_000_000))

    @functools.cache
    def path_of(documents):
        path = folder / str(next(count))
        records = [{"input_ids": list(ids)} for ids in documents]
        tl.build(records, path, tokenizer=None, vocab_size=1000, progress=False)
        return path

    def make(*documents):
        return tl.open(path_of(tuple(map(tuple, documents))))

    return make


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs `python -m tokenloom WORDS…` here and returns what it prints.

    With another exit code than 0, the messages follow.
    """
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)  # the command sets its own

    def run(*words, code=0):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["tokenloom", *map(str, words)])
        monkeypatch.delitem(sys.modules, "tokenloom.__main__", raising=False)  # of another test
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("tokenloom", run_name="__main__")
        printed, messages = capsys.readouterr()
        assert (ended.value.code or 0) == code, messages
        return printed + messages if code else printed

    return run


@pytest.fixture(scope="session")
def benchmarks():
    """Runs `python -m benchmarks WORDS…` here: its exit code and what it prints."""
    root = str(Path(__file__).parents[2])

    def run(*words):
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.syspath_prepend(root)
            patch.setattr(sys, "argv", ["benchmarks", *map(str, words)])
            patch.setattr("warnings.showwarning", lambda *_, **__: None)
            patch.delitem(sys.modules, "benchmarks.__main__", raising=False)  # of another test
            try:
                runpy.run_module("benchmarks", run_name="__main__")
            except SystemExit as ended:
                return ended.code or 0, printed.getvalue()
        return 0, printed.getvalue()

    return run


@pytest.fixture(scope="session")
def bucket_server():
    with servers.range_server() as server:
        yield server


@pytest.fixture
def bucket(bucket_server, monkeypatch):
    """An empty bucket that this process and its children reach."""
    bucket_server.forget()
    for name, value in bucket_server.environment().items():
        monkeypatch.setenv(name, value)
    return ToyBucket(bucket_server, f"test-{next(NUMBERS)}")
