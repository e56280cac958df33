"""Files of others: never removed, never locked, and every refusal comes before the first effect."""

import functools
import itertools
import json
import os
from pathlib import Path

import pytest
from commandline import command
from forge import reseal
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from refusals import refused

import tokenloom as tl
from tokenloom.testing import FaultFiles

HEX = "0123456789abcdef" * 2

# names that differ from ours by a little, or are ours but hold what we never write
NEAR_MISSES = [
    ".tmp-thesis",
    ".tmp-",
    ".tmp",
    f".tmp-{HEX[:-1]}",
    f".tmp-{HEX}0",
    f".tmp-{HEX.upper()}",
    f".tmp-{HEX[:-1]}g",
    f"tmp-{HEX}",
    f".tmp-{HEX}.txt",
    ".lock.bak",
    ".locks",
    "manifest-00001.json",
    "manifest-000001.json.bak",
    "manifest-0000001.json",
    "manifest-٠٠٠٠٠١.json",  # digits, but not ours
    "manifest.json",
    "shard-0000",
    "shard-000000",
    "shard-00000.bak",
    "shard-٠٠٠٠٠",
    "inputs-1.json",
    "inputs-0000001.json",
    "skipped-000001.json",
    "tokenizer-deadbee.json",
    "tokenizer-DEADBEEF.json",
    "tokenizer.json",
    "notes.txt",
    ".bashrc",
]
IMPOSTORS = [f".tmp-{HEX}", "shard-00000", "inputs-000001.json", "tokenizer-deadbeef.json"]
IMPOSTORS += ["skipped-000001.jsonl"]


