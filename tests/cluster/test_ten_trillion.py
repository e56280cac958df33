"""What docs/scale.md says of 10^13 tokens and 10,000 ranks, on stores that are not there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def figures(shards, ranks):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HERE / "huge.py", str(shards), str(ranks)],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(found, shards):
    assert found["tokens"] == shards << 27
    assert found["manifest_bytes"] < 700 * shards
    assert found["open_reads"] == 0  # the manifest alone
    for kind in ("full", "lanes"):
        rank = found[kind]
        assert rank["rows"] == 2
        assert rank["deciding_state_bytes"] < 1000
        assert rank["first_reads"] <= 8
        assert rank["reads_a_step"] <= 8
    # two rows of 4,096 tokens, each with the chunks of boundaries that it touches
    assert found["full"]["bytes_a_step"] < 100_000
    assert found["mb"] < 30 + 0.004 * shards


def test_a_rank_of_a_hundred_reads_a_few_places_of_thirty_shards():
    check(figures(30, 100), 30)


@pytest.mark.slow
def test_ten_trillion_tokens_and_ten_thousand_ranks():
    found = figures(74_506, 10_000)
    assert found["tokens"] > 10**13
    check(found, 74_506)
