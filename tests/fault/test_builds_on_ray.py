"""Builds on a local Ray cluster: the bytes of one process, whoever is killed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit import assert_same_tree, tree, write_corpus
from ray_scenes import OPTIONS, inputs_of
from refusals import refused

import tokenloom as tl

HERE = Path(__file__).parent

group = pytest.mark.xdist_group("ray")


@contextlib.contextmanager
def ray_home():
    """A short folder for all that Ray writes: paths of its sockets must be short, too."""
    home = Path(tempfile.mkdtemp(prefix="tlr-", dir="/tmp"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def play(scene, folder):
    """Run a scene; what it saw, and every file of Ray's own, as one text.

    No scene serves a dashboard, and none writes a token file, in its folder or elsewhere.
    """
    before = token_files()
    for _ in range(STARTS):
        with ray_home() as home:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", HERE / "ray_scenes.py", scene, folder],
                env=environment(home),
                capture_output=True,
                text=True,
                timeout=1000,
            )
            names = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
            logs = [(home / name).read_bytes() for name in names]
        if done.returncode == 0 or NOT_STARTED not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    log = b"".join(logs)
    assert b"http server disabled" in log  # Ray starts that process anyway, for other things
    assert b"http server initialized" not in log
    assert not [name for name in names if "auth_token" in name]
    assert token_files() == before
    return json.loads(done.stdout.splitlines()[-1]), log


def token_files():
    """Where Ray keeps tokens if nobody stops it, with the times of their last change."""
    usual = [Path.home() / ".ray", Path(tempfile.gettempdir(), "ray")]
    found = (path for place in usual for path in place.rglob("*auth_token*"))
    return {path: path.lstat().st_mtime_ns for path in found}


# on a machine that is many times overloaded Ray gives up its own start: then it is started again
STARTS, NOT_STARTED = 4, "The current node timed out during startup"


def environment(home):
    """Nothing of Ray outside of its folder, and time to start."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("RAY")},
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
        "HOME": str(home),
        "RAY_TMPDIR": str(home),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "100",
    }


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    write_corpus(tmp_path / "in", count=150, files=2)
    tl.build(inputs_of(tmp_path), tmp_path / "whole", workers=1, **OPTIONS)
    return tmp_path


@group
def test_ray_builds_the_bytes_of_one_process_and_names_bad_records_as_it_does(tmp_path):
    """The smoke test: the worker of both builds reads the inputs of the build that it works for."""
    seen, _ = play("smoke", tmp_path)
    for day in ("monday", "tuesday"):
        assert_same_tree(tmp_path / f"{day}-ray", tree(tmp_path / f"{day}-local"))
    assert seen["texts"] == {"monday": "mon 039", "tuesday": "tue 039"}
    local, on_ray = seen["errors"]
    assert "record 9" in local
    assert on_ray == local
    assert not list((tmp_path / "bad-ray").glob("manifest-*"))
    assert seen["up"]  # a ray.init of the user's stays


@group
@pytest.mark.slow
@pytest.mark.parametrize("scene", ["worker", "node"])
def test_a_worker_or_a_node_is_killed_and_the_bytes_are_the_same(corpus, scene):
    seen, _ = play(scene, corpus)
    assert seen["killed"] == 1
    assert seen["records"] < OPTIONS["stretches"]
    assert seen.get("nodes", 2) == 2  # the head and one of two
    assert_same_tree(corpus / scene, tree(corpus / "whole"))


@group
@pytest.mark.slow
def test_an_address_is_for_one_call_and_never_against_a_running_ray(corpus):
    seen, _ = play("address", corpus)
    assert not seen["left_running"]
    assert seen["still"]  # a ray.init of the user's stays
    assert len(seen["digests"]) == 4
    assert set(seen["digests"]) == {tl.open(corpus / "whole").digest}
    assert len(seen["refused"]) == 3
    assert all(seen["address"] in message for message in seen["refused"])
    written = [path.read_bytes() for path in (corpus / "address").rglob("*") if path.is_file()]
    assert not any(seen["address"].encode() in one for one in written)


