"""A tokenizer as plain data: what a build needs from it, without the library that made it.

The one idea: whatever a user passes (a file, a name, an object of one of four libraries, a
function) is converted *once*, in the parent process, into a :class:`TokenizerSpec`: a few integers
and the bytes from which another process can recreate the same tokenizer. Nothing is downloaded, no
code of a model repository runs, and 0 is an id like any other: only ``None`` means absent.

=============  ==============================================  ===================================
kind           given as                                        payload
=============  ==============================================  ===================================
bytes          ``"bytes"``: ids 0–255 are the UTF-8 bytes      none
tokenizers     a tokenizer.json, its directory, a              tokenizer.json (of a file: its
               ``tokenizers.Tokenizer``, a fast transformers   bytes as they are)
               tokenizer, the name of one in the local cache
tiktoken       a ``tiktoken.Encoding``, ``"tiktoken:NAME"``    JSON: name, pattern, ranks, specials
sentencepiece  a .model file, a ``SentencePieceProcessor``     the model file
callable       a function text → ids, ``"module:function"``    none: ``reference`` names it
=============  ==============================================  ===================================

``find.py`` finds the tokenizer, ``payloads.py`` converts between payloads and library objects,
``encoders.py`` turns text into ids according to a spec.
"""

from __future__ import annotations

import enum
import hashlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, Literal, TypeAlias

from tokenloom.arguments import check_between, one_of
from tokenloom.errors import ConfigError, TokenizerError, near_miss
from tokenloom.tokenizer.find import Found, LiveCallable, find

KINDS: Final = ("bytes", "tokenizers", "tiktoken", "sentencepiece", "callable")

MAX_VOCAB: Final = 2**31  # batches are int32, so an id of 2^31 or more does not fit


