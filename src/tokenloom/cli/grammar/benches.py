"""Commands that measure."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.values import real, whole
from tokenloom.cli.grammar.verbs import add_verb

__all__ = ["add_bench"]


def add_bench(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `bench`, a command with one sub-command per benchmark."""
    bench = commands.add_parser(
        "bench",
        allow_abbrev=False,  # a later option must not change what an old command means
        help="measure shuffles and loading",
        description="Reproducible measurements.",
    )
    benches = bench.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for add in (_add_permutation, _add_data_loading):
        add(benches, common)


def _add_permutation(benches: Any, common: argparse.ArgumentParser) -> None:
    command = add_verb(
        benches,
        common,
        "permutation",
        work="benches.orders:permutation",
        example="bench permutation --n 8192 --repeats 4",
        help="how well orders mix, and how local they stay",
        description="Measure full, era and block orders over several seeds, next to the values of "
        "a fair shuffle. Exit code 1 if --compare finds a difference.",
    )
    number: dict[str, Any] = {"type": whole, "metavar": "N"}
    command.add_argument("--n", default=8192, help="rows (default: 8192)", **number)
    command.add_argument("--repeats", default=8, help="number of seeds (default: 8)", **number)
    command.add_argument("--seed", default=0, help="the first seed (default: 0)", **number)
    command.add_argument("--seq-len", default=2048, help="tokens per row (2048)", **number)
    command.add_argument(
        "--strategies", default="full,era,block", help="any of full,era,block (default: all)"
    )
    command.add_argument("--era-length", default=1024, help="rows per era (1024)", **number)
    command.add_argument("--window-blocks", default=8, help="blocks per window (8)", **number)
    command.add_argument("--lanes", default=1, help="open windows, not for levanter (1)", **number)
    command.add_argument(
        "--batch-size", default=2048, help="rows fetched together (default: 2048)", **number
    )
    command.add_argument(
        "--io-block-size", help="rows per block (default: 262144 // seq_len)", **number
    )
    command.add_argument(
        "--perm-type",
        help="any of levanter,feistel,linear,levanter_linear (default: levanter,feistel)",
    )
    command.add_argument("--compare", metavar="FILE", help="an earlier output with --json")
    command.add_argument(
        "--tolerance", type=real, default=1e-9, help="ignored difference (default: 1e-9)"
    )


def _add_data_loading(benches: Any, common: argparse.ArgumentParser) -> None:
    """Add the sub-command."""
    command = add_verb(
        benches,
        common,
        "data-loading",
        work="benches.reads:data_loading",
        example="bench data-loading --store stores/wiki --steps 20",
        help="reads and speed of shuffled requests, and of a loader",
        description="Count the reads of shuffled requests and time them, then the steps of a "
        "loader, on a temporary store or on --store. Exit code 1 if --compare finds a different "
        "count, or more than --max-slowdown.",
    )
    for name, default, what in (
        ("steps", 20, "number of requests, and of steps of the loader"),
        ("batch-size", 128, "rows per batch"),
        ("prefetch-batches", 16, "batches per request"),
        ("seq-len", 2048, "tokens per row"),
        ("era-length", 1024, "rows per era"),
        ("window-blocks", 8, "blocks per window"),
        ("seed", 0, "seed of the orders"),
    ):
        command.add_argument(
            f"--{name}",
            type=whole,
            default=default,
            metavar="N",
            help=f"{what} (default: {default})",
        )
    command.add_argument(
        "--num-examples",
        type=whole,
        metavar="N",
        help="rows of the temporary store (default: 16384)",
    )
    command.add_argument("--store", metavar="PATH", help="measure this store instead")
    command.add_argument(
        "--strategies",
        default="full,era,block",
        help="any of none,full,era,block (default: all but none)",
    )
    command.add_argument(
        "--perm-type",
        default="levanter,feistel",
        help="any of levanter,feistel,linear,levanter_linear (default: levanter,feistel)",
    )
    command.add_argument("--compare", metavar="FILE", help="an earlier output with --json")
    command.add_argument(
        "--max-slowdown", type=real, metavar="X", help="with --compare: fail above X times p50"
    )
