"""What a cheaper shuffle costs: full, era, block and laned orders of a corpus stored by topic.

The published gate for a block shuffle: at least half of the reads saved, and a loss within the
spread of seeds. The corpus is made so that order matters: eight Markov languages over the same
letters, stored one after the other; the first letter of a document names its language. A second
corpus is real: the sources of Python's standard library in order of their paths.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import tokenloom as tl
from science.pictures import dots
from science.plan import Arm, Experiment, Measured, Trial, load_run, model_of
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

__all__ = ["EXPERIMENT", "reads_per_example"]

TOPICS, ALPHABET, SEQ_LEN, BATCH, HELD = 8, 16, 64, 16, 512

GROUP = 1024  # examples that are fetched together: 64 steps; a loader plans up to 256

ORDERS = {
    "full": "full",
    "era 512": "512",
    "block K = 8": "{io_block_size: 16, window_blocks: 8}",
    "block K = 32": "{io_block_size: 16, window_blocks: 32}",
    "8 lanes of 8": "{io_block_size: 16, window_blocks: 8, lanes: 8}",
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
        "bpb": found["bits_per_byte"],
        "train": float(np.mean(losses[-(len(losses) // 8) :])),
        "reads": reads_per_example(run, corpus.store),
        "tokens_s": steps * BATCH * SEQ_LEN / seconds,
        "loader_tokens_s": loader_speed(run),
    }
    if corpus.reachable is not None:
        figures["excess"] = found["loss"] - corpus.reachable
    about = {"reachable": corpus.reachable, "content": corpus.store.digest[:12], "steps": steps}
    return Measured(figures, {"training": thinned(losses)}, about)


def topic_corpus(trial: Trial) -> Corpus:
    """Eight languages, stored one after the other; every row is a document of one of them."""
    languages = chains(TOPICS, LETTERS[:ALPHABET], seed=trial.seed)
    stored = np.repeat(np.arange(TOPICS), trial.steps * BATCH // TOPICS)
    asked = np.arange(HELD) % TOPICS
    name = f"topics-{trial.steps}-{trial.seed}"
    length = SEQ_LEN - 1
    texts = sampled(languages, stored, [length] * len(stored), seed=trial.seed)
    held = sampled(languages, asked, [length] * HELD, seed=trial.seed + 1000)
    return Corpus(
        letter_store(named(stored, texts), trial.folder / name),
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
    return held_out(code_store(trial.folder, budget=bytes_wanted), WORDS)


CORPORA = {"topics": topic_corpus, "code": code_corpus}


def reads_per_example(run: tl.Dataset, store: tl.Store, group: int = GROUP) -> float:
    """Reads for each example of an epoch, if `group` examples are fetched together.

    As published: what is asked for together is sorted by its place in the store, and a stretch
    without gaps is one read.
    """
    firsts = np.concatenate([[0], np.cumsum(store.lengths)[:-1]])
    reads = 0
    for start in range(0, len(run), group):
        spans = run.spans(range(start, min(start + group, len(run))))
        leading = spans.frame[:-1]  # the first span of each row
        places = np.sort(firsts[spans.document[leading]] + spans.start[leading])
        reads += 1 + int((np.diff(places) != run.seq_len).sum())
    return reads / len(run)


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
    checks = [
        found.below(
            "full", "stored", "loss", "control: without a shuffle the loss is worse", factor=0.95
        )
    ]
    for name in ("era 512", "block K = 8", "block K = 32", "8 lanes of 8"):
        checks += [
            found.below(
                name,
                "full",
                "reads",
                f"{name}: at most half of the reads of a full shuffle",
                factor=0.5,
            ),
            found.as_good(name, "full", "excess", f"{name}: loss within the spread of seeds"),
        ]
    return checks


def picture(found: Found) -> str:
    """Losses of both corpora, and reads."""
    topics = [(name, name) for name in ORDERS]
    code = [(name, f"{name}, code") for name in ORDERS]
    return dots(
        "What a cheaper shuffle costs",
        "held-out loss after one epoch of a corpus that is stored by topic",
        found,
        [
            ("eight languages, stored one after the other", topics, "loss"),
            ("sources of the standard library by path", code, "loss"),
        ],
        across="nats per token",
    )


EXPERIMENT = Experiment(
    name="shuffle",
    title="What a cheaper shuffle costs",
    asks=(
        "A full shuffle needs a read for nearly every example. Orders that keep neighbours "
        "together need fewer. How much of the loss do they cost on a corpus whose storage order is"
        " as bad as can be? The published gate: at least half of the reads saved, loss within the "
        "spread of seeds."
    ),
    setting=(
        "RoPE, one epoch of rows of 64 tokens in steps of 16. Eight Markov languages over 16 "
        "letters, stored one after the other, 512 held-out documents; the best possible loss is "
        "that of whoever knows the languages. Blocks are 16 rows, an era is 512 rows, and reads "
        "are counted for groups of 1,024 examples. The arms `…, code` are one run each on the "
        "sources of Python's standard library in order of their paths. Speeds were measured on a "
        "busy machine."
    ),
    arms=ARMS,
    quick=("full", "stored"),
    steps=320,
    quick_steps=160,
    columns={
        "loss": "held-out loss",
        "excess": "above the best possible",
        "bpb": "bits per byte",
        "train": "training loss, last eighth",
        "reads": "reads an example",
        "tokens_s": "trained tokens/s",
        "loader_tokens_s": "loader alone, tokens/s",
    },
    measure=measure,
    judge=judge,
    picture=picture,
)
