"""From the first record and the arguments of `build` to what is done to every conversation.

One idea: nothing about a conversation is decided while records are encoded. Which keys they have,
the template, the date, what is trained on and in which column it is kept are decided once, from the
first record, told in the log, and part of the build's fingerprint.

A template travels with a tokenizer in one of three ways, and transformers reads them in this
order: ``chat_template.jinja`` beside tokenizer.json (and ``additional_chat_templates/*.jinja`` for
further ones), ``chat_template`` in tokenizer_config.json, or the attribute of a loaded object. It
may be one text, or several by name; "default" is used, and "tool_use" for records with tools. Files
are read, nothing is fetched, nothing is run.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenloom.arguments import one_of, wrong
from tokenloom.errors import ConfigError, TokenizerError
from tokenloom.store import format as fmt
from tokenloom.tokenizer.chat.conversation import KEYS, ChatJob
from tokenloom.tokenizer.chat.template import ChatTemplate
from tokenloom.tokenizer.decoders import token_strings
from tokenloom.tokenizer.find import cached_file, read_settings
from tokenloom.tokenizer.spec import TokenizerSpec

log = logging.getLogger("tokenloom")

COLUMNS: Final = ("loss_mask", "loss_weights")

TRAIN_ON: Final = ("assistant", "last", "completion", "all")

TOKEN_NAMES: Final = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)

Templates = dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatOptions:
    """The settings of `build` for conversations; its docstring explains each."""

    chat: bool | None
    chat_template: Any
    train_on: str | None
    template_args: Mapping[str, Any] | None
    tokenizer: Any
    text_key: str
    ids_key: str | None
    parse_special: bool
    add_bos: bool | None
    add_eos: bool | None
    columns: Mapping[str, str] | Sequence[str] | None
    limit: int

    def __post_init__(self) -> None:
        one_of("chat", self.chat, (None, True, False))
        one_of("train_on", self.train_on, (None, *TRAIN_ON))
        if not isinstance(self.chat_template, str | os.PathLike | None):
            raise wrong("chat_template", self.chat_template, "a template as text, or a path")
        if self.template_args is not None and not isinstance(self.template_args, Mapping):
            raise wrong("template_args", self.template_args, "names and values for the template")
        if self.chat is False and self.asked:
            raise ConfigError(
                f"chat: found False beside {self.asked[0]}, which is about conversations. Leave "
                "one of the two out."
            )
        if self.tokenizer is None and (self.chat or self.asked):
            raise ConfigError(
                "tokenizer: found None, but conversations are tokenised here. Name a tokenizer."
            )

    @property
    def asked(self) -> list[str]:
        """Arguments that only conversations have."""
        names = ("chat_template", "train_on", "template_args")
        return [name for name in names if getattr(self, name) is not None]


def decide_chat(
    first: Mapping[str, Any], options: ChatOptions, spec: TokenizerSpec | None
) -> ChatJob | None:
    """What is done to the conversations of a build; None if its records are none.

    Args:
        first: the first record.
        options: what the user passed.
        spec: the tokenizer.

    Raises:
        ConfigError: an argument that does not fit the records.
        TokenizerError: the tokenizer has no template, or cannot parse what a template writes.
    """
    shape = _shape(first, options)
    if shape is None or spec is None:
        return None
    train_on = _train_on(shape, options.train_on)
    templates, variables = _templates(shape, options, spec)
    compiled = [ChatTemplate(text, limit=options.limit) for text in templates.values()]
    now = _date(compiled, variables)
    needs_marks = train_on in ("assistant", "last")
    marks = needs_marks and any(one.marks for one in compiled)
    job = ChatJob(
        shape=shape,
        templates=templates,
        variables={name: value for name, value in variables.items() if name != "now"},
        now=now,
        train_on=train_on,
        column=_column(first, shape, options),
        specials=() if options.parse_special or not templates else _special_texts(spec),
        eos=_eos(spec, options) if shape == "strings" else "",
        marks=marks,
        limit=options.limit,
    )
    _tell(job, options, needs_marks and bool(templates))
    return job


def describe_chat(job: ChatJob | None) -> dict[str, Any]:
    """What of it goes into the settings of a build."""
    if job is None:
        return {}
    template = hashlib.sha256(fmt.canonical(job.templates)).hexdigest() if job.templates else None
    return {
        "chat": job.shape,
        "chat_template": template,
        "chat_date": job.now,
        "template_args": job.variables,
        "train_on": job.train_on,
    }


# -- the records ---------------------------------------------------------------------------
def _shape(first: Mapping[str, Any], options: ChatOptions) -> str | None:
    """Which conversations the records hold; None if they hold none, or something else is meant."""
    found = _found(first)
    wanted = bool(options.chat or options.asked)
    if options.chat is False or (options.tokenizer is None and not wanted):
        return None
    if not wanted and (options.ids_key or "input_ids" in first or options.text_key in first):
        if found is not None:
            taken = next(k for k in (options.ids_key, "input_ids", options.text_key) if k in first)
            log.info(
                "records have %s beside %r, which is taken; pass chat=True for the conversations",
                " and ".join(map(repr, KEYS[found])),
                taken,
            )
        return None
    if found is None and wanted and first:
        raise ConfigError(
            f"{'chat' if options.chat else options.asked[0]}: the first record holds no "
            f"conversation; it has: {', '.join(map(str, first))}, allowed: 'messages', "
            "'conversations', or 'prompt' and 'completion'. Rename its keys with transform."
        )
    return "messages" if found is None and wanted else found


def _found(first: Mapping[str, Any]) -> str | None:
    for key in ("messages", "conversations"):
        if isinstance(first.get(key), list | tuple):
            return key
    if "prompt" in first and "completion" in first:
        return "strings" if isinstance(first["prompt"], str) else "turns"
    return None


def _train_on(shape: str, given: str | None) -> str:
    pairs = shape in ("turns", "strings")
    allowed = {
        "messages": ("assistant", "last", "all"),
        "conversations": ("assistant", "last", "all"),
        "turns": ("completion", "assistant", "last", "all"),
        "strings": ("completion", "all"),
    }[shape]
    if given is None:
        return "completion" if pairs else "assistant"
    if given not in allowed:
        what = "a prompt and a completion" if pairs else "messages without a prompt of their own"
        raise ConfigError(
            f"train_on: found {given!r}, but the records hold {what}; allowed: "
            f"{', '.join(map(repr, allowed))}."
        )
    return given


def _column(first: Mapping[str, Any], shape: str, options: ChatOptions) -> str:
    """The column that says what is trained on: weights only if there are some or asked for."""
    asked = dict.fromkeys(options.columns or ())
    unknown = [name for name in asked if name not in COLUMNS]
    if unknown or len(asked) > 1:
        raise ConfigError(
            f"columns: found {', '.join(map(repr, asked))}, allowed for conversations: "
            "'loss_weights', to keep weights of turns that the first record does not have, or "
            "'loss_mask'. Other columns come with ready-made ids."
        )
    if asked:
        return next(iter(asked))
    messages = [
        one
        for key in KEYS[shape]
        if isinstance(first.get(key), list | tuple)
        for one in first[key]
        if isinstance(one, Mapping)
    ]
    return "loss_weights" if any(m.get("weight") is not None for m in messages) else "loss_mask"


# -- the template --------------------------------------------------------------------------
def _templates(
    shape: str, options: ChatOptions, spec: TokenizerSpec
) -> tuple[dict[str, str], dict[str, Any]]:
    """Templates by name, and what they may read."""
    if shape == "strings":
        for name in ("chat_template", "template_args"):
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"{name}: the first record's prompt is a string, which no template renders. "
                    "Leave it out, or give lists of messages."
                )
        return {}, {}
    if options.add_bos or options.add_eos:
        raise ConfigError(
            "add_bos, add_eos: the chat template writes the special tokens itself, and they would "
            "be there twice. Leave them out, or write {{ bos_token }} and {{ eos_token }} in the "
            "template."
        )
    if spec.kind in ("sentencepiece", "callable"):
        raise TokenizerError(
            f"tokenizer {spec.name!r}: a chat template writes special tokens as text, and a "
            f"tokenizer of kind {spec.kind} does not parse them. Give a tokenizer.json, or a fast "
            "tokenizer of transformers."
        )
    own, tokens = _templates_of(options.tokenizer)
    templates = own if options.chat_template is None else _given_template(options.chat_template)
    if "default" not in templates:
        there = f" (it has: {', '.join(sorted(templates))})" if templates else ""
        raise ConfigError(
            f"chat_template: the tokenizer {spec.name} has no chat template{there}, and records "
            "hold messages. Give one as text or as the path of a .jinja file, or chat=False if "
            "these are not conversations."
        )
    kept = {name: text for name, text in templates.items() if name in ("default", "tool_use")}
    for role in ("bos", "eos", "pad"):
        number = getattr(spec, role)
        tokens.pop(f"{role}_token", None)
        if number is not None:
            tokens[f"{role}_token"] = _text_of(spec, number)
    given = dict(options.template_args or {})
    try:
        plain = json.loads(json.dumps(given))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"template_args: found no plain JSON data ({error}). Allowed: text, numbers, lists "
            "and objects."
        ) from None
    return kept, {**tokens, **plain}


def _date(compiled: Sequence[ChatTemplate], variables: Mapping[str, Any]) -> str | None:
    """The date that templates see; None if they do not ask."""
    if not any(one.asks_date for one in compiled):
        return None
    given = variables.get("now")
    if given is None:
        today = datetime.date.today().isoformat()
        log.info(
            "the chat template writes the date: %s; to build the same on another day, pass "
            "template_args={'now': %r}",
            today,
            today,
        )
        return today
    try:
        datetime.datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise ConfigError(
            f"template_args.now: found {given!r}, allowed: a date such as '2026-01-31'."
        ) from None
    return str(given)


# -- where templates are -------------------------------------------------------------------
def _given_template(given: Any) -> Templates:
    """The template that the user gave: its text, or the path of a file with it.

    >>> _given_template("{{ messages }}")
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


