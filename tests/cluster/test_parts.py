"""`build_part` and `finish_build`: any order, any deaths, and the bytes of one process."""

import contextlib
import itertools
import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from kit import QUICK, SMALL, assert_same_tree, leftovers, quick_folder, tree, write_corpus

import tokenloom as tl
from tokenloom import cluster
from tokenloom.cli import main
from tokenloom.ingest.cluster import finish
from tokenloom.ingest.cluster.drive import finish_parts, prepare
from tokenloom.ingest.cluster.stretch_files import plan_name, record_name
from tokenloom.ingest.pipeline import BuildMode
from tokenloom.ingest.plan import BuildOptions

PARTS = 8


@pytest.fixture(scope="module")
def whole():
    """A corpus in a folder, and beside it what one process makes of it in 8 stretches."""
    with quick_folder() as folder:
        inputs = write_corpus(folder / "in", count=150, files=2)
        tl.build(inputs, folder / "s", stretches=PARTS, workers=1, files=QUICK, **SMALL)
        yield folder


@pytest.fixture
def corpus(whole, scratch):
    """A corpus that a test may change, and what one process made of it."""
    shutil.copytree(whole / "in", scratch / "in")
    return sorted(map(str, (scratch / "in").iterdir())), tree(whole / "s")


def do(inputs, out, *parts, of=PARTS, **options):
    for part in parts:
        cluster.build_part(
            inputs, out, f"{part}/{of}", files=QUICK, workers=1, **{**SMALL, **options}
        )


def test_parts_in_any_order_give_the_bytes_of_one_process(scratch, corpus):
    inputs, expected = corpus
    order = list(range(1, PARTS + 1))
    random.Random(5).shuffle(order)
    do(inputs, scratch / "s", *order)
    store = cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    assert store.verify(progress=False).ok
    assert_same_tree(scratch / "s", expected)


def test_eight_part_processes_of_which_two_are_killed_and_run_again(scratch, corpus, nursery):
    inputs, expected = corpus
    out = scratch / "s"

    def start(part, files):
        return nursery.start(
            "build_part",
            inputs=inputs,
            out=str(out),
            part=f"{part}/{PARTS}",
            options={**SMALL, "workers": 1},
            files=files,
        )

    doomed = (3, 6)
    children = {n: start(n, "slow" if n in doomed else "quick") for n in range(1, PARTS + 1)}
    died_after = {}
    for part in doomed:
        numbers = range((part - 1) * 10_000, part * 10_000)
        end = time.monotonic() + 60
        while not any((out / f"shard-{n:05d}").exists() for n in numbers[:3]):
            assert time.monotonic() < end
            time.sleep(0.002)
        children[part].kill()
        assert children[part].wait() == -9
        died_after[part] = sum((out / f"shard-{n:05d}").exists() for n in numbers[:99])
    for part, child in children.items():
        if part not in doomed:
            child.value()
    with pytest.raises(tl.StoreError, match=r"2 of 8 parts are missing: 3, 6\. Run each"):
        cluster.finish_build(inputs, out, files=QUICK, **SMALL)
    assert not list(out.glob("manifest-*"))
    for part in doomed:  # it goes on after its finished shards
        names = [f"shard-{(part - 1) * 10_000 + n:05d}" for n in range(died_after[part])]
        before = [(out / name / "shard.json").stat().st_ino for name in names]
        assert start(part, "quick").value()["shards"] > died_after[part] > 0
        assert [(out / name / "shard.json").stat().st_ino for name in names] == before
    assert leftovers(out)  # of the killed ones: the finish clears them away
    cluster.finish_build(inputs, out, files=QUICK, **SMALL)
    assert_same_tree(out, expected)


@pytest.mark.parametrize("files", ["quick", "nolocks"])
def test_of_two_that_finish_at_once_one_publishes(scratch, corpus, nursery, files):
    inputs, expected = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    moment = time.time() + 0.2
    racers = [
        nursery.start(
            "finish_build",
            inputs=inputs,
            out=str(scratch / "s"),
            options=SMALL,
            files=files,
            start_at=moment,
        )
        for _ in range(3)
    ]
    assert len({racer.value() for racer in racers}) == 1
    assert_same_tree(scratch / "s", expected)


class NoLocks(type(QUICK)):
    """A shared file system that has none."""

    @contextlib.contextmanager
    def lock(self, path, *, shared=False):
        yield None


@pytest.mark.parametrize("looks", [1, 2])
def test_records_that_another_clears_away_between_two_looks_are_no_error(
    scratch, corpus, monkeypatch, looks
):
    """Without locks: all parts are there at the first look, and some or all gone at the second."""
    inputs, expected = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    read, count = finish._records, itertools.count()

    def records(*place):
        if next(count) == looks - 1:
            with monkeypatch.context() as alone:
                alone.setattr(finish, "_records", read)
                cluster.finish_build(inputs, scratch / "s", files=NoLocks(), **SMALL)
        return read(*place)

    monkeypatch.setattr(finish, "_records", records)
    cluster.finish_build(inputs, scratch / "s", files=NoLocks(), **SMALL)
    assert_same_tree(scratch / "s", expected)


