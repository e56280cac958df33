"""Look at the run: a report to open, and an explorer to start."""

from __future__ import annotations

import tokenloom as tl
from examples.demo.asking import BATCH
from examples.demo.printing import explain, prove, say
from examples.demo.world import World
from tokenloom.inspect import Certificate
from tokenloom.report import report_on

__all__ = ["show_the_run"]


def show_the_run(world: World) -> World:
    """The step: a report on the run that was asked and audited, with its certificate."""
    run = tl.load(world.out / "run.yaml")
    audited = Certificate.read((world.out / "certificate.json").read_text())
    report = report_on(run, batch_size=BATCH, ranks=2, certificate=audited, name="demo: code")
    path = world.out / "report.html"
    size = report.save(path)
    for one in report.answers:
        say(one.question)
        explain(one.sentence)
    prove(
        "the report is one file without a network, and counts the tokens that `simulate` counts",
        "://" not in report.html
        and report.answers[0].numbers["tokens"] == run.simulate(batch_size=BATCH, ranks=2).tokens,
    )
    say(f"{path}  ({size:,} bytes; open it in a browser)")
    return world
