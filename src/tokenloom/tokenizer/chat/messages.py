"""The messages of a record, checked: roles, contents, weights, tools.

One idea: whatever a template would print wrongly without a word is refused before it is rendered.
A content that is a list (parts of text, images) would be printed as Python writes a list; a date
would become a placeholder; a message that spells a special token would become that token, and end
a turn in the middle. What a template gets is plain JSON data.

A message may say how much its turn counts: ``"weight": 0.5`` (as OpenAI has it; any number from 0
on), or ``"train": false``. Both are about the loss and never reach the template.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "BadChat",
    "ChatTurn",
    "a_kind",
    "plain",
    "read_tools",
    "read_turns",
    "refuse_spelled",
    "texts_of",
]

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
