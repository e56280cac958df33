"""`--executor` of build, verify and audit: the word arrives where the work is done."""

import json

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom import cluster
from tokenloom.cli import build as building
from tokenloom.cli import main
from tokenloom.cli import verify as verifying
from tokenloom.testing import write_store

WHERE = "ray:10.0.0.5:6379"


@pytest.fixture
def run_file(tmp_path):
    write_store(tmp_path / "store", [[[5, 6, 7, 8], [9]]])
    run = tl.open(tmp_path / "store").windows(2).shuffle()
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run.describe()))
    (tmp_path / "kept.json").write_text(json.dumps(run.audit(progress=False).as_json()))
    return path


@pytest.fixture
def heard(monkeypatch):
    """What each function was told by `executor`; the work is done here."""
    told = []

    def listening(place, name):
        real = getattr(place, name)

        def listen(*given, executor, **named):
            told.append((name, executor))
            return real(*given, executor="local", **named)

        monkeypatch.setattr(place, name, listen)

    listening(building, "build_store")
    listening(verifying, "check_store")
    for name in ("audit_run", "check_certificate"):
        listening(cluster, name)
    return told


def test_the_word_of_every_command_arrives(tmp_path, run_file, heard, capsys):
    (tmp_path / "in.jsonl").write_text('{"text": "ab"}\n' * 9)
    build = ["build", f"{tmp_path}/in.jsonl", "-o", f"{tmp_path}/s", "-t", "bytes", "--overwrite"]
    check = ["audit", str(run_file), "--check", f"{tmp_path}/kept.json", "--full"]
    lines = {
        "build_store": [*build, "--stretches", "2"],
        "check_store": ["verify", f"{tmp_path}/store"],
        "audit_run": ["audit", str(run_file)],
        "check_certificate": check,
    }
    for name, line in lines.items():
        assert main([*line, "--executor", WHERE, "--quiet"]) == 0, capsys.readouterr().err
        assert heard == [(name, WHERE)]
        heard.clear()
        assert main([*line, "--quiet"]) == 0
        assert {where for _, where in heard} <= {"local"}
        heard.clear()


def test_a_certificate_is_computed_again_where_it_is_said(run_file, tmp_path, capsys):
    check = ["audit", str(run_file), "--check", f"{tmp_path}/kept.json", "--json"]
    assert main([*check, "--full"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*check, "--full", "--executor", "local"]) == 0
    assert json.loads(capsys.readouterr().out) == alone
    assert main([*check, "--executor", "local"]) == 0
    capsys.readouterr()
    assert main([*check, "--executor", WHERE]) == 2
    assert "--full" in json.loads(capsys.readouterr().out)["message"]


def test_files_of_others_are_verified_by_one_process(tmp_path, capsys):
    np.array([5, 6, 2, 7, 2], np.uint16).tofile(tmp_path / "train.bin")
    line = ["verify", f"{tmp_path}/train.bin", "--dtype", "uint16", "--eos", "2", "--quiet"]
    assert main(line) == 0
    assert main([*line, "--executor", "local"]) == 0
    capsys.readouterr()
    assert main([*line, "--executor", WHERE]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"--executor: found {WHERE!r}" in told
    assert f"{tmp_path}/train.bin" in told
    np.save(tmp_path / "ids.npy", np.array([5, 6, 7], np.uint16))
    refused(lambda: cluster.check_store(tmp_path / "ids.npy"), tl.ConfigError, "ids.npy")
    assert cluster.check_store(tmp_path / "ids.npy", executor="local").ok
