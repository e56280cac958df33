"""What must be in memory at the same time: blocks, windows and shares, in bytes."""

import math
import warnings

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.layout.blocks import Blocks
from tokenloom.order import working_set
from tokenloom.order.shuffle import BlockShuffle, EraShuffle, FullShuffle
from tokenloom.order.working_set import RankShare, touched_lanes
from tokenloom.testing import write_store

SEQ_LEN, TOKENS = 4, 101  # 25 rows, and one token more


@pytest.fixture(scope="module", params=[0, 1, 2])
def store(request, tmp_path_factory):
    """Two bytes for a token, and more for each loss column."""
    kinds = {"loss_weights": ("float32", lambda ids: ids % 2), "loss_mask": ("uint8", np.sign)}
    columns = dict([*kinds.items()][: request.param])
    root = tmp_path_factory.mktemp("working")
    write_store(root, [[list(range(1, 1 + TOKENS))]], chunk_tokens=12, inner=4, columns=columns)
    return tl.open(root), [2, 6, 7][request.param]


SHUFFLES = {  # how many blocks of three rows must be there together
    "stored": (None, 2),
    "full": (FullShuffle(), 9),
    "era": (EraShuffle(length=6), 5),  # of two rows on average, and one more at each edge
    "long era": (EraShuffle(length=1000), 9),
    "window": (BlockShuffle(window_blocks=2), 2),
    "lanes": (BlockShuffle(window_blocks=2, lanes=3), 6),
    "everything": (BlockShuffle(window_blocks=5, lanes=2), 9),
    "units": (BlockShuffle(window_blocks=1, shuffle_block_size=7), 3),
}


