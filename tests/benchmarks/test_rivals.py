"""The rivals deliver what they are said to deliver, and a cold pass is one, or is not shown."""

import itertools
import multiprocessing
import pickle
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import tokenloom as tl
from benchmarks import clock, rival_rows, rivals, rivals_cold, rivals_setups

SEQ = 2048


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = tmp_path_factory.mktemp("rivals") / "store"
    rival_rows.write(made, 1 << 18, 900)  # 128 rows
    return made


@pytest.fixture(scope="module")
def rows(root):
    return rival_rows.Rows(rival_rows.payloads(root), SEQ)


def heads(batch):
    """Rows as a set of what they begin with: random ids, all different."""
    return {tuple(row[:8].tolist()) for row in np.asarray(batch)}


def test_every_rival_delivers_each_row_of_an_epoch_once(root, rows):
    expected = heads(tl.open(root).windows(SEQ).batch(range(128)).tokens)
    makers = {
        "numpy": lambda: rival_rows.numpy_rows(rows, 32),
        "torch": lambda: rival_rows.torch_rows(rows, 32, "int32"),
        "worker": lambda: rival_rows.torch_rows(pickle.loads(pickle.dumps(rows)), 32, "int32"),
    }
    if not rival_rows.is_installed("torch"):
        makers = {"numpy": makers["numpy"]}
    for name, make in makers.items():
        taken = list(itertools.islice(make(), 4))
        assert all(tuple(one.shape) == (32, SEQ) for one in taken), name
        assert set.union(*map(heads, taken)) == expected, name


def test_grain_gathers_a_batch_in_one_map(rows, monkeypatch):
    """Written against the three calls that it takes; the real one is an optional package."""

    class Map:
        def __init__(self, items):
            self.items = items

        def repeat(self):
            return Map(itertools.cycle(self.items))

        def map(self, made):
            return Map(map(made, self.items))

        def to_iter_dataset(self, options):
            assert options == {"num_threads": 0, "prefetch_buffer_size": 0}
            return self.items

    grain = SimpleNamespace(
        MapDataset=SimpleNamespace(range=lambda n: Map(range(n))), ReadOptions=dict
    )
    monkeypatch.setitem(sys.modules, "grain", grain)
    taken = list(itertools.islice(rival_rows.grain_rows(rows, 32, "int32"), 5))
    plain = list(itertools.islice(rival_rows.numpy_rows(rows, 32), 5))
    assert np.array_equal(np.stack(taken), np.stack(plain))
    assert taken[0].dtype == np.int32


def test_a_mix_by_hand_takes_every_source_in_its_order_and_by_its_weight(rows):
    base = 1 << 14
    sources = [
        SimpleNamespace(
            seq=2,
            order=np.arange(10) + number * base,
            gather=lambda some: np.stack([some, some], axis=1),
        )
        for number in range(5)
    ]
    taken = np.concatenate(list(itertools.islice(rivals_setups.numpy_mix(sources, 32), 200)))
    source, row = np.divmod(taken[:, 0], base)
    for number in range(5):
        those = row[source == number]
        assert np.array_equal(those, np.arange(len(those)) % 10)
    shares = np.bincount(source, minlength=5) / len(source)
    assert shares == pytest.approx(rivals_setups.WEIGHTS, abs=0.03)


@pytest.mark.parametrize(("what", "count"), [("8 doc", 8), ("32 doc", 32), ("2 or 3 doc", 2.3)])
def test_packed_rows_have_as_many_documents_as_their_name_says(tmp_path, what, count):
    (name,) = [one for one, _ in rivals.PACKED.values() if what in _named(one)]
    rival_rows.write(tmp_path / name, 1 << 19, rivals.MEANS[name])
    packed = tl.open(tmp_path / name).pack(SEQ)
    assert rivals._documents_a_row(packed) == pytest.approx(count, rel=0.03)
    segments = packed.batch(range(len(packed))).segment_ids.max(axis=1)  # from 1 on, row by row
    assert segments.mean() == pytest.approx(count, rel=0.15)  # long documents are cut


def _named(store):
    return next(what for what, (one, _) in rivals.PACKED.items() if one == store)


def test_the_time_of_processes_that_still_run_is_counted():
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    busy = context.Process(target=_burn, args=(ready,), daemon=True)
    before = rivals_setups.all_cpu_seconds()
    busy.start()
    try:
        assert ready.wait(60)
        assert rivals_setups.all_cpu_seconds() - before > 0.2
    finally:
        busy.kill()
        busy.join()


def _burn(ready):
    while time.process_time() < 0.2:
        pass
    ready.set()
    time.sleep(600)


# -- cold --------------------------------------------------------------------------------------


def test_a_pass_that_reads_nothing_from_the_disk_shows_no_figure(root, monkeypatch):
    monkeypatch.setattr(rivals_cold, "evict", lambda root: None)  # so it stays in the page cache
    for path in filter(lambda one: one.is_file(), root.rglob("*")):
        path.read_bytes()
    (table,) = rivals_cold.tables(root, "tiny", "command")
    assert table.rows == []
    (note,) = table.notes
    assert note.startswith("No figures: ")


def test_without_a_count_of_bytes_there_is_no_figure(root, monkeypatch):
    monkeypatch.setattr(rivals_cold, "read_bytes", lambda: None)
    (table,) = rivals_cold.tables(root, "tiny", "command")
    assert (table.rows, table.notes[0]) == (
        [],
        "No figures: this system has no posix_fadvise or no /proc/self/io.",
    )


def made_up(root, shares):
    """A table whose passes read these multiples of what they deliver."""
    counted = {}
    for name, share in shares.items():
        one = rivals_cold.Pass(root=root, run=lambda: None, useful=1000)
        one.read.extend([int(1000 * share)] * 3)
        counted[name] = one
    values = dict(zip(shares, (10, 20, 80, 60, 15, 30), strict=True))
    row = rivals_cold.amount
    return rivals_cold._judged({n: row(n, v, "Mtok/s") for n, v in values.items()}, counted)


def test_the_goals_are_held_against_the_better_rival(root):
    names = list(rivals_cold._passes(root, rival_rows.payloads(root), 1))
    found = made_up(root, dict(zip(names, (2.0, 1.0, 1.2, 2.1, 1.0, 1.0), strict=True)))
    ours, theirs, block = found[4], found[6], found[10]
    assert (ours.ratio, ours.of, ours.met) == (4.0, rivals_cold.RANDOM, True)
    assert (found[5].value, found[5].met) == (1.2, False)
    assert (theirs.ratio, found[7].value, found[7].met) == (3.0, 2.1, True)
    assert (block.ratio, block.of, block.met) == (3.0, rivals_cold.FULL, True)


@pytest.mark.parametrize(("read", "cold"), [((950, 1200), True), ((1200, 700), False)])
def test_one_warm_pass_is_enough_to_show_nothing(root, read, cold):
    one = rivals_cold.Pass(root=root, run=lambda: None, useful=1000)
    one.read.extend(read)
    assert one.is_cold is cold


def test_rows_read_by_numpy_in_our_block_order_are_ours(root, rows):
    block = tl.open(root).windows(SEQ).block_shuffle().seed(7)
    where = block.locate(np.arange(128))[1]
    assert np.array_equal(rows.gather(where), block.batch(range(128)).tokens)


def test_a_table_without_rows_is_printed():
    table = clock.Table(title="t", command="c", rows=[], notes=["why"])
    assert clock.render(table).endswith("- why")
