"""Copies into our own format: the same content, the same digest, the same runs; after any kill."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exports import COLUMNS, plain_store, same
from refusals import refused
from toystore import toy

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.exchange import convert, export, holds
from tokenloom.foreign import opened
from tokenloom.foreign.described import Described
from tokenloom.testing import FaultFiles, tiny


def files_of(root):
    return {p.relative_to(root): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def content(store):
    everything = range(len(store))
    found = {name: store.documents(everything, name) for name in store.columns}
    return [store.documents(everything), *found.values()]


@pytest.mark.parametrize("to", ["megatron", "levanter", "parquet", "mds", "npy"])
def test_a_copy_of_an_export_is_the_store_again(tmp_path, to):
    store = plain_store(tmp_path / "s", vocab=70_000, empty=to != "mds")
    export(store, tmp_path / "out", to=to)
    copy = convert(tmp_path / "out", tmp_path / "copy", shard_tokens=50)
    assert copy.digest == store.digest
    assert same(*(content(one)[0] for one in (copy, store)))
    assert len(copy.reader.manifest.shards) > 2
    assert copy.verify().ok
    assert convert(tmp_path / "out", tmp_path / "copy", shard_tokens=50).digest == copy.digest


def test_a_copy_keeps_columns_metadata_and_where_documents_came_from(tmp_path):
    rows = [
        {"input_ids": [1, 2], "loss_mask": [0, 1], "id": "a", "n": 1},
        {"input_ids": [3], "loss_mask": [1], "id": "b", "deep": [1, {"x": "é"}]},
    ]
    options = {"tokenizer": None, "vocab_size": 9, "columns": ["loss_mask"], "id_key": "id"}
    tl.build(rows, tmp_path / "s", **options)
    (tmp_path / "more.jsonl").write_text(json.dumps(dict(rows[0], id="c")) + "\n")
    store = tl.build(str(tmp_path / "more.jsonl"), tmp_path / "s", append=True, **options)
    copy = convert(store, tmp_path / "copy")
    assert copy.digest == store.digest
    assert [copy.metadata(i) for i in range(3)] == [store.metadata(i) for i in range(3)]
    assert copy.find("c").tolist() == [2]
    assert all(same(a, b) for a, b in zip(content(copy), content(store), strict=True))
    export(store, tmp_path / "rows", to="parquet")
    again = convert(tmp_path / "rows", tmp_path / "again")
    assert again.digest == store.digest
    assert again.metadata(1) == {
        "_input": str(tmp_path / "rows"),
        "_record": 1,
        "id": "b",
        "deep": [1, {"x": "é"}],
    }


def test_a_copy_keeps_the_tokenizer(tmp_path):
    store = tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes")
    copy = convert(tmp_path / "s", tmp_path / "copy")
    assert copy.tokenizer.decode(copy.document(0)) == "abc"
    assert copy.tokenizer_identity == store.tokenizer_identity


@pytest.mark.parametrize("to", ["megatron", "parquet"])
def test_a_run_over_the_original_goes_on_over_the_copy_and_back(tmp_path, to):
    rng = np.random.Generator(np.random.PCG64(3))
    documents = [rng.integers(0, 500, n).tolist() for n in rng.integers(1, 60, 80)]
    export(toy(tmp_path / "s", [documents]), tmp_path / "out", to=to)
    original = tl.open(tmp_path / "out")
    copy = convert(original, tmp_path / "copy", shard_tokens=300)
    for lay in (
        lambda one: one.windows(16).block_shuffle(io_block_size=8, window_blocks=4).seed(3),
        lambda one: one.pack(32).shuffle().seed(3),
    ):
        for from_, to_ in ((original, copy), (copy, original)):
            loader, other = (tl.Loader(lay(one), batch_size=4) for one in (from_, to_))
            next(loader)
            other.load_state_dict(loader.state_dict())
            assert np.array_equal(next(loader).tokens, next(other).tokens)


# -- kills -----------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_conversion_that_is_killed_anywhere_ends_with_the_same_bytes(tmp_path, points):
    store = toy(tmp_path / "s", [[[1, 2], [3], [4, 5, 6]], [[7, 8]]], columns=COLUMNS)
    counting = FaultFiles()
    convert(store, tmp_path / "whole", shard_tokens=4, files=counting)
    whole = files_of(tmp_path / "whole")
    calls = len(counting.calls)
    for at in [*range(1, calls, 1 + calls // points), calls - 1]:
        with pytest.raises(OSError):
            convert(
                store,
                tmp_path / "copy",
                shard_tokens=4,
                files=FaultFiles(at=at, action="stop"),
            )
        if not (tmp_path / "copy/manifest-000001.json").exists():
            with pytest.raises(tl.StoreNotFound):
                tl.open(tmp_path / "copy")
        convert(store, tmp_path / "copy", shard_tokens=4)
        assert files_of(tmp_path / "copy") == whole
        shutil.rmtree(tmp_path / "copy")


def test_a_conversion_resumes_after_its_finished_shards(tmp_path):
    store = toy(tmp_path / "s", [[[1, 2], [3, 4], [5, 6], [7, 8]]])
    commits = FaultFiles(only=["rename_new"])
    convert(store, tmp_path / "copy", shard_tokens=2, files=commits)
    assert len(commits.calls) == 4
    (tmp_path / "copy/manifest-000001.json").unlink()
    shutil.rmtree(tmp_path / "copy/shard-00002")
    again = FaultFiles(only=["rename_new"])
    with pytest.raises(tl.StoreError):  # shard 3 is there already: only 2 is written, then refused
        convert(store, tmp_path / "copy", shard_tokens=3, files=again)
    shutil.rmtree(tmp_path / "copy/shard-00003")
    again = FaultFiles(only=["rename_new"])
    assert convert(store, tmp_path / "copy", shard_tokens=2, files=again).digest == store.digest
    assert len(again.calls) == 2


def test_stretches_do_not_decide_the_bytes_of_a_copy(tmp_path, monkeypatch):
    store = plain_store(tmp_path / "s", documents=20)
    convert(store, tmp_path / "one", shard_tokens=70)
    monkeypatch.setattr(holds.portions, "__defaults__", (13,))
    with tiny(export_chunk_tokens=7):
        convert(store, tmp_path / "two", shard_tokens=70)
        assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_a_source_that_changed_while_it_was_read_is_not_published(tmp_path):
    store = plain_store(tmp_path / "s", empty=False)
    export(store, tmp_path / "out", to="megatron")
    opened = tl.open(tmp_path / "out")
    payload = tmp_path / "out/text_document.bin"
    raw = bytearray(payload.read_bytes())
    raw[0] ^= 1
    stamp = payload.stat()
    payload.write_bytes(raw)
    os.utime(payload, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    refused(lambda: convert(opened, tmp_path / "copy"), tl.StoreCorrupt, opened.digest[:12])
    assert not (tmp_path / "copy/manifest-000001.json").exists()


def stopped(path, out, **options):
    """A conversion that stops after its second shard."""
    with pytest.raises(OSError):
        convert(path, out, files=FaultFiles(only=["rename_new"], at=3, action="stop"), **options)
    assert (out / "shard-00001").is_dir()
    assert not (out / "shard-00002").exists()


def test_a_conversion_that_resumes_over_a_changed_source_is_not_published(tmp_path, monkeypatch):
    """Ids that no sample meets: nothing but the finished shards knows what they were."""
    monkeypatch.setattr(opened, "SAMPLE_PLACES", 0)
    export(plain_store(tmp_path / "s", empty=False), tmp_path / "out", to="megatron")
    payload, options = tmp_path / "out/text_document.bin", {"shard_tokens": 50}
    for name, byte in (("copy", 0), ("other", -2)):  # one in a finished shard, one not
        stopped(tmp_path / "out", tmp_path / name, **options)
        raw = bytearray(payload.read_bytes())
        raw[byte] ^= 1
        payload.write_bytes(raw)
    refused(lambda: convert(tmp_path / "out", tmp_path / "copy", **options), tl.StoreCorrupt)
    assert not (tmp_path / "copy/manifest-000001.json").exists()
    made = convert(tmp_path / "out", tmp_path / "other", **options)  # as if nothing had been there
    assert made.digest == tl.open(tmp_path / "out").digest
    convert(tmp_path / "out", tmp_path / "whole", **options)
    assert files_of(tmp_path / "other") == files_of(tmp_path / "whole")


@pytest.mark.parametrize("identity", ["full", "sample"])
def test_metadata_that_changed_under_a_stopped_conversion_is_told(tmp_path, identity):
    """No identity knows metadata."""

    def written(topic):
        rows = [{"input_ids": [i, i + 1], "topic": topic} for i in range(20)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
        return tl.open(tmp_path / "rows.parquet", identity=identity)

    stopped(written("a"), tmp_path / "copy", shard_tokens=4)
    other = written("b")
    refused(lambda: convert(other, tmp_path / "copy", shard_tokens=4), tl.StoreCorrupt, "0 to 1")
    made = convert(written("a"), tmp_path / "copy", shard_tokens=4)  # the control
    assert [made.metadata(i)["topic"] for i in range(20)] == ["a"] * 20


@pytest.mark.parametrize("gone", [False, True])
def test_files_that_were_written_while_a_sample_of_them_was_copied_are_told(tmp_path, gone):
    export(plain_store(tmp_path / "s", empty=False), tmp_path / "out", to="megatron")
    opened = tl.open(tmp_path / "out", identity="sample")
    index = tmp_path / "out/text_document.idx"
    raw = index.read_bytes()
    index.unlink()
    if not gone:
        index.write_bytes(raw)
    refused(lambda: convert(opened, tmp_path / "copy"), tl.StoreCorrupt, index.name)
    assert not (tmp_path / "copy/manifest-000001.json").exists()
    index.write_bytes(raw)
    assert convert(tl.open(tmp_path / "out", identity="sample"), tmp_path / "copy").verify().ok


# -- seals -----------------------------------------------------------------------------------


def by_path(path, out, _):
    return convert(path, out).digest


def by_command(path, out, said):
    words = [word for name, value in said.items() for word in (f"--{name}", value)]
    if main(["convert", str(path), str(out), *words, "--quiet", "--debug"]) == 0:
        return tl.open(out).digest
    return None


def by_named_seal(path, out, said):
    return convert(tl.open(path, cache_bytes=0, **said), out).digest


@pytest.mark.parametrize(
    ("way", "elsewhere"), [(by_path, False), (by_command, True), (by_named_seal, True)]
)
def test_a_flipped_bit_of_sealed_files_is_never_copied(tmp_path, monkeypatch, way, elsewhere):
    # files so large that no sample of bytes meets the bit
    monkeypatch.setattr(Described, "sample_of_bytes", lambda _: "of other bytes")
    store = plain_store(tmp_path / "s", empty=False)
    path = tmp_path / "out/text_document"
    export(store, tmp_path / "out", to="megatron")
    payload = tmp_path / "out/text_document.bin"
    whole = payload.read_bytes()
    changed = bytearray(whole)
    changed[100] ^= 1
    payload.write_bytes(changed)
    assert way(path, tmp_path / "unsealed", {}) != store.digest  # the control: nothing can tell
    payload.write_bytes(whole)
    said = {"seal": str(tmp_path / "my.seal")} if elsewhere else {}
    to = ["--to", said["seal"]] if elsewhere else []
    assert main(["seal", str(path), *to, "--quiet"]) == 0
    assert way(path, tmp_path / "whole", said) == store.digest
    payload.write_bytes(changed)
    refused(lambda: way(path, tmp_path / "copy", said), tl.StoreCorrupt)
    assert not (tmp_path / "copy/manifest-000001.json").exists()


def test_a_seal_that_is_not_there_is_refused_by_the_command(tmp_path, capsys):
    export(plain_store(tmp_path / "s"), tmp_path / "out", to="megatron")
    words = ["convert", str(tmp_path / "out"), str(tmp_path / "copy")]
    assert main([*words, "--seal", str(tmp_path / "nosuch.seal")]) != 0
    assert "nosuch.seal" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()
    assert main(words) == 0  # the control


def test_a_conversion_never_replaces_what_is_there(tmp_path):
    store = plain_store(tmp_path / "s")
    convert(store, tmp_path / "copy")
    other = plain_store(tmp_path / "o", seed=9)
    refused(lambda: convert(other, tmp_path / "copy"), tl.StoreExists)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/note.txt").write_text("mine")
    refused(lambda: convert(store, tmp_path / "mine"), tl.StoreExists, "note.txt")


def test_the_command_converts(tmp_path, capsys):
    store = plain_store(tmp_path / "s")
    export(store, tmp_path / "out", to="megatron")
    where, out = str(tmp_path / "out"), str(tmp_path / "copy")
    assert main(["convert", where, out, "--vocab-size", "1000", "--shard-tokens", "99"]) == 0
    assert store.digest[:16] in capsys.readouterr().out
    assert tl.open(out).vocab_size == 1000
    assert main(["convert", where, out, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "StoreExists"


def test_ids_and_metadata_of_foreign_rows_choose_what_they_choose_in_a_copy(tmp_path):
    rows = [{"input_ids": [i, i + 1], "id": f"d{i}", "topic": "ab"[i % 2]} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    there = tl.open(tmp_path / "rows.parquet")
    copy = convert(there, tmp_path / "copy")
    for store in (there, copy):
        assert store.find("d7").tolist() == [7]
        assert store.find("no such").tolist() == []
    assert there.select(doc_key="topic==b", num_docs=20).indices.tolist() == list(range(1, 40, 2))
    halves = [store.split({"a": 0.5, "b": 0.5}) for store in (there, copy)]
    chosen = [half["a"].indices.tolist() for half in halves]
    assert chosen[0] == chosen[1]
    assert 0 < len(halves[0]["a"].indices) < 40