def test_who_finishes_late_finds_the_work_of_another_and_no_missing_part(scratch, corpus):
    """It looked before the other published, and reads records after they were cleared away."""
    inputs, expected = corpus
    mode = BuildMode(duplicates="error")
    options = BuildOptions(**SMALL, stretches=PARTS)
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    late = prepare(inputs, scratch / "s", options, mode, QUICK)
    cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    finish_parts(late)
    assert_same_tree(scratch / "s", expected)
    do(inputs, scratch / "other", 1)
    with pytest.raises(tl.StoreError, match="are missing"):  # control: nobody has published there
        finish_parts(prepare(inputs, scratch / "other", options, mode, QUICK))


def test_a_part_that_is_done_is_not_done_again(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", 2)
    before = {p: p.stat().st_mtime_ns for p in (scratch / "s").rglob("*")}
    Path(inputs[0]).write_bytes(b"x" * Path(inputs[0]).stat().st_size)  # nobody looks at it
    do(inputs, scratch / "s", 2)
    assert {p: p.stat().st_mtime_ns for p in (scratch / "s").rglob("*")} == before


def test_after_the_finish_parts_and_finish_do_nothing_unless_an_input_changed(scratch, corpus):
    inputs, expected = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    assert cluster.build_part(inputs, scratch / "s", f"5/{PARTS}", files=QUICK, **SMALL) == {}
    cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    tl.build(inputs, scratch / "s", stretches=PARTS, files=QUICK, **SMALL)
    assert_same_tree(scratch / "s", expected)
    text = Path(inputs[1]).read_bytes()
    Path(inputs[1]).write_bytes(text.replace(b"loom", b"boom"))
    with pytest.raises(tl.StoreExists, match=r"part-1\.jsonl, which has changed"):
        do(inputs, scratch / "s", 5)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"text_key": "tag"}, r"text_key \('text' there, 'tag' now\)"),
        ({"shard_tokens": 501}, r"shard_tokens \(500 there, 501 now\)"),
        ({"of": 9}, r"stretches \(8 there, 9 now\)"),
    ],
)
def test_a_part_with_other_settings_is_refused_with_the_difference(
    scratch, corpus, other, difference
):
    inputs, _ = corpus
    do(inputs, scratch / "s", 1)
    before = tree(scratch / "s")
    with pytest.raises(tl.StoreExists, match=difference):
        do(inputs, scratch / "s", 2, **other)
    assert tree(scratch / "s") == before


