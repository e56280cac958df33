"""A store in a bucket, through a socket: against bare requests, in training, and for many ranks.

The bucket is the server of the tests (`tests/shared/range_server.py`) in a process of its own, on
the same machine: it speaks S3, waits as long as it is told, and writes down every request. So all
figures share their two cores with the server, and only ratios inside one run mean something.

Three tables. The first reads the same bytes in the same requests of 8 MiB, 32 at a time, through
tokenloom and through bare obstore, in turns. The second trains from a bucket of
20 ms and 100 MB/s. The third counts, in the log of the server, what it sends to four ranks.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import obstore

import tokenloom as tl
from benchmarks.clock import Row, Table, against, amount, interleave, rate, typical, want
from benchmarks.stores import write_store
from tokenloom.inspect import simulate_run
from tokenloom.store import format as fmt
from tokenloom.store.coalesce import CAP_BYTES

__all__ = ["SIZES", "Bucket", "run", "serving"]

# size → tokens of the store, rounds of reading, blocks of a window
SIZES = {
    "tiny": (1 << 20, 1, 2),
    "small": (1 << 26, 11, 16),
    "default": (1 << 27, 31, 32),
    "full": (1 << 29, 30, 64),
}
SERVER = Path(__file__).parents[1] / "tests" / "shared" / "range_server.py"
BATCH, SEQ, RANKS = 32, 2048, 4
LATENCY, BANDWIDTH = 0.02, 100e6
IN_FLIGHT = 32
PAYLOAD = "input_ids/c/0"


class Bucket:
    """The server, and what this process sets to reach it."""

    def __init__(self, port: int) -> None:
        self._where = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self._where,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
        }

    def set(self, **settings: float) -> None:
        """How it behaves from now on; what is not named goes back to its default."""
        self._ask("PUT", "settings", json.dumps(settings).encode())

    def sent(self) -> list[int]:
        """The bytes of every answer with tokens since this was asked last."""
        log = json.loads(self._ask("GET", "log"))
        self._ask("DELETE", "log")
        return [one["sent"] for one in log if PAYLOAD in one["key"]]

    def _ask(self, method: str, what: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self._where}/-/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Bucket]:
    """The server over the files of a folder; this process and its children reach it as S3."""
    command = [sys.executable, str(SERVER), "--serve", f"bucket={folder}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        bucket = Bucket(int(process.stdout.readline()))
        before = dict(os.environ)
        os.environ.update(bucket.environment)
        try:
            yield bucket
        finally:
            os.environ.clear()
            os.environ.update(before)
            process.kill()


def _opened(**options: Any) -> tl.Store:
    return tl.open("s3://bucket/store", **({"cache_bytes": 0} | options))


def _read(store: tl.Store) -> int:
    """All tokens, in one request of many ranges."""
    return _held(store.reader.read(np.array([0]), np.array([store.num_tokens])))


def _held(buffers: list[Any]) -> int:
    """Bytes of all buffers, which are there together: who frees one early uses it again."""
    return sum(memoryview(one).nbytes for one in buffers)


CHUNK = 2 * fmt.INNER  # bytes that have a checksum


def _summed(buffers: list[Any]) -> int:
    """The same, and the checksum of every chunk, as it is stored beside the tokens."""
    for one in buffers:
        raw = np.frombuffer(one, np.uint8)
        for start in range(0, len(raw), CHUNK):
            google_crc32c.value(raw[start : start + CHUNK])
    return _held(buffers)


def _sequential(bucket: Bucket, tokens: int, rounds: int, command: str) -> Table:
    size, key = 2 * tokens, f"store/shard-00000/{PAYLOAD}"
    client = obstore.store.S3Store("bucket", client_options={"allow_http": True})

    def by_range(start: int) -> Any:
        return obstore.get_range(client, key, start=start, end=min(start + CAP_BYTES, size))

    def by_options(start: int) -> Any:
        options = {"range": (start, min(start + CAP_BYTES, size))}
        return obstore.get(client, key, options=options).bytes()

    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        every, store = range(0, size, CAP_BYTES), _opened()
        cases = {
            "bare": lambda: _held([*pool.map(by_range, every)]),
            "get": lambda: _held([*pool.map(by_options, every)]),
            "ours": lambda: _read(store),
            "first": lambda: _read(_opened()),
            "summed": lambda: _summed([*pool.map(by_range, every)]),
        }
        assert {case() for case in cases.values()} == {size}
        found = interleave(cases, rounds)
    names = {
        "bare": "bare obstore.get_range",
        "get": "bare obstore.get of a range",
        "ours": "tokenloom",
        "first": "tokenloom, opened anew, all checked",
        "summed": "limit: bare obstore.get_range and the crc32c of every chunk",
    }
    speed = {name: rate(what, found[name], size / 1e6, "MB/s") for name, what in names.items()}
    limit = max("bare", "get", key=lambda name: typical(speed[name]))
    ours, first, summed = (
        against(speed[one], speed[limit], "of the faster") for one in ("ours", "first", "summed")
    )
    # rounds are compared with their own: the load changes between them
    wall = 1 / found["ours"].by_wall().over(found[limit].by_wall())
    bucket.sent()
    before = store.reads
    _read(store)
    planned = store.reads.read_ops - before.read_ops
    rows = [
        speed["bare"],
        speed["get"],
        want(ours, ">=", 0.9, of_ratio=True),
        want(amount("  by the wall", wall, "of the faster"), ">=", 0.9),
        want(first, ">=", 0.9, of_ratio=True),
        summed,
        against(
            replace(speed["first"], what="  beside that limit"), speed["summed"], "of the limit"
        ),
        amount("requests planned", planned, "requests"),
        _none("requests beyond the plan", len(bucket.sent()) - planned),
    ]
    notes = [
        f"{size / 1e6:,.0f} MB in requests of 8 MiB, {IN_FLIGHT} in flight.",
        "By the wall: the median of the rounds' own ratios, on cores shared with the server.",
        "All checked: the crc32c of every chunk is compared, when all requests are answered.",
        "The limit adds that alone to bare requests.",
    ]
    return Table(title="buckets 1: sequential", command=command, rows=rows, notes=notes)


def _none(what: str, found: int) -> Row:
    return want(amount(what, found, "requests"), "<=", 0)


def _training(bucket: Bucket, blocks: int, command: str) -> Table:
    def shuffled() -> tl.Dataset:
        store = _opened(cache_bytes=640 << 20)
        return store.windows(SEQ).block_shuffle(window_blocks=blocks).seed(1)

    told = simulate_run(shuffled(), batch_size=BATCH).ranks[0]
    bucket.set(latency=LATENCY, bandwidth=BANDWIDTH)
    bucket.sent()
    start, steps, first = time.perf_counter(), 0, 0.0
    run = shuffled()
    with tl.Loader(run, BATCH) as loader:
        for _ in loader:
            steps += 1
            first = first or time.perf_counter() - start
    seconds = time.perf_counter() - start
    bucket.set()
    delivered = steps * BATCH * SEQ * 2 / seconds / BANDWIDTH
    unit = f"of {BANDWIDTH / 1e6:g} MB/s"
    rows = [
        want(Row(what="bandwidth delivered", value=delivered, unit=unit), ">=", 0.85),
        amount("tokens", steps * BATCH * SEQ / seconds / 1e6, "Mtok/s"),
        amount("first batch", first, "s"),
        amount("requests simulated", told.reads, "requests"),
        _none("requests beyond those", len(bucket.sent()) - told.reads),
        amount("retries", run.counters().retries, "requests"),
    ]
    notes = [
        (
            f"{LATENCY * 1e3:g} ms a request; batches of {BATCH} x {SEQ:,}, windows of {blocks} "
            "blocks; one round, from opening the store to the last batch."
        ),
    ]
    return Table(title="buckets 2: training", command=command, rows=rows, notes=notes)


def _rank(rank: int, lanes: int, blocks: int, options: dict[str, Any]) -> None:
    store = _opened(cache_bytes=640 << 20, **options)
    run = store.windows(SEQ).block_shuffle(window_blocks=blocks, lanes=lanes).seed(1)
    with tl.Loader(run, BATCH, rank, RANKS) as loader:
        for _ in loader:
            pass


def _egress(bucket: Bucket, tokens: int, blocks: int, folder: Path, command: str) -> Table:
    rows = []
    cases = {
        "without lanes": (1, {}, 1.0 * RANKS),
        f"{RANKS} lanes": (RANKS, {}, 1.0),
        "without lanes, one host, a disk cache": (1, {"disk_cache": folder / "pieces"}, 1.0),
    }
    for what, (lanes, options, most) in cases.items():
        bucket.sent()
        each = max(1, blocks // lanes)
        with multiprocessing.get_context("spawn").Pool(RANKS) as pool:
            pool.starmap(_rank, [(rank, lanes, each, options) for rank in range(RANKS)])
        sent = sum(bucket.sent()) / (2 * tokens)
        row = amount(f"sent to {RANKS} ranks, {what}", sent, "x the store")
        rows.append(replace(want(row, "<=", most * 1.05), unit="x the store"))
    notes = [
        "Bytes of tokens in the log of the server; every rank is a process of its own, all at once."
    ]
    return Table(title="buckets 3: ranks", command=command, rows=rows, notes=notes)


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The three tables of a store in a bucket."""
    tokens, rounds, blocks = SIZES[size]
    (folder / "served").mkdir()
    write_store(folder / "served" / "store", tokens, shards=1)
    with serving(folder / "served") as bucket:
        return [
            _sequential(bucket, tokens, rounds, command),
            _training(bucket, blocks, command),
            _egress(bucket, tokens, blocks, folder, command),
        ]
