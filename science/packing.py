"""What packing does to what is learned: truncated or split, documents that see each other or not.

Truncation shows no document beyond a frame, so what documents say later is never learned.
Attention across documents lets a model look for its topic in documents that have another one. The
languages are made to show both: a document's topic must be guessed from its own letters, and from
its 49th token on it is written in another language of the same topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from science.pictures import Group, dots
from science.plan import MORE_SEEDS, Arm, Experiment, Measured, Trial, load_run, model_of
from science.texts import (
    BYTES,
    LETTERS,
    PART,
    WORDS,
    Corpus,
    chains,
    held_out,
    letter_store,
    paragraph_store,
    sampled,
)
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found
from tokenloom.evaluate import evaluate

__all__ = ["EXPERIMENT"]

TOPICS, ALPHABET, HEAD, SHORTEST, LONGEST, SEQ_LEN = 4, 16, 48, 24, 160, 64

DOCUMENTS, HELD = 3600, 240

PACK = "sources.text.pack"

TRUNCATED = (f"{PACK}.overflow=truncate",)

END_TO_END = (f"{PACK}.strategy=sequential",)

FRAME = (f"{PACK}.position_scheme=absolute",)  # positions go on over documents, as attention does

MADE = (
    Arm(name="packed, split"),
    Arm(name="packed, truncated", overrides=TRUNCATED),
    Arm(name="end to end", overrides=END_TO_END),
    Arm(name="packed, split, attention across", overrides=FRAME, isolated=False),
    Arm(name="end to end, attention across", overrides=(*END_TO_END, *FRAME), isolated=False),
)

ARMS = (
    *MADE,
    *(
        replace(
            arm,
            name=f"{arm.name}, manual",
            overrides=(*arm.overrides, f"sources.text.{PART}"),
            data="manual",
            seeds=(0,),
        )
        for arm in MADE
    ),
)


def measure(trial: Trial) -> Measured:
    """Train on one way of packing; then the loss of whole held-out documents, by place."""
    corpus = _corpus(trial)
    run = load_run("packing", trial, [("text", corpus.store)])
    model = model_of(trial, corpus.vocabulary)
    losses = train(model, run, Recipe(steps=trial.steps))
    found = evaluate(
        model, corpus.held, seq_len=SEQ_LEN, overlap=SEQ_LEN // 2, by=("index",), progress=False
    )
    some = run.batch(range(256))
    figures = {
        "loss": found.all["loss"],
        "early": mean_loss(found.by("index"), 2, 16),
        "late": mean_loss(found.by("index"), 64, LONGEST),
        "trained": some.loss_tokens / len(some),
        "segments": len(some.spans.document) / len(some),
    }
    return Measured(figures, {"training": thinned(losses)}, {"content": corpus.store.digest[:12]})


def _corpus(trial: Trial) -> Corpus:
    if trial.arm.data == "manual":
        return held_out(paragraph_store(trial.folder), WORDS)
    texts, held = (written(trial.seed, count, part) for part, count in enumerate((DOCUMENTS, HELD)))
    store = letter_store(texts, trial.folder / f"topical-{trial.seed}")
    return Corpus(store, letter_store(held, trial.folder / f"topical-{trial.seed}-held"), BYTES)


def written(seed: int, count: int, part: int) -> list[str]:
    """Documents of unlike lengths, each of one topic, whose later part has another language."""
    rng = np.random.default_rng([seed, part, 5])
    topics = rng.integers(0, TOPICS, count)
    lengths = rng.integers(SHORTEST, LONGEST + 1, count)
    heads, tails = (
        sampled(
            chains(TOPICS, LETTERS[:ALPHABET], seed=2 * seed + half),
            topics,
            [LONGEST] * count,
            seed=100 * seed + 10 * part + half,
        )
        for half in range(2)
    )
    return [
        (head[:HEAD] + tail)[:length]
        for head, tail, length in zip(heads, tails, lengths.tolist(), strict=True)
    ]


def mean_loss(table: Mapping[str, Mapping[str, float]], first: int, last: int) -> float:
    """The loss over the bins that start in a range of places.

    >>> bins = {"2 to 3": {"loss": 1.0, "tokens": 1}, "4 to 7": {"loss": 2.0, "tokens": 3}}
    >>> mean_loss(bins, 2, 8)
    1.75
    """
    chosen = [one for name, one in table.items() if first <= int(name.split()[0]) < last]
    tokens = sum(one["tokens"] for one in chosen)
    return sum(one["loss"] * one["tokens"] for one in chosen) / tokens


def judge(found: Found) -> list[Check]:
    """Splitting knows the later parts; isolation knows documents from their own start."""
    ours, cut = "packed, split", "packed, truncated"
    across = "end to end, attention across"
    return [
        found.below(ours, cut, "late", "split: later parts of documents are known better"),
        found.below(ours, cut, "loss", "split: the loss over whole documents is lower"),
        found.below(
            ours,
            f"{ours}, attention across",
            "early",
            "packed: without attention across documents their starts are known better",
        ),
        found.below(
            "end to end",
            across,
            "early",
            "end to end: without attention across documents their starts are known better",
        ),
        found.below(ours, across, "loss", "packed and isolated is better than end to end and open"),
    ]


def picture(found: Found) -> str:
    """Losses of starts and of later parts."""
    pairs = [(arm.name, arm.name) for arm in MADE]
    return dots(
        "Ways of packing at equal tokens",
        "held-out loss of whole documents, minus that of the first way with the same seed",
        found,
        [
            Group("tokens 2 to 15", pairs, {"early": ""}),
            Group("tokens 64 and later", pairs, {"late": ""}),
            Group("all tokens", pairs, {"loss": ""}),
        ],
        across="nats per token; right is worse",
        against=MADE[0].name,
    )


EXPERIMENT = Experiment(
    name="packing",
    title="Ways of packing at equal tokens",
    asks=(
        "What does a model lose if longer documents are truncated instead of split, and if packed "
        "documents see each other?"
    ),
    setting=(
        "RoPE; documents of 24 to 160 tokens of four topics, written in one Markov language up to"
        " their 48th token and in another one after it, packed into frames of 64, steps of 16 "
        "frames. Held-out documents are asked alone, in stretches of 64 that overlap by half. "
        "The arms `…, manual` are one run each on the paragraphs of Python's manual pages."
    ),
    arms=ARMS,
    quick=("packed, split", "packed, truncated"),
    steps=240,
    quick_steps=150,
    columns={
        "loss": "all tokens",
        "early": "tokens 2 to 15",
        "late": "tokens 64 and later",
        "trained": "trained tokens a frame",
        "segments": "segments a frame",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "Split: truncation never sees what documents say later. It does know their starts better, "
        "because all that it trains are starts. Keeping documents apart is worth it where frames "
        "hold parts of several documents, end to end; with best-fit packing most frames hold one, "
        "and the starts were even a hundredth better with attention across."
    ),
    seeds=MORE_SEEDS,
)
