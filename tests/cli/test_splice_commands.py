"""`tokenloom splice audit` and `tokenloom splice coverage`."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.inspect import triples

WORKED = ("--seq-len", 8, "--content-length", 4, "--no-adaptive-k", "--balance-mode", "by_document")


@pytest.fixture
def store(tmp_path):
    rows = [{"text": text} for text in ("abcdefg", "hijkl", "xyz")]
    tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    return tmp_path / "s"


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs a command: (exit code, standard output, standard error)."""
    monkeypatch.setattr("warnings.showwarning", lambda *_, **__: None)  # `main` sets its own

    def run(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def numbers(out):
    return [tuple(map(int, line.split())) for line in out.splitlines()]


def test_an_audit_is_of_one_epoch_and_of_its_first_examples(store, cli):
    quota = ("--seq-len", 8, "--content-length", 4, "--sampler", "quota", "--epoch-length", 3)
    one = [numbers(cli("splice", "audit", store, *quota, "--epoch", e)[1]) for e in range(3)]
    assert [[row[0] for row in rows] for rows in one] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert one[0][0][2:] != one[1][0][2:]  # every epoch shifts the starts
    code, out, err = cli("splice", "audit", store, *quota, "--epoch", 2, "--limit", 2)
    assert (code, numbers(out)) == (0, one[2][:2])
    assert "the first 2 of them" in err


def test_every_option_means_what_it_means_in_the_library(store, cli):
    words = {
        "content_length": 3,
        "content_stride": 2,
        "offset_stride": 2,
        "min_copy_len": 3,
        "content_start_mode": "slide_within",
        "placement": "truncate",
        "balance_mode": "by_temperature",
        "balance_tau": 0.5,
        "sampler": "quota",
        "epoch_length": 9,
        "position_scheme": "absolute",
    }
    options = [w for name, value in words.items() for w in (f"--{name.replace('_', '-')}", value)]
    select = ("--num-docs", 2, "--doc-select-mode", "shortest", "--min-doc-length", 4)
    _, out, _ = cli("splice", "audit", store, "--seq-len", 6, *options, *select)
    chosen = tl.open(store).select(num_docs=2, doc_select_mode="shortest", min_doc_length=4)
    found = triples(chosen.splice(6, **words))
    assert [row[2:] for row in numbers(out)] == list(
        zip(found.document.tolist(), found.t.tolist(), found.s.tolist(), strict=True)
    )
    more = {"alpha": 0.8, "offset_jitter": 1, "edge": "inside", "fill": "one", "mode": "splice"}
    options = [w for name, value in more.items() for w in (f"--{name.replace('_', '-')}", value)]
    _, out, _ = cli(
        "splice", "audit", store, "--seq-len", 6, "--content-length", 3, "--bos", 7, *options
    )
    found = triples(tl.open(store).splice(6, content_length=3, bos=7, **more))
    assert [row[3] for row in numbers(out)] == found.t.tolist()


def test_a_picture_replaces_another_one_whole(store, cli, tmp_path):
    target = tmp_path / "pictures" / "one.svg"
    target.parent.mkdir()
    target.write_text("an older one")
    code, _, err = cli("splice", "coverage", store, *WORKED, "--svg", target, "--document", 1)
    assert code == 0
    assert ET.parse(target).getroot().get("role") == "img"
    assert "Document 1: 5 tokens" in target.read_text()
    assert f"{target}: document 1" in err
    assert [path.name for path in target.parent.iterdir()] == ["one.svg"]


def test_without_a_document_the_picture_is_of_the_one_that_is_shown_most(store, cli, tmp_path):
    words = ("--seq-len", 8, "--content-length", 2, "--doc-index", 2, 1, 0)
    code, out, _ = cli(
        "splice", "coverage", store, *words, "--svg", tmp_path / "p.svg", "--json", "--quiet"
    )
    assert code == 0
    assert json.loads(out)["svg"] == {"file": str(tmp_path / "p.svg"), "document": 0}


@pytest.mark.parametrize("place", ["nowhere/p.svg", "folder"])
def test_a_picture_that_cannot_be_written_is_an_error_and_leaves_nothing(
    store, cli, tmp_path, place
):
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    code, _, err = cli("splice", "coverage", store, *WORKED, "--svg", tmp_path / place)
    assert code == 1
    assert place in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_reader_that_has_seen_enough_ends_a_long_list(tmp_path):
    ids = [{"input_ids": (np.arange(4000) % 50).tolist()}]
    tl.build(ids, tmp_path / "s", tokenizer=None, vocab_size=50, progress=False)
    words = f"splice audit {tmp_path / 's'} --seq-len 64 --content-start-mode slide_within --quiet"
    command = f"{sys.executable} -m tokenloom {words} --content-length 8 | head -2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert numbers(done.stdout) == [(0, 0, 0, 0, 0), (1, 0, 0, 0, 1)]
    assert "Traceback" not in done.stderr
