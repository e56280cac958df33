"""Finds the tokenizer that a user means, given as a path, a name, an object or a function.

Every form ends in one :class:`Found` record. Two rules always hold: nothing is fetched from a
network, and no code of a model repository runs (a cached repository that needs its own code is read
as data if it has a tokenizer.json, and refused otherwise). Objects are recognised without importing
their libraries: a caller who holds one has already imported it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

from tokenloom.arguments import import_reference, reference_of
from tokenloom.errors import ConfigError, MissingExtra, TokenizerError, choices, near_miss
from tokenloom.tokenizer.payloads import (
    open_sentencepiece,
    open_tokenizers,
    tiktoken_payload,
    tokenizers_payload,
)

LiveCallable: TypeAlias = Callable[[str], Sequence[int]]

# Names of special tokens in published tokenizers, the likelier first.
USUAL_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "bos": (
        *("<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<|startoftext|>", "<|bos|>", "<BOS>"),
        *("<|begin_of_sentence|>", "<｜begin▁of▁sentence｜>"),
    ),
    "eos": (
        *("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "[EOS]", "<|eos|>", "<EOS>"),
        *("<|end_of_sentence|>", "<｜end▁of▁sentence｜>"),
    ),
    "pad": (
        *("<pad>", "<|pad|>", "[PAD]", "<PAD>", "<|padding|>", "<|finetune_right_pad_id|>"),
        "<｜▁pad▁｜>",
    ),
}

_OPENAI: Final = "https://openaipublic.blob.core.windows.net/"

# Files of tiktoken's own encodings. It caches each under the sha1 of its URL, which tells whether
# an encoding is available without the network. The URLs are hashed, never fetched.
_TIKTOKEN_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "gpt2": ("gpt-2/encodings/main/vocab.bpe", "gpt-2/encodings/main/encoder.json"),
    "r50k_base": ("encodings/r50k_base.tiktoken",),
    "p50k_base": ("encodings/p50k_base.tiktoken",),
    "p50k_edit": ("encodings/p50k_base.tiktoken",),
    "cl100k_base": ("encodings/cl100k_base.tiktoken",),
    "o200k_base": ("encodings/o200k_base.tiktoken",),
    "o200k_harmony": ("encodings/o200k_base.tiktoken",),
}

_ALLOWED: Final = (
    "Allowed: a tokenizer.json or its directory, a SentencePiece .model file, 'bytes', "
    "'tiktoken:NAME', 'module:function', the name of a transformers tokenizer or tiktoken encoding "
    "that is already on this machine (nothing is downloaded), a tokenizer object, or a function."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A tokenizer as it was found, before the user's own settings are applied.

    Attributes:
        kind: As in ``TokenizerSpec``; so are name, payload and reference.
        vocab_size: Largest id + 1, None if unknown (callables).
        specials: Role → id, token text (declared in a file next to the tokenizer), or None.
        token_id: Looks up the id of a token by its text.
        known: Texts of special tokens, for error messages.
        live: The callable, if no other process can import it.
    """

    kind: str
    name: str
    vocab_size: int | None
    payload: bytes = b""
    reference: str | None = None
    specials: Mapping[str, int | str | None]
    token_id: Callable[[str], int | None]
    known: tuple[str, ...] = ()
    live: LiveCallable | None = None


def find(tokenizer: object) -> Found:
    """What is known about a tokenizer, given in any accepted form."""
    if isinstance(tokenizer, str):
        return _from_string(tokenizer)
    if isinstance(tokenizer, os.PathLike):
        return _from_path(Path(os.fspath(tokenizer)))
    if _is_a(tokenizer, "tokenizers", "Tokenizer"):
        return _from_tokenizers(tokenizers_payload(tokenizer, "Tokenizer"), "Tokenizer", {})
    if _is_a(tokenizer, "transformers.tokenization_utils_base", "PreTrainedTokenizerBase"):
        return _from_transformers(tokenizer)
    if _is_a(tokenizer, "tiktoken", "Encoding"):
        return _from_tiktoken(tokenizer)
    if _is_a(tokenizer, "sentencepiece", "SentencePieceProcessor"):
        return _from_sentencepiece(_model_bytes(tokenizer), "SentencePieceProcessor")
    if callable(tokenizer):
        return _from_callable(tokenizer)
    raise ConfigError(f"tokenizer: {tokenizer!r} is none of the accepted forms. {_ALLOWED}")


def function_of(reference: str) -> LiveCallable:
    """The function that ``"module:qualname"`` names."""
    try:
        target = import_reference(reference)
    except ImportError as problem:
        raise TokenizerError(
            f"tokenizer {reference!r}: cannot be imported ({problem}). Give 'module:function' from "
            "a module that every worker process can import."
        ) from problem
    if not callable(target):
        raise TokenizerError(
            f"tokenizer {reference!r}: is a {type(target).__name__}. Name a function text → ids."
        )
    function: LiveCallable = target
    return function


