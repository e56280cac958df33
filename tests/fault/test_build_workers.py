"""Worker processes of a build: functions of a script, no process left over, bounded memory."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sentencepiece
import toys
from kit import QUICK, assert_same_tree, tree

import tokenloom as tl

SMALL = {"block_bytes": 600, "shard_tokens": 3000, "tokenizer": "bytes", "files": QUICK}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"text": f"document {i} {'x' * 100}", "n": i} for i in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        timeout=900,
    )


def test_several_builds_with_any_number_of_workers_write_the_same_bytes(source, tmp_path):
    tl.build(source, tmp_path / "one", workers=1, **SMALL)
    expected = tree(tmp_path / "one")
    for name, workers in (("two", 2), ("again", 2), ("three", 3), ("auto", None)):
        tl.build(source, tmp_path / name, workers=workers, **SMALL)
        assert_same_tree(tmp_path / name, expected, name)
    other = {**SMALL, "filter": lambda record: record["n"] % 2 == 0}  # cannot leave this process
    assert tl.build(source, tmp_path / "even", workers=2, **other).num_documents == 100


@pytest.mark.parametrize(
    "tokenizer",
    [
        toys.bpe,
        toys.tiktoken_encoding,
        lambda: sentencepiece.SentencePieceProcessor(model_proto=toys.sentencepiece_model()),
        lambda: "toys:words",
    ],
    ids=["tokenizers", "tiktoken", "sentencepiece", "function"],
)
def test_every_kind_of_tokenizer_goes_to_workers(source, tmp_path, tokenizer):
    options = {**SMALL, "tokenizer": tokenizer(), "on_error": "skip", "filter": "badhooks:keep_all"}
    options |= {"vocab_size": 1000} if options["tokenizer"] == "toys:words" else {}
    source.write_text(source.read_text() + "bad\n" * 3)
    for workers in (1, 2):
        tl.build(source, tmp_path / str(workers), workers=workers, **options)
    assert_same_tree(tmp_path / "2", tree(tmp_path / "1"))


# without a main guard, with functions of its own
SCRIPT = """
import sys
import tokenloom as tl

def keep(record):
    return record["n"] % 2 == 0

def spell(text):
    return list(text.encode())

source, out = sys.argv[1:]
small = {"workers": 2, "block_bytes": 600}
a = tl.build(source, out + "/a", tokenizer="bytes", filter=keep, **small)
b = tl.build(source, out + "/b", tokenizer=spell, vocab_size=256, **small)
c = tl.build(source, out + "/c", tokenizer="bytes", filter="keeps:even", **small)
print(a.num_documents, b.num_documents, c.num_documents)
"""


def test_functions_of_a_script_work_with_workers(source, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "keeps.py").write_text("def even(record):\n    return record['n'] % 2 == 0\n")
    done = run(tmp_path / "script.py", source, tmp_path)
    assert done.stdout == "100 200 100\n", done.stderr


def children():
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def test_a_build_that_fails_leaves_no_worker(source, tmp_path):
    before = children()
    source.write_text(source.read_text() + '{"text": 7}\n')
    with pytest.raises(tl.InputError, match="record 200"):
        tl.build(source, tmp_path / "s", workers=2, **SMALL)
    assert children() <= before


DYING = """
import os, sys
from pathlib import Path
import tokenloom as tl
source, out, mode = sys.argv[1:]
options = dict(tokenizer="bytes", workers=2, block_bytes=600, shard_tokens=3000)
tl.build(source, out + "/a", **options)
if mode == "fork":
    child = os.fork()
    if child == 0:
        tl.build(source, out + "/b", **options)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tl.build(source, out + "/c", **options)
print(*(int(p) for task in Path("/proc/self/task").iterdir()
        for p in (task / "children").read_text().split()), flush=True)
if mode == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", ["exit", "killed", "fork"])
def test_no_worker_outlives_its_parent(mode, source, tmp_path):
    (tmp_path / "script.py").write_text(DYING)
    done = run(tmp_path / "script.py", source, tmp_path, mode)
    assert done.returncode == (-9 if mode == "killed" else 0), done.stderr
    assert "Warning" not in done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    for _ in range(3000):  # they end when their input ends
        if not any(map(runs, pids)):
            break
        time.sleep(0.1)
    assert not any(map(runs, pids))


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_memory_does_not_grow_with_the_input(tmp_path):
    """The bound on a build: peak memory of a build of 1x and of 8x the text.

    The text between the two (300 MB) is large beside all queues and buffers (some 40 MB),
    of which the smaller build fills more or less, as its threads happen to run.
    """
    line = json.dumps({"text": "lorem ipsum dolor " * 300})
    peaks = []
    for size in (8_000, 64_000):
        path = tmp_path / f"{size}.jsonl"
        with path.open("w") as file:
            file.writelines(line + "\n" for _ in range(size))
        script = tmp_path / f"{size}.py"
        script.write_text(f"""
import tokenloom as tl
tl.build({str(path)!r}, {str(tmp_path / f"s{size}")!r}, tokenizer="bytes", workers=1)
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
""")
        peaks.append(int(run(script).stdout))
    text = 56_000 * len(line) / 1024
    assert peaks[1] - peaks[0] < 0.25 * text, peaks
