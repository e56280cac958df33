"""`python -m examples.demo`: the steps, in order."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenloom as tl
from examples.demo.asking import BATCH, ask_the_run
from examples.demo.building import build_stores, look_inside, median_document
from examples.demo.corpus import find_text
from examples.demo.loading import load_and_resume
from examples.demo.mixing import mix_sources
from examples.demo.packing import pack_documents
from examples.demo.printing import DemoFailed, heading, say
from examples.demo.promises import keep_promises
from examples.demo.showing import show_the_run
from examples.demo.splicing import splice_documents
from examples.demo.tokenizer import train_tokenizer
from examples.demo.training import train_a_model
from examples.demo.world import FAST, FULL, World

Step = Callable[[World], World]
STEPS: tuple[tuple[str, Step], ...] = (
    ("Find text on this machine", find_text),
    ("Train a tokenizer on a slice of it", train_tokenizer),
    ("Build a store per source", build_stores),
    ("Look inside", look_inside),
    ("Try the promises of a store", keep_promises),
    ("Shuffle, load, get killed, resume with other ranks", load_and_resume),
    ("Pack documents, and look for leaks", pack_documents),
    ("Splice a few documents, and check their coverage", splice_documents),
    ("Mix three sources, and edit the run midway", mix_sources),
    ("Train a tiny model, kill it, resume it", train_a_model),
    ("Ask what was trained where, and audit it", ask_the_run),
    ("Look at it", show_the_run),
)
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
    world = World(out=arguments.out, sizes=FAST if arguments.fast else FULL)
    print(f"tokenloom {tl.__version__}: text to training data. Everything goes to {world.out}.")
    try:
        for number, (title, step) in enumerate(STEPS, 1):
            heading(f"{number}/{len(STEPS)}  {title}")
            step_began = time.perf_counter()
            world = step(world)
            say(f"[{time.perf_counter() - step_began:.1f} s]")
    except (DemoFailed, tl.TokenloomError) as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; run it again to start over.", file=sys.stderr)
        return 130
    heading(f"Done in {time.perf_counter() - began:.0f} s. What to try next")
    for about, command in what_next(world):
        say(f"# {about}")
        say(command)
    heading("And look")
    say(f"{world.out / 'report.html'}  (open it in a browser)")
    say(f"{command_line()} explore {shlex.quote(str(world.out))}/run.yaml --batch-size {BATCH}")
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


def what_next(world: World) -> list[tuple[str, str]]:
    """Commands to try on the results of the demo."""
    tokenloom = command_line()
    out, prose = shlex.quote(str(world.out)), world.stores["prose"]
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
