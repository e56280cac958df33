"""What only fsspec has a scheme for (hf:// and others) is read as a bucket, within a deadline."""

import copy
import datetime
import hashlib
import json
import logging
import os
import pickle
import socket
import ssl
import threading
import time

import fsspec
import numpy as np
import pytest
from buckets import PAYLOAD, files
from everyformat import parquet
from foreignfiles import some_documents
from fsspec.implementations.memory import MemoryFileSystem
from leaking import leaks, told
from toyruns import toy_store

import tokenloom as tl
from tokenloom.testing import tiny

TOP = "hf://datasets/user"

TOKEN = "hf_PlantedTokenOfTheHub0123456789"

LINES = {"text/a.jsonl": ["one", "two"], "text/b.jsonl": ["three"], "text/deep/c.jsonl": ["four"]}

BUILT = {"tokenizer": "bytes", "workers": 1, "inner": 64, "chunk_tokens": 64}


class Hub(MemoryFileSystem):
    """A hub in memory: folders have an `info`, and the token of the environment is in its words."""

    protocol = "hf"
    store, pseudo_dirs = {}, [""]
    cachable = False
    awake = threading.Event()
    denies = False
    fails: Exception | None = None

    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        self.token = os.environ.get("HF_TOKEN")

    def _ask(self):
        self.awake.wait(40)
        if self.fails:
            raise self.fails
        if self.denies:
            raise PermissionError(f"401 https://hub/x?token={self.token} Bearer {self.token}")

    def info(self, path, **more):
        self._ask()
        return super().info(path, **more)

    def find(self, path, *given, **more):
        self._ask()
        return super().find(path, *given, **more)

    def ls(self, path, *given, **more):
        self._ask()
        return super().ls(path, *given, **more)


