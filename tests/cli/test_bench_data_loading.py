"""`tokenloom bench data-loading`: the published read counts, and a fair shuffle beside them."""

import json
import time

import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.cli.benches import loading as bench_loader
from tokenloom.cli.benches import reads as bench_reads
from tokenloom.store.byte_source import LocalSource
from tokenloom.testing import write_store

SMALL = ["--num-examples", "512", "--seq-len", "64", "--steps", "4", "--batch-size", "16"]


def run(capsys, *flags):
    code = main(["bench", "data-loading", "--quiet", *flags])
    return code, capsys.readouterr().out


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


def test_flags_that_cannot_be_meant_are_refused(capsys):
    assert main(["bench", "data-loading", "--steps", "0"]) == 2
    assert "--steps: found 0" in capsys.readouterr().err
    assert main(["bench", "data-loading", "--strategies", "ful"]) == 2
    assert "Did you mean 'full'" in capsys.readouterr().err
    assert main(["bench", "data-loading", "--num-examples", "9", "--store", "s"]) == 2
    assert "--num-examples: found 9 together with --store" in capsys.readouterr().err


# -- the loader ------------------------------------------------------------------------------


class Watched:
    """Notes every read of tokens, each of which takes some seconds more."""

    def __init__(self, root, seconds=0.0):
        self.inner, self.seconds, self.read_bytes = LocalSource(root), seconds, []

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        tokens = [size for name, _, size in ranges if "input_ids/c/" in name]
        self.read_bytes += tokens
        time.sleep(self.seconds if tokens else 0.0)
        return self.inner.read(ranges)


ORDERS = {
    "full": lambda rows: rows.shuffle(),
    "era": lambda rows: rows.era_shuffle(32),
    "block": lambda rows: rows.block_shuffle(window_blocks=4),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    made = tmp_path_factory.mktemp("loading") / "store"
    write_store(made, [[list(range(1, 4097))]], vocab_size=5000, inner=64, chunk_tokens=256)
    return made  # 512 rows of 8 tokens in 16 blocks


def watched(root, order, seconds=0.0, cache_bytes=1 << 20, verify="never"):
    source = Watched(root, seconds)
    store = tl.open(root, source=source, verify=verify, cache_bytes=cache_bytes)
    return ORDERS[order](store.windows(8)), source


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("verify", ["never", "always"])
def test_the_loader_reads_what_its_source_is_asked_for(root, order, cache_bytes, verify):
    data, source = watched(root, order, cache_bytes=cache_bytes, verify=verify)
    found = bench_loader.measure_loader(data, steps=20, batch_size=16, prefetch=4)
    assert found["examples"] == 20 * 16
    assert (found["reads"], found["bytes"]) == (len(source.read_bytes), sum(source.read_bytes))
    assert found["reads"] > 0
    assert found["p50_ms"] <= found["p95_ms"]
    assert list(found) == list(bench_loader.LOADER)
    if not cache_bytes and verify == "always":  # a row comes with the chunk that is checked
        assert found["bytes"] > 20 * 16 * 8 * 2
    if cache_bytes:  # every block once: the misses
        assert found["cache_misses"] == found["bytes"] // 512
        assert found["cache_hits"] > 0


def test_a_run_of_more_steps_than_an_epoch_has_goes_on(root):
    data, _ = watched(root, "full")
    found = bench_loader.measure_loader(data, steps=70, batch_size=16, prefetch=0)
    assert found["examples"] == 70 * 16 > 512


def test_a_slow_source_is_seen_in_the_slow_steps(root):
    data, source = watched(root, "full", seconds=0.05, cache_bytes=0)
    found = bench_loader.measure_loader(data, steps=10, batch_size=16, prefetch=1)
    assert source.read_bytes
    assert found["p95_ms"] >= 50
    assert found["examples/s"] <= 160 / 0.05


def test_steps_of_the_loader_are_timed_one_by_one(root, monkeypatch):
    """By hand: 4 steps of 16 rows of 8 tokens in 1 + 2 + 3 + 4 s."""
    monkeypatch.setattr(bench_loader, "time", Clock())
    data, _ = watched(root, "full")
    found = bench_loader.measure_loader(data, steps=4, batch_size=16, prefetch=0)
    assert found["examples/s"] == pytest.approx(6.4)
    assert found["tokens/s"] == pytest.approx(51.2)
    assert (found["p50_ms"], found["p95_ms"]) == (pytest.approx(2500), pytest.approx(3850))


def test_json_and_table_carry_the_loader(capsys):
    _, out = run(capsys, *SMALL, "--json")
    loader = json.loads(out)["loader"]
    assert list(loader) == ["levanter", "feistel"]
    for strategies in loader.values():
        assert list(strategies) == ["full", "era", "block"]
        for found in strategies.values():
            assert set(found) == set(bench_loader.LOADER)
            assert found["examples"] == 4 * 16
            assert 0 < found["reads"] <= found["bytes"]
            assert found["p50_ms"] <= found["p95_ms"]
    _, out = run(capsys, *SMALL)
    assert f"| Strategy | {' | '.join(bench_loader.LOADER)} |" in out
    assert out.count("Loader (perm_type=") == 2


def test_a_store_of_the_user_is_measured_and_stays_as_it_is(capsys, root):
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    flags = ["--store", str(root), "--seq-len", "8", "--steps", "4", "--batch-size", "16"]
    code, out = run(capsys, *flags, "--json")
    told = json.loads(out)
    assert (code, told["settings"]["num_examples"]) == (0, 512)
    assert told["loader"]["feistel"]["full"]["examples"] == 64
    assert told["results"]["feistel"]["full"]["examples"]["mean"] == 4 * 16 * 16
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_slower_steps_of_the_loader_are_told_when_runs_are_compared(capsys, tmp_path):
    _, out = run(capsys, *SMALL, "--json")
    told = json.loads(out)
    del told["speeds"]
    for strategies in told["loader"].values():
        for found in strategies.values():
            found["p50_ms"] /= 1e6
    (tmp_path / "old.json").write_text(json.dumps(told))
    words = *SMALL, "--compare", str(tmp_path / "old.json")
    code, out = run(capsys, *words)
    assert code == 0
    assert "p50 of feistel full, loader: " in out
    code, _ = run(capsys, *words, "--max-slowdown", "100")
    assert code == 1
