"""The bucket of `tokenloom.testing` counts, and builds and reads survive its faults."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.testing import FakeBucket, FaultFiles, assert_resumable, tiny, write_flat

TEXTS = [{"text": f"document {number} " * (number % 5)} for number in range(40)]


def built(out, **options):
    return tl.build(TEXTS, out, tokenizer="bytes", shard_tokens=900, progress=False, **options)


@pytest.fixture
def url(bucket, tmp_path):
    ids = np.arange(6000) % 251
    write_flat(tmp_path / "flat", ids, np.full(60, 100), vocab_size=251)
    return bucket.upload(tmp_path / "flat", "flat")


def test_reads_are_counted_with_their_ranges(bucket, url):
    store = tl.open(url, cache_bytes=0)
    store.tokens(0, 1)
    bucket.clear()
    assert store.tokens(1000, 1010).tolist() == (np.arange(1000, 1010) % 251).tolist()
    tokens = [one for one in bucket.requests if "input_ids/c" in one.key]
    assert all((one.kind, one.status) == ("get", 206) for one in tokens)
    ranges = [(one.start, one.start + one.size) for one in tokens]
    assert ranges
    assert min(ranges)[0] <= 1000
    assert max(ranges)[1] >= 1010
    assert bucket.count("get", "input_ids") == len(tokens) == store.reads.read_ops - 1
    assert (bucket.count("put"), bucket.count("list"), bucket.count("delete")) == (0, 0, 0)


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_any_request_of_an_open_and_a_read_may_fail_once(bucket, url, status):
    bucket.clear()
    expected = tl.open(url, cache_bytes=0).tokens(100, 900).tolist()
    total = bucket.count()
    for at in range(1, total + 1):
        bucket.clear()
        bucket.fail(at, status=status)
        store = tl.open(url, cache_bytes=0)
        assert store.tokens(100, 900).tolist() == expected
        assert bucket.count() == total + 1, f"request {at} was asked again, and no other"
        assert [one.status for one in bucket.requests].count(status) == 1


def test_what_is_forbidden_is_not_asked_again(bucket, url):
    bucket.fail(1, status=403, only="manifest")
    with pytest.raises(tl.StoreError, match="manifest-000001"):
        tl.open(url)
    assert bucket.count("get", "manifest") == 1


def test_a_build_that_was_overtaken_creates_nothing_again(bucket):
    """Another process publishes the same store just before: its manifest stays."""
    out, others = f"{bucket.url}/store", []

    def overtake(call):
        if call.path.name.startswith("manifest-") and not others:
            others.append(built(out))
            bucket.clear()

    files = FaultFiles(out, only=["link_new"], before=overtake)
    assert built(out, files=files).digest == others[0].digest
    (refused,) = [one for one in bucket.requests if one.status == 412]
    assert (refused.kind, refused.key) == ("put", "store/manifest-000001.json")
    assert tl.open(out).verify(progress=False).ok


@pytest.mark.parametrize("action", ["raise", "stop"])
def test_a_build_whose_writer_fails_is_finished_by_the_next(bucket, tmp_path, action):
    expected = built(tmp_path / "local").digest
    counted = FaultFiles(f"{bucket.url}/all")
    built(f"{bucket.url}/all", files=counted)
    total = len(counted.calls)
    for at in range(1, total + 1, 17):
        out = f"{bucket.url}/{at}"
        with pytest.raises(OSError, match=r".+"):
            built(out, files=FaultFiles(out, at=at, action=action))
        with pytest.raises(tl.StoreNotFound):
            tl.open(out)
        assert built(out).digest == expected


def test_runs_over_a_bucket_resume_under_tiny_limits(bucket, url):
    store = tl.open(url, cache_bytes=1 << 16)
    run = store.windows(16).block_shuffle(io_block_size=5, window_blocks=3)
    with tiny():
        assert_resumable(run, batch_size=8, steps=3)


def test_another_process_reaches_it_through_its_environment(bucket, url):
    code = "import sys, tokenloom as tl; print(tl.open(sys.argv[1]).document(3).tolist())"
    environment = os.environ | bucket.environment
    answer = subprocess.run(
        [sys.executable, "-c", code, url], env=environment, capture_output=True, check=True
    )
    assert json.loads(answer.stdout) == (np.arange(300, 400) % 251).tolist()


def test_the_environment_is_as_before_when_it_is_gone(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with FakeBucket() as one, FakeBucket() as two:
        assert one.url != two.url
        assert os.environ["AWS_REGION"] != "here"
    assert os.environ["AWS_REGION"] == "here"
    assert "AWS_ENDPOINT_URL" not in os.environ


class Overtaken(dict):
    """Objects; once one of this name is there, so are those of another builder."""

    def __init__(self, others, name):
        super().__init__()
        self.others, self.name = others, name

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if key.endswith(self.name):
            for other, data in self.others.items():
                self.setdefault(other, data)


@pytest.mark.parametrize("name", ["shard-00000/page_crc32c/zarr.json", "shard-00000/docs.parquet"])
@pytest.mark.parametrize("same_settings", [True, False])
def test_a_shard_that_another_build_commits_meanwhile_is_theirs(bucket, name, same_settings):
    """The same documents, of a build that left a record out or never would have."""
    out, settings = f"{bucket.url}/store", {"tokenizer": "bytes", "progress": False}
    theirs = [*TEXTS, {"text": None}] if same_settings else TEXTS
    kind = "skip" if same_settings else "raise"
    others = tl.build(theirs, out, **settings, on_error=kind)
    bucket.objects = Overtaken(bucket.objects, name)
    with pytest.raises(tl.StoreError, match=out):
        tl.build(TEXTS, out, **settings, on_error="skip")
    store = tl.open(out)
    assert store.check(progress=False).problems == ()
    assert store.inputs[0][0].sha256 == others.inputs[0][0].sha256
