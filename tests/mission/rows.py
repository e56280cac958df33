"""The rows of required behavior: how many each chapter has, and which tests name them.

A test names its rows in its own name: `test_ts_12_…` is for row TS-12, and
`test_sp_01_sp_02_…` for two rows. A row that cannot be tested through public names stands in
`ELSEWHERE`, with the reason and the test that has it.
"""

import re
from pathlib import Path

CHAPTERS = {
    "ts": 18,  # token store
    "ds": 22,  # document selection
    "sp": 42,  # splice, single document
    "sm": 30,  # splice, many documents
    "bal": 11,  # balancing
    "sh": 20,  # shuffle
    "cr": 10,  # coalesced reads
    "ca": 8,  # caching
    "pk": 34,  # packing
    "bc": 28,  # boundaries and collation
    "lm": 14,  # loss masks
    "im": 20,  # interleave and mixture
    "ck": 22,  # checkpoint and resume
    "sd": 8,  # sharding
    "ld": 12,  # loader
    "cf": 17,  # configuration
    "cl": 11,  # command line and inspection
    "be": 12,  # benchmarks
    "ev": 11,  # evaluation and metrics
    "tr": 10,  # training smoke tests
    "do": 10,  # documentation
}
ROWS = [f"{chapter}_{n:02}" for chapter, count in CHAPTERS.items() for n in range(1, count + 1)]

ELSEWHERE: dict[str, str] = {}  # row: why, and the test that has it


def named_rows(folder: Path) -> dict[str, list[str]]:
    """Rows that tests in `folder` name: row → names of tests."""
    found: dict[str, list[str]] = {}
    row = re.compile(rf"_({'|'.join(CHAPTERS)})_(\d\d)(?=_|$)")
    for path in sorted(folder.glob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE):
            for chapter, number in row.findall(name.removeprefix("test")):
                found.setdefault(f"{chapter}_{number}", []).append(name)
    return found


if __name__ == "__main__":
    named = named_rows(Path(__file__).parent)
    print("rows without a test by name:", *[row for row in ROWS if row not in named])
