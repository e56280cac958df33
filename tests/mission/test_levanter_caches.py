"""Caches that Levanter wrote open in place, as its own reader sees them; damaged ones do not."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st
from levanterfiles import write_cache, write_flat

import tokenloom as tl
from tokenloom.testing import write_store

CACHES = Path(__file__).parents[1] / "golden/levanter_caches"
NAMES = ["text_int32", "chat_two_leaves", "prebuilt_weights", "sharded_layout"]


def sha256(values, dtype="<i8"):
    return hashlib.sha256(np.ascontiguousarray(values, dtype).tobytes()).hexdigest()


def line(store, column=None):
    """All values of a column, document after document."""
    return np.concatenate(store.documents(range(len(store)), column))


@pytest.fixture(params=NAMES)
def cache(request):
    path = CACHES / request.param
    return tl.open(path), json.loads((path / "expected.json").read_text(encoding="utf-8"))


def test_documents_are_those_that_levanter_wrote(cache):
    store, expected = cache
    assert len(store) == expected["num_docs"]
    assert store.num_tokens == expected["total_tokens"]
    assert sha256(line(store)) == expected["sha256_int64_le"]
    hashes = expected["leaves"]["input_ids"]["doc_sha256_int64_le"]
    assert [sha256(store.document(n)) for n in range(len(store))] == hashes


@pytest.mark.filterwarnings("ignore:.*drift across io blocks")
def test_windows_are_the_sequences_that_levanter_reads(cache):
    store, expected = cache
    for seq_len, wanted in expected["fixed_length_sequences"].items():
        run = store.windows(int(seq_len))
        assert len(run) == wanted["length"]
        rows = run.batch(range(len(run))).tokens
        assert sha256(rows) == wanted["sha256_int64_le_of_all_rows"]


def test_masks_of_the_assistant_are_a_loss_mask():
    path = CACHES / "chat_two_leaves"
    store = tl.open(path)
    expected = json.loads((path / "expected.json").read_text(encoding="utf-8"))
    assert store.columns == {"loss_mask": "uint8"}
    leaf = expected["leaves"]["assistant_masks"]
    assert sha256(line(store, "loss_mask")) == leaf["sha256_int64_le"]
    row = store.windows(64)[3]  # cell i asks for token i + 1, which must be the assistant's
    mask = line(store, "loss_mask")[3 * 64 : 4 * 64].astype(bool)
    trained = row.loss_mask[0]
    assert trained.any()
    assert not (trained[:-1] & ~mask[1:]).any()


def test_loss_weights_are_those_of_the_prediction_of_a_token():
    """Levanter's weight at a token is for the prediction of the next one."""
    path = CACHES / "prebuilt_weights"
    store = tl.open(path)
    expected = json.loads((path / "expected.json").read_text(encoding="utf-8"))
    found = line(store, "loss_weights")
    assert found.dtype == np.float32
    assert found[0] == 0
    theirs = np.asarray(zarr_read(path / "loss_weights/data", len(found)))
    assert sha256(theirs, "<f4") == expected["leaves"]["loss_weights"]["sha256_float32_le"]
    assert found[1:].tolist() == theirs[:-1].tolist()


def zarr_read(folder, elements):
    """What TensorStore reads."""
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    return ts.open(spec, open=True).result()[:elements].read().result()


def test_the_copy_of_a_cache_has_its_digest_and_runs_go_on_over_it(tmp_path):
    """A store of ours with the same documents: one digest, so states load over either."""
    store = tl.open(CACHES / "sharded_layout")
    ids = [store.document(n).tolist() for n in range(len(store))]
    write_store(tmp_path / "copy", [ids[:9], ids[9:]], vocab_size=32_000)
    copy = tl.open(tmp_path / "copy")
    assert copy.digest == store.digest
    one, other = (each.windows(16).shuffle().seed(3) for each in (store, copy))
    loader = tl.Loader(one, batch_size=4)
    next(loader)
    again = tl.Loader(other, batch_size=4)
    again.load_state_dict(loader.state_dict())
    assert next(again).tokens.tolist() == next(loader).tokens.tolist()


