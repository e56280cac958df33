"""Least-consumed mixing against alternation and temperature, on sources of unlike documents.

Alternation gives every source the same number of documents, temperature a power of its size. Both
leave a source of short documents with few tokens. Least-consumed always takes the source with the
fewest tokens so far, so sources are learned evenly. Every source is a Markov language with letters
of its own and a known entropy, so what is left to learn of it is a number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import tokenloom as tl
from science.models import TinyLlama
from science.pictures import Group, dots
from science.plan import MORE_SEEDS, Arm, Experiment, Measured, Trial, load_run, model_of
from science.texts import BYTES, LETTERS, Chain, chains, letter_store, sampled
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found
from tokenloom.evaluate import evaluate

__all__ = ["EXPERIMENT", "excess_losses", "languages_of", "stores_of"]

SOURCES = {"books": 64, "posts": 32, "chats": 12}  # tokens of a document

SIZES = {"books": 2400, "posts": 1600, "chats": 1200}  # documents

HELD, BATCH = 200, 16

RULES = {
    "least consumed": (),
    "alternation": ("mix.rule=round_robin",),
    "temperature 1": ("mix.rule=weights", "mix.cost=tokens", "mix.temperature=1"),
    "temperature 0.5": ("mix.rule=weights", "mix.cost=tokens", "mix.temperature=0.5"),
}

ARMS = tuple(Arm(name=name, overrides=words) for name, words in RULES.items())

Stores = dict[str, tl.Store]


def measure(trial: Trial) -> Measured:
    """Train on one mix; then each source's loss above its entropy."""
    languages = languages_of(SOURCES, trial.seed)
    stores = stores_of(trial, languages, SOURCES, SIZES)
    held = stores_of(trial, languages, SOURCES, dict.fromkeys(SOURCES, HELD), held=True)
    run = load_run("mixing", trial, list(stores.items()))
    model = model_of(trial, BYTES)
    losses = train(model, run, Recipe(steps=trial.steps))
    excess = excess_losses(model, languages, held)
    used = run.consumed(trial.steps * BATCH)
    tokens = {one["name"]: float(one["tokens"]) for one in used}
    total = sum(tokens.values())
    figures = {
        **excess,
        "worst": max(excess.values()),
        "mean": float(np.mean(list(excess.values()))),
        "least_share": min(tokens.values()) / total,
        "tokens": total,
    }
    about = {"entropy": {name: one.entropy for name, one in languages.items()}}
    return Measured(figures, {"training": thinned(losses)}, about)


def languages_of(lengths: Mapping[str, int], seed: int) -> dict[str, Chain]:
    """The same chain for each source, each with 30 letters of its own: all are equally hard."""
    alphabets = [LETTERS[30 * number : 30 * number + 30] for number in range(len(lengths))]
    return {
        name: chains(1, letters, seed=seed, concentration=0.3)[0]
        for name, letters in zip(lengths, alphabets, strict=True)
    }


def stores_of(
    trial: Trial,
    languages: Mapping[str, Chain],
    lengths: Mapping[str, int],
    sizes: Mapping[str, int],
    *,
    held: bool = False,
) -> Stores:
    """A store for each source: `sizes` documents of `lengths` tokens."""
    found = {}
    for number, (name, chain) in enumerate(languages.items()):
        seed = trial.seed * 100 + number + 10_000 * held
        count, length = sizes[name], lengths[name]
        texts = sampled([chain], [0] * count, [length] * count, seed=seed)
        path = trial.folder / f"{name}-{count}-{length}-{seed}"
        found[name] = letter_store(texts, path)
    return found


def excess_losses(
    model: TinyLlama, languages: Mapping[str, Chain], held: Mapping[str, tl.Store]
) -> dict[str, float]:
    """Nats per token of each source above its entropy."""
    losses = {
        name: evaluate(model, store, seq_len=64, by=(), progress=False).all["loss"]
        for name, store in held.items()
    }
    return {name: losses[name] - languages[name].entropy for name in losses}


def judge(found: Found) -> list[Check]:
    """The worst source is learned better, at some cost of the others."""
    others = [name for name in RULES if name != "least consumed"]
    return [
        found.below(
            "least consumed", other, "worst", f"the worst source is learned better than by {other}"
        )
        for other in others
    ]


def picture(found: Found) -> str:
    """Excess losses of the sources of each rule."""
    figures = {name: f"{name} ({size} tokens)" for name, size in SOURCES.items()}
    return dots(
        "Sources of long, middle and short documents",
        "what is left to learn of each source after the same number of frames",
        found,
        [Group("", [(name, name) for name in RULES], figures)],
        across="held-out loss above the entropy, nats per token",
        zero=True,
    )


EXPERIMENT = Experiment(
    name="mixing",
    title="Least-consumed mixing against alternation and temperature",
    asks=(
        "Does giving every source the same number of tokens teach sources more evenly than "
        "alternating between them, or than weights by their size?"
    ),
    setting=(
        "RoPE; one Markov language of 30 letters, written in other letters by each of three "
        "sources, so that all are equally hard: documents of 64, 32 and 12 tokens, one document a "
        "frame of 64, steps of 16 frames. 0 is the best possible."
    ),
    arms=ARMS,
    quick=("least consumed", "temperature 1"),
    steps=160,
    quick_steps=110,
    columns={
        "books": "books",
        "posts": "posts",
        "chats": "chats",
        "worst": "worst source",
        "mean": "mean of sources",
        "least_share": "smallest share of tokens",
        "tokens": "tokens in all",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "Least-consumed mixing keeps sources closest to each other: its worst one is better off "
        "than with alternation or with weights by size. Against the square root of size "
        "(temperature 0.5) that is not shown, and there the means over sources are the same. It "
        "pays in tokens: where a frame holds one document, short ones leave cells empty."
    ),
    seeds=MORE_SEEDS,
)
