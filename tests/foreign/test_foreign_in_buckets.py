"""Foreign files in a bucket are the store that they are on this machine."""

import json
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest
from everyformat import EVERY, arrow
from exports import plain_store
from foreignfiles import WRITERS, some_documents, write_llm_c
from inbuckets import uploaded

import tokenloom as tl
from tokenloom.arguments import place
from tokenloom.cli import main
from tokenloom.exchange import export
from tokenloom.foreign.locations import BucketFolder
from tokenloom.foreign.opened import is_ours
from tokenloom.remote.client import client_of


@pytest.fixture
def both(tmp_path):
    """Opens the files of a format, here and in a bucket."""

    def make(name, **more):
        folder = tmp_path / "files"
        folder.mkdir()
        path, said, expected = EVERY[name](folder, some_documents(count=40))
        url = uploaded(folder, path)
        said = {"vocab_size": 1000, **said}
        return tl.open(path, **said), tl.open(url, **said, **more), expected

    return make


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_format_in_a_bucket_is_the_store_that_it_is_here(both, name):
    here, there, expected = both(name)
    assert isinstance(there.reader.inside.described.folder, BucketFolder)
    assert there.digest == here.digest
    assert [one.tolist() for one in there.documents(range(len(there)))] == expected
    assert there.columns == here.columns
    for column in there.columns:
        for one, other in zip(
            there.documents(range(9), column), here.documents(range(9), column), strict=True
        ):
            assert np.array_equal(one, other)
    assert there.metadata(3) == here.metadata(3)
    runs = [one.windows(16, tail="keep").shuffle().seed(2) for one in (here, there)]
    assert runs[0].fingerprint == runs[1].fingerprint
    assert runs[0].digest(0, len(runs[0])) == runs[1].digest(0, len(runs[1]))
    assert there.check(progress=False).problems == ()


@pytest.mark.parametrize("name", ["megatron uint16", "flat uint64", "parquet, two files"])
def test_copies_descriptions_and_run_files_name_the_url(both, tmp_path, name):
    here, there, _ = both(name)
    run = there.windows(16, tail="keep").shuffle()
    tl.save(run, tmp_path / "run.yaml")
    copies = pickle.loads(pickle.dumps(run)), tl.from_config(run.describe())
    for other in (*copies, tl.load(tmp_path / "run.yaml")):
        assert other.fingerprint == run.fingerprint
        assert np.array_equal(other.batch(range(5)).tokens, run.batch(range(5)).tokens)
        assert str(other.describe()["store"]["path"]).startswith("memory://others/")
    again = pickle.loads(pickle.dumps(there))
    assert again.digest == here.digest
    moved = tl.from_config(run.describe(), path=str(here.path))
    assert moved.fingerprint == run.fingerprint


def test_a_run_continues_over_the_files_here_and_over_a_converted_copy(both, tmp_path):
    here, there, _ = both("llm.c, four shards of uint32")
    assert main(["convert", str(there.path), str(tmp_path / "own"), "--bos", "999", "--quiet"]) == 0
    runs = [one.windows(16).shuffle() for one in (there, here, tl.open(tmp_path / "own"))]
    with tl.Loader(runs[0], 4) as loader:
        [next(loader) for _ in range(3)]
        state = loader.state_dict()
    rest = []
    for run in runs:
        with tl.Loader(run, 4) as loader:
            loader.load_state_dict(state)
            rest.append([batch.tokens for batch in loader])
    assert len(rest[0]) > 3
    assert all(map(np.array_equal, rest[0], rest[1]))
    assert all(map(np.array_equal, rest[0], rest[2]))


