"""SD: ranks and workers share the steps of one global order, however many they are."""

import itertools

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

SEQ_LEN, ROWS = 8, 37

KINDS = {
    "stored": lambda run: run,
    "full": lambda run: run.shuffle(),
    "era": lambda run: run.shuffle(10),
    "block": lambda run: run.block_shuffle(window_blocks=2),
    "lanes": lambda run: run.block_shuffle(window_blocks=1, lanes=3),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens that all differ, in io blocks of 4 rows, and 3 tokens more."""
    ids = list(range(ROWS * SEQ_LEN + 3))
    documents = [ids[first : first + 11] for first in range(0, len(ids), 11)]
    options = {"vocab_size": 1000, "chunk_tokens": 4 * SEQ_LEN, "progress": False}
    folder = tmp_path_factory.mktemp("sharded") / "s"
    return tl.build([{"input_ids": ids} for ids in documents], folder, tokenizer=None, **options)


def run_of(store, kind, epochs=2):
    return KINDS[kind](store.windows(SEQ_LEN)).seed(7).epochs(epochs)


def ranks_of(run, batch_size, world, **options):
    return [tl.Loader(run, batch_size, rank, world, **options) for rank in range(world)]


def steps_of(ranks):
    """(index, tokens) of each step of all ranks, one rank after the other."""
    steps = []
    for parts in zip(*ranks, strict=True):
        index = [i for part in parts for i in part.index.tolist()]
        steps.append((index, np.concatenate([part.tokens for part in parts])))
    for rank in ranks:
        rank.close()
    return steps


def same_steps(found, expected):
    return len(found) == len(expected) and all(
        a == b and np.array_equal(x, y) for (a, x), (b, y) in zip(found, expected, strict=True)
    )


def test_sd_01_sd_05_a_range_split_of_13_rows_over_4_ranks(store):
    """Rank r has rows r * 13 // 4 up to (r + 1) * 13 // 4 of a step."""
    run = run_of(store, "full")
    shares = [(0, 3), (3, 6), (6, 9), (9, 13)]
    ranks = ranks_of(run, 13, 4)
    for step in range(3):
        whole = run.batch(range(13 * step, 13 * step + 13))  # any rank may work out all rows
        for (first, last), rank in zip(shares, ranks, strict=True):
            part = next(rank)
            assert part.index.tolist() == list(range(13 * step + first, 13 * step + last))
            assert np.array_equal(part.tokens, whole.tokens[first:last])


def test_sd_01_sd_05_a_split_by_modulo_of_13_rows_over_4_ranks(store):
    run = run_of(store, "full").take(13)
    parts = [run[rank::4] for rank in range(4)]
    assert [len(part) for part in parts] == [4, 3, 3, 3]
    for rank, part in enumerate(parts):
        assert part.index.tolist() == list(range(rank, 13, 4))
        assert np.array_equal(part.tokens, run[:].tokens[rank::4])


@pytest.mark.parametrize("sampler", ["quota", "stream"])
def test_sd_02_ranks_leapfrog_through_one_stream_of_splices(store, sampler):
    """Each of 4 ranks makes the tables itself and takes every fourth example."""

    def spliced():
        return tl.open(store.path).splice(16, content_length=4, sampler=sampler).seed(3)

    whole = spliced().batch(range(40))
    ranks = [spliced() for _ in range(4)]
    assert len({run.plan_digest(0, 40) for run in ranks}) == 1
    for rank, run in enumerate(ranks):
        own = run.batch(range(rank, 40, 4))
        assert np.array_equal(own.tokens, whole.tokens[rank::4])
        assert own.index.tolist() == list(range(rank, 40, 4))


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_sd_03_ranks_have_every_row_of_an_epoch_once(store, kind, world):
    steps = steps_of(ranks_of(run_of(store, kind), 16, world, end="pad"))
    index = [i for step, _ in steps for i in step if i >= 0]
    assert sorted(index) == list(range(2 * ROWS))
    tokens = np.concatenate([rows[[i >= 0 for i in step]] for step, rows in steps])
    rows = tokens[np.argsort(index)].reshape(2, ROWS, SEQ_LEN)
    for epoch in rows:
        assert sorted(epoch[:, 0].tolist()) == list(range(0, ROWS * SEQ_LEN, SEQ_LEN))


@pytest.mark.parametrize("kind", KINDS)
def test_sd_04_sd_08_the_global_batch_is_the_same_for_any_number_of_ranks(store, kind):
    run = run_of(store, kind)
    expected = steps_of(ranks_of(run, 24, 1))
    assert len(expected) == 3
    for world in (2, 5, 8, 24):
        assert same_steps(steps_of(ranks_of(run, 24, world)), expected), world
    if kind != "lanes":
        assert [i for step, _ in expected for i in step] == list(range(72))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more than there are cores
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("workers", "world"), [(0, 1), (0, 2), (2, 2), (4, 1)])
def test_sd_06_workers_and_ranks_of_a_data_loader_keep_the_global_order(store, workers, world):
    run = run_of(store, "block", epochs=1)
    ranks = [
        dataloader(run, 6, num_workers=workers, rank=rank, world_size=world, fields=("index",))
        for rank in range(world)
    ]
    for step, parts in enumerate(zip(*ranks, strict=True)):
        index = [i for part in parts for i in part["index"].tolist()]
        assert index == list(range(6 * step, 6 * step + 6))
        tokens = np.concatenate([part["input_ids"].numpy() for part in parts])
        assert np.array_equal(tokens, run.batch(index).tokens)
    assert step == 5


