"""The code beside a figure: lines that print its numbers again, as they are copied.

One idea: whoever copies them has the same run file, store or answers, and public names only. Where
one public call gives the numbers, it is that call; where several have to be put together, it is the
table of the figure itself, made again by `tokenloom.report.report_on`.
"""

from __future__ import annotations

import itertools
import json
import shlex

from tokenloom.api.store import Store

__all__ = ["asked_again", "loaded_run", "opened_store", "table_again"]

REPORT = "from tokenloom.report import report_on"


def table_again(figure: str, call: str) -> str:
    r"""Lines that print the tables of a figure.

    Args:
        figure: its name.
        call: the call that makes the report.

    >>> print(table_again("lengths", "report_on(run)"))
    for figure in report_on(run).figures:
        if figure.name == "lengths":
            for table in figure.numbers:
                print(table.caption, table.head, *table.rows, sep="\n")
    """
    return (
        f"for figure in {call}.figures:\n"
        f'    if figure.name == "{figure}":\n'
        "        for table in figure.numbers:\n"
        '            print(table.caption, table.head, *table.rows, sep="\\n")'
    )


def loaded_run(path: str, code: str, *, overrides: str = "", reported: bool = False) -> str:
    """Lines about a run of a run file; of any other, whoever made it has it.

    Args:
        path: of the run file; empty if there is none.
        code: what is asked of `run`.
        overrides: the command that was typed, whose ``--set`` changed the run.
        reported: whether the code calls `report_on`.

    >>> print(loaded_run("a.yaml", "print(run)", overrides="tokenloom report a.yaml --set seed=7"))
    import tokenloom as tl
    <BLANKLINE>
    run = tl.load("a.yaml", overrides=["seed=7"])
    print(run)
    """
    words = shlex.split(overrides)
    said = [word for before, word in itertools.pairwise(words) if before == "--set"]
    given = f", overrides={json.dumps(said, ensure_ascii=False)}" if said else ""
    opened = f"run = tl.load({_text(path)}{given})" if path else "# run: as you made it"
    return f"{_imports(reported)}\n\n{opened}\n{code}"


def opened_store(store: Store, code: str, *, reported: bool = False) -> str:
    """Lines about a store; what was said when it was opened is said again."""
    told = {k: v for k, v in store.reader.opened_as.get("foreign", {}).items() if v is not None}
    given = "".join(f", {name}={value!r}" for name, value in told.items())
    opened = f"store = tl.open({_text(str(store.path))}{given})"
    return f"{_imports(reported)}\n\n{opened}\n{code}"


def asked_again(figure: str, command: str, what: str) -> str:
    """What prints the tables of a figure about something that is no run and no store.

    Args:
        figure: its name.
        command: the command that made the page; empty if none did.
        what: what the answers are called, such as "answers".

    >>> asked_again("pz", "tokenloom report results -o report.html", "answers")
    'tokenloom report results -o report.html --json'
    """
    if command:
        return f"{command} --json"
    again = table_again(figure, f"report_on({what})")
    return f"{REPORT}\n\n# {what}: as you have it\n{again}"


def _imports(reported: bool) -> str:
    return f"import tokenloom as tl\n{REPORT}" if reported else "import tokenloom as tl"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
