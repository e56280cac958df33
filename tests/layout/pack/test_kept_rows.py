"""Rows of packed groups are planned once, and what is kept of them is checked before it is used."""

import os
import threading

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.layout.pack import rows as grouping
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

SIZES = [np.random.default_rng(2).integers(0, 14, 150).tolist(), [40, 3, 9] * 20]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with keep_plans(tmp_path / "cache") as made:
        yield made


@pytest.fixture
def planned(monkeypatch):
    """The numbers of the groups that were planned, in order."""
    calls, inner = [], grouping.plan_group

    def counting(lengths, spec, group=0, names=None):
        calls.append(group)
        return inner(lengths, spec, group, names)

    monkeypatch.setattr(grouping, "plan_group", counting)
    return calls


def packed(toy, **options):
    """A run whose store is opened anew, so that nothing is in memory."""
    return tl.open(toy.path).pack(16, **{"group_docs": 5, **options}).shuffle()


def shown(run, times=40):
    """The documents of all rows, in small batches of the shuffled order."""
    rows = np.arange(len(run))
    return [
        run.spans(part).document.tolist() for part in np.array_split(rows, min(times, len(rows)))
    ]


def kept(folder):
    return sorted(folder.glob("packed-rows-*.parts"))


@tiny(reproved_places=3)
def test_every_group_is_planned_once_and_a_run_that_is_made_anew_reads_the_file(
    toy, folder, planned
):
    run = packed(toy)
    len(run)
    groups = len(planned)  # for the numbers of rows
    assert groups == 42
    planned.clear()
    found = shown(run)
    assert sorted(planned) == list(range(groups))
    assert shown(run) == found
    assert len(planned) == groups
    assert len(kept(folder)) == 1
    planned.clear()
    assert shown(packed(toy)) == found
    assert len(planned) <= 3


def test_small_stores_leave_no_file(toy, folder):
    with tiny(min_cached_packing_documents=10**6):
        shown(packed(toy))
    assert kept(folder) == []


def test_without_memory_and_without_a_folder_the_rows_are_the_same(toy, folder):
    expected, before = shown(packed(toy)), kept(folder)
    folder.chmod(0o777)  # others could write there: not used
    with tiny(packing_table_bytes=1):
        assert shown(packed(toy)) == expected
    assert kept(folder) == before


@pytest.mark.parametrize("share", np.linspace(0, 1, 9).tolist())
def test_damage_is_found_wherever_it_is_and_the_file_is_written_again(toy, folder, share):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    raw = path.read_bytes()
    place = int(share * (len(raw) - 1))
    for damaged in (raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :], raw[:place]):
        path.write_bytes(damaged)
        assert shown(packed(toy)) == expected
        assert path.read_bytes() == raw


def test_a_file_that_is_replaced_or_cut_while_it_is_used_is_not_used_any_more(toy, folder):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    for change in (path.unlink, lambda: path.write_bytes(b""), lambda: os.truncate(path, 9)):
        run = packed(toy)
        run.spans(np.arange(3))
        change()
        assert shown(run) == expected
        shown(packed(toy))  # it is there again


def test_files_that_others_may_write_are_not_used(toy, folder):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    raw = path.read_bytes()
    folder.chmod(0o777)
    path.write_bytes(b"theirs")
    assert shown(packed(toy)) == expected
    assert path.read_bytes() == b"theirs"
    folder.chmod(0o700)
    path.write_bytes(raw)
    path.chmod(0o666)
    assert shown(packed(toy)) == expected
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_version_of_orders_is_in_the_name_and_in_the_file(toy, folder, monkeypatch):
    shown(packed(toy))
    (old,) = kept(folder)
    monkeypatch.setattr(plan_cache, "ORDER_VERSION", plan_cache.ORDER_VERSION + 1)
    expected = shown(packed(toy))
    (new,) = set(kept(folder)) - {old}
    raw = new.read_bytes()
    new.write_bytes(old.read_bytes())
    assert shown(packed(toy)) == expected
    assert new.read_bytes() == raw


@pytest.mark.parametrize("budget", [1 << 20, 900])
def test_threads_that_share_a_run_get_the_same_rows(toy, budget):
    expected = shown(packed(toy))
    run, found = packed(toy), {}

    def ask(number):
        found[number] = [shown(run) for _ in range(3)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    with tiny(packing_table_bytes=budget):
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert all(one == expected for number in range(4) for one in found[number])