def _is_a(thing: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name, ()))


# ------------------------------------------------------------------------------- names and paths
def _from_string(text: str) -> Found:
    if not text:  # as a path, it would be the working directory
        raise ConfigError(f"tokenizer: found ''. {_ALLOWED}")
    path = Path(text).expanduser()
    if path.is_file() or (path / "tokenizer.json").is_file():
        return _from_path(path)
    if text == "bytes":
        return Found(
            kind="bytes", name="bytes", vocab_size=256, specials={}, token_id=lambda _: None
        )
    if text.startswith("tiktoken:"):
        return _from_tiktoken_name(text.removeprefix("tiktoken:"))
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        return _from_callable(function_of(text), reference=text)
    if path.is_dir() or path.suffix in (".json", ".model") or text.startswith((".", "/", "~")):
        return _from_path(path)  # raises: nothing usable exists, and the error is about paths
    tried = ["no such path"]
    for attempt in (_from_cached_name, _from_tiktoken_name):
        try:
            return attempt(text)
        except (TokenizerError, MissingExtra) as problem:
            tried.append(str(problem))
    listed = "\n".join(f"  - {line}" for line in tried)
    hint = near_miss(text, ["bytes"])
    raise TokenizerError(f"tokenizer {text!r}: not found. Tried:\n{listed}\n{_ALLOWED}{hint}")


def _from_path(path: Path) -> Found:
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            there = sorted(entry.name for entry in path.iterdir())[:8]
            raise TokenizerError(
                f"{path}: has no tokenizer.json (it contains {', '.join(there) or 'nothing'}). "
                "Give the file itself, or save a fast tokenizer there with save_pretrained."
            )
        return _from_directory(path, path.resolve().name)
    if not path.is_file():
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = near_miss(path.name, beside)
        raise TokenizerError(f"{path}: no such file or directory. {_ALLOWED}{hint}")
    if path.name == "tokenizer.json":
        return _from_directory(path.parent, path.name)
    if path.suffix == ".json":
        return _from_tokenizers(path.read_bytes(), path.name, {})
    if path.suffix == ".model":
        return _from_sentencepiece(path.read_bytes(), path.name)
    raise TokenizerError(
        f"{path}: a tokenizer file ends in .json (Hugging Face tokenizers) or .model "
        f"(SentencePiece), not in {path.suffix or 'nothing'!r}. Rename or convert it."
    )


def _from_directory(folder: Path, name: str) -> Found:
    """A tokenizer.json together with what the files next to it say about special tokens."""
    declared: dict[str, int | str | None] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):  # the second one wins
        beside = read_settings(folder / file)
        for role in USUAL_NAMES:
            if f"{role}_token" in beside:
                token = beside[f"{role}_token"]
                declared[role] = token["content"] if isinstance(token, dict) else token
    return _from_tokenizers((folder / "tokenizer.json").read_bytes(), name, declared)


def _from_cached_name(name: str) -> Found:
    """A transformers tokenizer from the local Hugging Face cache."""
    if find_spec("transformers") is None or find_spec("huggingface_hub") is None:
        raise MissingExtra("a transformers tokenizer by name", "transformers", "hf")
    files = ("tokenizer.json", "tokenizer_config.json", "config.json")
    paths = {file: path for file in files if (path := cached_file(name, file)) is not None}
    if not paths:
        raise TokenizerError("not in the local Hugging Face cache (transformers)")
    configs = [read_settings(path) for file, path in paths.items() if file != "tokenizer.json"]
    reason = "it needs code from its repository, which is never run"
    if not any("auto_map" in config for config in configs):
        from transformers import AutoTokenizer

        try:
            return _from_transformers(AutoTokenizer.from_pretrained(name, local_files_only=True))
        except (OSError, ValueError, ImportError) as problem:
            reason = " ".join(str(problem).split())[:200]
    if "tokenizer.json" in paths:  # usable as data, without its class
        return _from_directory(paths["tokenizer.json"].parent, name)
    raise TokenizerError(f"in the local Hugging Face cache, but unusable: {reason}")


def _from_tiktoken_name(name: str) -> Found:
    try:
        import tiktoken
    except ImportError:
        raise MissingExtra(f"the encoding {name!r}", "tiktoken", "build") from None
    names = tiktoken.list_encoding_names()
    if name not in names:
        raise TokenizerError(
            f"no tiktoken encoding is named {name!r}; available: {choices(name, names)}"
        )
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    for file in _TIKTOKEN_FILES.get(name, ()):  # encodings of plug-ins bring their own files
        key = hashlib.sha1((_OPENAI + file).encode(), usedforsecurity=False).hexdigest()
        if not folder or not os.path.exists(os.path.join(folder, key)):
            raise TokenizerError(
                f"the tiktoken encoding {name!r} is not in tiktoken's cache (TIKTOKEN_CACHE_DIR) "
                f"and tokenloom downloads nothing: call tiktoken.get_encoding({name!r}) once on a "
                "machine with network access, or pass the Encoding object"
            )
    return _from_tiktoken(tiktoken.get_encoding(name))


