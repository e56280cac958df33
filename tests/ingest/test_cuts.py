"""The cut into blocks is a pure function of the inputs, and archives cannot hurt."""

import gzip
import itertools
import struct
import tracemalloc
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenloom.errors import InputError
from tokenloom.ingest import cuts as module
from tokenloom.ingest.cuts import BLOCK_BYTES, Cut, blocks
from tokenloom.ingest.inputs import Input, expand
from tokenloom.ingest.records import read_block
from tokenloom.testing import tiny

MiB = 1 << 20


def plain(*sizes, kind="jsonl"):
    """Inputs of these sizes, in bytes, without files."""
    nowhere = Path("nowhere")
    return [Input(kind=kind, name=str(i), path=nowhere, size=size) for i, size in enumerate(sizes)]


def plan(inputs, *, most=None, **options):
    """The blocks of plain inputs, `most` of them: planning looks at sizes alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "check_size", lambda one: None)
        return list(itertools.islice(blocks(inputs, **options), most))


def ranges(cut):
    return [[(piece.input, piece.start, piece.stop) for piece in block] for block in cut]


def test_a_large_file_is_cut_into_equal_ranges_of_at_most_a_block():
    cut = ranges(plan(plain(10 * MiB)))
    assert cut == [
        [(0, 0, 3495253)],
        [(0, 3495253, 6990506)],
        [(0, 6990506, 10485760)],
    ]


def test_small_files_share_a_block_until_it_is_full():
    cut = ranges(plan(plain(*[MiB] * 5)))
    assert cut == [[(i, 0, MiB) for i in range(3)], [(3, 0, MiB), (4, 0, MiB)]]


def test_a_million_empty_files_do_not_end_up_in_one_block():
    cut = plan(plain(*[0] * 3000))
    assert max(map(len, cut)) == BLOCK_BYTES // 4096
    assert sum(map(len, cut)) == 3000


def test_a_txt_file_is_never_cut():
    assert ranges(plan(plain(10 * MiB, 5, kind="txt"))) == [[(0, 0, 10 * MiB)], [(1, 0, 5)]]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8),
    block_bytes=st.integers(1, 20_000),
)
def test_ranges_cover_every_byte_once_and_in_order(sizes, block_bytes):
    pieces = [piece for block in plan(plain(*sizes), block_bytes=block_bytes) for piece in block]
    for i, size in enumerate(sizes):
        mine = [(piece.start, piece.stop) for piece in pieces if piece.input == i]
        assert mine[0][0] == 0
        assert mine[-1][1] == size
        assert all(a[1] == b[0] for a, b in itertools.pairwise(mine))
        assert all(stop - start <= block_bytes for start, stop in mine)
        assert size == 0 or all(start < stop for start, stop in mine)


def test_blocks_smaller_than_a_byte_are_refused():
    with pytest.raises(InputError, match="block_bytes: 0 is too small"):
        plan(plain(5), block_bytes=0)


# ---------------------------------------------------------------- resume


@pytest.fixture
def mixed(tmp_path):
    """One input of every kind, a few blocks each at `block_bytes` = 3,000."""
    lines = b"".join(b'{"text": "%d"}\n' % i for i in range(800))
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(lines))
    (tmp_path / "d.txt").write_bytes(b"document")
    texts = [str(i) for i in range(3000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "e.parquet", row_group_size=300)
    rows = [{"text": text} for text in texts[:500]]
    return expand([tmp_path, datasets.Dataset.from_dict({"text": texts}), rows])


@pytest.mark.parametrize("block_bytes", [3000, BLOCK_BYTES])
def test_starting_at_block_k_gives_what_is_left_after_dropping_k_blocks(mixed, block_bytes):
    whole = list(blocks(mixed, block_bytes=block_bytes))
    assert len(whole) > 1 or block_bytes == BLOCK_BYTES
    assert {piece.input for block in whole for piece in block} == set(range(len(mixed)))
    for first in (0, 1, 2, len(whole) // 2, len(whole) - 1, len(whole), len(whole) + 5):
        assert list(blocks(mixed, first=first, block_bytes=block_bytes)) == whole[first:]


def test_skipping_plain_files_is_arithmetic():
    # 16 TiB in files of 1 TiB that do not exist
    block = plan(plain(*[1 << 40] * 16), first=300_000, most=1)[0]
    assert block == (Cut(input=1, start=37_856 * BLOCK_BYTES, stop=37_857 * BLOCK_BYTES),)


# ---------------------------------------------------------------- objects and parquet


def test_every_input_has_a_piece_even_an_empty_one(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "d.jsonl.zst").write_bytes(zstandard.compress(b""))
    schema = pa.schema({"text": pa.string()})
    pq.write_table(schema.empty_table(), tmp_path / "e.parquet")
    inputs = expand([tmp_path, datasets.Dataset.from_dict({"text": []})])
    (block,) = blocks(inputs)
    assert [piece.input for piece in block] == list(range(6))


def test_parquet_row_groups_are_grouped_up_to_a_block(tmp_path):
    texts = [f"{i:05d}" * 100 for i in range(1000)]
    pq.write_table(
        pa.table({"text": texts}),
        tmp_path / "a.parquet",
        row_group_size=10,
        compression="none",
        use_dictionary=False,
    )
    inputs = expand(tmp_path / "a.parquet")
    for block_bytes, groups in [(1, 1), (20_000, 3), (BLOCK_BYTES, 100)]:
        pieces = [piece for block in blocks(inputs, block_bytes=block_bytes) for piece in block]
        assert pieces[0].stop == groups
        assert [p.start for p in pieces[1:]] + [100] == [p.stop for p in pieces]
        assert all(piece.data is None for piece in pieces)


def test_the_cut_of_a_dataset_does_not_depend_on_its_layout():
    texts = ["x" * (i % 700) for i in range(5000)]
    one = datasets.Dataset.from_dict({"text": texts})
    backwards = list(range(4999, -1, -1))
    two = one.select(backwards).select(backwards)
    three = datasets.concatenate_datasets([one.select(range(77)), one.select(range(77, 5000))])
    cuts = [list(blocks(expand(d), block_bytes=50_000)) for d in (one, two, three)]
    assert cuts[0] == cuts[1] == cuts[2]
    sizes = [sum(len(piece.data) for piece in block) for block in cuts[0]]
    assert len(sizes) > 20
    assert max(sizes) < 3 * 50_000  # rows are cut by number, and these differ in length


def test_rows_travel_as_json_lines():
    rows = [{"b": i, "a": "é"} for i in range(10)]
    cut = list(blocks(expand(rows), block_bytes=40))
    assert cut[0] == (
        Cut(
            input=0,
            start=0,
            stop=3,
            data='{"a":"é","b":0}\n{"a":"é","b":1}\n{"a":"é","b":2}\n'.encode(),
        ),
    )
    assert [piece.stop for block in cut for piece in block] == [3, 6, 9, 10]


# ---------------------------------------------------------------- archives


def pack_gz(parts):
    return b"".join(gzip.compress(part) for part in parts)


def pack_zst(parts):
    packer = zstandard.ZstdCompressor(write_checksum=True)
    return b"".join(packer.compress(part) for part in parts)


PACKERS = {"gz": pack_gz, "zst": pack_zst}


def archive(folder, suffix, content, name="x.jsonl"):
    path = folder / f"{name}.{suffix}"
    path.write_bytes(content)
    return expand(path)


def joined(inputs, **options):
    return b"".join(piece.data for block in blocks(inputs, **options) for piece in block)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@settings(max_examples=30, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=40), max_size=30),
    members=st.integers(1, 4),
    block_bytes=st.sampled_from([1, 7, 64, 1 << 20]),
    feed=st.sampled_from([1, 3, 4096]),
)
def test_an_archive_is_cut_after_whole_lines_and_loses_nothing(
    tmp_path_factory, suffix, lines, members, block_bytes, feed
):
    text = b"\n".join(lines)
    step = len(text) // members + 1
    parts = [text[i : i + step] for i in range(0, max(len(text), 1), step)]
    folder = tmp_path_factory.mktemp("archive")
    inputs = archive(folder, suffix, PACKERS[suffix](parts))
    with tiny(gzip_feed_bytes=feed, zstd_feed_bytes=feed):
        pieces = [piece for block in blocks(inputs, block_bytes=block_bytes) for piece in block]
    assert b"".join(piece.data for piece in pieces) == text
    assert [p.start for p in pieces[1:]] + [len(text)] == [p.stop for p in pieces]
    for piece in pieces[:-1]:
        assert piece.data.endswith(b"\n")
        # the newline that fills the piece is the first one that can
        assert len(piece.data) >= block_bytes
        assert b"\n" not in piece.data[block_bytes - 1 : -1]


def test_zero_padding_after_gzip_and_skippable_frames_before_zstd_are_fine(tmp_path):
    assert joined(archive(tmp_path, "gz", gzip.compress(b"a\n") + b"\0" * 100)) == b"a\n"
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    content = skippable + zstandard.compress(b"a\n") + skippable + zstandard.compress(b"b\n")
    assert joined(archive(tmp_path, "zst", content)) == b"a\nb\n"


TEXT = b"".join(b"%d\n" % i for i in range(20_000))


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_archive_is_refused_at_every_length(tmp_path, suffix):
    content = PACKERS[suffix]([TEXT])
    for length in (4, 5, 20, len(content) // 2, len(content) - 5, len(content) - 1):
        inputs = archive(tmp_path, suffix, content[:length])
        with pytest.raises(InputError, match=rf"x\.jsonl\.{suffix}: .*at byte \d+ of the unpacked"):
            joined(inputs)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_garbage_in_or_after_an_archive_is_refused(tmp_path, suffix):
    content = PACKERS[suffix]([TEXT])
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
    for bad in (content + b"garbage", flipped):
        with pytest.raises(InputError, match=r"at byte \d+ of the unpacked data"):
            joined(archive(tmp_path, suffix, bad))


def bomb(suffix):
    """A packed line of 1 GiB of zero bytes, without an end: the same member 16 times."""
    return PACKERS[suffix]([bytes(64 * MiB)]) * 16


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("name", ["x.jsonl", "x.txt"])
def test_an_archive_made_to_explode_is_refused_in_bounded_memory(tmp_path, suffix, name):
    content = PACKERS[suffix]([b"first\n"]) + bomb(suffix)
    inputs = archive(tmp_path, suffix, content, name)
    tracemalloc.start()
    try:
        kept = list(blocks(inputs, block_bytes=1 << 16, max_record_bytes=1 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 420 * MiB  # one call of the decompressor, its parts joined, and the buffer
    (piece,) = [piece for block in kept for piece in block]
    assert len(piece.data) <= (1 << 20) + len(b"first\n") + 1  # just enough to be seen as too long
    read = [read_block(inputs, block, max_record_bytes=1 << 20) for block in kept]
    (error,) = [e for one in read for e in one.errors if "not valid JSON" not in e.message]
    assert error.message.startswith("longer than 1048576 bytes")
    assert error.record == (1 if name == "x.jsonl" else 0)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_record_of_exactly_the_limit_passes_and_one_byte_more_does_not(tmp_path, suffix):
    for end in (b"", b"\n", b"\nz\n"):
        fits = archive(tmp_path, suffix, PACKERS[suffix]([b"a\n" + b"b" * 50 + end]))
        assert len(joined(fits, block_bytes=10, max_record_bytes=50)) == 52 + len(end)
        over = archive(tmp_path, suffix, PACKERS[suffix]([b"a\n" + b"b" * 51 + end]))
        found = list(blocks(over, block_bytes=10, max_record_bytes=50))
        read = [read_block(over, block, max_record_bytes=50) for block in found]
        bad = [(e.record, e.message[:20]) for one in read for e in one.errors]
        assert [place for place in bad if place[1].startswith("longer")] == [
            (1, "longer than 50 bytes")
        ]
        assert sum(sum(one.counts) for one in read) == 2 + (end == b"\nz\n")  # what follows is read


def test_a_txt_archive_is_one_piece(tmp_path):
    inputs = archive(tmp_path, "gz", gzip.compress(TEXT), "x.txt")
    (block,) = blocks(inputs, block_bytes=100)
    assert block == (Cut(input=0, start=0, stop=len(TEXT), data=TEXT),)


# ---------------------------------------------------------------- files that change


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.jsonl.gz", "a.parquet"])
def test_a_file_that_changed_its_size_or_went_away_is_refused(tmp_path, name):
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": ["a"]}), path)
    else:
        path.write_bytes(gzip.compress(TEXT) if name.endswith("gz") else TEXT)
    inputs = expand(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"bytes now, \d+ when it was listed"):
        list(blocks(inputs))
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        list(blocks(inputs))


def test_a_damaged_parquet_footer_is_an_input_error(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(InputError, match="not a readable parquet file"):
        list(blocks(expand(path)))
