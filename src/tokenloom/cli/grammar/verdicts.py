"""Options of the commands that judge: `audit`, `simulate`, `report` and `evaluate`."""

from __future__ import annotations

from typing import Any

from tokenloom.cli.grammar.runs import add_batch_size
from tokenloom.cli.grammar.stores import add_said
from tokenloom.cli.grammar.verbs import (
    add_flag,
    add_number,
    add_overrides,
    add_verb,
    bytes_of,
    real,
)

AXES = ("document", "source", "index", "position", "context", "start")


def add_evaluate(commands: Any) -> None:
    """Add `evaluate`."""
    evaluate = add_verb(
        commands,
        "evaluate",
        work="evaluate:evaluate",
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
    add_number(evaluate, "--seq-len", "tokens of a row, for a store")
    add_number(evaluate, "--batch-size", "rows at once (default: 8)", default=8)
    evaluate.add_argument(
        "--by", nargs="+", default=["source", "position"], choices=AXES, help="tables to print"
    )
    add_number(evaluate, "--page", "documents to write as pages, by number", nargs="+", default=[])
    evaluate.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="write JSON, CSV, pictures and pages there",
    )
    windows = evaluate.add_argument_group("windows")
    add_flag(windows, "--pz", "also judge windows of the documents")
    windows.add_argument(
        "--control",
        metavar="SET|STORE",
        help="documents that were held out: a set of the run file, or a store",
    )
    add_number(windows, "--prefix", "tokens that are given", default=50)
    add_number(windows, "--suffix", "tokens that are asked for", default=50)
    add_number(windows, "--stride", "tokens between windows", default=5)
    windows.add_argument("--temperature", type=real, default=1.0, metavar="T", help="0 is greedy")
    add_number(windows, "--top-k", "only the K most likely tokens")
    windows.add_argument("--top-p", type=real, metavar="P", help="only the mass P of tokens")


OUTPUT = "report.html"


def add_report(commands: Any) -> None:
    """Add `report`."""
    report = add_verb(
        commands,
        "report",
        work="report:report",
        example="report run.yaml --ranks 8 --latency 0.02 --step-seconds 0.4 -o report.html",
        help="a page about a run, a store, an audit or an evaluation",
        description="Write one HTML file that opens without a network: warnings and what to do "
        "about them, answers with numbers, and figures, each with its table and the code that "
        "makes it. No token is trained, and a run of any size takes seconds.",
    )
    report.add_argument(
        "target",
        metavar="RUN|STORE|AUDIT|EVAL",
        help="a run file; a store; what `audit -o` wrote; what `evaluate -o` wrote",
    )
    add_overrides(report)
    report.add_argument(
        "-o",
        "--output",
        default=OUTPUT,
        metavar="FILE",
        help=f"where to write it ({OUTPUT}); an earlier report is replaced",
    )
    run = report.add_argument_group("of a run")
    add_batch_size(run)
    add_number(run, "--ranks", "number of ranks (default: 1)", metavar="W")
    _add_machine(run)
    run.add_argument("--state", metavar="FILE", help="where the run is: a state that was saved")
    run.add_argument("--audit", metavar="FILE", help="a certificate of this run")
    run.add_argument(
        "--eval", nargs="+", default=[], metavar="FILE", help="files or folders of `evaluate -o`"
    )
    add_said(report)


def add_audit(commands: Any) -> None:
    """Add `audit`."""
    audit = add_verb(
        commands,
        "audit",
        work="verdicts:audit",
        example="audit run.yaml -o certificate.json",
        help="judge every law of a run, and write a certificate",
        description="Look at the rows of a run and judge every law: exactly once, coverage, order, "
        "mixture, tokens, masks, labels. With --check, compute a certificate again; with "
        "--indices, judge the loader of somebody else. Exit code 1 if a law is broken, or a "
        "certificate differs.",
    )
    audit.add_argument("description", nargs="?", metavar="RUN", help="a run file")
    add_overrides(audit)
    look = audit.add_argument_group("what to look at")
    add_number(look, "--first", "first row (default: 0)")
    add_number(look, "--last", "row after the last one (default: the end)")
    arrays = look.add_mutually_exclusive_group()
    add_flag(arrays, "--plan-only", "read no token, render no row")
    add_flag(arrays, "--all", "render every row, also of more than 2^26 tokens")
    add_number(look, "--sample", "only N rows, a keyed sample")
    add_number(look, "--seed", "names the sample (default: 0)", default=0)
    look.add_argument("-o", "--output", metavar="FILE", help="write the certificate there")
    check = audit.add_argument_group("certificates of others")
    check.add_argument("--check", metavar="FILE", help="compute a keyed hundredth of it again")
    add_flag(check, "--full", "with --check: compute all of it again")
    other = audit.add_argument_group("loaders of others")
    other.add_argument("--indices", nargs="+", metavar="FILE", help=".npy of indices, one per rank")
    add_number(other, "--rows", "with --indices: rows of an epoch")
    add_number(other, "--epochs", "with --indices: how many epochs these are")


def add_simulate(commands: Any) -> None:
    """Add `simulate`."""
    simulate = add_verb(
        commands,
        "simulate",
        work="verdicts:simulate",
        example="simulate run.yaml --steps 100000 --ranks 8 --batch-size 512 --cache 2GiB "
        "--latency 0.02 --bandwidth 500MB --step-seconds 0.4",
        help="what steps of a run will read, show and wait for",
        description="Tokens by source, repeats, reads, bytes, cache hits and stalls of steps that "
        "have not run yet, from metadata alone. Reads are those that loaders would count.",
    )
    simulate.add_argument("run", help="a run file")
    add_overrides(simulate)
    add_number(simulate, "--steps", "steps (default: all that remain)")
    add_number(simulate, "--first", "the first step", default=0)
    add_number(simulate, "--ranks", "number of ranks", metavar="W", default=1)
    add_batch_size(simulate)
    _add_machine(simulate)
    add_number(simulate, "--parallel", "requests answered at a time", default=1)


def _add_machine(verb: Any) -> None:
    """Add what a run is computed on: its cache, its storage and its steps."""
    verb.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
    verb.add_argument("--latency", type=real, metavar="S", help="seconds of a request")
    verb.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    verb.add_argument("--step-seconds", type=real, metavar="S", help="seconds of a step")
