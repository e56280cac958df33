"""Plans, sums and audits of a run on an executor: the files and certificates of one process."""

import contextlib
import json
import logging
import os
import pickle
import socket
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kit import tree
from leaking import leaks, told
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.arguments import place
from tokenloom.cluster import audit_run, check_certificate, checking, prepare_run, sending
from tokenloom.ingest.cluster import ray_tasks
from tokenloom.inspect import check_certificate as recheck
from tokenloom.layout.pack import rows as grouping
from tokenloom.remote.client import client_of
from tokenloom.store import plan_cache
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource, tiny, write_store


@pytest.fixture(autouse=True)
def _small():
    """Small runs are worth keeping, in small pieces."""
    with tiny(
        min_cached_packing_documents=1,
        packing_piece_groups=3,
        min_cached_trained_rows=1,
        trained_piece_rows=10,
        min_cached_cost_items=1,
        cost_stride_items=4,
        cost_chunk_items=8,
        cost_piece_items=16,
        audit_piece_rendered_examples=16,
    ):
        yield


@pytest.fixture
def on_ray(monkeypatch):
    """What Ray does, without Ray: tasks last to first, everything as plain data; what was heard."""
    heard = {"sent": [], "received": [], "answers": [], "functions": set()}

    def run(function, message, tasks, *, executor, workers, in_order, files):
        heard["sent"].append(pickle.dumps([message, tasks, files]))
        heard["functions"].add(f"{function.__module__}.{message.get('what', 'audit')}")
        json.dumps([message, list(tasks)])  # no objects in it
        found = {}
        for number in reversed(range(len(tasks))):
            raw = pickle.dumps(function(pickle.loads(pickle.dumps(message)), tasks[number]))
            heard["received"].append(len(raw))
            heard["answers"].append(raw)
            found[number] = pickle.loads(raw)
        for number in range(len(tasks)):
            if "error" in found[number]:
                raise AssertionError(found[number]["message"])
            yield found[number]

    monkeypatch.setattr(sending, "on_ray", run)
    monkeypatch.setattr(sending, "with_ray", lambda *_: contextlib.nullcontext())
    sending._runs.clear()
    return heard


def store_at(root, seed=0, *, weights=False):
    rng = np.random.Generator(np.random.PCG64(seed))
    made = [rng.integers(4, 99, int(rng.integers(1, 12))).tolist() for _ in range(90)]
    columns = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)} if weights else None
    write_store(root, [made[:50], made[50:]], inner=16, chunk_tokens=32, columns=columns)
    return tl.open(root)


def runs_of(root):
    a, b = store_at(root / "a"), store_at(root / "b", 1, weights=True)
    packed = a.pack(8, group_docs=7).shuffle().epochs(2)
    chosen = b.split({"x": 0.8, "y": 0.2})["x"].pack(8, group_docs=5).block_shuffle()
    spliced = b.splice(8, content_length=3).shuffle()
    sources, weights = {"a": packed, "b": chosen, "c": spliced}, {"a": 2, "b": 1, "c": 1}
    return {
        "alone": packed,
        "chosen": chosen,
        "by tokens": tl.mix(sources, weights=weights, cost="tokens").seed(3),
        "by loss tokens": tl.mix(sources, weights=weights, cost="loss_tokens").seed(3),
    }


def prepared(folder, monkeypatch, config, **options):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(folder))
    return prepare_run(config, progress=False, **options)


KINDS = {
    "alone": {"groups", "rows", "sums"},
    "chosen": {"groups", "rows", "sums"},
    "by tokens": {"groups", "rows", "sums"},
    "by loss tokens": {"groups", "rows", "sums", "counts"},
}


