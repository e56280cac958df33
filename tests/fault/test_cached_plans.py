"""Plans and sums in the cache folder: whatever is wrong with a file there, no order changes."""

import os

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl

OTHER = 54_321  # the uid of somebody else

rng = np.random.default_rng(3)
SIZES = [rng.integers(2, 9, 130).tolist(), rng.integers(2, 30, 30).tolist()]


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered(SIZES)) as made:
        yield made


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with keep_plans(tmp_path / "cache", cost_stride_items=4) as made:
        yield made


def order_of(toy, cost="tokens"):
    """Where the rows of a mix with a source of every layout are from, opened anew."""
    store = tl.open(toy.path)
    sources = {
        "one": store.pack(16, strategy="one_doc", group_docs=20).shuffle(),
        "packed": store.pack(16, group_docs=3, overflow="split").block_shuffle(window_blocks=2),
        "spliced": store.splice(16, content_length=6, edge="clip").shuffle(),
        "windows": store.windows(16).shuffle(),
    }
    run = tl.mix(sources, cost=cost, rule="least_consumed").seed(7)
    return run.plan_digest(0, 300)


def files(folder):
    return sorted(path for path in folder.iterdir() if path.is_file())


def contents(folder):
    return {path: path.read_bytes() for path in files(folder)}


@pytest.mark.parametrize("cost", ["tokens", "loss_tokens"])
def test_plans_are_kept_once_and_give_the_order_again(toy, folder, cost):
    order = order_of(toy, cost)
    kept = contents(folder)
    assert kept
    assert order_of(toy, cost) == order
    assert contents(folder) == kept


CHANGES = {
    "a flipped bit at the start": lambda raw: bytes([raw[0] ^ 1]) + raw[1:],
    "a flipped bit in the middle": lambda raw: (
        raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 4]) + raw[len(raw) // 2 + 1 :]
    ),
    "a flipped bit near the end": lambda raw: raw[:-9] + bytes([raw[-9] ^ 16]) + raw[-8:],
    "cut": lambda raw: raw[: len(raw) // 2],
    "without its last byte": lambda raw: raw[:-1],
    "empty": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
    "no JSON": lambda raw: b"\x00\x01",
    "deep": lambda raw: b"[" * 100_000,
    "another kind of JSON": lambda raw: b"[1, 2]\n",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cost", ["tokens", "loss_tokens"])
def test_a_damaged_file_changes_no_order(toy, folder, cost, change):
    order = order_of(toy, cost)
    for path, raw in contents(folder).items():
        path.write_bytes(CHANGES[change](raw))
        assert order_of(toy, cost) == order, path.name
        assert order_of(toy, cost) == order, path.name


def test_a_file_of_another_store_under_this_name_changes_no_order(toy, folder):
    order = order_of(toy)
    own = contents(folder)
    with ToyStore(numbered([[5, 6, 7] * 20])) as other:
        theirs = order_of(other)
        named = {path: raw for path, raw in contents(folder).items() if path not in own}
        assert named
        for path in own:
            for raw in named.values():
                path.write_bytes(raw)
                assert order_of(toy) == order, path.name
        for path in named:
            path.write_bytes(next(iter(own.values())))
        assert order_of(other) == theirs


@pytest.mark.parametrize("instead", ["link", "pipe", "directory"])
def test_what_is_no_file_is_not_opened(toy, folder, tmp_path, instead):
    order = order_of(toy)
    for path in files(folder):
        real = tmp_path / path.name
        path.rename(real)
        if instead == "link":
            real.write_bytes(bytes(real.stat().st_size))
            path.symlink_to(real)
        elif instead == "pipe":
            os.mkfifo(path, 0o600)
        else:
            path.mkdir()
    assert order_of(toy) == order


def test_a_file_in_the_place_of_the_folder_is_no_error(toy, folder):
    order = order_of(toy)
    for path in files(folder):
        path.unlink()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    assert order_of(toy) == order


# -- whose files they are --------------------------------------------------------------------


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


def test_a_directory_of_another_owner_is_not_used(toy, folder, give_away):
    order = order_of(toy)
    first, *others = files(folder)
    for path in others:
        path.unlink()
    left = first.read_bytes()
    give_away(folder)
    assert order_of(toy) == order
    assert contents(folder) == {first: left}  # and nothing is added there


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_can_write_to_is_not_used(toy, folder, mode):
    order = order_of(toy)
    for path in files(folder):
        path.unlink()
    folder.chmod(mode)
    assert order_of(toy) == order
    assert files(folder) == []


def test_a_file_of_another_owner_is_not_touched(toy, folder, give_away):
    order = order_of(toy)
    for path, raw in contents(folder).items():
        path.write_bytes(raw[: len(raw) // 2])
        give_away(path)
    before = contents(folder)
    for _ in range(2):
        assert order_of(toy) == order
    assert contents(folder) == before


def test_what_is_kept_is_for_this_user_alone_whatever_the_umask(toy, folder):
    before = os.umask(0)
    try:
        order_of(toy)
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in files(folder)} == {0o600}


def test_a_cache_folder_in_a_bucket_is_refused(toy, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", "s3://bucket/cache")
    with pytest.raises(tl.ConfigError, match="TOKENLOOM_CACHE_DIR"):
        order_of(toy)


@pytest.mark.parametrize("named", ["XDG_CACHE_HOME", "HOME"])
def test_without_a_setting_plans_are_kept_in_the_cache_of_the_user(
    toy, tmp_path, monkeypatch, named
):
    monkeypatch.delenv("TOKENLOOM_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(named, str(tmp_path / "me"))
    order_of(toy)
    inside = {"XDG_CACHE_HOME": "tokenloom", "HOME": ".cache/tokenloom"}[named]
    assert files(tmp_path / "me" / inside)


# -- whole files that say something else ---------------------------------------------------------


def test_a_plan_of_more_than_any_has_is_not_read(toy, folder):
    order = order_of(toy)
    plans = [path for path in files(folder) if path.suffix == ".value"]
    assert plans
    for path in plans:
        raw = path.read_bytes()
        os.truncate(path, (256 << 20) + 1)  # no disk has these bytes
        assert order_of(toy) == order
        assert path.read_bytes() == raw
