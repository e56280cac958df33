"""What docs/scale.md says of 10^13 tokens and 10,000 ranks, on stores that are not there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit import QUICK, SMALL
from virtual import VirtualStore

from tokenloom import cluster
from tokenloom.ingest.cluster.stretch_files import record_name

HERE = Path(__file__).parent

PAGE = HERE.parents[1] / "docs/scale.md"


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
def test_a_rank_of_a_hundred_reads_no_more_of_ten_times_the_shards():
    check(figures(300, 100), 300)


@pytest.mark.slow
def test_ten_trillion_tokens_and_ten_thousand_ranks():
    found = figures(74_506, 10_000)
    assert found["tokens"] > 10**13
    check(found, 74_506)
    print(found)


# -- the sizes of small files ---------------------------------------------------------------


def on_the_page(pattern):
    """The numbers of a sentence of the page."""
    return [int(one) for one in re.search(pattern, PAGE.read_text()).groups()]


def test_a_manifest_grows_as_the_page_says(scratch):
    low, high, group = on_the_page(
        r"manifest \| (\d+) to (\d+) bytes a shard; (\d+) bytes per 65,536"
    )
    sizes = []
    for shards in (30, 130):
        root = VirtualStore([(131_072, 1 << 27)] * shards).write_manifest(scratch / str(shards))
        sizes.append((root / "manifest-000001.json").stat().st_size)
    assert 0.98 * low <= (sizes[1] - sizes[0]) / 100 - 2 * group <= 1.02 * high


def sizes_of(folder, files, shard_tokens):
    """Shards, inputs and bytes of the record of a stretch, and bytes of the list of inputs."""
    lines = "".join(
        json.dumps({"text": f"words {n}" * 4, "id": f"d{n}"}) + "\n" for n in range(200)
    )
    per, inputs = 200 // files, []
    for number in range(files):
        inputs.append(folder / f"{files}-{number:05d}-of-10000.jsonl")
        some = lines.splitlines(keepends=True)[number * per : (number + 1) * per]
        inputs[-1].write_text("".join(some))
    own = {**SMALL, "shard_tokens": shard_tokens, "files": QUICK}
    out = folder / f"store-{files}-{shard_tokens}"
    done = [cluster.build_part(inputs, out, f"{n}/2", workers=1, **own) for n in (1, 2)]
    record = out / record_name(1, 0)
    size, reads = record.stat().st_size, len(json.loads(record.read_text())["reads"])
    cluster.finish_build(inputs, out, **own)
    return done[0]["shards"], reads, size, (out / "inputs-000001.json").stat().st_size


def test_records_and_lists_of_inputs_grow_as_the_page_says(scratch):
    a_shard, an_input = on_the_page(r"until the finish \| (\d+) bytes a shard, (\d+) an input")
    (listed,) = on_the_page(r"list of inputs \| about (\d+) bytes a file")
    few, many = sizes_of(scratch, 2, 1000), sizes_of(scratch, 2, 150)
    assert many[0] > few[0] + 10
    assert (many[2] - few[2]) / (many[0] - few[0]) == pytest.approx(a_shard, rel=0.1)
    more = sizes_of(scratch, 40, 1000)
    assert more[0] == few[0]
    assert (more[2] - few[2]) / (more[1] - few[1]) == pytest.approx(an_input, rel=0.1)
    assert (more[3] - few[3]) / (40 - 2) == pytest.approx(listed, rel=0.1)