def test_info_says_what_it_is_and_that_nothing_guards_it(caplog):
    with caplog.at_level("INFO", "tokenloom"):
        store = tl.open(CACHES / "text_int32")
    assert store.windows(8).describe()["store"]["path"].endswith("text_int32")
    assert tl.open(CACHES / "text_int32" / "shard_ledger.json").digest == store.digest


DTYPES = ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_dtype_codec_and_layout_gives_the_documents_back(data, tmp_path_factory):
    """With chunks of zeros that are not stored, empty documents, documents over several files."""
    root = tmp_path_factory.mktemp("cache") / "cache"
    ids = st.lists(st.sampled_from([0, 0, 0, 1, 7, 127]), max_size=40)
    rows = data.draw(st.lists(ids, min_size=1, max_size=9))
    shards = data.draw(st.sampled_from([1, 1, 3])) if len(rows) >= 3 else 1
    dtype = data.draw(st.sampled_from(DTYPES))
    codec = data.draw(st.sampled_from(["blosc", "zstd", "zstd+crc32c", "none"]))
    masks = [[(one + n) % 2 for n, one in enumerate(row)] for row in rows]
    weights = [[one / 4 for one in row] for row in rows]
    leaves = {"input_ids": rows, "assistant_masks": masks}
    if data.draw(st.booleans()):
        leaves["loss_weights"] = weights
    dtypes = {
        "input_ids": dtype,
        "assistant_masks": data.draw(st.sampled_from(["int32", "bool", "uint8"])),
        "loss_weights": data.draw(st.sampled_from(["float32", "float64", "float16"])),
    }
    counts = data.draw(st.booleans())
    write_cache(root, leaves, dtypes=dtypes, shards=shards, codec=codec, counts=counts)
    identity = "sample" if data.draw(st.booleans()) else "full"
    store = tl.open(root, identity=identity, missing="zeros")  # rows may be nothing but zeros
    assert [store.document(n).tolist() for n in range(len(store))] == rows
    flat = [one for row in rows for one in row]
    assert line(store, "loss_mask").tolist() == [one for row in masks for one in row]
    if "loss_weights" in leaves:
        assert line(store, "loss_weights").tolist() == [0.0, *(one / 4 for one in flat)][:-1]
    if flat and codec == "blosc" and shards == 1:  # a control of what writes these caches
        assert zarr_read(root / "input_ids/data", len(flat)).tolist() == flat


@pytest.mark.parametrize("shards", [1, 2])
def test_leaves_that_are_not_read_are_told(tmp_path, shards, caplog):
    caplog.set_level("INFO")
    rows = [[1, 2], [3]]
    write_cache(tmp_path / "c", {"input_ids": rows, "teacher_ids": rows}, shards=shards)
    assert tl.open(tmp_path / "c").columns == {}
    assert "teacher_ids" in caplog.text


def test_what_was_written_after_the_last_commit_is_ignored(tmp_path):
    """A crash leaves values and offsets beyond `offsets[0]` rows."""
    root = write_cache(tmp_path / "cache", {"input_ids": [[1, 2, 3], [4, 5]]})
    shutil.rmtree(root / "input_ids/offsets")
    shutil.rmtree(root / "input_ids/data")
    write_flat(root / "input_ids/offsets", np.array([2, 3, 5, 9, 12], np.int64))
    write_flat(root / "input_ids/data", np.array([1, 2, 3, 4, 5, 6, 7, 8, 9], np.int32))
    store = tl.open(root)
    assert [store.document(n).tolist() for n in range(len(store))] == [[1, 2, 3], [4, 5]]


def test_a_folder_of_several_caches_names_them(tmp_path):
    for name in ("train", "web/train", "web/validation"):
        write_cache(tmp_path / "all" / name, {"input_ids": [[1, 2]] * 3}, shards=3)
    with pytest.raises(tl.StoreNotFound) as raised:
        tl.open(tmp_path / "all")
    assert "train, web/train, web/validation" in str(raised.value)


