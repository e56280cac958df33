"""One record becomes one text, and the ranges of it that are trained on.

Whatever a template would print wrongly without a word is refused before it is rendered. A content
that is a list (parts of text, images) would be printed as Python writes a list; a date would become
a placeholder; a message that spells a special token would become that token, and end a turn in the
middle. What a template gets is plain JSON data. A message may say how much its turn counts:
``"weight": 0.5`` (as OpenAI has it; any number from 0 on), or ``"train": false``. Both are about
the loss and never reach the template.

What is trained is given in characters of the one text that the template writes for the whole
conversation. Where the template marks what is generated (``{% generation %}``), that is it. Where
it does not, the text up to an assistant's turn and up to its end are rendered by themselves, and
both must be beginnings of the whole::

    messages[:k], with the generation prompt     <user>Hi<end><assistant>
    messages[:k + 1]                             <user>Hi<end><assistant>Hello<end>
    all messages                                 <user>Hi<end><assistant>Hello<end><user>…
                                                                         ‾‾‾‾‾‾‾‾‾‾ trained

So everything that the template writes for the turn after the generation prompt is trained: the
answer, the token that ends the turn, and the line break that some templates put after it. That is
TRL's rule for completions. If one of the texts is not a beginning of the whole, the record is
refused with the turn: the model would be trained on what it never sees at inference.

A prompt and its completion are two texts (then no template is involved), or two lists of messages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokenloom.errors import choices
from tokenloom.tokenizer.chat.template import ChatTemplate, Rendered, TemplateFailed

KEYS: Final = {
    "messages": ("messages",),
    "conversations": ("conversations",),
    "turns": ("prompt", "completion"),
    "strings": ("prompt", "completion"),
}

ENCODED_ROLES: Final = frozenset({"tool", "function", "ipython"})  # written as JSON, or folded

Span = tuple[int, int, float]  # characters [start, stop) and their weight

ASSISTANT: Final = "assistant"

# roles of "conversations", as ShareGPT has them
SHARED: Final = {"human": "user", "gpt": ASSISTANT}

# the names under which a turn's reasoning is known; the first is what templates read
REASONING: Final = ("reasoning_content", "thinking", "reasoning")

Message = dict[str, Any]


class BadChat(ValueError):
    """Why a conversation cannot be used."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTurn:
    """One message.

    Attributes:
        message: what the template gets.
        weight: how much its tokens count; None if the record does not say.
    """

    message: Message
    weight: float | None

    @property
    def role(self) -> str:
        """Who speaks."""
        return str(self.message["role"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatJob:
    """What is done to every conversation of a build, as plain data.

    Attributes:
        shape: which keys records have, and what is under them; see `KEYS`.
        templates: the chat template under "default", and one for records with tools if there is.
        variables: names that templates may read: special tokens, and the user's own.
        now: the date that a template is told, as ISO 8601; None if it does not ask.
        train_on: "assistant", "last", "completion" or "all".
        column: "loss_mask" or "loss_weights".
        specials: texts of special tokens, which messages must not spell.
        eos: text of the token that is put after a completion of text, or empty.
        marks: whether the templates mark what is generated.
        limit: bytes that a template may write for one conversation.
    """

    shape: str
    templates: dict[str, str]
    variables: dict[str, Any]
    now: str | None
    train_on: str
    column: str
    specials: tuple[str, ...]
    eos: str
    marks: bool
    limit: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of a record that are used up; others are metadata."""
        extra = ("tools", "chat_template_kwargs") if self.templates else ()
        return (*KEYS[self.shape], *extra)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """One conversation as text.

    Attributes:
        text: all of it.
        spans: what is trained on, in characters, in order; with a weight each.
        floor: characters of the prompt; nothing before it is trained on.
        marked: whether the template marked the spans.
        silent: whether the record itself may want nothing of it trained on, by weights of 0.
    """

    text: str
    spans: list[Span]
    floor: int = 0
    marked: bool = False
    silent: bool = False


class ChatReader:
    """Makes texts of records; holds the compiled templates."""

    def __init__(self, job: ChatJob) -> None:
        self.job = job
        self.templates = {
            name: ChatTemplate(text, limit=job.limit, now=job.now)
            for name, text in job.templates.items()
        }
        longest = sorted(job.specials, key=len, reverse=True)
        self.specials = re.compile("|".join(map(re.escape, longest))) if longest else None

    def read(self, record: Mapping[str, Any]) -> Chat:
        """The conversation of a record.

        Raises:
            BadChat: it has none, or it is unclear what is trained on.
        """
        for key in KEYS[self.job.shape]:
            if record.get(key) is None:
                has = choices(key, record)
                raise BadChat(
                    f"there is no {key!r}, which the first record has; it has: {has}; allowed: "
                    "the same kind in all records"
                )
        try:
            chat = self._strings(record) if self.job.shape == "strings" else self._turns(record)
            chat.text.encode("utf-8")
        except TemplateFailed as error:
            raise BadChat(str(error)) from error
        except UnicodeEncodeError as error:
            raise BadChat(
                f"character {error.start} of its text is a lone surrogate, which has no UTF-8 "
                "encoding; allowed: whole characters"
            ) from None
        except RecursionError:
            raise BadChat(
                "its messages are not plain, but nested too deeply; allowed: an object with "
                "'role' and 'content' "
                "each"
            ) from None
        return chat

    # -- texts -----------------------------------------------------------------------------
    def _strings(self, record: Mapping[str, Any]) -> Chat:
        prompt, completion = record["prompt"], record["completion"]
        for key, text in (("prompt", prompt), ("completion", completion)):
            if not isinstance(text, str):
                raise BadChat(
                    f"{key!r} is {a_kind(text)}, allowed: a string, as in the first record"
                )
        if self.job.eos and completion.endswith(self.job.eos):
            raise BadChat(
                f"'completion' ends with {self.job.eos!r}, the text of the EOS token, which is "
                "put after it anyway; allowed: a completion without it. Clean it, or pass "
                "add_eos=False and parse_special=True"
            )
        text = prompt + completion
        if self.job.train_on == "all":
            return Chat(text=text, spans=[(0, len(text), 1.0)])
        return Chat(text=text, spans=[(len(prompt), len(text), 1.0)], floor=len(prompt))

    # -- messages --------------------------------------------------------------------------
    def _turns(self, record: Mapping[str, Any]) -> Chat:
        prompt, turns = self._read_turns(record)
        tools = read_tools(record.get("tools"))
        refuse_spelled(tools, self.specials, "'tools'")
        own = record.get("chat_template_kwargs")
        if own is not None and not isinstance(own, Mapping):
            raise BadChat(f"'chat_template_kwargs' is {a_kind(own)}, allowed: an object")
        extra = {
            k: v for k, v in (plain(own, "'chat_template_kwargs'") or {}).items() if v is not None
        }
        template = self.templates[
            "tool_use" if tools and "tool_use" in self.templates else "default"
        ]
        conversation = _Conversation(turns, template, tools, {**self.job.variables, **extra})
        whole = conversation.render(len(turns))
        _refuse_left_out(turns, whole.text)
        if self.job.train_on == "all":
            _refuse_weights(turns, "train_on='all' trains every token alike")
            return Chat(text=whole.text, spans=[(0, len(whole.text), 1.0)])
        floor = conversation.beginning(prompt, whole.text) if self.job.shape == "turns" else 0
        if self.job.train_on == "completion":
            _refuse_weights(turns, "train_on='completion' trains all of it alike")
            return Chat(text=whole.text, spans=[(floor, len(whole.text), 1.0)], floor=floor)
        spans = self._assistant(conversation, whole, prompt)
        silent = any(weight == 0 for *_, weight in spans)
        marked = template.marks
        return Chat(text=whole.text, spans=spans, floor=floor, marked=marked, silent=silent)

    def _read_turns(self, record: Mapping[str, Any]) -> tuple[int, list[ChatTurn]]:
        """The number of messages of the prompt, and all messages."""
        shared, turns, counts = self.job.shape == "conversations", list[ChatTurn](), []
        for key in KEYS[self.job.shape]:
            some = read_turns(record[key], key, shared=shared)
            for n, turn in enumerate(some):
                where = f"message {n} of {key!r} ({turn.role})"
                refuse_spelled(turn.message, self.specials, where)
            turns += some
            counts.append(len(some))
        return (counts[0] if len(counts) == 2 else 0), turns

    def _assistant(self, conversation: _Conversation, whole: Rendered, prompt: int) -> list[Span]:
        """What the assistant's turns wrote, those of the prompt left out."""
        turns = conversation.turns
        own = [k for k, turn in enumerate(turns) if turn.role == ASSISTANT and k >= prompt]
        if not own:
            roles = ", ".join(dict.fromkeys(turn.role for turn in turns))
            raise BadChat(
                f"it has no turn of the assistant (roles: {roles}), so nothing would be trained "
                "on; allowed: at least one, or train_on='all'"
            )
        _refuse_weights(
            [t for k, t in enumerate(turns) if k not in own],
            "only turns of the assistant are trained on",
            zero=True,
        )
        last = self.job.train_on == "last"
        weights = {k: _first(turns[k].weight, 1.0) for k in (own[-1:] if last else own)}
        if conversation.template.marks:
            spans = _marked(turns, whole, weights, prompt)
        else:
            spans = [
                (*conversation.characters_of(k, whole.text), weight)
                for k, weight in weights.items()
            ]
        if self.job.column == "loss_mask":
            for *_, weight in spans:
                if weight not in (0, 1):
                    raise BadChat(
                        f"a message has the weight {weight:g}, and the first record had no "
                        "weights; allowed: 0 or 1, or any weight with "
                        "columns={'loss_weights': 'float32'}"
                    )
        return spans


def _first(value: float | None, default: float) -> float:
    return default if value is None else value


def _refuse_weights(turns: Sequence[ChatTurn], why: str, zero: bool = False) -> None:
    allowed = (None, 0.0) if zero else (None, 1.0)
    for turn in turns:
        if turn.weight not in allowed:
            raise BadChat(
                f"a message of the role {turn.role!r} has the weight {turn.weight:g}, but {why}; "
                "leave the weight out, or pass another train_on"
            )


def _refuse_left_out(turns: Sequence[ChatTurn], text: str) -> None:
    """Refuse a message that the template skips without a word.

    Templates do so with roles that they do not know, and those for images with contents that are
    no lists. What tools say is often written as JSON, and reasoning may be left out by design.
    """
    for number, turn in enumerate(turns):
        content = turn.message.get("content", "").rpartition("</think>")[2].strip()
        if turn.role not in ENCODED_ROLES and content not in text:
            raise BadChat(
                f"message {number} has the role {turn.role!r}, and the chat template leaves its "
                f"content out ({content[:40]!r}); allowed: roles and contents that the template "
                "writes. Rename the role with transform, or give another chat_template"
            )


def _marked(
    turns: Sequence[ChatTurn], whole: Rendered, weights: Mapping[int, float], prompt: int
) -> list[Span]:
    """The generation blocks; each is a turn of the assistant, if turns must be told apart."""
    every = [k for k, turn in enumerate(turns) if turn.role == ASSISTANT]
    after = [k for k in every if k >= prompt]
    if set(weights) == set(after) and set(weights.values()) == {1.0}:
        return [(start, stop, 1.0) for start, stop in whole.generated]
    if len(whole.generated) != len(every):
        raise BadChat(
            f"the chat template has {len(whole.generated)} generation blocks for {len(every)} "
            "turns of the assistant, so weights and train_on='last' cannot be applied; allowed: "
            "one block for each turn"
        )
    blocks = dict(zip(every, whole.generated, strict=True))
    return [(*blocks[k], weight) for k, weight in weights.items()]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """One conversation and what renders it."""

    turns: Sequence[ChatTurn]
    template: ChatTemplate
    tools: list[Any] | None
    variables: Mapping[str, Any]

    def render(self, count: int, *, prompt: bool = False) -> Rendered:
        """The text of the first `count` messages."""
        return self.template.render(
            [turn.message for turn in self.turns[:count]],
            tools=self.tools,
            add_generation_prompt=prompt,
            variables=self.variables,
        )

    def beginning(self, count: int, text: str) -> int:
        """Characters of the first messages with the generation prompt, as they begin the text."""
        return self._is_beginning(self.render(count, prompt=True).text, text, count, "before")

    def characters_of(self, turn: int, text: str) -> tuple[int, int]:
        """The characters that a turn of the assistant adds."""
        start = self.beginning(turn, text)
        if turn + 1 == len(self.turns):
            return start, len(text)
        stop = self._is_beginning(self.render(turn + 1).text, text, turn, "up to the end of")
        return start, max(start, stop)

    def _is_beginning(self, head: str, text: str, turn: int, where: str) -> int:
        if text.startswith(head):
            return len(head)
        at = next(
            (n for n, (a, b) in enumerate(zip(head, text, strict=False)) if a != b), len(text)
        )
        raise BadChat(
            f"message {turn} ({self.turns[turn].role}): what the chat template writes for the "
            f"messages {where} it is not the beginning of what it writes for all of them: "
            f"{head[at : at + 30]!r} instead of {text[at : at + 30]!r} at character {at}, so it "
            "is unclear which text is the assistant's. Give a chat_template with "
            "{% generation %} blocks, or pass train_on='all'"
        )


# -- the messages of a record --------------------------------------------------------------
def read_turns(value: Any, key: str, *, shared: bool = False) -> list[ChatTurn]:
    """The messages under a key.

    Args:
        value: a list of messages.
        key: its name, for messages to people.
        shared: messages have ``from`` and ``value`` instead of ``role`` and ``content``.

    Raises:
        BadChat: the first message that cannot be rendered, with its number from 0.

    >>> [turn.role for turn in read_turns([{"role": "user", "content": "Hi"}], "messages")]
    ['user']
    """
    if not isinstance(value, list | tuple):
        raise BadChat(f"{key!r} is {a_kind(value)}, allowed: a list of messages")
    if not value:
        raise BadChat(f"{key!r} is empty, allowed: at least one message")
    return [_turn(one, f"message {n} of {key!r}", shared) for n, one in enumerate(value)]


def _turn(given: Any, where: str, shared: bool) -> ChatTurn:
    if not isinstance(given, Mapping):
        raise BadChat(f"{where} is {a_kind(given)}, allowed: an object with 'role' and 'content'")
    # as transformers does: many templates write "None" for a key that is there and null
    message = {key: plain(item, where) for key, item in given.items() if item is not None}
    if shared and "role" not in message:
        message = _renamed(message)
    weight = _weight(message.pop("weight", None), message.pop("train", None), where)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise BadChat(f"{where} has the role {role!r}, allowed: a name such as 'user'")
    _check_content(message, f"{where} ({role})")
    reasoning = next((message[name] for name in REASONING if name in message), None)
    if reasoning is not None:
        message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    return ChatTurn(message=message, weight=weight)


def _renamed(message: Message) -> Message:
    role = message.pop("from", None)
    content = message.pop("value", None)
    named = {"role": SHARED.get(role, role) if isinstance(role, str) else role}
    return {**named, **({} if content is None else {"content": content}), **message}


def _check_content(message: Message, where: str) -> None:
    content = message.get("content")
    if isinstance(content, list):
        kinds = {str(one.get("type")) if isinstance(one, dict) else a_kind(one) for one in content}
        raise BadChat(
            f"the content of {where} is a list of parts ({', '.join(sorted(kinds)) or 'empty'}), "
            "allowed: a string. Images and sounds cannot be kept in a store of tokens; join parts "
            "of text with transform"
        )
    if content is None:
        if message["role"] != ASSISTANT or not (set(message) & {"tool_calls", *REASONING}):
            raise BadChat(f"{where} has no content, allowed: a string (null beside tool_calls)")
    elif not isinstance(content, str):
        raise BadChat(f"the content of {where} is {a_kind(content)}, allowed: a string")


def _weight(weight: Any, train: Any, where: str) -> float | None:
    if train is not None and not isinstance(train, bool):
        raise BadChat(f"the 'train' of {where} is {train!r:.40}, allowed: true or false")
    if weight is None:
        return None if train is None else float(train)
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not number or not (weight == 0 or 1e-38 <= weight <= 1e38) or not math.isfinite(weight):
        raise BadChat(f"the 'weight' of {where} is {weight!r:.40}, allowed: 0, or 1e-38 to 1e38")
    if train is not None and train != (weight > 0):
        raise BadChat(f"the 'weight' and the 'train' of {where} disagree; leave one out")
    return float(weight)


def read_tools(value: Any) -> list[Any] | None:
    """The schemas of a record's tools: a list, or JSON text of one, as datasets keep them."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadChat(
                f"'tools' is not valid JSON ({error!s:.100}), allowed: a list of objects"
            ) from None
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(one, Mapping) for one in value):
        raise BadChat(f"'tools' is {a_kind(value)}, allowed: a list of objects, each a schema")
    return [plain(one, "'tools'") for one in value] or None


def plain(value: Any, where: str) -> Any:
    """The same as plain JSON data; what is none is refused."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, where) for item in value]
    listed = getattr(value, "tolist", None)  # arrays and numbers of NumPy
    if listed is not None:
        return plain(listed(), where)
    raise BadChat(f"{where} holds a {a_kind(value)}, allowed: text, numbers, lists and objects")


def texts_of(value: Any) -> list[str]:
    """Every text in plain data, keys left out."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for one in value for text in texts_of(one)] if isinstance(value, list) else []


def refuse_spelled(value: Any, specials: re.Pattern[str] | None, where: str) -> None:
    """Refuse data that spells a special token: the template's own could not be told apart."""
    if specials is None:
        return
    for text in texts_of(value):
        found = specials.search(text)
        if found is not None:
            raise BadChat(
                f"{where} spells the special token {found[0]!r}, which would become that token in "
                "the middle of the conversation; allowed: text without special tokens. Clean it, "
                "or pass parse_special=True to accept it, as transformers does"
            )


def a_kind(value: Any) -> str:
    """What a value is, in a word."""
    return "null" if value is None else type(value).__name__
