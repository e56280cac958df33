"""`report_on`: a page about a run, from its warnings to its certificate; or about something else.

A report is a list of figures, each a pure function of the subject, between a head of
answers and a foot that says how it was made. A figure that does not apply is left out, one that
cannot be made says why, and none of them can stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.errors import ConfigError
from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.page.figure import Figure
from tokenloom.page.numbers import plural
from tokenloom.report.evaluations.evaluation_report import (
    evaluation_answers,
    evaluation_cautions,
    evaluation_figures,
    evaluation_report,
    known_evaluations,
)
from tokenloom.report.figures.audit import audit_report, certificate_cautions, certificate_figure
from tokenloom.report.figures.boundaries import boundary_figure
from tokenloom.report.figures.lengths import length_figure
from tokenloom.report.figures.loading import fed_answer, fed_cautions, loading_figure
from tokenloom.report.figures.lost_tokens import lost_answer, lost_cautions, lost_figure
from tokenloom.report.figures.mixture import mixture_figure, trained_answer, trained_cautions
from tokenloom.report.figures.packing_table import packing_figure
from tokenloom.report.figures.repeats import repeated_answer, repeated_cautions
from tokenloom.report.figures.resume_line import resume_figure
from tokenloom.report.figures.row_strips import row_figure
from tokenloom.report.figures.shuffle_map import shuffle_figure, shuffled_answer, shuffled_cautions
from tokenloom.report.figures.splice_maps import splice_figure
from tokenloom.report.report_file import Caution, Report
from tokenloom.report.store_report import store_report
from tokenloom.report.subject import Asked, RunSubject

QUESTIONS = (
    (trained_answer, trained_cautions),
    (repeated_answer, repeated_cautions),
    (lost_answer, lost_cautions),
    (shuffled_answer, shuffled_cautions),
    (fed_answer, fed_cautions),
)

FigureOf = Callable[[RunSubject], Figure | None]

# from top to bottom; evaluations and the certificate of an audit follow
FIGURES: tuple[FigureOf, ...] = (
    mixture_figure,
    row_figure,
    length_figure,
    lost_figure,
    packing_figure,
    shuffle_figure,
    splice_figure,
    boundary_figure,
    resume_figure,
    loading_figure,
)


BRANCHES = 8  # sources whose branches of the tree are shown


def report_on(target: Any, **settings: Any) -> Report:
    """A report on a run, a store, a certificate, or answers of evaluations.

    Args:
        target: a run; or a store; or a `tokenloom.inspect.Certificate`; or what the functions of
            `tokenloom.evaluate` give: one answer, or a mapping of them by name.
        settings: as `tokenloom.report.subject.Asked` has them, such as ``batch_size=64, ranks=8``;
            for anything but a run only ``name`` and ``command``.

    Raises:
        ConfigError: the target is something else, or a setting does not apply to it.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     report = report_on(store.windows(2).shuffle(), batch_size=2)
    ...     other = report_on(store)
    >>> report.answers[0].sentence
    '8 tokens in 4 rows of 2, 2 steps, from 1 source.'
    >>> other.answers[2].sentence
    'No two documents have the same tokens.'
    """
    if isinstance(target, Dataset):
        return run_report(target, Asked(**settings))
    odd = sorted(settings.keys() - {"name", "command"})
    if odd:
        raise ConfigError(
            f"{odd[0]}: found with {type(target).__name__}, allowed: only with a run. Leave it out."
        )
    if isinstance(target, Store):
        return store_report(target, **settings)
    if isinstance(target, Certificate):
        return audit_report(target, **settings)
    if not isinstance(target, Mapping) or {"by", "histogram"} & target.keys():  # one answer
        target = {settings.get("name", "evaluation"): target}
    return evaluation_report(target, **settings)


def run_report(run: Dataset, asked: Asked) -> Report:
    """The report on a run; its audit and its evaluations come last."""
    subject = RunSubject(run, asked)
    evaluations = known_evaluations(asked.evaluations)
    cautions: list[Caution] = []
    if asked.certificate is not None:
        own = run.fingerprint, run.render_fingerprint
        cautions += certificate_cautions(asked.certificate, own)
    for answer, cautions_of in QUESTIONS:
        asked.tell(answer.__name__.replace("_", " "))
        cautions += cautions_of(subject)
    cautions += evaluation_cautions(evaluations)
    cautions.sort(key=lambda one: -one.gravity)  # stable: the others stay as they are
    return Report(
        title=asked.name,
        lead=_lead(subject),
        cautions=tuple(cautions),
        answers=(
            *(answer(subject) for answer, _ in QUESTIONS),
            *evaluation_answers(evaluations),
        ),
        tree=some_branches(repr(run)),
        figures=(
            *_drawn(subject, FIGURES),
            *evaluation_figures(evaluations),
            *_drawn(subject, (certificate_figure,)),
        ),
        command=asked.command,
    )


def some_branches(tree: str, most: int = BRANCHES) -> str:
    r"""A tree with its first branches; those that are left out are counted.

    >>> print(some_branches("a\n├─ seed 1\n├─ b\n│  └─ x\n├─ c\n│  └─ y\n└─ d\n   └─ z", 1))
    a
    ├─ seed 1
    ├─ b
    │  └─ x
    └─ … and 2 more
    """
    lines = tree.splitlines()
    has_more = [line[:1] in "│ " for line in [*lines[1:], "."]]  # a line that belongs to it follows
    first = [place for place, line in enumerate(lines) if line[:1] in "├└" and has_more[place]]
    if len(first) <= most:
        return tree
    return "\n".join([*lines[: first[most]], f"└─ … and {len(first) - most:,} more"])


def _drawn(subject: RunSubject, figures: tuple[FigureOf, ...]) -> Iterator[Figure]:
    """Those of the figures that apply."""
    for figure in figures:
        subject.asked.tell(figure.__name__.replace("_", " "))
        made = figure(subject)
        if made is not None:
            yield made


def _lead(subject: RunSubject) -> str:
    n, each = subject.run.run.n, f"of {plural(subject.run.seq_len, 'token')}"
    rows = f"endless, rows {each}" if n is None else f"{plural(n, 'row')} {each}"
    return f"{rows} · fingerprint {subject.run.fingerprint[:16]}"
