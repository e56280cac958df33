"""Exports: what is in them, what is refused, what is left out, and that they appear whole."""

import json
import struct

import numpy as np
import pyarrow.parquet as pq
import pytest
from exports import COLUMNS, documents_in, plain_store, same
from refusals import refused
from toystore import toy

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.exchange import export, to_levanter, to_mds, to_parquet
from tokenloom.testing import FaultFiles, tiny

FORMATS = ("megatron", "levanter", "parquet", "mds", "npy")

RECORDS = [
    {"input_ids": [1, 2, 3, 4], "loss_mask": [0, 1, 1, 0], "id": "a", "n": 1},
    {"input_ids": [5], "loss_mask": [1], "id": "b", "n": 2.5},
    {"input_ids": [70_000, 8], "loss_mask": [1, 0], "id": "c", "tags": ["x", "ü"]},
]


def built(folder, records=RECORDS, **options):
    options = {"tokenizer": None, "vocab_size": 100_000, "columns": ["loss_mask"], **options}
    return tl.build(records, folder, id_key="id", **options)


@pytest.fixture
def small_files(monkeypatch):
    """Files of an export end after a few tokens."""
    monkeypatch.setattr(to_parquet, "FILE_TOKENS", 50)
    monkeypatch.setattr(to_mds, "SHARD_BYTES", 200)
    monkeypatch.setattr(to_levanter, "INNER", 4)
    monkeypatch.setattr(to_levanter, "CHUNKS", 3)
    with tiny(export_chunk_tokens=4):
        yield


@pytest.mark.parametrize("size", ["usual", "small_files"])
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("vocab", [1000, 100_000])
def test_an_export_holds_every_document_in_order(tmp_path, request, to, vocab, size):
    store = plain_store(tmp_path / "s", vocab=vocab, empty=to != "mds")
    if size == "small_files":
        request.getfixturevalue(size)
    written = export(store, tmp_path / "out", to=to)
    assert size == "usual" or to in ("megatron", "npy") or len(written.files) > 3
    assert same(documents_in(tmp_path / "out", to), store.documents(range(len(store))))
    assert (written.documents, written.tokens) == (store.num_documents, store.num_tokens)
    assert written.left_out == {}
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.*")}
    assert {name for name in found if (tmp_path / "out" / name).is_file()} <= written.files.keys()
    assert all((tmp_path / "out" / n).stat().st_size == b for n, b in written.files.items())


@pytest.mark.parametrize("to", ["levanter", "parquet", "mds", "npy"])
def test_an_export_holds_the_columns_of_a_store(tmp_path, to):
    shards = [[[1, 2, 3], [4]], [[5, 6]]]
    store = toy(tmp_path / "s", shards, columns=COLUMNS)
    export(store, tmp_path / "out", to=to)
    for name in COLUMNS:
        want = store.documents(range(3), name)
        assert same(documents_in(tmp_path / "out", to, name), want), name


def test_megatron_files_are_as_published(tmp_path):
    store = toy(tmp_path / "s", [[[1, 2, 3], [], [70_000]]], vocab_size=100_000)
    export(store, tmp_path / "out", to="megatron")
    raw = (tmp_path / "out/text_document.idx").read_bytes()
    assert raw[:9] == b"MMIDIDX\0\0"
    assert struct.unpack("<QBQQ", raw[9:34]) == (1, 4, 3, 4)  # int32: ids are below 2^31
    assert np.frombuffer(raw[34:46], "<i4").tolist() == [3, 0, 1]
    assert np.frombuffer(raw[46:70], "<i8").tolist() == [0, 12, 12]
    assert np.frombuffer(raw[70:], "<i8").tolist() == [0, 1, 2, 3]
    tokens = np.fromfile(tmp_path / "out/text_document.bin", "<i4")
    assert tokens.tolist() == [1, 2, 3, 70_000]


def test_parquet_keeps_metadata_as_columns_of_their_own_kind(tmp_path):
    store = built(tmp_path / "s")
    export(store, tmp_path / "out", to="parquet")
    table = pq.read_table(tmp_path / "out/part-00000.parquet")
    assert table["id"].to_pylist() == ["a", "b", "c"]
    assert table["n"].to_pylist() == [1.0, 2.5, None]
    assert [json.loads(one or "null") for one in table["tags"].to_pylist()] == [
        *(None, None),
        ["x", "ü"],
    ]
    assert "_record" not in table.column_names  # which input a document came from stays here
    told = json.loads(table.schema.metadata[b"tokenloom"])
    assert (told["vocab_size"], told["digest"]) == (100_000, store.digest)


def test_mds_keeps_metadata_as_json(tmp_path):
    export(built(tmp_path / "s"), tmp_path / "out", to="mds")
    rows = [json.loads(one) for one in documents_in(tmp_path / "out", "mds", "metadata")]
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert rows[2]["tags"] == ["x", "ü"]


