"""Row counts of packed stores are remembered between processes, and never believed blindly."""

import json
import logging

import numpy as np
import pytest
from toydata import ToyStore, numbered

from tokenloom.layout.pack import rows as grouping
from tokenloom.store import plan_cache
from tokenloom.testing import tiny

SIZES = [[3, 9, 1, 0, 30], [7] * 12]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    with tiny(min_cached_packing_documents=1):
        yield


@pytest.fixture
def planned(monkeypatch):
    """How many groups were planned."""
    calls = []
    inner = grouping.plan_group

    def counting(lengths, spec, group=0, names=None):
        calls.append(group)
        return inner(lengths, spec, group, names)

    monkeypatch.setattr(grouping, "plan_group", counting)
    return calls


def pack(store, **options):
    return store.pack(8, group_docs=2, **options)


def kept(tmp_path):
    return sorted((tmp_path / "cache").glob("pack-*.json"))


def as_numbers(dataset):
    groups = dataset.run.layout.groups
    return [groups.document.tolist(), groups.address.tolist(), groups.rows.tolist(), groups.tally]


@tiny(reproved_places=2)
def test_a_plan_is_worked_out_once_and_some_groups_are_looked_at_again(tmp_path, planned):
    with ToyStore(numbered(SIZES)) as toy:
        first = as_numbers(pack(toy.store))
        groups = len(planned)
        assert (groups, len(kept(tmp_path))) == (9, 1)
        assert as_numbers(pack(toy.store)) == first
        assert groups < len(planned) <= groups + 2
        pack(toy.store, strategy="greedy")  # another plan is another file
        assert len(kept(tmp_path)) == 2


@tiny(min_cached_packing_documents=200_000)
def test_small_stores_leave_no_file(tmp_path):
    with ToyStore(numbered(SIZES)) as toy:
        pack(toy.store)
    assert kept(tmp_path) == []


def damaged(text):
    """Ways a file can be wrong, each as another text."""
    value = json.loads(text)

    def with_sum(**changes):
        changed = value["value"] | changes
        checksum = plan_cache._hash([value["identity"], changed])
        return json.dumps(value | {"value": changed, "sha256": checksum})

    rows = value["value"]["rows"]
    return {
        "cut": text[: len(text) // 2],
        "nothing": "",
        "no JSON": "\x00\x01",
        "deep": "[" * 100_000,
        "another kind": "[1, 2]",
        "a flipped digit": text.replace('"rows": [', '"rows": [1', 1),
        "without a key": with_sum(rows=None),
        "a row more, summed again": with_sum(rows=[rows[0] + 1, *rows[1:]]),
        "rows moved, summed again": with_sum(rows=[rows[0] + 1, rows[1] - 1, *rows[2:]]),
        "negative": with_sum(rows=[-1, *rows[1:]]),
        "too few": with_sum(rows=rows[1:]),
        "huge": with_sum(rows=[10**30, *rows[1:]]),
        "texts": with_sum(rows=["x"] * len(rows)),
        "another line": with_sum(address=[0] * (len(rows) + 1)),
        "a tally with more": with_sum(tally=value["value"]["tally"] | {"more": 1}),
    }


def test_a_wrong_file_is_worked_out_again(tmp_path, planned, caplog):
    with ToyStore(numbered(SIZES)) as toy:
        right = as_numbers(pack(toy.store))
        (path,) = kept(tmp_path)
        text = path.read_text()
        for name, wrong in damaged(text).items():
            path.write_text(wrong)
            assert as_numbers(pack(toy.store)) == right, name
            assert json.loads(path.read_text()) == json.loads(text), name


@pytest.mark.parametrize("name", ["document", "address", "rows"])
def test_what_can_be_checked_only_by_planning_again_is_found_where_it_is_looked_at(tmp_path, name):
    """A forger who keeps every sum and every law; all groups are looked at, there are so few."""
    with ToyStore(numbered(SIZES)) as toy:
        right = as_numbers(pack(toy.store))
        (path,) = kept(tmp_path)
        text = path.read_text()
        count = len(json.loads(text)["value"]["rows"])
        for number in range(1, count - 1):
            forged = json.loads(text)
            numbers = forged["value"][name]
            numbers[number] += 1
            numbers[number + 1] -= name == "rows"
            forged["sha256"] = plan_cache._hash([forged["identity"], forged["value"]])
            path.write_text(json.dumps(forged))
            assert as_numbers(pack(toy.store)) == right, number
            assert json.loads(path.read_text()) == json.loads(text), number


def test_a_plan_of_another_store_is_not_taken(tmp_path, planned):
    with ToyStore(numbered(SIZES)) as toy, ToyStore(numbered([[5, 6]])) as other:
        pack(toy.store)
        (path,) = kept(tmp_path)
        text = path.read_text()
        right = as_numbers(pack(other.store))
        (theirs,) = set(kept(tmp_path)) - {path}
        theirs.write_text(text)  # under the other's name
        assert as_numbers(pack(other.store)) == right


def test_a_file_in_the_place_of_the_folder_is_no_error(tmp_path, caplog):
    (tmp_path / "cache").write_text("in the way")
    with caplog.at_level(logging.INFO, "tokenloom"), ToyStore(numbered(SIZES)) as toy:
        assert np.all(pack(toy.store).run.layout.groups.rows >= 0)
    assert "kept in memory only" in caplog.text


def test_where_plans_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("TOKENLOOM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert plan_cache.cache_dir() == tmp_path / "tokenloom"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert plan_cache.cache_dir() == tmp_path / "me/.cache/tokenloom"
