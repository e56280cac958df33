"""`python -m science [NAME ...] [--quick] [--report] [--results FOLDER] [--workers N]`.

Measures what is missing, keeps every result in ``science/results``, and rewrites docs/results.md
from all of them. What has a result is skipped, so a killed call resumes. ``--quick`` measures two
arms of each experiment with one seed, says which orderings hold, and leaves results and docs
alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from science.measuring import measure_all
from science.records import HERE, Shelf
from science.registry import EXPERIMENTS
from science.report import checks_in_words, write_report
from science.verdicts import Found
from tokenloom.arguments import check_names

__all__ = ["main"]


def main(words: Sequence[str] | None = None) -> int:
    """The command; 1 if an ordering of the quick form does not hold."""
    given = _parser().parse_args(words)
    check_names("science", given.names, list(EXPERIMENTS))
    chosen = [EXPERIMENTS[name] for name in given.names or EXPERIMENTS]
    scratch = tempfile.TemporaryDirectory() if given.quick and not given.results else nullcontext()
    with scratch as folder:
        shelf = Shelf(Path(given.results or folder or HERE / "results"))
        if not given.report:
            measure_all(chosen, shelf, quick=given.quick, workers=given.workers)
        held = True
        for one in chosen:
            checks = one.judge(Found(shelf.read(one, quick=given.quick)))
            held &= all(check.holds is not False for check in checks)
            print("\n".join(checks_in_words(one, checks)))
        if given.quick:
            return 0 if held else 1
        print(f"\nwritten: {write_report(shelf, HERE.parent / 'docs')}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m science", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="two arms, one seed, nothing is kept")
    parser.add_argument("--report", action="store_true", help="measure nothing, rewrite the page")
    parser.add_argument("--results", metavar="FOLDER", help="where results are")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    return parser


if __name__ == "__main__":
    sys.exit(main())
