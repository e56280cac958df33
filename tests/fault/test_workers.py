"""W1, X7, X8, X9: workers that die, many tiny documents, and what a build leaves in its files."""

import contextlib
import getpass
import json
import os
import re
import socket
import stat
import time
from pathlib import Path

import pytest
from kit import QUICK, SMALL, leftovers, tree, write_corpus

import tokenloom as tl
from tokenloom.testing import FaultFiles

# -- W1 ------------------------------------------------------------------------------------


def children() -> set[int]:
    """Processes that this one started and that are still there."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.parametrize("workers", [2, 3])
def test_w1_a_killed_worker_stops_the_build_at_once_and_is_named(workers, scratch):
    lines = [json.dumps({"text": f"document {i} " + "x" * 100}) for i in range(60)]
    lines[40] = json.dumps({"text": "DIE " + "x" * 100})
    (scratch / "in.jsonl").write_text("\n".join(lines))
    before = children()
    begin = time.monotonic()
    with pytest.raises(tl.WorkerError) as death:
        tl.build(
            scratch / "in.jsonl",
            scratch / "s",
            transform="inside:die_on_marker",
            workers=workers,
            files=QUICK,
            **SMALL,
        )
    assert time.monotonic() - begin < 300  # it does not wait for what never comes
    found = re.search(
        r"worker process (\d+) was killed by signal 9 .* block (\d+)", str(death.value)
    )
    assert found, str(death.value)
    where = sum(len(line) + 1 for line in lines[:40])
    size = sum(map(len, lines)) + len(lines) - 1
    blocks = -(-size // SMALL["block_bytes"])
    assert int(found[2]) == where * blocks // size
    assert not Path("/proc", found[1]).exists()
    assert children() == before
    assert leftovers(scratch / "s") == []
    with pytest.raises(tl.StoreNotFound, match="incomplete"):
        tl.open(scratch / "s")


def test_w1_an_error_inside_a_worker_is_raised_as_it_is_and_no_process_stays(scratch):
    (scratch / "in.jsonl").write_text('{"text": "a"}\n{"text": 7}\n')
    before = children()
    with pytest.raises(tl.InputError, match=r"record 1 \(line 2\)"):
        tl.build(scratch / "in.jsonl", scratch / "s", workers=2, files=QUICK, **SMALL)
    assert children() == before


def test_w1_a_full_disk_stops_the_workers_too(scratch):
    inputs = write_corpus(scratch / "in", count=100)
    before = children()
    with pytest.raises(OSError, match="No space"):
        tl.build(inputs, scratch / "s", workers=2, files=FaultFiles(QUICK, at=60), **SMALL)
    assert children() == before
    assert leftovers(scratch / "s") == []


# -- X7 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_x7_a_million_documents_of_one_token_are_built_without_work_per_document(count, scratch):
    with open(scratch / "in.jsonl", "w") as file:
        file.writelines('{"text":"a"}\n' for _ in range(count))
    files = FaultFiles(QUICK)
    store = tl.build(scratch / "in.jsonl", scratch / "s", tokenizer="bytes", files=files)
    assert (store.num_documents, store.num_tokens) == (count, count)
    assert int(store.lengths.min()) == int(store.lengths.max()) == 1
    # calls for a shard, a few for every block of 4 MiB, none for a document
    assert len(files.calls) < 200 + 5 * (count * 13 >> 22)
    assert store.document(count - 1).tolist() == [97]
    assert store.metadata(count - 1)["_record"] == count - 1


# -- X8 ------------------------------------------------------------------------------------


def test_x8_no_path_no_user_and_no_host_is_in_any_file_of_a_store(scratch, monkeypatch):
    from tokenizers import Tokenizer, models

    secret = scratch / "very-secret-folder"
    inputs = write_corpus(secret / "in", count=10, files=2)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    (secret / "words").mkdir()
    words.save(str(secret / "words/tokenizer.json"))
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2")
    monkeypatch.chdir(secret)
    kinds = {
        "file": {"tokenizer": str(secret / "words/tokenizer.json")},
        "folder": {"tokenizer": str(secret / "words")},
        "bytes": {"tokenizer": "bytes"},
        "hook": {"tokenizer": "bytes", "transform": "inside:die_on_marker"},
        "own": {"tokenizer": lambda text: [1] * len(text), "vocab_size": 2},
    }
    needles = {str(scratch), str(secret), "very-secret", "hunter2", str(Path.home()), os.getcwd()}
    needles |= {socket.gethostname(), str(Path(tl.__file__).parent)}
    user = getpass.getuser()
    needles |= {f"/{user}", f"{user}@", f"/home/{user}"}
    needles -= {"/", ""}
    for kind, options in kinds.items():
        tl.build(inputs, secret / kind, files=QUICK, **options)
        more = write_corpus(secret / f"more-{kind}", count=3, seed=4)
        tl.build(more, secret / kind, append=True, files=QUICK, **options)
        for name, raw in tree(secret / kind).items():
            for needle in needles:
                assert needle.encode() not in (raw or b""), f"{kind}: {needle} is in {name}"


# -- X9 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o775])
def test_x9_what_is_being_written_is_private_and_what_is_published_is_as_the_root(mode, scratch):
    root = scratch / "s"
    root.mkdir()
    root.chmod(mode)
    seen = []

    def look(call):
        found = [folder for folder in root.glob(".tmp-*") if folder.is_dir()]
        seen.extend((call.name, stat.S_IMODE(folder.stat().st_mode)) for folder in found)

    inputs = write_corpus(scratch / "in")
    tl.build(inputs, root, files=FaultFiles(QUICK, before=look), **SMALL)
    writing = [found for name, found in seen if name not in ("chmod_like", "rename_new")]
    assert len(writing) > 20
    assert set(writing) == {0o700}
    for shard in root.glob("shard-*"):
        assert stat.S_IMODE(shard.stat().st_mode) == mode
    assert stat.S_IMODE(root.stat().st_mode) == mode


def test_x9_temporary_names_cannot_be_guessed_and_are_never_reused(scratch):
    inputs = write_corpus(scratch / "in")
    names = []
    for target in ("a", "b"):
        files = FaultFiles(QUICK)
        tl.build(inputs, scratch / target, files=files, **SMALL)
        names += {
            part for call in files.calls for part in call.path.parts if part.startswith(".tmp-")
        }
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"\.tmp-[0-9a-f]{32}", name) for name in names)
