"""`tokenloom bench data-loading`: the published read counts, and a fair shuffle beside them."""

import json

import pytest

from tokenloom.cli import bench_reads, main

SMALL = ["--num-examples", "512", "--seq-len", "64", "--steps", "4", "--batch-size", "16"]


def run(capsys, *flags):
    code = main(["bench", "data-loading", "--quiet", *flags])
    return code, capsys.readouterr().out


def test_the_published_reads_come_out_to_the_last_one(capsys):
    code, out = run(capsys, "--json")
    results = json.loads(out)["results"]
    reads = {name: found["reads_issued"]["mean"] for name, found in results["levanter"].items()}
    assert (code, reads) == (0, {"full": 35_650, "era": 20, "block": 287})
    fair = {name: found["reads_issued"]["mean"] for name, found in results["feistel"].items()}
    # k (N - k + 1) / N runs in a random request of k of N rows; 16 (128 - 15) / 128 block runs
    assert fair["full"] / 40_960 == pytest.approx(0.875, abs=0.01)
    assert fair["era"] == 20
    assert fair["block"] == pytest.approx(282, abs=20)


def test_the_tables_have_the_published_columns(capsys):
    code, out = run(capsys, *SMALL)
    assert code == 0
    assert (
        "| Strategy | reads_issued | examples | reads/example | estimated_read_reduction |" in out
    )
    for column in ("elapsed_s", "examples/s", "tokens/s", "p50_ms", "p95_ms", "reads_saved"):
        assert column in out
    assert "2.0 passes over the store" in out


class Clock:
    """A clock that a test moves: requests take 1, 2, 3 and 4 seconds."""

    def __init__(self):
        self.now, self.calls = 0.0, 0

    def perf_counter(self):
        if self.calls % 2:  # the end of a request
            self.now += 1 + self.calls // 2 % 4
        self.calls += 1
        return self.now


def test_speeds_are_those_of_the_requests(capsys, monkeypatch):
    """By hand: 4 requests of 16 x 16 rows of 64 tokens in 1 + 2 + 3 + 4 s."""
    monkeypatch.setattr(bench_reads, "time", Clock())
    code, out = run(capsys, *SMALL, "--prefetch-batches", "16", "--json")
    told = json.loads(out)
    assert code == 0
    for perm_type, strategies in told["results"].items():
        for strategy, counts in strategies.items():
            speeds = told["speeds"][perm_type][strategy]
            reads = counts["reads_issued"]["mean"]
            assert speeds == {
                "elapsed_s": 10,
                "examples/s": pytest.approx(102.4),
                "tokens/s": pytest.approx(6553.6),
                "p50_ms": pytest.approx(2500),
                "p95_ms": pytest.approx(3850),
                "reads_saved": 1024 - reads,
            }
            assert 0 < reads < 1024
            assert counts["examples"]["mean"] == 1024
            assert counts["reads/example"]["mean"] == reads / 1024
            assert counts["estimated_read_reduction"]["mean"] == 1 - reads / 1024


def test_a_run_is_compared_with_an_earlier_one(capsys, tmp_path):
    _, out = run(capsys, *SMALL, "--json")
    (tmp_path / "old.json").write_text(out)
    code, out = run(capsys, *SMALL, "--compare", str(tmp_path / "old.json"))
    assert code == 0
    assert "no difference" in out
    assert "times as long" in out
    code, out = run(capsys, *SMALL, "--seed", "1", "--compare", str(tmp_path / "old.json"))
    assert code == 1
    assert "differs" in out
    code, _ = run(capsys, *SMALL, "--compare", str(tmp_path / "old.json"), "--max-slowdown", "1e-9")
    assert code == 1


def test_flags_that_cannot_be_meant_are_refused(capsys):
    assert main(["bench", "data-loading", "--steps", "0"]) == 2
    assert "--steps: found 0" in capsys.readouterr().err
    assert main(["bench", "data-loading", "--strategies", "ful"]) == 2
    assert "Did you mean 'full'" in capsys.readouterr().err
