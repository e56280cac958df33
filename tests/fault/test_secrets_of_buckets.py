"""No credential leaves the environment: everything that reading makes is searched for them."""

import contextlib
import copy
import json
import logging
import pickle

import pytest
import servers
from buckets import delete, objects, put, upload
from leaking import leaks, told
from toyruns import toy_store

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import write_state
from tokenloom.testing import tiny

LINES = "".join(json.dumps({"text": f"record {i}"}) + "\n" for i in range(500)).encode()

SETTINGS = {"tokenizer": "bytes", "shard_tokens": 2000, "block_bytes": 1000}


@pytest.fixture
def url(ranges, place, tmp_path):
    upload(toy_store(tmp_path / "local", rows=60).path, place)
    return place


def test_control_a_leak_is_found():
    assert leaks("x", f"key={servers.SECRET_KEY}") == [servers.SECRET_KEY]
    assert leaks(pickle.dumps({"k": servers.SESSION_TOKEN})) == [servers.SESSION_TOKEN]
    assert leaks("nothing") == []


def test_reading_writes_no_credential_anywhere(url, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    with tiny(min_cached_packing_documents=0):
        store = tl.open(url, disk_cache=tmp_path / "pieces", cache_bytes=1 << 16)
        run = store.pack(16).block_shuffle(window_blocks=2).seed(3)
        with tl.Loader(run, 4) as loader:
            batch = next(loader)
            state, stats = loader.state_dict(), loader.stats
        shown = [store, run, stats, store.reads, store.path, store.check()]
        shown += [
            store._repr_html_(),
            run.describe(),
            run.fingerprint,
            state,
            batch.state(),
            repr(run),
        ]
        pickles = [pickle.dumps(one) for one in (store, run, store.split({"a": 1.0})["a"])]
        assert pickle.dumps(copy.deepcopy(store))
        assert leaks(*shown, *pickles, json.dumps(run.describe()), caplog.text) == []
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any("pieces" in str(path) for path in files)
        assert any("plans" in str(path) for path in files)
        assert leaks(*(path.read_bytes() for path in files), *files) == []


@pytest.mark.parametrize(
    "fault",
    [{"slow_down": 1}, {"expire_after": 1}, {"etag_after": 1}, {"torn": 1}, {"short": 1}, {}],
    ids=lambda one: next(iter(one), "404"),
)
def test_errors_hold_no_credential(ranges, url, fault, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.3")
    store = tl.open(url, cache_bytes=0)
    store.documents(range(store.num_documents))
    ranges.set(**fault)
    if not fault:
        for name in objects(url):
            delete(f"{url}/{name}")
    with pytest.raises(tl.TokenloomError) as caught:
        store.documents(range(store.num_documents))
    assert leaks(told(caught.value), caplog.text) == []
    assert str(caught.value).startswith(url)


def test_settings_that_are_not_valid_are_not_repeated(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.setenv(name, servers.SECRET_KEY)
    for url in ("az://container/x", "gs://bucket/x"):
        with pytest.raises(tl.TokenloomError) as caught:
            tl.open(url)
        assert leaks(told(caught.value)) == []


# -- writing ----
@pytest.fixture
def heard(caplog, capfd):
    """Gives all that was logged and printed so far."""
    caplog.set_level(logging.DEBUG)

    def collect():
        printed = capfd.readouterr()
        return [caplog.text, printed.out, printed.err]

    return collect


@pytest.fixture
def corpus(ranges, place):
    put(f"{place}/in/a.jsonl", LINES)
    return place


def test_a_build_writes_no_credential_anywhere(corpus, heard):
    out = f"{corpus}/store"
    store = tl.build(f"{corpus}/in/*.jsonl", out, workers=2, **SETTINGS)
    tl.build([{"text": "more"}], out, append=True, **SETTINGS)
    run = store.windows(8).shuffle().seed(3)
    state = tl.Loader(run, batch_size=2).state_dict()
    write_state(state, f"{corpus}/states")
    tl.save(run, f"{corpus}/run.yaml")
    for command in (["info", out], ["verify", out], ["gc", out, "--old-snapshots"]):
        assert main(command) == 0
    assert leaks(*heard()) == []
    assert leaks(*objects(corpus).values(), *objects(corpus)) == []
    travelled = [pickle.dumps(one) for one in (store, run, state)]
    assert leaks(*travelled, run.describe(), run.fingerprint, repr(store), repr(run)) == []


@pytest.mark.parametrize(
    ("fault", "deadline"),
    [
        ({"expire_after": 1}, "5"),
        ({"expire_after": 30}, "5"),
        ({"slow_down": 1}, "0.4"),
        ({"torn": 1}, "0.4"),
        ({"ignore_conditions": True}, "5"),
        ({"etag_after": 4, "only": "a.jsonl"}, "5"),
    ],
)
def test_no_error_of_a_build_repeats_a_credential(
    corpus, heard, ranges, monkeypatch, fault, deadline
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", deadline)
    ranges.set(**fault)
    with pytest.raises(tl.TokenloomError) as raised:
        tl.build(f"{corpus}/in", f"{corpus}/store", **SETTINGS)
    assert "s3://bucket" in str(raised.value)
    assert leaks(told(raised.value), *heard()) == []


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{servers.ACCESS_KEY}:{servers.SECRET_KEY}@bucket/x",
        f"https://example.org/x?X-Amz-Signature={servers.SECRET_KEY}",
        f"az://container/x?sig={servers.SECRET_KEY}",
    ],
)
def test_a_url_that_carries_a_secret_is_refused_everywhere_and_not_repeated(url, heard, tmp_path):
    calls = [
        lambda: tl.build([{"text": "a"}], url, tokenizer="bytes"),
        lambda: tl.build(url + ".jsonl", tmp_path / "s", tokenizer="bytes"),
        lambda: tl.open(url),
        lambda: tl.load(url),
        lambda: write_state({"examples": 1}, url),
    ]
    for call in calls:
        with pytest.raises(tl.TokenloomError) as raised:
            call()
        assert leaks(str(raised.value)) == []
    for command in ("gc", "verify", "info"):
        with contextlib.suppress(tl.TokenloomError):
            assert main([command, url]) != 0
    assert leaks(*heard()) == []
