"""The picture of shares in docs/mixing.md: who is trained when, from a real run.

::

    python docs/pictures/shares.py > docs/pictures/shares.svg

Three sources by tokens; a weight changes at step 300, a fourth joins at step 600. The same bytes
every time: it is the figure that a report has of this run.
"""

from __future__ import annotations

import sys
import tempfile

import tokenloom as tl
from tokenloom.page.charts import series
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.report.figures.mixture import shares_over_steps
from tokenloom.report.subject import Asked, RunSubject

STEPS, BATCH = 900, 4
NAMES = ("wiki", "code", "books", "news")


def mixed(folder: str) -> tl.Dataset:
    """The run that is drawn."""
    stores = {}
    for number, name in enumerate(NAMES):
        texts = [{"text": "abcdefgh" * (5 + (i * (number + 3)) % 23)} for i in range(200)]
        path = f"{folder}/{name}"
        stores[name] = tl.build(texts, path, tokenizer="bytes", progress=False)
    packed = {name: store.pack(512).shuffle().epochs(None) for name, store in stores.items()}
    first = {name: packed[name] for name in ("wiki", "code", "books")}
    run = tl.mix(first, weights={"wiki": 3, "code": 2, "books": 1}).seed(7)
    run = run.take(STEPS * BATCH).edit(at=300 * BATCH, weights={"code": 4})
    return run.edit(at=600 * BATCH, add={"news": packed["news"]}, weights={"news": 2})


def draw() -> str:
    """The picture."""
    with tempfile.TemporaryDirectory() as folder:
        subject = RunSubject(mixed(folder), Asked(batch_size=BATCH))
        found = shares_over_steps(subject, range(len(NAMES)))
    names = [(name, series(number)) for number, name in enumerate(found.shares)]
    return standalone(
        "Shares of tokens over a run with two edits",
        ["weights 3, 2, 1; code has 4 from step 300 on, news joins with 2 at 600"],
        [Panel(found.chart(DRAWN), legend=names)],
    )


if __name__ == "__main__":
    sys.stdout.write(draw())
