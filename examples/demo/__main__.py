"""`python -m examples.demo`: the steps, in order."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import tokenloom as tl
from examples.demo.steps import BATCH, STEPS, Demo, DemoFailed, heading, median_document, say

MARK = ".tokenloom-demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    arguments = parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):  # a terminal without ✓ shows ? instead
        stream.reconfigure(errors="replace")
    try:
        refusal = prepare(arguments.out)
    except OSError as error:
        refusal = f"{arguments.out}: {error.strerror}. Choose another directory with --out."
    if refusal:
        print(f"demo: {refusal}", file=sys.stderr)
        return 2
    began = time.perf_counter()
    demo = Demo(arguments.out, arguments.fast)
    print(f"tokenloom {tl.__version__}: text to training data. Everything goes to {demo.out}.")
    try:
        for number, (title, step) in enumerate(STEPS, 1):
            heading(f"{number}/{len(STEPS)}  {title}")
            step_began = time.perf_counter()
            step(demo)
            say(f"[{time.perf_counter() - step_began:.1f} s]")
    except (DemoFailed, tl.TokenloomError) as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; run it again to start over.", file=sys.stderr)
        return 130
    heading(f"Done in {time.perf_counter() - began:.0f} s. What to try next")
    for about, command in what_next(demo):
        say(f"# {about}")
        say(command)
    heading("And look")
    say(f"{demo.out / 'report.html'}  (open it in a browser)")
    say(f"{command_line()} explore {shlex.quote(str(demo.out))}/run.yaml --batch-size {BATCH}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="examples.demo", description="tokenloom on real text.")
    top.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="output directory (default: demo-out)"
    )
    top.add_argument("--fast", action="store_true", help="a tiny corpus, a few seconds")
    return top


def prepare(out: Path) -> str | None:
    """Make an empty, marked directory, removing an earlier demo; returns why if it cannot."""
    if out.exists() and not out.is_dir():
        return f"{out} is a file. Choose another directory with --out."
    if out.is_dir() and any(out.iterdir()):
        if not (out / MARK).is_file():
            return (
                f"{out} exists and was not made by this demo, so it is left alone. "
                "Move it away, or choose another directory with --out."
            )
        for path in out.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != MARK:
                path.unlink()
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text("Made by `make demo`, which empties this directory when it starts.\n")
    return None


def what_next(demo: Demo) -> list[tuple[str, str]]:
    """Commands to try on the results of the demo."""
    tokenloom = command_line()
    out, prose = shlex.quote(str(demo.out)), demo.stores["prose"]
    here = os.path.relpath(Path(__file__).parent)
    return [
        ("counts, lengths, tokenizer, digests", f"{tokenloom} info {out}/stores/code"),
        (
            "one document, token by token",
            f"{tokenloom} show {out}/stores/prose --doc {median_document(prose)} --limit 20",
        ),
        ("every byte against what was published", f"{tokenloom} verify {out}/stores/prose"),
        (
            "your own text",
            f"{tokenloom} build {shlex.quote(here)} -o {out}/stores/own -t {out}/tokenizer.json",
        ),
    ]


def command_line() -> str:
    """The `tokenloom` command as typed in this environment."""
    beside = Path(sys.prefix, "bin", "tokenloom")
    if shutil.which("tokenloom") == str(beside):
        return "tokenloom"
    if beside.exists():
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(sys.executable)} -m tokenloom"


if __name__ == "__main__":
    sys.exit(main())