class _Unset(enum.Enum):
    """The type of UNSET, an enum so that type checkers can narrow it."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = _Unset.UNSET

"""Default of ``bos``, ``eos`` and ``pad``: use what the tokenizer declares."""

Special: TypeAlias = int | str | Literal[_Unset.UNSET] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSpec:
    """One tokenizer, as data that another process can use.

    Attributes:
        kind: One of ``KINDS``.
        name: Display name: a file name or an encoding name, never an absolute path.
        vocab_size: Largest id + 1, including added tokens.
        bos: Id of the beginning-of-sequence token, None if there is none. Roles may share an id.
        eos: Id of the end-of-sequence token, None if there is none.
        pad: Id of the padding token, None if there is none.
        payload: The bytes that recreate the tokenizer; empty for bytes and callable.
        reference: ``"module:qualname"`` of a callable that another process can import.

    >>> TokenizerSpec(kind="bytes", name="bytes", vocab_size=256).describe()["vocab_size"]
    256
    """

    kind: str
    name: str
    vocab_size: int
    bos: int | None = None
    eos: int | None = None
    pad: int | None = None
    payload: bytes = b""
    reference: str | None = None

    def __post_init__(self) -> None:
        one_of("tokenizer.kind", self.kind, KINDS)
        check_between("tokenizer.vocab_size", self.vocab_size, 1, MAX_VOCAB, unit="ids")
        for role, special in (("bos", self.bos), ("eos", self.eos), ("pad", self.pad)):
            if special is not None and not 0 <= special < self.vocab_size:
                raise ConfigError(
                    f"tokenizer.{role}: {special} is not an id of {self.name!r}, whose ids are 0 "
                    f"to {self.vocab_size - 1}. Give one of those, a token's text, or None."
                )

    @property
    def sha256(self) -> str:
        """Hash of kind and payload; for a callable, also of its reference (or its name)."""
        digest = hashlib.sha256(self.kind.encode() + b"\0" + self.payload)
        if self.kind == "callable":
            digest.update((self.reference or self.name).encode())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """The spec as plain JSON, without the payload; :func:`rebuild` is the inverse."""
        return {
            "kind": self.kind,
            "name": self.name,
            "vocab_size": self.vocab_size,
            "bos": self.bos,
            "eos": self.eos,
            "pad": self.pad,
            "sha256": self.sha256,
        }


def rebuild(description: Mapping[str, Any], payload: bytes = b"") -> TokenizerSpec:
    """The spec with this ``describe()`` and payload.

    The name of an importable callable is its reference, so a description restores that too; nothing
    is imported here.

    Raises:
        TokenizerError: The payload does not match the description.
    """
    fields = {key: value for key, value in description.items() if key != "sha256"}
    if fields["kind"] == "callable" and ":" in fields["name"]:
        fields.setdefault("reference", fields["name"])
    spec = TokenizerSpec(**fields, payload=payload)
    if spec.sha256 != description["sha256"]:
        raise TokenizerError(
            f"tokenizer {spec.name!r}: its payload has sha256 {spec.sha256}, the description says "
            f"{description['sha256']}. Give the payload that belongs to this description."
        )
    return spec


def resolve(
    tokenizer: str | PathLike[str] | object,
    *,
    vocab_size: int | None = None,
    bos: Special = UNSET,
    eos: Special = UNSET,
    pad: Special = UNSET,
) -> tuple[TokenizerSpec, LiveCallable | None]:
    """The spec of a tokenizer in any accepted form, and its callable if only this process has it.

    Args:
        tokenizer: See the table in the module docstring. A string is tried, in this order, as an
            existing path, ``"bytes"``, ``"tiktoken:NAME"``, ``"module:function"``, a transformers
            tokenizer in the local Hugging Face cache, a tiktoken encoding in its local cache.
        vocab_size: Required for a callable. Otherwise it may only enlarge the tokenizer's own.
        bos: Id or text of the token, None to declare it absent, ``UNSET`` to use the tokenizer's.
        eos: Likewise.
        pad: Likewise.

    Returns:
        The spec, and None; or, for a callable that no other process can import (a lambda, a
        closure, something in ``__main__``, a bound method), the spec and the callable itself.

    Raises:
        TokenizerError: No usable tokenizer was found; the message lists what was tried.
        ConfigError: An invalid argument.

    >>> spec, live = resolve("bytes", eos=0)
    >>> spec.vocab_size, spec.bos, spec.eos, live
    (256, None, 0, None)
    """
    found = find(tokenizer)
    return TokenizerSpec(
        kind=found.kind,
        name=found.name,
        vocab_size=_vocab_size(found, vocab_size),
        bos=_special(found, "bos", bos),
        eos=_special(found, "eos", eos),
        pad=_special(found, "pad", pad),
        payload=found.payload,
        reference=found.reference,
    ), found.live


def _vocab_size(found: Found, given: int | None) -> int:
    if given is None:
        if found.vocab_size is None:
            raise ConfigError(
                f"vocab_size: missing for the callable tokenizer {found.name!r}, and it cannot be "
                "read from a function. Give the number of its ids, e.g. vocab_size=50257."
            )
        return found.vocab_size
    if found.vocab_size is not None and given < found.vocab_size:
        raise ConfigError(
            f"vocab_size: {given} is less than the {found.vocab_size} ids of {found.name!r}. "
            "Leave it out, or give a larger number to reserve room."
        )
    return given


def _special(found: Found, role: Literal["bos", "eos", "pad"], given: Special) -> int | None:
    """The id for a role; the spec checks its range."""
    if given is UNSET:
        given = found.specials.get(role)
        if isinstance(given, str):  # declared as text in a file next to the tokenizer
            special = found.token_id(given)
            if special is None:
                raise TokenizerError(
                    f"tokenizer {found.name!r}: its configuration names {given!r} as {role}_token, "
                    "which is not in its vocabulary. Pass an id, a token's text or None as "
                    f"{role}, or load it with transformers, which adds the token, and pass that "
                    "object."
                )
            return special
    if given is None:
        return None
    if isinstance(given, str):
        special = found.token_id(given)
        if special is None:
            known = f" Its special tokens: {', '.join(found.known)}." if found.known else ""
            raise ConfigError(
                f"{role}: {given!r} is not a token of {found.name!r}.{known} "
                f"Give an id, the text of a token, or None.{near_miss(given, found.known)}"
            )
        return special
    if isinstance(given, bool):
        raise ConfigError(f"{role}: {given} is not a token id. Give an integer, a text or None.")
    try:
        return operator.index(given)
    except TypeError:
        raise ConfigError(
            f"{role}: {given!r} is not a token id. Give an integer, a text or None."
        ) from None