# -- files that are missing ----------------------------------------------------------------------
def test_tensorstore_writes_no_file_of_zeros(tmp_path):
    """Why a missing file can be meant."""
    write_flat(tmp_path / "a", np.ones(96, np.int32))
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "a")}}
    ts.open(spec, open=True).result()[32:64].write(np.zeros(32, np.int32)).result()
    assert sorted(one.name for one in (tmp_path / "a/c").iterdir()) == ["0", "2"]


ROWS = [[1] * 40, [2] * 50, [3] * 6]  # three files of 32 ids


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_missing_file_of_ids_is_refused_unless_it_is_said_to_be_zeros(tmp_path, shards, lost):
    root = write_cache(tmp_path / "c", {"input_ids": ROWS}, shards=shards)
    right = line(tl.open(root)).tolist()
    files = sorted(root.glob("**/input_ids/data/c/*"))[:lost]
    for file in files:
        file.unlink()
    with pytest.raises(tl.StoreCorrupt) as raised:
        tl.open(root)
    assert str(raised.value).startswith(str(files[0]))
    assert "missing=" in str(raised.value)
    store = tl.open(root, missing="zeros")
    found = line(store).tolist()
    assert len(found) == len(right)
    assert set(found) == {0, *right[32 * lost :]}
    again = tl.from_config(store.windows(8).describe())
    assert again.batch([0]).tokens[0].tolist() == found[:8]
    assert again.fingerprint == store.windows(8).fingerprint


def test_commands_report_missing_files(tmp_path, cli):
    masks = [[0] * len(row) for row in ROWS]
    leaves = {"input_ids": ROWS, "assistant_masks": masks}
    root = str(write_cache(tmp_path / "c", leaves))  # masks of zeros are in no file
    for name in ("verify", "info"):
        (line,) = [one for one in cli(name, root).splitlines() if "assistant_masks" in one]
        assert "96" in line  # values that are read as 0
    (tmp_path / "c/input_ids/data/c/1").unlink()
    assert "input_ids/data/c/1" in cli("verify", root, code=1)
    (line,) = [
        one for one in cli("info", root, "--missing", "zeros").splitlines() if "input_ids" in one
    ]
    assert "32" in line
    whole = write_cache(tmp_path / "d", {"input_ids": ROWS})
    assert "input_ids" not in cli("info", whole)  # the control


def test_what_is_missing_is_said_of_caches_of_levanter_alone(tmp_path):
    np.arange(9, dtype=np.uint16).tofile(tmp_path / "a.bin")
    with pytest.raises(tl.ConfigError, match="flat"):
        tl.open(tmp_path / "a.bin", dtype="uint16", missing="zeros")
    with pytest.raises(tl.ConfigError, match=r"missing: .*'ones'.*zeros"):
        tl.open(tmp_path / "a.bin", dtype="uint16", missing="ones")


