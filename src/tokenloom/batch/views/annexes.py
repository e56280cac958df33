"""Lazy imports of `inspect` and `report`, which import this package.

A run, a batch or a store that is asked for a verdict or a view passes the question on here.

========================================  =======
run.audit(), run.simulate()               inspect
run.view(), batch.view(), store.view()    report
a batch at the end of a notebook's cell   report
========================================  =======
"""

from __future__ import annotations

from types import ModuleType


def annex(name: str) -> ModuleType:
    """A room that answers questions about a run, a batch or a store.

    Args:
        name: "inspect" judges, "report" shows.

    >>> annex("inspect").__name__, annex("report").__name__
    ('tokenloom.inspect', 'tokenloom.report')
    """
    # the only imports inside a function: an annex imports us
    if name == "inspect":
        from tokenloom import inspect

        return inspect
    from tokenloom import report

    return report
