"""Which of (t, s) teaches a model something: training regimes × position schemes.

A splice takes K tokens of a document from offset t on and puts them at offset s of a frame. The
published design sweeps both, so that a model knows a text wherever it is. With RoPE and segments,
moving a text changes nothing that the model sees, so s cannot teach; t can.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import tokenloom as tl
from science.models import TinyLlama
from science.pictures import Group, dots
from science.plan import Arm, Experiment, Measured, Trial, load_run, model_of
from science.texts import WORDS, piece_store
from science.training import Recipe, thinned, train
from science.verdicts import Check, Found
from tokenloom.evaluate import pz

__all__ = ["EXPERIMENT"]

DOCUMENTS, LENGTH, WINDOW, PREFIX = 8, 64, 32, 16

OFFSETS = (0, 16, 32, 48, 64, 80)

SPLICE = "sources.text.splice"

LEFT = f"{SPLICE}.offset_stride=112"  # one offset: s = 0

SLIDE = f"{SPLICE}.content_start_mode=slide_within"

WHOLE = (
    f"{SPLICE}.content_start_mode=anchor_start",
    f"{SPLICE}.content_length=fit",
    f"{SPLICE}.min_copy_len=2",
)

REGIMES = {
    "anchor": (*WHOLE, LEFT),
    "tile": (SLIDE, f"{SPLICE}.content_stride=32", LEFT),
    "splice_s": WHOLE,
    "slide_t": (SLIDE, LEFT),
    "cov": (),
    "slide_within": (SLIDE,),
}

Points = list[tuple[float, float]]

ARMS = (
    *(Arm(name=f"RoPE {name}", overrides=words) for name, words in REGIMES.items()),
    *(
        Arm(name=f"learned {name}", overrides=words, positions="learned")
        for name, words in REGIMES.items()
    ),
    *(
        Arm(name=f"RoPE {name}, filler seen", overrides=REGIMES[name], isolated=False)
        for name in ("anchor", "slide_within")
    ),
)


def measure(trial: Trial) -> Measured:
    """Train on one regime, then ask for the second half of windows at every (t, s) of a grid."""
    store = piece_store(
        trial.folder, text="licence", pieces=DOCUMENTS, length=LENGTH, seed=trial.seed
    )
    model = model_of(trial, WORDS)
    run = load_run("splice", trial, [("text", store)])
    losses = train(model, run, Recipe(steps=trial.steps))
    figures, by_offset = window_figures(model, store)
    return Measured(
        figures, {"training": thinned(losses), "offset": by_offset}, {"content": store.digest[:12]}
    )


class PlacedInFrame(nn.Module):
    """A model that is told cells of the frame as positions, as it was in training.

    Windows that are judged count their positions from their own first token; then no model could
    tell where in the frame they are.
    """

    def __init__(self, model: TinyLlama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Logits [B, S, V] of rows [B, S]."""
        cells = torch.arange(tokens.shape[1]).expand_as(position_ids)
        logits: Tensor = self.model(tokens, segment_ids, cells)
        return logits


def window_figures(model: TinyLlama, store: tl.Store) -> tuple[dict[str, float], Points]:
    """Suffix losses in the four quarters of the grid of t and s, and by s for t > 0."""
    found = pz(
        PlacedInFrame(model),
        store,
        prefix=PREFIX,
        suffix=WINDOW - PREFIX,
        stride=8,
        offsets=OFFSETS,
        batch_size=40,
        progress=False,
    ).windows
    nll = -found.log_pz / (WINDOW - PREFIX)
    later, moved = found.start > 0, found.offset > 0
    at = {s: nll[later & (found.offset == s)].mean() for s in OFFSETS}
    still = nll[~moved]
    figures = {
        "t0_s0": float(nll[~later & ~moved].mean()),
        "t0_s": float(nll[~later & moved].mean()),
        "t_s0": float(nll[later & ~moved].mean()),
        "t_s": float(nll[later & moved].mean()),
        "greedy": float(found.greedy[later & moved].mean()),
        # the same window at another offset, in nats per token
        "moved_by": float(max(np.abs(nll[found.offset == s] - still).max() for s in OFFSETS)),
    }
    return figures, [(float(s), float(value)) for s, value in at.items()]


