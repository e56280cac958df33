"""The command that measures what a model has learned: `evaluate`."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.values import real, whole
from tokenloom.cli.grammar.verbs import add_overrides, add_verb

__all__ = ["AXES", "add_evaluate"]

AXES = ("document", "source", "index", "position", "context", "start")

NUMBER: dict[str, Any] = {"type": whole, "metavar": "N"}


def add_evaluate(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `evaluate`."""
    evaluate = add_verb(
        commands,
        common,
        "evaluate",
        work="judging.evaluation:evaluate",
        example="evaluate run.yaml --model checkpoints/final --pz -o results",
        help="what a model has learned: losses by place, and P(z)",
        description="Perplexity and bits per byte of a local model of Transformers (safetensors "
        "only, no code of its own): of each evaluation set of a run file, of the run itself if it "
        "has none, or of every document of a store, one a row. With --pz also how likely the model "
        "writes each window of the documents by itself.",
    )
    evaluate.add_argument("target", metavar="RUN|STORE", help="a run file, or a store")
    add_overrides(evaluate)
    evaluate.add_argument("--model", required=True, metavar="DIR", help="folder of the model")
    evaluate.add_argument(
        "--dtype", default="float32", choices=("float32", "bfloat16", "float16"), help="of weights"
    )
    evaluate.add_argument("--seq-len", help="tokens of a row, for a store", **NUMBER)
    evaluate.add_argument("--batch-size", default=8, help="rows at once (default: 8)", **NUMBER)
    evaluate.add_argument(
        "--by", nargs="+", default=["source", "position"], choices=AXES, help="tables to print"
    )
    evaluate.add_argument(
        "--page", nargs="+", default=[], help="documents to write as pages, by number", **NUMBER
    )
    evaluate.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="write JSON, CSV, pictures and pages there; the same command after a stop goes on",
    )
    windows = evaluate.add_argument_group("windows")
    windows.add_argument("--pz", action="store_true", help="also judge windows of the documents")
    windows.add_argument(
        "--control",
        metavar="SET|STORE",
        help="documents that were held out: a set of the run file, or a store",
    )
    windows.add_argument("--prefix", default=50, help="tokens that are given", **NUMBER)
    windows.add_argument("--suffix", default=50, help="tokens that are asked for", **NUMBER)
    windows.add_argument("--stride", default=5, help="tokens between windows", **NUMBER)
    windows.add_argument("--temperature", type=real, default=1.0, metavar="T", help="0 is greedy")
    windows.add_argument("--top-k", help="only the K most likely tokens", **NUMBER)
    windows.add_argument("--top-p", type=real, metavar="P", help="only the mass P of tokens")
