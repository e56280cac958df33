"""A tokenizer as plain data: what a build needs of it, without the library that made it.

The one idea: whatever a user holds (a file, a name, an object of four libraries, a function) is
turned *once*, in the parent process, into a :class:`TokenizerSpec`: a few integers and the bytes
from which the same tokenizer is made again elsewhere. Nothing is downloaded, no code of a model
repository runs, and an id of 0 is as good as any other: only ``None`` means absent.

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

``lookup.py`` finds what was meant, ``payloads.py`` goes between payloads and library objects,
``encoders.py`` turns a spec into ids.
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

__all__ = [
    "KINDS",
    "MAX_VOCAB",
    "UNSET",
    "LiveCallable",
    "Special",
    "TokenizerSpec",
    "rebuild",
    "resolve",
]

KINDS: Final = ("bytes", "tokenizers", "tiktoken", "sentencepiece", "callable")

MAX_VOCAB: Final = 2**31  # batches are int32, so an id of 2^31 or more has no place


class _Unset(enum.Enum):
    """The type of UNSET, an enum so that type checkers can narrow it."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = _Unset.UNSET

"""Default of ``bos``, ``eos`` and ``pad``: use what the tokenizer says of itself."""

Special: TypeAlias = int | str | Literal[_Unset.UNSET] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSpec:
    """One tokenizer, as data that another process can work from.

    Attributes:
        kind: One of ``KINDS``.
        name: What people call it: a file name or an encoding name, never an absolute path.
        vocab_size: Every id is below it; added tokens are counted (largest id + 1).
        bos: Id of the beginning-of-sequence token, None if there is none. Roles may share an id.
        eos: Id of the end-of-sequence token, None if there is none.
        pad: Id of the padding token, None if there is none.
        payload: The bytes that make the tokenizer; empty for bytes and callable.
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
                    f"tokenizer.{role}: {special} is not an id of {self.name!r}: its ids are 0 to "
                    f"{self.vocab_size - 1}. Give one of those, a token's text, or None for none."
                )

    @property
    def sha256(self) -> str:
        """Hash of kind and payload; of a callable, the hash of its reference (or its name)."""
        digest = hashlib.sha256(self.kind.encode() + b"\0" + self.payload)
        if self.kind == "callable":
            digest.update((self.reference or self.name).encode())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """The spec as plain JSON, without the payload; :func:`rebuild` is the way back."""
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
    """The spec whose ``describe()`` is given, together with its payload.

    A callable that others can import is named by its reference, so a description brings that back
    too; nothing is imported here.

    Raises:
        TokenizerError: The payload is not the one that was described.
    """
    fields = {key: value for key, value in description.items() if key != "sha256"}
    if fields["kind"] == "callable" and ":" in fields["name"]:
        fields.setdefault("reference", fields["name"])
    spec = TokenizerSpec(**fields, payload=payload)
    if spec.sha256 != description["sha256"]:
        raise TokenizerError(
            f"tokenizer {spec.name!r}: its payload has sha256 {spec.sha256}, described is "
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
    """A tokenizer in any accepted form as a spec, and its callable if only this process has it.

    Args:
        tokenizer: See the table at the head of this module. A bare name is, in this order: an
            existing path, ``"bytes"``, ``"tiktoken:NAME"``, ``"module:function"``, a transformers
            tokenizer in the local Hugging Face cache, a tiktoken encoding in its local cache.
        vocab_size: Needed for a callable. Otherwise it may only enlarge what the tokenizer has.
        bos: Id or text of the token, None to declare it absent, ``UNSET`` to use the tokenizer's.
        eos: Likewise.
        pad: Likewise.

    Returns:
        The spec, and None; or, for a callable that no other process can import (a lambda, a
        closure, something of ``__main__``, a bound method), the callable itself.

    Raises:
        TokenizerError: Nothing usable is there; the message lists what was tried.
        ConfigError: an argument is invalid.

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
                f"vocab_size: missing for the callable tokenizer {found.name!r}, and a function "
                "cannot be asked. Give the number of its ids, e.g. vocab_size=50257."
            )
        return found.vocab_size
    if found.vocab_size is not None and given < found.vocab_size:
        raise ConfigError(
            f"vocab_size: {given} is less than the {found.vocab_size} ids of {found.name!r}. "
            "Leave it out, or give a larger one to leave room."
        )
    return given


def _special(found: Found, role: Literal["bos", "eos", "pad"], given: Special) -> int | None:
    """The id for a role; its range is checked by the spec."""
    if given is UNSET:
        given = found.specials.get(role)
        if isinstance(given, str):  # declared beside the tokenizer, as text
            special = found.token_id(given)
            if special is None:
                raise TokenizerError(
                    f"tokenizer {found.name!r}: its configuration names {given!r} as {role}_token, "
                    f"which is not in its vocabulary. Pass {role}= an id, a token's text or None, "
                    "or load it with transformers, which adds the token, and pass that object."
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
                f"Give an id, the text of a token, or None for none.{near_miss(given, found.known)}"
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
