"""Which documents are behind the losses of a run?

    python -m examples.blame run.yaml log.jsonl --batch-size 64

The log has a record per step, as JSON lines or as CSV with a header: `{"step": 7, "loss": 3.2}`.
The loss of a step is shared by all documents of all its rows, so a document stands out only if it
comes again in other company. Losses of rows say far more: `{"step": 7, "loss": [3.1, 3.3], "index":
[14, 15]}`, where `index` is `batch.index`.

A run knows which documents are in each example (`run.spans`), so only losses have to be logged.
Each loss is compared with the running median around it. The effect of a document is estimated by
least squares from its share of the tokens of each step, or row. It is a suspect if its effect over
its standard error is higher than that of every document after each of 99 random permutations of the
losses: where no document matters, one run in a hundred has a suspect.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tokenloom as tl

WINDOW = 101  # losses of the running median
PERMUTATIONS = 99
MOST_SUSPECTS = 20

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class Shares(NamedTuple):
    """The share of the tokens of each unit (a step or a row) that each of its documents has."""

    unit: Int64  # [pairs]
    document: Int64  # place in `names` [pairs]
    share: Float64  # [pairs]
    names: list[tuple[str, int]]  # source and number of each document

    def sums(self, values: NDArray[Any]) -> Float64:
        """Sums over the units of each document [documents]."""
        return np.bincount(self.document, values, len(self.names)).astype(np.float64)


class Suspect(NamedTuple):
    """A document that losses point at."""

    name: tuple[str, int]
    effect: float  # what it adds to the loss of its tokens
    error: float  # standard error of the effect
    units: int  # that have it
    alike: list[tuple[str, int]]  # other documents in exactly these units: any of them may be meant


def read_losses(path: Path, key: str) -> tuple[list[int], list[Float64], list[Any]]:
    """Steps, their losses, and the examples of these; of a step logged twice, the last counts."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file)
        logged = {int(one["step"]): one for one in lines if one.get(key) not in (None, "")}
    if not logged:
        raise SystemExit(f"{path}: no record has a step and a {key!r}.")
    steps = sorted(logged)
    losses = [np.atleast_1d(np.array(logged[step][key], np.float64)) for step in steps]
    return steps, losses, [logged[step].get("index") for step in steps]


def suspects(run: tl.Dataset, unit: Int64, index: Int64, losses: Float64) -> list[Suspect]:
    """The documents that losses point at, the worst first.

    Args:
        run: the run that was trained.
        unit: the unit of each example [examples].
        index: the examples of all units [examples].
        losses: the loss of each unit; NaN and infinity are left out [units].
    """
    shares, of_sources = shares_of(run, unit, index, len(losses))
    finite, above = np.isfinite(losses), np.zeros(len(losses))
    above[finite] = losses[finite] - running_median(losses[finite])
    # a source may be harder than another one, which is no document's fault
    level = np.linalg.lstsq(of_sources[finite], above[finite], rcond=None)[0]
    above[finite] -= of_sources[finite] @ level
    noise = 1.4826 * np.median(np.abs(above[finite])) + 1e-12  # standard deviation without outliers
    weight = shares.sums(shares.share**2) + 1e-12
    error, rng = noise / np.sqrt(weight), np.random.default_rng(0)

    def effects(values: Float64) -> Float64:
        return shares.sums(shares.share * values[shares.unit]) / weight

    found: list[Suspect] = []
    while len(found) < MOST_SUSPECTS:
        effect = effects(above)
        worst = int((effect / error).argmax())
        by_chance = (effects(rng.permutation(above)) / error for _ in range(PERMUTATIONS))
        if effect[worst] / error[worst] <= max(scores.max() for scores in by_chance):
            break
        here = shares.document == worst
        units = shares.unit[here]
        above[units] -= effect[worst] * shares.share[here]  # the next suspect explains the rest
        inside = shares.sums(np.isin(shares.unit, units)) == len(units)
        inside &= shares.sums(np.ones(len(shares.unit))) == len(units)
        alike = [shares.names[one] for one in np.flatnonzero(inside).tolist() if one != worst]
        sizes = float(effect[worst]), float(error[worst]), len(units)
        found.append(Suspect(shares.names[worst], *sizes, alike))
    return found


def shares_of(run: tl.Dataset, unit: Int64, index: Int64, units: int) -> tuple[Shares, Float64]:
    """The documents of each unit, and the share of each source in it [units, sources]."""
    spans = run.spans(index)
    owner, source = unit[spans.row], spans.source[spans.row]
    keys, document = np.unique(np.stack([source, spans.document]), axis=1, return_inverse=True)
    pairs, place = np.unique(owner * keys.shape[1] + document.ravel(), return_inverse=True)
    tokens = np.bincount(place, spans.length)
    which, whose = np.divmod(pairs, keys.shape[1])
    share = tokens / np.maximum(np.bincount(which, tokens, units), 1)[which]
    of_sources = np.zeros((units, len(spans.sources)))
    np.add.at(of_sources, (which, keys[0][whose]), share)
    names = [(spans.sources[place], number) for place, number in keys.T.tolist()]
    return Shares(which, whose, share, names), of_sources


def running_median(losses: Float64) -> Float64:
    """The median of the losses around each, of fewer where the log begins or ends."""
    places = np.arange(len(losses))
    reach = np.minimum(places, places[::-1]).clip(max=WINDOW // 2)
    windows = zip((places - reach).tolist(), (places + reach + 1).tolist(), strict=True)
    return np.array([np.median(losses[first:last]) for first, last in windows])


def main(words: list[str]) -> int:
    """Print the suspects of a log, and the edit that takes them out; 1 if nothing stands out."""
    parser = argparse.ArgumentParser(prog="python -m examples.blame")
    parser.add_argument("run", help="the run file")
    parser.add_argument("log", type=Path, help="losses: JSON lines, or .csv")
    parser.add_argument("--batch-size", type=int, required=True, help="rows of a step, all ranks")
    parser.add_argument("--loss-key", default="loss", help="name of the loss in a record")
    asked = parser.parse_args(words)
    run, size = tl.load(asked.run), asked.batch_size
    steps, losses, indices = read_losses(asked.log, asked.loss_key)
    values = np.concatenate(losses)
    if None not in indices:
        index, unit, what = np.concatenate(indices), np.arange(len(values)), "rows"
    elif len(values) == len(steps):
        index = np.concatenate([np.arange(step * size, (step + 1) * size) for step in steps])
        unit, what = np.repeat(np.arange(len(steps)), size), "steps"
    else:
        parser.error("losses of rows need 'index', the examples of the rows, beside them.")
    found = suspects(run, unit, index, values)
    if not found:
        print(f"Nothing stands out in {len(values):,} losses of {what}.")
        return 1
    quarantine: list[tuple[str, int]] = []
    for (source, document), effect, error, count, alike in found:
        print(f"{source} document {document}: {effect:+.2f} ± {error:.2f}, in {count} {what}")
        if alike:
            print(f"  in the same {what}, so any of them may be meant: {alike}")
        quarantine += [(source, document), *alike]
    place = next(run.where(*found[0].name))
    print(f"The worst is first trained here:\n{run.at(place.index, metadata=True)}")
    edit = f"run.edit(at={index.max() + 1}, quarantine={sorted(set(quarantine))})"
    print(f"To train without them from here on, with those that may be meant:\n{edit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
