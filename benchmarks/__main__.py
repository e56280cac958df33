"""`python -m benchmarks [JOB|all] [--size tiny|small|default|full] [--json FILE]`.

`python -m benchmarks build --size huge` builds 1 GB, with one worker and with two.

`python -m benchmarks against OTHER_TREE` compares the speed of two checkouts instead,
`python -m benchmarks compare A.json B.json` two runs that were written with `--json`,
`python -m benchmarks flame` prints a picture of where the time of a batch goes,
`python -m benchmarks published` prints published tables beside ours, and
`python -m benchmarks permutation` and `data-loading` measure orders as the published scripts do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import (
    against,
    audit,
    buckets,
    build,
    cluster,
    compare,
    evaluation,
    exchange,
    explore,
    flame,
    foreign,
    hf_trainer,
    host,
    lanes,
    levanter,
    loaders,
    looking,
    mix,
    native,
    opening,
    order,
    packed_rows,
    packing,
    published,
    read,
    remote,
    report,
    rivals,
    run_files,
    scaling,
    shuffles,
    simulate,
    splice,
    start,
    trainers,
    write,
)
from benchmarks.clock import Table, machine, render

JOBS = {
    "start": start.run,
    "read": read.run,
    "write": write.run,
    "open": opening.run,
    "build": build.run,
    "cluster": cluster.run,
    "order": order.run,
    "loaders": loaders.run,
    "rivals": rivals.run,
    "remote": remote.run,
    "foreign": foreign.run,
    "buckets": buckets.run,
    "exchange": exchange.run,
    "host": host.run,
    "lanes": lanes.run,
    "levanter": levanter.run,
    "packing": packing.run,
    "packed_rows": packed_rows.run,
    "splice": splice.run,
    "mix": mix.run,
    "native": native.run,
    "run_files": run_files.run,
    "scaling": scaling.run,
    "looking": looking.run,
    "explore": explore.run,
    "simulate": simulate.run,
    "report": report.run,
    "trainers": trainers.run,
    "audit": audit.run,
    "evaluation": evaluation.run,
}
BY_NAME = {"hf_trainer": hf_trainer.run}  # needs transformers, so it is not in "all"
COMMANDS = {"against": against.main, "compare": compare.main, "published": published.main}
COMMANDS |= {name: partial(shuffles.main, name) for name in shuffles.WORKLOADS}
SIZES = ("tiny", "small", "default", "full")
LARGER = {"huge": ("build", "cluster")}  # sizes that only some jobs have


def main() -> None:
    first, *others = sys.argv[1:] or ["all"]
    if first in COMMANDS:
        raise SystemExit(COMMANDS[first](others))
    if first == "flame":
        raise SystemExit(flame.main(*others[:1]))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody's processes compile at every start
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("job", nargs="?", default="all", choices=[*JOBS, *BY_NAME, "all"])
    parser.add_argument("--size", default="default", choices=(*SIZES, *LARGER))
    parser.add_argument("--json", type=Path, help="also write the tables there")
    asked = parser.parse_args()
    if asked.job not in LARGER.get(asked.size, (asked.job,)):
        parser.error(f"--size {asked.size}: only for {', '.join(LARGER[asked.size])}")
    print(
        f"{machine()}\nCPU-seconds, best and median of interleaved rounds; ratios inside one run, "
        "of the bests and (of the medians). Medians decide whether a goal is met."
    )
    if asked.size == "tiny":
        print("Size tiny only shows that everything runs: its figures mean nothing.")
    tables: list[Table] = []
    for job in JOBS if asked.job == "all" else [asked.job]:
        command = f"python -m benchmarks {job} --size {asked.size}"
        with tempfile.TemporaryDirectory(prefix="tokenloom-bench-") as folder:
            for table in (JOBS | BY_NAME)[job](Path(folder), asked.size, command):
                print(f"\n{render(table)}", flush=True)
                tables.append(table)
    if asked.json:
        found = {"machine": machine(), "tables": [table.as_json() for table in tables]}
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
