"""Rows of packed groups are planned once, kept in few bytes, and never believed blindly."""

import dataclasses
import gc
import hashlib
import itertools
import json
import os
import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toydata import ToyStore, lengths, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.documents.line import ChosenLine, WholeLine
from tokenloom.errors import NotKept
from tokenloom.layout.allowance import at_most
from tokenloom.layout.pack import kept_rows
from tokenloom.layout.pack import rows as grouping
from tokenloom.layout.pack.piece_table import Columns, Kinds, PieceTable
from tokenloom.layout.pack.plan import plan_group
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.spans import Spans
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

FIELDS = ("frame", "document", "start", "length", "at", "address", "flags", "seen", "source")
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
    """A run whose store is opened anew, so that nothing is at hand."""
    return tl.open(toy.path).pack(16, **{"group_docs": 5, **options}).shuffle()


def slow_spans(layout, rows):
    """Every row from a plan of its group, one by one: the oracle."""
    groups, parts = layout.groups, []
    for row in rows:
        number = int(np.flatnonzero(groups.first_row[:-1] <= row)[-1])
        while not groups.first_row[number] <= row < groups.first_row[number + 1]:
            number -= 1
        first, last = groups.document[number : number + 2].tolist()
        documents, edges = layout.line.bounds(first, last)
        plan = plan_group(np.diff(edges), layout.spec, number)
        here = slice(*plan.edges[row - groups.first_row[number] :][:2].tolist())
        pieces = plan.pieces
        part = pieces.document[here]
        parts.append(
            Spans(
                width=layout.width,
                frame=np.array([0, len(part)]),
                document=documents[part],
                start=pieces.start[here],
                length=pieces.length[here],
                at=plan.at[here],
                address=edges[part] + pieces.start[here],
                flags=pieces.flags[here],
                seen=pieces.seen[here],
                source=np.zeros(1, np.int32),
            )
        )
    return Spans.joined(parts) if parts else Spans.none(layout.width)


def assert_same(found, expected):
    for name in FIELDS:
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        assert one.tolist() == other.tolist(), name


options = st.sampled_from(
    [
        {},
        {"strategy": "first_fit"},
        {"strategy": "greedy", "max_docs_per_bin": 2},
        {"strategy": "one_doc", "overflow": "truncate"},
        {"strategy": "sequential"},
        {"strategy": "sequential", "lookahead": True, "overlap": 1},
        {"stride": 3, "eos_id": 1, "bos_id": 2},
        {"stride": 3, "mask_overlap": False, "lookahead": True},
        {"shuffle_output": True, "shuffle_seed": 4, "min_row_len": 5},
        {"strategy": "best_fit", "overflow": "drop", "max_doc_tokens": 7, "eos_id": 1},
    ]
)


@settings(max_examples=60)
@given(lengths, options, st.integers(1, 5), st.booleans(), st.sampled_from([1, 200, 1 << 20]))
def test_rows_in_any_order_are_those_of_their_groups_planned_anew(
    lengths, options, group_docs, chosen, budget
):
    with (
        ToyStore(numbered(lengths)) as toy,
        tiny(
            packing_table_bytes=budget,
            packing_chunk_groups=2,
            packing_sparse_rows=0,
            packing_file_part_rows=3,
        ),
    ):
        reader, every = toy.store._reader, np.arange(toy.store.num_documents)
        line = ChosenLine(reader, every[::-2]) if chosen else WholeLine(reader)
        layout = grouping.Packed(PackSpec(seq_len=8, group_docs=group_docs, **options), line)
        rows = np.random.default_rng(0).integers(0, max(1, layout.phases.rows[0]), 40)
        rows = rows if layout.phases.rows[0] else rows[:0]
        expected = slow_spans(layout, rows.tolist())
        for _ in range(2):  # planned, then kept
            assert_same(layout.spans(0, rows), expected)
        fresh = grouping.Packed(layout.spec, layout.line)  # from the plan cache, if it is there
        assert_same(fresh.spans(0, rows), expected)
        assert_same(fresh.spans(0, rows[:0]), slow_spans(layout, []))
        layout.keep_rows()
        hurried = grouping.Packed(layout.spec, layout.line)
        with at_most(len(rows) * 3):
            assert_same(hurried.spans(0, rows), expected)
        assert_same(fresh.spans(0, rows), expected)


# -- counts ----------------------------------------------------------------------------------