def _templates_of(tokenizer: Any) -> tuple[Templates, dict[str, str]]:
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
        if key in TOKEN_NAMES
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


# -- special tokens ------------------------------------------------------------------------
def _special_texts(spec: TokenizerSpec) -> tuple[str, ...]:
    """Texts that a tokenizer turns into special tokens."""
    if spec.kind == "tokenizers":
        added = json.loads(spec.payload).get("added_tokens") or []
        return tuple(sorted(one["content"] for one in added if one["special"]))
    if spec.kind == "tiktoken":
        return tuple(sorted(json.loads(spec.payload)["special_tokens"]))
    return ()


def _text_of(spec: TokenizerSpec, number: int) -> str:
    if spec.kind == "tokenizers":
        for one in json.loads(spec.payload).get("added_tokens") or []:
            if one["id"] == number:
                return str(one["content"])
    return token_strings(spec, [number])[0]


def _eos(spec: TokenizerSpec, options: ChatOptions) -> str:
    if spec.eos is None or options.add_eos is False or spec.kind in ("bytes", "callable"):
        return ""
    return _text_of(spec, spec.eos)


def _tell(job: ChatJob, options: ChatOptions, prefixes: bool) -> None:
    keys = " and ".join(map(repr, KEYS[job.shape]))
    by = ""
    if prefixes:
        by = ", found by {% generation %} blocks" if job.marks else ", found by beginnings"
    found = "" if options.chat else " (chat=False leaves them alone)"
    log.info(
        "records hold conversations in %s%s: trained on is %s%s, kept in the column %s",
        keys,
        found,
        job.train_on,
        by,
        job.column,
    )