@pytest.fixture
def ten(store):
    return run_of(store, "full").take(10)


def test_sd_07_a_tail_is_dropped(ten):
    with tl.Loader(ten, 4) as loader:
        assert len(loader) == 2
        assert [batch.index.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_sd_07_a_tail_is_padded_with_rows_without_loss(ten):
    with tl.Loader(ten, 4, end="pad", fields=("labels", "loss_weights", "segment_ids")) as loader:
        assert len(loader) == 3
        *_, last = loader
    assert last.index.tolist() == [8, 9, -1, -1]
    assert last.tokens.shape == (4, SEQ_LEN)
    assert np.array_equal(last.tokens[:2], ten.batch([8, 9]).tokens)
    assert not last.tokens[2:].any()
    assert not last.segment_ids[2:].any()
    assert not last.loss_mask[2:].any()
    assert not last.loss_weights[2:].any()
    assert set(last.labels[2:].reshape(-1).tolist()) == {-100}
    assert last.loss_tokens == ten.batch([8, 9]).loss_tokens > 0


def test_sd_07_a_tail_is_wrapped_around_for_ever(ten):
    with tl.Loader(ten, 4, end="wrap") as loader:
        with pytest.raises(TypeError):
            len(loader)
        found = [next(loader).index.tolist() for _ in range(6)]
    assert list(itertools.chain(*found)) == [*range(10), *range(10), *range(4)]


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("kind", ["full", "lanes"])
def test_sd_07_sd_08_ends_are_the_same_for_eight_ranks(store, kind, end):
    run = run_of(store, kind).take(45)

    def steps(world):
        ranks = [itertools.islice(rank, 4) for rank in ranks_of(run, 16, world, end=end)]
        return [
            (
                [i for part in parts for i in part.index.tolist()],
                np.concatenate([part.tokens for part in parts]),
            )
            for parts in zip(*ranks, strict=True)
        ]

    expected = steps(1)
    assert len(expected) == {"drop": 2, "pad": 3, "wrap": 4}[end]
    assert same_steps(steps(8), expected)


def test_sd_08_fewer_rows_than_ranks_are_refused(store):
    with pytest.raises(tl.ConfigError, match=r"batch_size.*\b3\b.*\b4\b"):
        tl.Loader(run_of(store, "full"), 3, 0, 4)
