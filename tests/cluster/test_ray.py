"""Builds on a local Ray cluster: the bytes of one process, whoever is killed."""

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import servers
from buckets import files, objects
from kit import assert_same_tree, tree, write_corpus
from ray_scenes import LARGE, OPTIONS, bucket_inputs, inputs_of, write_large

import tokenloom as tl
from tokenloom.arguments import place
from tokenloom.ingest.cluster.drive import begin, finish_parts, prepare
from tokenloom.ingest.cluster.on_ray import _stretch, pack_plan, task_numbers
from tokenloom.ingest.pipeline import BuildMode
from tokenloom.ingest.plan import BuildOptions
from tokenloom.remote.client import client_of
from tokenloom.store.files import LOCAL

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
    told = b"".join(logs)
    assert b"http server disabled" in told  # Ray starts that process anyway, for other things
    assert b"http server initialized" not in told
    assert not [name for name in names if "auth_token" in name]
    assert token_files() == before
    return json.loads(done.stdout.splitlines()[-1]), told


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


@pytest.fixture
def large(tmp_path, monkeypatch):
    """As `corpus`, with so many tokens in a shard that a driver would notice them."""
    monkeypatch.syspath_prepend(str(HERE))
    write_large(tmp_path)
    tl.build(inputs_of(tmp_path), tmp_path / "whole", workers=1, **LARGE)
    return tmp_path


@group
@pytest.mark.slow
def test_ray_writes_the_bytes_of_one_process_and_the_driver_hears_counts(large):
    seen, logs = play("plain", large)
    assert_same_tree(large / "plain", tree(large / "whole"))
    store = tl.open(large / "plain")
    shards = len(store.reader.manifest.shards)
    assert 2 * store.num_tokens > 10 * 1000 * shards  # bytes: tokens would be ten times too much
    assert len(seen["stretches"]) == LARGE["stretches"]
    assert sum(seen["stretches"]) / shards < 1000  # under 1 MB for 1,000 shards
    assert max(seen["received"]) < ANSWER  # progress included
    assert all(seen["under_way"])  # bytes, documents and tokens of stretches that had not ended
    assert seen["shown"] == sorted(seen["shown"])
    assert seen["shown"][-1] == sum(Path(one).stat().st_size for one in inputs_of(large))
    assert not seen["secret_sent"]
    assert b"hidden-7f3a" not in logs
    assert not seen["left_running"]
    assert seen["verified"]


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
def test_plans_sums_and_certificates_on_ray_are_those_of_one_process(large):
    seen, _ = play("runs", large)
    here, there = seen["made"]
    assert here == there
    kinds = {name.rpartition("-")[0] for name in there}
    assert kinds == {"pack", "packed-tokens", "packed-rows", "trained", "sums"}
    assert_same_tree(large / "cache-ray", tree(large / "cache-local"))
    assert seen["ok"]
    assert seen["same"]
    assert seen["checked"]
    assert len(seen["received"]) > 8
    assert max(seen["received"]) < 10_000  # bytes of a piece of an audit, of 100 KB of tokens


@group
@pytest.mark.slow
def test_a_worker_is_killed_in_the_midst_of_plans_and_of_an_audit(large):
    seen, _ = play("lost", large)
    for one in (seen["plans"], seen["audit"]):
        assert one == {"killed": 1, "came": 0}  # it was at work, and nothing had come yet
    assert seen["same"]
    assert_same_tree(large / "cache-ray", tree(large / "cache-local"))


@group
@pytest.mark.slow
def test_an_address_is_for_one_call_and_never_against_a_running_ray(corpus):
    seen, _ = play("address", corpus)
    assert not seen["left_running"]
    assert seen["still"]  # a ray.init of the user's stays
    assert seen["verified"] == [True] * 4
    *contradicted, gone = seen["told"]
    assert len(contradicted) == 2
    for one in contradicted:
        assert f"is connected to the cluster at {seen['address']} (ray.init)" in one
    assert f"no cluster answers at {seen['address']}" in gone
    written = [path.read_bytes() for path in (corpus / "address").rglob("*") if path.is_file()]
    assert not any(seen["address"].encode() in one for one in written)


@group
@pytest.mark.slow
def test_a_bad_record_is_named_as_in_a_local_build(tmp_path):
    seen, _ = play("error", tmp_path)
    local, on_ray = seen["told"]
    assert "record 9 (line 10)" in local
    assert on_ray == local
    assert not list((tmp_path / "bad-ray").glob("manifest-*"))


@group
@pytest.mark.slow
def test_ray_reads_and_writes_in_a_bucket_and_no_message_holds_a_credential(
    tmp_path, bucket, monkeypatch
):
    monkeypatch.syspath_prepend(str(HERE))
    for path in write_corpus(tmp_path / "in", count=60, files=2):
        where = place("url", f"{bucket}/in/{Path(path).name}")
        client_of(where).put(where.key, Path(path).read_bytes())
    tl.build(bucket_inputs(bucket), tmp_path / "whole", workers=1, **OPTIONS)
    (tmp_path / "url").write_text(bucket)
    seen, logs = play("bucket", tmp_path)
    assert seen["digest"] == tl.open(tmp_path / "whole").digest
    assert objects(f"{bucket}/store") == files(tmp_path / "whole")
    messages = [bytes.fromhex(one) for one in seen["messages"]]
    assert len(messages) == 1 + OPTIONS["stretches"]
    assert f"{bucket}/in/part-1.jsonl".encode() in messages[0]  # control: it is what was sent
    for secret in (servers.ACCESS_KEY, servers.SECRET_KEY, servers.SESSION_TOKEN):
        assert not any(secret.encode() in one for one in [*messages, logs])


