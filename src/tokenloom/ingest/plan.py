"""From the arguments of `build` to a plan: what is read, how, and what the result is called.

One idea: the plan is complete before a byte is written. It ends in `settings`, a JSON object that
names every decision that shapes the store, and a fingerprint over it: a finished store with the
same fingerprint is the same build, and an unfinished one can be resumed.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenloom.arguments import check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, TokenizerError, warn
from tokenloom.ingest.columns import STORED, given_columns, stored_columns, warn_of_unknown
from tokenloom.ingest.crew.wire import Setup, make_kitchen
from tokenloom.ingest.cuts import BEGINNING, BLOCK_BYTES, Edge, blocks
from tokenloom.ingest.encode import Job, Kitchen, apply_hooks
from tokenloom.ingest.hooks import Hook, resolve_hook
from tokenloom.ingest.inputs import MAX_RECORD_BYTES, Input, expand, known_encoding
from tokenloom.ingest.records import read_block
from tokenloom.store import format as fmt
from tokenloom.store import metadata
from tokenloom.tokenizer.accelerate import SAMPLE_RATE, AcceleratedEncoder, choose_engine
from tokenloom.tokenizer.chat.conversation import ChatJob
from tokenloom.tokenizer.chat.decide import ChatOptions, decide_chat, describe_chat
from tokenloom.tokenizer.encoders import Encoder, reference_encoder
from tokenloom.tokenizer.spec import UNSET, Special, TokenizerSpec, resolve

log = logging.getLogger("tokenloom")

ENGINES = ("auto", "reference", "fast")

MOST_STRETCHES = 10_000

GLANCE_BYTES = 1 << 16  # of input, in which the first record is usually found


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """The arguments of `tokenloom.build`, which documents them."""

    tokenizer: Any
    text_key: str = "text"
    ids_key: str | None = None
    id_key: str | None = None
    metadata_keys: Sequence[str] | None = None
    columns: Mapping[str, str] | Sequence[str] | None = None
    vocab_size: int | None = None
    bos: Special = UNSET
    eos: Special = UNSET
    pad: Special = UNSET
    add_bos: bool | None = None
    add_eos: bool | None = None
    strict: bool = False
    parse_special: bool = False
    engine: str = "auto"
    verify_all: bool = False
    filter: Callable[[dict[str, Any]], Any] | str | None = None
    transform: Callable[[dict[str, Any]], Any] | str | None = None
    chat: bool | None = None
    chat_template: Any = None
    train_on: str | None = None
    template_args: Mapping[str, Any] | None = None
    on_error: str = "raise"
    encoding: str = "utf-8"
    errors: str = "strict"
    max_record_bytes: int = MAX_RECORD_BYTES
    chunk_tokens: int = fmt.CHUNK_TOKENS
    shard_tokens: int = fmt.SHARD_TOKENS
    block_bytes: int = BLOCK_BYTES
    inner: int = fmt.INNER
    stretches: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        one_of("engine", self.engine, ENGINES)
        one_of("on_error", self.on_error, ("raise", "skip"))
        object.__setattr__(self, "encoding", known_encoding(self.encoding))
        one_of("errors", self.errors, ("strict", "replace", "ignore"))
        check_between("max_record_bytes", self.max_record_bytes, 1, 1 << 30, unit="bytes")
        self.chats()
        check_between("vocab_size", self.vocab_size, 1, fmt.MAX_ID + 1, unit="ids")
        check_between("chunk_tokens", self.chunk_tokens, 1, fmt.SHARD_TOKENS, unit="tokens")
        check_between("shard_tokens", self.shard_tokens, 1, fmt.SHARD_TOKENS, unit="tokens")
        check_between("block_bytes", self.block_bytes, 1, unit="bytes")
        check_between("inner", self.inner, 1, fmt.MAX_INNER, unit="elements")
        check_between("stretches", self.stretches, 1, MOST_STRETCHES)

    def expand(self, inputs: Any) -> list[Input]:
        """The inputs of the build, in order."""
        return expand(
            inputs,
            encoding=self.encoding,
            errors=self.errors,
            max_record_bytes=self.max_record_bytes,
        )

    def chats(self) -> ChatOptions:
        """The settings for conversations."""
        own = {f.name: getattr(self, f.name) for f in fields(ChatOptions) if f.name != "limit"}
        return ChatOptions(**own, limit=self.max_record_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    """A build, decided; `kitchen` is what deciding had to open, for a build in this process.

    `since` and `until` are what it reads of the inputs: all, or a stretch. `today` says that the
    chat template writes the day on which the build began: it is recorded, but never compared.
    """

    setup: Setup
    kitchen: Kitchen
    options: BuildOptions
    settings: dict[str, Any]
    fingerprint: str
    engine: str
    opened: float  # CPU-seconds until the encoder was there
    today: bool = False
    since: Edge = BEGINNING
    until: Edge | None = None

    @property
    def day(self) -> int:
        """The day on which the build began, as YYYYMMDD, if the chat template writes it; else 0."""
        return int(self.settings["chat_date"].replace("-", "")) if self.today else 0

    def on_day_of(self, settings: Mapping[str, Any]) -> BuildPlan:
        """The same plan with the day of a build that began earlier and had these settings."""
        day, chat = settings.get("chat_date"), self.setup.job.chat
        if not self.today or day is None or chat is None:
            return self
        setup = replace(self.setup, job=replace(self.setup.job, chat=replace(chat, now=day)))
        return replace(
            self,
            setup=setup,
            kitchen=make_kitchen(setup, self.kitchen.encoder),
            settings={**self.settings, "chat_date": day},
        )


def make_plan(
    inputs: Sequence[Input],
    options: BuildOptions,
    parent: str | None,
    resolved: tuple[TokenizerSpec | None, Any] | None = None,
) -> BuildPlan:
    """The plan for these inputs.

    Args:
        inputs: what is read, in order; `with_inputs` takes them once they are identified.
        options: the user's arguments.
        parent: sha256 of the manifest that is appended to, or None.
        resolved: what `resolve_tokenizer` gave for these options, if it was called.
    """
    spec, live = resolved or resolve_tokenizer(options)
    hooks = {
        "filter": resolve_hook(options.filter, "filter"),
        "transform": resolve_hook(options.transform, "transform"),
    }
    first = _first_record(inputs, options, hooks)
    chat = decide_chat(first, options.chats(), spec)
    ids_key = None if chat else _ids_key(options, first)
    if ids_key is not None:
        live = None  # nothing is encoded
    columns, token_keys = _columns(first, options, ids_key, chat)
    templated = chat is not None and bool(chat.templates)
    bos, eos = (None, None) if templated else _specials(spec, options, ids_key)
    rate = 1.0 if options.verify_all else SAMPLE_RATE
    special = options.parse_special or templated  # a template writes special tokens as text
    began = time.process_time()
    engine, label, encoder = _engine(spec, live, options, ids_key, rate, special)
    opened = time.process_time() - began
    vocab_size = spec.vocab_size if spec is not None else _vocab_size(options)
    keys = options.metadata_keys
    others = [name for name in token_keys if name not in columns]
    settings: dict[str, Any] = {
        "build": 2,
        "parent": parent,
        "tokenizer": spec and {k: v for k, v in spec.describe().items() if k != "name"},
        "engine": label,
        "parse_special": options.parse_special,
        "bos": bos,
        "eos": eos,
        "text_key": None if ids_key or chat else options.text_key,
        "ids_key": ids_key,
        "id_key": options.id_key,
        "metadata_keys": None if keys is None else list(keys),
        "metadata_file": metadata.file_name(),
        "columns": columns,
        **describe_chat(chat),
        **({"token_keys": others} if others else {}),
        "vocab_size": vocab_size,
        "dtype": fmt.token_dtype(vocab_size),
        "on_error": options.on_error,
        "encoding": [options.encoding],
        "errors": options.errors,
        "max_record_bytes": options.max_record_bytes,
        "chunk_tokens": options.chunk_tokens,
        "shard_tokens": options.shard_tokens,
        "block_bytes": options.block_bytes,
        "inner": options.inner,
        **({"stretches": options.stretches} if options.stretches > 1 else {}),
        **{name: hook and hook.describe() for name, hook in hooks.items()},
        "inputs": _sha256(describe_inputs(inputs)),
    }
    given = options.template_args or {}
    today = chat is not None and chat.now is not None and given.get("now") is None
    fingerprint = _fingerprint(settings, today)
    job = Job(
        text_key=settings["text_key"],
        ids_key=ids_key,
        id_key=options.id_key,
        metadata_keys=None if keys is None else tuple(keys),
        columns=columns,
        token_keys=token_keys,
        bos=bos,
        eos=eos,
        vocab_size=vocab_size,
        dtype=settings["dtype"],
        sample_rate=rate,
        sample_key=int(fingerprint[:16], 16),
        chat=chat,
    )
    setup = Setup(
        job=job,
        inputs=inputs,
        spec=spec,
        live=live,
        engine=engine,
        parse_special=special,
        filter=hooks["filter"],
        transform=hooks["transform"],
    )
    return BuildPlan(
        setup=setup,
        kitchen=make_kitchen(setup, encoder),
        options=options,
        settings=settings,
        fingerprint=fingerprint,
        engine=label,
        opened=opened,
        today=today,
    )


def _fingerprint(settings: dict[str, Any], today: bool) -> str:
    return _sha256({k: v for k, v in settings.items() if not (today and k == "chat_date")})


def with_inputs(plan: BuildPlan, inputs: Sequence[Input]) -> BuildPlan:
    """The same plan, once its inputs are identified."""
    settings = {**plan.settings, "inputs": _sha256(describe_inputs(inputs))}
    return replace(
        plan,
        setup=replace(plan.setup, inputs=inputs),
        settings=settings,
        fingerprint=_fingerprint(settings, plan.today),
    )


def _sha256(value: Any) -> str:
    return hashlib.sha256(fmt.canonical(value)).hexdigest()


def describe_inputs(inputs: Sequence[Input]) -> list[dict[str, Any]]:
    """What is recorded of the inputs: names, kinds, sizes, content, but no path."""
    return [
        {"name": one.name, "kind": one.kind, "bytes": one.size, "sha256": one.sha256}
        for one in inputs
    ]


def resolve_tokenizer(options: BuildOptions) -> tuple[TokenizerSpec | None, Any]:
    """The tokenizer that was meant; None when there is none."""
    if options.tokenizer is None:
        for name in ("bos", "eos", "pad"):
            if (found := getattr(options, name)) not in (UNSET, None):
                raise ConfigError(
                    f"{name}: found {found!r} beside tokenizer=None, which has no special tokens. "
                    f"Leave it out, and give layouts and render() the id as {name}_id=... ."
                )
        return None, None
    return resolve(
        options.tokenizer,
        vocab_size=options.vocab_size,
        bos=options.bos,
        eos=options.eos,
        pad=options.pad,
    )


def _vocab_size(options: BuildOptions) -> int:
    size = options.vocab_size
    if size is None:
        raise ConfigError(
            "tokenizer: found None, and no vocab_size. Name a tokenizer for records with text, or "
            "give vocab_size=... for records that hold ready-made input_ids."
        )
    return size


def _engine(
    spec: TokenizerSpec | None,
    live: Any,
    options: BuildOptions,
    ids_key: str | None,
    rate: float,
    special: bool,
) -> tuple[str, str, Encoder | None]:
    """The engine to use ("reference", "fast"), its name with its version, itself."""
    if spec is None or ids_key is not None:
        return "reference", "none", None
    if spec.kind == "tokenizers":
        encoder, reason = choose_engine(spec, options.engine, parse_special=special, rate=rate)
        if reason is not None:
            log.info("%s is encoded by the tokenizers library: %s", spec.name, reason)
    elif options.engine == "fast":
        raise TokenizerError(
            f"engine: found 'fast', which accelerates a tokenizer.json; the tokenizer {spec.name} "
            f"is of kind {spec.kind}. Use engine='auto'."
        )
    else:
        encoder = reference_encoder(spec, parse_special=special, live=live)
    chosen = "fast" if isinstance(encoder, AcceleratedEncoder) else "reference"
    return chosen, f"{encoder.engine} {encoder.version}", encoder


def _specials(
    spec: TokenizerSpec | None, options: BuildOptions, ids_key: str | None
) -> tuple[int | None, int | None]:
    """Ids to put before and after each document: only those that exist."""
    if ids_key is not None:
        if options.add_bos or options.add_eos:
            raise ConfigError(
                "add_bos, add_eos: not with ready-made ids, which are stored as given. Put the "
                "specials "
                "into the records, or add them when packing."
            )
        return None, None
    add_eos = (
        spec is not None and spec.eos is not None if options.add_eos is None else options.add_eos
    )
    wanted = {"bos": bool(options.add_bos), "eos": add_eos}
    missing = [n for n, want in wanted.items() if want and spec and getattr(spec, n) is None]
    if missing:
        name = spec.name if spec else "?"
        message = (
            f"add_{missing[0]}: the tokenizer {name} has no {' and no '.join(missing)} token, so "
            f"none is added. Name one with {missing[0]}=..., or leave add_{missing[0]} out."
        )
        if options.strict:
            raise TokenizerError(message)
        warn(message)
    bos, eos = (getattr(spec, name) if want else None for name, want in wanted.items())
    return bos, eos


def _ids_key(options: BuildOptions, first: dict[str, Any]) -> str | None:
    """The key of ready-made ids; None for text. Only where there is no text, ids are taken."""
    if options.ids_key is not None or options.tokenizer is None:
        return options.ids_key or "input_ids"
    return "input_ids" if options.text_key not in first and "input_ids" in first else None


def _columns(
    first: dict[str, Any], options: BuildOptions, ids_key: str | None, chat: ChatJob | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Per-token columns to store, name → dtype, and what of `ingest.columns` the records have."""
    if chat is not None:
        return {chat.column: STORED[chat.column]}, ()
    asked = options.columns or {}
    if ids_key is None:
        if asked:
            raise ConfigError(
                "columns: found without ready-made ids, which they belong to. Pass "
                "ids_key='input_ids'."
            )
        return {}, ()
    named = asked if isinstance(asked, Mapping) else {name: STORED.get(name, "") for name in asked}
    given = given_columns(first, named)
    known = (options.id_key or "", *named, *(options.metadata_keys or ()))
    warn_of_unknown(first, ids_key, given, known)
    return stored_columns(given, named), given


