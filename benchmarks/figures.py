"""Published figures beside ours: the tables of docs/published.md, and how they get into that page.

One idea: the page is written by hand except for its tables, each of which is between two comments
with its name. A table is made again by the command that is printed below it, so whoever doubts a
figure runs one line. What is exact is compared with the page by a test; times are not.

A *figure* is one published value and what this code gives. Where they differ there is a reason: a
letter, which the page explains under "What could not be reproduced, and why".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.clock import columns

__all__ = ["Figure", "Section", "block", "code", "printed", "replaced", "shown"]


def code(values: Iterable[object]) -> str:
    """Values as code, which no page turns dots of into an ellipsis.

    >>> code(["12...", ".12.."])
    '`12...` `.12..`'
    """
    return " ".join(f"`{value}`" for value in values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One published value and ours.

    Attributes:
        what: what the value is of.
        published: the value as it was published; "" if ours has no counterpart.
        ours: the value that this code gives, in the same form.
        test: the test that asserts it, without its file; "" if there is none.
        why: the letter of the reason, if the two differ.
        more: values of further columns of its table.
    """

    what: str
    published: str
    ours: str
    test: str = ""
    why: str = ""
    more: tuple[str, ...] = ()

    @property
    def same(self) -> str:
        """Whether the two values are equal, or the reason why not; "" without a published one.

        >>> Figure(what="rows", published="13", ours="13").same
        'yes'
        >>> Figure(what="pairs", published="6", ours="13", why="a").same
        'no (a)'
        """
        if not self.published:
            return ""
        if (self.published == self.ours) == bool(self.why):
            raise ValueError(
                f"{self.what}: found {self.ours!r} for {self.published!r} with the reason "
                f"{self.why!r}, allowed: a reason if and only if they differ."
            )
        return f"no ({self.why})" if self.why else "yes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One table of the page.

    Attributes:
        name: its name in the page and on the command line.
        lines: head and rows, all of one length.
        exact: nothing in it is a time.
        needs: a file that it is made from, as the option that names it.
        notes: sentences below it.
    """

    name: str
    lines: tuple[tuple[str, ...], ...]
    exact: bool = True
    needs: str = ""
    notes: tuple[str, ...] = field(default=())


def shown(
    name: str,
    figures: Sequence[Figure],
    *,
    heads: Sequence[str] = ("published", "ours"),
    needs: str = "",
    notes: Sequence[str] = (),
) -> Section:
    """A table of figures; `heads` are the names of the columns of values.

    Where one test asserts all of them, a sentence names it, and the table has no column for it.

    >>> a = Figure(what="rows", published="13", ours="13", test="test_rows")
    >>> b = Figure(what="pairs", published="6", ours="13", why="a", test="test_pairs")
    >>> shown("toy", [a, b]).lines[1:]
    (('rows', '13', '13', 'yes', '`test_rows`'), ('pairs', '6', '13', 'no (a)', '`test_pairs`'))
    >>> shown("toy", [a]).lines[1:], shown("toy", [a]).notes
    ((('rows', '13', '13', 'yes'),), ('Asserted by `test_rows`.',))
    """
    lines = [("what", *heads, "same?", "asserted by")]
    for one in figures:
        test = f"`{one.test}`" if one.test else ""
        lines.append((one.what, one.published, one.ours, *one.more, one.same, test))
    tests = {line[-1] for line in lines[1:]}
    if len(tests) == 1:
        lines = [line[:-1] for line in lines]
        notes = [*notes, *(f"Asserted by {test}." for test in tests if test)]
    return Section(name=name, lines=tuple(lines), needs=needs, notes=tuple(notes))


def block(section: Section) -> str:
    """The section as Markdown between its two comments, as the page holds it."""
    rule = "|" + "---|" * len(section.lines[0])
    head, *rows = (f"| {' | '.join(line)} |" for line in section.lines)
    body = "\n\n".join(["\n".join([head, rule, *rows]), *below(section)])
    return f"<!-- {section.name} -->\n\n{body}\n\n<!-- end of {section.name} -->"


def printed(section: Section) -> str:
    """The section as Markdown for a terminal, in columns of one width."""
    return "\n\n".join([f"## {section.name}", columns(section.lines), *below(section)])


def below(section: Section) -> list[str]:
    """What is said below a table: its notes, and the command that makes it again."""
    option = f" {section.needs}" if section.needs else ""
    return [*section.notes, f"`python -m benchmarks published {section.name}{option}`"]


def replaced(page: str, sections: Sequence[Section]) -> str:
    """The page with these sections as they are now.

    >>> made = Section(name="toy", lines=(("a",), ("1",)))
    >>> print(replaced("x <!-- toy --> old <!-- end of toy --> y", [made]))
    x <!-- toy -->
    <BLANKLINE>
    | a |
    |---|
    | 1 |
    <BLANKLINE>
    `python -m benchmarks published toy`
    <BLANKLINE>
    <!-- end of toy --> y
    """
    for section in sections:
        place = rf"<!-- {section.name} -->.*?<!-- end of {section.name} -->"
        found = re.findall(place, page, re.DOTALL)
        if len(found) != 1:
            raise ValueError(
                f"<!-- {section.name} -->: found {len(found)} times in the page, allowed: once, "
                f"with <!-- end of {section.name} --> after it."
            )
        page = page.replace(found[0], block(section))
    return page
