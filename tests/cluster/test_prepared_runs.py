"""Plans, audits and checks by `tokenloom.cluster` have the answers of one process."""

import json

import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.cluster import audit_run, check_certificate, check_store, prepare_run, verify_store
from tokenloom.testing import tiny, write_store


@pytest.fixture
def store(tmp_path):
    documents = [[4 + (7 * i + j) % 90 for j in range(i % 12)] for i in range(90)]
    write_store(tmp_path / "a", [documents[:50], documents[50:]], inner=16, chunk_tokens=32)
    return tl.open(tmp_path / "a")


@pytest.fixture
def run(store):
    packed = store.pack(8, group_docs=7).shuffle().epochs(2)
    sources = {"packed": packed, "windows": store.windows(8).shuffle()}
    return tl.mix(sources, weights={"packed": 2, "windows": 1}, cost="tokens").seed(3)


def test_a_prepared_run_finds_all_its_plans_and_is_not_prepared_again(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    with tiny():
        done = prepare_run(run.describe(), epochs=2, executor="local", progress=False)
        files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
        assert set(done.made) <= set(done.kept) == {path.name for path in files}
        assert len(files) > 3
        fresh = tl.from_config(run.describe())
        assert fresh.digest(0, 99) == run.digest(0, 99)
        assert prepare_run(fresh, executor="local", progress=False).made == ()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()} == files


def test_a_cache_that_cannot_be_written_is_an_error(run, tmp_path, monkeypatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "open"))
    with tiny():
        refused(
            lambda: prepare_run(run.describe(), executor="local", progress=False), tl.StoreError
        )
    refused(lambda: prepare_run(3), tl.ConfigError, "int")


@pytest.mark.parametrize("sample", [None, 20])
def test_an_audit_in_pieces_has_the_certificate_of_one_audit(run, sample):
    options = {"first": 0, "last": 150, "sample": sample, "progress": False}
    with tiny(audit_piece_rendered_examples=16):
        whole = run.audit(**options)
        assert audit_run(run, executor="local", **options) == whole
        text = json.dumps(whole.as_json())
        assert check_certificate(text, run, executor="local", progress=False).ok
        forged = json.loads(text)
        forged["digests"]["arrays"][-1] = "0" * 64
        assert not check_certificate(forged, run, executor="local", progress=False).ok
        assert not check_certificate(text, run.seed(9), executor="local", progress=False).ok


def test_a_store_is_checked_as_by_its_own_method(store, tmp_path):
    assert check_store(store.path, executor="local", progress=False) == store.check(progress=False)
    victim = tmp_path / "a/shard-00001/input_ids/c/0"
    victim.write_bytes(victim.read_bytes()[:-1] + b"\xff")
    found = check_store(store.path, executor="local", progress=False)
    assert any("shard-00001" in problem for problem in found.problems)
    refused(
        lambda: verify_store(store.path, executor="local", progress=False),
        tl.StoreCorrupt,
        "shard-00001",
    )