def _first_record(
    inputs: Sequence[Input], options: BuildOptions, hooks: Mapping[str, Hook | None]
) -> dict[str, Any]:
    """The first record that the hooks keep, as they leave it; empty if there is none.

    If records may be skipped, one without text or ids does not count.
    """
    needed = {options.ids_key or "input_ids"}
    if options.tokenizer is not None and options.ids_key is None:
        needed |= {options.text_key, "messages", "conversations", "prompt"}
    called: dict[str, Any] = {name: hook.function for name, hook in hooks.items() if hook}
    if not called and all(one.kind in ("txt", "lines") for one in inputs):
        return {}  # these have a text and nothing else
    kitchen = Kitchen(**called)
    size = options.block_bytes
    glance = itertools.islice(blocks(inputs, block_bytes=min(size, GLANCE_BYTES)), 1)
    for block in itertools.chain(glance, blocks(inputs, block_bytes=size)):
        for record in read_block(inputs, block).records:
            try:
                kept = apply_hooks(kitchen, record)
            except Exception:  # noqa: BLE001 - reported with its place when the record is encoded
                if options.on_error == "raise":
                    return {}
                continue
            if kept is not None and (options.on_error == "raise" or not needed.isdisjoint(kept)):
                return kept
    return {}


def usable_cores() -> int:
    """Cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1
