"""How many small mistakes the tests find: `make mutate`.

Each mutant of a keyed sample gets the tests that run its lines, those of its own room first and the
quickest first, until one fails. What survives a first round, which has little time, gets all of its
tests in a second one. Mutants that change nothing that anybody could see are listed with the reason
in `equivalent.txt`; all others that survive are printed, and more than 5 % of them end with 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutation.cover import Lines, read
from mutation.mutants import Mutant, mutants_of, sample

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("loader", "batch", "order", "mixture", "layout")
TESTS = tuple(
    f"tests/{room}" for room in (*ROOMS, "api", "documents", "inspect", "random", "streams")
)
ALLOWED = 0.05
QUICK, LONG = (
    12.0,
    90.0,
)  # seconds of tests a mutant gets in each round, as measured with nothing else


def main() -> int:
    """Run it: 0 if few enough survive."""
    ask = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    ask.add_argument("--count", type=int, default=400, help="mutants (400)")
    ask.add_argument("--key", default="tokenloom", help="chooses the sample")
    ask.add_argument(
        "--rooms", nargs="+", default=ROOMS, help="rooms or modules below src/tokenloom"
    )
    ask.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    ask.add_argument("--workers", type=workers, default="auto", help="a number, or auto: all cores")
    ask.add_argument("--cover", type=Path, help="keep the coverage of the tests here, and use it")
    asked = ask.parse_args()
    begin = time.monotonic()
    chosen = sample(
        [m for one in modules(asked.rooms) for m in mutants_of(ROOT, one)], asked.count, asked.key
    )
    known = equivalents()
    with tempfile.TemporaryDirectory(prefix="tokenloom-mutation-") as folder:
        lines, seconds = covered(asked.cover or Path(folder) / "cover", asked.tests, asked.workers)
        print(
            f"{len(seconds):,} tests, {time.monotonic() - begin:.0f} s to see which lines they run"
        )
        unfit = unfit_tests(lines, seconds, Path(folder), asked.workers)
        print(f"{len(unfit)} of them fail in a fork without a mutant, and are left out", *unfit)
        verdicts: dict[str, str] = {}
        for budget in (QUICK, LONG):
            left = [m for m in chosen if verdicts.get(m.name, "survived") == "survived"]
            left = [m for m in left if m.name not in known]
            work = [plan_of(m, lines, seconds, budget, unfit) for m in left]
            told = tried(work, Path(folder), asked.workers)
            verdicts |= {one["name"]: one["verdict"] for one in told}
    return report(chosen, verdicts, known, time.monotonic() - begin)


def workers(text: str) -> int:
    """A number of processes, as it is given on the command line."""
    return os.cpu_count() or 1 if text == "auto" else int(text)


def modules(rooms: Sequence[str]) -> list[str]:
    """The modules of some rooms, below the root of the project."""
    found = []
    for room in rooms:
        place = ROOT / "src/tokenloom" / room
        found += [place] if place.suffix == ".py" else sorted(place.rglob("*.py"))
    return [str(one.relative_to(ROOT)) for one in found]


def equivalents() -> dict[str, str]:
    """Name of each mutant that is known to change nothing → why."""
    listed = (Path(__file__).parent / "equivalent.txt").read_text().splitlines()
    pairs = (line.split(" # ", 1) for line in listed if line and not line.startswith("#"))
    return {name.strip(): why for name, why in pairs}


def covered(out: Path, tests: Sequence[str], workers: int) -> tuple[Lines, dict[str, float]]:
    """The tests of each line, and their seconds; measured unless it is there."""
    if not list(out.parent.glob(f"{out.name}.*")):
        pytest(tests, "-p", "mutation.cover", "-n", str(workers), MUTATION_COVER=str(out))
    return read(out, ROOT)


def unfit_tests(
    lines: Lines, seconds: dict[str, float], folder: Path, workers: int
) -> frozenset[str]:
    """Tests that fail in a fork although nothing is changed: they would seem to kill everything."""
    used = sorted({t for module in lines.values() for tests in module.values() for t in tests})
    parts = [used[number::workers] for number in range(workers)]
    limit = 120 + 10 * sum(seconds.values())
    work = [{"mutant": None, "tests": part, "limit": limit} for part in parts]
    told = tried(work, folder, workers)
    for one in told:
        if one["verdict"] not in ("survived", "killed"):
            sys.exit(f"a fork without a mutant has {one['verdict']}")
    return frozenset(name for one in told for name in one["failed"])


def plan_of(
    mutant: Mutant,
    lines: Lines,
    seconds: dict[str, float],
    budget: float,
    unfit: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The tests of a mutant, its own room's first, within a budget; and when it counts as hung."""
    room = mutant.module.split("/")[2]
    known = lines.get(mutant.module, {})
    tests = {t for n in range(mutant.first, mutant.last + 1) for t in known.get(n, ())} - unfit
    ordered = sorted(tests, key=lambda t: (not t.startswith(f"tests/{room}/"), seconds[t], t))
    # the quickest of its room, then whatever is quick: each sort of tests gets half of the time
    taken: list[str] = []
    spent = 0.0
    for order in (ordered, sorted(tests, key=lambda t: (seconds[t], t))):
        until = spent + budget / 2
        for test in order:
            if test not in taken and spent + seconds[test] <= until:
                taken.append(test)
                spent += seconds[test]
    taken = taken or ordered[:1]
    return {"mutant": dataclasses.asdict(mutant), "tests": taken, "limit": 60 + 10 * spent}


