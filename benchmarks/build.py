"""Building: what the pipeline adds to a bare encoder, engine by engine.

The bare loop encodes the same parsed strings with a fresh encoder and drops the lists. The
pipeline is `tokenloom.build` with one worker in this process: hashing the inputs, JSON, guards,
metadata, checksums, fsync and all. Its start-up (a build of one short record with the same
tokenizer) is measured apart and taken off.

Encoders are made anew for every pass and no text comes twice in a pass, so that no word cache is
warm. One thread per encoder (`RAYON_NUM_THREADS=1`, `TOKENIZERS_PARALLELISM=false`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import (
    Case,
    Row,
    Table,
    Timing,
    against,
    amount,
    cost,
    interleave,
    rate,
    want,
)
from benchmarks.corpus import Corpus, find_text, train_tokenizer, write_jsonl
from tokenloom.build.blocks import Block, blocks
from tokenloom.build.decoders import BYTE_OF_SYMBOL
from tokenloom.build.encode import EncodedBlock, encode_block
from tokenloom.build.engines import GPT2_PATTERN, GuardedEncoder
from tokenloom.build.inputs import expand, identify
from tokenloom.build.plan import BuildOptions, make_plan
from tokenloom.build.records import read_block
from tokenloom.build.setup import Setup, open_kitchen
from tokenloom.store.files import LOCAL
from tokenloom.store.writer import ShardWriter

__all__ = ["SIZES", "run"]

MB = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How much text each engine gets, in bytes, and how often."""

    corpus: int
    tiktoken: int
    reference: int
    training: int
    vocab_size: int
    rounds: int
    roots: tuple[str, ...] = ()