# -- damaged and hostile caches ------------------------------------------------------------------
def changed(path, **fields):
    """Other fields in a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.fixture
def toy(tmp_path):
    rows = [[1, 2, 3], [], [4, 5, 6, 7, 8, 9], [1] * 40]
    return write_cache(tmp_path / "toy", {"input_ids": rows})


@pytest.fixture
def parts(tmp_path):
    rows = [[1, 2, 3], [9], [4, 5, 6, 7, 8, 9]]
    return write_cache(tmp_path / "parts", {"input_ids": rows}, shards=3)


LEDGERS = [
    ({"is_finished": False}, tl.ConfigError, "still being built"),
    ({"layout": "rows"}, tl.ConfigError, "found layout 'rows'"),
    ({"total_num_rows": 5}, tl.StoreCorrupt, "rows"),
    ({"total_num_rows": -1}, tl.StoreCorrupt, "rows"),
    ({"total_num_rows": "many"}, tl.StoreCorrupt, "total_num_rows"),
    ({"field_counts": {"input_ids": 3}}, tl.StoreCorrupt, "it says 3"),
]
SHARDS = [
    ({"finished_shards": ["part-00000-of-00003"] * 3}, "it names a shard twice"),
    ({"finished_shards": ["../toy"]}, "is not a folder below it"),
    ({"finished_shards": ["/etc"]}, "is not a folder below it"),
    ({"finished_shards": ["s3://bucket/part"]}, "is not a folder below it"),
    ({"finished_shards": []}, "rows"),
    ({"shard_rows": {}}, "rows for shard"),
    ({"field_counts_by_shard": {"part-00001-of-00003": {"input_ids": 7}}}, "not 7"),
]


@pytest.mark.parametrize(("fields", "kind", "words"), LEDGERS)
def test_a_ledger_that_cannot_be_right_is_refused(toy, fields, kind, words):
    changed(toy / "shard_ledger.json", **fields)
    with pytest.raises(kind) as raised:
        tl.open(toy)
    assert words in str(raised.value)


@pytest.mark.parametrize(("fields", "words"), SHARDS)
def test_shards_that_cannot_be_right_are_refused(parts, fields, words):
    changed(parts / "shard_ledger.json", **fields)
    with pytest.raises(tl.StoreCorrupt) as raised:
        tl.open(parts)
    assert words in str(raised.value)


def test_a_ledger_that_is_no_json_is_refused(toy):
    (toy / "shard_ledger.json").write_bytes(b"\xff{" * 50)
    with pytest.raises(tl.StoreCorrupt, match=r"shard_ledger.json"):
        tl.open(toy)


METADATA = [
    ({"zarr_format": 2}, tl.ConfigError, "found codecs"),
    ({"data_type": "float32"}, tl.StoreCorrupt, "allowed: integers"),
    ({"data_type": "complex64"}, tl.StoreCorrupt, "no zarr.json of a flat array"),
    ({"codecs": [{"name": "bytes"}]}, tl.ConfigError, "allowed: sharding_indexed"),
    ({"codecs": []}, tl.StoreCorrupt, "no zarr.json of a flat array"),
    ({"chunk_grid": {"configuration": {"chunk_shape": [31]}}}, tl.StoreCorrupt, "chunks of 8"),
    ({"chunk_grid": {"configuration": {"chunk_shape": [1 << 60]}}}, tl.StoreCorrupt, "chunks of 8"),
    ({"chunk_grid": {"configuration": {"chunk_shape": [4, 4]}}}, tl.StoreCorrupt, "no zarr.json"),
]


@pytest.mark.parametrize(("fields", "kind", "words"), METADATA)
def test_a_zarr_json_that_cannot_be_right_is_refused(toy, fields, kind, words):
    changed(toy / "input_ids/data/zarr.json", **fields)
    with pytest.raises(kind) as raised:
        tl.open(toy)
    assert words in str(raised.value)


@pytest.mark.parametrize("leaf", ["data", "offsets"])
def test_a_file_that_was_cut_short_anywhere_is_refused(toy, leaf):
    file = toy / f"input_ids/{leaf}/c/0"
    whole = file.read_bytes()
    for size in range(0, len(whole), 7):
        file.write_bytes(whole[:size])
        with pytest.raises(tl.StoreCorrupt, match="c/0: "):
            tl.open(toy)


@pytest.mark.parametrize(
    ("at", "value"), [(4, 1 << 31), (4, 4), (8, 1 << 30), (12, 1 << 31), (12, 3)]
)
def test_a_chunk_that_lies_about_its_size_takes_no_memory(toy, at, value):
    """The header of blosc: bytes, bytes of a block, bytes stored."""
    file = toy / "input_ids/data/c/0"
    raw = bytearray(file.read_bytes())
    raw[at : at + 4] = value.to_bytes(4, "little")
    file.write_bytes(raw)
    with pytest.raises(tl.StoreCorrupt, match=r"c/0: .*chunk 0"):
        tl.open(toy)


def test_offsets_that_claim_more_than_is_stored_are_refused(toy):
    """2^40 rows, or 2^50 tokens, of which nothing is there."""
    for offsets in ([4, 3, 3, 9, 1 << 50], [1 << 40, 3, 3, 9, 49]):
        shutil.rmtree(toy / "input_ids/offsets")
        write_flat(toy / "input_ids/offsets", np.array(offsets, np.int64))
        changed(toy / "shard_ledger.json", total_num_rows=offsets[0], field_counts={})
        with pytest.raises(tl.StoreCorrupt, match="toy"):
            tl.open(toy)


def test_offsets_that_run_backwards_are_refused(toy):
    shutil.rmtree(toy / "input_ids/offsets")
    write_flat(toy / "input_ids/offsets", np.array([4, 3, 60, 9, 49], np.int64))
    with pytest.raises(tl.StoreCorrupt, match="toy"):
        tl.open(toy)


def test_values_that_are_no_ids_masks_or_weights_are_refused(tmp_path):
    with pytest.raises(tl.StoreCorrupt, match="-5"):
        tl.open(write_cache(tmp_path / "a", {"input_ids": [[1, -5]]}))
    masks = {"input_ids": [[1, 2]], "assistant_masks": [[0, 2]]}
    with pytest.raises(tl.StoreCorrupt, match=r"assistant_masks.* is 2\b"):
        tl.open(write_cache(tmp_path / "b", masks))
    for number, weight in enumerate((-1.0, np.nan, np.inf)):
        weights = {"input_ids": [[1, 2]], "loss_weights": [[weight, 0]]}
        root = tmp_path / f"c{number}"
        with pytest.raises(tl.StoreCorrupt, match=rf"loss_weights.* is {weight}\b"):
            tl.open(write_cache(root, weights, dtypes={"loss_weights": "float32"}))
    lengths = {"input_ids": [[1, 2], [3]], "assistant_masks": [[0], [1, 1]]}
    with pytest.raises(tl.StoreCorrupt, match="assistant_masks"):
        tl.open(write_cache(tmp_path / "d", lengths))


@pytest.mark.parametrize("leaf", ["assistant_masks", "loss_weights"])
@pytest.mark.parametrize("shard", [0, 2])
def test_a_loss_column_that_one_shard_lacks_is_refused(tmp_path, leaf, shard):
    """Everything would be trained on."""
    rows = [[1, 2], [3], [4, 5], [6]]
    masks = [[0] * len(row) for row in rows]
    root = write_cache(tmp_path / "c", {"input_ids": rows, leaf: masks}, shards=3)
    assert tl.open(root).columns
    shutil.rmtree(sorted(root.glob(f"*/{leaf}"))[shard])
    with pytest.raises(tl.StoreCorrupt, match=leaf):
        tl.open(root)


def test_a_link_in_place_of_a_file_is_not_followed(toy, tmp_path):
    file = toy / "input_ids/data/c/0"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(tl.StoreCorrupt, match="c/0: "):
        tl.open(toy)


def test_a_file_that_is_gone_while_the_store_is_open_is_a_tokenloom_error(toy):
    store = tl.open(toy, cache_bytes=0)
    (toy / "input_ids/data/c/0").unlink()
    with pytest.raises(tl.StoreError):
        store.document(3)


def test_flipped_bytes_give_other_ids_or_a_tokenloom_error(tmp_path):
    """Payloads have no checksums of their own; nothing else may happen."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 100, size).tolist() for size in rng.integers(0, 60, 20)]
    root = write_cache(tmp_path / "toy", {"input_ids": rows}, inner=16, outer=256)
    files = [one for one in root.rglob("*") if one.is_file()]
    refused = 0
    for _ in range(60):
        file = files[rng.integers(len(files))]
        good = file.read_bytes()
        bad = bytearray(good)
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        file.write_bytes(bad)
        try:
            store = tl.open(root, vocab_size=1000)
            assert sum(len(store.document(n)) for n in range(len(store))) == sum(map(len, rows))
        except tl.TokenloomError:
            refused += 1
        file.write_bytes(good)
    assert 5 < refused < 60