def tried(work: list[dict[str, Any]], folder: Path, workers: int) -> list[dict[str, Any]]:
    """What became of each mutant."""
    running = []
    for number in range(workers):
        part = work[number::workers]
        if not part:
            continue
        plan, out = folder / f"plan-{number}.json", folder / f"out-{number}.jsonl"
        out.unlink(missing_ok=True)
        plan.write_text(json.dumps({"root": str(ROOT), "out": str(out), "work": part}))
        files = sorted({test.split("::")[0] for one in part for test in one["tests"]})
        running.append((out, start("-p", "mutation.kill", *files, MUTATION_PLAN=str(plan))))
    told: list[dict[str, Any]] = []
    for out, process in running:
        printed, _ = process.communicate()
        if process.returncode not in (0, 5) or not out.exists():
            sys.exit(f"pytest ended with {process.returncode}:\n{printed[-3000:]}")
        told += [json.loads(line) for line in out.read_text().splitlines()]
    return told


def pytest(tests: Sequence[str], *arguments: str, **environment: str) -> None:
    """Run some tests, all of which must pass."""
    process = start(*arguments, *tests, **environment)
    printed, _ = process.communicate()
    if process.returncode:
        sys.exit(f"the tests fail without any mutant:\n{printed[-3000:]}")


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Pytest over this project, its output kept."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def report(
    chosen: list[Mutant], verdicts: dict[str, str], known: dict[str, str], seconds: float
) -> int:
    """Print the survivors and the counts: 0 if few enough survive."""
    counts = Counter(verdicts.get(m.name, "equivalent") for m in chosen)
    alive = [m for m in chosen if verdicts.get(m.name) in ("survived", "not run by any test")]
    for mutant in alive:
        print(f"{verdicts[mutant.name]}: {mutant}\n    {mutant.name}")
    print(
        f"{len(chosen)} mutants in {seconds:.0f} s:",
        ", ".join(f"{n} {w}" for w, n in counts.most_common()),
    )
    stale = set(known) - {m.name for one in modules(ROOMS) for m in mutants_of(ROOT, one)}
    for name in sorted(stale):
        print(f"equivalent.txt: {name}: there is no such mutant any more; remove the line")
    share = len(alive) / max(1, len(chosen))
    print(f"{share:.1%} survive, allowed: less than {ALLOWED:.0%}")
    return int(share >= ALLOWED or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
