"""Bytes from a network are checked each time they come, also through a disk cache."""

import itertools
import re

import numpy as np
import pytest
from buckets import upload
from everyformat import EVERY
from foreignfiles import some_documents

import tokenloom as tl
from tokenloom.cli import main

TOKENS = "input_ids"


@pytest.fixture
def store(tmp_path, ranges):
    """A store in a bucket with shards of several chunks and a loss column, and its run's rows."""
    ids = np.random.default_rng(3).integers(0, 50_000, 40_000)
    edges = [0, *range(700, 40_000, 900), 40_000]
    rows = [
        {"input_ids": ids[a:b].tolist(), "loss_mask": (ids[a:b] % 3 > 0).astype(int).tolist()}
        for a, b in itertools.pairwise(edges)
    ]
    local = tl.build(
        rows, tmp_path / "s", tokenizer=None, vocab_size=50_000, inner=512, chunk_tokens=4096
    )
    upload(tmp_path / "s", "s3://bucket/checked")
    return local


def opened(**options):
    return tl.open("s3://bucket/checked", **options)


def run_of(store):
    return store.windows(128).shuffle().seed(1)


CACHES = {
    "default": {},
    "none": {"cache_bytes": 0},
    "small": {"cache_bytes": 20_000},
    "disk": {"cache_bytes": 0, "disk_cache": True},
}


def with_folder(options, tmp_path):
    return options | ({"disk_cache": tmp_path / "pieces"} if "disk_cache" in options else {})


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
@pytest.mark.parametrize("cache", [name for name in CACHES if name != "default"])
def test_what_a_server_gives_the_second_time_is_checked_again(
    store, ranges, tmp_path, cache, fetch
):
    remote = opened(**with_folder(CACHES[cache], tmp_path))
    run = run_of(remote)
    want = run_of(store).batch(range(len(run)))
    with tl.Loader(run, 64, end="pad", fetch=fetch) as loader:
        for batch in loader:
            full = batch.index >= 0
            assert (batch.tokens[full] == want.tokens[batch.index[full]]).all()
    if cache == "disk":
        for path in (tmp_path / "pieces").iterdir():
            path.unlink()  # what was there has made room for other pieces
    ranges.set(elsewhere=True, only=TOKENS)
    with pytest.raises(tl.StoreCorrupt, match=TOKENS):
        run.batch(range(len(run)))
    with pytest.raises(tl.StoreCorrupt, match=TOKENS), tl.Loader(run, 64, fetch=fetch) as loader:
        list(loader)
    for start in range(0, store.num_tokens - 128, 5000):
        with pytest.raises(tl.StoreCorrupt, match=TOKENS):
            remote.tokens(start, start + 128)
    ranges.set()
    assert (run.batch(range(len(run))).tokens == want.tokens).all()  # once the server is well


def test_loss_columns_offsets_and_metadata_are_checked_again_too(store, ranges):
    remote = opened(cache_bytes=0)
    want = [store.document(n, column="loss_mask") for n in range(3)]
    for number, mask in enumerate(want):
        assert (remote.document(number, column="loss_mask") == mask).all()
    for column in ("loss_mask/", "offsets"):
        ranges.set(elsewhere=True, only=column)
        with pytest.raises(tl.StoreCorrupt, match=column):
            remote.document(1, column="loss_mask")
    ranges.set()
    assert (remote.document(1, column="loss_mask") == want[1]).all()


def test_wrong_bytes_do_not_stay_in_the_disk_cache(store, ranges, tmp_path):
    folder = tmp_path / "pieces"
    ranges.set(elsewhere=True, only=TOKENS)
    for _ in range(2):
        with pytest.raises(tl.StoreCorrupt, match=TOKENS):
            opened(disk_cache=folder, cache_bytes=0).tokens(0, 100)
    ranges.set()
    again = opened(disk_cache=folder, cache_bytes=0)
    assert (again.tokens(0, 100) == store.tokens(0, 100)).all()
    ranges.clear()
    assert (again.tokens(0, 100) == store.tokens(0, 100)).all()
    assert not ranges.log()  # and the right ones are kept


def test_wrong_pieces_that_an_unchecked_process_kept_are_fetched_again(store, ranges, tmp_path):
    folder = tmp_path / "pieces"
    ranges.set(elsewhere=True, only=TOKENS)
    opened(disk_cache=folder, cache_bytes=0, verify="never").tokens(0, 100)
    ranges.set()
    checked = opened(disk_cache=folder, cache_bytes=0)
    with pytest.raises(tl.StoreCorrupt, match=TOKENS):
        checked.tokens(0, 100)
    assert (checked.tokens(0, 100) == store.tokens(0, 100)).all()


def test_never_stays_never(store, ranges):
    remote = opened(cache_bytes=0, verify="never")
    remote.tokens(0, 100)
    ranges.set(elsewhere=True, only=TOKENS)
    assert (remote.tokens(0, 100) != store.tokens(0, 100)).any()


def test_a_block_in_memory_is_not_checked_or_asked_for_again(store, ranges):
    remote = opened()
    run = run_of(remote)
    with tl.Loader(run, 64, fetch="blocks") as loader:
        list(loader)
    ranges.clear()
    ranges.set(elsewhere=True, only=TOKENS)
    with tl.Loader(run, 64, fetch="blocks") as loader:
        list(loader)
    assert not ranges.log()


def test_a_file_on_this_machine_is_checked_once(store):
    store.tokens(0, 100)
    before = store.reads.bytes
    store.tokens(0, 100)
    assert store.reads.bytes - before == 200


# in place, converted, and decoded
@pytest.mark.parametrize(
    ("name", "suffix"),
    [("megatron uint16", ".bin"), ("flat uint64", ".bin"), ("parquet, two files", ".parquet")],
)
@pytest.mark.parametrize("cached", [False, True])
def test_sealed_foreign_files_are_checked_again_too(
    ranges, tmp_path, monkeypatch, name, suffix, cached
):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    folder = tmp_path / "files"
    folder.mkdir()
    path, said, expected = EVERY[name](folder, some_documents(count=40))
    seal, more = str(tmp_path / "seal"), [f"--{k.replace('_', '-')}={v}" for k, v in said.items()]
    assert main(["seal", str(path), "--to", seal, *more]) == 0
    upload(folder, "s3://bucket/sealed")
    url = "s3://bucket/sealed" + str(path)[len(str(folder)) :]
    options = {"cache_bytes": 0} | ({"disk_cache": tmp_path / "pieces"} if cached else {})
    remote = tl.open(url, seal=seal, **said, **options)
    assert remote.document(3).tolist() == expected[3]
    if cached:
        for piece in (tmp_path / "pieces").iterdir():
            piece.unlink()
    ranges.set(elsewhere=True, only=suffix)
    for _ in range(2):
        with pytest.raises(tl.StoreCorrupt, match=re.escape(suffix)):
            remote.document(3)
    ranges.set()
    assert remote.document(3).tolist() == expected[3]
