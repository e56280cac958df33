"""A progress bar that appears only when someone is watching.

It is shown on request, or when standard error is a terminal, and is silent otherwise. tqdm is
imported only when a bar is drawn.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """Counts up to `total`; use as a context manager.

    Args:
        title: the label of the bar.
        total: the amount to reach, in `unit`; None if unknown.
        unit: "B" is shown with binary prefixes.
        show: True, False, or None for "if standard error is a terminal".
    """

    def __init__(
        self, title: str, *, total: int | None, unit: str = "B", show: bool | None = None
    ) -> None:
        self._bar: Any = None
        self._base = 0
        visible = sys.stderr.isatty() if show is None else show
        if visible:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                desc=title,
                unit=unit,
                unit_scale=True,
                unit_divisor=1024,
                dynamic_ncols=True,
                mininterval=0.2,
                leave=False,
            )

    def advance(self, amount: int) -> None:
        """Add `amount` to the progress."""
        if self._bar is not None:
            self._bar.update(amount)

    def reach(self, amount: int) -> None:
        """Set the progress to `amount`; a value below the current one changes nothing."""
        if self._bar is not None:
            self._bar.update(max(0, self._base + amount - self._bar.n))

    def start_at(self, amount: int) -> None:
        """Reach `amount`, and count what is reached from there on."""
        self._base = 0
        self.reach(amount)
        self._base = amount

    def count(self, documents: int, tokens: int, more: str = "") -> None:
        """Show how many documents and tokens there are, and `more`, after the bar."""
        if self._bar is not None:
            text = f"{documents:,} documents, {tokens:,} tokens{more}"
            self._bar.set_postfix_str(text, refresh=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
