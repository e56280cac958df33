"""Finds the chat template that belongs to a tokenizer, and the names it may use.

One idea: a template travels with a tokenizer in one of three ways, and transformers reads them in
this order: ``chat_template.jinja`` beside tokenizer.json (and ``additional_chat_templates/*.jinja``
for further ones), ``chat_template`` in tokenizer_config.json, or the attribute of a loaded object.
It may be one text, or several by name; "default" is used, and "tool_use" for records with tools.
Files are read, nothing is fetched, nothing is run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tokenloom.errors import ConfigError
from tokenloom.tokenizer.beside import cached_file, read_settings

__all__ = ["given_template", "templates_of"]

NAMES: Final = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)

Templates = dict[str, str]


def given_template(given: Any) -> Templates:
    """The template that the user gave: its text, or the path of a file with it.

    >>> given_template("{{ messages }}")
    {'default': '{{ messages }}'}
    """
    if isinstance(given, str) and ("{" in given or "\n" in given):
        return {"default": given}
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"chat_template: found {type(given).__name__}, allowed: a template as text, or the "
            "path of a .jinja file."
        )
    path = Path(given).expanduser()
    try:
        return {"default": path.read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(
            f"chat_template: {str(given)!r} is not a file with a template ({error}). Give the path "
            "of a .jinja file, or the template itself."
        ) from None


def templates_of(tokenizer: Any) -> tuple[Templates, dict[str, str]]:
    """The templates of a tokenizer by name, and the texts of its special tokens by theirs.

    Both are empty if the tokenizer has none: a .model, "bytes", an object of another library.
    """
    if isinstance(tokenizer, str | os.PathLike):
        folder = _folder(os.fspath(tokenizer))
        return ({}, {}) if folder is None else (_templates_in(folder), _tokens_in(folder))
    tokens = getattr(tokenizer, "special_tokens_map", None)
    named = dict(tokens) if isinstance(tokens, Mapping) else {}
    return _by_name(getattr(tokenizer, "chat_template", None)), _texts(named)


def _folder(name: str) -> Path | None:
    """Where the files of a tokenizer are: its directory, or a snapshot in the local cache."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        return path.parent if path.name == "tokenizer.json" else None
    for file in ("tokenizer.json", "tokenizer_config.json"):
        there = cached_file(name, file)
        if there is not None:
            return there.parent
    return None


def _templates_in(folder: Path) -> Templates:
    found = _by_name(_config(folder).get("chat_template"))
    files = {"default": folder / "chat_template.jinja"}
    more = folder / "additional_chat_templates"
    files |= {path.stem: path for path in sorted(more.glob("*.jinja"))} if more.is_dir() else {}
    texts = {
        name: path.read_text(encoding="utf-8") for name, path in files.items() if path.is_file()
    }
    return texts or found


def _tokens_in(folder: Path) -> dict[str, str]:
    return _texts(_config(folder))


def _config(folder: Path) -> dict[str, Any]:
    return read_settings(folder / "tokenizer_config.json")


def _texts(named: Mapping[str, Any]) -> dict[str, str]:
    contents = {
        key: value.get("content") if isinstance(value, Mapping) else value
        for key, value in named.items()
        if key in NAMES
    }
    return {key: str(value) for key, value in contents.items() if value is not None}


def _by_name(given: Any) -> Templates:
    if isinstance(given, str):
        return {"default": given}
    if isinstance(given, Mapping):
        return {str(name): str(text) for name, text in given.items()}
    if isinstance(given, list):  # as tokenizer_config.json has them
        return {str(one["name"]): str(one["template"]) for one in given}
    return {}