@pytest.mark.parametrize("name", list(KINDS))
def test_what_is_kept_is_the_same_to_the_byte_whoever_made_it(tmp_path, monkeypatch, on_ray, name):
    run = runs_of(tmp_path)[name]
    config = run.describe()
    here = prepared(tmp_path / "here", monkeypatch, config, epochs=2, executor="local")
    assert not on_ray["sent"]
    there = prepared(tmp_path / "there", monkeypatch, config, epochs=2)
    assert here == there
    assert here.made == here.kept
    assert len(here.kept) == len(set(here.kept)) == len(list((tmp_path / "there").iterdir()))
    assert tree(tmp_path / "here") == tree(tmp_path / "there")
    kinds = {one.rsplit(".", 1)[1] for one in on_ray["functions"]}
    assert kinds == KINDS[name]
    assert len(on_ray["received"]) > 3 * len(on_ray["sent"])  # it was done in pieces
    # a run that works everything out by itself makes these very files
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "alone"))
    fresh = tl.from_config(config)
    rows = min(fresh.run.n or 200, 200)
    fresh.run.tokens_in(rows - 1)
    fresh.batch(range(rows))
    alone = tree(tmp_path / "alone")
    same = {path: one for path, one in tree(tmp_path / "here").items() if path in alone}
    assert {str(path).partition("-")[0] for path in same} >= {"pack", "packed"}
    assert name == "chosen" or any(str(path).startswith("sums") for path in same)
    assert same == {path: alone[path] for path in same}


def test_what_is_there_is_left_alone_and_nothing_is_sent(tmp_path, monkeypatch, on_ray):
    run = runs_of(tmp_path)["by tokens"]
    prepared(tmp_path / "kept", monkeypatch, run.describe())
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "kept").iterdir()}
    sent = len(on_ray["sent"])
    again = prepared(tmp_path / "kept", monkeypatch, tl.from_config(run.describe()))
    assert (again.made, len(again.kept)) == ((), len(before))
    assert len(on_ray["sent"]) == sent
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_plans_go_along_so_that_no_node_makes_them_again(tmp_path, monkeypatch, on_ray):
    """A node with an empty cache gets the plans of the groups, and checks some of them."""
    run = runs_of(tmp_path)["alone"]
    config = run.describe()
    prepared(tmp_path / "driver", monkeypatch, config)
    (message, _, files) = pickle.loads(on_ray["sent"][-1])
    assert {name.split("-")[0] for name in files} == {"pack", "packed"}
    assert not any(name.startswith("packed-rows") for name in files)
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "node"))
    with tiny(reproved_places=2):
        monkeypatch.setattr(sending, "fetched", files.__getitem__)
        planned = []
        real = grouping.plan_group

        def counting(lengths, spec, group=0, names=None):
            planned.append(group)
            return real(lengths, spec, group, names)

        monkeypatch.setattr(grouping, "plan_group", counting)
        sending._runs.clear()
        opened = sending.sent_run({**message, "files": {name: name for name in files}})
        assert opened == run
        assert len(planned) <= 2 < len(opened.sources["main"].layout.groups)
        with pytest.raises(tl.ConfigError, match="allowed: the name of a kept file"):
            plan_cache.keep_file("../../evil.json", lambda: b"")


def test_a_cache_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    run = runs_of(tmp_path)["alone"]
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(tl.StoreError, match="could not be kept there"):
        prepared(folder, monkeypatch, run.describe(), executor="local")


@pytest.mark.parametrize("name", list(KINDS))
def test_a_certificate_does_not_tell_who_looked(tmp_path, on_ray, name):
    run = runs_of(tmp_path)[name]
    options = {"first": 0, "last": min(run.run.n or 150, 150), "progress": False}
    whole = run.audit(**options)
    assert whole.ok
    assert audit_run(run, **options) == whole
    assert len(on_ray["received"]) > 3
    assert max(on_ray["received"]) < 10_000  # bytes of a piece
    assert audit_run(run, **options, executor="local") == whole
    sampled = {"arrays": False, "sample": 20, "seed": 4, **options}
    assert audit_run(run, **sampled) == run.audit(**sampled)


