r"""Renders chat templates: jinja2 in its sandbox, with the helpers of transformers and with bounds.

One idea: a template is code that came with a model. It sees plain data, reaches nothing else, and
what it writes is bounded in bytes. It renders what `tokenizer.apply_chat_template` of transformers
renders, with these differences:

- an attempt to reach ``__class__`` and its like is an error, not an empty text;
- what is random (``lipsum``, ``|random``) is not there, and ``strftime_now`` tells a date that is
  fixed for the build: the same records give the same text on any day;
- output, and the strings and lists that ``*``, ``+``, ``~`` and blocks make on the way, are at most
  `limit` bytes. Time is not bounded, nor is what a single call of a string's own method makes.

``{% generation %} … {% endgeneration %}`` marks what the assistant generates. The characters that
such a block writes are reported beside the text, counted as transformers counts them.
"""

from __future__ import annotations

import datetime
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tokenloom.errors import ConfigError, MissingExtra

__all__ = ["Rendered", "TemplateFailed", "TemplateRenderer", "compile_template"]

LARGEST_POWER: Final = 4096  # bits of a number that ``**`` may make

AGAIN: Final = 8  # text that passes through nested blocks is counted in each of them


class TemplateFailed(ValueError):
    """Why a template gave no text for some messages."""


class Rendered(NamedTuple):
    """A text, and the characters [start, stop) of each generation block in it."""

    text: str
    generated: list[tuple[int, int]]