def test_an_object_that_was_cut_short_is_named(tmp_path):
    path, said, _ = WRITERS["megatron uint16"](tmp_path, some_documents())
    url = uploaded(tmp_path, path)
    where = place("url", f"{url}.bin")
    data = bytes(client_of(where).get(where.key).data)
    client_of(where).put(where.key, data[:-2])
    with pytest.raises(tl.StoreCorrupt, match=r"memory://.*\.(bin|idx): "):
        tl.open(url, **said)
    client_of(where).put(where.key, data)
    store = tl.open(url, cache_bytes=0, **said)
    client_of(where).put(where.key, data[:-2])
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin: .*it was uploaded again or replaced"):
        store.documents(range(len(store)))
    client_of(where).delete(where.key)
    with pytest.raises(tl.StoreCorrupt, match=r"there is no corpus\.bin beside it"):
        tl.open(url, **said)


def test_a_missing_index_and_an_empty_bucket_are_named(tmp_path):
    path, said, _ = WRITERS["megatron uint16"](tmp_path, some_documents())
    (tmp_path / "corpus.idx").unlink()
    url = uploaded(tmp_path, path)
    with pytest.raises(tl.ConfigError, match=r"memory://.*corpus\.bin: it has no header"):
        tl.open(url, **said)  # it could be an array, which is not guessed
    with pytest.raises(tl.StoreNotFound, match="memory://others/nothing"):
        tl.open("memory://others/nothing")
    with pytest.raises(tl.ConfigError, match=r"found no files of format 'megatron'"):
        tl.open(url, format="megatron")


