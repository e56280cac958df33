"""Foreign files on a web server without listings: what opens, and what is told where it cannot."""

import itertools
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from everyformat import EVERY, FOLDERS, NAMED
from foreignfiles import some_documents, write_llm_c
from test_read_stores import upload

import tokenloom as tl
from tokenloom.cli import main

NUMBERS = itertools.count()


@pytest.fixture
def web(ranges, tmp_path, monkeypatch):
    """Writes the files of a format here, and gives their path and their URL on the server."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))

    def make(name):
        folder = tmp_path / "files"
        folder.mkdir()
        path, said, expected = EVERY[name](folder, some_documents(count=40))
        prefix = f"web-{next(NUMBERS)}"
        upload(folder, f"s3://bucket/{prefix}")
        inside = str(path)[len(str(folder)) :]
        return path, f"{ranges.endpoint}/bucket/{prefix}{inside}", said, expected

    return make


def single(url, name):
    """What to name where nothing can be listed."""
    alone = {"datatrove": "/00000_unshuffled.ds", "llm.c": "/fineweb_train_000000.bin"}
    return url + (f"/{NAMED[name]}" if name in NAMED else alone.get(name, ""))


@pytest.mark.parametrize("name", sorted(EVERY.keys() - FOLDERS))
def test_a_file_or_the_one_that_names_the_others_opens_without_listings(web, ranges, name):
    path, url, said, expected = web(name)
    ranges.clear()
    there, here = tl.open(single(url, name), **said), tl.open(path, **said)
    assert there.digest == here.digest
    assert [one.tolist() for one in there.documents(range(len(there)))] == expected
    assert there.columns == here.columns
    assert there.metadata(3) == here.metadata(3)
    runs = [one.windows(16, tail="keep").shuffle().seed(2) for one in (here, there)]
    assert runs[0].fingerprint == runs[1].fingerprint
    assert runs[0].digest(0, len(runs[0])) == runs[1].digest(0, len(runs[1]))
    assert there.check(progress=False).problems == ()
    assert pickle.loads(pickle.dumps(there)).digest == here.digest
    assert {one["method"] for one in ranges.log()} == {"HEAD", "GET"}  # no listing was tried


@pytest.mark.parametrize("name", sorted(NAMED))
def test_the_file_that_names_the_others_may_be_named_anywhere(tmp_path, name):
    path, said, expected = EVERY[name](tmp_path, some_documents(count=40))
    store = tl.open(path / NAMED[name], **said)
    assert [one.tolist() for one in store.documents(range(len(store)))] == expected
    assert store.digest == tl.open(path, **said).digest


@pytest.mark.parametrize("name", sorted(FOLDERS | NAMED.keys()))
def test_a_folder_is_refused_with_what_to_name_or_do(web, name):
    _, url, said, _ = web(name)
    with pytest.raises(tl.StoreError, match=re.escape(f"{url}: ")):
        tl.open(url, **said)


@pytest.mark.parametrize("name", ["levanter", "levanter, three shards"])
def test_a_cache_of_levanter_says_why_it_needs_a_listing(web, name):
    _, url, said, _ = web(name)
    with pytest.raises(tl.StoreError, match="shard_ledger"):
        tl.open(f"{url}/shard_ledger.json", **said)


def test_one_of_several_files_opens_by_its_name(web, tmp_path):
    path, url, said, _ = web("llm.c, four shards of uint32")
    name = "fineweb_train_000001.bin"
    assert tl.open(f"{url}/{name}", **said).digest == tl.open(f"{path}/{name}", **said).digest


def test_a_seal_is_written_elsewhere_and_read_beside(web, ranges, tmp_path, capsys):
    path, url, said, expected = web("megatron uint16")
    assert main(["seal", url, "--quiet"]) == 1  # nothing is created under a condition there
    assert "--to" in capsys.readouterr().err
    assert main(["seal", url, "--to", str(tmp_path / "a.seal"), "--quiet"]) == 0
    assert main(["seal", str(path), "--to", str(tmp_path / "b.seal"), "--quiet"]) == 0
    assert (tmp_path / "a.seal").read_bytes() == (tmp_path / "b.seal").read_bytes()
    sealed = tl.open(url, seal=str(tmp_path / "a.seal"), **said)
    assert sealed.reader.inside.is_sealed
    assert [one.tolist() for one in sealed.documents(range(len(sealed)))] == expected


@pytest.mark.parametrize("fault", [{"etag_after": 1}, {"etag_after": 1, "ignore_conditions": True}])
def test_a_file_that_changes_while_it_is_open_is_corrupt(web, ranges, fault):
    _, url, said, _ = web("megatron uint16")
    store = tl.open(url, cache_bytes=0, **said)
    ranges.set(**fault)
    with pytest.raises(tl.StoreCorrupt, match=r"corpus\.bin"):
        [store.document(number) for number in range(5)]


def test_a_server_that_gives_whole_files_only_is_told_as_such(tmp_path, monkeypatch):
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