@pytest.fixture
def hub(monkeypatch):
    """An empty hub that answers."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    registered = fsspec.registry.get("hf")
    fsspec.register_implementation("hf", Hub, clobber=True)
    Hub.store.clear()
    Hub.pseudo_dirs[:] = [""]
    Hub.awake.set()
    yield Hub()
    Hub.awake.set()  # threads that wait end
    Hub.denies = False
    Hub.fails = None
    if registered is not None:
        fsspec.register_implementation("hf", registered, clobber=True)


def put(hub, folder, name):
    """The files of a folder, as they would be in a repository of the hub."""
    for path, data in files(folder).items():
        hub.pipe_file(f"datasets/user/{name}/{path}", data)


@pytest.fixture
def local(hub, tmp_path):
    """A store of ours, on a disk and as TOP/toy."""
    store = toy_store(tmp_path / "local", rows=60)
    put(hub, store.path, "toy")
    return store


def test_a_store_of_ours_is_read_and_nothing_is_created(hub, local):
    store = tl.open(f"{TOP}/toy")
    assert np.array_equal(store.document(7), local.document(7))
    assert (store.digest, store.verify().problems) == (local.digest, ())
    with pytest.raises(tl.StoreError, match=TOP):
        tl.build([{"text": "x"}], f"{TOP}/x", **BUILT)
    hub.pipe_file("datasets/user/toy/shard-00000/" + PAYLOAD, b"short")
    with pytest.raises(tl.StoreCorrupt, match="5"):
        tl.open(f"{TOP}/toy").document(7)


def test_a_store_of_others_is_read(hub, tmp_path):
    (tmp_path / "rows").mkdir()
    path, _, documents = parquet(tmp_path / "rows", some_documents(count=20))
    put(hub, path, "rows")
    store = tl.open(f"{TOP}/rows")
    assert store.digest == tl.open(path).digest
    assert [one.tolist() for one in store.documents(range(20))] == documents
    one = tl.open(f"{TOP}/rows/part-1.parquet")
    assert one.digest == tl.open(path / "part-1.parquet").digest


@pytest.mark.parametrize("what", ["text/a.jsonl", "text/*.jsonl", "text/**/*.jsonl", "text"])
def test_inputs_are_a_name_a_glob_or_a_folder(hub, tmp_path, what):
    for name, texts in LINES.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    put(hub, tmp_path / "in", "corpus")
    tl.build(f"{tmp_path}/in/{what}", tmp_path / "here", **BUILT)
    tl.build(f"{TOP}/corpus/{what}", tmp_path / "there", **BUILT)
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.mark.parametrize("what", ["read", "open", "build"])
def test_a_file_system_that_sleeps_raises_within_the_deadline(
    hub, local, tmp_path, monkeypatch, what
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "1.5")
    store = tl.open(f"{TOP}/toy")
    calls = {
        "read": lambda: store.document(0),
        "open": lambda: tl.open(f"{TOP}/toy"),
        "build": lambda: tl.build(f"{TOP}/corpus", tmp_path / "s", **BUILT),
    }
    hub.awake.clear()
    started = time.monotonic()
    with pytest.raises(tl.TokenloomError, match="asked"):
        calls[what]()
    assert time.monotonic() - started < 30  # one answer would have taken 40


@pytest.mark.parametrize(
    ("error", "is_asked_again"),
    [
        (ConnectionRefusedError(111, TOKEN), True),
        (socket.gaierror(-2, TOKEN), True),
        (ssl.SSLCertVerificationError(1, TOKEN), False),
    ],
)
def test_a_file_system_that_is_not_reached_is_reported_as_what_it_is(
    hub, local, monkeypatch, error, is_asked_again
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.5")
    Hub.fails = error
    with pytest.raises(tl.StoreError, match=TOP) as caught:
        tl.open(f"{TOP}/toy")
    assert ("asked" in str(caught.value)) == is_asked_again
    assert leaks(told(caught.value), secrets=[TOKEN]) == []


class Fussy(MemoryFileSystem):
    """A file system that does not start, and tells secrets."""

    protocol = "fussy"
    cachable = False

    def __init__(self, *given, **more):
        raise ConnectionError(f"login of {TOKEN} failed")


@pytest.mark.parametrize("scheme", ["ftp", "fussy", "nosuchscheme"])
@pytest.mark.parametrize("call", [tl.open, lambda url: tl.build(url, "memory://ftp/s", **BUILT)])
def test_a_scheme_that_cannot_be_used_is_refused_with_those_that_can(scheme, call):
    fsspec.register_implementation("fussy", Fussy, clobber=True)
    with pytest.raises(tl.ConfigError, match=rf"url: found the scheme '{scheme}'") as got:
        call(f"{scheme}://host/x")
    assert leaks(told(got.value), secrets=[TOKEN]) == []
    assert got.value.__context__ is None


def test_the_token_of_the_hub_is_in_nothing_that_is_made_or_said(
    hub, local, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    with tiny(min_cached_packing_documents=0):
        store = tl.open(f"{TOP}/toy", disk_cache=tmp_path / "pieces", cache_bytes=1 << 16)
        assert hub.token == TOKEN
        run = store.pack(16).shuffle().seed(3)
        with tl.Loader(run, 4) as loader:
            next(loader)
            state = loader.state_dict()
        shown = [store, run, state, run.describe(), run.fingerprint]
        shown += [store.check()]
        pickles = [pickle.dumps(one) for one in (store, run, copy.deepcopy(store))]
        bare = tl.open(f"{TOP}/toy", cache_bytes=0)
        Hub.denies = True
        for call in (lambda: tl.open(f"{TOP}/toy"), lambda: bare.document(1)):
            with pytest.raises(tl.TokenloomError, match=TOP) as caught:
                call()
            shown.append(told(caught.value))
            assert caught.value.__context__ is None
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {"plans", "pieces"} <= {path.relative_to(tmp_path).parts[0] for path in kept}
        raw = [path.read_bytes() for path in kept]
        assert leaks(*shown, *pickles, *raw, caplog.text, secrets=[TOKEN]) == []
        with pytest.raises(PermissionError) as caught:
            hub.info("datasets/user/toy")
        assert leaks(told(caught.value), secrets=[TOKEN]) == [TOKEN]  # the control: it was there


# -- what changes while it is read, or comes short -------------------------------------------


class Tagged:
    """What is done to a hub that says a tag and a time of every object.

    Attributes:
        before: number of an answer with tokens or lines, from 1 → what to do before it is sent.
        short: numbers of answers of which the last byte is lost.
        asked: how many there were.
        tags: whether tags and times are said.
        when: the time of every object, as this hub says it.
    """

    def __init__(self):
        self.before, self.short, self.asked, self.tags = {}, set(), 0, True
        self.when = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)

    def info(self, hub, path, **more):
        hub._ask()
        found = dict(MemoryFileSystem.info(hub, path, **more))
        if self.tags and found["type"] == "file":
            data = hub.store[hub._strip_protocol(path)].getvalue()
            found |= {"ETag": hashlib.sha256(data).hexdigest(), "LastModified": self.when}
        return found

    def cat_file(self, hub, path, start=None, end=None, **more):
        if PAYLOAD not in path and ".jsonl" not in path:
            return MemoryFileSystem.cat_file(hub, path, start=start, end=end, **more)
        self.asked += 1
        self.before.get(self.asked, lambda: None)()
        found = MemoryFileSystem.cat_file(hub, path, start=start, end=end, **more)
        return found[:-1] if self.asked in self.short else found


@pytest.fixture
def tagged(hub, local, monkeypatch):
    """Every hub, those that are open already included, does what this says."""
    made = Tagged()
    monkeypatch.setattr(Hub, "info", lambda hub, *given, **more: made.info(hub, *given, **more))
    monkeypatch.setattr(
        Hub, "cat_file", lambda hub, *given, **more: made.cat_file(hub, *given, **more)
    )
    return made


def damaged(hub, name="toy/shard-00000/" + PAYLOAD):
    """Puts an object of the same size in the place of one."""
    path = f"datasets/user/{name}"
    data = bytearray(hub.store[hub._strip_protocol(path)].getvalue())
    data[-1] ^= 1
    hub.pipe_file(path, bytes(data))


@pytest.mark.parametrize("when", [0.0, 1.7e9, Tagged().when, "yesterday", None])
def test_objects_are_read_whatever_their_times_look_like(tagged, local, when):
    tagged.when = when
    store = tl.open(f"{TOP}/toy")
    assert [one.tolist() for one in store.documents(range(9))] == [
        one.tolist() for one in local.documents(range(9))
    ]


def test_an_object_that_is_replaced_while_the_store_is_open_is_not_read_on(hub, tagged, local):
    store = tl.open(f"{TOP}/toy", cache_bytes=0)
    assert np.array_equal(store.document(1), local.document(1))
    damaged(hub)
    with pytest.raises(tl.StoreError, match=PAYLOAD):
        store.document(1)


def test_an_object_that_is_replaced_between_two_reads_of_a_request_is_not_believed(
    hub, tagged, local, monkeypatch
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_IN_FLIGHT", "1")
    store = tl.open(f"{TOP}/toy", cache_bytes=0, verify="never")
    tagged.before = {2: lambda: damaged(hub)}
    with pytest.raises(tl.StoreCorrupt, match=PAYLOAD):
        store.documents([0, 2, 4, 6])
    assert tagged.asked > 2


def test_bytes_that_come_short_are_asked_for_again(tagged, local):
    store = tl.open(f"{TOP}/toy", cache_bytes=0)
    tagged.short = {1}
    assert np.array_equal(store.document(1), local.document(1))
    assert tagged.asked == 2
    assert store.reads.retries == 1


@pytest.mark.parametrize("tags", [True, False])
def test_an_input_that_grows_while_it_is_read_is_refused_by_its_name(hub, tagged, tmp_path, tags):
    tagged.tags = tags
    line = json.dumps({"text": "some words"}).encode() + b"\n"
    name = "datasets/user/corpus/a.jsonl"
    hub.pipe_file(name, line * 40)
    tagged.before = {1: lambda: hub.pipe_file(name, line * 41)}
    with pytest.raises(tl.TokenloomError, match=r"a\.jsonl"):
        tl.build(f"{TOP}/corpus/a.jsonl", tmp_path / "s", **BUILT)


def test_an_error_with_a_long_or_endless_history_is_told_once(hub, local, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.3")
    first = last = ValueError("odd words")
    for _ in range(20):
        last.__cause__ = ValueError(f"more odd words, and {TOKEN}")
        last = last.__cause__
    last.__cause__ = first
    Hub.fails = first
    with pytest.raises(tl.StoreError, match=TOP) as caught:
        tl.open(f"{TOP}/toy")
    assert leaks(told(caught.value), secrets=[TOKEN]) == []
