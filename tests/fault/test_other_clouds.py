"""Azure by azurite, Google by the store in memory: the same promises, seen once."""

import base64
import logging
import pickle

import pytest
import servers
from buckets import files, objects
from leaking import leaks, told

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import latest_state, write_state

ROWS = [{"text": f"document {i}"} for i in range(20)]

# a key that is well formed, and of nobody
WRONG = base64.b64encode(
    b"planted key of an account that nobody has; of 64 bytes as others"
).decode()

SETTINGS = {"tokenizer": "bytes", "shard_tokens": 100, "inner": 64, "chunk_tokens": 64}


def live(url, tmp_path):
    """What a store goes through in its life, at a URL and on a disk, with the same bytes."""
    store = tl.build(ROWS, url, **SETTINGS)
    assert store.digest == tl.build(ROWS, tmp_path / "s", **SETTINGS).digest
    if listed := {"s3": url, "az": url, "gs": url.replace("gs:", "s3:")}.get(url[:2]):
        assert objects(listed) == files(tmp_path / "s")
    more = [{"text": "one more"}]
    grown = tl.build(more, url, append=True, **SETTINGS)
    assert (grown.num_documents, grown.check().ok) == (21, True)
    with pytest.raises(tl.StoreExists):
        tl.build([{"text": "other"}], url, **SETTINGS)
    loader = tl.Loader(grown.windows(4).shuffle(), batch_size=2)
    expected = tl.Loader(
        tl.build(more, tmp_path / "s", append=True, **SETTINGS).windows(4).shuffle(), batch_size=2
    )
    assert next(loader).tokens.tolist() == next(expected).tokens.tolist()
    write_state(loader.state_dict(), f"{url}-states")
    assert latest_state(f"{url}-states")["examples"] == 2
    assert main(["gc", url, "--old-snapshots"]) == 0
    assert tl.open(url).digest == grown.digest


@pytest.mark.parametrize("url", ["memory://clouds/toy", "memory://a-whole-bucket"])
def test_the_store_in_memory_lives_as_a_bucket(tmp_path, url):
    live(url, tmp_path)


@pytest.mark.slow
def test_azure_lives_as_a_bucket(tmp_path, monkeypatch, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    with servers.azurite(tmp_path / "azurite") as server:
        servers.make_container(server, "container")
        for name, value in servers.azure_environment(server).items():
            monkeypatch.setenv(name, value)
        live("az://container/toy", tmp_path)
        store = tl.open("az://container/toy", disk_cache=tmp_path / "pieces")
        run = store.pack(16).shuffle()
        with tl.Loader(run, 2) as loader:
            next(loader)
            shown = [loader.state_dict(), loader.stats]
        shown += [store, run, run.describe(), run.fingerprint, store.check(), caplog.text]
        shown += [pickle.dumps(store), pickle.dumps(run), *objects("az://container").values()]
        for path in tmp_path.rglob("*"):
            if path.is_file() and tmp_path / "azurite" not in path.parents:
                shown.append(path.read_bytes())
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", WRONG)
        with pytest.raises(tl.StoreError, match="credentials") as caught:
            tl.open("az://container/toy")
        shown += [told(caught.value), *capsys.readouterr()]
    assert leaks(*shown, secrets=[servers.AZURE_KEY, WRONG]) == []


def test_google_lives_as_a_bucket(ranges, monkeypatch, tmp_path):
    """Our own server speaks Google's interface, which is that of S3 but for conditions."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", ranges.endpoint)
    live("gs://bucket/toy", tmp_path)
