"""`--executor` of build, verify and audit: the word arrives where the work is done."""

import json

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom import cluster
from tokenloom.cli import main
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
