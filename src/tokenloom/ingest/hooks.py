"""The user's own code in a build: `filter` and `transform`, named and versioned.

One idea: what decides the content of a store must be in its fingerprint. A hook goes in as its
name and a version: its `version` attribute if it has one, else a hash of its source text, so that
editing the function is noticed. A hook that another process can import travels as
``module:function``; any other (a lambda, a closure, a function of a script) keeps the build in
one process.
"""

from __future__ import annotations

import hashlib
import inspect
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import import_reference, reference_of
from tokenloom.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """A function with an identity.

    Attributes:
        function: what to call with each record.
        name: module and qualified name.
        version: what distinguishes this from an earlier state of the same function.
        reference: ``module:function`` if another process can import it, else None.
    """

    function: Callable[[dict[str, Any]], Any]
    name: str
    version: str
    reference: str | None

    def describe(self) -> dict[str, str]:
        """What goes into the fingerprint."""
        return {"name": self.name, "version": self.version}


def resolve_hook(hook: Callable[[dict[str, Any]], Any] | str | None, path: str) -> Hook | None:
    """The hook that an argument names: a callable, or a ``module:function`` string."""
    if hook is None:
        return None
    try:
        function = import_reference(hook) if isinstance(hook, str) else hook
    except ImportError as error:
        raise ConfigError(
            f"{path}: found {hook!r}, which cannot be imported ({error}). Give a function, or "
            "'module:function'."
        ) from error
    if not callable(function):
        raise ConfigError(f"{path}: found {hook!r}, allowed: a function or 'module:function'.")
    module = getattr(function, "__module__", None) or "?"
    qualname = getattr(function, "__qualname__", type(function).__name__)
    return Hook(
        function=function,
        name=f"{module}:{qualname}",
        version=_version(function, path),
        reference=reference_of(function),
    )


def _version(function: Any, path: str) -> str:
    declared = getattr(function, "version", None)
    if declared is not None:
        return str(declared)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError, SyntaxError, tokenize.TokenError) as error:
        raise ConfigError(
            f"{path}: the source of {function!r} cannot be read, so a change to it would go "
            "unnoticed. Give it a `version` attribute."
        ) from error
    return "source-" + hashlib.sha256(source.encode()).hexdigest()[:16]
