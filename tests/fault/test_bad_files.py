"""Files that are damaged, cut, or changed while they are read make no store."""

import functools
import gzip
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from kit import QUICK
from refusals import refused

import tokenloom as tl
from tokenloom.testing import tiny

TEXT = b"".join(b'{"text": "%d"}\n' % i for i in range(5000))
PACK = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}


def build(path, **options):
    options = {"tokenizer": "bytes", "files": QUICK, "overwrite": True, **options}
    return tl.build(path, path.parent / "s", **options)


@pytest.mark.parametrize("suffix", PACK)
def test_a_truncated_archive_is_refused_at_every_length(tmp_path, suffix):
    content, path = PACK[suffix](TEXT), tmp_path / f"x.jsonl.{suffix}"
    for length in (4, 5, 20, len(content) // 2, len(content) - 5, len(content) - 1):
        path.write_bytes(content[:length])
        refused(functools.partial(build, path), tl.InputError, path.name, "at byte")
        assert not list((tmp_path / "s").glob("manifest*"))


@pytest.mark.parametrize("suffix", PACK)
def test_garbage_in_or_after_an_archive_is_refused(tmp_path, suffix):
    content, path = PACK[suffix](TEXT), tmp_path / f"x.jsonl.{suffix}"
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    for bad in (content + b"garbage", flipped):
        path.write_bytes(bad)
        refused(functools.partial(build, path), tl.InputError, path.name)


@tiny(gzip_feed_bytes=3, zstd_feed_bytes=3)
def test_archives_of_several_members_with_padding_are_read_whole(tmp_path):
    lines = [b'{"text": "%d"}\n' % i for i in range(5)]
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    frames = map(zstandard.compress, lines)
    archives = {
        "a.jsonl.gz": b"".join(map(gzip.compress, lines)) + bytes(100),
        "a.jsonl.zst": skippable + skippable.join(frames),
    }
    for name, content in archives.items():
        (tmp_path / name).write_bytes(content)
        for block_bytes in (1, 20, 1 << 20):
            store = build(tmp_path / name, block_bytes=block_bytes, workers=1)
            assert store.tokens(0, 5).tolist() == [48, 49, 50, 51, 52]


@pytest.mark.parametrize("suffix", PACK)
def test_an_archive_of_a_whole_file_is_one_document(tmp_path, suffix):
    path = tmp_path / f"x.txt.{suffix}"
    path.write_bytes(PACK[suffix](TEXT))
    assert build(path, block_bytes=100).lengths.tolist() == [len(TEXT)]
    refused(lambda: build(path, max_record_bytes=99), tl.InputError, path.name, 99)


def test_damaged_parquet_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 50] * 1000}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[8:40] = bytes(32)
    for bad in (content, content[:-6] + b"xxPAR1", b"PAR1" + b"x" * 100):
        path.write_bytes(bytes(bad))
        refused(functools.partial(build, path), tl.InputError, "a.parquet")


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.jsonl.gz", "a.parquet"])
@pytest.mark.parametrize("change", ["longer", "shorter", "gone"])
def test_a_file_that_changes_during_a_build_is_refused(tmp_path, name, change):
    """Nothing is published, and the store can be built when the file is at rest."""
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": ["a"] * 500}), path)
    else:
        path.write_bytes(gzip.compress(TEXT) if name.endswith("gz") else TEXT)
    clean = path.read_bytes()
    (tmp_path / "0.jsonl").write_text('{"text": "first"}\n')

    def disturb(record):
        if record["text"] == "first":
            if change == "gone":
                path.unlink()
            else:
                path.write_bytes(clean + b"x" if change == "longer" else clean[:-1])
        return True

    inputs = [tmp_path / "0.jsonl", path]
    options = {"tokenizer": "bytes", "files": QUICK, "workers": 1, "filter": disturb}
    options |= {"block_bytes": 10}
    refused(lambda: tl.build(inputs, tmp_path / "s", **options), tl.InputError, name)
    assert not list((tmp_path / "s").glob("manifest*"))
    path.write_bytes(clean)
    again = tl.build(inputs, tmp_path / "s", tokenizer="bytes", files=QUICK, overwrite=True)
    assert again.num_documents == (2 if name == "a.txt" else 501 if "parquet" in name else 5001)