def test_a_part_with_other_inputs_is_refused_with_the_first_that_differs(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", 1)
    with pytest.raises(tl.StoreExists, match=r"its inputs \(2 there, 1 now\)"):
        do(inputs[:1], scratch / "s", 2)
    with Path(inputs[1]).open("a") as file:
        file.write('{"text": "more"}\n')
    with pytest.raises(tl.StoreExists, match=r"its inputs \(part-1\.jsonl of [\d,]+ bytes there"):
        do(inputs, scratch / "s", 2)


def test_an_input_that_changes_between_parts_is_found_by_the_finish(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", 1, 2, 3)
    text = Path(inputs[0]).read_bytes()
    assert text.count(b"loom") > 20
    Path(inputs[0]).write_bytes(text.replace(b"loom", b"boom"))
    do(inputs, scratch / "s", 4, 5, 6, 7, 8)
    with pytest.raises(tl.InputError, match=r"part-0\.jsonl: part 4 read other bytes"):
        cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    assert not list((scratch / "s").glob("manifest-*"))


def test_a_part_killed_and_its_input_changed_is_refused(scratch, corpus, nursery):
    inputs, _ = corpus
    child = nursery.start(
        "build_part",
        inputs=inputs,
        out=str(scratch / "s"),
        part="1/8",
        options={**SMALL, "workers": 1},
        files="slow",
    )
    while not (scratch / "s/shard-00000").exists():
        time.sleep(0.002)
    child.kill()
    child.wait()
    text = Path(inputs[0]).read_bytes()
    Path(inputs[0]).write_bytes(text.replace(b"loom", b"boom"))
    with pytest.raises(tl.StoreExists, match="other inputs or settings"):
        do(inputs, scratch / "s", 1)


def test_a_record_that_was_changed_or_renamed_is_not_believed(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    path = scratch / "s" / record_name(1, 4)
    clean = path.read_bytes()
    path.write_bytes(clean.replace(b'"skipped": 0', b'"skipped": 1'))
    with pytest.raises(tl.StoreCorrupt, match="sha256 does not match"):
        cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    path.write_bytes((scratch / "s" / record_name(1, 5)).read_bytes())
    with pytest.raises(tl.StoreCorrupt, match="another stretch"):
        cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    path.write_bytes(clean)
    (scratch / "s/shard-40000/offsets/c/0").unlink()
    with pytest.raises(tl.StoreCorrupt, match=r"offsets/c/0: it is missing since its part"):
        cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    assert not list((scratch / "s").glob("manifest-*"))


def test_a_finish_that_died_after_publishing_is_cleared_away_by_the_next(scratch, corpus):
    inputs, expected = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))

    class Dying(type(QUICK)):
        def remove(self, path):
            if path.name.startswith("stretch-"):
                raise OSError(5, "dead")
            super().remove(path)

    with pytest.raises(OSError, match="dead"):
        cluster.finish_build(inputs, scratch / "s", files=Dying(), **SMALL)
    assert (scratch / "s" / plan_name(1)).exists()
    assert tl.open(scratch / "s").verify(progress=False).ok
    cluster.finish_build(inputs, scratch / "s", files=QUICK, **SMALL)
    assert_same_tree(scratch / "s", expected)


def test_appends_are_done_in_parts_too(scratch, corpus):
    inputs, _ = corpus
    more = write_corpus(scratch / "more", count=60, seed=9)
    tl.build(inputs, scratch / "whole", stretches=PARTS, workers=1, files=QUICK, **SMALL)
    for name in ("whole", "s"):
        if name == "s":
            do(inputs, scratch / name, *range(1, PARTS + 1))
            cluster.finish_build(inputs, scratch / name, files=QUICK, **SMALL)
            do(more, scratch / name, 3, 1, 2, of=3, append=True)
            cluster.finish_build(more, scratch / name, append=True, files=QUICK, **SMALL)
        else:
            tl.build(more, scratch / name, append=True, stretches=3, files=QUICK, **SMALL)
    assert tl.open(scratch / "s").snapshot == 2
    assert_same_tree(scratch / "s", tree(scratch / "whole"))


def test_one_who_builds_without_parts_waits_for_them(scratch, corpus, nursery):
    """Control of the lock: parts share it, and keep out whoever would sweep their files."""
    inputs, _ = corpus
    do(inputs, scratch / "s", 1)
    with (
        QUICK.lock(scratch / "s", shared=True) as one,
        QUICK.lock(scratch / "s", shared=True) as two,
        QUICK.lock(scratch / "s") as alone,
    ):
        assert (one, two, alone) == (True, True, False)


def test_the_command_line_does_parts_and_finishes_them(scratch, corpus, capsys):
    inputs, _ = corpus
    out = str(scratch / "s")
    command = ["build", *inputs, "-o", out, "-t", "bytes", "--shard-tokens", "500", "--workers=1"]
    assert main([*command, "--finish"]) == 1
    assert "no part of a build is here" in capsys.readouterr().err
    for part in (2, 1):
        assert main([*command, "--part", f"{part}/2"]) == 0
    assert f"{out}: part 1/2: " in capsys.readouterr().out
    assert main([*command, "--finish", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    tl.build(
        inputs, scratch / "t", tokenizer="bytes", shard_tokens=500, stretches=2, errors="strict"
    )
    assert told["digest"] == tl.open(scratch / "t").digest
    assert tree(scratch / "s") == tree(scratch / "t")
    for wrong, message in (
        (["--part", "0/2"], "counted from 1"),
        (["--part", "3/2"], "allowed: '1/2' to '2/2'"),
        (["--part", "1/0"], "found '1/0', allowed: 1 to 10,000 parts"),
        (["--part", "1/20000"], "found '1/20000', allowed: 1 to 10,000 parts"),
        (["--part", "3"], "as '3/64'"),
        (["--part", "1/1"], "Build it without"),
        (["--part", "1/2", "--finish"], "found both"),
        (["--part", "1/2", "--stretches", "2"], "found both"),
    ):
        assert main([*command, *wrong]) == 2
        assert message in capsys.readouterr().err


def test_every_byte_is_hashed_once_by_all_parts_together(scratch, corpus, monkeypatch):
    """What makes 8 parts as cheap as one process: a count, not a time."""
    inputs, _ = corpus
    from tokenloom.ingest.cluster import range_hashes

    hashed = []
    real = range_hashes.content

    def counted(one, start=0, stop=None):
        for piece in real(one, start, stop):
            hashed.append(len(piece))
            yield piece

    monkeypatch.setattr(range_hashes, "content", counted)
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    sizes = sum(os.path.getsize(path) for path in inputs)
    # sha256 of all, and once more the cheap hash of ranges that start inside a file
    assert sizes < sum(hashed) < 2 * sizes
