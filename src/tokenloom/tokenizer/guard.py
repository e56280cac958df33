"""Guards for accelerated encoders: the reference encoder checks them.

The one idea: the reference defines the ids; a fast engine is used only as long as no difference has
been seen. Four guards, the most valuable first:

1. A text with a character that Unicode 14 does not know goes to the reference (libraries carry
   different Unicode tables). So does a text on which the fast engine gives up.
2. Engines refuse every normaliser (``fast.py``).
3. Before first use the two must agree on ``ADVERSARIAL`` and on probes made from the vocabulary.
4. A keyed sample of documents is encoded twice. A difference raises :class:`EngineDisagrees`; the
   build then rebuilds the shard with the reference.

Sampling finds gross errors and proves nothing, so engine and version belong in a store's
fingerprint, and ``rate=1`` encodes everything twice.

Cost: guard 1 searches non-ASCII texts once and is free for ASCII texts; guard 3 is paid at
construction; guard 4 at 1/1000 costs about 1/1000 of the reference's time. `python -m benchmarks
build` prints what they add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, TokenizerError
from tokenloom.tokenizer.encoders import Encoded, Encoder, refuse_surrogates
from tokenloom.tokenizer.probes import ADVERSARIAL, texts_outside

__all__ = ["SAMPLE_RATE", "EngineDisagrees", "GuardedEncoder", "merge"]

SAMPLE_RATE: Final = 1 / 1000


class EngineDisagrees(TokenizerError):
    """A fast engine gave different ids than the reference.

    Attributes:
        position: Index of the text in the batch.
        first: Index of the first id that differs in that text.
        engine: Name and version of the fast engine.
        engine_ids: Its ids around the difference.
        reference: Name and version of the reference.
        reference_ids: Its ids around the difference.
    """

    def __init__(
        self,
        position: int,
        first: int,
        engine: str,
        engine_ids: list[int],
        reference: str,
        reference_ids: list[int],
    ) -> None:
        # All arguments go to the base class, so that a worker's exception can be unpickled.
        super().__init__(position, first, engine, engine_ids, reference, reference_ids)
        self.position = position
        self.first = first
        self.engine = engine
        self.engine_ids = engine_ids
        self.reference = reference
        self.reference_ids = reference_ids

    def __str__(self) -> str:
        return (
            f"text {self.position} of the batch: {self.engine} gives different ids than "
            f"{self.reference} from id {self.first} on: … {self.engine_ids} … instead of "
            f"… {self.reference_ids} …. Build with engine='reference'."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedEncoder:
    """A fast encoder that is checked against the reference.

    Attributes:
        fast: The accelerated encoder.
        reference: The encoder that defines the ids.
        rate: Share of documents to encode twice, 0 to 1; 1 checks everything.
        suspicious: Further characters that send a text to the reference.
        probes: Texts on which the two must agree before first use.

    Raises:
        TokenizerError: At construction, if the two differ on a probe.
    """

    fast: Encoder
    reference: Encoder
    rate: float = SAMPLE_RATE
    suspicious: str = ""
    probes: Sequence[str] = ADVERSARIAL

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ConfigError(
                f"rate: {self.rate} is not a share of the documents. Give 0 to 1; 1 checks all."
            )
        self._agree_on_probes()

    @property
    def engine(self) -> str:
        """Name of the fast engine."""
        return self.fast.engine

    @property
    def version(self) -> str:
        """Version of the fast engine."""
        return self.fast.version

    def encode(self, texts: Sequence[str], keys: NDArray[np.uint64] | None = None) -> Encoded:
        """The ids of every text, in order.

        Args:
            texts: The texts.
            keys: One uint64 per text, uniform and the same in every run: text i is checked
                against the reference if ``keys[i] < rate * 2^64``. None checks nothing.

        Raises:
            EngineDisagrees: The reference gives different ids for a checked text.
        """
        refuse_surrogates(texts)  # once for the whole batch, so that positions are those of `texts`
        slow = texts_outside(texts, self.suspicious)
        if not slow.size:
            encoded = self._encode_fast(texts)
        else:
            trusted = np.setdiff1d(np.arange(len(texts)), slow, assume_unique=True)
            parts = [
                (trusted, self._encode_fast([texts[i] for i in trusted])),
                (slow, self.reference.encode([texts[i] for i in slow])),
            ]
            encoded = merge(parts)
        if keys is not None:
            self._check(texts, encoded, np.setdiff1d(self._sample(texts, keys), slow))
        return encoded

    def _encode_fast(self, texts: Sequence[str]) -> Encoded:
        try:
            return self.fast.encode(texts)
        except TokenizerError:  # it gave up on some text: only that one goes to the reference
            parts = [(np.array([i]), self._encode_either(text)) for i, text in enumerate(texts)]
            return merge(parts)

    def _encode_either(self, text: str) -> Encoded:
        try:
            return self.fast.encode([text])
        except TokenizerError:
            return self.reference.encode([text])

    def _sample(self, texts: Sequence[str], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        if keys.shape != (len(texts),) or keys.dtype != np.uint64:
            raise ConfigError(
                f"keys: an array of {keys.dtype} with shape {keys.shape} for {len(texts)} texts. "
                "Give one uint64 per text."
            )
        if self.rate == 1:  # 2^64 itself is not a uint64
            return np.arange(len(texts))
        return np.flatnonzero(keys < np.uint64(int(self.rate * 2**64)))

    def _check(self, texts: Sequence[str], encoded: Encoded, sample: NDArray[np.int64]) -> None:
        if not sample.size:
            return
        judged = self.reference.encode([texts[i] for i in sample])
        ends = np.cumsum(encoded.lengths)
        judged_ends = np.cumsum(judged.lengths)
        for k, i in enumerate(sample.tolist()):
            ids = encoded.ids[ends[i] - encoded.lengths[i] : ends[i]]
            right = judged.ids[judged_ends[k] - judged.lengths[k] : judged_ends[k]]
            if not np.array_equal(ids, right):
                raise self._disagreement(i, ids, right)

    def _disagreement(
        self, position: int, ids: NDArray[np.uint32], right: NDArray[np.uint32]
    ) -> EngineDisagrees:
        common = min(ids.size, right.size)
        differing = np.flatnonzero(ids[:common] != right[:common])
        first = int(differing[0]) if differing.size else common
        around = slice(max(0, first - 4), first + 5)
        return EngineDisagrees(
            position,
            first,
            f"{self.fast.engine} {self.fast.version}",
            ids[around].tolist(),
            f"{self.reference.engine} {self.reference.version}",
            right[around].tolist(),
        )

    def _agree_on_probes(self) -> None:
        # Texts that guard 1 keeps from the fast engine are no reason to refuse it.
        routed = set(texts_outside(self.probes, self.suspicious).tolist())
        probes = [text for i, text in enumerate(self.probes) if i not in routed]
        try:
            encoded = self.fast.encode(probes)
            self._check(probes, encoded, np.arange(len(probes)))
        except EngineDisagrees as difference:
            probe = probes[difference.position]
            shown = ascii(probe if len(probe) <= 60 else probe[:57] + "…")
            raise TokenizerError(
                f"{difference.engine} gives different ids than {difference.reference} for {shown}: "
                f"… {difference.engine_ids} … instead of … {difference.reference_ids} …"
            ) from None


def merge(parts: Sequence[tuple[NDArray[np.int64], Encoded]]) -> Encoded:
    """Joins parts that were encoded separately into one batch.

    Args:
        parts: Pairs of positions in the batch, ascending, and the ids of the texts at these;
            together the positions are 0 to n - 1, each once.

    >>> two = Encoded(np.array([7, 8, 9], np.uint32), np.array([2, 1]))
    >>> one = Encoded(np.array([5, 5], np.uint32), np.array([2]))
    >>> ids, lengths = merge([(np.array([0, 2]), two), (np.array([1]), one)])
    >>> ids.tolist(), lengths.tolist()
    ([7, 8, 5, 5, 9], [2, 2, 1])
    """
    texts = sum(places.size for places, _ in parts)
    if not texts:
        return Encoded(np.empty(0, np.uint32), np.empty(0, np.int64))
    lengths, owner, start = (np.empty(texts, np.int64) for _ in range(3))
    for k, (places, encoded) in enumerate(parts):
        lengths[places] = encoded.lengths
        owner[places] = k
        start[places] = np.cumsum(encoded.lengths) - encoded.lengths
    # Neighbours with the same owner are also adjacent in its ids, so a run of them is one slice:
    # owners 0 0 1 0 are the runs [0, 2), [2, 3), [3, 4). Few texts are slow, so runs are long.
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    lasts = np.append(begins[1:], texts) - 1
    runs = zip(owner[begins], start[begins], start[lasts] + lengths[lasts], strict=True)
    return Encoded(np.concatenate([parts[k][1].ids[a:b] for k, a, b in runs]), lengths)
