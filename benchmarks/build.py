"""Building: what the pipeline adds to a bare encoder, engine by engine.

The bare loop encodes the same parsed strings with a fresh encoder and drops the lists, block by
block in turn with the pipeline. The pipeline is `tokenloom.build` with one worker in this process:
hashing the inputs, JSON, guards, metadata, checksums, fsync and all. Its start-up (a build of one
short record with the same tokenizer) is measured separately and subtracted.

Every pass makes new encoders and sees no text twice, so that no word cache is warm. One thread per
encoder (`RAYON_NUM_THREADS=1`, `TOKENIZERS_PARALLELISM=false`).

`--size huge` has 1 GB of text, and answers one question alone: what a second worker gains there.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import tokenloom as tl
from benchmarks.clock import (
    Case,
    Table,
    Timing,
    against,
    amount,
    cost,
    interleave,
    rate,
    timed,
    timing_of,
    want,
)
from benchmarks.corpus import Corpus, find_text, train_tokenizer, write_jsonl
from tokenloom.ingest import encode as encode_module
from tokenloom.ingest.crew.worker import close_resting

__all__ = ["SIZES", "run"]

MB = 1e6

GOAL = 1.1  # of the bare loop of the reference
LARGE, GAIN = 1_000_000_000, 1.5  # bytes from which on two workers are to be this much faster


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much text each engine gets, in bytes, and how often."""

    corpus: int
    reference: int
    training: int
    vocab_size: int
    rounds: int
    roots: tuple[str, ...] = ()


