"""`tokenloom pack-plan`: what each way of packing a store would cost."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.api.plan_packing import plan_packing
from tokenloom.api.store import open_store
from tokenloom.cli.printing import write
from tokenloom.layout.pack.compare import ALL, SIMPLE, PackingChoice
from tokenloom.layout.pack.spec import OVERFLOWS

__all__ = ["add_commands"]


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `pack-plan`."""
    plan = commands.add_parser(
        "pack-plan",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="what each way of packing would cost",
        description="Rows, fill, lost tokens and cut documents of every strategy, from lengths "
        "alone: exactly what `store.pack` gives.",
    )
    plan.set_defaults(run=_plan)
    plan.add_argument("store", help="directory of the store")
    plan.add_argument("--snapshot", type=int, help="number of an older snapshot")
    plan.add_argument("--seq-len", type=int, nargs="+", required=True, help="tokens of a frame")
    plan.add_argument("--strategy", nargs="+", default=list(SIMPLE), choices=[*ALL, "bin"])
    plan.add_argument("--overflow", nargs="+", default=["split", "truncate"], choices=OVERFLOWS)
    plan.add_argument("--add-bos", action="store_true", help="BOS before every document")
    plan.add_argument("--add-eos", action="store_true", help="EOS after every document")
    plan.add_argument("--group-docs", type=int, default=10_000, help="documents per group")
    plan.add_argument("--max-docs-per-bin", type=int, help="largest number of documents per row")


def _plan(arguments: argparse.Namespace) -> int:
    store = open_store(arguments.store, snapshot=arguments.snapshot)
    names = ("add_bos", "add_eos", "group_docs")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.max_docs_per_bin is not None:
        options["max_docs_per_bin"] = arguments.max_docs_per_bin
    plan = plan_packing(
        store,
        seq_len=arguments.seq_len,
        strategy=arguments.strategy,
        overflow=arguments.overflow,
        **options,
    )
    assert not isinstance(plan, PackingChoice)  # lists were given
    write(arguments, plan.as_json(), str(plan).splitlines())
    return 0
