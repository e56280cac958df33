"""More documents for the same frames: 1, 5, 10 and 50 of them.

Memorisation studies start with one document and grow the set. Frames are the budget, so each of 50
documents is shown a fiftieth as often as a single one; what is left of it, and how much of what is
left does a frame's filling decide?
"""

from __future__ import annotations

from science.pictures import Group, dots
from science.plan import Arm, Experiment, Measured, Trial, load_run, model_of
from science.samplers import look_at
from science.texts import WORDS, piece_store
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found

__all__ = ["EXPERIMENT"]

COUNTS, LENGTH, HELD = (1, 5, 10, 50), 96, 10

SPLICE = "sources.text.splice"

SAMPLERS = {"packed": (), "published": (f"{SPLICE}.fill=one", f"{SPLICE}.edge=inside")}

ARMS = tuple(
    Arm(
        name=f"{count} {'document' if count == 1 else 'documents'}, {name}",
        overrides=(f"sources.text.select.num_docs={count}", *words),
        data=str(count),
    )
    for name, words in SAMPLERS.items()
    for count in COUNTS
)


def measure(trial: Trial) -> Measured:
    """Train on the first documents of a store, then ask for windows of them and of unseen ones."""
    count = int(trial.arm.data)
    store = piece_store(
        trial.folder,
        text="manual",
        pieces=max(COUNTS),
        length=LENGTH,
        seed=trial.seed,
        held=HELD,
    )
    run = load_run("scaling", trial, [("text", store)])
    model = model_of(trial, WORDS)
    losses = train(model, run, Recipe(steps=trial.steps))
    trained = look_at(model, store.select(doc_index=list(range(count))))
    unseen = look_at(model, store.select(doc_index=list(range(max(COUNTS), max(COUNTS) + HELD))))
    figures = {
        "loss": trained.loss,
        "known": trained.known,
        "unseen": unseen.loss,
        "shown": trial.steps * 8 * run.batch(range(64)).loss_tokens / 64 / (count * LENGTH),
    }
    return Measured(figures, {"training": thinned(losses)}, {"content": store.digest[:12]})


def judge(found: Found) -> list[Check]:
    """Fewer documents are known better; packing helps the more, the more there are."""
    names = {count: f"{count} {'document' if count == 1 else 'documents'}" for count in COUNTS}
    return [
        *(
            found.below(
                f"{names[few]}, packed",
                f"{names[many]}, packed",
                "loss",
                f"{few} of them are known better than {many}",
            )
            for few, many in ((5, 50), (10, 50))
        ),
        *(
            found.below(
                f"{names[count]}, packed",
                f"{names[count]}, published",
                "loss",
                f"{names[count]}: packed and clipped has under half of the published loss",
                factor=0.5,
            )
            for count in COUNTS
        ),
    ]


def picture(found: Found) -> str:
    """Losses by the number of documents."""
    groups = [
        Group(
            "packed and clipped" if name == "packed" else "one splice a frame, as published",
            [(arm.name.partition(",")[0], arm.name) for arm in ARMS if arm.name.endswith(name)],
            {"loss": "documents that were trained on", "unseen": "unseen documents"},
        )
        for name in SAMPLERS
    ]
    return dots(
        "More documents for the same frames",
        "loss of the second half of windows, given the first half",
        found,
        groups,
        across="nats per token",
        log=True,
    )


EXPERIMENT = Experiment(
    name="scaling",
    title="1, 5, 10 and 50 documents",
    asks=(
        "How does what is known of each document fall when the same frames are shared by more "
        "documents, and does the way a frame is filled matter more or less then?"
    ),
    setting=(
        "RoPE; documents of 96 tokens of Python's manual pages, frames of 96, windows of 32; the "
        "same number of steps of 8 frames for all. The unseen documents are the next ten of the "
        "same text."
    ),
    arms=ARMS,
    quick=("50 documents, packed", "50 documents, published"),
    steps=300,
    quick_steps=250,
    columns={
        "shown": "times that a token is a target",
        "loss": "suffix loss",
        "known": "P(z) > 0.5",
        "unseen": "suffix loss, unseen documents",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "The way a frame is filled matters the more, the more documents share the frames: hardly "
        "for one document, which both samplers know by heart, and by a factor of five for fifty. "
        "Nothing of it carries over to unseen documents: this is memorisation."
    ),
)
