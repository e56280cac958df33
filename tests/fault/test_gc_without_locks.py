"""`tokenloom gc` where the file system has no locks: what a running build writes is left alone."""

import errno
import fcntl
import json
import os
import time

import pytest
from inbuckets import key_of, uploaded

import tokenloom as tl
from tokenloom.cli import main

NAME = ".tmp-" + "0" * 31 + "7"


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def hours_ago(folder, hours):
    then = time.time() - hours * 3600
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then))


@pytest.fixture
def root(tmp_path):
    """A store to which something is being appended: a folder with a file that grows."""
    tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes")
    inside = tmp_path / "s" / NAME / "input_ids"
    inside.mkdir(parents=True)
    (inside / "0").write_bytes(b"\1\0")
    return tmp_path / "s"


def collected(capsys, *words):
    """The exit code and what was printed."""
    code = main(["gc", *words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if code == 0 else out


def test_the_temporary_folder_of_a_running_append_stays(root, capsys, no_locks):
    code, _ = collected(capsys, str(root), "--unfinished")
    assert code != 0
    assert (root / NAME / "input_ids/0").exists()
    code, told = collected(capsys, str(root))
    assert (code, told["removed"]) == (0, [])
    assert NAME in told["unfinished"]
    assert (root / NAME / "input_ids/0").exists()


@pytest.mark.parametrize("words", [[], ["--unfinished"], ["--old-snapshots"]])
def test_it_goes_when_nothing_was_written_for_a_day(root, capsys, no_locks, words):
    hours_ago(root / NAME, 23)
    collected(capsys, str(root), *words)
    assert (root / NAME).exists()
    hours_ago(root / NAME, 25)
    (root / NAME / "input_ids/0").write_bytes(b"\1\0")  # one new file is enough
    collected(capsys, str(root), *words)
    assert (root / NAME).exists()
    hours_ago(root / NAME, 25)
    code, told = collected(capsys, str(root), *words)
    assert (code, told["removed"]) == (0, [NAME])
    assert not (root / NAME).exists()
    assert tl.open(root).verify().ok


@pytest.mark.parametrize("words", [[], ["--unfinished"]])
def test_it_goes_at_once_on_request(root, capsys, no_locks, words):
    code, told = collected(capsys, str(root), "--idle-hours", "0", *words)
    assert (code, told["removed"]) == (0, [NAME])
    assert not (root / NAME).exists()


def test_it_goes_at_once_where_locks_tell_that_no_build_is_running(root, capsys):
    code, told = collected(capsys, str(root), "--unfinished")
    assert (code, told["removed"]) == (0, [NAME])


def test_older_snapshots_go_while_something_is_appended(root, capsys, no_locks):
    tl.build([{"text": "defg"}], root, tokenizer="bytes", append=True)
    code, told = collected(capsys, str(root), "--old-snapshots")
    assert code == 0
    assert "manifest-000001.json" in told["removed"]
    assert told["unfinished"] == [NAME]
    assert tl.open(root).num_documents == 2


def test_a_temporary_object_in_a_bucket_stays_for_a_day(bucket, tmp_path, capsys):
    tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes")
    url = uploaded(bucket, tmp_path / "s")
    bucket.objects[key_of(bucket, f"{url}/{NAME}")] = b"probe"
    code, _ = collected(capsys, url, "--unfinished")
    assert code != 0
    code, told = collected(capsys, url)
    assert (code, told["removed"], told["unfinished"]) == (0, [], [NAME])
    code, told = collected(capsys, url, "--unfinished", "--idle-hours", "0")
    assert (code, told["removed"]) == (0, [NAME])
