import json
import os

import pytest
from toystore import random_shards, toy, write_store

import tokenloom as tl
from tokenloom.ingest.target import collect
from tokenloom.store import format as fmt
from tokenloom.store.metadata import DocumentsReader, encode_documents, json_line


def test_a_missing_store_says_so_and_suggests_the_near_miss(tmp_path):
    write_store(tmp_path / "wiki", [[[1]]])
    with pytest.raises(
        tl.StoreNotFound, match=r"wkii: there is no token store.*Did you mean.*wiki"
    ):
        tl.open(tmp_path / "wkii")
    with pytest.raises(FileNotFoundError):
        tl.open(tmp_path / "nothing")


def test_a_directory_of_other_things_is_not_a_store(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(tl.StoreNotFound, match="not a token store"):
        tl.open(tmp_path)


def test_the_highest_manifest_is_the_store_and_a_damaged_one_is_not_passed_over(tmp_path):
    tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes")
    tl.build([{"text": "b"}], tmp_path / "s", tokenizer="bytes", append=True)
    assert tl.open(tmp_path / "s").num_documents == 2
    assert tl.open(tmp_path / "s", snapshot=1).num_documents == 1
    path = tmp_path / "s/manifest-000002.json"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(tl.StoreCorrupt, match=r"manifest-000002\.json"):
        tl.open(tmp_path / "s")
    with pytest.raises(tl.StoreNotFound, match="Allowed: 1, 2"):
        tl.open(tmp_path / "s", snapshot=3)


def test_a_manifest_of_a_newer_format_is_refused_by_its_version(tmp_path):
    manifest = write_store(tmp_path / "s", [[[1]]]).reader.manifest
    newer = json.loads(fmt.canonical(manifest)) | {"version": 3}
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(newer))
    with pytest.raises(tl.StoreCorrupt, match=r"version is 3.*newer version"):
        tl.open(tmp_path / "s")


def test_a_store_of_format_1_is_refused_with_one_sentence(tmp_path):
    manifest = write_store(tmp_path / "s", [[[1]]]).reader.manifest
    older = json.loads(fmt.canonical(manifest)) | {"version": 1}
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(older))
    with pytest.raises(tl.StoreError) as caught:
        tl.open(tmp_path / "s")
    assert not isinstance(caught.value, tl.StoreCorrupt)
    assert str(caught.value) == (
        f"{tmp_path}/s/manifest-000001.json: it is of store format 1, this version reads format 2; "
        "build the store again from its inputs."
    )


def test_unknown_keys_of_a_manifest_are_ignored(tmp_path):
    manifest = write_store(tmp_path / "s", [[[1]]]).reader.manifest
    more = json.loads(fmt.canonical(manifest)) | {"later_addition": {"x": 1}}
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(more))
    assert tl.open(tmp_path / "s").num_tokens == 1


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


def test_the_digest_is_of_the_content_and_not_of_the_files(tmp_path):
    shards = random_shards(6)
    a = toy(tmp_path / "a", shards)
    b = toy(tmp_path / "b", shards, inner=32)
    assert a.digest == b.digest
    assert a.manifest_sha256 != b.manifest_sha256
    shards[1][3].append(1)
    assert toy(tmp_path / "c", shards).digest != a.digest


def test_moving_a_token_over_a_document_border_changes_the_digest(tmp_path):
    a = toy(tmp_path / "a", [[[1, 2], [3]]])
    b = toy(tmp_path / "b", [[[1], [2, 3]]])
    assert a.tokens(0, 3).tolist() == b.tokens(0, 3).tolist()
    assert a.digest != b.digest