SIZES = {
    "tiny": Size(
        corpus=200_000,
        reference=20_000,
        training=100_000,
        vocab_size=400,
        rounds=1,
        roots=(str(Path(json.__file__).parent),),
    ),
    "small": Size(
        corpus=30_000_000,
        reference=2_000_000,
        training=5_000_000,
        vocab_size=32_000,
        rounds=3,
    ),
    "default": Size(
        corpus=200_000_000,
        reference=10_000_000,
        training=20_000_000,
        vocab_size=32_000,
        rounds=5,
    ),
    "full": Size(
        corpus=240_000_000,
        reference=20_000_000,
        training=20_000_000,
        vocab_size=32_000,
        rounds=3,
    ),
    "huge": Size(
        corpus=LARGE,
        reference=0,
        training=20_000_000,
        vocab_size=32_000,
        rounds=4,
    ),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of building: engines against bare loops, and what workers gain."""
    # read by the libraries when they are first used; the workers of a build set them, too
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    how = SIZES[size]
    corpus = find_text(how.corpus, how.roots)
    tokenizer = folder / "tokenizer.json"
    # trained on the end of the corpus; the slow engines are measured on its beginning
    train_tokenizer(tokenizer, _slice(corpus.texts[::-1], how.training), how.vocab_size)
    bench = _Bench(folder, tokenizer, corpus, how.rounds)
    if size == "huge":
        return [_large(bench, corpus, how, command)]
    interleave({"imports": bench.build(bench.empty, "reference")}, 1, warm_up=False)
    tables = [_reference_table(bench, how.reference, command, _notes(corpus, how))]
    if importlib.util.find_spec("fastokens"):
        tables.append(_fast_table(bench, how, command))
        tables.append(_workers_table(bench, "fast", how.corpus, command))
    tables.append(_several_table(bench, how.reference, command))
    return tables


def _large(bench: _Bench, corpus: Corpus, how: Size, command: str) -> Table:
    """Workers at a size at which their start is nothing."""
    if not importlib.util.find_spec("fastokens"):
        title = "build, engine fast, workers"
        return Table(title=title, command=command, rows=[], notes=["fastokens is not installed."])
    interleave({"imports": bench.build(bench.empty, "fast")}, 1, warm_up=False)
    table = _workers_table(bench, "fast", how.corpus, command)
    return replace(table, notes=[*_notes(corpus, how)[:1], *table.notes])


def _notes(corpus: Corpus, how: Size) -> list[str]:
    total = corpus.found + corpus.shuffled
    added = (
        f"; {corpus.shuffled / MB:.1f} MB of shuffled lines were added to reach {how.corpus / MB:g}"
    )
    text = (
        f"Text: {corpus.found / MB:.1f} MB found on the machine{added if corpus.shuffled else ''}; "
        f"{len(corpus.texts):,} documents of {total / len(corpus.texts):,.0f} bytes on average."
    )
    shares = (
        f"The reference gets the first {how.reference / MB:g} MB; {how.vocab_size:,} tokens were "
        f"trained on the last {how.training / MB:g} MB."
    )
    return [text, shares]


def _slice(texts: Sequence[str], wanted: int) -> list[str]:
    """The first texts, until there are `wanted` bytes."""
    taken: list[str] = []
    for text in texts:
        if wanted <= 0:
            break
        taken.append(text)
        wanted -= len(text.encode())
    return taken


class _Bench:
    """The corpus as files, and builds of them."""

    def __init__(self, folder: Path, tokenizer: Path, corpus: Corpus, rounds: int) -> None:
        self.folder, self.tokenizer, self.corpus, self.rounds = folder, tokenizer, corpus, rounds
        self.empty = folder / "empty.jsonl"
        write_jsonl(self.empty, ["almost nothing"])
        self.tokens: dict[str, int] = {}

    def texts(self, wanted: int) -> list[str]:
        return _slice(self.corpus.texts, wanted)

    def file(self, wanted: int) -> tuple[Path, float]:
        """A file with that much text, and its megabytes."""
        path = self.folder / f"text-{wanted}.jsonl"
        texts = self.texts(wanted)
        if not path.exists():
            write_jsonl(path, texts)
        return path, sum(len(text.encode()) for text in texts) / MB

    def build(
        self,
        path: Path,
        engine: str,
        workers: int | None = 1,
        *,
        times: int = 1,
        shared: bool = True,
    ) -> Case:
        """One build, or several in one process; all workers end with the last one."""

        def make(out: Path) -> None:
            for number in range(times):
                store = tl.build(
                    path,
                    out / f"store-{number}",
                    tokenizer=self.tokenizer,
                    id_key="id",
                    engine=engine,
                    workers=workers,
                    progress=False,
                )
                self.tokens[path.name] = store.num_tokens
                if not shared:
                    close_resting()
            close_resting()  # the CPU time of a process is known when it has ended

        return Case(prepare=self.place, run=make)

    def place(self) -> Path:
        """An empty directory; what was made in the one before is removed."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir()
        return self.folder / "out"


# -- engines against bare loops ------------------------------------------------------------


def _bare_reference(payload: bytes) -> Callable[[Sequence[str]], None]:
    """The tokenizers library, in batches of the size of a block, ids taken out."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(payload.decode())
    tokenizer.encode_special_tokens = True

    def encode(texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 256):
            batch = tokenizer.encode_batch_fast(
                texts[start : start + 256], add_special_tokens=False
            )
            for one in batch:
                _ = one.ids

    return encode


def _bare_fast(payload: bytes) -> Callable[[Sequence[str]], None]:
    """The library fastokens, in batches of the size of a block."""
    import fastokens

    tokenizer = fastokens.Tokenizer.from_json_str(payload.decode())

    def encode(texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 256):
            tokenizer.encode_batch_flat(
                list(texts[start : start + 256]),
                add_special_tokens=False,
                split_special_tokens=True,
            )

    return encode


BARE = {"reference": _bare_reference, "fast": _bare_fast}


def _bare(bench: _Bench, engine: str, wanted: int) -> Case:
    texts, payload = bench.texts(wanted), bench.tokenizer.read_bytes()
    return Case(prepare=lambda: BARE[engine](payload), run=lambda encode: encode(texts))


def _beside(bench: _Bench, path: Path, engine: str) -> tuple[Timing, Timing]:
    """(the build, the bare loop): block by block in turn, so that both see the same seconds.

    Whole passes of half a minute, one after the other, scatter by more than what is looked for.
    The bare loop is timed by the clock of its own thread and taken off the build.
    """
    case, took = bench.build(path, engine), [0.0]
    encode = encode_module._encode_texts
    builds, bares = [], []

    def both(job: Any, kitchen: Any, records: Any, number: int, *more: Any) -> None:
        texts = [record[job.text_key] for record in records]

        def alone() -> None:
            begin = time.thread_time()
            bare(texts)
            took[0] += time.thread_time() - begin

        if number % 2:  # whoever comes second finds the text in the CPU's cache
            alone()
        encode(job, kitchen, records, number, *more)
        if not number % 2:
            alone()

    with mock.patch.object(encode_module, "_encode_texts", both):
        for _ in range(bench.rounds):
            bare, took[0] = BARE[engine](bench.tokenizer.read_bytes()), 0.0
            place = case.prepare()
            cpu, _wall = timed(functools.partial(case.run, place))
            builds.append(cpu - took[0])
            bares.append(took[0])
    return timing_of(builds), timing_of(bares)


def _reference_table(bench: _Bench, wanted: int, command: str, notes: list[str]) -> Table:
    engine = "reference"
    path, megabytes = bench.file(wanted)
    start = interleave({"empty": bench.build(bench.empty, engine)}, bench.rounds)["empty"]
    whole, bare_time = _beside(bench, path, engine)
    net = whole.less(start)
    bare = cost("bare encoder loop, CPU", bare_time, 1, "s")
    ratio = net.over(bare_time)
    tokens = bench.tokens[path.name] / MB
    rows = [
        bare,
        against(cost("pipeline without start-up, CPU", net, 1, "s"), bare, "bare"),
        want(amount("  the same, median of the rounds", ratio, "x bare"), "<=", GOAL),
        cost("start-up, CPU", start, 1, "s"),
        rate("bare encoder loop", bare_time, megabytes, "MB/CPU-s"),
        rate("pipeline without start-up", net, megabytes, "MB/CPU-s"),
        rate("bare encoder loop", bare_time, tokens, "Mtok/CPU-s"),
        rate("pipeline without start-up", net, tokens, "Mtok/CPU-s"),
    ]
    title = f"build, engine {engine}: {megabytes:.1f} MB, one process, {bench.rounds} rounds"
    return Table(title=title, command=command, rows=rows, notes=notes)


def _fast_table(bench: _Bench, how: Size, command: str) -> Table:
    path, megabytes = bench.file(how.corpus)
    timing = interleave(
        {
            "fast": bench.build(path, "fast"),
            "empty": bench.build(bench.empty, "fast"),
            "bare": _bare(bench, "fast", how.corpus),
        },
        max(1, bench.rounds - 1),
        warm_up=False,
    )
    net = timing["fast"].less(timing["empty"])
    bare = cost("bare fastokens, CPU", timing["bare"], 1, "s")
    rows = [
        bare,
        against(cost("pipeline, fast, no start-up, CPU", net, 1, "s"), bare, "bare"),
        cost("start-up, CPU", timing["empty"], 1, "s"),
        rate("pipeline, fast, no start-up", net, megabytes, "MB/CPU-s"),
        rate("pipeline, fast, with start-up", timing["fast"], megabytes, "MB/CPU-s"),
        rate("pipeline, fast, no start-up", net, bench.tokens[path.name] / MB, "Mtok/CPU-s"),
    ]
    title = f"build, engine fast: {megabytes:.1f} MB, one process"
    return Table(title=title, command=command, rows=rows)


def _workers_table(bench: _Bench, engine: str, wanted: int, command: str) -> Table:
    """One process, the number that a build finds out, and two workers, start-up included."""
    path, megabytes = bench.file(wanted)
    timing = interleave(
        {
            "workers=1": bench.build(path, engine),
            "default": bench.build(path, engine, workers=None),
            "workers=2": bench.build(path, engine, workers=2),
        },
        max(1, bench.rounds - 1),
        warm_up=False,
    )
    one = timing["workers=1"]
    wall = {name: cost(f"{name}, wall", took.by_wall(), 1, "s") for name, took in timing.items()}
    cpu = {name: cost(f"{name}, CPU with workers", took, 1, "s") for name, took in timing.items()}
    walls = [against(row, wall["workers=1"], "workers=1") for row in wall.values()]
    cpus = [against(row, cpu["workers=1"], "workers=1") for row in cpu.values()]
    walls[1] = want(walls[1], "<=", 1.05, of_ratio=True)
    if wanted >= LARGE:
        walls[2] = want(walls[2], "<=", round(1 / GAIN, 3), of_ratio=True)
    title = f"build, engine {engine}, workers: {megabytes:.1f} MB, start-up included"
    note = (
        "The CPU of two workers, halved, is what a quiet machine with "
        f"two cores could reach: {timing['workers=2'].best / 2:.2f} s against {one.best:.2f} s."
    )
    return Table(title=title, command=command, rows=[*walls, *cpus], notes=[note])


def _several_table(bench: _Bench, wanted: int, command: str) -> Table:
    """Several small builds in one process, two workers each: with workers that rest, and new."""
    path, megabytes = bench.file(wanted)
    timing = interleave(
        {
            "shared": bench.build(path, "reference", workers=2, times=4),
            "new": bench.build(path, "reference", workers=2, times=4, shared=False),
        },
        max(1, bench.rounds - 1),
        warm_up=False,
    )
    new = cost("new workers for each build, CPU", timing["new"], 1, "s")
    shared = cost("workers rest between the builds, CPU", timing["shared"], 1, "s")
    rows = [new, want(against(shared, new, "new"), "<=", 1, of_ratio=True)]
    title = f"build, four times {megabytes:.2f} MB with two workers, engine reference"
    return Table(title=title, command=command, rows=rows)
