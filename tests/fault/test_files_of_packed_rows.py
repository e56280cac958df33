"""Rows of packed groups are planned once, and what is kept of them is checked before it is used."""

import contextlib
import os

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.report import report_on
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


# -- reports and memory that is too small -----------------------------------------------------

COUNTS = ("cache hits", "cache misses")  # kept plans need fewer lengths

SMALL = {"packing_table_bytes": 60, "packing_chunk_groups": 3}


def page(toy, run_of=packed):
    """What a report says about a run that is opened anew, without counts of a cache."""
    said = report_on(run_of(toy), batch_size=4).to_dict()
    for table in (one for figure in said["figures"] for one in figure["numbers"]):
        keep = [place for place, name in enumerate(table["head"]) if name not in COUNTS]
        for name in ("head", "rows"):
            rows = table[name] if name == "rows" else [table[name]]
            table[name] = [[row[place] for place in keep] for row in rows]
    return said


@pytest.fixture(scope="module")
def expected_page(toy):
    """What a report says where nothing is kept."""
    return page(toy)


@pytest.mark.parametrize("small", [{}, SMALL])
def test_a_report_says_the_same_whatever_is_kept_and_however_little_fits(
    toy, folder, expected_page, small
):
    with tiny(**small) if small else contextlib.nullcontext():
        assert page(toy) == expected_page
        shown(packed(toy))
        assert kept(folder)
        assert page(toy) == expected_page


def mixed(toy):
    sources = {"packed": packed(toy), "windows": tl.open(toy.path).windows(16).shuffle()}
    endless = {name: source.epochs(None) for name, source in sources.items()}
    return tl.mix(endless, weights={"packed": 2, "windows": 1}, cost="tokens").seed(3).take(148)


def test_a_report_on_a_mix_shares_tokens_as_its_rows_have_them(toy, folder):
    run = mixed(toy)
    spans = run.spans(range(len(run)))
    tokens = np.add.reduceat(spans.length, spans.frame[:-1])
    shares = [int(tokens[spans.source == number].sum()) for number in range(2)]
    with tiny(**SMALL):
        shown(packed(toy))
        found = page(toy, mixed)
        assert kept(folder)
    with tiny(min_cached_packing_documents=10**6, min_cached_cost_items=10**6):
        assert page(toy, mixed) == found
    rows = [row for one in found["figures"] for table in one["numbers"] for row in table["rows"]]
    for name, number in zip(("packed", "windows"), shares, strict=True):
        assert any(name in row and number in row for row in rows)


def test_rows_that_do_not_fit_into_memory_are_the_same_in_any_order(toy, folder):
    run = packed(toy)
    rows = np.random.default_rng(5).permutation(len(run))
    expected = [run.spans([row]).document.tolist() for row in rows]
    for path in kept(folder):
        path.unlink()
    with tiny(**SMALL):
        for _ in range(2):  # planned, then read from the file
            small = packed(toy)
            assert [small.spans([row]).document.tolist() for row in rows] == expected
            assert small.spans(rows).document.tolist() == [one for row in expected for one in row]
    assert kept(folder)
