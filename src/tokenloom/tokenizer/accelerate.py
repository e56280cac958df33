"""fastokens, a faster encoder for a tokenizer.json, where its ids equal those of tokenizers.

The reference, the library ``tokenizers``, defines the ids. The accelerator reads the same file and
is kept honest in three ways:

1. It is used for byte-level BPE without a normaliser alone (`_objections`), and never where special
   tokens are to be parsed: the libraries treat adjoining blanks and overlapping tokens each in
   their own way.
2. A text with one of `DIFFERENT` goes to the reference.
3. The first documents of a build and a keyed sample of the others are encoded twice. A difference
   raises `EngineDisagrees`, and the build stops with the name of the document.

Sampling finds gross errors and proves nothing, so engine and version belong in a store's
fingerprint, and ``rate=1`` encodes everything twice.

Cost in Mtok/CPU-s (MB), one thread, unchecked, on Python sources not seen before: reference 0.4–0.5
(2), fastokens 22–31 (84–130). A sample of 1/1000 costs about 1/1000 of the reference's time.
`python -m benchmarks build` prints what a build adds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import MissingExtra, TokenizerError
from tokenloom.tokenizer.encoders import (
    Encoded,
    Encoder,
    installed_version,
    reference_encoder,
    refuse_surrogates,
)
from tokenloom.tokenizer.spec import TokenizerSpec

SAMPLE_RATE: Final = 1 / 1000

# Characters on which fastokens 0.3.5 and tokenizers 0.23 cut words otherwise: of all code points,
# tried in eight contexts with the patterns of GPT-2, Llama 3, Qwen 2 and o200k, only the long s,
# which one of the two folds in (?i:'s).
DIFFERENT: Final = "\u017f"


class EngineDisagrees(TokenizerError):
    """The accelerator gave other ids than the reference for the text at `position` of a batch."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(position, message)
        self.position = position
        self.message = message

    def __str__(self) -> str:
        return self.message


def choose_engine(
    spec: TokenizerSpec,
    engine: str = "auto",
    *,
    parse_special: bool = False,
    rate: float = SAMPLE_RATE,
) -> tuple[Encoder, str | None]:
    """The encoder of a tokenizer.json to build with, and why it is not accelerated, if it is not.

    Args:
        spec: The tokenizer.
        engine: ``auto`` (fastokens where it can be trusted, otherwise the reference),
            ``reference``, or ``fast`` (fastokens, which never falls back).
        parse_special: Whether text that spells a special token becomes that token.
        rate: Share of documents that are encoded twice; 1 checks everything.

    Raises:
        TokenizerError: ``fast`` cannot be trusted with this tokenizer.
        MissingExtra: ``fast`` is requested and fastokens is not installed.

    >>> spec = TokenizerSpec(kind="bytes", name="bytes", vocab_size=256)
    >>> choose_engine(spec)[1]
    "a tokenizer of kind 'bytes' has no accelerator"
    """
    reference = reference_encoder(spec, parse_special=parse_special)
    if engine == "reference":
        return reference, "the reference encoder was requested"
    try:
        return _accelerated(spec, parse_special, rate, reference), None
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


def _accelerated(
    spec: TokenizerSpec, parse_special: bool, rate: float, reference: Encoder
) -> AcceleratedEncoder:
    if spec.kind != "tokenizers":
        raise TokenizerError(f"a tokenizer of kind {spec.kind!r} has no accelerator")
    if parse_special:
        raise TokenizerError("accelerators do not parse special tokens in text")
    reason = next(_objections(json.loads(spec.payload)), None)
    if reason is not None:
        raise TokenizerError(reason)
    try:
        import fastokens
    except ImportError:
        raise MissingExtra("the engine 'fast'", "fastokens", "build") from None
    try:
        tokenizer = fastokens.Tokenizer.from_json_str(spec.payload.decode("utf-8"))
    except (ValueError, RuntimeError, TypeError) as problem:
        raise TokenizerError(f"fastokens cannot read it ({problem})") from problem
    tokenizer.no_truncation()
    tokenizer.no_padding()
    version = installed_version("fastokens")
    return AcceleratedEncoder(fast=tokenizer, version=version, reference=reference, rate=rate)


