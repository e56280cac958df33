r"""Faster encoders for a tokenizer.json, used where their ids equal those of the reference.

Two accelerators read the same file as ``tokenizers``: **tiktoken**, built here from the vocabulary
and merges (the default where possible), and **fastokens** (on demand). The guards of ``guard.py``
check both. Both are refused when special tokens are to be parsed: each library then treats
adjoining blanks and overlapping tokens in its own way, and the setting is rarely needed.

**Why tiktoken gives the same ids as tokenizers.** tokenizers merges a *pair* of symbols by the
pair's position in the merge list. tiktoken merges any two neighbours whose *concatenation* has a
rank, lowest first, and takes a whole word that has a rank without merging. The two are equal if

1. all 256 bytes are in the vocabulary, and every merge results in a token of it;
2. the merges that result in the same token are adjacent, and the token's rank is their position;
3. each of these tokens is what its own bytes become by *forward* merges alone, whose two sides
   have lower ranks than their result. (Vocabularies made from rank files list other merges too.)

Proof sketch. Forward merging goes up in rank, so a token T alone becomes its last two parts L, R
by ranks below its own. Take the first time that either library would merge neighbours L', R' of
concatenation T in any other way, that is, not forward, or after the rank of T has passed. No merge
has crossed the ends of this stretch, so inside it everything went as for T alone: if the rank of T
has passed, the stretch is already one token; if it is due, L' is L and R' is R. So there is no
first time. All three conditions are checked, hence ids agree for every word. What remains for the
guards is the cutting into words, which two regex engines do from one pattern. In general, ids are
not in merge order: tiktoken works with dense ranks (bytes, then merges), and an array maps a rank
to its id.

Cost in Mtok/CPU-s (MB), one thread, without guards, on Python sources not seen before: reference
0.4–0.5 (2), tiktoken 2.3–3.5 (9–14), fastokens 22–31 (84–130). Construction, in every worker: 0.5
CPU-s for 32,000 tokens, about 4 s for 200,000.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.errors import MissingExtra, TokenizerError
from tokenloom.tokenizer.decoders import BYTE_OF_SYMBOL
from tokenloom.tokenizer.encoders import (
    Encoded,
    Encoder,
    TextEncoder,
    installed_version,
    no_panic,
    reference_encoder,
    refuse_surrogates,
)
from tokenloom.tokenizer.find import LiveCallable
from tokenloom.tokenizer.guard import SAMPLE_RATE, EngineDisagrees, GuardedEncoder
from tokenloom.tokenizer.probes import ADVERSARIAL
from tokenloom.tokenizer.spec import TokenizerSpec

__all__ = ["ENGINES", "EngineDisagrees", "GuardedEncoder", "choose_engine"]

ENGINES: Final = ("auto", "reference", "tiktoken", "fast")

# The pattern that a ByteLevel pre-tokenizer uses when it has none of its own.
GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Unlike the reference, fastokens does not fold long s in (?i:'s) (seen with 0.3.5).
_FASTOKENS_SUSPICIOUS: Final = "\u017f"

_PROBED_TOKENS: Final = 4096


def choose_engine(
    spec: TokenizerSpec,
    engine: str = "auto",
    *,
    parse_special: bool = False,
    rate: float = SAMPLE_RATE,
    live: LiveCallable | None = None,
) -> tuple[Encoder, str | None]:
    """The encoder to build with, and why it is not accelerated (None if it is).

    Args:
        spec: The tokenizer.
        engine: ``auto`` (tiktoken where it gives the reference's ids, otherwise the reference),
            ``reference``, ``tiktoken`` or ``fast`` (fastokens); the last two never fall back.
        parse_special: Whether text that spells a special token becomes that token.
        rate: Share of documents that the guard encodes twice; 1 checks everything.
        live: The callable that ``resolve`` returned.

    Returns:
        A :class:`GuardedEncoder` for an accelerator, otherwise the reference encoder.

    Raises:
        TokenizerError: ``tiktoken`` or ``fast`` cannot give the reference's ids here.
        MissingExtra: ``tiktoken`` or ``fast`` is requested and not installed.

    >>> spec = TokenizerSpec(kind="bytes", name="bytes", vocab_size=256)
    >>> choose_engine(spec)[1]
    "a tokenizer of kind 'bytes' has no accelerator"
    """
    one_of("engine", engine, ENGINES)
    reference = reference_encoder(spec, parse_special=parse_special, live=live)
    if engine == "reference":
        return reference, "the reference encoder was requested"
    try:
        return _accelerate(spec, engine, parse_special, rate, reference), None
    except MissingExtra as missing:
        if engine != "auto":
            raise
        return reference, str(missing)
    except TokenizerError as problem:
        if engine == "auto":
            return reference, str(problem)
        raise TokenizerError(
            f"engine: {engine!r} cannot be used for {spec.name!r}: {problem}. "
            "Use engine='auto' or 'reference'."
        ) from problem


def _accelerate(
    spec: TokenizerSpec, engine: str, parse_special: bool, rate: float, reference: Encoder
) -> GuardedEncoder:
    if spec.kind != "tokenizers":
        raise TokenizerError(f"a tokenizer of kind {spec.kind!r} has no accelerator")
    if parse_special:
        raise TokenizerError("accelerators do not parse special tokens in text")
    data = json.loads(spec.payload)
    pattern = _split_pattern(data)
    fast = engine == "fast"
    return GuardedEncoder(
        fast=_fastokens(spec.payload) if fast else _tiktoken(data, pattern),
        reference=reference,
        rate=rate,
        suspicious=_FASTOKENS_SUSPICIOUS if fast else "",
        probes=(*ADVERSARIAL, *_own_probes(data)),
    )


def _own_probes(data: Mapping[str, Any]) -> Iterator[str]:
    """Texts made from the vocabulary: its special tokens in text, and its tokens end to end."""
    for token in data.get("added_tokens", ()):
        yield f"a{token['content']} b"
    vocabulary = sorted(data["model"]["vocab"])
    for tokens in (vocabulary[:: len(vocabulary) // _PROBED_TOKENS + 1], vocabulary[:256]):
        known = ("".join(symbols) for symbols in tokens if BYTE_OF_SYMBOL.keys() >= set(symbols))
        text = b"".join(bytes(BYTE_OF_SYMBOL[symbol] for symbol in word) for word in known)
        yield text.decode("utf-8", errors="ignore")


# -------------------------------------------------------------------------------- preconditions
def _split_pattern(data: Mapping[str, Any]) -> str:
    """The pattern by which a byte-level BPE cuts words.

    Raises:
        TokenizerError: No accelerator can be trusted with this tokenizer; says why.
    """
    reason = next(_objections(data), None)
    if reason is not None:
        raise TokenizerError(reason)
    steps = _pre_tokenizers(data)
    return GPT2_PATTERN if len(steps) == 1 else str(steps[0]["pattern"]["Regex"])


def _objections(data: Mapping[str, Any]) -> Iterator[str]:
    normalizer = data.get("normalizer")
    if normalizer is not None:
        yield f"it has a normalizer ({normalizer.get('type')}), and Unicode tables may differ"
    model = data.get("model", {})
    if model.get("type") != "BPE":
        yield f"its model is {model.get('type')}, not BPE"
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    for key in ("dropout", "unk_token", "byte_fallback", *affixes):
        if model.get(key):
            yield f"its model.{key} is {model[key]!r}"
    yield from _pre_tokenizer_objections(_pre_tokenizers(data))


def _pre_tokenizers(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    step = data.get("pre_tokenizer") or {}
    return list(step["pretokenizers"]) if step.get("type") == "Sequence" else [step]


def _pre_tokenizer_objections(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kinds = [step.get("type") for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        found = " + ".join(map(str, kinds))
        yield f"its pre_tokenizer is {found}, not ByteLevel or Split + ByteLevel"
        return
    if steps[-1].get("add_prefix_space", True):
        yield "its pre_tokenizer puts a space before the text (add_prefix_space)"
    if steps[-1].get("use_regex", True) != (len(steps) == 1):
        yield "its pre_tokenizer cuts by two patterns, or by none (use_regex)"
    if len(steps) == 2:
        split = steps[0]
        if split.get("behavior") != "Isolated" or split.get("invert"):
            yield (
                f"its Split has behavior {split.get('behavior')}, invert {split.get('invert')}; "
                "only Isolated, not inverted, keeps every character"
            )
        if "Regex" not in split.get("pattern", {}):
            yield "its Split uses a fixed string, not a regex"


def _merge_order(vocabulary: Mapping[str, int], pairs: Sequence[Sequence[str]]) -> dict[str, int]:
    """Dense ranks of the mergeable tokens: the bytes, then the results of merges in order.

    Worked example: merges "h e", "l l", "he ll" give "he" 256, "ll" 257 and "hell" 258.

    Raises:
        TokenizerError: Condition 1 or 2 in the module docstring does not hold.
    """
    order = {symbol: rank for rank, symbol in enumerate(BYTE_OF_SYMBOL)}
    for result, _ in groupby(pairs, key="".join):
        if result in order:
            raise TokenizerError(f"its merges that result in {result!r} are not adjacent")
        order[result] = len(order)
    missing = next((token for token in order if token not in vocabulary), None)
    if missing is not None:
        raise TokenizerError(f"its vocabulary lacks {missing!r}, a byte or the result of a merge")
    return order


def _refuse_unreachable(order: Mapping[str, int], pairs: Sequence[Sequence[str]]) -> None:
    """Refuses a merge list that violates condition 3."""
    from tokenizers.models import BPE

    last = len(order)
    forward = [
        (left, right)
        for left, right in pairs
        if max(order.get(left, last), order.get(right, last)) < order[left + right]
    ]
    model = BPE(vocab=dict(order), merges=forward)
    for token in order:
        if len(model.tokenize(token)) != 1:
            raise TokenizerError(f"its token {token!r} is not what its own bytes merge to")


def _refuse_shortcuts(data: Mapping[str, Any], order: Mapping[str, int]) -> None:
    """Refuses vocabularies in which text can become a token without any merge."""
    for token in data.get("added_tokens", ()):
        if not token["special"]:
            raise TokenizerError(
                f"its added token {token['content']!r} is not special, so it is found in text"
            )
    if data["model"].get("ignore_merges"):
        # Whole words are then looked up in the whole vocabulary, ranked or not.
        for token in sorted(data["model"]["vocab"].keys() - order.keys()):
            if BYTE_OF_SYMBOL.keys() >= set(token):
                raise TokenizerError(
                    f"its token {token!r} is a word without merges (ignore_merges)"
                )


# ---------------------------------------------------------------------------------- accelerators
@dataclass(frozen=True, kw_only=True, slots=True)
class RankEncoder:
    """The library tiktoken with dense ranks, each mapped to the id in the tokenizer.json."""

    ranker: TextEncoder
    ids: NDArray[np.uint32]
    token_bytes: NDArray[np.uint32]
    engine: str
    version: str

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of every text, in order.

        Raises:
            TokenizerError: Some bytes of a text are in no token, so the pattern has gaps: tiktoken
                drops what no word matches, and the reference keeps it.
        """
        ranks, lengths = self.ranker.encode(texts)
        # cast once: otherwise every `take` casts again, in small pieces
        places = ranks.astype(np.intp)
        utf8 = [len(text) if text.isascii() else len(text.encode()) for text in texts]
        if int(self.token_bytes.take(places).sum(dtype=np.int64)) != sum(utf8):
            raise TokenizerError("its pattern leaves parts of a text unmatched")
        return Encoded(self.ids.take(places), lengths)


def _tiktoken(data: Mapping[str, Any], pattern: str) -> RankEncoder:
    """An encoder with the speed of tiktoken and the ids of a tokenizer.json.

    Raises:
        TokenizerError: The ids could differ from those of tokenizers; says why.
        MissingExtra: tiktoken is not installed.
    """
    try:
        import tiktoken
    except ImportError:
        raise MissingExtra("the engine 'tiktoken'", "tiktoken", "build") from None
    vocabulary, merges = data["model"]["vocab"], data["model"]["merges"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    order = _merge_order(vocabulary, pairs)
    _refuse_shortcuts(data, order)
    _refuse_unreachable(order, pairs)
    ranks = {bytes(BYTE_OF_SYMBOL[s] for s in token): rank for token, rank in order.items()}
    try:
        encoding = tiktoken.Encoding(
            "from tokenizer.json", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )
    except ValueError as problem:
        raise TokenizerError(f"tiktoken cannot read its pattern ({problem})") from problem
    version = installed_version("tiktoken")
    return RankEncoder(
        ranker=TextEncoder(
            engine="tiktoken", version=version, encode_text=no_panic(encoding.encode_ordinary)
        ),
        ids=np.array([vocabulary[token] for token in order], np.uint32),
        token_bytes=np.array([len(token) for token in ranks], np.uint32),
        engine="tiktoken",
        version=version,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class FastokensEncoder:
    """The library fastokens, which encodes a whole batch into one buffer."""

    tokenizer: Any
    engine: str
    version: str

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of every text, in order."""
        refuse_surrogates(texts)
        ids, offsets = self.tokenizer.encode_batch_flat(
            list(texts), add_special_tokens=False, split_special_tokens=True
        )
        return Encoded(
            np.frombuffer(ids, "<u4"), np.diff(np.frombuffer(offsets, "<u8")).astype(np.int64)
        )


def _fastokens(payload: bytes) -> FastokensEncoder:
    """An encoder for a tokenizer.json that uses fastokens.

    It uses all cores of the machine; with several processes, set RAYON_NUM_THREADS=1 beforehand.

    Raises:
        TokenizerError: fastokens cannot read the tokenizer.json; says why.
        MissingExtra: fastokens is not installed.
    """
    try:
        import fastokens
    except ImportError:
        raise MissingExtra("the engine 'fast'", "fastokens", "fast") from None
    try:
        tokenizer = fastokens.Tokenizer.from_json_str(payload.decode("utf-8"))
    except (ValueError, RuntimeError, TypeError) as problem:
        raise TokenizerError(f"fastokens cannot read it ({problem})") from problem
    tokenizer.no_truncation()
    tokenizer.no_padding()
    version = installed_version("fastokens")
    return FastokensEncoder(tokenizer=tokenizer, engine="fastokens", version=version)