@group
@pytest.mark.slow
def test_in_a_bucket_the_driver_hears_counts_and_no_message_holds_a_credential(
    corpus, bucket, monkeypatch
):
    monkeypatch.setenv("LOOM_BUCKET", bucket.upload(corpus / "in", "in").rpartition("/")[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-7f3a")
    inputs = [f"{os.environ['LOOM_BUCKET']}/in/part-{number}.jsonl" for number in range(2)]
    whole = tl.build(inputs, corpus / "from-bucket", workers=1, **OPTIONS)
    seen, logs = play("bucket", corpus)
    assert seen["manifest"] == whole.manifest_sha256
    assert inputs[1] in "".join(seen["sent"])  # control: it is what was sent
    assert len(seen["received"]) >= OPTIONS["stretches"]
    assert max(seen["sizes"]) < 400  # bytes, whatever a task has written; progress included
    assert "hidden-7f3a" not in "".join(seen["sent"] + seen["received"])
    assert b"hidden-7f3a" not in logs
    assert not seen["up"]


# -- what needs no cluster ------------------------------------------------------------------------


def test_what_cannot_travel_is_refused_before_anything_is_written(tmp_path):
    rows, own = [{"text": "a"}, {"text": "b"}], {"tokenizer": "bytes", "executor": "ray"}
    inputs = write_corpus(tmp_path / "in")

    def build(given, **options):
        return lambda: tl.build(given, tmp_path / "s", **own | options)

    refused(build(rows, stretches=2), tl.ConfigError, "rows-0")
    refused(build(inputs, stretches=2, filter=lambda row: True), tl.ConfigError, "filter")
    refused(build(rows), tl.ConfigError, "'ray'", "stretches")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "executor", ["rai", "ray:", "ray: host:1", "ray:host", "ray://host:10001", 3]
)
def test_an_executor_that_makes_no_sense_is_refused(tmp_path, executor):
    build = {"tokenizer": "bytes", "executor": executor}
    refused(
        lambda: tl.build([{"text": "a"}], tmp_path / "s", **build), tl.ConfigError, repr(executor)
    )


@pytest.fixture
def stub(monkeypatch):
    """A module `ray` that is connected to what a test says, and must not be started."""
    client = SimpleNamespace(is_connected=lambda: made.client)
    made = SimpleNamespace(
        client=False,
        cluster=None,
        util=SimpleNamespace(client=SimpleNamespace(ray=client)),
        is_initialized=lambda: made.client or made.cluster is not None,
        get_runtime_context=lambda: SimpleNamespace(gcs_address=made.cluster),
        init=lambda *given, **named: pytest.fail("Ray was started"),
    )
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return made


@pytest.mark.parametrize("executor", ["ray", "ray:auto"])
def test_ray_client_is_refused_by_whatever_way_it_comes(tmp_path, monkeypatch, stub, executor):
    """`RAY_ADDRESS` stands for "ray" and for "auto"; with a client, `ray` is the client's."""
    inputs = write_corpus(tmp_path / "in")
    build = {"tokenizer": "bytes", "stretches": 2, "executor": executor}
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.5:10001")
    refused(
        lambda: tl.build(inputs, tmp_path / "s", **build), tl.ConfigError, "ray://10.0.0.5:10001"
    )
    monkeypatch.delenv("RAY_ADDRESS")
    stub.client = True
    refused(lambda: tl.build(inputs, tmp_path / "s", **build), tl.ConfigError, "Client")


def test_another_cluster_than_the_connected_one_and_none_at_all_are_refused(tmp_path, stub):
    inputs = write_corpus(tmp_path / "in")

    def build(executor):
        own = {"tokenizer": "bytes", "stretches": 2, "executor": executor}
        return lambda: tl.build(inputs, tmp_path / "s", **own)

    refused(build("ray:127.0.0.1:1"), tl.WorkerError, "127.0.0.1:1")
    stub.cluster = "127.0.0.1:6379"
    for other in ("ray:127.0.0.1:6380", "ray:local"):
        refused(build(other), tl.ConfigError, repr(other), "127.0.0.1:6379")