def _objections(data: Mapping[str, Any]) -> Iterator[str]:
    """Why the accelerator cannot be trusted with a tokenizer.json."""
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
    step = data.get("pre_tokenizer") or {}
    yield from _pre_tokenizer_objections(
        step["pretokenizers"] if step.get("type") == "Sequence" else [step]
    )


def _pre_tokenizer_objections(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kinds = [step.get("type") for step in steps]
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        names = " + ".join(map(str, kinds))
        yield f"its pre_tokenizer is {names}, not ByteLevel or Split + ByteLevel"
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


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceleratedEncoder:
    """fastokens, checked against the reference.

    It uses all cores of the machine; with several processes, set RAYON_NUM_THREADS=1 beforehand.

    Attributes:
        fast: The tokenizer of fastokens.
        version: Its version.
        reference: The encoder that defines the ids.
        rate: Share of documents to encode twice, 0 to 1; 1 checks everything.
    """

    fast: Any
    version: str
    reference: Encoder
    rate: float
    engine: str = "fastokens"

    def encode(self, texts: Sequence[str], keys: NDArray[np.uint64] | None = None) -> Encoded:
        """The ids of every text, in order.

        Args:
            texts: The texts.
            keys: One uint64 per text, uniform and the same in every run: text i is checked
                against the reference if ``keys[i] < rate * 2^64``. None checks nothing.

        Raises:
            EngineDisagrees: The reference gives different ids for a checked text.
        """
        refuse_surrogates(texts)
        ids, offsets = self.fast.encode_batch_flat(
            list(texts), add_special_tokens=False, split_special_tokens=True
        )
        ends = np.frombuffer(offsets, "<u8").astype(np.int64)
        encoded = Encoded(np.frombuffer(ids, "<u4"), np.diff(ends))
        if keys is not None:
            self._check(texts, encoded, ends, self._sample(keys))
        odd = [i for i, text in enumerate(texts) if not text.isascii() and _is_odd(text)]
        return self._replaced(texts, encoded, ends, odd) if odd else encoded

    def _sample(self, keys: NDArray[np.uint64]) -> list[int]:
        if self.rate == 1:  # 2^64 itself is not a uint64
            return list(range(len(keys)))
        return np.flatnonzero(keys < np.uint64(int(self.rate * 2**64))).tolist()

    def _check(
        self, texts: Sequence[str], encoded: Encoded, ends: NDArray[np.int64], sample: list[int]
    ) -> None:
        sample = [i for i in sample if not _is_odd(texts[i])]
        right = self.reference.encode([texts[i] for i in sample])
        right_ends = np.concatenate([[0], np.cumsum(right.lengths)])
        for k, i in enumerate(sample):
            own = encoded.ids[ends[i] : ends[i + 1]]
            wanted = right.ids[right_ends[k] : right_ends[k + 1]]
            if not np.array_equal(own, wanted):
                raise self._disagreement(i, own, wanted)

    def _disagreement(
        self, position: int, own: NDArray[np.uint32], right: NDArray[np.uint32]
    ) -> EngineDisagrees:
        common = min(own.size, right.size)
        differing = np.flatnonzero(own[:common] != right[:common])
        first = int(differing[0]) if differing.size else common
        around = slice(max(0, first - 4), first + 5)
        return EngineDisagrees(
            position,
            f"{self.engine} {self.version} gives other ids than {self.reference.engine} "
            f"{self.reference.version} from id {first} on: … {own[around].tolist()} … instead of … "
            f"{right[around].tolist()} …. Build with engine='reference'.",
        )

    def _replaced(
        self, texts: Sequence[str], encoded: Encoded, ends: NDArray[np.int64], odd: list[int]
    ) -> Encoded:
        """The same with the reference's ids for these texts."""
        right = self.reference.encode([texts[i] for i in odd])
        parts = np.split(encoded.ids, ends[1:-1])
        lengths = encoded.lengths.copy()
        lengths[odd] = right.lengths
        for i, ids in zip(odd, np.split(right.ids, np.cumsum(right.lengths)[:-1]), strict=True):
            parts[i] = ids
        return Encoded(np.concatenate(parts), lengths)


def _is_odd(text: str) -> bool:
    return any(character in text for character in DIFFERENT)