def test_pieces_of_an_audit_answer_no_tokens(tmp_path, on_ray):
    """128 rows of 512 tokens are ten times of what a piece may answer with."""
    write_store(tmp_path / "a", [[[*range(4, 900)] * 4] * 80])
    run = tl.open(tmp_path / "a").windows(512).shuffle()
    with tiny(audit_piece_rendered_examples=128):
        assert audit_run(run, progress=False).ok
        assert len(on_ray["received"]) == -(-len(run) // 128) > 3
        assert 10 * max(on_ray["received"]) < 128 * 512 * 2  # bytes


@pytest.mark.parametrize("name", list(KINDS))
def test_a_certificate_is_checked_in_full_whoever_looks(tmp_path, on_ray, name):
    run = runs_of(tmp_path)[name]
    options = {"first": 0, "last": min(run.run.n or 150, 150), "progress": False}
    text = json.dumps(run.audit(**options).as_json())
    forged = json.loads(text)
    forged["digests"]["arrays"][-1] = "0" * 64
    for given, other in ((text, run), (forged, run), (text, run.seed(9))):
        alone = recheck(given, other, full=True, progress=False)
        on_ray["received"].clear()
        assert check_certificate(given, other, progress=False) == alone
        assert alone.ok == (given is text and other is run)
        assert (len(on_ray["received"]) > 3) == (other is run)  # another run is not looked at
        assert check_certificate(given, other, executor="local", progress=False) == alone


def test_a_run_over_files_of_others_is_audited_as_any_other(tmp_path, on_ray):
    np.tile(np.array([5, 6, 7, 2, 8, 2], np.uint16), 99).tofile(tmp_path / "train.bin")
    run = tl.open(tmp_path / "train.bin", dtype="uint16", eos=2).windows(8).shuffle()
    assert audit_run(run, progress=False) == run.audit(progress=False)
    assert len(on_ray["received"]) > 3


def test_over_a_store_in_a_bucket_the_answers_are_the_same_and_no_credential_is_sent(
    tmp_path, monkeypatch, on_ray, bucket, caplog, capfd
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(checking, "on_ray", as_report(sending.on_ray))
    rng = np.random.Generator(np.random.PCG64(0))
    rows = [{"input_ids": rng.integers(4, 99, int(n)).tolist()} for n in rng.integers(1, 12, 90)]
    small = {"tokenizer": None, "vocab_size": 99, "shard_tokens": 60, "inner": 16}
    stores = [tl.build(rows, out, **small, chunk_tokens=32) for out in (bucket, tmp_path / "s")]
    there, here = (store.pack(8, group_docs=7).shuffle() for store in stores)
    kept = prepared(tmp_path / "kept", monkeypatch, there.describe(), epochs=2)
    config, local = here.describe(), {"executor": "local", "epochs": 2}
    assert prepared(tmp_path / "here", monkeypatch, config, **local) == kept
    assert tree(tmp_path / "kept") == tree(tmp_path / "here")
    certificate = audit_run(there, progress=False)
    assert certificate == audit_run(here, progress=False, executor="local")
    report = tl.cluster.check_store(bucket, progress=False)
    assert report == stores[0].check(progress=False)
    assert {one.rsplit(".", 1)[1] for one in on_ray["functions"]} >= {"groups", "rows", "audit"}
    assert f"{bucket}".encode() in b"".join(on_ray["sent"])  # the URL goes, and what opens it not
    shown = [kept, certificate, report, caplog.text, *capfd.readouterr()]
    assert leaks(*on_ray["sent"], *on_ray["answers"], *shown) == []
    assert leaks(*(path.read_bytes() for path in (tmp_path / "kept").iterdir())) == []
    assert leaks(pickle.dumps(os.environ["AWS_SECRET_ACCESS_KEY"])) != []  # the control


def test_errors_of_tasks_over_a_bucket_hold_no_credential(monkeypatch, on_ray, bucket):
    monkeypatch.setattr(checking, "on_ray", as_report(sending.on_ray))
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.3")
    store = tl.build([{"text": "a text"}] * 30, bucket, tokenizer="bytes", shard_tokens=60)
    run = store.windows(4).shuffle()
    client = client_of(place("url", bucket))
    payload = place("url", bucket) / "shard-00001/input_ids/c/0"
    client.delete(payload.key)
    found = tl.cluster.check_store(bucket, progress=False).problems
    assert any("input_ids/c/0" in line for line in found)
    with pytest.raises(AssertionError, match=r"input_ids/c/0: .*missing") as caught:
        audit_run(run, progress=False)
    assert leaks(*on_ray["sent"], *on_ray["answers"], *found, told(caught.value)) == []


def as_report(run):
    """The stub as `check_store` calls it, which asks for less."""

    def asked(function, message, tasks, *, executor, workers):
        more = {"executor": executor, "workers": workers, "in_order": False, "files": {}}
        return run(function, message, tasks, **more)

    return asked


def test_relative_paths_are_sent_as_absolute_ones(tmp_path, monkeypatch, on_ray):
    store_at(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORES", ".")
    run = tl.from_config(
        {"store": {"path": "${STORES}/a"}, "layout": {"kind": "windows", "seq_len": 8}}
    )
    assert audit_run(run, progress=False).ok
    message = pickle.loads(on_ray["sent"][0])[0]
    assert message["run"]["store"]["path"] == str(tmp_path / "a")


def test_what_cannot_be_sent_is_refused_with_the_reason():
    with ToyStore(numbered([[7] * 12])) as toy:
        run = tl.open(toy.path, source=FaultSource(LocalSource(toy.path))).windows(8)
        for call in (prepare_run, audit_run, lambda run: check_certificate(run.audit(), run)):
            with pytest.raises(tl.ConfigError, match=r"source main .+ is an object"):
                call(run)
    with pytest.raises(tl.ConfigError, match="found int, allowed: a run, or its description"):
        prepare_run(3)


@pytest.mark.parametrize(
    ("executor", "told"),
    [
        ("rai", "Did you mean 'ray'"),
        ("ray:", "allowed: local, ray"),
        ("ray: host:1", "HOST:PORT of the cluster"),
        ("ray:host", "HOST:PORT of the cluster"),
        ("ray://host:10001", "Ray Client is not used"),
        (3, "allowed: local, ray"),
    ],
)
def test_an_executor_that_makes_no_sense_is_refused_everywhere(tmp_path, executor, told):
    run = store_at(tmp_path / "a").windows(8)
    calls = [
        lambda: tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes", executor=executor),
        lambda: tl.cluster.check_store(tmp_path / "a", executor=executor),
        lambda: prepare_run(run, executor=executor),
        lambda: audit_run(run, executor=executor),
        lambda: check_certificate(run.audit(), run, executor=executor),
    ]
    for call in calls:
        with pytest.raises(tl.ConfigError, match=told):
            call()


@pytest.fixture
def stub(monkeypatch):
    """A module `ray` that notes how it is initialized, and may be a client already."""
    calls = []
    client = SimpleNamespace(is_connected=lambda: stub.connected)
    stub = SimpleNamespace(
        connected=False,
        calls=calls,
        util=SimpleNamespace(client=SimpleNamespace(ray=client)),
        is_initialized=lambda: stub.connected,
        init=lambda *given, **named: calls.append((given, named)),
        shutdown=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "ray", stub)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return stub


@pytest.mark.parametrize("executor", ["ray", "ray:auto"])
def test_ray_client_is_refused_by_whatever_way_it_comes(tmp_path, monkeypatch, stub, executor):
    """`RAY_ADDRESS` stands for "ray" and for "auto"; with a client, `ray` is the client's."""
    told = r"Ray Client is not used.+no member of the cluster\. {}.*'ray:HOST:PORT' or 'ray:auto'"
    store = store_at(tmp_path / "a")
    (tmp_path / "in.jsonl").write_text('{"text": "ab"}\n' * 9)
    own = {"tokenizer": "bytes", "stretches": 2, "executor": executor}
    calls = [
        lambda: tl.build(tmp_path / "in.jsonl", tmp_path / "s", **own),
        lambda: tl.cluster.check_store(tmp_path / "a", executor=executor),
        lambda: prepare_run(store.pack(8).describe(), executor=executor),
        lambda: audit_run(store.windows(8), executor=executor),
        lambda: check_certificate(store.windows(8).audit(), store.windows(8), executor=executor),
    ]
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.5:10001")
    for call in calls:
        found = r"RAY_ADDRESS is 'ray://10\.0\.0\.5:10001', but "
        with pytest.raises(tl.ConfigError, match=found + told.format("Unset it")):
            call()
    monkeypatch.delenv("RAY_ADDRESS")
    stub.connected = True
    for call in calls:
        found = r"connected by ray\.init\('ray://…'\), but "
        with pytest.raises(tl.ConfigError, match=found + told.format(r"Call ray\.shutdown\(\)")):
            call()
    assert not stub.calls


def test_control_an_address_in_the_environment_reaches_ray(tmp_path, monkeypatch, stub):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as door:
        monkeypatch.setenv("RAY_ADDRESS", "{}:{}".format(*door.getsockname()))
        with ray_tasks.with_ray("ray", None):
            pass
    monkeypatch.delenv("RAY_ADDRESS")
    with ray_tasks.with_ray("ray", 3):
        pass
    (first, _), (second, named) = stub.calls
    assert (first, second) == ((None,), ("local",))
    assert (named["num_cpus"], named["include_dashboard"]) == (3, False)