class _Meter:
    """What one rendering has written so far; every environment has one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.start()

    def start(self) -> None:
        self.position = 0  # characters that the template has given away
        self.spent = 0
        self.generated: list[tuple[int, str]] = []

    def spend(self, count: int) -> None:
        self.spent += count
        if self.spent > AGAIN * self.limit:
            raise self.too_long()

    def check(self, count: int) -> None:
        if count > self.limit:
            raise self.too_long()

    def too_long(self) -> TemplateFailed:
        return TemplateFailed(
            f"the chat template writes more than {self.limit} bytes, the most allowed; shorten the "
            "conversation, fix the template, or pass a larger max_record_bytes"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateRenderer:
    """A compiled template.

    Attributes:
        compiled: the template of jinja2.
        meter: counts what is written.
        marks: whether it has generation blocks.
        names: names that it uses.
    """

    compiled: Any
    meter: _Meter
    marks: bool
    names: frozenset[str]

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
        meter, blocks = self.meter, list[str]()
        meter.start()
        try:
            for block in self.compiled.generate(given):
                blocks.append(block)
                meter.position += len(block)
                meter.check(meter.position)
        except (TemplateFailed, MemoryError):
            raise
        except Exception as error:
            raise TemplateFailed(_told(error)) from error
        text = "".join(blocks)
        if not text.isascii():
            meter.check(len(text.encode("utf-8", "surrogatepass")))
        return Rendered(text, _generated(text, meter.generated))


def _generated(text: str, found: list[tuple[int, str]]) -> list[tuple[int, int]]:
    for start, block in found:
        if not text.startswith(block, start):
            raise TemplateFailed(
                "a {% generation %} block of the chat template is not written in its place (it "
                "is inside a macro or a {% set %} block), so its place in the text is unknown; "
                "allowed: generation blocks in the body of the template"
            )
    return [(start, start + len(block)) for start, block in found]


def _told(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "SecurityError":
        return f"the sandbox stopped the chat template: {error!s:.300}"
    if isinstance(error, RecursionError):
        return "the chat template calls itself too deeply"
    return f"the chat template raised {kind}: {error!s:.300}"


def compile_template(text: str, *, limit: int, now: str | None = None) -> TemplateRenderer:
    r"""A template, ready to render.

    Args:
        text: the template.
        limit: bytes that it may write for one conversation.
        now: the date that `strftime_now` tells, as ISO 8601.

    Raises:
        ConfigError: it is not a template.
        MissingExtra: jinja2 is not installed.

    >>> greeting = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    >>> compile_template(greeting, limit=100).render([{"role": "user", "content": "Hi"}]).text
    'user: Hi\n'
    """
    try:
        jinja2 = importlib.import_module("jinja2")
        importlib.import_module("jinja2.sandbox")
    except ImportError:
        raise MissingExtra("a chat template", "jinja2", "build") from None
    meter = _Meter(limit)
    environment = _environment(jinja2, meter, now)
    try:
        names = {one.name for one in environment.parse(text).find_all(jinja2.nodes.Name)}
        compiled = environment.from_string(text)
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
    marks = bool(environment.generation_marks)
    return TemplateRenderer(compiled=compiled, meter=meter, marks=marks, names=frozenset(names))


# -- the environment -----------------------------------------------------------------------
def _environment(jinja2: Any, meter: _Meter, now: str | None) -> Any:
    """The sandbox; its classes are made here, as jinja2 is imported only when it is needed."""
    environment = _sandbox(jinja2)(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_generation_tag(jinja2), "jinja2.ext.loopcontrols"],
        finalize=_counted(meter),
    )
    environment.code_generator_class = _bounded_code(jinja2)
    environment.meter = meter
    environment.generation_marks = 0

    def raise_exception(message: Any) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form: str) -> str:
        if now is None:
            raise TemplateFailed("the chat template asks for the date, and none was given")
        return datetime.datetime.fromisoformat(now).strftime(form)

    environment.filters["tojson"] = _tojson
    for name, operator in (("center", "*"), ("indent", "*"), ("format", "%")):
        environment.filters[name] = _sized(environment.filters[name], operator, meter)
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
        "dict": _TemplateDict(),
        "namespace": _namespace(jinja2),
    }
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


def _counted(meter: _Meter) -> Any:
    def finalize(value: Any) -> Any:
        if isinstance(value, str):
            meter.spend(len(value))
        return value

    return finalize


def _sized(own: Callable[..., Any], operator: str, meter: _Meter) -> Callable[..., Any]:
    """A filter whose first argument is a size, or whose value is a format with sizes."""

    def sized(value: Any, *args: Any, **kwargs: Any) -> Any:
        for one in (*args, *kwargs.values()):
            left, right = (value, one) if operator == "%" else (" ", one)
            meter.check(_size(operator, left, right))
        return own(value, *args, **kwargs)

    return sized


class _TemplateDict:
    """`dict` for templates: makes dicts, and leads to no type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _namespace(jinja2: Any) -> Any:
    class TemplateNamespace(jinja2.utils.Namespace):  # type: ignore[misc]
        """A namespace without names that start with an underscore."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, *others = args
            attributes = dict(*others, **kwargs)
            for name in attributes:
                _plain_name(jinja2, name)
            jinja2.utils.Namespace.__init__(self, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _plain_name(jinja2, name)
            super().__setitem__(name, value)

    return TemplateNamespace


def _plain_name(jinja2: Any, name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name!r}")


def _sandbox(jinja2: Any) -> Any:
    class ChatSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
        """The sandbox, with sizes checked before something is made."""

        intercepted_binops = frozenset({"*", "**", "+", "%"})
        meter: _Meter

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            raise jinja2.exceptions.SecurityError(
                f"access to attribute {attribute!r} of a {type(obj).__name__} is unsafe"
            )

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            self.meter.check(_size(operator, left, right))
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
            # center, ljust, zfill …: a number is the size of what they make
            for value in (*args, *kwargs.values()):
                if isinstance(value, int):
                    __self.meter.check(value)
            return super().call(__context, __obj, *args, **kwargs)

        def joined(self, parts: tuple[Any, ...]) -> str:
            texts = [str(part) for part in parts]
            self.meter.check(sum(map(len, texts)))
            return "".join(texts)

    return ChatSandbox


def _size(operator: str, left: Any, right: Any) -> int:
    """At most how large the result of an operation is; 0 if that is no question."""
    if operator == "**":
        if isinstance(left, int) and isinstance(right, int):
            return 0 if left.bit_length() * right <= LARGEST_POWER else 1 << 62
        return 0
    if operator == "%":  # a format with a width
        digits = "".join(c if c.isdigit() else " " for c in left) if isinstance(left, str) else ""
        return max((int(number[:19]) for number in digits.split() if number.isdecimal()), default=0)
    sizes = [len(one) if hasattr(one, "__len__") else None for one in (left, right)]
    if operator == "+":
        return sum(size or 0 for size in sizes)
    if sizes[0] is not None and isinstance(right, int):
        return sizes[0] * right
    return sizes[1] * left if sizes[1] is not None and isinstance(left, int) else 0


def _bounded_code(jinja2: Any) -> Any:
    compiler: Any = importlib.import_module("jinja2.compiler")
    nodes = jinja2.nodes

    class BoundedCode(compiler.CodeGenerator):  # type: ignore[misc]
        """Code that counts what it puts into the buffer of a block, and what ``~`` joins."""

        def visit_Output(self, node: Any, frame: Any) -> None:  # noqa: N802 - jinja2's name
            if frame.buffer is not None:
                own = [
                    getattr(one, "data", None) or getattr(one, "value", None)
                    for one in node.find_all((nodes.TemplateData, nodes.Const))
                ]
                size = 1 + sum(len(one) for one in own if isinstance(one, str))
                self.writeline(f"environment.meter.spend({size})", node)
            super().visit_Output(node, frame)

        def visit_Concat(self, node: Any, frame: Any) -> None:  # noqa: N802 - jinja2's name
            self.write("environment.joined((")
            for one in node.nodes:
                self.visit(one, frame)
                self.write(", ")
            self.write("))")

    return BoundedCode


def _generation_tag(jinja2: Any) -> Any:
    nodes = jinja2.nodes
    extensions: Any = importlib.import_module("jinja2.ext")

    class GenerationTag(extensions.Extension):  # type: ignore[misc]
        """The block that marks what the assistant generates."""

        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            self.environment.generation_marks += 1
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller: Any) -> str:
            block = str(caller())
            meter = self.environment.meter
            meter.generated.append((meter.position, block))
            return block

    return GenerationTag
