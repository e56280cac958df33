"""Rows of packed groups are planned once, and what is kept of them is checked before it is used."""

import os

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl

SIZES = [np.random.default_rng(2).integers(0, 14, 150).tolist(), [40, 3, 9] * 20]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with keep_plans(tmp_path / "cache") as made:
        yield made


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