# -- what needs no cluster ------------------------------------------------------------------------


def answers_of(inputs, out, numbers, **own):
    """What tasks answer for some stretches, without Ray, and the site of that build."""
    own = {"tokenizer": "bytes", "block_bytes": 500, "stretches": 4, **own}
    mode = BuildMode(duplicates="error")
    site = prepare(inputs, out, BuildOptions(**own), mode, LOCAL)
    begin(site)
    header, payload = pack_plan(site.plan)
    message = (json.dumps(header).encode(), payload, None)
    return [_stretch(message, task_numbers(site.task(number))) for number in numbers], site


def test_a_plan_travels_as_plain_data_and_encodes_the_same(tmp_path):
    """What a task gets, without Ray: JSON and the bytes of the tokenizer."""
    inputs = write_corpus(tmp_path / "in", count=60, files=2)
    own = {"tokenizer": "bytes", "shard_tokens": 300, "block_bytes": 500, "stretches": 4}
    whole = tl.build(inputs, tmp_path / "whole", **own)
    counts, site = answers_of(inputs, tmp_path / "s", (3, 0, 1, 2, 1), shard_tokens=300)
    assert sum(one["tokens"] for one in counts[:4]) == whole.num_tokens
    assert counts[2] == counts[4]
    finish_parts(site)
    assert_same_tree(tmp_path / "s", tree(tmp_path / "whole"))


def test_a_process_that_did_another_build_reads_the_inputs_of_this_one(tmp_path):
    """Names, sizes and settings agree, and so do fingerprints: only the folders differ."""
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        lines = [json.dumps({"text": f"{day[:3]} {number:03}"}) for number in range(40)]
        (tmp_path / day / "part.jsonl").write_text("\n".join(lines))
        _, site = answers_of([f"{tmp_path}/{day}/part.jsonl"], tmp_path / f"{day}-store", range(4))
        finish_parts(site)
        store = tl.open(tmp_path / f"{day}-store")
        assert bytes(store[39].tolist()).decode() == f"{day[:3]} 039"


ANSWER = 400  # bytes that a task answers with, at most, whatever it has written


def test_the_driver_hears_under_a_megabyte_for_a_thousand_shards(scratch):
    """Answers grow neither with shards nor with tokens: a thousand of one, ten times the bound."""
    lines = [json.dumps({"text": chr(97 + number % 26)}) for number in range(1000)]
    (scratch / "tiny.jsonl").write_text("\n".join(lines))
    many, _ = answers_of([f"{scratch}/tiny.jsonl"], scratch / "many", range(4), shard_tokens=1)
    shards = [one["shards"] for one in many]
    assert sum(shards) == 1000
    assert min(shards) > 200
    (scratch / "long.jsonl").write_text(json.dumps({"text": "a" * 50_000}) + "\n")
    inputs = [shutil.copy(scratch / "long.jsonl", scratch / f"long-{n}.jsonl") for n in range(4)]
    large, _ = answers_of(list(map(str, inputs)), scratch / "large", range(4))
    assert [(one["shards"], one["tokens"]) for one in large] == [(1, 50_000)] * 4
    told = [len(pickle.dumps(one)) for one in (*many, *large)]
    assert sum(told[:4]) < 1_000_000
    assert max(told) < ANSWER < 2 * 50_000 / 10


def test_what_cannot_travel_is_refused_before_anything_is_written(tmp_path):
    rows = [{"text": "a"}, {"text": "b"}]
    for inputs, options, reason in (
        (rows, {"tokenizer": "bytes"}, "rows-0 is an object of this process"),
        (
            write_corpus(tmp_path / "in"),
            {"tokenizer": "bytes", "filter": lambda row: True},
            "cannot be imported",
        ),
    ):
        with pytest.raises(tl.ConfigError, match=reason):
            tl.build(inputs, tmp_path / "s", executor="ray", stretches=2, **options)
    with pytest.raises(tl.ConfigError, match="found 'ray' with stretches=1"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes", executor="ray")
    with pytest.raises(tl.ConfigError, match="Did you mean 'ray'"):
        tl.build(rows, tmp_path / "s", tokenizer="bytes", executor="rai")
    assert not (tmp_path / "s").exists()


def test_a_report_is_the_sum_of_reports_on_ranges_of_shards(tmp_path, monkeypatch):
    """What Ray does, without Ray: tasks go through the same function, as plain data."""
    from tokenloom.cluster import check_store, checking

    store = tl.build(
        write_corpus(tmp_path / "in", count=80), tmp_path / "s", tokenizer="bytes", shard_tokens=300
    )
    told = []

    def run(function, message, tasks, *, executor, workers):
        for task in reversed(tasks):
            answer = json.loads(json.dumps(function(message, task)))
            told.append(len(json.dumps(answer)))
            yield answer

    monkeypatch.setattr(checking, "on_ray", run)
    shards = len(store.reader.manifest.shards)
    assert shards > 2 * checking.SHARDS
    assert check_store(tmp_path / "s", executor="ray") == store.check()
    assert max(told) < 1000
    victim = tmp_path / "s/shard-00005/input_ids/c/0"
    victim.write_bytes(victim.read_bytes()[:-1] + b"\xff")
    (tmp_path / "s/stranger").write_text("x")
    found = check_store(tmp_path / "s", executor="ray")
    assert sorted(found.problems) == sorted(tl.open(tmp_path / "s").check().problems)
    assert len(found.problems) >= 2
    with pytest.raises(tl.StoreCorrupt, match="shard-00005"):
        checking.verify_store(tmp_path / "s", executor="ray")
