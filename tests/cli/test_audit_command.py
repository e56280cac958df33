"""`tokenloom audit`: a run, a certificate, or indices; exit codes tell the verdict."""

import io
import json
import pickle

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.cli.verdicts import read_indices
from tokenloom.testing import write_store


@pytest.fixture
def described(tmp_path):
    """A run, and the file with its description."""
    documents = [list(range(4, 4 + length)) for length in (3, 17, 0, 30, 9)]
    write_store(tmp_path / "store", [documents])
    run = tl.open(tmp_path / "store").windows(4).shuffle().epochs(2)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run.describe()))
    return run, path


def test_an_audit_writes_a_certificate_that_others_check(described, tmp_path, capsys):
    run, path = described
    kept = tmp_path / "certificate.json"
    assert main(["audit", str(path), "-o", str(kept)]) == 0
    assert json.loads(kept.read_text())["subject"]["fingerprint"] == run.fingerprint
    assert main(["audit", str(path), "--check", str(kept)]) == 0
    capsys.readouterr()
    assert main(["audit", str(path), "--check", str(kept), "--full", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(run.seed(9).describe()))
    assert main(["audit", str(other), "--check", str(kept)]) == 1


def test_a_range_a_sample_and_a_plan_alone(described, capsys):
    _, path = described
    assert main(["audit", str(path), "--first", "2", "--last", "9", "--plan-only", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scope"]["arrays"] == "none"
    assert found["counts"]["rows"] == 7
    assert main(["audit", str(path), "--sample", "5", "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missed"]


def test_indices_of_several_ranks_are_judged(tmp_path, capsys):
    files = [tmp_path / f"rank{rank}.npy" for rank in (0, 1)]
    order = np.random.default_rng(0).permutation(20)
    for rank, path in enumerate(files):
        np.save(path, order[rank::2].reshape(5, 2))
    asked = ["audit", "--indices", *map(str, files), "--rows", "20", "--epochs", "1"]
    assert main(asked) == 0
    capsys.readouterr()
    np.save(files[1], order[0::2])
    assert main([*asked, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["laws"]["ranks"]["broken"] == 10


@pytest.mark.parametrize("kind", ["<i8", ">i4", "<u2", "|u1"])
def test_index_files_of_every_kind_of_integers_are_read(tmp_path, kind):
    path = tmp_path / "indices.npy"
    for made in (np.arange(12).reshape(3, 4), np.asfortranarray(np.arange(12).reshape(3, 4))):
        np.save(path, made.astype(kind, order="K"))
        assert read_indices(path).tolist() == list(range(12))


def test_an_index_file_is_never_run(tmp_path, capsys):
    path = tmp_path / "indices.npy"

    class Payload:
        def __reduce__(self):
            return (print, ("it ran",))

    np.save(path, np.array([Payload()], object), allow_pickle=True)
    assert main(["audit", "--indices", str(path)]) == 3
    assert "it ran" not in capsys.readouterr().out
    path.write_bytes(pickle.dumps(Payload()))
    assert main(["audit", "--indices", str(path)]) == 3
    told = capsys.readouterr()
    assert "it ran" not in told.out
    assert str(path) in told.err


@pytest.mark.parametrize("kind", ["cut", "floats", "huge header", "archive", "empty"])
def test_an_index_file_that_is_damaged_is_refused(tmp_path, capsys, kind):
    path, data = tmp_path / "indices.npy", io.BytesIO()
    np.save(data, np.arange(1000) / (2 if kind == "floats" else 1))
    raw = data.getvalue()
    if kind == "cut":
        raw = raw[:500]
    elif kind == "huge header":  # claims 10^15 indices
        raw = raw.replace(b"(1000,)", b"(1000000000000000,)")[: len(raw)]
    elif kind == "archive":
        data = io.BytesIO()
        np.savez(data, a=np.arange(3))
        raw = data.getvalue()
    elif kind == "empty":
        raw = b""
    path.write_bytes(raw if kind != "floats" else data.getvalue())
    assert main(["audit", "--indices", str(path)]) == 3
    assert str(path) in capsys.readouterr().err
