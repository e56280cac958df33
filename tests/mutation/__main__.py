"""How many small mistakes the tests find: `make mutate`.

Each mutant of a keyed sample gets the tests that run its lines, those of its own room first and the
quickest first, until one fails. What survives a first round, which has little time, gets more of
its tests in a second one. Mutants that change nothing that anybody could see are listed with the
reason in `equivalent.txt`; all others that survive are printed, and 5 % of them end with 1.

While you write tests, keep what was found: ``--cover FILE --kept FILE`` measures again only tests
that have changed and tries again only mutants whose module or tests have; ``--only NAME`` tries
single ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutation.cover import read, stale
from mutation.forks import ROOT, measured, say
from mutation.kept import ALIVE, Kept
from mutation.mutants import Mutant, mutants_of, sample
from mutation.rounds import Rounds

ROOMS = ("loader", "batch", "order", "mixture", "layout")
TESTS = tuple(
    f"tests/{room}"
    for room in ("mission", "laws", "fault", *ROOMS[1:], "documents", "inspect", "integrations")
)
ALLOWED = 0.05
QUICK, LONG = 12.0, 60.0  # seconds of tests that a mutant gets in each round, as measured alone


def main() -> int:
    """Run it: 0 if few enough survive."""
    asked = arguments()
    begin = time.monotonic()
    every = [m for one in modules(asked.rooms) for m in mutants_of(ROOT, one)]
    chosen = sample(every, asked.count, asked.key)
    if asked.only:
        chosen = [m for m in every if m.name in asked.only]
        if missing := set(asked.only) - {m.name for m in chosen}:
            sys.exit(f"--only: no such mutant: {', '.join(sorted(missing))}")
    known = {} if asked.only else equivalents()
    with tempfile.TemporaryDirectory(prefix="tokenloom-mutation-") as folder:
        cover = asked.cover or Path(folder) / "cover"
        if changed := stale(cover, ROOT, asked.tests):
            measured(changed, cover.with_name(f"{cover.name}.{time.time_ns()}"), asked.workers)
        lines, seconds = read(cover, ROOT)
        say(f"{len(seconds):,} tests; {time.monotonic() - begin:.0f} s to see which lines they run")
        rounds = Rounds(lines, seconds, Kept(asked.kept, ROOT), Path(folder), asked.workers)
        left = [m for m in chosen if m.name not in known]
        for name, budget in (("first round", QUICK), ("second round", LONG)):
            rounds.run(name, left, budget)
            left = [m for m in left if rounds.verdicts[m.name] == "survived"]
    print(f"{len(rounds.unfit)} tests fail in a fork without a mutant, and do not count")
    print(*(f"    {test}\n" for test in sorted(rounds.unfit)), sep="", end="")
    return report(chosen, rounds.verdicts, known, time.monotonic() - begin)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    ask = argparse.ArgumentParser(
        prog="make mutate", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ask.add_argument("--count", type=int, default=400, help="mutants (400)")
    ask.add_argument("--key", default="tokenloom", help="chooses the sample")
    ask.add_argument(
        "--rooms", nargs="+", default=ROOMS, help="rooms or modules below src/tokenloom"
    )
    ask.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    ask.add_argument("--workers", type=workers, default="auto", help="a number, or auto: all cores")
    ask.add_argument("--cover", type=Path, help="keep the coverage of the tests here, and use it")
    ask.add_argument("--kept", type=Path, help="keep what became of mutants here, and use it")
    ask.add_argument("--only", nargs="+", help="names of mutants, instead of a sample")
    return ask.parse_args()


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


def report(
    chosen: list[Mutant], verdicts: dict[str, str], known: dict[str, str], seconds: float
) -> int:
    """Print the survivors and the counts: 0 if few enough survive."""
    counts = Counter(verdicts.get(m.name, "equivalent") for m in chosen)
    alive = [m for m in chosen if verdicts.get(m.name) in ALIVE]
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
