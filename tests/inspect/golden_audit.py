"""The certificates that are pinned in tests/golden/audit.json.

`python tests/inspect/golden_audit.py FOLDER` builds the stores there and prints the claims;
`--write` writes them to the golden file: after a change of orders (with a new order version), or of
what an audit looks at.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from auditruns import SEQ_LEN, store_of

import tokenloom as tl
from tokenloom.inspect import audit_run

GOLDEN = Path(__file__).parents[1] / "golden/audit.json"


def pinned_runs(folder: Path) -> dict[str, tuple[tl.Dataset, dict]]:
    """Name → (run, what to ask of its audit)."""
    a, b = store_of(folder / "a", 0), store_of(folder / "b", 1)
    weighted = store_of(folder / "w", 5, weights=True)
    lanes = a.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2).epochs(2)
    lanes = lanes.block_shuffle(io_block_size=3, window_blocks=1, lanes=3).seed(3)
    mix = tl.mix(
        {"a": a.windows(SEQ_LEN).shuffle(), "b": b.pack(SEQ_LEN).block_shuffle(window_blocks=2)},
        weights={"a": 2, "b": 1},
    ).seed(5)
    mix = mix.edit(at=40, weights={"b": 3}, quarantine=[("a", 2)])
    spliced = a.splice(SEQ_LEN, content_length=5).shuffle().seed(2)
    return {
        "lanes": (lanes, {"last": 40}),
        "mix": (mix.take(150), {"first": 20, "last": 60}),
        "weighted": (weighted.windows(SEQ_LEN, tail="keep").shuffle(), {"arrays": True}),
        "splice": (spliced, {"arrays": "sample"}),
        "sample": (a.windows(SEQ_LEN).shuffle().epochs(None), {"last": 10**6, "sample": 24}),
    }


def claims(folder: Path) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = pinned_runs(folder)
        return {name: audit_run(run, **asked).claim for name, (run, asked) in made.items()}


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        with tempfile.TemporaryDirectory() as folder:
            found = json.dumps(claims(Path(folder)), indent=1)
        GOLDEN.write_text(found + "\n", encoding="utf-8")
        return
    print(json.dumps(claims(Path(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
