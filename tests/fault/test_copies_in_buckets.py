"""Conversions into a bucket: the bytes of a conversion on a disk, all of them or none."""

import contextlib
import json
import pickle

import numpy as np
import pytest
from buckets import delete, files, objects, upload
from everyformat import EVERY
from exports import plain_store
from foreignfiles import some_documents
from leaking import leaks, told
from toystore import toy

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.exchange import convert, export
from tokenloom.testing import FaultFiles

COLUMNS = {"loss_mask": ("uint8", lambda ids: ids % 2)}


@pytest.fixture(params=["ranges", "moto"])
def bucket(request, place):
    """A free place on our own server, and on the one of another author."""
    request.getfixturevalue(request.param)
    return place


@pytest.fixture
def source(tmp_path):
    return toy(tmp_path / "s", [[[1, 2], [3], [4, 5, 6]], [[7, 8]]], columns=COLUMNS)


def test_a_bucket_gets_the_bytes_of_a_conversion_on_a_disk(bucket, source, tmp_path):
    convert(source, tmp_path / "copy", shard_tokens=4)
    copy = convert(source, bucket, shard_tokens=4)
    assert objects(bucket) == files(tmp_path / "copy")
    assert (copy.digest, str(copy.path)) == (source.digest, bucket)
    assert copy.verify(progress=False).ok
    before = objects(bucket)
    assert convert(source, bucket, shard_tokens=4).digest == copy.digest  # it is already there
    assert objects(bucket) == before


@pytest.mark.parametrize("name", ["megatron uint16", "parquet, two files", "mds", "levanter"])
def test_from_a_bucket_into_a_bucket_and_a_run_goes_on(ranges, place, tmp_path, name):
    folder = tmp_path / "files"
    folder.mkdir()
    path, said, _ = EVERY[name](folder, some_documents(count=40))
    upload(folder, f"{place}/theirs")
    theirs = tl.open(f"{place}/theirs{str(path)[len(str(folder)) :]}", vocab_size=1000, **said)
    copy = convert(theirs, f"{place}/ours", shard_tokens=200)
    assert copy.digest == theirs.digest
    runs = [one.windows(16).shuffle().seed(3) for one in (theirs, copy)]
    with tl.Loader(runs[0], 4) as loader, tl.Loader(runs[1], 4) as other:
        next(loader)
        other.load_state_dict(loader.state_dict())
        assert np.array_equal(next(loader).tokens, next(other).tokens)


@pytest.mark.parametrize("action", ["raise", "stop"])
@pytest.mark.parametrize("points", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_a_conversion_whose_writer_fails_anywhere_goes_on(ranges, place, source, points, action):
    counted = FaultFiles(f"{place}/whole")
    convert(source, f"{place}/whole", shard_tokens=4, files=counted)
    whole, calls = objects(f"{place}/whole"), len(counted.calls)
    for at in [*range(1, calls, 1 + calls // points), calls]:
        url = f"{place}/failed-{at}"
        faulty = FaultFiles(url, at=at, action=action)
        with contextlib.suppress(OSError):  # what fails while it tidies up changes nothing
            convert(source, url, shard_tokens=4, files=faulty)
        assert faulty.happened
        if "manifest-000001.json" not in objects(url):
            with pytest.raises(tl.StoreNotFound):
                tl.open(url)
        assert convert(source, url, shard_tokens=4).digest == source.digest
        found = objects(url)
        assert {name: found[name] for name in found if not name.startswith(".tmp-")} == whole


def test_finished_shards_are_not_written_again(ranges, place, source):
    convert(source, place, shard_tokens=4)
    delete(f"{place}/manifest-000001.json")
    ranges.clear()
    convert(source, place, shard_tokens=4)
    put = [one["key"].rpartition("/")[2] for one in ranges.log() if one["method"] == "PUT"]
    assert [name for name in put if not name.startswith(".tmp-")] == ["manifest-000001.json"]


def test_a_server_that_ignores_conditions_gets_nothing(ranges, place, source):
    ranges.set(ignore_conditions=True)
    with pytest.raises(tl.StoreError, match="If-None-Match"):
        convert(source, place)
    assert objects(place) == {}


def test_a_web_server_is_refused_with_what_to_do(ranges, source):
    with pytest.raises(tl.StoreError, match="http://"):
        convert(source, f"{ranges.endpoint}/bucket/copy")


def test_a_conversion_into_a_bucket_never_replaces_what_is_there(ranges, place, source, tmp_path):
    convert(source, place)
    before = objects(place)
    with pytest.raises(tl.StoreExists, match="s3://bucket"):
        convert(plain_store(tmp_path / "o", seed=9), place)
    assert objects(place) == before


def test_the_command_converts_into_a_bucket(ranges, place, source, capsys):
    assert main(["convert", str(source.path), place, "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == source.digest
    assert tl.open(place).digest == source.digest


def test_a_conversion_writes_and_says_no_credential(ranges, place, source, caplog):
    caplog.set_level("DEBUG")
    copy = convert(source, place, shard_tokens=4)
    run = copy.windows(2).shuffle()
    shown = [copy, run, run.describe(), copy.inputs, pickle.dumps(copy), caplog.text]
    assert leaks(*shown, *objects(place).values()) == []
    ranges.set(expire_after=1)
    with pytest.raises(tl.StoreError) as caught:
        convert(source, f"{place}-other")
    assert leaks(told(caught.value), caplog.text) == []


def test_an_export_to_a_bucket_is_refused_before_anything_is_read(ranges, place, source, capsys):
    ranges.clear()
    with pytest.raises(tl.ConfigError, match="s3://bucket"):
        export(f"{place}/nothing", f"{place}/out", to="npy")
    assert ranges.log() == []
    assert main(["export", str(source.path), f"{place}/out", "--to", "npy"]) == 2
