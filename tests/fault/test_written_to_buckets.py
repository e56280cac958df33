"""Stores are built in buckets as on a disk: the same bytes, all of them or none."""

import contextlib
import subprocess
import sys

import pytest
import servers
from buckets import copied, files, objects, put

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.testing import FaultFiles

ROWS = [{"text": f"document {i}", "id": f"d{i}"} for i in range(30)]

OTHER = [{"text": f"another {i}", "id": f"d{i}"} for i in range(30)]

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
    put(f"{place}/notes.txt", b"mine")
    with pytest.raises(tl.StoreExists, match=r"notes.txt"):
        build(ROWS, place)
    assert main(["gc", place, "--unfinished", "--idle-hours", "0"]) != 0
    assert objects(place) == {"notes.txt": b"mine"}


# -- killed ---------------------------------------------------------------------------------
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


def half_a_build(out, *, only, at):
    """Build until the N-th of these calls of the writer, after which it does nothing any more."""
    files = FaultFiles(out, at=at, action="stop", only=[only])
    with contextlib.suppress(OSError):
        build(ROWS, out, files=files)
    assert files.happened


def test_the_remains_of_a_killed_build_go_only_on_request_and_when_they_are_old(ranges, place):
    half_a_build(place, only="rename_new", at=2)
    half = set(objects(place))
    assert "shard-00000/shard.json" in half
    assert main(["gc", place]) == 0
    assert main(["gc", place, "--unfinished"]) == 1
    assert set(objects(place)) == half
    assert main(["gc", place, "--unfinished", "--idle-hours", "0"]) == 0
    assert objects(place) == {}


def test_other_settings_after_a_kill_are_refused_with_the_way_out(ranges, place):
    ranges.set(expire_after=20)
    with pytest.raises(tl.StoreError):
        build(ROWS, place)  # in the middle of the first shard
    ranges.set()
    with pytest.raises(tl.StoreError, match="unfinished"):
        build(OTHER, place)
    assert main(["gc", place, "--unfinished", "--idle-hours", "0"]) == 0
    assert build(OTHER, place).num_documents == 30


PUBLISHING = ["rename_new", "link_new"]  # a shard, or a file


# -- two builders ---------------------------------------------------------------------------
def race(out, rows, others, settings, at):
    """Another builder does all of its work when this one is about to publish for the n-th time."""
    lost, uploads = {}, 0

    def overtake(call):
        nonlocal uploads
        uploads += 1
        if uploads == at:
            try:
                tl.build(others, out, **settings)
            except tl.StoreError as error:
                lost["other"] = error

    try:
        tl.build(rows, out, **settings, files=FaultFiles(out, only=PUBLISHING, before=overtake))
    except tl.StoreError as error:
        lost["first"] = error
    assert uploads >= at
    return lost


@pytest.mark.parametrize("at", [1, 2, 4])
def test_two_builders_of_one_store_have_the_same_bytes(ranges, place, local, at):
    assert race(place, ROWS, ROWS, SETTINGS, at) == {}
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
@pytest.mark.parametrize("at", [1, 2])
def test_of_two_builders_of_different_stores_one_wins_and_the_other_says_so(
    ranges, place, tmp_path, what, at
):
    rows, others, settings = RIVALS[what]
    settings = {**SETTINGS, **settings}
    ((loser, error),) = race(place, rows, others, settings, at).items()
    assert place in str(error)
    store = tl.open(place)
    assert store.check().problems == ()
    expected = tl.build(rows if loser == "other" else others, tmp_path / "s", **settings)
    assert store.inputs[0][0].sha256 == expected.inputs[0][0].sha256


def test_a_lost_answer_is_no_lost_upload(ranges, place, local):
    ranges.set(slow_down=5)  # every fifth request is throttled, and asked again
    build(ROWS, place)
    assert objects(place) == local


@pytest.mark.parametrize(
    "requests", [9, 31, 52, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 53))]
)
def test_expired_credentials_stop_a_build_that_resumes(ranges, place, local, requests):
    """As a process that is killed at this request: none after it reaches the bucket."""
    ranges.set(expire_after=requests)
    with pytest.raises(tl.StoreError, match="credentials"):
        build(ROWS, place)
    ranges.set()
    check_no_part(place, local)
    build(ROWS, place)
    assert {n: d for n, d in objects(place).items() if ".tmp-" not in n} == local


# -- sizes and places -------------------------------------------------------------------------
def test_an_upload_of_some_mebibytes_has_more_time_than_a_request(ranges, place, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "4")
    rows = [{"input_ids": list(range(n, n + 1000))} for n in range(1500)]
    store = tl.build(rows, place, tokenizer=None, vocab_size=9999, progress=False)
    assert store.verify(progress=False).ok


# -- calls that fail ------------------------------------------------------------------------
def fail_at(at, out, action):
    """Build until the N-th call of the writer; gives what counted the calls."""
    faulty = FaultFiles(out, at=at, action=action)
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
