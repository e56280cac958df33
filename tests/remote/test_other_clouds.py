"""Azure by azurite, Google by the store in memory: the same promises, seen once."""

import pytest
import servers
from buckets import files, objects

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import latest_state, write_state

ROWS = [{"text": f"document {i}"} for i in range(20)]

SETTINGS = {"tokenizer": "bytes", "shard_tokens": 100, "inner": 64, "chunk_tokens": 64}


def live(url, tmp_path):
    """What a store goes through in its life, at a URL and on a disk, with the same bytes."""
    store = tl.build(ROWS, url, **SETTINGS)
    assert store.digest == tl.build(ROWS, tmp_path / "s", **SETTINGS).digest
    assert objects(url) == files(tmp_path / "s")
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
def test_azure_lives_as_a_bucket(tmp_path, monkeypatch):
    with servers.azurite(tmp_path / "azurite") as server:
        servers.make_container(server, "container")
        for name, value in servers.azure_environment(server).items():
            monkeypatch.setenv(name, value)
        live("az://container/toy", tmp_path)


def test_google_lives_as_a_bucket(ranges, monkeypatch, tmp_path):
    """Our own server speaks Google's interface, which is that of S3 but for conditions."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", ranges.endpoint)
    live("gs://bucket/toy", tmp_path)
