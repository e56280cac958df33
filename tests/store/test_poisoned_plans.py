"""The plan cache is no way in: whoever wrote a file there, no batch and no order changes."""

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.layout.pack import rows as grouping
from tokenloom.order import costs, prices
from tokenloom.store import plan_cache

SOURCE = Path(tl.__file__).parent
KINDS = {"pack", "packed-tokens", "trained", "sums"}
IN_PARTS = {"packed-rows"}  # forged in tests/layout/pack/test_kept_rows.py
OTHER = 54_321  # the uid of somebody else

rng = np.random.default_rng(3)
SIZES = [rng.integers(2, 9, 130).tolist(), rng.integers(2, 30, 30).tolist()]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_cache, "_told", set())
    with keep_plans(tmp_path / "cache", cost_stride_items=4) as made:
        yield made


def mixed(toy, cost):
    """A mix with a source of every layout, opened anew so that nothing is at hand."""
    store = tl.open(toy.path)
    sources = {
        "one": store.pack(16, strategy="one_doc", group_docs=20).shuffle(),
        "packed": store.pack(16, group_docs=3, overflow="split").block_shuffle(window_blocks=2),
        "spliced": store.splice(16, content_length=6, edge="clip").shuffle(),
        "windows": store.windows(16).shuffle(),
    }
    return tl.mix(sources, cost=cost, rule="least_consumed").seed(7)


def order_of(dataset):
    """Which source and item the first examples are, and the documents of some."""
    count = min(600, len(dataset))
    source, item = dataset.run.pick(np.arange(count))
    spans = dataset.run.spans(np.arange(0, count, 9))
    return [part.tolist() for part in (source, item, spans.document, spans.start, spans.at)]


def files(folder, kind="*"):
    return sorted(path for path in folder.iterdir() if kind in ("*", kind_of(path)))


def kind_of(path):
    return re.fullmatch(r"(.+)-[0-9a-f]{64}\.(json|ints|parts)", path.name)[1]


# -- ways to forge a file: every one keeps its sum, and its sha256 is right -------------------


def ascending(array):
    """As in the finding: the same numbers in another order."""
    return np.sort(array)


def turned(array):
    return array[::-1].copy()


def shifted(array):
    """One less here, one more there, in a fifth of the places."""
    out = array.copy()
    places = np.arange(0, len(out) - 1, 5)
    out[places], out[places + 1] = out[places] + 1, out[places + 1] - 1
    return out


FORGERIES = [ascending, turned, shifted]


def forged_sums(sums, forge):
    """Sums of forged differences: the same ends, and they ascend."""
    return np.concatenate([[0], np.cumsum(np.maximum(forge(np.diff(sums)), 0))]).astype(np.int64)


def poison(path, forge):
    """Replace a file by a forged one; False where that changes nothing."""
    raw = path.read_bytes()
    if path.suffix == ".parts":
        return False
    if path.suffix == ".json":
        value = json.loads(raw)
        found = value["value"]
        found["rows"] = forge(np.array(found["rows"])).tolist()
        value["sha256"] = plan_cache._hash([value["identity"], found])
        made = json.dumps(value).encode()
    else:
        head, body = raw.split(b"\n", 1)
        told = json.loads(head)
        array = np.frombuffer(body, told["kind"])
        sums = kind_of(path) == "sums"
        body = (forged_sums(array, forge) if sums else forge(array)).tobytes()
        told["sha256"] = hashlib.sha256(body).hexdigest()
        made = json.dumps(told).encode() + b"\n" + body
    path.write_bytes(made)
    return made != raw


def test_every_kind_of_file_is_forged_below():
    """A further kind needs its own check of random places, and a place in this file."""
    called = re.compile(r'\b(?:recall|remember|remember(?:ed)?_array|\w+_parts)\(\s*"([^"]+)"')
    found = {kind for path in SOURCE.rglob("*.py") for kind in called.findall(path.read_text())}
    assert found == KINDS | IN_PARTS


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("cost", ["tokens", "loss_tokens"])
def test_forged_files_change_no_order(toy, folder, cost, forge, caplog):
    clean = mixed(toy, cost)
    order, fingerprint = order_of(clean), clean.fingerprint
    kinds = {kind_of(path) for path in files(folder)} - IN_PARTS
    table = {"tokens": "packed-tokens", "loss_tokens": "trained"}[cost]
    assert kinds >= {"pack", table, "sums"}
    for kind in sorted(kinds):
        before = {path: path.read_bytes() for path in files(folder, kind)}
        forged = [path for path in before if poison(path, forge)]
        assert forged
        caplog.clear()
        again = mixed(toy, cost)
        assert again.fingerprint == fingerprint
        assert order_of(again) == order, kind
        if kind == "packed-tokens" and cost == "loss_tokens":
            continue  # nobody asked for it
        for path in forged:
            assert path.read_bytes() == before[path], kind
            assert f"{path}: it is not the plan" in caplog.text


