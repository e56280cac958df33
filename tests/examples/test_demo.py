"""The demo does what it says, leaves what it says, and never takes what is not its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples.demo import __main__ as demo
from examples.demo.tokenizer import EOS, train

import tokenloom as tl

ROOT = Path(__file__).parents[2]


def run(*command, **environment):
    """A finished process, in a pipe, from the root of the repository."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error", **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
    )


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    """One run with a tiny corpus: its output directory and the finished process."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run(sys.executable, "-m", "examples.demo", "--fast", "--out", out)


def test_the_demo_ends_well_and_every_promise_has_a_tick(fast):
    _, done = fast
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""  # no bar, no warning, no log line when nobody looks
    assert len(re.findall(r"^── \d+/\d+  ", done.stdout, re.MULTILINE)) == len(demo.STEPS)
    assert done.stdout.count("✓") >= 8
    assert "✗" not in done.stdout


def test_the_stores_that_are_left_are_those_of_the_table(fast):
    out, done = fast
    digests = re.search(r"^ +digest +(\w{16}) +(\w{16})$", done.stdout, re.MULTILINE)
    for name, digest in zip(("code", "prose"), digests.groups(), strict=True):
        store = tl.open(out / "stores" / name)
        assert store.digest.startswith(digest)
        assert store.verify().ok
        assert all(ids[-1] == store.tokenizer.eos for ids in store.documents(range(5)))
    assert sorted(path.name for path in out.iterdir()) == [
        demo.MARK,
        "certificate.json",
        "corpus",
        "report.html",
        "run",
        "run.yaml",
        "stores",
        "tokenizer.json",
        "training",
        "training-killed",
    ]


def test_every_command_under_what_to_try_next_works(fast):
    _, done = fast
    lines = (
        done.stdout.partition("What to try next")[2].partition("── And look")[0].splitlines()[1:]
    )
    commands = [line.strip() for line in lines if line.strip() and "#" not in line]
    assert len(commands) >= 4
    for command in commands:
        tried = run("sh", "-c", command)
        assert tried.returncode == 0, command + tried.stdout + tried.stderr
        assert tried.stdout


def test_it_ends_with_a_report_and_the_command_of_the_explorer(fast):
    out, done = fast
    report, explore = (line.strip() for line in done.stdout.rstrip().splitlines()[-2:])
    page = Path(report.split("  (")[0])
    assert page == out / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    assert explore.endswith(f"explore {out}/run.yaml --batch-size 8")


@pytest.mark.slow
def test_a_second_run_replaces_the_first_and_gives_the_same_digests(tmp_path):
    command = (sys.executable, "-m", "examples.demo", "--fast", "--out", tmp_path / "out")
    seen = []
    for hash_seed, threads in (("1", "1"), ("2", "2")):
        done = run(*command, PYTHONHASHSEED=hash_seed, RAYON_NUM_THREADS=threads)
        assert done.returncode == 0, done.stdout + done.stderr
        seen.append(re.search(r"^ +digest +.*$", done.stdout, re.MULTILINE)[0])
    assert seen[0] == seen[1]


# ---------------------------------------------------------------- where it writes


def test_a_directory_of_somebody_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("twelve years of work")
    assert demo.main(["--fast", "--out", str(tmp_path)]) == 2
    assert demo.main(["--fast", "--out", str(tmp_path / "thesis.tex")]) == 2
    assert capsys.readouterr().err.count(str(tmp_path)) >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_an_earlier_demo_left_is_removed_but_not_what_links_point_to(tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    assert demo.prepare(out) is None
    (out / "stores").mkdir()
    (out / "stores" / "old").touch()
    (out / "link").symlink_to(elsewhere)
    assert demo.prepare(out) is None
    assert [path.name for path in out.iterdir()] == [demo.MARK]
    assert (elsewhere / "kept").exists()


# ---------------------------------------------------------------- its tokenizer


def test_training_has_no_randomness_and_suits_the_fast_engine(tmp_path):
    # many ties in the counts: whoever breaks them by chance is caught here
    texts = [f"def f{i}(x): return x + {i}\n" for i in range(200)] * 2
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path in paths:
        train(texts, path, vocab_size=400)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    records = [{"text": text} for text in texts]
    store = tl.build(records, tmp_path / "store", tokenizer=paths[0], engine="fast")
    assert store.tokenizer.token_strings([store.tokenizer.eos]) == [EOS]
    assert store.tokenizer.decode(store.document(7)[:-1]) == texts[7]