def test_gc_removes_temporary_files_and_only_asked_for_more(tmp_path):
    root = tmp_path / "s"
    tl.build([{"text": "a"}], root, tokenizer="bytes")
    tl.build([{"text": "b"}], root, tokenizer="bytes", append=True)
    dead = ".tmp-" + "7" * 32
    (root / dead).mkdir()
    (root / dead / "x").write_text("x")
    write_store(tmp_path / "other", [[[1]], [[2]], [[3]]])
    os.rename(tmp_path / "other/shard-00002", root / "shard-00002")
    planned = collect(root, dry_run=True)
    assert planned.removed == (dead,)
    assert (root / dead).exists()
    done = collect(root)
    assert done.removed == (dead,)
    assert done.unfinished == ("shard-00002",)
    assert collect(root, unfinished=True).removed == ("shard-00002",)
    assert collect(root).removed == ()
    assert tl.open(root).verify().ok
    assert tl.open(root, snapshot=1).num_documents == 1
    assert collect(root, old_snapshots=True, pinned=[1]).removed == ()
    assert "manifest-000001.json" in collect(root, old_snapshots=True).removed
    assert tl.open(root).verify().ok
    assert tl.open(root).metadata(0)["_input"]


def test_gc_refuses_while_a_build_is_running(tmp_path):
    from tokenloom.store.files import LOCAL

    write_store(tmp_path / "s", [[[1]]])
    with LOCAL.lock(tmp_path / "s") as held:
        assert held
        with pytest.raises(tl.StoreBusy, match="a build is running"):
            collect(tmp_path / "s")
    collect(tmp_path / "s")
    with pytest.raises(tl.StoreNotFound):
        collect(tmp_path / "nothing")


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


@pytest.mark.parametrize("name", ["docs.parquet", "docs.jsonl.zst"])
def test_metadata_reads_back_equal_from_parquet_and_from_the_fallback(name):
    import numpy as np

    lines = [json_line({**row, "nothing": None}) for row in ROWS]
    place = np.arange(len(ROWS))
    raw = encode_documents(name, lines, place * 0 + 3, place + 10)
    reader = DocumentsReader(name, np.frombuffer(raw, np.uint8), len(ROWS), "docs")
    for i, row in enumerate(ROWS):
        assert reader.row(i) == {"_input": 3, "_record": 10 + i, **row}
    with pytest.raises(tl.StoreCorrupt):
        reader.row(len(ROWS) + 10_000)


def test_parquet_columns_have_plain_types_where_values_allow_it():
    import io

    import numpy as np
    import pyarrow.parquet as pq

    lines = [json_line(row) for row in ROWS]
    place = np.arange(len(ROWS))
    table = pq.read_table(io.BytesIO(encode_documents("docs.parquet", lines, place, place)))
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["id"] == kinds["only"] == "string"
    assert (kinds["score"], kinds["ok"], kinds["n"]) == ("double", "bool", "int64")
    assert kinds["tags"] == kinds["big"] == kinds["mix"] == "string"


def test_without_pyarrow_a_build_keeps_the_same_metadata(tmp_path, monkeypatch):
    from tokenloom.store import metadata

    records = [{"text": "a", **ROWS[0]}, {"text": "b", **ROWS[1]}]
    with_it = tl.build(records, tmp_path / "a", tokenizer="bytes")
    monkeypatch.setattr(metadata, "have_pyarrow", lambda: False)
    without = tl.build(records, tmp_path / "b", tokenizer="bytes")
    assert (tmp_path / "b/shard-00000/docs.jsonl.zst").exists()
    origin = {"_input": "rows-0"}
    assert [without.metadata(i) for i in range(2)] == [
        {**origin, "_record": i, **ROWS[i]} for i in range(2)
    ]
    assert with_it.digest == without.digest
    with pytest.raises(tl.MissingExtra, match=r"tokenloom\[parquet\]"):
        tl.open(tmp_path / "a").metadata(0)


def test_a_build_that_died_before_its_first_shard_is_told_as_unfinished(tmp_path):
    (tmp_path / ".lock").touch()
    with pytest.raises(tl.StoreNotFound, match=r"incomplete: 0 shards done.* Run the same build"):
        tl.open(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(tl.StoreNotFound, match="not a token store"):
        tl.open(tmp_path)
