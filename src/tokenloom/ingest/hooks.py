"""The user's own code in a build: `filter` and `transform`, named and versioned.

One idea: what decides the content of a store must be in its fingerprint. A hook goes in as its
name and a version: its `version` attribute if it has one, else a hash of its source text, so that
editing the function is noticed. A hook that another process can import travels as
``module:function``; any other (a lambda, a closure, a function of a script) keeps the build in
one process.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenloom.errors import ConfigError

__all__ = ["Hook", "import_reference", "resolve_hook"]


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
    """The hook behind an argument: a callable, or a ``module:function`` string."""
    if hook is None:
        return None
    function = import_reference(hook, path) if isinstance(hook, str) else hook
    if not callable(function):
        raise ConfigError(f"{path}: found {hook!r}, allowed is a function or 'module:function'.")
    module = getattr(function, "__module__", None) or "?"
    qualname = getattr(function, "__qualname__", type(function).__name__)
    reference = f"{module}:{qualname}"
    return Hook(
        function=function,
        name=reference,
        version=_version(function, path),
        reference=reference if _importable(function, module, qualname) else None,
    )


def import_reference(reference: str, path: str) -> Any:
    """The object that ``module:qualified.name`` names."""
    module_name, colon, qualname = reference.partition(":")
    if not colon or not module_name or not qualname:
        raise ConfigError(f"{path}: found {reference!r}, allowed is 'module:function'.")
    try:
        found: Any = importlib.import_module(module_name)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{path}: {reference!r} cannot be imported: {error}.") from error
    return found


def _importable(function: Any, module: str, qualname: str) -> bool:
    if module in ("?", "__main__") or "<" in qualname:
        return False
    try:
        return import_reference(f"{module}:{qualname}", "") is function
    except ConfigError:
        return False


def _version(function: Any, path: str) -> str:
    declared = getattr(function, "version", None)
    if declared is not None:
        return str(declared)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ConfigError(
            f"{path}: the source of {function!r} cannot be read, so a change to it would go "
            "unnoticed. Give it a `version` attribute."
        ) from error
    return "source-" + hashlib.sha256(source.encode()).hexdigest()[:16]