def test_control_without_the_check_of_places_the_forged_files_are_believed(
    toy, folder, monkeypatch
):
    """The files above are good enough: what finds them is the check and nothing else."""
    order = mixed(toy, "tokens").picked(range(600))[0]
    for path in files(folder):
        if kind_of(path) in ("packed-tokens", "sums"):
            poison(path, ascending)
    for module in (grouping, costs, prices):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    assert mixed(toy, "tokens").picked(range(600))[0] != order


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_changed_place_is_found_if_it_is_looked_at_and_only_then(toy, folder, kind, monkeypatch):
    cost = "loss_tokens" if kind == "trained" else "tokens"
    order = order_of(mixed(toy, cost))
    path = files(folder, kind)[0]
    raw = path.read_bytes()

    def last_two_swapped(array):
        spot, out = int(np.flatnonzero(array[1:] != array[:-1])[-1]), array.copy()
        out[[spot, spot + 1]] = array[[spot + 1, spot]]
        return out

    for module in (grouping, costs, prices):
        monkeypatch.setattr(module, "random_places", lambda count: np.array([0]))
    poison(path, last_two_swapped)
    mixed(toy, cost).picked(range(600))
    assert path.read_bytes() != raw  # believed: nobody looked there
    for module in (grouping, costs, prices):
        monkeypatch.setattr(module, "random_places", np.arange)
    assert order_of(mixed(toy, cost)) == order
    assert path.read_bytes() == raw


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damage_is_found_by_the_digest_wherever_it_is(toy, folder, kind, monkeypatch):
    for module in (grouping, costs, prices):
        monkeypatch.setattr(module, "random_places", lambda count: np.empty(0, np.int64))
    cost = "loss_tokens" if kind == "trained" else "tokens"
    order = order_of(mixed(toy, cost))
    path = files(folder, kind)[0]
    raw = path.read_bytes()
    begin = raw.index(b'"value"' if kind == "pack" else b"\n") + 1
    places = np.linspace(begin, len(raw) - 2, 5).astype(int).tolist()
    for place in places:
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        assert order_of(mixed(toy, cost)) == order, place
        assert path.read_bytes() == raw, place


