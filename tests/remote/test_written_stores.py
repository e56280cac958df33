"""Stores are built in buckets as on a disk: the same bytes, all of them or none."""

import contextlib
import errno
import itertools
import os
import subprocess
import sys

import pytest
import servers
from buckets import DyingClient, Killed, copied, files, objects

import tokenloom as tl
from tokenloom.arguments import place as parsed
from tokenloom.cli import main
from tokenloom.ingest.identity import identify
from tokenloom.ingest.inputs import expand
from tokenloom.ingest.target import collect
from tokenloom.remote.client import client_of
from tokenloom.remote.uploads import LARGEST, RemoteFiles
from tokenloom.testing import FaultFiles

ROWS = [{"text": f"document {i}", "id": f"d{i}"} for i in range(30)]

SETTINGS = {"tokenizer": "bytes", "shard_tokens": 200, "inner": 64, "chunk_tokens": 64}


def build(rows, out, **more):
    return tl.build(rows, out, **SETTINGS, **more)


@pytest.fixture(params=["ranges", "moto"])
def bucket(request, place):
    """A free place on our own server, and on the one of another author."""
    request.getfixturevalue(request.param)
    return place


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same build on a disk."""
    folder = tmp_path_factory.mktemp("local")
    build(ROWS, folder / "s")
    return files(folder / "s")


def test_a_bucket_gets_the_bytes_that_a_disk_gets(bucket, local):
    store = build(ROWS, bucket)
    assert objects(bucket) == local
    assert (store.num_documents, str(store.path)) == (30, bucket)
    assert build(ROWS, bucket).digest == store.digest  # again: it is already there
    assert objects(bucket) == local


@pytest.mark.slow
def test_workers_change_nothing_in_a_bucket(ranges, place, tmp_path):
    build(ROWS, place, workers=2, block_bytes=400)
    build(ROWS, tmp_path / "s", workers=1, block_bytes=400)
    assert objects(place) == files(tmp_path / "s")


def test_an_append_and_an_overwrite_are_new_snapshots(ranges, place, tmp_path):
    bucket = place
    more = [{"text": "another"}]
    build(ROWS, bucket)
    assert build(more, bucket, append=True).num_documents == 31
    build(ROWS, tmp_path / "s")
    build(more, tmp_path / "s", append=True)
    assert objects(bucket) == files(tmp_path / "s")
    other = [{"text": "instead"}]
    with pytest.raises(tl.StoreExists, match="inputs"):
        build(other, bucket)
    assert build(other, bucket, overwrite=True).num_documents == 1
    assert main(["gc", bucket, "--old-snapshots"]) == 0
    assert build(other, bucket).num_documents == 1
    assert sum(name.endswith("shard.json") for name in objects(bucket)) == 1


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(ranges, place):
    ranges.set(ignore_conditions=True)
    with pytest.raises(tl.StoreError, match="If-None-Match"):
        build(ROWS, place)
    assert objects(place) == {}


@pytest.mark.slow
def test_s3rver_is_refused_before_anything_is_written(tmp_path, monkeypatch, place):
    with servers.s3rver(tmp_path, "bucket") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        with pytest.raises(tl.StoreError, match="If-None-Match"):
            build(ROWS, place)
        assert objects(place) == {}


def test_a_folder_of_others_is_left_alone(ranges, place):
    bucket = place
    where = parsed("url", bucket)
    client_of(where).put((where / "notes.txt").key, b"mine")
    with pytest.raises(tl.StoreExists, match=r"notes.txt"):
        build(ROWS, bucket)
    with pytest.raises(tl.StoreNotFound):
        collect(where, unfinished=True, idle_hours=0, files=RemoteFiles(client_of(where)))
    assert objects(bucket) == {"notes.txt": b"mine"}


# -- killed ---------------------------------------------------------------------------------
def die_at(at, out, *, late=False, rows=ROWS):
    """Build until the N-th request; True if it died."""
    client = DyingClient(client_of(parsed("out", out)), at, late=late)
    try:
        tl.build(rows, out, **SETTINGS, files=RemoteFiles(client))
    except Killed:
        return True, client.count
    return False, client.count


def check_no_part(out, whole):
    """Whoever looks sees a whole store or none, and whole shards or none."""
    found = objects(out)
    for name in found:
        folder = name.split("/")[0]
        if f"{folder}/shard.json" in found:
            wanted = {n: d for n, d in whole.items() if n.startswith(f"{folder}/")}
            assert {n: d for n, d in found.items() if n.startswith(f"{folder}/")} == wanted
    if "manifest-000001.json" in found:
        assert {n: d for n, d in found.items() if ".tmp-" not in n} == whole
        return
    with pytest.raises(tl.StoreNotFound):
        tl.open(out)


def requests_of_a_build(out):
    return die_at(0, out)[1]


@pytest.mark.parametrize("late", [False, True])
def test_killed_at_some_requests_nothing_torn_is_published(ranges, place, local, late):
    total = requests_of_a_build(f"{place}/all")
    for at in range(1, total + 1, 17 if late else 11):
        out = f"{place}/{at}"
        assert die_at(at, out, late=late)[0]
        check_no_part(out, local)
        build(ROWS, out)
        assert {n: d for n, d in objects(out).items() if ".tmp-" not in n} == local


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("server", ["ranges", "moto"])
def test_killed_at_any_request_nothing_torn_is_published(request, server, place, local, late):
    request.getfixturevalue(server)
    total = requests_of_a_build(f"{place}/all")
    for at in range(1, total + 1):
        out = f"{place}/{at}"
        assert die_at(at, out, late=late)[0]
        check_no_part(out, local)
        build(ROWS, out)
        assert {n: d for n, d in objects(out).items() if ".tmp-" not in n} == local


def test_the_remains_of_a_killed_build_go_only_on_request_and_when_they_are_old(ranges, place):
    assert die_at(30, place)[0]
    where = parsed("out", place)
    half = set(objects(place))
    assert "shard-00000/shard.json" in half
    tools = {"files": RemoteFiles(client_of(where))}
    assert collect(where, **tools).unfinished == ("shard-00000", "shard-00001")
    with pytest.raises(tl.StoreBusy, match="shard-0000"):
        collect(where, unfinished=True, **tools)
    assert set(objects(place)) == half
    assert collect(where, unfinished=True, idle_hours=0, **tools).removed
    assert objects(place) == {}


def test_other_settings_after_a_kill_are_refused_with_the_way_out(ranges, place):
    assert die_at(16, place)[0]  # in the middle of the first shard
    other = [{"text": f"other {i}"} for i in range(30)]
    with pytest.raises(tl.StoreError, match="unfinished"):
        build(other, place)
    assert main(["gc", place, "--unfinished", "--idle-hours", "0"]) == 0
    assert build(other, place).num_documents == 30


# -- two builders ---------------------------------------------------------------------------
class Overtaken(RemoteFiles):
    """Another builder does all of its work when this one is about to upload its n-th file."""

    def __init__(self, client, rows, out, at, settings=SETTINGS):
        super().__init__(client)
        self.rows, self.out, self.settings = rows, out, settings
        self.left, self.error = at, None

    def _put_new(self, target, file):
        self.left -= 1
        if self.left == 0:
            try:
                tl.build(self.rows, self.out, **self.settings)
            except tl.StoreError as error:
                self.error = error
        return super()._put_new(target, file)


OTHER = [{"text": f"another {i}", "id": f"d{i}"} for i in range(30)]


@pytest.mark.parametrize("at", [2, 15])
def test_two_builders_of_one_store_have_the_same_bytes(ranges, place, local, at):
    tools = Overtaken(client_of(parsed("out", place)), ROWS, place, at)
    tl.build(ROWS, place, **SETTINGS, files=tools)
    assert tools.error is None
    assert objects(place) == local


def ids(mask=None, **more):
    """Records of ready-made ids."""
    extra = {} if mask is None else {"loss_mask": [mask] * 9}
    return [{"input_ids": [i % 250] * 9, **extra, **more} for i in range(30)]


RIVALS = {
    "texts": (ROWS, OTHER, {}),
    "columns": (ids(), ids(1), {"tokenizer": None, "vocab_size": 256}),
    "values": (ids(0), ids(1), {"tokenizer": None, "vocab_size": 256}),
    "metadata": (ids(url="a"), ids(url="b"), {"tokenizer": None, "vocab_size": 256}),
    "skips": (ROWS, [*ROWS[:5], {"text": None}, *ROWS[5:]], {"on_error": "skip"}),
}


@pytest.mark.parametrize("what", RIVALS)
@pytest.mark.parametrize("at", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_of_two_builders_of_different_stores_one_wins_and_the_other_says_so(
    ranges, place, what, at
):
    numbers = [at] if at else itertools.count(1)  # each upload of the first builder
    raced = [*itertools.takewhile(lambda n: race(f"{place}/{n}", *RIVALS[what], n), numbers)]
    assert len(raced) == 1 if at else len(raced) > 20


def race(out, rows, others, settings, at):
    """Another builder comes in between; one of the two wins, and its store has nothing else.

    False if the first builder had finished before.
    """
    settings = {**SETTINGS, **settings}
    tools = Overtaken(client_of(parsed("out", out)), others, out, at, settings)
    lost = None
    try:
        tl.build(rows, out, **settings, files=tools)
    except tl.StoreError as error:
        lost = error
    if tools.left > 0:
        return False
    assert (lost is None) != (tools.error is None)
    assert out in str(lost or tools.error)
    store = tl.open(out)
    assert store.check().problems == ()
    assert store.inputs[0][0].sha256 == identity_of(others if lost else rows)
    return True


def identity_of(rows):
    return identify(expand(rows), threads=1)[0].sha256


def test_a_lost_answer_is_no_lost_upload(ranges, place, local):
    ranges.set(slow_down=5)  # every fifth request is throttled, and asked again
    build(ROWS, place)
    assert objects(place) == local


def test_expired_credentials_stop_a_build_that_resumes(ranges, place, local):
    ranges.set(expire_after=40)
    with pytest.raises(tl.StoreError, match="credentials"):
        build(ROWS, place)
    ranges.set()
    build(ROWS, place)
    assert objects(place) == local


# -- the command line -----------------------------------------------------------------------
def test_what_waits_for_its_upload_is_one_shard_and_is_cleared(ranges, place, tmp_path):
    client = client_of(parsed("out", place))
    waited = []

    class Counting(RemoteFiles):
        def rename_new(self, source, target):
            waited.append(len(self._spool))
            return super().rename_new(source, target)

    tools = Counting(client)
    tl.build(ROWS, place, **SETTINGS, files=tools)
    per_shard = {sum(n.startswith(f"shard-{k:05}/") for n in objects(place)) for k in range(2)}
    assert len(waited) >= 2
    assert set(waited[:2]) == per_shard  # never the files of two
    assert tools._spool == {}


# -- calls that fail ------------------------------------------------------------------------
def fail_at(at, out, action):
    """Build until the N-th call of the writer; gives what counted the calls."""
    faulty = FaultFiles(RemoteFiles(client_of(parsed("out", out))), at=at, action=action)
    with contextlib.suppress(OSError):
        tl.build(ROWS, out, **SETTINGS, files=faulty)
    return faulty


@pytest.mark.parametrize("action", ["raise", "stop"])
@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_a_call_that_fails_publishes_nothing_torn(ranges, place, local, action, step):
    total = len(fail_at(0, f"{place}/all", action).calls)
    for at in range(1, total + 1, step):
        out = f"{place}/{at}"
        assert fail_at(at, out, action).happened
        check_no_part(out, local)
        build(ROWS, out)
        assert {n: d for n, d in objects(out).items() if ".tmp-" not in n} == local


_RACE = """
import sys, tokenloom as tl
rows = [{"text": f"{sys.argv[2]} {i}"} for i in range(400)]
print("ready", flush=True)
sys.stdin.readline()
try:
    tl.build(rows, sys.argv[1], tokenizer="bytes", shard_tokens=1000, inner=64, chunk_tokens=64)
    print("won")
