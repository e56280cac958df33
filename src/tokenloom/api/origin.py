"""The file that a run was loaded from: what it says beside the run itself.

One idea: a run is what is trained when, and the same file also says how it is loaded and what is
evaluated. Those settings travel with the run, through ``.seed(…)`` and ``.take(…)``, so that
``tokenloom.Loader(run)`` needs no other argument; they are no part of its fingerprint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

__all__ = ["RunFile", "settings_of_file"]

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


def settings_of_file(*positional: str) -> Callable[[Function], Function]:
    """Make a constructor take arguments that are left out from the file of its dataset.

    Args:
        positional: names of the arguments that may follow the dataset without a keyword.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(self: Any, dataset: Any, *args: Any, **given: Any) -> None:
            file = getattr(dataset, "file", None)
            # the loader of an adapter has the adapter's settings
            if isinstance(file, RunFile) and not getattr(self, "_anywhere", False):
                named = {*given, *positional[: len(args)]}
                given |= {name: one for name, one in file.loader.items() if name not in named}
            function(self, dataset, *args, **given)

        return cast(Function, call)

    return decorate