# --------------------------------------------------------------------------- objects of libraries
def _from_tokenizers(payload: bytes, name: str, declared: Mapping[str, int | str | None]) -> Found:
    tokenizer = open_tokenizers(payload, name)
    added = tokenizer.get_added_tokens_decoder()
    special = {token.content: index for index, token in added.items() if token.special}
    ids = tokenizer.get_vocab(with_added_tokens=True).values()
    return Found(
        kind="tokenizers",
        name=name,
        vocab_size=max(ids, default=0) + 1,
        payload=payload,
        specials={**_usual(special), **declared},
        token_id=tokenizer.token_to_id,
        known=tuple(special),
    )


def _from_transformers(tokenizer: Any) -> Found:
    given = str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
    # A path becomes its last part; the name of a repository ("owner/name") stays whole.
    name = Path(given).name if os.path.isabs(given) or os.path.exists(given) else given
    specials = {role: getattr(tokenizer, f"{role}_token_id", None) for role in USUAL_NAMES}
    if getattr(tokenizer, "is_fast", False):
        return _from_tokenizers(
            tokenizers_payload(tokenizer.backend_tokenizer, name), name, specials
        )
    vocabulary: dict[str, int] = tokenizer.get_vocab()

    def encode(text: str) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=True
        )
        return ids

    return Found(
        kind="callable",
        name=name,
        vocab_size=max(vocabulary.values(), default=0) + 1,
        specials=specials,
        token_id=vocabulary.get,
        known=tuple(tokenizer.all_special_tokens),
        live=encode,
    )


def _from_tiktoken(encoding: Any) -> Found:
    special: dict[str, int] = dict(encoding._special_tokens)
    return Found(
        kind="tiktoken",
        name=encoding.name,
        vocab_size=encoding.max_token_value + 1,
        payload=tiktoken_payload(encoding),
        specials=_usual(special),
        token_id=lambda text: special.get(text, encoding._mergeable_ranks.get(text.encode())),
        known=tuple(special),
    )


def _model_bytes(processor: Any) -> bytes:
    payload: bytes = processor.serialized_model_proto()
    if not payload:
        raise TokenizerError("tokenizer: a SentencePieceProcessor without a model. Load one first.")
    return payload


def _from_sentencepiece(payload: bytes, name: str) -> Found:
    model = open_sentencepiece(payload, name)
    size = model.get_piece_size()

    def token_id(text: str) -> int | None:
        index: int = model.piece_to_id(text)  # the id of <unk> for anything unknown
        return index if model.id_to_piece(index) == text else None

    ids = {"bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id()}
    return Found(
        kind="sentencepiece",
        name=name,
        vocab_size=size,
        payload=payload,
        specials={role: index if index >= 0 else None for role, index in ids.items()},
        token_id=token_id,
        known=tuple(model.id_to_piece(i) for i in range(size) if model.is_control(i)),
    )


def _from_callable(function: Callable[..., Any], reference: str | None = None) -> Found:
    if reference is None:
        reference = reference_of(function)
    return Found(
        kind="callable",
        name=reference or str(getattr(function, "__qualname__", type(function).__name__)),
        vocab_size=None,
        reference=reference,
        specials={},
        token_id=lambda _: None,
        live=function if reference is None else None,
    )


def _usual(special: Mapping[str, int]) -> dict[str, int | str | None]:
    """The special tokens whose names reveal their role."""
    return {role: _first(special, names) for role, names in USUAL_NAMES.items()}


def _first(special: Mapping[str, int], names: Iterable[str]) -> int | None:
    return next((special[name] for name in names if name in special), None)


def read_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file.

    Raises:
        TokenizerError: the file is not JSON.

    >>> read_settings(Path("nowhere/tokenizer_config.json"))
    {}
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as problem:
        raise TokenizerError(f"{path}: is not JSON ({problem}). Repair or remove it.") from None
    return data if isinstance(data, dict) else {}


def cached_file(repository: str, file: str) -> Path | None:
    """Where a file of a repository is in the local Hugging Face cache; None: it is not there."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    hub = importlib.import_module("huggingface_hub")
    try:
        there = hub.try_to_load_from_cache(repository, file)
    except ValueError:  # not even a possible repository name
        return None
    return Path(there) if isinstance(there, str) else None
