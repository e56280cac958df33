"""Sources of a stream, read row by row, whatever they are: how each starts, continues and resumes.

One idea: the position in a source is the number of rows taken, so every source has one. A source
that can reach a position without reading all rows before it is asked to do so.

=========================================  ===================  ==========  ======================
a source                                   after row n by       can start   its state
                                                                again
=========================================  ===================  ==========  ======================
with `state_dict` and `load_state_dict`    loading its state    if not an   from `state_dict`
                                                                iterator
a sequence (`[i]` and a length)            index n              yes         none
a callable                                 calling it with n    yes         none
an iterable with `skip(n)`                 `skip(n)`            yes         none
another iterable                           reading n rows       yes         none
an iterator, such as a generator           reading n rows       no          none
=========================================  ===================  ==========  ======================

`set_epoch`, if a source has it, is called with the number of every later pass. Nothing is read
ahead.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenloom.errors import ConfigError, StateError, plural

ENDLESS = (itertools.count, itertools.cycle)


class Feed:
    """One source, and the position in it.

    Args:
        name: name of the source, for messages.
        source: any of the kinds above.
        again: whether it will have to start again.
    """

    def __init__(self, name: str, source: Any, *, again: bool = False) -> None:
        _check_kind(name, source)
        self.name, self._source = name, source
        knows = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self.stateful = knows and not isinstance(source, type)
        self.once = isinstance(source, Iterator)
        if again and self.once:
            raise ConfigError(
                f"sources.{name}: found {_kind(source)}, an iterator, which can be read only once. "
                "Allowed if sources are repeated: lists and other iterables, or a callable that "
                "takes the number of rows to skip: lambda skip: …"
            )
        self.row = 0
        self._iterator: Iterator[Any] | None = None
        self._stands = 0  # the row at which iter(source) would start
        self._loaded: Any = None  # the state last loaded; a source may not return it until read
        # after load_state_dict an iterable may start there every time, so keep the first state
        self._first = self.state() if again and self.stateful else None

    @property
    def total(self) -> int | None:
        """The rows of a pass, if the source has a length."""
        if not self.finite or not hasattr(self._source, "__len__"):
            return None
        try:
            return len(self._source)
        except TypeError:  # a wrapper around an object without a length
            return None

    @property
    def finite(self) -> bool:
        """False if the source reports that it never ends."""
        says = getattr(self._source, "is_finite", True), getattr(self._source, "is_infinite", False)
        return not (says[0] is False or says[1] is True or isinstance(self._source, ENDLESS))

    def take(self, end: Any) -> Any:
        """The next row, or `end`."""
        if self._iterator is None:
            self._iterator = self._open()
        value = next(self._iterator, end)
        if value is not end:
            self.row += 1
            self._stands += self.once
        return value

    def begin(self, epoch: int) -> None:
        """Move to the first row of another pass."""
        self.seek(0, epoch, self._first)

    # -- places ----------------------------------------------------------------------------

    def state(self) -> Any:
        """The state of the source itself, as JSON; None if it has none."""
        unread = self._iterator is None
        if not self.stateful or (unread and self.row != self._stands):
            return None  # the row alone says where to resume
        if unread and self._loaded is not None:
            return self._loaded
        found = self._source.state_dict()
        try:
            return json.loads(json.dumps(found, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise StateError(
                f"sources.{self.name}: the state_dict() of {_kind(self._source)} is not JSON "
                f"({error}). Give a callable that takes the number of rows to skip."
            ) from None

    def problem(self, row: int, state: Any) -> str | None:
        """Why the source cannot resume after `row` rows; None if no reason is known."""
        if state is not None and not self.stateful:
            return (
                f"the state holds one of the source itself, but {_kind(self._source)} has no "
                "load_state_dict. Give the source that it was saved with"
            )
        if self.once and state is None and row < self._stands:
            return (
                f"it must resume after {plural(row, 'row')}, but {self._stands:,} of this iterator "
                "were already read. Make it again"
            )
        if self.total is not None and row > self.total:
            return self._too_short(row, self.total)
        return None

    def seek(self, row: int, epoch: int = 0, state: Any = None) -> None:
        """Move to after `row` rows of a pass; `state` is what `state()` returned there."""
        self.row, self._loaded, self._iterator = row, state, None
        if epoch and hasattr(self._source, "set_epoch"):
            self._source.set_epoch(epoch)
        if state is not None:
            self._source.load_state_dict(copy.deepcopy(state))  # the source may write into it
            self._stands = row
        elif not self.once:
            self._stands = 0

    def _open(self) -> Iterator[Any]:
        source, row = self._source, self.row
        if self.once or self.stateful:
            return self._read_through(iter(source), row - self._stands)
        if row and self.total is not None and row >= self.total:
            if row > self.total:
                raise StateError(f"sources.{self.name}: {self._too_short(row, self.total)}.")
            return iter(())
        if _indexed(source):
            rows = itertools.count(row) if self.total is None else range(row, self.total)
            return (source[i] for i in rows)
        if not isinstance(source, Iterable):
            return self._called(source, row)
        skip = getattr(source, "skip", None)
        if row and callable(skip):
            return iter(skip(row))
        return self._read_through(iter(source), row)

    def _read_through(self, rows: Iterator[Any], count: int) -> Iterator[Any]:
        """The iterator, after reading `count` rows."""
        read = sum(1 for _ in itertools.islice(rows, count))
        self._stands += read * self.once
        if read < count:
            short = self._too_short(self.row, self.row - count + read)
            raise StateError(f"sources.{self.name}: {short}.")
        return rows

    def _called(self, source: Callable[[int], Any], row: int) -> Iterator[Any]:
        rows = source(row)
        if not isinstance(rows, Iterable):
            raise ConfigError(
                f"sources.{self.name}: called with {row}, it gave {_kind(rows)}, allowed: an "
                "iterable of the rows from there on."
            )
        return iter(rows)

    def _too_short(self, row: int, there: int) -> str:
        return (
            f"it must resume after {plural(row, 'row')}, but there {_are(there)}: it is not the "
            "source that the state or the offsets were saved with"
        )


def _are(count: int) -> str:
    return f"{'is' if count == 1 else 'are'} only {count:,}"


def _indexed(source: Any) -> bool:
    """Whether rows are best read by index; the indices of an iterable may mean something else."""
    if not (hasattr(type(source), "__getitem__") and hasattr(type(source), "__len__")):
        return False
    return isinstance(source, Sequence) or not isinstance(source, Iterable)


def _kind(source: Any) -> str:
    return type(source).__name__


def _check_kind(name: str, source: Any) -> None:
    allowed = "allowed: an iterable of samples, or a callable that takes the number of rows to skip"
    if isinstance(source, (str, bytes, Mapping)):
        raise ConfigError(f"sources.{name}: found {_kind(source)}, {allowed}.")
    if isinstance(source, Iterable) or _indexed(source):
        return
    if not callable(source):
        raise ConfigError(f"sources.{name}: found {_kind(source)}, {allowed}.")
    try:
        inspect.signature(source).bind(0)
    except TypeError:
        raise ConfigError(
            f"sources.{name}: found {_kind(source)} that cannot be called with one number, "
            f"{allowed}: lambda skip: …"
        ) from None
    except ValueError:  # it has no signature
        return
