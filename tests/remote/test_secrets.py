"""No credential leaves the environment: everything that reading makes is searched for them."""

import copy
import json
import logging
import pickle

import pytest
import servers
from leaking import leaks, told
from test_read_stores import upload
from toyruns import toy_store

import tokenloom as tl
from tokenloom.arguments import Url, place
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.remote.client import Client, ClientSettings, client_of
from tokenloom.testing import tiny


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
        shown = [store, run, stats, store.reads, store.path, store.check(), store.reader.source]
        shown += [client_of(place("url", url)), vars(client_of(place("url", url)))]
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
        for one in client_of(place("url", url)).list(place("url", url).key):
            client_of(place("url", url)).delete(one.key)
    with pytest.raises(TokenloomError) as caught:
        store.documents(range(store.num_documents))
    assert leaks(told(caught.value), caplog.text) == []
    assert str(caught.value).startswith(url)


def test_a_server_that_repeats_credentials_in_its_errors_leaks_nothing():
    class Babbling:
        lists = True

        def get(self, *asked):
            raise OSError(
                f"status code: 403 Authorization: Credential={servers.ACCESS_KEY} "
                f"{servers.SECRET_KEY} X-Amz-Security-Token={servers.SESSION_TOKEN}"
            )

        head = list = names = put = delete = get

    client = Client(Url("s3", "bucket"), ClientSettings(deadline=0.1), Babbling())
    calls = [
        lambda: client.get("x"),
        lambda: client.head("x"),
        lambda: client.list("x"),
        lambda: client.names("x"),
        lambda: client.put("x", b""),
        lambda: client.put_new("x", b""),
        lambda: client.delete("x"),
    ]
    for call in calls:
        with pytest.raises(TokenloomError) as caught:
            call()
        assert leaks(told(caught.value)) == []
        assert caught.value.__context__ is None


def test_settings_that_are_not_valid_are_not_repeated(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.setenv(name, servers.SECRET_KEY)
    for url in ("az://container/x", "gs://bucket/x"):
        with pytest.raises(TokenloomError) as caught:
            tl.open(url)
        assert leaks(told(caught.value)) == []


@pytest.mark.parametrize(
    "function", [tl.open, lambda text: tl.open("memory:///x", disk_cache=text)]
)
def test_a_url_with_a_secret_is_refused_without_it(function):
    text = f"s3://{servers.ACCESS_KEY}:{servers.SECRET_KEY}@bucket/x"
    with pytest.raises(ConfigError) as caught:
        function(text)
    assert leaks(told(caught.value).replace("test_secrets.py", "")) == []
