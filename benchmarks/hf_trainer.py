"""Trainers: what data adds to a step of a Trainer of transformers, 32 rows of 2,048 tokens.

The Trainer takes its micro-batches from the same object as here (`get_train_dataloader`); what it
waits for them is the overhead. Back to back, nothing hides the making of a batch; in a training it
happens in a thread while the model works.
"""

from __future__ import annotations

import importlib
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from tokenloom.testing import write_store

__all__ = ["SIZES", "run"]

SIZES = {"tiny": 4, "small": 50, "default": 300, "full": 1000}  # size → steps
LIMIT = 2  # milliseconds of a step
ROWS, SEQ_LEN, VOCAB = 32, 2048, 32_000


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of trainers."""
    transformers = importlib.import_module("transformers")
    attach = importlib.import_module("tokenloom.integrations.hf").attach
    random = np.random.default_rng(0)
    lengths = random.integers(20, 3000, 200 if size == "tiny" else 4000)
    documents = [random.integers(0, VOCAB, length).tolist() for length in lengths]
    write_store(folder / "store", [documents], vocab_size=VOCAB)
    packed = tl.open(folder / "store").pack(SEQ_LEN).shuffle()
    args = transformers.TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=ROWS, report_to="none", use_cpu=True
    )
    trainer = attach(transformers.Trainer(_tiny(transformers), args), packed, check=False)
    waits = {
        "back to back": _waits(trainer, SIZES[size], 0.0),
        "while a model works 20 ms": _waits(trainer, SIZES[size], 0.02),
    }
    rows = [
        want(_row(f"a step of {ROWS} × {SEQ_LEN:,}, {name}", found), "<=", LIMIT)
        for name, found in waits.items()
    ]
    notes = [
        "Waiting for input_ids, labels and position_ids of int64 (positions int32), 0 workers."
    ]
    return [Table(title="trainer", command=command, rows=rows, notes=notes)]


def _tiny(transformers: Any) -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": VOCAB}
    config = transformers.LlamaConfig(num_hidden_layers=1, num_attention_heads=1, **sizes)
    return transformers.LlamaForCausalLM(config)


def _waits(trainer: Any, steps: int, works: float) -> list[float]:
    """Milliseconds that a Trainer waits for each step; the first few start threads."""
    feed, found = iter(trainer.get_train_dataloader()), []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        next(feed)
        found.append(1e3 * (time.perf_counter() - begin))
        time.sleep(works)
    return found[3:]


def _row(what: str, found: list[float]) -> Row:
    middle = statistics.median(found)
    return Row(what=what, value=middle, median=middle, unit="ms", samples=tuple(found))
