"""What was learned when: losses over checkpoints, and the documents that were learned first.

An evaluation at every checkpoint gives each document a curve, and a map of documents over
checkpoints shows the order in which they are learned (`tokenloom.evaluate.learned`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokenloom.errors import ConfigError
from tokenloom.evaluate.periodic import Learned, documents_of, flat, learned
from tokenloom.page.charts import SERIES, both, heat, heat_legend, legend, lines
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, exact, plural, share
from tokenloom.report.evaluations.read_back import Evaluated, sampled
from tokenloom.report.report_file import Answer

FIGURES = {"loss": 1.0, "mean_pz": 0.5}  # of a document, and from which value on it is learned

MOST_JOBS, MOST_STEPS = 4, 60

MOST_DOCUMENTS = 20_000  # of a job; of more, a keyed sample

SHOWN = 40  # documents of a map

WIDE = 360  # places of a map, from the first to the last step

Records = Sequence[Mapping[str, Any]]


def learned_answer(every: Sequence[Evaluated]) -> Answer | None:
    """How many documents were learned; None without evaluations over steps."""
    for one in every:
        for job, figure in _jobs(one.records):
            found = _learned(one.records, job, figure)
            if found is not None:
                documents = len(found.documents)
                known = documents - len(found.never)
                return Answer(
                    name="learned",
                    question="What was learned?",
                    sentence=f"{amount(known)} of {amount(documents, 'document')} of {job} "
                    f"reach {figure} {exact(found.line)} by step {found.steps[-1]:,} "
                    f"({share(known, documents)}).",
                    numbers={"learned": known, "documents": documents},
                    figure="learned",
                    headline=(share(known, documents), "of the documents"),
                )
    return None


def learned_figures(every: Sequence[Evaluated]) -> Iterator[Figure]:
    """A figure for each series of evaluations."""
    known = [one for one in every if one.records]
    for number, one in enumerate(known[:MOST_JOBS]):
        yield _figure(one, "learned" if not number else f"learned-{number + 1}")


def _figure(one: Evaluated, name: str) -> Figure:
    records = _some(one.records)
    losses = _curves(records)
    steps = [float(record["step"]) for record in records]
    parts: list[Markup] = []
    if losses:
        said = "loss over steps"
        points = {
            name: [one for one in zip(steps, some, strict=True) if math.isfinite(one[1])]
            for name, some in losses.items()
        }
        parts.append(tag("h3", "Loss of each evaluation"))
        parts.append(
            both(lambda width: lines(points, width, said, below="step", beside="loss in nats"))
        )
        parts += [legend(list(losses))] if len(losses) > 1 else []
    tables, told, notes = [_loss_numbers(records, losses)], "", []
    for job, figure in _jobs(records):
        found = _learned(records, job, figure)
        if found is None:
            continue
        told = told or _message(job, found)
        parts += _map(records, job, found)
        tables.append(_learned_numbers(job, found))
        if len(found.documents) == MOST_DOCUMENTS:
            notes.append(f"{job}: a keyed sample of {MOST_DOCUMENTS:,} documents.")
    if len(records) < len(one.records):
        notes.append(f"{len(records)} of {len(one.records):,} checkpoints are shown.")
    first, last = one.records[0]["step"], one.records[-1]["step"]
    return Figure(
        name=name,
        title="What was learned when",
        message=told or f"{plural(len(one.records), 'evaluation')}, step {first:,} to {last:,}.",
        drawing=joined(parts),
        numbers=tuple(tables),
        notes=tuple(notes),
    )


def _some(records: Records) -> Records:
    """Records that fit into a chart: the first, the last, and some between them."""
    if len(records) <= MOST_STEPS:
        return records
    places = np.unique(np.linspace(0, len(records) - 1, MOST_STEPS).round().astype(int))
    return [records[place] for place in places.tolist()]


def _curves(records: Records) -> dict[str, list[float]]:
    """Every mean loss over steps, by the name of its evaluation."""
    found = [
        {name: value for name, value in flat(_plain(one)).items() if name.endswith("all.loss")}
        for one in records
    ]
    names = list(dict.fromkeys(name for one in found for name in one))[:SERIES]
    return {
        name.removesuffix(".all.loss"): [float(one.get(name, math.nan)) for one in found]
        for name in names
    }


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a record without what is by document or bin."""
    results: Mapping[str, Any] = record["results"]
    return {
        name: {"all": one["all"]}
        for name, one in results.items()
        if isinstance(one, Mapping) and isinstance(one.get("all"), Mapping)
    }