# -- what a format cannot hold ---------------------------------------------------------------


def test_what_a_format_cannot_hold_is_refused_with_the_first_document(tmp_path):
    store = built(tmp_path / "s")
    refused(
        lambda: export(store, tmp_path / "out", to="megatron"),
        tl.ConfigError,
        *(tmp_path / "s", "megatron", "loss_mask", "id, n"),
    )
    empty = toy(tmp_path / "e", [[[1], [], [2], []]])
    refused(lambda: export(empty, tmp_path / "out", to="mds"), tl.ConfigError, "mds", 2, 1)
    rows = [{"text": "a"}, {"text": "b", "input_ids": 1}]
    clash = tl.build(rows, tmp_path / "c", tokenizer="bytes")
    refused(lambda: export(clash, tmp_path / "out", to="parquet"), tl.ConfigError, "input_ids", 1)
    refused(lambda: export(empty, tmp_path / "out", to="megatrn"), tl.ConfigError, "to", "megatrn")
    assert not (tmp_path / "out").exists()


def test_a_lossy_export_counts_what_it_left_out(tmp_path):
    store = built(tmp_path / "s")
    written = export(store, tmp_path / "out", to="megatron", lossy=True)
    assert written.left_out == {"the column loss_mask": 3, "metadata (id, n)": 3}
    empty = toy(tmp_path / "e", [[[1], [], [2]], [[], [3]]])
    written = export(empty, tmp_path / "mds", to="mds", lossy=True)
    assert (written.documents, written.left_out) == (3, {"empty documents": 2})
    assert same(documents_in(tmp_path / "mds", "mds"), [[1], [2], [3]])


def test_the_weight_of_the_first_token_has_no_place_in_levanters_cache(tmp_path):
    columns = {"loss_weights": ("float32", lambda ids: ids / 8)}
    store = toy(tmp_path / "s", [[[], [4, 2]], [[6]]], columns=columns)
    refused(lambda: export(store, tmp_path / "out", to="levanter"), tl.ConfigError, 1)
    written = export(store, tmp_path / "out", to="levanter", lossy=True)
    assert written.left_out == {"the loss weight of the first token": 1}
    again = tl.open(tmp_path / "out").documents(range(3), "loss_weights")
    assert same(again, [[], [0, 0.25], [0.75]])


# -- how it appears --------------------------------------------------------------------------


@pytest.mark.parametrize("to", FORMATS)
def test_an_export_that_fails_at_any_call_leaves_nothing(tmp_path, to):
    store = plain_store(tmp_path / "s", documents=3, empty=False)
    counting = FaultFiles()
    export(store, tmp_path / "whole", to=to, files=counting)
    calls = len(counting.calls)
    assert calls > 5
    for at in range(1, calls, 1 + calls // 12):
        files = FaultFiles(at=at)
        target = tmp_path / f"out-{at}"
        with pytest.raises(OSError):
            export(store, target, to=to, files=files)
        renamed = any(call.name == "rename_new" for call in files.calls[: at - 1])
        assert target.exists() == renamed  # after the last step only a sync can fail
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".tmp-")]
    with pytest.raises(OSError):  # as if killed: only a name that nobody reads is left
        export(store, tmp_path / "out", to=to, files=FaultFiles(at=calls // 2, action="stop"))
    assert not (tmp_path / "out").exists()
    left = {p.name for p in tmp_path.iterdir()} - {"s", "whole"}
    assert all(name.startswith((".tmp-", "out-")) for name in left)
    export(store, tmp_path / "out", to=to)


def test_an_export_never_replaces_what_is_there(tmp_path):
    store = plain_store(tmp_path / "s", documents=2)
    (tmp_path / "out").mkdir()
    export(store, tmp_path / "out", to="npy")  # an empty folder is free
    before = sorted(p.name for p in (tmp_path / "out").iterdir())
    (tmp_path / "file").write_text("mine")
    for name in ("out", "file"):
        refused(lambda name=name: export(store, tmp_path / name, to="npy"), tl.StoreExists, name)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == before


def test_the_command_exports_and_says_what_it_left_out(tmp_path, capsys):
    built(tmp_path / "s")
    where, out = str(tmp_path / "s"), str(tmp_path / "out")
    assert main(["export", where, out, "--to", "megatron"]) == 2
    assert "--lossy" in capsys.readouterr().err
    assert main(["export", where, out, "--to", "megatron", "--lossy"]) == 0
    _, *left = capsys.readouterr().out.splitlines()
    assert len(left) == 2
    assert all("3 documents" in line for line in left)
    assert main(["export", where, out + "2", "--to", "npy", "--lossy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 7
