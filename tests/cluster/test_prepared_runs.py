"""Plans, sums and audits of a run on an executor: the files and certificates of one process."""

import contextlib
import json
import pickle

import numpy as np
import pytest
from kit import tree
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.cluster import audit_run, prepare_run, sending
from tokenloom.inspect.audit import run_audit
from tokenloom.layout.pack import rows as grouping
from tokenloom.order import costs, prices
from tokenloom.store import plan_cache
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import FaultSource, write_store


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Small runs are worth keeping, in small pieces."""
    monkeypatch.setattr(grouping, "WORTH_KEEPING", 1)
    monkeypatch.setattr(grouping, "TOGETHER", 3)
    monkeypatch.setattr(prices, "WORTH_KEEPING", 1)
    monkeypatch.setattr(prices, "PIECE", 10)
    for name, value in {"WORTH_KEEPING": 1, "STRIDE": 4, "CHUNK": 8, "PIECE": 16}.items():
        monkeypatch.setattr(costs, name, value)
    monkeypatch.setattr(run_audit, "RENDERED_TOGETHER", 16)


@pytest.fixture
def on_ray(monkeypatch):
    """What Ray does, without Ray: tasks last to first, everything as plain data; what was heard."""
    heard = {"sent": [], "received": [], "functions": set()}

    def run(function, message, tasks, *, executor, workers, in_order, files):
        heard["sent"].append(pickle.dumps([message, tasks, files]))
        heard["functions"].add(f"{function.__module__}.{message.get('what', 'audit')}")
        json.dumps([message, list(tasks)])  # no objects in it
        found = {}
        for number in reversed(range(len(tasks))):
            raw = pickle.dumps(function(pickle.loads(pickle.dumps(message)), tasks[number]))
            heard["received"].append(len(raw))
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
    monkeypatch.setattr(plan_cache, "PLACES", 2)
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
        for call in (prepare_run, audit_run):
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
    ]
    for call in calls:
        with pytest.raises(tl.ConfigError, match=told):
            call()
