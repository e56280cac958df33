"""Headings, tables and ticks: lines of at most 88 characters, the same in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DemoFailed", "explain", "heading", "histogram", "megabytes", "prove", "say", "table"]

WIDTH = 88
INDENT = "   "
BAR = 40  # characters of the longest bar


class DemoFailed(Exception):
    """The demo cannot continue: something is missing, or a promise is broken."""


def heading(text: str) -> None:
    """The first line of a step."""
    print(f"\n── {text} {'─' * (WIDTH - len(text) - 4)}", flush=True)


def say(text: str = "") -> None:
    """One line of a step, not wrapped."""
    print(f"{INDENT}{text}".rstrip(), flush=True)


def explain(text: str) -> None:
    """A paragraph below a line; it is wrapped, but paths stay whole."""
    for line in textwrap.wrap(
        text,
        WIDTH - 8,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        say(f"    {line}")


def prove(text: str, holds: bool) -> None:
    """A promise followed by a tick; the demo ends if it is broken."""
    if not holds:
        raise DemoFailed(f"a promise is broken: {text}")
    say(f"{text} ✓")


def table(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """A table with one column per source and one row per name."""
    width = max(len(name) for name in names)
    widths = {head: max(map(len, (head, *cells))) for head, cells in columns.items()}
    say(" " * width + "".join(f"  {head:>{widths[head]}}" for head in columns))
    for i, name in enumerate(names):
        cells = (f"  {columns[head][i]:>{widths[head]}}" for head in columns)
        say(f"{name:<{width}}" + "".join(cells))


def megabytes(count: int) -> str:
    """A number of bytes in megabytes.

    >>> megabytes(12_345_678)
    '12.3 MB'
    """
    return f"{count / 1e6:.1f} MB"


def histogram(lengths: NDArray[np.int64]) -> Iterator[str]:
    """One bar per doubling of length: documents, and their share of all tokens.

    >>> [line.split()[:3] for line in histogram(np.array([2, 3, 3, 8]))]
    [['2-3', '3', '50%'], ['4-7', '0', '0%'], ['8-15', '1', '50%']]
    """
    edges = 2 ** np.arange(int(np.log2(max(1, lengths.min()))), int(np.log2(lengths.max())) + 2)
    documents, _ = np.histogram(lengths, edges)
    tokens, _ = np.histogram(lengths, edges, weights=lengths)
    for low, high, count, held in zip(edges, edges[1:], documents, tokens, strict=False):
        bar = "█" * int(np.ceil(count / documents.max() * BAR))
        stretch, share = f"{low:,}-{high - 1:,}", held / tokens.sum()
        yield f"{stretch:>15} {count:>9,} {share:>5.0%} {bar}".rstrip()
