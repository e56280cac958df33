"""Trainings in worker processes of one thread each, with a bar; every result is kept at once.

One idea: workers get names, not objects, and give plain data back, so a worker that dies loses one
training and a call that is killed loses those under way.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from science.plan import Experiment, Trial
from science.records import Shelf, record_key
from science.registry import EXPERIMENTS

__all__ = ["measure_all", "record_of"]

Job = tuple[str, str, int, int]  # experiment, arm, seed, steps


def measure_all(
    experiments: Sequence[Experiment], shelf: Shelf, *, quick: bool = False, workers: int = 2
) -> int:
    """Measure what is missing.

    Args:
        experiments: which ones.
        shelf: where results are and go.
        quick: two arms, one seed.
        workers: processes; 0 measures in this one.

    Returns:
        How many results were added.
    """
    jobs: list[Job] = [
        (one.name, arm.name, seed, steps)
        for one in experiments
        for arm, seed, steps in shelf.missing(one, quick=quick)
    ]
    with tempfile.TemporaryDirectory() as folder, tqdm(total=len(jobs), unit="training") as bar:
        for record in _done(jobs, Path(folder), workers):
            experiment = EXPERIMENTS[record["experiment"]]
            shelf.add(experiment, record, quick=quick)
            bar.set_postfix_str(f"{experiment.name}: {record['arm']}, seed {record['seed']}")
            bar.update()
    return len(jobs)


def _done(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[dict[str, Any]]:
    if workers == 0:
        for job in jobs:
            yield record_of(job, folder)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        waiting = [pool.submit(record_of, job, folder) for job in jobs]
        try:
            for one in as_completed(waiting):
                yield one.result()
        finally:
            for one in waiting:
                one.cancel()


def record_of(job: Job, folder: Path) -> dict[str, Any]:
    """The record of one trial, measured in this process.

    Args:
        job: (experiment, arm, seed, steps).
        folder: for stores; each process has its own part of it.
    """
    name, arm_name, seed, steps = job
    experiment = EXPERIMENTS[name]
    (arm,) = (one for one in experiment.arms if one.name == arm_name)
    own = folder / str(os.getpid())
    own.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    started = time.process_time()
    with warnings.catch_warnings():
        # arms do on purpose what a run would warn about
        warnings.simplefilter("ignore", UserWarning)
        found = experiment.measure(Trial(arm, seed, steps, own))
    return {
        "key": record_key(experiment, arm, seed, steps),
        "experiment": name,
        "arm": arm_name,
        "seed": seed,
        "steps": steps,
        "figures": found.figures,
        "curves": found.curves,
        "about": {
            **found.about,
            "cpu_seconds": round(time.process_time() - started, 1),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