def shown(run, times=40):
    """The documents of all rows, in small batches of the shuffled order."""
    rows = np.arange(len(run))
    return [
        run.spans(part).document.tolist() for part in np.array_split(rows, min(times, len(rows)))
    ]


def kept(folder):
    return sorted(folder.glob("packed-rows-*.parts"))


@tiny(reproved_places=3)
def test_every_group_is_planned_once_and_in_another_process_none(toy, folder, planned):
    run = packed(toy)
    groups = len(run.run.layout.groups)
    counted, _ = len(planned), planned.clear()
    assert (counted, groups) == (groups, 42)  # the numbers of rows
    found = shown(run)
    assert sorted(planned) == list(range(groups))
    assert len(kept(folder)) == 1
    assert shown(run) == found
    assert len(planned) == groups
    planned.clear()
    again = packed(toy)  # what was counted is looked at in 3 places, and nothing else is planned
    assert shown(again) == found
    assert 0 < len(planned) <= 3


def test_rows_that_are_asked_for_in_order_leave_no_file_until_all_were(toy, folder):
    run = tl.open(toy.path).pack(16, group_docs=5)
    run.spans(np.arange(len(run) // 2))
    assert kept(folder) == []
    run.spans(np.arange(len(run)))
    assert len(kept(folder)) == 1


@tiny(min_cached_packing_documents=10**6)
def test_small_stores_leave_no_file(toy, folder):
    shown(packed(toy))
    assert kept(folder) == []


def test_where_memory_is_short_all_groups_are_planned_once_more_and_then_read(toy, folder, planned):
    expected = shown(packed(toy))
    for path in folder.iterdir():
        path.unlink()
    with tiny(packing_table_bytes=600):
        run = packed(toy)
        groups = len(run.run.layout.groups)
        planned.clear()
        assert shown(run) == expected
        assert groups < len(planned) < 2 * groups  # until memory was full, then all
        assert len(kept(folder)) == 1
        planned.clear()
        assert shown(run) == expected
        assert planned == []
        assert run.run.layout._kept._table.pieces * 9 <= 600


def test_a_budget_of_nothing_and_no_folder_still_give_the_rows(toy, folder):
    expected, before = shown(packed(toy)), kept(folder)
    folder.chmod(0o777)  # others could write there: not used
    with tiny(packing_table_bytes=1):
        assert shown(packed(toy)) == expected
        assert kept(folder) == before


def columns_of(**changes):
    """A group of three pieces in two rows."""
    kinds = Kinds(16, 3, 30).dtypes
    values = {"count": [2, 1], "document": [0, 1, 2], "address": [0, 5, 9], "length": [5, 4, 6]}
    values |= {"start": [0, 0, 0], "flags": [0, 0, 0], "seen": [0, 0, 0], **changes}
    return Columns(**{name: np.array(values[name], kinds[name]) for name in kinds})


def test_columns_with_few_values_that_are_not_0_come_back_from_a_file():
    kinds = Kinds(16, 3, 30)
    for change in ({}, {"start": [0, 3, 0]}, {"flags": [0, 0, 2]}, {"seen": [1, 0, 0]}):
        made = columns_of(**change)
        back = Columns.from_bytes(made.to_bytes(kinds), kinds, 2)
        for name in kinds.dtypes:
            assert getattr(back, name).tolist() == getattr(made, name).tolist()
    raw = columns_of().to_bytes(kinds)
    assert raw[0] == 0
    assert Columns.from_bytes(bytes([8]) + raw[1:], kinds, 2) is None  # no such column


def test_rows_with_a_document_of_the_next_group_are_not_believed():
    with ToyStore(numbered([[3] * 8])) as toy:
        layout = toy.store.pack(16, group_docs=4).run.sources[0].layout
        planned = layout.plan(1)
        assert layout.check(1, planned)
        other = dataclasses.replace(planned, document=planned.document + 1)
        assert not layout.check(1, other)


def test_rows_with_a_token_of_the_next_group_are_not_believed(toy):
    layout = packed(toy).run.layout
    edges = layout.groups.address.tolist()
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        planned = layout.plan(number)
        assert layout.check(number, planned)
        if not len(planned.address):
            continue
        last = int((planned.address + planned.length).max())
        room = high - low - last  # tokens after the last piece, if it was cut
        for more, believed in ((room, True), (room + 1, False)):
            moved = dataclasses.replace(planned, address=planned.address + more)
            assert layout.check(number, moved) is believed, number


def test_laws_of_a_group_hold_up_to_their_limits():
    assert columns_of().is_lawful(9, 3, 15)
    assert not columns_of().is_lawful(8, 3, 15)  # the first row has nine cells
    assert not columns_of().is_lawful(9, 2, 15)  # document 2 is the third
    assert not columns_of().is_lawful(9, 3, 14)  # the last piece ends at 15
    assert columns_of(start=[0, 5, 0]).is_lawful(9, 3, 15)  # from the address of its document on
    assert not columns_of(start=[0, 6, 0]).is_lawful(9, 3, 15)
    assert columns_of(seen=[5, 0, 1]).is_lawful(9, 3, 15)  # all of it was shown before
    assert not columns_of(seen=[6, 0, 1]).is_lawful(9, 3, 15)
    assert not columns_of(length=[5, 0, 6]).is_lawful(9, 3, 15)
    empty = columns_of(count=[], **{name: [] for name in ("document", "address", "length")})
    empty = dataclasses.replace(empty, **dict.fromkeys(("start", "flags", "seen"), empty.length))
    assert empty.is_lawful(9, 0, 0)
    assert columns_of().is_lawful(9, 3, 15) is True


def group_of(number, rows):
    """Columns of a group: row r has r + 1 pieces, each with tokens of its own."""
    pieces = [(number, r, k) for r in range(rows) for k in range(r + 1)]
    size = len(pieces)
    return columns_of(
        count=[r + 1 for r in range(rows)],
        document=[k % 3 for _, _, k in pieces],
        address=[k for _, _, k in pieces],
        length=[1 + (number + r + k) % 5 for _, r, k in pieces],
        start=[0] * size,
        flags=[0] * size,
        seen=[number % 2] * size,
    )


GROUP_ROWS = [2, 0, 3, 1, 4]
FIRST_ROW = np.cumsum([0, *GROUP_ROWS])


def listed(columns):
    return {name: getattr(columns, name).tolist() for name in Kinds(16, 3, 30).dtypes}


def test_a_table_takes_groups_until_it_is_full_and_gives_them_back():
    groups = {number: group_of(number, rows) for number, rows in enumerate(GROUP_ROWS)}
    sizes = {number: len(one) for number, one in groups.items()}
    table = PieceTable(Kinds(16, 3, 30), FIRST_ROW, sizes[2] + sizes[4])
    assert table.has.tolist() == [False, True, False, False, False], "nothing is missing of 1"
    assert listed(table.group(1)) == listed(groups[1])
    assert table.put({4: groups[4]}) is True
    assert table.put({2: groups[2], 3: groups[3]}) is False
    assert table.has.tolist() == [False, True, False, False, True], "none, since not all fit"
    assert table.put({4: groups[4], 2: groups[2]}) is True  # what is there takes no more room
    assert table.pieces == table.capacity == sizes[2] + sizes[4]
    for number in (4, 2, 1):
        assert listed(table.group(number)) == listed(groups[number])
    rows = np.array([9, 2, 8, 4])  # of group 4 from 6 on, of group 2 from 2 on
    found = table.take(rows, {"document": np.array([10, 20, 30, 40])})
    parts = [(4, 3, 10), (2, 0, 20), (4, 2, 30), (2, 2, 40)]
    for name in Kinds(16, 3, 30).dtypes:
        wanted = []
        for number, row, base in parts:
            edges = groups[number].edges
            values = getattr(groups[number], name).tolist()
            if name == "count":
                wanted.append(values[row])
            else:
                values = values[edges[row] : edges[row + 1]]
                wanted += [one + base * (name == "document") for one in values]
        assert getattr(found, name).tolist() == wanted, name
        assert getattr(found, name).dtype == (np.uint8 if name == "flags" else np.int64)


def test_a_table_for_few_groups_takes_memory_for_them_and_not_for_all():
    """Memory of an allocator may have been used before, and is then cleared, all of it."""
    kinds, capacity, taken = Kinds(16, 3, 30), 1 << 20, {}
    rows = np.array([0, 1 << 20])
    for few in (True, False):
        tracemalloc.start()
        table = PieceTable(kinds, rows, capacity, few=few)
        taken[few] = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del table
    assert taken[False] > capacity * kinds.piece_bytes, "the control"
    assert taken[True] < taken[False] / 100


class Planned:
    """Plans groups, and counts."""

    def __init__(self):
        self.calls = []

    def plan(self, number):
        self.calls.append(number)
        return group_of(number, GROUP_ROWS[number])


@pytest.mark.parametrize("together", [1, 2, 32])
@pytest.mark.parametrize("capacity", [1, 4, 9, 10, 20, 1000])
def test_whoever_asks_for_groups_gets_a_table_that_has_them(together, capacity):
    with tiny(packing_chunk_groups=together):
        total = sum(len(group_of(n, rows)) for n, rows in enumerate(GROUP_ROWS))
        kept = kept_rows.KeptRows(Kinds(16, 3, 30), FIRST_ROW, None, capacity, total)
        planner, most = Planned(), 0
        asked = [[0], [4], [4, 4, 0], [2, 3, 0], [0, 1, 2, 3, 4], [3], [1]]
        for some in asked:
            table = kept.of(np.array(some), planner)
            assert table.has[some].all()
            for number in set(some):
                assert listed(table.group(number)) == listed(group_of(number, GROUP_ROWS[number]))
            most = max(most, sum(len(group_of(n, GROUP_ROWS[n])) for n in set(some)))
            assert table.capacity < max(capacity + 1, 2 * most), "no larger than a request needed"
        if capacity >= total:
            assert sorted(planner.calls) == [0, 2, 3, 4], "each once, and 1 has no rows"
        else:
            assert len(planner.calls) > 4, "the control: what did not fit is planned again"


def test_a_block_of_a_single_row_is_its_group_alone():
    with ToyStore(numbered([[3, 3, 3, 3]])) as toy:
        layout = toy.store.pack(16, group_docs=1).run.sources[0].layout
        first, last = layout.stretch(np.arange(4), layout.blocks())
        assert (first.tolist(), last.tolist()) == ([0, 3, 6, 9], [3, 6, 9, 12])


def test_a_first_row_with_just_enough_tokens_stays():
    lengths = np.array([5, 4, 6])
    kept = plan_group(lengths, PackSpec(seq_len=6, min_row_len=5, strategy="one_doc"))
    assert len(kept) == 2
    assert kept.tally.short_rows == 1


@pytest.mark.filterwarnings("ignore:.*are in no row")
def test_groups_without_rows_come_from_the_cache_too(folder, planned):
    with ToyStore(numbered([[2, 2, 9, 9, 2, 2] * 40])) as toy:
        options = {"group_docs": 2, "min_row_len": 8, "strategy": "one_doc"}
        wanted = packed(toy, **options).batch(range(8)).tokens
        assert 0 in packed(toy, **options).run.sources[0].layout.groups.rows
        planned.clear()
        again = packed(toy, **options)
        groups = len(again.run.sources[0].layout.groups)
        assert (again.batch(range(8)).tokens == wanted).all()
        assert len(set(planned)) < groups  # random ones only


def test_a_piece_takes_eight_bytes_at_the_usual_settings():
    kinds = Kinds(2048, 10_000, 1 << 25)
    count = 10_000
    every = np.arange(count)
    zeros = np.zeros(count, np.uint8)
    rows = Columns(np.full(100, 100), every, every * 3, zeros + 3, zeros, zeros, zeros)
    assert len(rows.to_bytes(kinds)) == 1 + 100 * 2 + count * 8


# -- few rows, where somebody waits ---------------------------------------------------------------


@pytest.fixture
def stretched():
    """Parts of two rows; a page reads them wherever it lacks a group."""
    with tiny(packing_file_part_rows=2, packing_sparse_rows=1):
        yield


def test_who_waits_reads_the_rows_that_are_wanted_and_plans_nothing(
    toy, folder, planned, stretched
):
    run = packed(toy, group_docs=30)
    expected = run.spans(np.arange(8)).document.tolist()
    run.run.layout.keep_rows()
    hurried = packed(toy, group_docs=30)
    layout = hurried.run.layout
    planned.clear()
    with at_most(8 * 2):
        assert hurried.spans(np.arange(8)).document.tolist() == expected
    assert planned == []
    assert not layout._kept._table.has.any(), "no group was read for one row of it"
    rows = hurried.run.locate(np.arange(8))[1]
    with at_most(10**6):
        assert layout.price(rows) <= 8
        assert len(np.unique(layout._group_of(rows))) > 1
    path = kept(folder)[0]
    path.unlink()
    other = packed(toy, group_docs=30)
    with at_most(8 * 2), pytest.raises(NotKept, match="the plans of packed groups"):
        other.spans(np.arange(8))


def test_who_waits_finds_what_another_process_has_kept_meanwhile(toy, folder, stretched):
    hurried = packed(toy)
    with at_most(8 * 2), pytest.raises(NotKept):
        hurried.spans(np.arange(8))
    packed(toy).run.layout.keep_rows()
    with at_most(8 * 2):
        found = hurried.spans(np.arange(8)).document.tolist()
    assert found == packed(toy).spans(np.arange(8)).document.tolist()


@tiny(min_cached_packing_documents=10**6)
def test_groups_that_nobody_can_keep_are_planned_while_somebody_waits(toy):
    with at_most(0):
        assert len(packed(toy).spans(np.arange(8))) == 8


@tiny(packing_table_bytes=300)
def test_who_waits_does_not_plan_all_groups_when_the_table_is_full(toy, folder, planned):
    hurried = packed(toy)
    groups = len(hurried.run.layout.groups)
    planned.clear()
    with at_most(10**6):
        for document in range(0, 200, 10):
            hurried.run.layout.find(0, document)
    assert 0 < len(planned) < groups
    assert kept(folder) == []


@pytest.mark.parametrize("wrong", ["damage", "another size", "no plan"])
def test_a_wrong_part_is_found_by_who_waits_for_a_row_of_it(
    toy, folder, stretched, wrong, monkeypatch, caplog
):
    expected = packed(toy).spans(np.arange(8)).document.tolist()
    packed(toy).run.layout.keep_rows()
    (path,) = kept(folder)
    for module in (grouping, kept_rows):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    if wrong == "damage":
        raw = bytearray(path.read_bytes())
        raw[: len(raw) // 2] = bytes(one ^ 1 for one in raw[: len(raw) // 2])
        path.write_bytes(raw)
    elif wrong == "another size":
        poison(path, lambda parts: [part + b"\0" for part in parts])
    else:
        poison(path, lambda parts: [part[:-1] + b"\xff" for part in parts])
    hurried = packed(toy)
    with at_most(10**6):
        assert hurried.spans(np.arange(8)).document.tolist() == expected
    assert "it is not the plan" in caplog.text
    assert not path.exists()


# -- whether a file is believed ----------------------------------------------------------------


def poison(path, change):
    """The file with other parts, and right digests."""
    raw = path.read_bytes()
    told = json.loads(raw.rpartition(b"\n")[2])
    end = len(raw) - len(raw.rpartition(b"\n")[2]) - 1
    table = np.frombuffer(raw[end - told["parts"] * 40 : end], plan_cache.ENTRY)
    edges = [0, *table["end"].tolist()]
    parts = [raw[low:high] for low, high in itertools.pairwise(edges)]
    kept = {"identity": told["identity"]}
    path.write_bytes(b"".join(plan_cache.with_table(change(parts), kept)))
    assert path.read_bytes() != raw


def swapped(values, place):
    """A list with two neighbours in the wrong order."""
    return [*values[:place], values[place + 1], values[place], *values[place + 2 :]]


def put(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


WRONG_GROUPS = {  # one law each
    "documents that do not ascend": lambda g: {"document": swapped(g["document"], 2)},
    "a group without documents": lambda g: {"document": put(g["document"], 2, g["document"][1])},
    "a first document missing": lambda g: {"document": put(g["document"], 0, 1)},
    "a last document missing": lambda g: {"document": put(g["document"], -1, 209)},
    "addresses that do not ascend": lambda g: {"address": swapped(g["address"], 2)},
    "a first token missing": lambda g: {"address": put(g["address"], 0, 1)},
    "a last token missing": lambda g: {"address": put(g["address"], -1, g["address"][-1] - 1)},
    "fewer than no rows": lambda g: {"rows": [-1, g["rows"][0] + g["rows"][1] + 1, *g["rows"][2:]]},
    "a row more": lambda g: {"rows": put(g["rows"], 2, g["rows"][2] + 1)},
    "a group more": lambda g: {"rows": [*g["rows"], 0]},
    "an edge more": lambda g: {"address": [*g["address"], g["address"][-1]]},
    "no groups": lambda g: {"document": [], "address": [], "rows": []},
    "texts": lambda g: {"rows": ["many"] * len(g["rows"])},
    "numbers that are too large": lambda g: {"rows": put(g["rows"], 2, 1 << 70)},
    "an unknown tally": lambda g: {"tally": {"columns": 3}},
}


@pytest.mark.parametrize("name", WRONG_GROUPS)
def test_groups_that_no_plan_can_have_are_not_believed_wherever_they_are(toy, name, monkeypatch):
    layout = packed(toy).run.layout
    line, spec = layout.line, layout.spec
    right = grouping._work_out(line, spec).as_json()
    assert right["document"][-1] == 210
    monkeypatch.setattr(grouping, "random_places", lambda count: np.empty(0, np.int64))
    known = grouping._checked(right, line, spec)
    assert known.as_json() == right
    assert grouping._checked(right | WRONG_GROUPS[name](right), line, spec) is None
    assert grouping._checked({"document": right["document"]}, line, spec) is None


def test_groups_of_one_document_and_of_no_token_are_believed(toy):
    layout = packed(toy, group_docs=1).run.layout
    right = layout.groups.as_json()
    assert 0 in np.diff(right["address"])
    assert set(np.diff(right["document"])) == {1}
    assert grouping._checked(right, layout.line, layout.spec).as_json() == right


def test_groups_that_are_looked_at_are_those_of_the_plan(toy, monkeypatch):
    """Numbers that could be those of a plan, but of another one."""
    layout = packed(toy).run.layout
    line, spec, groups = layout.line, layout.spec, layout.groups
    right = groups.as_json()
    monkeypatch.setattr(grouping, "random_places", np.arange)
    assert set(grouping._checked(right, line, spec).looked_at) == set(range(len(groups)))
    for name in ("document", "address", "rows"):
        values = right[name]
        place = next(k for k in range(1, len(values) - 1) if abs(values[k + 1] - values[k]) > 1)
        other = put(values, place, values[place] + 1)
        if name == "rows":  # as many in all
            other = put(other, place - 1, other[place - 1] - 1)
        assert grouping._checked(right | {name: other}, line, spec) is None, name


def turned(toy):
    """Rows that could be those of a plan: only the documents are in another order."""
    groups, spec = packed(toy).run.layout.groups, packed(toy).run.layout.spec
    kinds = groups.kinds(spec)

    def change(parts):
        for part, rows in zip(parts, groups.rows.tolist(), strict=True):
            found = Columns.from_bytes(part, kinds, rows)
            yield dataclasses.replace(found, document=found.document[::-1]).to_bytes(kinds)

    return change


def test_a_forged_file_is_found_and_written_again(toy, folder, caplog):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    raw = path.read_bytes()
    poison(path, turned(toy))
    assert shown(packed(toy)) == expected
    assert path.read_bytes() == raw
    assert f"{path}: it is not the plan" in caplog.text


def test_control_without_the_check_of_places_a_forged_file_is_believed(toy, folder, monkeypatch):
    expected = shown(packed(toy))
    (path,) = kept(folder)

    poison(path, turned(toy))
    for module in (grouping, kept_rows):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    assert shown(packed(toy)) != expected


def test_a_part_that_no_plan_can_have_made_is_found_wherever_it_is(toy, folder, monkeypatch):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    raw = path.read_bytes()
    for module in (grouping, kept_rows):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    for change in (
        lambda parts: [*parts[:-1], parts[-1][:-1] + b"\xff"],  # longer than its frame
        lambda parts: [parts[0][:-1], *parts[1:]],
        lambda parts: [b"\xff" + parts[0][1:], *parts[1:]],
        lambda parts: [b"", *parts[1:]],
        lambda parts: parts[:-1],
        lambda parts: [*parts, parts[0]],
    ):
        poison(path, change)
        assert shown(packed(toy)) == expected
        assert path.read_bytes() == raw
        path.write_bytes(raw)


@pytest.mark.parametrize("share", np.linspace(0, 1, 9).tolist())
def test_damage_is_found_by_the_digests_wherever_it_is(toy, folder, share, monkeypatch):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    raw = path.read_bytes()
    for module in (grouping, kept_rows):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    place = int(share * (len(raw) - 1))
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    assert shown(packed(toy)) == expected
    assert path.read_bytes() == raw
    path.write_bytes(raw[:place])
    assert shown(packed(toy)) == expected
    assert path.read_bytes() == raw


def test_a_file_that_is_replaced_or_cut_while_it_is_used_is_left(toy, folder):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    for change in (path.unlink, lambda: path.write_bytes(b""), lambda: os.truncate(path, 9)):
        run = packed(toy)
        half = len(run) // 2
        first = run.spans(np.arange(3)).document.tolist()
        change()
        assert run.spans(np.arange(half)).document.tolist()[: len(first)] == first
        assert shown(run) == expected
        shown(packed(toy))  # it is there again


def test_files_of_others_are_not_used(toy, folder):
    expected = shown(packed(toy))
    (path,) = kept(folder)
    poison(path, turned(toy))
    forged = path.read_bytes()
    folder.chmod(0o777)
    assert shown(packed(toy)) == expected
    assert path.read_bytes() == forged
    folder.chmod(0o700)
    path.chmod(0o666)  # others may have written it
    assert shown(packed(toy)) == expected
    assert path.read_bytes() != forged
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_version_of_orders_is_in_the_name_and_in_the_file(toy, folder, monkeypatch):
    shown(packed(toy))
    (old,) = kept(folder)
    monkeypatch.setattr(plan_cache, "ORDER_VERSION", plan_cache.ORDER_VERSION + 1)
    expected = shown(packed(toy))
    (new,) = set(kept(folder)) - {old}
    raw = new.read_bytes()
    assert hashlib.sha256(raw).digest() != hashlib.sha256(old.read_bytes()).digest()
    new.write_bytes(old.read_bytes())
    assert shown(packed(toy)) == expected
    assert new.read_bytes() == raw


def test_rows_that_differ_from_the_tokens_kept_of_them_are_an_error(toy, folder):
    """As if they had been planned: an order may follow from these numbers."""
    run = packed(toy)
    run.tokens_in(3)
    shown(run)
    again = packed(toy)
    again.tokens_in(3)
    tokens = again.run.layout._remembered
    again.run.layout.__dict__["_remembered"] = tokens._replace(array=tokens.array[::-1].copy())
    with pytest.raises(tl.StoreCorrupt, match="plan cache"):
        shown(again)


def test_a_group_that_is_planned_otherwise_than_the_plan_cache_says_is_an_error(toy, folder):
    """Here its number of rows, and the tokens of its rows, if they were needed."""
    right = packed(toy).run.layout
    rows = right.groups.rows.copy()
    first = next(n for n in range(len(rows) - 1) if rows[n] != rows[n + 1])
    rows[first], rows[first + 1] = rows[first + 1], rows[first]
    wrong = grouping.Packed(right.spec, right.line, dataclasses.replace(right.groups, rows=rows))
    documents = right.groups.document
    told = f"documents {documents[first]:,} to {documents[first + 1] - 1:,} is wrong"
    with pytest.raises(tl.StoreCorrupt, match=told):
        wrong.plan(first)
    other = grouping.Packed(right.spec, right.line, right.groups)
    other.plan(first)
    tokens = other._remembered
    other.__dict__["_remembered"] = tokens._replace(array=tokens.array + 1)
    with pytest.raises(tl.StoreCorrupt, match=told):
        other.plan(first)


# -- threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1 << 20, 900])
def test_threads_that_share_a_layout_get_the_same_rows(toy, budget):
    expected = shown(packed(toy))
    with tiny(packing_table_bytes=budget):
        run, found = packed(toy), {}

        def ask(number):
            found[number] = [shown(run) for _ in range(3)]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert all(one == expected for number in range(4) for one in found[number])


def test_a_run_that_is_dropped_frees_its_rows_at_once(toy):
    run = packed(toy)
    shown(run)
    table = weakref.ref(run.run.layout._kept._table)
    gc.disable()
    try:
        del run
        assert table() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("groups", "capacity", "total", "wanted"),
    [
        (4, 100, 80, 4),  # all fit
        (4, 80, 80, 4),
        (4, 40, 80, 2),
        (4, 1, 80, 1),  # one at a time, though it does not fit
        (6, 100, 0, 6),  # nothing to keep
        (3, 7, 1, 3),
    ],
)
def test_as_many_groups_are_asked_for_together_as_fit_in_memory(groups, capacity, total, wanted):
    kinds = Kinds(16, 9, 99)
    kept = kept_rows.KeptRows(kinds, np.arange(groups + 1), None, capacity, total)
    assert kept.most_groups == wanted
