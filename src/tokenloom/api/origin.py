"""The file that a run was loaded from: what it says beside the run itself.

One idea: a run is what is trained when, and the same file also says how it is loaded and what is
evaluated. Those settings travel with the run, through ``.seed(…)`` and ``.take(…)``, so that
``tokenloom.Loader(run)``, or an adapter, needs no other argument; they are no part of its
fingerprint.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

log = logging.getLogger("tokenloom")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RunFile:
    """What a run file says beside the run.

    Attributes:
        path: path of the file; empty for a mapping.
        dialect: how it was read, such as "run file" or "Levanter's data section".
        loader: arguments of `tokenloom.Loader`, such as ``{"batch_size": 64}``.
        evaluate: evaluation sets by name, each a `tokenloom.Dataset`.
        unused: keys that have no meaning for the run, with what becomes of them.

    >>> RunFile(path="run.yaml", dialect="run file", loader={"batch_size": 64}).loader
    {'batch_size': 64}
    """

    path: str
    dialect: str
    loader: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def settings_of_file(
    what: str,
    *,
    run: str = "dataset",
    further: Iterable[str] = (),
    own: Iterable[str] = (),
    instead: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]:
    """Make a function take the arguments that are left out from the file of its run.

    The loader and every adapter have it, so all of them read a run file alike: a setting of its
    `loader` section that the function has is taken, and one that it does not have is told.

    Args:
        what: the name of the function.
        run: the name of its argument that is the run.
        further: arguments that it hands on, as ``**options``.
        own: arguments that mean something else than those of `tokenloom.Loader`.
        instead: what decides in place of a setting that is not taken.

    >>> @settings_of_file("feed")
    ... def feed(dataset, batch_size=None, end="drop"):
    ...     return batch_size, end
    >>> class Run:
    ...     file = RunFile(path="a.yaml", dialect="run file", loader={"batch_size": 64})
    >>> feed(Run()), feed(Run(), 8), feed(Run(), end="pad")
    ((64, 'drop'), (8, 'drop'), (64, 'pad'))
    """

    def decorate(function: Function) -> Function:
        known = list(inspect.signature(function).parameters)
        taken = {*known, *further} - set(own)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            named = {**dict(zip(known, args, strict=False)), **given}
            file = getattr(named.get(run), "file", None)
            # the loader inside an adapter has the adapter's settings
            if isinstance(file, RunFile) and not getattr(args and args[0], "_anywhere", False):
                left = {name: one for name, one in file.loader.items() if name not in named}
                given |= {name: one for name, one in left.items() if name in taken}
                for name in [name for name in left if name not in taken]:
                    _tell(what, file, name, {**INSTEAD, **(instead or {})})
            return function(*args, **given)

        return cast(Function, call)

    return decorate


INSTEAD = {
    "fields": "the contract names the arrays, and fields=[…] adds to them",
    "dtype": "the contract has its own",
}


def _tell(what: str, file: RunFile, name: str, instead: Mapping[str, str]) -> None:
    place = f"{file.path}: " if file.path else ""
    found = f"{place}loader.{name}: found {file.loader[name]!r:.60}"
    why = instead.get(name, "there is no such setting")
    log.warning("%s: %s, which is not used here: %s.", what, found, why)