def _jobs(records: Records) -> list[tuple[str, str]]:
    """Evaluations with figures by document, and which figure is looked at."""
    found = []
    for job, answer in (records[-1]["results"] if records else {}).items():
        documents = documents_of(answer)
        one = next(iter(documents.values()), None)
        figure = next((f for f in FIGURES if isinstance(one, Mapping) and f in one), None)
        if figure is not None:
            found.append((job, figure))
    return found[:MOST_JOBS]


def _learned(records: Records, job: str, figure: str) -> Learned | None:
    names = sorted({name for one in records for name in documents_of(one["results"].get(job))})
    chosen = {names[place] for place in sampled(len(names), MOST_DOCUMENTS).tolist()}
    some = [
        {
            "step": one["step"],
            "results": {
                job: {
                    "documents": {
                        name: figures
                        for name, figures in documents_of(one["results"].get(job)).items()
                        if name in chosen
                    }
                }
            },
        }
        for one in records
    ]
    try:
        return learned(some, job, figure=figure, line=FIGURES[figure])
    except ConfigError:  # no document has this figure
        return None


def _message(job: str, found: Learned) -> str:
    known = [one for one in found.documents if one.step is not None]
    told = (
        f"{amount(len(known))} of {amount(len(found.documents), 'document')} of {job} reach "
        f"{found.figure} {exact(found.line)} by step {found.steps[-1]:,}"
    )
    if not known:
        return f"{told}."
    between = "" if known[0].step in found.steps else "about "
    return f"{told}, the first at {between}step {known[0].step:,.0f}."


def _wide(steps: Sequence[int]) -> list[int]:
    """The checkpoint that is nearest to each of many places along the steps.

    >>> _wide([0, 10, 100]).count(0) < _wide([0, 10, 100]).count(2)
    True
    """
    if len(steps) < 2 or steps[0] == steps[-1]:
        return list(range(len(steps)))
    places = np.linspace(steps[0], steps[-1], WIDE + 1)
    middles = (places[:-1] + places[1:]) / 2
    nearest = np.abs(np.asarray(steps, float)[None] - middles[:, None]).argmin(axis=1)
    found: list[int] = nearest.tolist()
    return found


def _map(records: Records, job: str, found: Learned) -> Iterator[Markup]:
    """Documents over checkpoints: those learned first at the top, those never learned below."""
    every = found.documents
    half = SHOWN // 2
    chosen = every if len(every) <= SHOWN else (*every[:half], *every[-half:])
    rows = []
    for one in chosen:
        values = [
            documents_of(record["results"].get(job))
            .get(one.document, {})
            .get(found.figure, math.nan)
            for record in records
        ]
        rows.append([_probability(float(value), found.figure) for value in values])
    # [documents, places]: a checkpoint has the places that are nearer to it than to others
    grid = np.array(rows)[:, _wide([int(record["step"]) for record in records])]
    names = [f"document {one.document}" for one in chosen]
    is_loss = found.figure == "loss"
    what = "mean probability of a token" if is_loss else "mean P(z)"
    top = 1.0 if is_loss else float(grid.max(initial=0.0)) or 1.0
    said = f"{what} of documents of {job} over checkpoints"
    ends = (float(records[0]["step"]), float(records[-1]["step"]))
    yield tag("h3", f"Documents of {job}, those learned first at the top")
    yield both(lambda width: heat(grid, width, said, x=ends, below="step", rows=names, top=top))
    yield heat_legend(f"{what}: 0", exact(top))


def _probability(value: float, figure: str) -> float:
    """From 0 to 1, and above 0 for what is known."""
    if math.isnan(value):
        return 0.0
    found = math.exp(-value) if figure == "loss" else value
    return min(1.0, max(1e-6, found))


def _loss_numbers(records: Records, losses: Mapping[str, Sequence[float]]) -> Numbers:
    rows = [
        (record["step"], *(one[place] for one in losses.values()))
        for place, record in enumerate(records)
    ]
    return Numbers.of(("step", *losses), rows, "mean loss in nats, by step")


def _learned_numbers(job: str, found: Learned) -> Numbers:
    rows = [(one.document, one.step, one.first, one.last, one.mean) for one in found.documents]
    head = ("document", "learned at step", "first", "last", "mean")
    return Numbers.of(head, rows, f"{job}: {found.figure} of documents, those learned first on top")
