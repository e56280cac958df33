"""Several processes verify a store together: the report on it is the sum of those on its parts."""

import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.testing import write_store

SHARDS = 5
COUNTS = ("shards", "files", "bytes", "documents", "tokens")


@pytest.fixture
def store(tmp_path):
    shards = [[[shard * 10 + one] * (one + 1) for one in range(4)] for shard in range(SHARDS)]
    return write_store(tmp_path / "s", shards)


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
def test_parts_add_up_to_the_whole(store, parts):
    whole = store.check(progress=False)
    reports = [store.check(part=f"{n}/{parts}", progress=False) for n in range(1, parts + 1)]
    assert all(report.ok for report in reports)
    for name in COUNTS:
        assert sum(getattr(one, name) for one in reports) == getattr(whole, name)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_damage_is_reported_by_the_part_that_has_the_shard(store, tmp_path, shard):
    victim = tmp_path / f"s/shard-{shard:05d}/input_ids/c/0"
    raw = victim.read_bytes()
    victim.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    found = [tl.open(tmp_path / "s").check(part=f"{n}/3", progress=False) for n in (1, 2, 3)]
    named = [any(f"shard-{shard:05d}" in one for one in report.problems) for report in found]
    assert named == [SHARDS * k // 3 <= shard < SHARDS * (k + 1) // 3 for k in range(3)]


def test_what_concerns_the_whole_store_is_reported_by_the_first_part(store, tmp_path):
    (tmp_path / "s/stray").write_bytes(b"x")
    (tmp_path / "s/shard-00009").mkdir()
    whole = store.check(progress=False)
    first, second = (store.check(part=f"{n}/2", progress=False) for n in (1, 2))
    assert whole.problems == first.problems
    assert not second.problems


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "1", "1/0", "-1/2", "1/2/3", "", "²/3"])
def test_what_is_no_part_is_refused(store, wrong):
    refused(lambda: store.check(part=wrong), tl.ConfigError, "part", repr(wrong))
