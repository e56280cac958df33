r"""Renders chat templates in jinja2's sandbox, with the helpers of transformers.

A template is code that came with a model. It sees plain data, and what it writes is bounded. It
renders what `tokenizer.apply_chat_template` of transformers renders, with these differences:

- an attempt to reach ``__class__`` and its like is an error, not an empty text;
- what is random (``lipsum``, ``|random``) is not there, and ``strftime_now`` tells a date that is
  fixed for the build: the same records give the same text on any day;
- a text of more than `limit` bytes is an error. Time and memory on the way are not bounded.

``{% generation %} … {% endgeneration %}`` marks what the assistant generates. The characters that
such a block writes are reported beside the text, counted as transformers counts them.
"""

from __future__ import annotations

import datetime
import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tokenloom.errors import ConfigError, MissingExtra


class TemplateFailed(ValueError):
    """Why a template gave no text for some messages."""


class Rendered(NamedTuple):
    """A text, and the characters [start, stop) of each generation block in it."""

    text: str
    generated: list[tuple[int, int]]


class ChatTemplate:
    r"""A compiled template.

    Args:
        text: the template.
        limit: bytes that it may write for one conversation.
        now: the date that `strftime_now` tells, as ISO 8601.

    Raises:
        ConfigError: it is not a template.
        MissingExtra: jinja2 is not installed.

    >>> greeting = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    >>> ChatTemplate(greeting, limit=100).render([{"role": "user", "content": "Hi"}]).text
    'user: Hi\n'
    """

    def __init__(self, text: str, *, limit: int, now: str | None = None) -> None:
        try:
            jinja2 = importlib.import_module("jinja2")
        except ImportError:
            raise MissingExtra("a chat template", "jinja2", "build") from None
        self._limit = limit
        self._environment = _environment(jinja2, now)
        try:
            names = {n.name for n in self._environment.parse(text).find_all(jinja2.nodes.Name)}
            self._compiled = self._environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"chat_template: line {error.lineno} is not a template of jinja2: {error.message}. "
                "Give a template as text, or the path of a .jinja file."
            ) from error
        except RecursionError:
            raise ConfigError(
                "chat_template: it is nested too deeply, so no code can be made of it. Write it "
                "flatter."
            ) from None
        self.marks = bool(self._environment.marks)
        self.asks_date = "strftime_now" in names

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The text of a conversation.

        Args:
            messages: plain data, with a role each.
            tools: schemas of functions, as plain data.
            add_generation_prompt: end with what comes before the assistant's next turn.
            variables: further names that the template may read.

        Raises:
            TemplateFailed: the template raised, wrote too much, or was stopped by the sandbox.
        """
        given: dict[str, Any] = {
            "messages": list(messages),
            "tools": tools,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **(variables or {}),
        }
        environment, parts = self._environment, list[str]()
        environment.written, environment.generated = 0, []
        try:
            for part in self._compiled.generate(given):
                parts.append(part)
                environment.written += len(part)
                if environment.written > self._limit:
                    raise self._too_long()
        except (TemplateFailed, MemoryError):
            raise
        except Exception as error:
            raise TemplateFailed(_words(error)) from error
        text = "".join(parts)
        if not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > self._limit:
            raise self._too_long()
        return Rendered(text, _places(text, environment.generated))

    def _too_long(self) -> TemplateFailed:
        return TemplateFailed(
            f"the chat template writes more than {self._limit} bytes, the most allowed; shorten "
            "the conversation, fix the template, or pass a larger max_record_bytes"
        )


def _places(text: str, generated: list[tuple[int, str]]) -> list[tuple[int, int]]:
    for start, block in generated:
        if not text.startswith(block, start):
            raise TemplateFailed(
                "a {% generation %} block of the chat template is not written in its place (it "
                "is inside a macro or a {% set %} block), so its place in the text is unknown; "
                "allowed: generation blocks in the body of the template"
            )
    return [(start, start + len(block)) for start, block in generated]


def _words(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "SecurityError":
        return f"the sandbox stopped the chat template: {error!s:.300}"
    if isinstance(error, RecursionError):
        return "the chat template calls itself too deeply"
    return f"the chat template raised {kind}: {error!s:.300}"


def _environment(jinja2: Any, now: str | None) -> Any:
    """The sandbox; its classes are made here, as jinja2 is imported only when it is needed."""
    extensions: Any = importlib.import_module("jinja2.ext")
    sandbox: Any = importlib.import_module("jinja2.sandbox")

    class GenerationTag(extensions.Extension):  # type: ignore[misc]
        """The block that marks what the assistant generates."""

        tags = frozenset({"generation"})

        def __init__(self, environment: Any) -> None:
            super().__init__(environment)
            # blocks in the template; characters given away so far, and the blocks among them
            environment.extend(marks=0, written=0, generated=[])

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            self.environment.marks += 1
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            mark = self.call_method("_mark")
            return jinja2.nodes.CallBlock(mark, [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            block = str(caller())
            self.environment.generated.append((self.environment.written, block))
            return block

    class ChatSandbox(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
        """The sandbox, in which nothing that is refused becomes an empty text."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            raise jinja2.exceptions.SecurityError(
                f"access to attribute {attribute!r} of a {type(obj).__name__} is unsafe"
            )

    def raise_exception(message: Any) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form: str) -> str:
        if now is None:
            raise TemplateFailed("the chat template asks for the date, and none was given")
        return datetime.datetime.fromisoformat(now).strftime(form)

    environment = ChatSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, extensions.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes for HTML that jinja2's own filter makes."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
