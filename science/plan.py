"""What an experiment is: arms that are compared, seeds, and one function that measures an arm.

One idea: everything that decides a result is plain data. An arm is a run file with a few values
replaced and a shape of the model, so the same words name it in the table, in the record and on the
command line, and its fingerprint tells whether a result is still the one that the code would give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenloom as tl
from science.models import Shape, TinyLlama
from science.verdicts import Check, Found

__all__ = ["Arm", "Experiment", "Measured", "Trial", "load_run", "model_of"]

RUNS = Path(__file__).parent / "runs"

SEEDS = (0, 1, 2)

MORE_SEEDS = (0, 1, 2, 3, 4)  # where effects are small


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One way of doing it.

    Attributes:
        name: in tables and on the command line.
        overrides: values of the run file that it replaces, such as ``sources.text.shuffle=none``.
        positions, isolated: of the model, see `science.models.Shape`.
        data: which corpus, where an experiment has several.
        seeds: its seeds, if it has other ones than the experiment.
    """

    name: str
    overrides: tuple[str, ...] = ()
    positions: str = "RoPE"
    isolated: bool = True
    data: str = ""
    seeds: tuple[int, ...] | None = None


class Measured(NamedTuple):
    """What an arm and a seed gave.

    Attributes:
        figures: numbers by name.
        curves: points (x, y) by name, for pictures.
        about: what else a reader may ask: corpus, sizes, the best possible loss.
    """

    figures: dict[str, float]
    curves: dict[str, list[tuple[float, float]]]
    about: dict[str, Any]


class Trial(NamedTuple):
    """What a measuring function is given.

    Attributes:
        arm, seed: what is measured.
        steps: optimiser steps of a training.
        folder: for stores; what is made there may be used by later trials.
    """

    arm: Arm
    seed: int
    steps: int
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A claim and how it is tested.

    Attributes:
        name: on the command line, and of the files.
        title: the heading of its section.
        asks: what was asked, and why it is worth asking, in a few sentences.
        setting: model, data and budget, in a few sentences.
        arms: what is compared.
        quick: the two arms of the quick form.
        steps, quick_steps: optimiser steps of a training.
        columns: figures of the table and their headings, units included.
        measure: a trial → what it gave; a function of its arguments alone.
        judge: what counts as holding.
        picture: the picture of all records, as SVG.
        lesson: what a reader should take from it, in one or two sentences.
        seeds: of every arm without its own.
    """

    name: str
    title: str
    asks: str
    setting: str
    arms: tuple[Arm, ...]
    quick: tuple[str, str]
    steps: int
    quick_steps: int
    columns: dict[str, str]
    measure: Callable[[Trial], Measured]
    judge: Callable[[Found], list[Check]]
    picture: Callable[[Found], str]
    lesson: str = ""
    seeds: tuple[int, ...] = SEEDS

    def trials(self, *, quick: bool = False) -> list[tuple[Arm, int, int]]:
        """(arm, seed, steps) of everything that is measured."""
        if quick:
            some = [arm for arm in self.arms if arm.name in self.quick]
            return [(arm, self.seeds[0], self.quick_steps) for arm in some]
        return [
            (arm, seed, self.steps)
            for arm in self.arms
            for seed in (self.seeds if arm.seeds is None else arm.seeds)
        ]


def load_run(name: str, trial: Trial, stores: Sequence[tuple[str, tl.Store]]) -> tl.Dataset:
    """The run of a trial.

    Args:
        name: of the run file.
        trial: gives the seed and what is replaced.
        stores: the store of each source.
    """
    places = [f"sources.{source}.store={store.path}" for source, store in stores]
    words = [f"seed={trial.seed}", *places, *trial.arm.overrides]
    return tl.load(RUNS / f"{name}.yaml", overrides=words)


def model_of(trial: Trial, vocabulary: int) -> TinyLlama:
    """The untrained model of a trial."""
    arm = trial.arm
    shape = Shape(vocabulary=vocabulary, positions=arm.positions, isolated=arm.isolated)
    return TinyLlama(shape, seed=trial.seed)
