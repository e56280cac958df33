"""Parts of a build whose inputs and store are in a bucket: the bytes of one process."""

import time

import pytest
from buckets import files, names, objects, put
from kit import SMALL, Nursery, write_corpus
from leaking import leaks

import tokenloom as tl
from tokenloom import cluster

PARTS = 8

DOOMED = (3, 6)


@pytest.fixture
def corpus(request, place, tmp_path):
    """A corpus in a bucket of some server, and what one process makes of it in 8 stretches."""
    server = request.getfixturevalue(request.param)
    for path in write_corpus(tmp_path / "in", count=80, files=2):
        with open(path, "rb") as file:
            put(f"{place}/in/{path.rpartition('/')[2]}", file.read())
    inputs = [f"{place}/in/part-0.jsonl", f"{place}/in/part-1.jsonl"]
    tl.build(inputs, tmp_path / "whole", stretches=PARTS, workers=1, **SMALL)
    return server, inputs, f"{place}/store", files(tmp_path / "whole")


def shards_of(out, part):
    """The shards of a part that are finished."""
    numbers = range((part - 1) * 10_000, part * 10_000)
    found = {name.split("/")[0] for name in names(out) if name.endswith("/shard.json")}
    return sorted(name for name in found if int(name.rpartition("-")[2]) in numbers)


@pytest.mark.parametrize(
    "corpus", ["ranges", pytest.param("moto", marks=pytest.mark.slow)], indirect=True
)
def test_eight_parts_of_which_two_are_killed_give_the_bytes_of_one_process(corpus, tmp_path):
    server, inputs, out, expected = corpus
    nursery = Nursery(tmp_path)  # started here: its children have the environment of this test

    def start(part):
        options = {**SMALL, "workers": 1}
        named = f"{part}/{PARTS}"
        return nursery.start(
            "build_part", inputs=inputs, out=out, part=named, options=options, files=None
        )

    for part in DOOMED:
        if hasattr(server, "set"):
            server.set(latency=0.01)  # so that there is a middle to be killed in
        child = start(part)
        end = time.monotonic() + 60
        while not shards_of(out, part):
            assert child.poll() is None
            assert time.monotonic() < end
        child.kill()
        assert child.wait() == -9
    if hasattr(server, "set"):
        server.set()
    for child in [start(part) for part in range(1, PARTS + 1) if part not in DOOMED]:
        child.value()
    with pytest.raises(tl.StoreError, match="3, 6"):
        cluster.finish_build(inputs, out, **SMALL)
    unfinished = objects(out)
    assert not any(name.startswith("manifest-") for name in unfinished)
    for kind in ("plan-", "stretch-"):  # what parts leave for each other
        assert any(kind in name for name in unfinished), sorted(unfinished)
    assert leaks(*unfinished, *unfinished.values()) == []
    for part in DOOMED:  # it goes on after its finished shards
        before = shards_of(out, part)
        assert start(part).value()["shards"] > len(before) > 0
    store = cluster.finish_build(inputs, out, **SMALL)
    nursery.close()
    assert store.verify(progress=False).ok
    assert objects(out) == expected


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted", "Conflict"])
@pytest.mark.parametrize("corpus", ["ranges"], indirect=True)
def test_creates_that_s3_refuses_in_conflict_are_asked_again_and_change_no_byte(corpus, code):
    """Each step refuses the first create of one kind of object, although its name is free."""
    server, inputs, out, expected = corpus
    refused = {
        "plan-": lambda: build(1),
        "crc32c/c/0": lambda: build(2),
        "shard.json": lambda: build(3),
        "stretch-": lambda: build(4),
        ".tmp-": lambda: [build(part) for part in range(5, PARTS + 1)],
        "manifest-": lambda: cluster.finish_build(inputs, out, **SMALL),
    }

    def build(part):
        cluster.build_part(inputs, out, f"{part}/{PARTS}", workers=1, **SMALL)

    for name, step in refused.items():
        server.set(conflicts=1, conflict_code=code, only=name)
        server.clear()
        step()
        told = [one["key"] for one in server.log() if one["status"] == 409]
        assert len(told) == 1  # the fault was there
        assert name in told[0]
    server.set()
    assert objects(out) == expected
