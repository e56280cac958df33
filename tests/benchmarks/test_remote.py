"""The reader of a bucket is judged by what it delivers, over all the time that it takes."""

import pytest

from benchmarks import remote, rival_rows

STEP = remote.BATCH * remote.SEQ * 2  # bytes of the tokens of a batch


def seen(delivered, used, seconds=10.0):
    """A reader with these shares of the bandwidth."""
    wire = seconds * remote.BANDWIDTH
    steps = round(delivered * wire / STEP)
    return remote.Seen(first=0.1, steps=steps, seconds=seconds, bytes=int(used * wire), stall=2.0)


@pytest.mark.parametrize(("delivered", "used", "met"), [(0.81, 0.96, False), (0.88, 0.96, True)])
def test_bytes_that_nobody_got_do_not_count(delivered, used, met):
    rows = {row.what.strip(): row for row in remote._fastest(seen(delivered, used))}
    judged = rows["bandwidth delivered"]
    assert (round(judged.value, 2), judged.met) == (delivered, met)
    assert (round(rows["bandwidth used"].value, 2), rows["bandwidth used"].met) == (used, None)
    assert rows["longest stall"].met is None


def test_who_trains_is_judged_by_its_longest_wait():
    row = remote._training(seen(0.2, 0.2), 10e6)[1]
    assert (row.what, row.value, row.met) == ("  longest stall", 2.0, False)


def test_the_fastest_reader_gets_the_whole_store_and_nothing_is_read_twice(tmp_path):
    rival_rows.write(tmp_path / "s", 1 << 20, 900)
    found = remote._watch(tmp_path / "s", 2, None, 1.0)
    assert found.steps * STEP == 2 << 20
    assert 1.0 <= found.used / found.delivered < 1.05  # checksums, offsets
    assert 0 < found.first < found.seconds