def state_of(root: Path):
    """Everything below a directory: names, kinds, contents, and when they were changed."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        link = os.readlink(path) if path.is_symlink() else None
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, content, link)
    return found


def gc(root, *flags, code=0):
    """What `tokenloom gc` says."""
    said = command("gc", root, *flags, "--json", code=code)
    return None if code else json.loads(said)


def every_call(root: Path):
    """Each way to touch a directory that must be refused where no store of ours is."""
    rows = [{"text": "abc"}]
    return {
        "build": lambda: tl.build(rows, root, tokenizer="bytes"),
        "overwrite": lambda: tl.build(rows, root, tokenizer="bytes", overwrite=True),
        "append": lambda: tl.build(rows, root, tokenizer="bytes", append=True),
        "open": lambda: tl.open(root),
    }


@pytest.mark.parametrize("kind", ["file", "folder", "empty folder", "link"])
def test_a_directory_that_holds_one_strange_thing_is_left_byte_for_byte(kind, tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    for number, name in enumerate([*NEAR_MISSES, *IMPOSTORS]):
        root = tmp_path / str(number)
        root.mkdir()
        if kind == "file":
            (root / name).write_text("precious")
        elif kind == "link":
            (root / name).symlink_to(tmp_path / "elsewhere")
        else:
            (root / name).mkdir()
            if kind == "folder":
                (root / name / "chapter1").write_text("precious")
        if kind == "empty folder" and name == IMPOSTORS[0]:  # as a build that was killed left
            continue
        before = state_of(root)
        for what, call in every_call(root).items():
            refused(call, tl.TokenloomError)
            assert state_of(root) == before, (name, what)


def test_a_directory_full_of_near_misses_is_left_byte_for_byte(tmp_path):
    root = tmp_path / "d"
    root.mkdir()
    for number, name in enumerate(dict.fromkeys([*NEAR_MISSES, *IMPOSTORS])):
        if number % 2:
            (root / name).write_text("precious")
        else:
            (root / name).mkdir()
            (root / name / "chapter1").write_text("precious")
    before = state_of(tmp_path)
    for call in every_call(root).values():
        refused(call, tl.TokenloomError)
        assert state_of(tmp_path) == before
    corpus = tmp_path.parent / "corpus.txt"
    corpus.write_text("text")
    for words in (
        ["gc", root],
        ["gc", root, "--unfinished", "--old-snapshots"],
        ["verify", root],
        ["info", root],
        ["build", corpus, "-o", root, "-t", "bytes"],
        ["build", corpus, "-o", root, "-t", "bytes", "--append"],
        ["build", corpus, "-o", root, "-t", "bytes", "--overwrite"],
    ):
        assert "Traceback" not in command(*words, code=1)
        assert state_of(tmp_path) == before, words


def test_gc_of_a_store_removes_only_exact_names_and_content_that_is_ours(tmp_path):
    root = tmp_path / "s"
    tl.build([{"text": "a"}], root, tokenizer="bytes", files=QUICK)
    near = [name for name in NEAR_MISSES if name != "manifest-0000001.json"]
    for name in near:
        (root / name).write_text("precious")
    for name in IMPOSTORS[2:]:
        (root / name.replace("000001", "000009")).write_text("precious")
    (root / "shard-00009").mkdir()
    (root / "shard-00009/chapter1").write_text("precious")
    ours = f".tmp-{'f' * 32}"
    (root / ours).write_text("half a manifest")
    kept = {path: state for path, state in state_of(root).items() if ours not in path}
    found = gc(root, "--unfinished", "--old-snapshots")
    assert found["removed"] == [ours]
    left = ["inputs-000009.json", "shard-00009", "skipped-000009.jsonl", "tokenizer-deadbeef.json"]
    assert found["strangers"] == left
    after = state_of(root)
    assert {k: v for k, v in after.items() if k != str(root)} == {
        k: v for k, v in kept.items() if k != str(root)
    }


@settings(max_examples=30)
@given(st.data())
def test_whatever_lies_in_a_directory_a_refusal_changes_nothing(data):
    """Random mixtures of our names, near misses and strangers, over any content."""
    pool = [*NEAR_MISSES, *IMPOSTORS, "manifest-000001.json", ".lock", "a", f".tmp-{'0' * 32}"]
    names = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6, unique=True))
    contents = [b"", b"precious", b"[\n {\n", b'{"format": "tokenloom-store"}', b"{}", b"[]"]
    with quick_folder() as folder:
        root = folder / "d"
        root.mkdir()
        for name in names:
            kind = data.draw(st.sampled_from(["file", "folder", "fifo", "link"]), label=name)
            content = data.draw(st.sampled_from(contents))
            if kind == "file":
                (root / name).write_bytes(content)
            elif kind == "fifo":
                os.mkfifo(root / name)
            elif kind == "link":
                (root / name).symlink_to(folder / "nowhere")
            else:
                (root / name).mkdir()
                if content:
                    (root / name / data.draw(st.sampled_from(["x", "shard.json"]))).write_bytes(
                        content
                    )
        for what, call in every_call(root).items():
            before = state_of(folder)
            precious = {k: v for k, v in before.items() if v[3] not in (None, b"", b"[\n {\n")}
            try:
                call()
            except (tl.StoreError, tl.InputError):
                assert state_of(folder) == before, what
            after = state_of(folder)
            assert {k: after.get(k) for k in precious} == precious, f"{what} lost something"


# -- odd targets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "out",
    [
        "file:///tmp/x",
        "s3://bucket/../store",
        "s3:/bucket",
        "weird+x:/y",
    ],
)
def test_what_is_nearly_a_url_is_refused_and_never_a_local_directory(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for where in (out, Path(out)):
        with pytest.raises(tl.ConfigError, match="out"):
            tl.build([{"text": "x"}], where, tokenizer="bytes")
    with pytest.raises(tl.ConfigError, match="path"):
        tl.open(out)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("out", ["", b"x", None, 7, "a\0b", "\ud800"])
def test_what_is_no_path_is_refused_as_such(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tl.ConfigError, match="out"):
        tl.build([{"text": "x"}], out, tokenizer="bytes")
    with pytest.raises(tl.ConfigError, match="path"):
        tl.open(out)
    assert os.listdir(tmp_path) == []


def test_a_file_a_pipe_a_dangling_link_and_the_root_are_refused(tmp_path):
    (tmp_path / "file").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = state_of(tmp_path)
    for name in ("file", "pipe", "dangling", "file/below"):
        with pytest.raises(tl.TokenloomError):
            tl.build([{"text": "x"}], tmp_path / name, tokenizer="bytes")
        gc(tmp_path / name, code=1)
    for place in ("/", "/etc", str(Path.home())):
        there = sorted(os.listdir(place))
        if there:  # the home of a container may be empty
            with pytest.raises(tl.StoreExists):
                tl.build([{"text": "x"}], place, tokenizer="bytes")
            gc(place, "--unfinished", code=1)
            assert sorted(os.listdir(place)) == there
    assert state_of(tmp_path) == before


def test_a_link_to_a_directory_is_judged_by_what_is_there_and_resolved_once(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/notes.txt").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    before = state_of(tmp_path)
    with pytest.raises(tl.StoreExists):
        tl.build([{"text": "x"}], tmp_path / "link", tokenizer="bytes")
    assert state_of(tmp_path) == before
    (tmp_path / "room").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "room")

    class Moved(type(QUICK)):
        """Somebody moves the link when the first file is written."""

        def create(self, path):
            if os.path.realpath(tmp_path / "out") != str(tmp_path / "home"):
                (tmp_path / "out").unlink()
                (tmp_path / "out").symlink_to(tmp_path / "home")
            return super().create(path)

    with pytest.raises(tl.StoreNotFound):  # it was built where the link pointed to
        tl.build([{"text": "x"}], tmp_path / "out", tokenizer="bytes", files=Moved())
    assert tl.open(tmp_path / "room").num_documents == 1
    assert sorted(os.listdir(tmp_path / "home")) == ["notes.txt"]


def test_a_foreign_manifest_makes_no_store(tmp_path):
    for number, content in enumerate(
        [b"", b"{}", b"precious", b'{"format": "parquet"}', b'{"format": "tokenloom-store"}']
    ):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "manifest-000001.json").write_bytes(content)
        (root / f".tmp-{HEX}").write_text("precious")
        before = state_of(root)
        for what, call in every_call(root).items():
            refused(call, tl.StoreError)
            assert state_of(root) == before, what


# -- refusals of our own stores ------------------------------------------------------------


def test_every_refused_call_on_a_store_of_ours_leaves_it_as_it_was(tmp_path):
    rows = [{"text": "abc", "id": "1"}]
    root, more = tmp_path / "s", [{"text": "more"}]
    tl.build(rows, root, tokenizer="bytes")
    (root / ".lock").unlink()  # as in a copy: not even a lock may come back
    tl.build([{"text": "other"}], tmp_path / "begun", tokenizer="bytes")
    (tmp_path / "begun/manifest-000001.json").unlink()
    (tmp_path / "begun/.lock").unlink()
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    calls = {
        "another store": lambda: tl.build(more, root, tokenizer="bytes"),
        "append that does not fit": lambda: tl.build(
            [{"input_ids": [1]}], root, tokenizer=None, vocab_size=9, append=True
        ),
        "append of what is there": lambda: tl.build(rows, root, tokenizer="bytes", append=True),
        "no such tokenizer": lambda: tl.build(more, root, tokenizer="nowhere.json", append=True),
        "both": lambda: tl.build(more, root, tokenizer="bytes", append=True, overwrite=True),
        "no such input": lambda: tl.build("nowhere.txt", root, tokenizer="bytes", append=True),
        "remains of another": lambda: tl.build(rows, tmp_path / "begun", tokenizer="bytes"),
        "settings": lambda: tl.build(more, root, tokenizer="bytes", chunk_tokens=0, append=True),
        "new, no tokenizer": lambda: tl.build(rows, tmp_path / "new", tokenizer="nowhere.json"),
        "new, no vocabulary": lambda: tl.build(rows, tmp_path / "new", tokenizer=None),
        "new, append": lambda: tl.build(rows, tmp_path / "new", tokenizer="bytes", append=True),
        "snapshot": lambda: tl.open(root, snapshot=9),
    }
    before = state_of(tmp_path)
    for what, call in calls.items():
        if what == "append of what is there":
            call()  # not refused: it is the result already
        else:
            refused(call, tl.TokenloomError)
        assert state_of(tmp_path) == before, what
    gc(root, "--dry-run")
    tl.open(root).verify(progress=False)
    assert tl.build(rows, root, tokenizer="bytes").num_documents == 1
    assert state_of(tmp_path) == before


# -- the lock ------------------------------------------------------------------------------


def test_a_pipe_named_lock_is_not_waited_for_and_a_link_not_followed(tmp_path):
    root = tmp_path / "s"
    tl.build([{"text": "a"}], root, tokenizer="bytes")
    (root / ".lock").unlink()
    os.mkfifo(root / ".lock")
    build = functools.partial(tl.build, [{"text": "b"}], root, tokenizer="bytes", append=True)
    refused(build, tl.StoreError, ".lock")  # a pipe would be waited for
    assert ".lock" in command("gc", root, code=1)
    (root / ".lock").unlink()
    (root / ".lock").symlink_to(tmp_path / "outside")
    before = state_of(tmp_path)
    gc(root, code=1)
    refused(build, tl.StoreError)
    assert not (tmp_path / "outside").exists()
    assert state_of(tmp_path) == before


# -- unfinished and lost snapshots ---------------------------------------------------------


@pytest.fixture
def grown(tmp_path):
    """A store of two snapshots."""
    root = tmp_path / "s"
    tl.build([{"text": "a"}], root, tokenizer="bytes")
    tl.build([{"text": "b"}], root, tokenizer="bytes", append=True)
    return root


def test_a_lost_newest_manifest_is_reported_by_verify(grown, caplog):
    (grown / "manifest-000002.json").unlink()
    store = tl.open(grown)
    assert store.snapshot == 1
    (line,) = [record.getMessage() for record in caplog.records]
    assert "manifest-000002.json" in line
    report = store.check(progress=False)
    assert report.ok  # what was published before it is none the worse
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in report.unfinished] == [
        "inputs-000002.json",
        "shard-00001",
    ]
    said = json.loads(command("verify", grown, "--json", code=1).partition("\n}")[0] + "}")
    assert said["ok"] is False
    assert len(said["unfinished"]) == 2


def test_gc_leaves_what_could_bring_a_lost_snapshot_back(grown, tmp_path):
    kept = (grown / "manifest-000002.json").read_bytes()
    (grown / "manifest-000002.json").unlink()
    assert gc(grown)["removed"] == []
    (grown / "manifest-000002.json").write_bytes(kept)
    assert tl.open(grown).verify(progress=False).ok
    (grown / "manifest-000002.json").unlink()
    assert set(gc(grown, "--unfinished")["removed"]) == {"inputs-000002.json", "shard-00001"}
    assert tl.open(grown).check(progress=False).unfinished == ()


def test_a_whole_store_and_an_older_snapshot_of_it_are_opened_without_a_word(grown, caplog):
    assert tl.open(grown).check(progress=False).unfinished == ()
    assert tl.open(grown, snapshot=1).check(progress=False).unfinished == ()
    assert caplog.records == []


# -- overwrite -----------------------------------------------------------------------------


def test_overwrite_replaces_a_store_of_ours_and_nothing_else(tmp_path):
    root = tmp_path / "s"
    tl.build([{"text": "old"}], root, tokenizer="bytes")
    tl.build([{"text": "older"}], root, tokenizer="bytes", append=True)
    (root / "README.md").write_text("precious")
    held = tl.open(root)
    new = tl.build([{"text": "new"}], root, tokenizer="bytes", overwrite=True)
    assert [bytes(d.astype("u1")) for d in new.documents([0])] == [b"new"]
    assert new.num_documents == 1
    assert new.digest == tl.build([{"text": "new"}], tmp_path / "t", tokenizer="bytes").digest
    assert (root / "README.md").read_text() == "precious"
    there = sorted(name for name in os.listdir(root) if name != ".lock")
    assert there == ["README.md", "inputs-000003.json", "manifest-000003.json", "shard-00002"]
    assert held.snapshot == 2
    (problem,) = new.check(progress=False).problems
    assert f"{root}/README.md" in problem
    again = tl.build([{"text": "new"}], root, tokenizer="bytes", overwrite=True)
    assert again.snapshot == 3
    assert tl.build([{"text": "new"}], root, tokenizer="bytes").snapshot == 3
    grown = tl.build([{"text": "more"}], root, tokenizer="bytes", append=True)
    assert grown.num_documents == 2
    assert sorted(os.listdir(root))[-2:] == ["shard-00002", "shard-00003"]


def test_overwrite_of_nothing_is_a_build(tmp_path):
    one = tl.build([{"text": "a"}], tmp_path / "a", tokenizer="bytes", overwrite=True)
    two = tl.build([{"text": "a"}], tmp_path / "b", tokenizer="bytes")
    assert one.manifest_sha256 == two.manifest_sha256


def test_the_old_store_is_whole_until_the_new_one_is_published(tmp_path):
    """Every call of an overwrite fails once: afterwards it is the old store, or the new one."""
    tiny = {"tokenizer": "bytes", "inner": 8, "shard_tokens": 8}
    old, new = [{"text": "old" * 4}, {"text": "x"}], [{"text": "new" * 4}, {"text": "y"}]
    seen = set()
    for number in itertools.count(1, 3):
        with quick_folder() as folder:
            root = folder / "s"
            before = tl.build(old, root, files=QUICK, **tiny).digest
            files = FaultFiles(QUICK, at=number, action="stop")
            try:
                after = tl.build(new, root, overwrite=True, files=files, **tiny).digest
            except OSError:
                found = tl.open(root, cache_bytes=0)
                assert found.verify(progress=False).ok
                seen.add("old" if found.digest == before else "new")
                after = tl.build(new, root, overwrite=True, files=QUICK, **tiny).digest
            assert tl.open(root).digest == after != before
            assert [n for n in os.listdir(root) if n.startswith("manifest")] == [
                "manifest-000002.json"
            ]
            if not files.happened:
                break
    assert seen == {"old", "new"}
    assert number > 60


def test_overwrite_clears_remains_of_another_unfinished_build(tmp_path):
    root = tmp_path / "s"
    many = [{"text": f"text {i}"} for i in range(9)]
    tl.build(many, root, tokenizer="bytes", shard_tokens=20)
    (root / "manifest-000001.json").unlink()
    refused(lambda: tl.build([{"text": "new"}], root, tokenizer="bytes"), tl.StoreExists)
    store = tl.build([{"text": "new"}], root, tokenizer="bytes", overwrite=True)
    assert store.num_documents == 1
    assert sorted(n for n in os.listdir(root) if n.startswith("shard")) == ["shard-00000"]


def test_a_shard_whose_record_names_another_snapshot_is_found(tmp_path):
    tl.build([{"text": "a"}], tmp_path / "s", tokenizer="bytes", files=QUICK)
    reseal(tmp_path / "s", shard=lambda record: {**record, "snapshot": 2})
    problems = tl.open(tmp_path / "s").check(progress=False).problems
    assert any("shard-00000" in line for line in problems)
