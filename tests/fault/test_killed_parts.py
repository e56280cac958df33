"""`build_part` and `finish_build`: any order, any deaths, and the bytes of one process."""

import shutil
import time
from pathlib import Path

import pytest
from kit import QUICK, SMALL, assert_same_tree, leftovers, quick_folder, tree, write_corpus
from refusals import refused

import tokenloom as tl
from tokenloom import cluster
from tokenloom.cli import main

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


def finish(inputs, out):
    return cluster.finish_build(inputs, out, files=QUICK, **SMALL)


def edit(path):
    """Other bytes of the same length."""
    text = Path(path).read_bytes()
    assert text.count(b"loom") > 20
    Path(path).write_bytes(text.replace(b"loom", b"boom"))


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
    refused(lambda: finish(inputs, out), tl.StoreError, "3, 6")
    assert not list(out.glob("manifest-*"))
    for part in doomed:  # it goes on after its finished shards
        names = [f"shard-{(part - 1) * 10_000 + n:05d}" for n in range(died_after[part])]
        before = [(out / name / "shard.json").stat().st_ino for name in names]
        assert start(part, "quick").value()["shards"] > died_after[part] > 0
        assert [(out / name / "shard.json").stat().st_ino for name in names] == before
    assert leftovers(out)  # of the killed ones: the finish clears them away
    finish(inputs, out)
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
    finish(inputs, scratch / "s")
    assert cluster.build_part(inputs, scratch / "s", f"5/{PARTS}", files=QUICK, **SMALL) == {}
    finish(inputs, scratch / "s")
    tl.build(inputs, scratch / "s", stretches=PARTS, files=QUICK, **SMALL)
    assert_same_tree(scratch / "s", expected)
    edit(inputs[1])
    refused(lambda: do(inputs, scratch / "s", 5), tl.StoreExists, "part-1.jsonl")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"text_key": "tag"}, ("text_key", "'tag'")),
        ({"shard_tokens": 501}, ("shard_tokens", 501)),
        ({"of": 9}, ("stretches", 9)),
    ],
)
def test_a_part_with_other_settings_is_refused_with_the_difference(scratch, corpus, other, named):
    inputs, _ = corpus
    do(inputs, scratch / "s", 1)
    before = tree(scratch / "s")
    refused(lambda: do(inputs, scratch / "s", 2, **other), tl.StoreExists, *named)
    assert tree(scratch / "s") == before


def test_a_part_with_other_inputs_is_refused_with_the_first_that_differs(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", 1)
    refused(lambda: do(inputs[:1], scratch / "s", 2), tl.StoreExists, "inputs")
    with Path(inputs[1]).open("a") as file:
        file.write('{"text": "more"}\n')
    refused(lambda: do(inputs, scratch / "s", 2), tl.StoreExists, "part-1.jsonl")


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
    edit(inputs[0])
    refused(lambda: do(inputs, scratch / "s", 1), tl.StoreExists)


def test_what_a_part_left_is_checked_before_it_is_published(scratch, corpus):
    inputs, _ = corpus
    do(inputs, scratch / "s", *range(1, PARTS + 1))
    changed, other = sorted((scratch / "s").glob("stretch-*"))[4:6]
    clean = changed.read_bytes()
    spoiled = clean.replace(b'"skipped": 0', b'"skipped": 1')
    assert spoiled != clean
    for content in (spoiled, other.read_bytes()):
        changed.write_bytes(content)
        refused(lambda: finish(inputs, scratch / "s"), tl.StoreCorrupt, changed.name)
    changed.write_bytes(clean)
    (scratch / "s/shard-40000/offsets/c/0").unlink()
    refused(lambda: finish(inputs, scratch / "s"), tl.StoreCorrupt, "shard-40000/offsets/c/0")
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
    assert tl.open(scratch / "s").verify(progress=False).ok
    finish(inputs, scratch / "s")
    assert_same_tree(scratch / "s", expected)


@pytest.mark.parametrize("part", ["0/2", "3/2", "1/0", "1/20000", "3", "1/1"])
def test_a_part_that_cannot_be_is_refused(tmp_path, part):
    inputs = write_corpus(tmp_path / "in")
    refused(lambda: cluster.build_part(inputs, tmp_path / "s", part, **SMALL), tl.ConfigError)
    command = ["build", *inputs, "-o", str(tmp_path / "s"), "-t", "bytes", "--part", "1/2"]
    for more in (["--finish"], ["--stretches", "2"]):
        assert main([*command, *more]) == 2
    assert not (tmp_path / "s").exists()
