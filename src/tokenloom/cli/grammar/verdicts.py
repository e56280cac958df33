"""Options of the commands that judge: `audit`, `simulate`, `report` and `evaluate`."""

from __future__ import annotations

from typing import Any

from tokenloom.cli.grammar.runs import add_batch_size
from tokenloom.cli.grammar.stores import add_said
from tokenloom.cli.grammar.values import bytes_of, real, whole
from tokenloom.cli.grammar.verbs import add_overrides, add_verb

NUMBER: dict[str, Any] = {"type": whole, "metavar": "N"}

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
    run.add_argument("--ranks", type=whole, metavar="W", help="number of ranks (default: 1)")
    run.add_argument("--latency", type=real, metavar="S", help="seconds of a request")
    run.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    run.add_argument("--step-seconds", type=real, metavar="S", help="seconds of a step")
    run.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
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
    look.add_argument("--first", help="first row (default: 0)", **NUMBER)
    look.add_argument("--last", help="row after the last one (default: the end)", **NUMBER)
    arrays = look.add_mutually_exclusive_group()
    arrays.add_argument("--plan-only", action="store_true", help="read no token, render no row")
    arrays.add_argument(
        "--all", action="store_true", help="render every row, also of more than 2^26 tokens"
    )
    look.add_argument("--sample", help="only N rows, a keyed sample", **NUMBER)
    look.add_argument("--seed", default=0, help="names the sample (default: 0)", **NUMBER)
    look.add_argument("-o", "--output", metavar="FILE", help="write the certificate there")
    check = audit.add_argument_group("certificates of others")
    check.add_argument("--check", metavar="FILE", help="compute a keyed hundredth of it again")
    check.add_argument("--full", action="store_true", help="with --check: compute all of it again")
    other = audit.add_argument_group("loaders of others")
    other.add_argument("--indices", nargs="+", metavar="FILE", help=".npy of indices, one per rank")
    other.add_argument("--rows", help="with --indices: rows of an epoch", **NUMBER)
    other.add_argument("--epochs", help="with --indices: how many epochs these are", **NUMBER)


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
    simulate.add_argument("--steps", help="steps (default: all that remain)", **NUMBER)
    simulate.add_argument("--first", default=0, help="the first step", **NUMBER)
    simulate.add_argument("--ranks", type=whole, default=1, metavar="W", help="number of ranks")
    add_batch_size(simulate)
    simulate.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
    simulate.add_argument("--latency", type=real, metavar="S", help="seconds of a request")
    simulate.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    simulate.add_argument("--step-seconds", type=real, metavar="S", help="seconds of a step")
    simulate.add_argument("--parallel", default=1, help="requests answered at a time", **NUMBER)
