"""Mixing by tokens against mixing by rows, on two sources of unlike lengths.

Weights are meant in tokens, but loaders usually draw rows. Where the rows of one source are
shorter, it gets less than its weight says, and by how much depends on lengths that nobody looked
at. Packed into full frames, rows have equal tokens, and the two ways agree: the condition under
which it does not matter.
"""

from __future__ import annotations

import numpy as np

from science.pictures import Group, dots
from science.plan import MORE_SEEDS, Arm, Experiment, Measured, Trial, load_run, model_of
from science.sharing import excess_losses, languages_of, stores_of
from science.texts import BYTES
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found

__all__ = ["EXPERIMENT"]

SOURCES = {"long": 64, "short": 10}  # tokens of a document

SIZES = {"long": 2400, "short": 2400}  # documents

HELD, BATCH = 200, 16

ROWS = ("mix.cost=rows",)

PACKED = tuple(f"sources.{name}.pack.strategy=best_fit_decreasing" for name in SOURCES)

ARMS = (
    Arm(name="by tokens"),
    Arm(name="by rows", overrides=ROWS),
    Arm(name="by tokens, packed", overrides=PACKED),
    Arm(name="by rows, packed", overrides=(*ROWS, *PACKED)),
)


def measure(trial: Trial) -> Measured:
    """Train on one mix; then shares of tokens, and each source's loss above its entropy."""
    languages = languages_of(SOURCES, trial.seed)
    stores = stores_of(trial, languages, SOURCES, SIZES)
    held = stores_of(trial, languages, SOURCES, dict.fromkeys(SOURCES, HELD), held=True)
    run = load_run("exact_mixing", trial, list(stores.items()))
    model = model_of(trial, BYTES)
    losses = train(model, run, Recipe(steps=trial.steps))
    used = run.consumed(trial.steps * BATCH)
    tokens = {one["name"]: float(one["tokens"]) for one in used}
    total = sum(tokens.values())
    excess = excess_losses(model, languages, held)
    figures = {
        **excess,
        "share": tokens["short"] / total,
        "off": abs(tokens["short"] / total - 0.5),
        "worst": max(excess.values()),
        "mean": float(np.mean(list(excess.values()))),
        "tokens": total,
    }
    about = {"entropy": {name: one.entropy for name, one in languages.items()}}
    return Measured(figures, {"training": thinned(losses)}, about)


def judge(found: Found) -> list[Check]:
    """Shares are those of the weights, and the source that rows neglect is learned."""
    return [
        found.under("by tokens", "off", 0.005, "by tokens: shares are within 0.5 % of the weights"),
        found.below("by tokens", "by rows", "off", "by rows: shares are far off", factor=0.1),
        found.below(
            "by tokens", "by rows", "short", "the source of short documents is learned better"
        ),
        found.below(
            "by tokens", "by rows", "worst", "the worse of the two sources is learned better"
        ),
        found.under("by rows, packed", "off", 0.02, "condition: with packed rows both ways agree"),
    ]


def picture(found: Found) -> str:
    """Excess losses of both sources."""
    figures = {name: f"{name} ({size} tokens a document)" for name, size in SOURCES.items()}
    return dots(
        "Equal weights, by tokens and by rows",
        "what is left to learn of each source after the same number of frames",
        found,
        [Group("", [(arm.name, arm.name) for arm in ARMS], figures)],
        across="held-out loss above the entropy, nats per token",
        zero=True,
    )


EXPERIMENT = Experiment(
    name="exact_mixing",
    title="Mixing by tokens against mixing by rows",
    asks=(
        "Two sources with equal weights, one of long and one of short documents: what does a "
        "source lose if weights are applied to rows instead of tokens?"
    ),
    setting=(
        "RoPE; one Markov language of 30 letters, written in other letters by each source, so that "
        "both are equally hard: documents of 64 and of 10 tokens, one a frame of 64 or packed, "
        "steps of 16 frames. 0 is the best possible loss."
    ),
    arms=ARMS,
    quick=("by tokens", "by rows"),
    steps=160,
    quick_steps=110,
    columns={
        "share": "share of the short source",
        "long": "long",
        "short": "short",
        "worst": "worse source",
        "mean": "mean",
        "tokens": "tokens in all",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "Where a row holds one document, equal weights by rows gave the short source an eighth of "
        "the tokens, and it was learned far worse. In packed rows both ways agree within two "
        "hundredths, and it does not matter which one is used."
    ),
    seeds=MORE_SEEDS,
)
