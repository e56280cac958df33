"""Folders of stores: which snapshot they are, what is no store, what verify and gc see."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from commandline import command
from forge import reseal
from refusals import refused
from toystore import random_shards, toy, write_store

import tokenloom as tl
from tokenloom import cluster
from tokenloom.testing import FaultFiles, tiny


def test_a_missing_store_says_so_and_suggests_the_near_miss(tmp_path):
    write_store(tmp_path / "wiki", [[[1]]])
    refused(lambda: tl.open(tmp_path / "wkii"), tl.StoreNotFound, "wkii", "wiki")
    with pytest.raises(FileNotFoundError):
        tl.open(tmp_path / "nothing")


def test_a_directory_of_other_things_is_not_a_store(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    refused(lambda: tl.open(tmp_path), tl.StoreNotFound, tmp_path)


def test_the_highest_manifest_is_the_store_and_a_damaged_one_is_not_passed_over(tmp_path):
    tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes")
    tl.build([{"text": "b"}], tmp_path / "s", tokenizer="bytes", append=True)
    assert tl.open(tmp_path / "s").num_documents == 2
    assert tl.open(tmp_path / "s", snapshot=1).num_documents == 1
    path = tmp_path / "s/manifest-000002.json"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(tl.StoreCorrupt, match=r"manifest-000002\.json"):
        tl.open(tmp_path / "s")
    refused(lambda: tl.open(tmp_path / "s", snapshot=3), tl.StoreNotFound, 3, "1, 2")


@pytest.mark.parametrize(
    ("version", "kind"), [(1, tl.StoreError), (99, tl.StoreCorrupt), ("2", tl.StoreCorrupt)]
)
def test_a_store_of_another_format_is_refused_by_its_version(tmp_path, version, kind):
    write_store(tmp_path / "s", [[[1]]])
    reseal(tmp_path / "s", manifest=lambda record: record.update(version=version))
    refused(lambda: tl.open(tmp_path / "s"), kind, "manifest-000001.json", version)


def test_unknown_keys_of_a_manifest_are_ignored(tmp_path):
    write_store(tmp_path / "s", [[[1]]])
    reseal(tmp_path / "s", manifest=lambda record: record.update(later_addition={"x": 1}))
    assert tl.open(tmp_path / "s").num_tokens == 1


def test_a_renamed_manifest_is_noticed(tmp_path):
    write_store(tmp_path / "s", [[[1, 2]]])
    (tmp_path / "s/manifest-000001.json").rename(tmp_path / "s/manifest-000002.json")
    refused(lambda: tl.open(tmp_path / "s"), tl.StoreCorrupt, "manifest-000002.json")


@pytest.mark.parametrize("name", ["../shard-00000", "/etc", "shard-0", "shard-00000/..", ""])
def test_a_shard_name_cannot_leave_the_store(tmp_path, name):
    write_store(tmp_path / "s", [[[1, 2]]])
    reseal(tmp_path / "s", manifest=lambda record: record["shards"][0].update(name=name))
    refused(lambda: tl.open(tmp_path / "s"), tl.StoreCorrupt, repr(name))


def test_every_byte_of_a_manifest_is_sealed_and_it_is_plain_json_for_everybody_else(tmp_path):
    write_store(tmp_path / "s", [[[1, 2]]])
    path = tmp_path / "s/manifest-000001.json"
    raw = path.read_bytes()
    body = raw[: raw.rindex(b',\n "sha256"')]
    assert json.loads(raw)["sha256"] == hashlib.sha256(body).hexdigest()
    wrong = [
        raw[:place] + bytes([raw[place] ^ 32]) + raw[place + 1 :] for place in range(0, len(raw), 5)
    ]
    wrong += [raw[:cut] for cut in range(0, len(raw), 40)] + [raw + b"\n"]
    for one in wrong:
        path.write_bytes(one)
        with pytest.raises(tl.StoreCorrupt, match="manifest-000001"):
            tl.open(tmp_path / "s")


def test_verify_passes_on_a_good_store_and_reports_what_it_looked_at(tmp_path):
    store = toy(tmp_path / "s", random_shards(4), columns={"loss_mask": ("uint8", lambda i: i % 2)})
    report = store.verify()
    assert report.ok
    assert (report.shards, report.tokens) == (3, store.num_tokens)
    on_disk = sum(p.stat().st_size for p in (tmp_path / "s").rglob("*") if p.is_file())
    records = sum(
        p.stat().st_size for p in (tmp_path / "s").rglob("*.json") if p.parent.name != "c"
    )
    assert on_disk - records <= report.bytes <= on_disk


def test_gc_removes_temporary_files_and_only_asked_for_more(tmp_path):
    root = tmp_path / "s"
    tl.build([{"text": "a"}], root, tokenizer="bytes")
    tl.build([{"text": "b"}], root, tokenizer="bytes", append=True)
    dead = ".tmp-" + "7" * 32
    (root / dead).mkdir()
    (root / dead / "x").write_text("x")
    write_store(tmp_path / "other", [[[1]], [[2]], [[3]]])
    os.rename(tmp_path / "other/shard-00002", root / "shard-00002")

    def collected(*words):
        return json.loads(command("gc", root, "--json", *words))

    assert collected("--dry-run")["removed"] == [dead]
    assert (root / dead).exists()
    done = collected()
    assert (done["removed"], done["unfinished"]) == ([dead], ["shard-00002"])
    assert collected("--unfinished")["removed"] == ["shard-00002"]
    assert collected()["removed"] == []
    assert tl.open(root).verify().ok
    assert tl.open(root, snapshot=1).num_documents == 1
    assert collected("--old-snapshots", "--pin", "1")["removed"] == []
    assert "manifest-000001.json" in collected("--old-snapshots")["removed"]
    assert tl.open(root).verify().ok
    assert tl.open(root).metadata(0)["_input"]


def test_gc_refuses_while_a_build_is_running(tmp_path):
    write_store(tmp_path / "s", [[[1]]])
    with FaultFiles().lock(tmp_path / "s") as held:
        assert held
        assert str(tmp_path / "s") in command("gc", tmp_path / "s", code=1)
    command("gc", tmp_path / "s")
    command("gc", tmp_path / "nothing", code=1)


ROWS = [
    {
        "id": "a",
        "score": 1,
        "ok": True,
        "tags": ["x", {"y": 1}],
        "big": 2**70,
        "mix": 1,
        "n": 2**60,
    },
    {"id": "b", "score": 0.5, "ok": False, "mix": "one", "n": -1},
    {"id": "ü", "tags": "plain", "only": "here"},
    {},
]


def test_metadata_reads_back_equal_and_in_plain_types_of_parquet(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    records = [{"text": "a", **row, "nothing": None} for row in ROWS]
    store = tl.build(records, tmp_path / "s", tokenizer="bytes", progress=False)
    for number, row in enumerate(ROWS):
        assert store.metadata(number) == {"_input": "rows-0", "_record": number, **row}
    table = pq.read_table(tmp_path / "s/shard-00000/docs.parquet")
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["id"] == kinds["only"] == "string"
    assert (kinds["score"], kinds["ok"], kinds["n"]) == ("double", "bool", "int64")
    assert kinds["tags"] == kinds["mix"] == "string"


WITHOUT_PYARROW = """
import importlib.util, json, sys
real = importlib.util.find_spec
sys.modules["pyarrow"] = sys.modules["pyarrow.parquet"] = None
importlib.util.find_spec = lambda name, *more: None if "pyarrow" in name else real(name, *more)
import tokenloom as tl
rows = json.loads(sys.argv[3])
store = tl.build(rows, sys.argv[1], tokenizer="bytes", progress=False)
assert store.verify(progress=False).ok
print(json.dumps([store.digest, [store.metadata(i) for i in range(len(rows))]]))
print(json.dumps(store.find("b").tolist()))
try:
    tl.open(sys.argv[2]).metadata(0)
