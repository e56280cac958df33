"""What a cheaper shuffle costs: full, era, block and laned orders of a corpus stored by topic.

The published gate for a block shuffle: at least half of the reads saved, and a loss within the
spread of seeds. The corpus is made so that order matters: eight Markov languages over the same
letters, stored one after the other; the first letter of a document names its language. Seeds change
weights and orders, never the corpus, so their spread is that of training alone. A second corpus is
real: the sources of Python's standard library in order of their paths.

Reads are those of the library: `simulate` counts what a loader in a new process would read, with a
cache that has room for a fifth of the corpus. Rows of 64 tokens are small and 320 steps are few, so
a loader that plans 256 steps ahead merges many reads of a full shuffle; the same orders of a corpus
ten times as large are counted as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import tokenloom as tl
from science.pictures import scatter
from science.plan import MORE_SEEDS, Arm, Experiment, Measured, Trial, load_run, model_of
from science.texts import (
    BYTES,
    LETTERS,
    PART,
    WORDS,
    Corpus,
    chains,
    code_store,
    held_out,
    known_loss,
    letter_store,
    sampled,
)
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found
from tokenloom.evaluate import evaluate

__all__ = ["EXPERIMENT", "read_counts"]

TOPICS, ALPHABET, SEQ_LEN, BATCH, HELD = 8, 16, 64, 16, 512

WRITTEN = 7  # the seed of the corpus

BLOCK = 16 * SEQ_LEN  # tokens of a block of the store

CACHE = 64 * BLOCK * 2  # bytes: what 8 lanes of 8 blocks need; the corpus has 320 blocks

LARGER = 10

ORDERS = {
    "full": "full",
    "era 512": "512",
    "block K = 8": "{window_blocks: 8}",
    "block K = 32": "{window_blocks: 32}",
    "8 lanes of 8": "{window_blocks: 8, lanes: 8}",
    "stored": "none",
}

SOURCE = "sources.text"

ARMS = (
    *(
        Arm(name=name, overrides=(f"{SOURCE}.shuffle={order}",), data="topics")
        for name, order in ORDERS.items()
    ),
    *(
        Arm(
            name=f"{name}, code",
            overrides=(f"{SOURCE}.shuffle={order}", f"{SOURCE}.{PART}"),
            data="code",
            seeds=(0,),
        )
        for name, order in ORDERS.items()
    ),
)


def measure(trial: Trial) -> Measured:
    """One epoch in one order; then the held-out loss, and the reads of the same epoch."""
    corpus = CORPORA[trial.arm.data](trial)
    run = load_run("shuffle", trial, [("text", corpus.store)])
    steps = len(run) // BATCH
    model = model_of(trial, corpus.vocabulary)
    started = time.process_time()
    losses = train(model, run, Recipe(steps=steps))
    seconds = time.process_time() - started
    found = evaluate(model, corpus.held, seq_len=SEQ_LEN, by=(), progress=False).all
    figures = {
        "loss": found["loss"],
        "perplexity": found["perplexity"],
        "bpb": found["bits_per_byte"],
        "train": float(np.mean(losses[-(len(losses) // 8) :])),
        **read_counts(run, trial),
        "tokens_s": steps * BATCH * SEQ_LEN / seconds,
        "loader_tokens_s": loader_speed(run),
    }
    if corpus.reachable is not None:
        figures["excess"] = found["loss"] - corpus.reachable
    about = {"reachable": corpus.reachable, "content": corpus.store.digest[:12], "steps": steps}
    return Measured(figures, {"training": thinned(losses)}, about)


def topic_corpus(trial: Trial) -> Corpus:
    """Eight languages, stored one after the other; every row is a document of one of them."""
    languages = chains(TOPICS, LETTERS[:ALPHABET], seed=WRITTEN)
    stored = np.repeat(np.arange(TOPICS), trial.steps * BATCH // TOPICS)
    asked = np.arange(HELD) % TOPICS
    name = f"topics-{trial.steps}"
    length = SEQ_LEN - 1
    texts = sampled(languages, stored, [length] * len(stored), seed=WRITTEN)
    held = sampled(languages, asked, [length] * HELD, seed=WRITTEN + 1)
    return Corpus(
        letter_store(named(stored, texts), trial.folder / name, chunk_tokens=BLOCK),
        letter_store(named(asked, held), trial.folder / f"{name}-held"),
        BYTES,
        known_loss(languages, asked, held),
    )


def named(which: NDArray[np.int64], texts: Sequence[str]) -> list[str]:
    """Documents that start with the letter of their language, which no language writes."""
    return [LETTERS[ALPHABET + one] + text for one, text in zip(which, texts, strict=True)]


def code_corpus(trial: Trial) -> Corpus:
    """Sources of the standard library by path; a tenth of the files is held out."""
    bytes_wanted = int(trial.steps * BATCH * SEQ_LEN * 2.3)  # bytes of a token, and the held-out
    store = code_store(trial.folder, budget=bytes_wanted, chunk_tokens=BLOCK)
    return held_out(store, WORDS)


CORPORA = {"topics": topic_corpus, "code": code_corpus}


def read_counts(run: tl.Dataset, trial: Trial) -> dict[str, float]:
    """Reads for each example of an epoch, of this corpus and of one ten times as large.

    Args:
        run: the run of the trial.
        trial: gives the order.
    """
    own = run.simulate(batch_size=BATCH, cache_bytes=CACHE)
    rows = LARGER * trial.steps * BATCH
    path = trial.folder / f"larger-{rows}"
    store = letter_store([LETTERS[:SEQ_LEN]] * rows, path, chunk_tokens=BLOCK)
    arm = replace(trial.arm, overrides=trial.arm.overrides[:1])  # its order alone
    larger = load_run("shuffle", trial._replace(arm=arm), [("text", store)])
    far = larger.simulate(batch_size=BATCH, cache_bytes=CACHE)
    return {
        "reads": own.reads / own.examples,
        "reads_larger": far.reads / far.examples,
        "bytes": own.bytes / (2 * own.tokens),
    }


def loader_speed(run: tl.Dataset, steps: int = 200) -> float:
    """Tokens for each second of CPU that a loader alone delivers."""
    with tl.Loader(run.epochs(None), BATCH, rank=0, world_size=1, prefetch=0) as loader:
        next(loader)
        started = time.process_time()
        for _ in range(steps):
            next(loader)
        return steps * BATCH * run.seq_len / (time.process_time() - started)


def judge(found: Found) -> list[Check]:
    """The published gate for each order, and that the corpus would show a bad one."""
    control = found.below(
        "full",
        "stored",
        "excess",
        "control: without a shuffle at least twice as much is left to learn",
        factor=0.5,
    )
    checks = [control._replace(control=True)]
    for name in ("era 512", "block K = 8", "block K = 32", "8 lanes of 8"):
        checks += [
            found.always_below(
                name,
                "full",
                "reads",
                f"{name}: under half of the reads of a full shuffle",
                factor=0.5,
            ),
            found.as_good(name, "full", "excess", f"{name}: loss within the spread of seeds"),
        ]
    return checks


def picture(found: Found) -> str:
    """Losses against reads."""
    full, reads = found.interval("full", "excess"), found.interval("full", "reads")
    gate = None
    if full is not None and reads is not None:
        gate = (reads.mean / 2, full.mean + found.spread("full", "excess"))
    return scatter(
        "What a cheaper shuffle costs",
        "eight languages, stored one after the other; one epoch in each order",
        found,
        {name: name for name in ORDERS},
        across=("reads", "reads for each example"),
        up=("excess", "held-out loss above the best possible, nats per token"),
        gate=gate,
        passes="half of the reads, the same loss: passes",
    )


EXPERIMENT = Experiment(
    name="shuffle",
    title="What a cheaper shuffle costs",
    asks=(
        "A full shuffle of a large corpus needs a read for most examples. Orders that keep "
        "neighbours together need fewer. How much of the loss do they cost on a corpus whose "
        "storage order is as bad as can be? The published gate: at least half of the reads saved, "
        "loss within the spread of seeds."
    ),
    setting=(
        "RoPE, one epoch of rows of 64 tokens in steps of 16. Eight Markov languages over 16 "
        "letters, stored one after the other, 512 held-out documents; the best possible loss is "
        "that of whoever knows the languages. Seeds change weights and orders, not the corpus. A "
        "block of the store is 16 rows, K blocks are shuffled together, an era is 512 rows. Reads "
        "are what `run.simulate` counts with a cache of 128 KiB, a fifth of the corpus; as rows "
        "are short and the corpus is small, the loader merges most reads of the full shuffle, so "
        "they are also counted in a corpus ten times as large. The arms `…, code` are one "
        "run each on the sources of Python's standard library in order of their paths. Speeds are "
        "tokens for each second of one core. Reads are counts, so they are compared seed by seed; "
        "this was decided afterwards, because the full shuffle of one seed reads twice as much as "
        "the others, and the interval of differences, which was planned, is too wide for that."
    ),
    arms=ARMS,
    quick=("full", "stored"),
    steps=320,
    quick_steps=160,
    columns={
        "loss": "held-out loss",
        "excess": "above the best possible",
        "perplexity": "perplexity",
        "bpb": "bits per byte",
        "train": "training loss, last eighth",
        "reads": "reads an example",
        "reads_larger": "in ten times the corpus",
        "tokens_s": "trained tokens/s",
        "loader_tokens_s": "loader alone, tokens/s",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "Blocks with K = 32, and K = 8 on eight lanes, pass the gate: under a third of the reads, "
        "and about a tenth in the larger corpus, at the loss of a full shuffle. K = 8 alone saves "
        "as many reads but costs loss, and eras of a corpus that is stored by topic teach no more "
        "than no shuffle at all. So raise `window_blocks` or `lanes` before you pay for a full "
        "shuffle."
    ),
    seeds=MORE_SEEDS,
)