except tl.StoreError as error:
    print("lost", error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("server", ["ranges", "moto"])
def test_two_processes_race_for_one_place_and_one_wins(request, server, place, tmp_path):
    request.getfixturevalue(server)
    for number in range(4):
        out = f"{place}/{number}"
        command = [sys.executable, "-c", _RACE, out]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        racers = [subprocess.Popen([*command, word], **pipes) for word in ("red", "blue")]
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.communicate()[0] for racer in racers]
        assert sorted(text.split()[0] for text in said) == ["lost", "won"], said
        winner = ("red", "blue")[[text.startswith("won") for text in said].index(True)]
        store = tl.open(copied(out, tmp_path / str(number)))
        assert store.check().ok
        texts = {bytes(one.tolist()).split()[0] for one in store.documents(range(400))}
        assert texts == {winner.encode()}


def test_where_nothing_is_listed_or_created_under_a_condition_nothing_is_built(ranges):
    with pytest.raises(tl.StoreError, match="http://"):
        build(ROWS, f"{ranges.endpoint}/bucket/s")
    assert all(one["method"] not in ("PUT", "POST") for one in ranges.log())


# -- sizes ----------------------------------------------------------------------------------
def waiting(files, out, size):
    """A file that is being written, and claims to have that many bytes."""
    path = parsed("out", out) / f".tmp-{0:032x}"
    files.create(path).size = size
    return path


def test_a_large_upload_gets_the_time_that_it_needs(ranges, place):
    client = client_of(parsed("out", place))
    files = RemoteFiles(client)
    assert files._client_for(1 << 20) is client
    assert files._client_for(1 << 30).settings.deadline >= 1024  # a MiB per second, at least


def test_what_no_bucket_takes_in_one_request_is_refused(ranges, place):
    files = RemoteFiles(client_of(parsed("out", place)))
    path = waiting(files, place, LARGEST + 1)
    with pytest.raises(tl.StoreError, match="5,368,709,121"):
        files.link_new(path, parsed("out", place) / "x")
    assert objects(place) == {}


def test_a_full_temporary_disk_is_told_and_nothing_is_published(ranges, place, local, monkeypatch):
    write = os.write

    def full(descriptor, data):
        if len(data) > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr("tokenloom.remote.uploads.os.write", full)
        with pytest.raises(tl.StoreError, match="No space left"):
            build(ROWS, place)
    assert not any(name.startswith(("shard-", "manifest-")) for name in objects(place))
    build(ROWS, place)
    assert objects(place) == local
