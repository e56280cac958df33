"""All experiments by name, in the order of the page."""

from __future__ import annotations

from science import (
    exact_mixing,
    packing,
    resuming,
    samplers,
    scaling,
    sharing,
    shuffles,
    splice_claim,
)
from science.plan import Experiment

__all__ = ["EXPERIMENTS"]

MODULES = (splice_claim, samplers, scaling, shuffles, sharing, packing, exact_mixing, resuming)

EXPERIMENTS: dict[str, Experiment] = {one.EXPERIMENT.name: one.EXPERIMENT for one in MODULES}