@pytest.mark.parametrize("kind", SHUFFLES)
@pytest.mark.parametrize("tail", ["drop", "keep"])
def test_bytes_are_those_of_the_blocks_that_are_needed_together(store, kind, tail):
    (opened, each), (shuffle, needed) = store, SHUFFLES[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = opened.windows(SEQ_LEN, tail=tail)
        working = (made if shuffle is None else made.shuffle(shuffle)).run.working
    first, last = working.stretch(np.arange(len(working.blocks)))
    sizes = ((last - first) * each).tolist()
    assert len(sizes) == 9
    assert sizes[:8] == [3 * SEQ_LEN * each] * 8
    assert sizes[8] == (SEQ_LEN + (tail == "keep")) * each
    assert (working.block_bytes, working.total_bytes) == (max(sizes), sum(sizes))
    assert working.row_bytes == SEQ_LEN * each
    assert working.bytes == min(needed * max(sizes), sum(sizes))
    assert working.window_bytes == math.ceil(working.bytes / working.lanes)
    assert working.lanes == getattr(shuffle, "lanes", 1)


def test_blocks_of_their_own_sizes_are_measured_one_by_one(tmp_path):
    write_store(tmp_path, [[[1] * n for n in (3, 9, 1, 5, 8, 8)]], chunk_tokens=12, inner=4)
    working = tl.open(tmp_path).pack(8, group_docs=2).block_shuffle(window_blocks=2).run.working
    assert (working.block_bytes, working.total_bytes) == (2 * 16, 2 * 34)
    assert working.bytes == 2 * 32
    assert working.blocks.size == 0


def test_rows_of_several_phases_have_blocks_of_their_own(tmp_path):
    write_store(tmp_path, [[[1] * 12, [2] * 20, [3] * 8]], chunk_tokens=12, inner=4)
    options = {"content_length": 4, "doc_growth": {0: 1, 2: 3}}
    run = tl.open(tmp_path).select(num_docs=3).splice(8, **options).run
    rows = [run.phases.start(e + 1) - run.phases.start(e) for e in range(4)]
    assert rows[0] == rows[1] < rows[2]
    for epoch in range(4):
        every = np.arange(rows[epoch])
        block = run.working.block_of(np.full(rows[epoch], epoch), every)
        assert set(block.tolist()) == {int(epoch >= 2)}
        first, last = run.working.stretch(block)
        spans = run.layout.spans(epoch, every)
        assert (spans.address >= first[spans.row]).all()
        assert (spans.address + spans.length <= last[spans.row]).all()
    both = run.working.block_of(np.array([0, 3, 1, 2]), np.array([0, 0, 1, 1]))
    assert both.tolist() == [0, 1, 0, 1]
    assert [one.tolist() for one in run.working.stretch(np.array([1, 0]))] == [[0, 0], [40, 40]]


@pytest.mark.parametrize("rows", [1, 3, 10, 100])
def test_blocks_are_cheaper_while_few_of_them_are_read_twice(tmp_path, rows, monkeypatch):
    """A read costs as much as reading `READ_BYTES` more: a block now and then, or every row."""
    write_store(tmp_path, [[list(range(1, 1 + 400))]], chunk_tokens=400, inner=4)
    shuffle = BlockShuffle(io_block_size=rows, window_blocks=1)
    working = tl.open(tmp_path).windows(SEQ_LEN).shuffle(shuffle).run.working
    blocks, size = 100 / (-(-100 // rows)), SEQ_LEN * 2
    for read in (16, 200, working_set.READ_BYTES):
        monkeypatch.setattr(working_set, "READ_BYTES", read)
        for missing in np.linspace(0, 1, 997).tolist():
            by_rows = read + rows * size / blocks
            by_blocks = (missing + 1 / blocks) * (read + rows * size)
            assert working.cheaper_by_blocks(missing) == (by_blocks <= by_rows), (read, missing)
        assert working.cheaper_by_blocks(0.0)
        assert not working.cheaper_by_blocks(1.0)


def test_a_window_that_just_fits_is_not_warned_of(tmp_path, recwarn):
    write_store(tmp_path, [[list(range(1, 1 + TOKENS))]], chunk_tokens=12, inner=4)
    made = tl.open(tmp_path).windows(SEQ_LEN)
    working = made.block_shuffle(window_blocks=2).run.working
    recwarn.clear()
    for capacity in (working.bytes, working.bytes + 1, 0):
        working.warn_if_too_large(capacity)
    made.shuffle().run.working.warn_if_too_large(1)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="2 blocks x 3 rows x 4 tokens x 2 bytes take 48 B"):
        working.warn_if_too_large(working.bytes - 1)
    laned = made.shuffle(BlockShuffle(window_blocks=99, lanes=2)).run.working
    assert laned.arithmetic(1) == "9 blocks x 1 of 2 lanes x 3 rows x 4 tokens x 2 bytes"


def test_ruling_6_what_a_rank_touches_is_estimated_where_it_cannot_be_counted():
    share = RankShare(1, 4, (13,))
    assert touched_lanes(64, share) == 16 + 2 * math.ceil(2 * 64 / 13)
    assert touched_lanes(64, share, sources=3) == 16 + 2 * math.ceil(4 * 64 / 13)
    assert touched_lanes(64, RankShare(1, 4, (1000, 13))) == touched_lanes(64, share)
    assert touched_lanes(64, RankShare(1, 4, (4,))) == 64, "no more than there are"
    assert touched_lanes(64, RankShare(0, 1, (4,))) == 64, "a single rank has all"
    assert touched_lanes(1024, RankShare(3, 8, (1024,)), multiple=1024) == 128, "counted"
    assert touched_lanes(1025, RankShare(3, 8, (1025,)), multiple=1025) == 129 + 2 * 2


def test_a_shuffle_resolves_its_window_from_the_tokens_of_a_block():
    """128 Mi tokens over all lanes, 2 to 512 blocks."""
    blocks = Blocks.equal(10**6, 128)

    def window(tokens, **options):
        return BlockShuffle(**options).resolve(blocks, tokens).window_blocks

    assert [window(2.0**k) for k in (10, 18, 20, 25, 26, 27, 30)] == [512, 512, 128, 4, 2, 2, 2]
    assert window(2.0**20, lanes=8) == 16
    assert window(2.0**20, lanes=1000) == 1
    assert window(2.0**20, window_blocks=7, lanes=8) == 7
    assert window(2.0**20, io_block_size=256) == 64, "blocks of twice the rows"
    assert BlockShuffle().resolve(blocks, 1.0).io_block_size == 128
    cut = BlockShuffle().resolve(Blocks.cut([0, 5, 9]), 1.0)
    assert cut.io_block_size is None
    assert BlockShuffle().resolve(Blocks.cut([0]), 0.0).window_blocks == 512
    assert BlockShuffle.published() == BlockShuffle(window_blocks=8, cache_windows=8)