SIZES = {
    "tiny": Size(
        corpus=200_000,
        tiktoken=100_000,
        reference=20_000,
        training=100_000,
        vocab_size=400,
        rounds=1,
        roots=(str(Path(json.__file__).parent),),
    ),
    "small": Size(
        corpus=30_000_000,
        tiktoken=10_000_000,
        reference=2_000_000,
        training=5_000_000,
        vocab_size=32_000,
        rounds=3,
    ),
    "default": Size(
        corpus=200_000_000,
        tiktoken=40_000_000,
        reference=10_000_000,
        training=20_000_000,
        vocab_size=32_000,
        rounds=3,
    ),
    "full": Size(
        corpus=240_000_000,
        tiktoken=200_000_000,
        reference=200_000_000,
        training=20_000_000,
        vocab_size=32_000,
        rounds=3,
    ),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of building: engines against bare loops, and where the CPU goes."""
    # read by the libraries when they are first used; the workers of a build set them, too
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    how = SIZES[size]
    corpus = find_text(how.corpus, how.roots)
    tokenizer = folder / "tokenizer.json"
    # trained on the end of the corpus; the slow engines are measured on its beginning
    train_tokenizer(tokenizer, _slice(corpus.texts[::-1], how.training), how.vocab_size)
    bench = _Bench(folder, tokenizer, corpus, how.rounds)
    for engine in ("tiktoken", "reference"):  # imports are no start-up of a build
        interleave({engine: bench.build(bench.empty, engine)}, 1, warm_up=False)
    notes = _notes(corpus, how)
    tiktoken = _engine_table(bench, "tiktoken", how.tiktoken, command, notes)
    reference = _engine_table(bench, "reference", how.reference, command, [])
    tables = [tiktoken, reference]
    if importlib.util.find_spec("fastokens"):
        tables.append(_fast_table(bench, how, command))
    tables.append(_workers_table(bench, how.tiktoken, command))
    tables.append(_stages_table(bench, how.tiktoken, command))
    return tables


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
        f"tiktoken gets the first {how.tiktoken / MB:g} MB, the reference the first "
        f"{how.reference / MB:g} MB; {how.vocab_size:,} tokens were trained on the last "
        f"{how.training / MB:g} MB."
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

    def build(self, path: Path, engine: str, workers: int = 1) -> Case:
        def make(out: Path) -> None:
            store = tl.build(
                path,
                out / "store",
                tokenizer=self.tokenizer,
                id_key="id",
                engine=engine,
                workers=workers,
                progress=False,
            )
            self.tokens[path.name] = store.num_tokens

        return Case(prepare=self.place, run=make)

    def place(self) -> Path:
        """An empty directory; what was made in the one before is removed."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir()
        return self.folder / "out"


# -- engines against bare loops ------------------------------------------------------------


def _bare_tiktoken(payload: bytes) -> Callable[[Sequence[str]], None]:
    """The library tiktoken from a tokenizer.json, with nothing around it."""
    import tiktoken

    model = json.loads(payload)["model"]
    merged = (
        "".join(pair.split(" ") if isinstance(pair, str) else pair) for pair in model["merges"]
    )
    tokens = dict.fromkeys([*BYTE_OF_SYMBOL, *merged])
    ranks = {bytes(BYTE_OF_SYMBOL[s] for s in token): rank for rank, token in enumerate(tokens)}
    encoding = tiktoken.Encoding(
        "bare", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )

    def encode(texts: Sequence[str]) -> None:
        for text in texts:
            encoding.encode_ordinary(text)

    return encode


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


BARE = {"tiktoken": _bare_tiktoken, "reference": _bare_reference, "fast": _bare_fast}


def _bare(bench: _Bench, engine: str, wanted: int) -> Case:
    texts, payload = bench.texts(wanted), bench.tokenizer.read_bytes()
    return Case(prepare=lambda: BARE[engine](payload), run=lambda encode: encode(texts))


def _engine_table(bench: _Bench, engine: str, wanted: int, command: str, notes: list[str]) -> Table:
    path, megabytes = bench.file(wanted)
    timing = interleave(
        {
            "bare": _bare(bench, engine, wanted),
            "build": bench.build(path, engine),
            "empty": bench.build(bench.empty, engine),
        },
        bench.rounds,
        warm_up=False,
    )
    net = timing["build"].less(timing["empty"])
    bare = cost("bare encoder loop, CPU", timing["bare"], 1, "s")
    pipeline = cost("pipeline without start-up, CPU", net, 1, "s")
    tokens = bench.tokens[path.name] / MB
    rows = [
        bare,
        want(against(pipeline, bare, "bare"), "<=", 1.15, of_ratio=True),
        cost("start-up, CPU", timing["empty"], 1, "s"),
        cost("pipeline with start-up, CPU", timing["build"], 1, "s"),
        rate("bare encoder loop", timing["bare"], megabytes, "MB/CPU-s"),
        rate("pipeline without start-up", net, megabytes, "MB/CPU-s"),
        rate("bare encoder loop", timing["bare"], tokens, "Mtok/CPU-s"),
        rate("pipeline without start-up", net, tokens, "Mtok/CPU-s"),
    ]
    title = f"build, engine {engine}: {megabytes:.1f} MB, one process, {bench.rounds} rounds"
    return Table(title=title, command=command, rows=rows, notes=notes)


def _fast_table(bench: _Bench, how: Size, command: str) -> Table:
    path, megabytes = bench.file(how.tiktoken)
    whole, more = bench.file(how.corpus)
    timing = interleave(
        {
            "slow": bench.build(path, "tiktoken"),
            "slow empty": bench.build(bench.empty, "tiktoken"),
            "fast": bench.build(path, "fast"),
            "bare": _bare(bench, "fast", how.tiktoken),
            "empty": bench.build(bench.empty, "fast"),
            "whole": bench.build(whole, "fast"),
            "whole bare": _bare(bench, "fast", how.corpus),
        },
        max(1, bench.rounds - 1),
        warm_up=False,
    )
    fast, large = (timing[name].less(timing["empty"]) for name in ("fast", "whole"))
    slow = rate(
        "pipeline, tiktoken, without start-up",
        timing["slow"].less(timing["slow empty"]),
        megabytes,
        "MB/CPU-s",
    )
    slow_whole = rate("pipeline, tiktoken, with start-up", timing["slow"], megabytes, "MB/CPU-s")
    quick = rate("pipeline, fast, without start-up", fast, megabytes, "MB/CPU-s")
    quick_whole = rate("pipeline, fast, with start-up", timing["fast"], megabytes, "MB/CPU-s")
    quick_large = rate(f"pipeline, fast, {more:.0f} MB, without start-up", large, more, "MB/CPU-s")
    bare = cost("bare fastokens, CPU", timing["bare"], 1, "s")
    bare_large = cost(f"bare fastokens, {more:.0f} MB, CPU", timing["whole bare"], 1, "s")
    rows = [
        slow,
        want(against(quick, slow, "tiktoken"), ">=", 8, of_ratio=True),
        want(against(quick_large, slow, "tiktoken"), ">=", 8, of_ratio=True),
        slow_whole,
        against(quick_whole, slow_whole, "tiktoken"),
        rate("pipeline, fast", fast, bench.tokens[path.name] / MB, "Mtok/CPU-s"),
        rate(f"pipeline, fast, {more:.0f} MB", large, bench.tokens[whole.name] / MB, "Mtok/CPU-s"),
        cost("start-up, CPU", timing["empty"], 1, "s"),
        bare,
        against(cost("pipeline, fast, CPU", fast, 1, "s"), bare, "bare"),
        bare_large,
        against(cost(f"pipeline, fast, {more:.0f} MB, CPU", large, 1, "s"), bare_large, "bare"),
    ]
    title = f"build, engine fast: {megabytes:.1f} MB unless said otherwise, one process"
    return Table(title=title, command=command, rows=rows)


def _workers_table(bench: _Bench, wanted: int, command: str) -> Table:
    path, megabytes = bench.file(wanted)
    timing = interleave(
        {
            "one": bench.build(path, "tiktoken"),
            "two": bench.build(path, "tiktoken", workers=2),
        },
        1,
        warm_up=False,
    )
    one = amount("workers=1, wall", timing["one"].wall, "s")
    one_cpu = amount("workers=1, CPU", timing["one"].best, "s")
    two = amount("workers=2, wall", timing["two"].wall, "s")
    two_cpu = amount("workers=2, CPU with children", timing["two"].best, "s")
    rows = [one, against(two, one, "workers=1"), one_cpu, against(two_cpu, one_cpu, "workers=1")]
    title = f"build, engine tiktoken, two workers: {megabytes:.1f} MB, start-up included"
    return Table(title=title, command=command, rows=rows, notes=["One round."])


# -- where the CPU goes --------------------------------------------------------------------


def _stages_table(bench: _Bench, wanted: int, command: str) -> Table:
    """Every stage of a build by itself, through the functions that the pipeline calls."""
    path, megabytes = bench.file(wanted)
    texts = bench.texts(wanted)
    inputs = identify(expand(path), threads=1)
    options = BuildOptions(tokenizer=bench.tokenizer, id_key="id", engine="tiktoken")
    setup = make_plan(inputs, options, None).setup
    cut = list(blocks(inputs))
    done = list(_encoded(setup, cut))
    timing = interleave(
        {
            "bare": _bare(bench, "tiktoken", wanted),
            "identify": lambda: identify(expand(path), threads=1),
            "read": lambda: [read_block(inputs, block) and None for block in cut],
            "fast": Case(
                prepare=lambda: _guarded(setup).fast.encode, run=lambda e: _batches(e, texts)
            ),
            "guarded": Case(
                prepare=lambda: _guarded(setup).encode, run=lambda e: _batches(_keyed(e), texts)
            ),
            "encode_block": Case(
                prepare=lambda: open_kitchen(setup), run=lambda k: list(_encoded(setup, cut, k))
            ),
            "write": Case(prepare=bench.place, run=lambda root: _write(setup, root, done)),
        },
        max(1, bench.rounds - 1),
        warm_up=False,
    )
    rows = _stage_rows(timing)
    title = f"build, engine tiktoken, where the CPU goes: {megabytes:.1f} MB"
    notes = ["Each stage was timed by itself; a line with 'minus' is a difference of two."]
    return Table(title=title, command=command, rows=rows, notes=notes)


def _stage_rows(timing: dict[str, Timing]) -> list[Row]:
    bare = cost("bare encoder loop", timing["bare"], 1, "s")

    def row(what: str, took: Timing) -> Row:
        return against(cost(what, took, 1, "s"), bare, "bare")

    around = timing["encode_block"].less(timing["read"]).less(timing["guarded"])
    engine = timing["fast"].less(timing["bare"])
    guards = timing["guarded"].less(timing["fast"])
    total = [timing[name] for name in ("identify", "encode_block", "write")]
    return [
        bare,
        row("identify: sha256 of the input", timing["identify"]),
        row("read_block: split and parse JSON", timing["read"]),
        row("engine, minus bare: ids as arrays, bytes counted", engine),
        row("guards, minus engine: Unicode 14, sample by the reference", guards),
        row("rest of encode_block: records, specials, metadata", around),
        row("ShardWriter: append, metadata, commit", timing["write"]),
        row(
            "all stages",
            Timing(
                best=sum(took.best for took in total),
                median=sum(took.median for took in total),
                wall=sum(took.wall for took in total),
            ),
        ),
    ]


def _guarded(setup: Setup) -> GuardedEncoder:
    encoder = open_kitchen(setup).encoder
    assert isinstance(encoder, GuardedEncoder)
    return encoder


def _batches(encode: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> None:
    for start in range(0, len(texts), 256):
        encode(texts[start : start + 256])


def _keyed(encode: Callable[..., Any]) -> Callable[[Sequence[str]], Any]:
    """The guarded encoder with keys that choose one document in a thousand, as a build does."""
    random = np.random.default_rng(0)

    def encode_keyed(texts: Sequence[str]) -> Any:
        return encode(texts, random.integers(0, 1 << 64, len(texts), np.uint64))

    return encode_keyed


def _encoded(setup: Setup, cut: Sequence[Block], kitchen: Any = None) -> Iterator[EncodedBlock]:
    kitchen = kitchen or open_kitchen(setup)
    for number, block in enumerate(cut):
        yield encode_block(setup.job, kitchen, setup.inputs, number, block, slow=False)


def _write(setup: Setup, root: Path, done: Sequence[EncodedBlock]) -> None:
    writer = ShardWriter(LOCAL, root, 0, dtype=setup.job.dtype)
    for block in done:
        writer.append(block.ids, block.lengths)
        writer.describe_documents(block.lines, np.zeros_like(block.record), block.record)
    writer.commit(fingerprint="benchmark", engine="tiktoken", progress={})