def judge(found: Found) -> list[Check]:
    """What theory says about each scheme."""
    rope = [arm for arm in found.arms if arm.startswith("RoPE") and "seen" not in arm]
    control = found.over(
        "learned anchor", "moved_by", 0.1, "control: learned positions that were not trained show"
    )
    return [
        control._replace(control=True),
        *(
            found.under(arm, "moved_by", 1e-3, f"{arm}: loss is the same at every s")
            for arm in rope
        ),
        found.below(
            "RoPE slide_t",
            "RoPE tile",
            "t_s",
            "RoPE: sweeping t alone has under a tenth of the loss of tiles at t > 0",
            factor=0.1,
        ),
        found.below(
            "RoPE slide_t",
            "RoPE anchor",
            "t_s",
            "RoPE: sweeping t alone has under a fifth of the loss of whole documents at t > 0",
            factor=0.2,
        ),
        found.below(
            "RoPE slide_t",
            "RoPE splice_s",
            "t_s",
            "RoPE: sweeping t teaches later starts, sweeping s does not (under a fifth)",
            factor=0.2,
        ),
        found.below(
            "learned splice_s",
            "learned anchor",
            "t0_s",
            "learned positions: sweeping s teaches s > 0 (under a tenth)",
            factor=0.1,
        ),
        found.below(
            "learned slide_within",
            "learned slide_t",
            "t_s",
            "learned positions: sweeping s on top of t is under half of t alone at s > 0",
            factor=0.5,
        ),
        found.below(
            "RoPE slide_within, filler seen",
            "RoPE anchor, filler seen",
            "t0_s",
            "RoPE without segments: then s does teach (under a tenth)",
            factor=0.1,
        ),
    ]


def picture(found: Found) -> str:
    """Losses of first windows in their place, of first windows moved, and of later ones."""
    figures = {
        "t0_s0": "t = 0, s = 0",
        "t0_s": "moved: t = 0, s > 0",
        "t_s0": "later start: t > 0, s = 0",
    }
    schemes = {
        "RoPE, documents apart": ("RoPE {}", REGIMES),
        "learned positions, documents apart": ("learned {}", REGIMES),
        "RoPE, filler in sight": ("RoPE {}, filler seen", ("anchor", "slide_within")),
    }
    groups = [
        Group(heading, [(name, arm.format(name)) for name in names], figures)
        for heading, (arm, names) in schemes.items()
    ]
    return dots(
        "What sweeping t and sweeping s teach",
        "loss of the second half of windows, by where they start (t) and where they are put (s)",
        found,
        groups,
        across="nats per token",
        log=True,
    )


EXPERIMENT = Experiment(
    name="splice",
    title="Which of t and s teaches",
    asks=(
        "The published splice design trains a text at many frame offsets s, so that it is known at "
        "later positions, too. Is it s that teaches, or the place t in the document where a splice "
        "starts?"
    ),
    setting=(
        "Eight documents of 64 tokens of a licence text, BPE of 512 ids; frames of 112, windows of "
        "32 (16 given, 16 asked for). Each regime trains for the same number of steps of 8 frames. "
        "`anchor`: whole documents at s = 0; `tile`: t = 0 and 32; `splice_s`: whole documents at "
        "every s; `slide_t`: every t at s = 0; `cov`: every t at the right end, as published; "
        "`slide_within`: every t at every s. The control was added after a first measurement of "
        "these seeds, which was discarded: it judged windows at positions of their own, where no "
        "model can tell s."
    ),
    arms=ARMS,
    quick=("RoPE slide_t", "RoPE tile"),
    steps=300,
    quick_steps=200,
    columns={
        "t0_s0": "t = 0, s = 0",
        "t0_s": "t = 0, s > 0",
        "t_s0": "t > 0, s = 0",
        "t_s": "t > 0, s > 0",
        "greedy": "greedy, t > 0, s > 0",
        "moved_by": "largest change with s",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "With RoPE and documents apart, s changes nothing but rounding, so frames spent on s are "
        "wasted, and everything comes from t. With learned positions, or where filler is seen, s "
        "teaches as well: a text that was trained in one place is not known in another. Where t is "
        "swept already, a sweep of s on top of it did not halve the loss with learned positions."
    ),
)