def test_places_are_few_spread_and_drawn_by_the_system(monkeypatch):
    for count in (0, 1, 63, 64):
        assert plan_cache.random_places(count).tolist() == list(range(count))
    drawn = [plan_cache.random_places(10**12) for _ in range(3)]
    assert {len(one) for one in drawn} == {64}
    assert len(set(np.concatenate(drawn).tolist())) == 3 * 64  # never the same again
    assert all(one.min() >= 0 and one.max() < 10**12 for one in drawn)
    halves = np.concatenate([plan_cache.random_places(1000) for _ in range(50)])
    assert 0.45 < (halves < 500).mean() < 0.55
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(256)) * (count // 256))
    expected = np.frombuffer(bytes(range(256)) * 2, np.uint64) % np.uint64(1000)
    assert plan_cache.random_places(1000).tolist() == sorted(set(expected.tolist()))


def test_a_group_that_differs_from_its_cached_plan_is_an_error_when_it_is_used(
    toy, folder, monkeypatch
):
    """Whatever 64 places did not show, and no row is delivered that the plan did not mean."""
    order = order_of(mixed(toy, "tokens"))
    monkeypatch.setattr(grouping, "random_places", lambda count: np.empty(0, np.int64))
    for kind in ("pack", "packed-tokens"):
        for path in files(folder, kind):
            poison(path, turned)
        dataset = mixed(toy, "tokens")
        with pytest.raises(tl.StoreCorrupt, match="plan cache"):
            order_of(dataset)
        for _ in range(2):  # a wrong file goes with every error
            with contextlib.suppress(tl.StoreCorrupt):
                order_of(mixed(toy, "tokens"))
        assert order_of(mixed(toy, "tokens")) == order


# -- whose file it is -----------------------------------------------------------------------


@pytest.fixture
def give_away(monkeypatch):
    """Gives a file or a directory to somebody else; pretends to where only root may."""
    strangers = set()

    def look(inner):
        def status(*args, **options):
            found = inner(*args, **options)
            if found.st_ino not in strangers:
                return found
            return os.stat_result((*found[:4], OTHER, *found[5:10]))

        return status

    def give(path):
        if os.geteuid() == 0:
            os.chown(path, OTHER, -1)
        else:
            strangers.add(path.stat().st_ino)
            for name in ("stat", "fstat"):
                monkeypatch.setattr(os, name, look(getattr(os, name)))

    return give


def test_a_file_of_another_owner_is_not_believed_and_not_touched(toy, folder, give_away, caplog):
    order = order_of(mixed(toy, "tokens"))
    for path in files(folder):
        poison(path, ascending)
        give_away(path)
    before = {path: path.read_bytes() for path in files(folder)}
    for _ in range(2):
        assert order_of(mixed(toy, "tokens")) == order
    assert {path: path.read_bytes() for path in files(folder)} == before
    assert len(caplog.records) == 1  # told once
    assert f"{folder}: plans that are kept there are not used" in caplog.text
    assert f"uid {OTHER}" in caplog.text


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_files_in_a_directory_that_others_can_write_to_are_not_believed(toy, folder, mode, caplog):
    order = order_of(mixed(toy, "tokens"))
    for path in files(folder):
        poison(path, ascending)
    before = {path: path.read_bytes() for path in files(folder)}
    folder.chmod(mode)
    for _ in range(2):
        assert order_of(mixed(toy, "tokens")) == order
    assert {path: path.read_bytes() for path in files(folder)} == before
    assert len(caplog.records) == 1
    assert "other users can write to it" in caplog.text
    folder.chmod(0o755)  # others may read: then they are looked at, and found to be wrong
    assert order_of(mixed(toy, "tokens")) == order
    assert {path: path.read_bytes() for path in files(folder)} != before


def test_a_directory_of_another_owner_is_not_used(toy, folder, give_away, caplog):
    order = order_of(mixed(toy, "tokens"))
    before = files(folder)
    for path in before[1:]:
        path.unlink()
    poison(before[0], ascending)
    give_away(folder)
    assert order_of(mixed(toy, "tokens")) == order
    assert files(folder) == before[:1]  # and nothing is left there
    assert "belongs to another user" in caplog.text
    assert len(caplog.records) == 1


def test_a_file_that_others_can_write_to_is_replaced(toy, folder):
    order = order_of(mixed(toy, "tokens"))
    for path in files(folder):
        path.chmod(0o666)  # the right numbers, but who knows for how long
    assert order_of(mixed(toy, "tokens")) == order
    assert {oct(path.stat().st_mode & 0o777) for path in files(folder)} == {"0o600"}


def test_what_is_kept_is_for_this_user_alone_whatever_the_umask(toy, folder):
    before = os.umask(0)
    try:
        order_of(mixed(toy, "tokens"))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files(folder)
    assert {path.stat().st_mode & 0o777 for path in files(folder)} == {0o600}
    assert not list(folder.glob(".tmp-*"))


@pytest.mark.parametrize("instead", ["link", "pipe", "directory"])
def test_what_is_no_file_is_not_opened(toy, folder, tmp_path, instead):
    order = order_of(mixed(toy, "tokens"))
    for path in files(folder):
        real = tmp_path / path.name
        path.rename(real)
        poison(real, ascending)
        if instead == "link":
            path.symlink_to(real)
        elif instead == "pipe":
            os.mkfifo(path, 0o600)
        else:
            path.mkdir()
    assert order_of(mixed(toy, "tokens")) == order


# -- what a file is for ---------------------------------------------------------------------


def test_the_version_of_orders_is_in_the_name_and_the_head_of_every_file(toy, folder, monkeypatch):
    def kept():
        for cost in ("tokens", "loss_tokens"):
            order_of(mixed(toy, cost))
        every = {path.name: kind_of(path) for path in files(folder)}
        return {name: kind for name, kind in every.items() if kind in KINDS}

    first = kept()
    assert set(first.values()) == KINDS
    monkeypatch.setattr(plan_cache, "ORDER_VERSION", plan_cache.ORDER_VERSION + 1)
    both = kept()
    assert len(both) == 2 * len(first)
    later = sorted(set(both) - set(first))
    raws = {name: (folder / name).read_bytes() for name in later}
    for name in later:  # the old contents under a new name are not believed either
        older = next(one for one in first if first[one] == both[name])
        (folder / name).write_bytes((folder / older).read_bytes())
    assert kept() == both
    assert {name: (folder / name).read_bytes() for name in later} == raws
