"""Run files, from text to batches: what each describes, and its first batch.

Run it with `python examples/runs/show.py [FILE …]`; default: all of them. Stores are built beside
the files on first use, in `stores/`; nothing is downloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tokenloom as tl

HERE = Path(__file__).resolve().parent


def show(path: Path) -> None:
    """Print the run of a file, its first batch, and its evaluation sets."""
    run = tl.load(path)
    print(f"\n== {path.name}\n{run}")
    with tl.Loader(run) as loader:
        batch = next(loader)
    trained = batch.loss_tokens
    print(f"first batch: {batch.tokens.shape}, {trained} predictions count")
    text = bytes(batch.tokens[0].astype("uint8")).rstrip(b"\0").decode(errors="replace")
    print(f"first row: {text[:72]!r} …")
    for name, held in run.file.evaluate.items():
        print(f"evaluate {name}: {len(held)} examples of {held.seq_len} tokens")


def main() -> None:
    """Show the files named on the command line, or all."""
    names = sys.argv[1:] or sorted(one.name for one in HERE.glob("*.yaml"))
    for name in names:
        show(HERE / name)


if __name__ == "__main__":
    main()