except tl.MissingExtra as error:
    print(json.dumps("parquet" in str(error)))
"""


def test_without_pyarrow_a_build_keeps_the_same_metadata(tmp_path):
    records = [{"text": "abc"[: number % 4], **row} for number, row in enumerate(ROWS * 2)]
    with_it = tl.build(records, tmp_path / "a", tokenizer="bytes", progress=False)
    words = [tmp_path / "b", tmp_path / "a", json.dumps(records)]
    command_line = [sys.executable, "-c", WITHOUT_PYARROW, *map(str, words)]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (digest, found), ids, is_named = map(json.loads, done.stdout.splitlines())
    assert list((tmp_path / "b/shard-00000").glob("docs.jsonl*"))
    assert digest == with_it.digest
    assert found == [with_it.metadata(number) for number in range(len(records))]
    assert ids == [1, 5]
    assert is_named is True
    again = tl.open(tmp_path / "b")
    assert [again.metadata(number) for number in (7, 0)] == [found[7], found[0]]
    raw = bytearray(next((tmp_path / "b/shard-00000").glob("docs.jsonl*")).read_bytes())
    raw[len(raw) // 2] ^= 1
    next((tmp_path / "b/shard-00000").glob("docs.jsonl*")).write_bytes(raw)
    with pytest.raises(tl.StoreCorrupt, match=r"docs\.jsonl"):
        tl.open(tmp_path / "b").metadata(0)
    assert not tl.open(tmp_path / "b").check(progress=False).ok


def test_metadata_of_several_threads_is_that_of_their_documents(tmp_path):
    """Two groups of rows were once mixed up: the rows of one under the number of the other."""
    count = 2 * 8192 + 5
    rows = [{"input_ids": [1], "id": str(i)} for i in range(count)]
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=2, progress=False)
    wrong, switch = [], sys.getswitchinterval()

    def read(offset):
        for turn in range(60):
            document = (offset + turn * 8192) % count
            if store.metadata(document)["id"] != str(document):
                wrong.append(document)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(7 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert wrong == []


def test_a_build_that_died_before_its_first_shard_is_told_as_unfinished(tmp_path):
    (tmp_path / ".lock").touch()
    refused(lambda: tl.open(tmp_path), tl.StoreNotFound, "incomplete", tmp_path)
    (tmp_path / "notes.txt").touch()
    assert "incomplete" not in refused(lambda: tl.open(tmp_path), tl.StoreNotFound, tmp_path)


def test_parts_of_a_build_without_a_finish_are_told_as_unfinished(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    cluster.build_part([str(tmp_path / "in.jsonl")], tmp_path / "s", "1/2", tokenizer="bytes")
    refused(lambda: tl.open(tmp_path / "s"), tl.StoreNotFound, "incomplete", "--finish")


# -- what verify and the records say -----------------------------------------------------------


def problems_of(root):
    return "\n".join(tl.open(root).check(progress=False).problems)


@pytest.fixture
def built(tmp_path):
    rows = [{"text": f"text {n}", "id": f"d{n}"} for n in range(9)]
    tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    return tmp_path / "s"


def test_a_shard_of_another_snapshot_is_a_problem(built):
    reseal(built, shard=lambda record: record.update(snapshot=7))
    assert "shard-00000" in problems_of(built)


def test_a_column_that_is_described_as_another_is_a_problem(built):
    other = (built / "shard-00000/offsets/zarr.json").read_bytes()
    reseal(built, files={"input_ids/zarr.json": other})
    assert "shard-00000/input_ids/zarr.json" in problems_of(built)


def test_a_list_of_inputs_that_was_changed_is_corrupt(built):
    path = built / "inputs-000001.json"
    raw = path.read_bytes()
    for wrong in (raw + b"\n", raw[:-1] + b" "):
        path.write_bytes(raw)
        store = tl.open(built)
        path.write_bytes(wrong)
        assert path.name in "\n".join(store.check(progress=False).problems)
        if len(wrong) == len(raw):
            with pytest.raises(tl.StoreCorrupt, match=path.name):
                _ = store.inputs


@pytest.mark.parametrize("name", ["manifest-000001.json", "shard-00000/shard.json"])
def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(built, name):
    (built / name).unlink()
    os.mkfifo(built / name)
    with pytest.raises(tl.StoreError, match=re.escape(name)):
        tl.open(built).document(0)


def test_a_pipe_in_the_place_of_the_lock_is_refused(built):
    (built / ".lock").unlink()
    os.mkfifo(built / ".lock")
    with pytest.raises(tl.StoreError, match=r"\.lock"):
        tl.build([{"text": "b"}], built, tokenizer="bytes", append=True, progress=False)


def test_a_disk_without_hard_links_gets_a_store_all_the_same(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    expected = tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes", progress=False)
    monkeypatch.setattr(os, "link", refuse)
    store = tl.build([{"text": "a"}], tmp_path / "t", tokenizer="bytes", progress=False)
    assert store.digest == expected.digest
    assert store.verify(progress=False).ok


# -- records and columns -----------------------------------------------------------------------


def nested(depth):
    return [nested(depth - 1)] if depth else 7


@pytest.mark.parametrize(
    ("more", "named"),
    [({"_input": "x"}, "'_input'"), ({"_record": 1}, "'_record'"), ({"deep": nested(300)}, "deep")],
    ids=["input", "record", "deep"],
)
def test_metadata_that_cannot_be_kept_is_refused_by_its_key(tmp_path, more, named):
    rows = [{"text": "a"}, {"text": "b", **more}]
    build = {"tokenizer": "bytes", "progress": False}
    refused(lambda: tl.build(rows, tmp_path / "s", **build), tl.InputError, named)
    store = tl.build(rows, tmp_path / "t", **build, on_error="skip")
    assert store.num_documents == 1
    kept = tl.build(rows, tmp_path / "u", **build, metadata_keys=[])
    assert kept.num_documents == 2


def test_tokens_that_both_loss_columns_train_on_are_counted(tmp_path):
    columns = {
        "loss_mask": ("uint8", lambda ids: ids % 2),
        "loss_weights": ("float32", lambda ids: (ids % 3) / 2),
    }
    store = toy(tmp_path / "s", random_shards(3), columns=columns)
    ids = store.tokens(0, store.num_tokens)
    both = (ids % 2 > 0) & (ids % 3 > 0)
    for limits in ({}, {"loss_chunk_tokens": 7}):
        with tiny(**limits):
            assert json.loads(command("info", store.path, "--json"))["trained"] == both.sum()
            run = tl.open(store.path).windows(16)
            for batch in tl.Loader(run, 4, untrained="zero"):
                assert batch.step_loss_tokens == np.count_nonzero(batch.loss_mask)