def test_a_stream_of_arrow_whose_lengths_lie_is_refused(tmp_path):
    arrow(pa.ipc.new_stream)(tmp_path, some_documents())
    clean = (tmp_path / "a.arrow").read_bytes()
    rng = np.random.Generator(np.random.PCG64(3))
    spoiled = [clean[:-9], clean[: len(clean) // 2], clean[:3], b"\xff" * 64, b"\xff\xff\xff\xff"]
    flipped = rng.integers(0, min(600, len(clean)), 40).tolist()
    spoiled += [clean[:at] + bytes([clean[at] ^ 0xFF]) + clean[at + 1 :] for at in flipped]
    right = tl.open(tmp_path / "a.arrow").digest
    refused = 0
    for raw in spoiled:
        (tmp_path / "a.arrow").write_bytes(raw)
        try:  # what only changes a name of the schema may be read
            assert tl.open(uploaded(tmp_path, tmp_path / "a.arrow")).digest != "" != right
        except (tl.StoreError, tl.ConfigError):
            refused += 1
    assert refused > 20


# -- ours or theirs --------------------------------------------------------------------------


def test_a_store_of_ours_in_a_bucket_is_still_ours(tmp_path):
    plain_store(tmp_path / "own")
    url = uploaded(tmp_path / "own", tmp_path / "own")
    assert is_ours(url)
    assert tl.open(url).digest == tl.open(tmp_path / "own").digest
    with pytest.raises(tl.ConfigError, match="a store of ours, which says it itself"):
        tl.open(url, eos=3)
    folder = tmp_path / "files"
    folder.mkdir()
    path, _, _ = WRITERS["datatrove"](folder, some_documents())
    assert not is_ours(uploaded(folder, path))


def test_a_build_in_a_bucket_that_has_not_finished_is_told_as_such(tmp_path):
    plain_store(tmp_path / "own")
    for manifest in (tmp_path / "own").glob("manifest-*"):
        manifest.unlink()
    with pytest.raises(tl.StoreNotFound, match=r"not finished|no manifest|[Bb]uild"):
        tl.open(uploaded(tmp_path / "own", tmp_path / "own"))


# -- seals and the disk cache ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["megatron int32", "flat uint64", "levanter"])
def test_a_seal_beside_the_files_in_a_bucket_is_written_once_and_read(both, name, capsys):
    _, there, expected = both(name)
    url = str(there.path)
    said = dict(there.reader.inside.described.settings)
    words = [word for key, value in said.items() for word in (f"--{key.replace('_', '-')}", value)]
    command = ["seal", url, *map(str, words), "--quiet"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seal"].startswith(url.rpartition("/")[0])
    assert told["bytes"] > 0
    sealed = tl.open(url, cache_bytes=1 << 20, **said)
    assert sealed.reader.inside.is_sealed
    assert sealed.digest == there.digest
    assert [one.tolist() for one in sealed.documents(range(len(sealed)))] == expected
    assert sealed.verify(progress=False).unguarded == ()
    assert pickle.loads(pickle.dumps(sealed)).reader.inside.is_sealed
    assert main(command) == 1  # never replaced: somebody may be reading it
    assert "there is a seal already" in capsys.readouterr().err


def test_a_seal_of_the_files_here_is_one_of_those_in_the_bucket(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    path, _, expected = WRITERS["megatron uint16"](folder, some_documents())
    url = uploaded(folder, path)
    assert main(["seal", url, "--to", str(tmp_path / "a.seal"), "--quiet"]) == 0
    assert main(["seal", str(path), "--to", str(tmp_path / "b.seal"), "--quiet"]) == 0
    assert (tmp_path / "a.seal").read_bytes() == (tmp_path / "b.seal").read_bytes()
    sealed = tl.open(url, seal=str(tmp_path / "a.seal"), cache_bytes=0)
    assert sealed.reader.inside.is_sealed
    where = place("url", f"{url}.bin")
    data = bytearray(client_of(where).get(where.key).data)
    data[7] ^= 1
    client_of(where).put(where.key, bytes(data))
    with pytest.raises(tl.StoreCorrupt, match="uploaded again or replaced"):
        sealed.documents(range(len(expected)))


def test_the_disk_cache_keeps_sealed_files_and_no_others(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "files"
    folder.mkdir()
    path, _, expected = WRITERS["megatron uint16"](folder, some_documents())
    url = uploaded(folder, path)
    pieces = tmp_path / "pieces"
    with pytest.raises(tl.ConfigError, match="not sealed, so nothing tells their pieces"):
        tl.open(url, disk_cache=pieces)
    monkeypatch.setenv("TOKENLOOM_DISK_CACHE", str(pieces))
    tl.open(url)
    assert "the disk cache is not used, since these files are not sealed" in caplog.text
    monkeypatch.delenv("TOKENLOOM_DISK_CACHE")
    shutil.rmtree(pieces, ignore_errors=True)
    assert main(["seal", url, "--quiet"]) == 0
    for first in (True, False):
        store = tl.open(url, disk_cache=pieces, cache_bytes=0)
        assert [one.tolist() for one in store.documents(range(len(expected)))] == expected
        assert (store.reads.requests > 0) == first
        assert (store.reads.cached_bytes > 0) == (not first)
        again = pickle.loads(pickle.dumps(store))
        assert again.document(1).tolist() == expected[1]
        assert again.reads.requests == 0
        assert store.verify(progress=False).ok
    assert store.reads.requests > 0  # to verify is to look at the bucket


# -- incomplete sets


def test_exported_arrays_without_one_of_their_files_are_refused_in_a_bucket(tmp_path):
    rows = [{"input_ids": one} for one in ([5, 6, 7], [8, 9], [1, 2, 3, 4])]
    out = tmp_path / "out"
    export(tl.build(rows, tmp_path / "own", tokenizer=None, vocab_size=10), out, to="npy")
    (out / "input_ids.npy").unlink()
    url = uploaded(out)
    for path in (url, f"{url}/document_ends.npy"):
        with pytest.raises(tl.StoreCorrupt, match=r"input_ids\.npy"):
            tl.open(path)


def test_a_sealed_set_without_its_first_file_is_refused_in_a_bucket(tmp_path):
    for number in range(2):
        write_llm_c(tmp_path / f"a_{number}.bin", [9, 1, 2])
    assert main(["seal", str(tmp_path), "--bos=9"]) == 0
    (tmp_path / "a_0.bin").unlink()
    root = uploaded(tmp_path)
    for url in (root, f"{root}/a"):
        with pytest.raises(tl.StoreCorrupt, match=r"a_0\.bin"):
            tl.open(url, bos=9)
