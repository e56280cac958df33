"""Takes a run, a store, an audit or an evaluation → gives a page about it that people open first.

- `report_on` makes a `Report`: warnings, five answers, and figures with their numbers and code.
- `tokenloom report run.yaml -o report.html` writes it.
- `view_run`, `view_batch` and `view_store` are its pieces in a notebook: ``run.view()``;
  `show_batch` is what a notebook shows of a batch by itself.
"""

from tokenloom.report.assembled import report_on
from tokenloom.report.notebook import show_batch, view_batch, view_run, view_store
from tokenloom.report.report_file import Answer, Caution, Report

__all__ = [
    "Answer",
    "Caution",
    "Report",
    "report_on",
    "show_batch",
    "view_batch",
    "view_run",
    "view_store",
]
