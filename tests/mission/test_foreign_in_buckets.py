"""Files of other formats in a bucket or on a web server are the store that they are on a disk."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from everyformat import EVERY, FOLDERS, NAMED, arrow
from foreignfiles import some_documents, write_llm_c

import tokenloom as tl
from tokenloom.exchange import export
from tokenloom.testing import write_store

pytest.importorskip("obstore")


def documents(store, column=None):
    return [one.tolist() for one in store.documents(range(len(store)), column)]


@pytest.fixture
def both(tmp_path, bucket):
    """Writes the files of a format here and in a bucket: path, URL, options of `tl.open`, ids."""

    def make(name):
        folder = tmp_path / "files"
        folder.mkdir()
        path, said, expected = EVERY[name](folder, some_documents(count=40))
        return path, bucket.upload(folder, path), {"vocab_size": 1000, **said}, expected

    return make


def assert_same(there, here):
    assert there.digest == here.digest
    assert there.columns == here.columns
    for column in there.columns:
        assert documents(there, column) == documents(here, column)
    assert there.metadata(3) == here.metadata(3)
    runs = [one.windows(16, tail="keep").shuffle().seed(2) for one in (here, there)]
    assert runs[0].fingerprint == runs[1].fingerprint
    assert runs[0].digest(0, len(runs[0])) == runs[1].digest(0, len(runs[1]))
    assert there.check(progress=False).problems == ()
    assert pickle.loads(pickle.dumps(there)).digest == here.digest


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_format_in_a_bucket_is_the_store_that_it_is_here(both, name):
    path, url, said, expected = both(name)
    there = tl.open(url, **said)
    assert documents(there) == expected
    assert_same(there, tl.open(path, **said))


def web_address(bucket, url, name):
    """What to name on a server without listings."""
    alone = {"datatrove": "/00000_unshuffled.ds", "llm.c": "/fineweb_train_000000.bin"}
    inside = f"/{NAMED[name]}" if name in NAMED else alone.get(name, "")
    return url.replace(bucket.url, bucket.web) + inside


@pytest.mark.parametrize("name", sorted(EVERY.keys() - FOLDERS))
def test_a_file_or_the_one_that_names_the_others_opens_without_listings(both, bucket, name):
    path, url, said, expected = both(name)
    bucket.server.clear()
    there = tl.open(web_address(bucket, url, name), **said)
    assert documents(there) == expected
    assert_same(there, tl.open(path, **said))
    assert {one["method"] for one in bucket.server.log()} == {"HEAD", "GET"}


@pytest.mark.parametrize("name", sorted(FOLDERS | NAMED.keys()))
def test_a_folder_that_cannot_be_listed_is_refused(both, bucket, name):
    _, url, said, _ = both(name)
    folder = url.replace(bucket.url, bucket.web)
    with pytest.raises(tl.StoreError, match=re.escape(f"{folder}: ")):
        tl.open(folder, **said)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_the_file_that_names_the_others_may_be_named(tmp_path, name):
    path, said, expected = EVERY[name](tmp_path, some_documents(count=40))
    store = tl.open(path / NAMED[name], **said)
    assert documents(store) == expected
    assert store.digest == tl.open(path, **said).digest


@pytest.mark.parametrize("name", ["levanter", "levanter, three shards"])
def test_a_cache_of_levanter_needs_a_listing(both, bucket, name):
    _, url, said, _ = both(name)
    with pytest.raises(tl.StoreError, match="shard_ledger"):
        tl.open(f"{web_address(bucket, url, name)}/shard_ledger.json", **said)


@pytest.mark.parametrize("name", ["megatron uint16", "flat uint64", "parquet, two files"])
def test_copies_descriptions_and_run_files_name_the_url(both, tmp_path, name):
    path, url, said, _ = both(name)
    run = tl.open(url, **said).windows(16, tail="keep").shuffle()
    tl.save(run, tmp_path / "run.yaml")
    copies = pickle.loads(pickle.dumps(run)), tl.from_config(run.describe())
    for other in (*copies, tl.load(tmp_path / "run.yaml")):
        assert other.fingerprint == run.fingerprint
        assert np.array_equal(other.batch(range(5)).tokens, run.batch(range(5)).tokens)
        assert str(other.describe()["store"]["path"]).startswith("s3://bucket/")
    assert tl.from_config(run.describe(), path=str(path)).fingerprint == run.fingerprint


def test_a_run_continues_over_the_files_here_and_over_a_converted_copy(both, tmp_path, cli):
    path, url, said, _ = both("llm.c, four shards of uint32")
    cli("convert", url, tmp_path / "own", "--bos", 999, "--quiet")
    stores = tl.open(url, **said), tl.open(path, **said), tl.open(tmp_path / "own")
    runs = [one.windows(16).shuffle() for one in stores]
    with tl.Loader(runs[0], 4) as loader:
        [next(loader) for _ in range(3)]
        state = loader.state_dict()
    rest = []
    for run in runs:
        with tl.Loader(run, 4) as loader:
            loader.load_state_dict(state)
            rest.append([batch.tokens.tolist() for batch in loader])
    assert len(rest[0]) > 3
    assert rest[0] == rest[1] == rest[2]


def test_an_object_that_is_cut_short_replaced_or_removed_is_named(both, bucket):
    _, url, said, _ = both("megatron uint16")
    data = bucket.get("corpus.bin")
    bucket.put("corpus.bin", data[:-2])
    with pytest.raises(tl.StoreCorrupt, match=r"s3://.*\.(bin|idx): "):
        tl.open(url, **said)
    bucket.put("corpus.bin", data)
    store = tl.open(url, cache_bytes=0, **said)
    bucket.put("corpus.bin", data[:-2])
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin: "):
        store.documents(range(len(store)))
    bucket.delete("corpus.bin")
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin"):
        tl.open(url, **said)


def test_a_missing_index_and_an_empty_bucket_are_named(both, bucket):
    _, url, said, _ = both("megatron uint16")
    bucket.delete("corpus.idx")
    with pytest.raises(tl.ConfigError, match=r"s3://.*corpus\.bin: "):
        tl.open(url, **said)  # it could be an array, which is not guessed
    with pytest.raises(tl.StoreNotFound, match="s3://bucket/nothing"):
        tl.open("s3://bucket/nothing")
    with pytest.raises(tl.ConfigError, match="'megatron'"):
        tl.open(url, format="megatron")


def test_a_stream_of_arrow_whose_lengths_lie_is_refused(tmp_path, bucket):
    arrow(pa.ipc.new_stream)(tmp_path, some_documents())
    clean = (tmp_path / "a.arrow").read_bytes()
    rng = np.random.Generator(np.random.PCG64(3))
    spoiled = [clean[:-9], clean[: len(clean) // 2], clean[:3], b"\xff" * 64, b"\xff\xff\xff\xff"]
    flipped = rng.integers(0, min(600, len(clean)), 20).tolist()
    spoiled += [clean[:at] + bytes([clean[at] ^ 0xFF]) + clean[at + 1 :] for at in flipped]
    refused = 0
    for raw in spoiled:
        bucket.put("a.arrow", raw)
        try:  # what only changes a name of the schema may be read
            assert tl.open(f"{bucket.url}/a.arrow").num_tokens
        except (tl.StoreError, tl.ConfigError):
            refused += 1
    assert refused > 12


def test_a_tokenloom_store_in_a_bucket_takes_no_hints_of_other_formats(tmp_path, bucket):
    write_store(tmp_path / "own", [[[1, 2], [3]]])
    url = bucket.upload(tmp_path / "own")
    assert tl.open(url).digest == tl.open(tmp_path / "own").digest
    with pytest.raises(tl.ConfigError, match="eos"):
        tl.open(url, eos=3)


def test_a_build_in_a_bucket_that_has_not_finished_is_no_other_format(tmp_path, bucket):
    write_store(tmp_path / "own", [[[1, 2], [3]]])
    for manifest in (tmp_path / "own").glob("manifest-*"):
        manifest.unlink()
    with pytest.raises(tl.StoreNotFound, match=re.escape(bucket.url)):
        tl.open(bucket.upload(tmp_path / "own"))


# -- seals and the disk cache ------------------------------------------------------------------


def words(said):
    return [f"--{name.replace('_', '-')}={value}" for name, value in said.items()]


@pytest.mark.parametrize("name", ["megatron int32", "flat uint64", "levanter"])
def test_a_seal_beside_the_files_in_a_bucket_is_written_once_and_read(both, name, cli):
    path, url, said, expected = both(name)
    command = ["seal", url, *words(said), "--quiet"]
    made = json.loads(cli(*command, "--json"))
    assert made["seal"].startswith(url.rpartition("/")[0])
    assert made["bytes"] > 0
    sealed = tl.open(url, cache_bytes=1 << 20, **said)
    assert sealed.digest == tl.open(path, **said).digest
    assert documents(sealed) == expected
    for one in (sealed, pickle.loads(pickle.dumps(sealed))):
        assert one.verify(progress=False).unguarded == ()
    assert made["seal"] in cli(*command, code=1)  # never replaced: somebody may be reading it


def test_a_seal_of_the_files_here_is_one_of_those_in_a_bucket(both, bucket, tmp_path, cli):
    path, url, said, expected = both("megatron uint16")
    web = url.replace(bucket.url, bucket.web)
    for number, place in enumerate((path, url, web)):
        cli("seal", place, *words(said), "--to", tmp_path / f"{number}.seal", "--quiet")
    seals = {(tmp_path / f"{number}.seal").read_bytes() for number in range(3)}
    assert len(seals) == 1
    assert "--to" in cli("seal", web, *words(said), "--quiet", code=1)  # it cannot write
    for place in (url, web):
        sealed = tl.open(place, seal=str(tmp_path / "0.seal"), cache_bytes=0, **said)
        assert documents(sealed) == expected
        assert sealed.check(progress=False).unguarded == ()
    data = bytearray(bucket.get("corpus.bin"))
    data[7] ^= 1
    bucket.put("corpus.bin", bytes(data))
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin"):
        documents(sealed)


def test_the_disk_cache_keeps_sealed_files_and_no_others(both, tmp_path, monkeypatch, caplog, cli):
    caplog.set_level("INFO")
    _, url, said, expected = both("megatron uint16")
    pieces = tmp_path / "pieces"
    with pytest.raises(tl.ConfigError, match="disk_cache"):
        tl.open(url, disk_cache=pieces, **said)
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE", str(pieces))
    tl.open(url, **said)
    assert "disk cache" in caplog.text
    monkeypatch.delenv("TOKENLOOM_DISK_CACHE")
    shutil.rmtree(pieces, ignore_errors=True)
    cli("seal", url, *words(said), "--quiet")
    for first in (True, False):
        store = tl.open(url, disk_cache=pieces, cache_bytes=0, **said)
        assert documents(store) == expected
        assert (store.reads.requests > 0) == first
        assert (store.reads.cached_bytes > 0) == (not first)
        again = pickle.loads(pickle.dumps(store))
        assert again.document(1).tolist() == expected[1]
        assert again.reads.requests == 0
        assert store.verify(progress=False).ok
    assert store.reads.requests > 0  # to verify is to look at the bucket


# -- incomplete sets -----------------------------------------------------------------------------


def test_exported_arrays_without_one_of_their_files_are_refused(tmp_path, bucket):
    write_store(tmp_path / "own", [[[5, 6, 7], [8, 9]]])
    export(tl.open(tmp_path / "own"), tmp_path / "out", to="npy")
    os.remove(tmp_path / "out/input_ids.npy")
    url = bucket.upload(tmp_path / "out")
    for path in (url, f"{url}/document_ends.npy", f"{bucket.web}/document_ends.npy"):
        with pytest.raises(tl.StoreCorrupt, match=r"input_ids\.npy"):
            tl.open(path)


def test_a_sealed_set_without_its_first_file_is_refused(tmp_path, bucket, cli):
    for number in range(2):
        write_llm_c(tmp_path / f"a_{number}.bin", [9, 1, 2])
    cli("seal", tmp_path, "--bos=9")
    (tmp_path / "a_0.bin").unlink()
    bucket.upload(tmp_path)
    for url in (bucket.url, f"{bucket.url}/a"):
        with pytest.raises(tl.StoreCorrupt, match=r"a_0\.bin"):
            tl.open(url, bos=9)


# -- servers that change -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [{"etag_after": 1}, {"etag_after": 1, "ignore_conditions": True}])
def test_a_file_that_changes_while_it_is_open_is_corrupt(both, bucket, fault):
    _, url, said, _ = both("megatron uint16")
    store = tl.open(url.replace(bucket.url, bucket.web), cache_bytes=0, **said)
    bucket.server.set(**fault)
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin"):
        [store.document(number) for number in range(5)]
    bucket.server.set()


def test_one_of_several_files_opens_by_its_name(both, bucket):
    path, url, said, _ = both("llm.c, four shards of uint32")
    name = "fineweb_train_000001.bin"
    there = tl.open(f"{url.replace(bucket.url, bucket.web)}/{name}", **said)
    assert there.digest == tl.open(f"{path}/{name}", **said).digest


def test_a_server_that_gives_whole_files_only_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    write_llm_c(tmp_path / "a.bin", np.arange(5000))
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "-d", str(tmp_path)], text=True, **pipes) as server:
        port = server.stdout.readline().split(" port ")[1].split()[0]
        try:
            with pytest.raises(tl.StoreError, match=r"a\.bin"):
                tl.open(f"http://127.0.0.1:{port}/a.bin", bos=999)
        finally:
            server.kill()
