"""Conversations become ids and a weight for each: which tokens are trained on.

A place in the text is a place between two tokens only if the text up to there has exactly the first
ids of the whole. So the beginnings that matter (a prompt, everything before a turn and up to its
end) are encoded by themselves, all of a block in a few calls, and compared. Where a token lies
across the place, or the tokenizer reads the end of a beginning otherwise, the record is refused: at
inference the model gets the ids of the beginning, and would be trained on others.

Ranges that a template marks are found by the tokenizer's own offsets instead, where it has them. A
range of characters is the tokens from the one that holds its first character to the one that holds
its last, as `char_to_token` of the tokenizers library says. A token that only partly lies in the
range belongs to it. transformers decides so for ``{% generation %}`` blocks, and the masks are
equal to its `assistant_masks`, with one difference: where a normaliser drops the first or the last
characters of a range, the nearest one inside it that is left counts. (transformers marks nothing
more in the first case, and everything up to the end of the text in the second.) Like there, a last
character that several tokens spell counts with the first of them: let blocks end with the token
that ends the turn. Tokens of tiktoken spell the bytes of the text, so their sizes say where they
are.

Cost, for conversations of 4 + 4 turns of 50 words with a BPE of 1,000 tokens: 1.3 times that of the
plain text by offsets, 4 to 5 times by beginnings, which are 3.5 more texts; rendering 0.2 ms a
conversation, 0.5 ms with its beginnings. `encode_batch`, which tracks offsets, takes 1.2 to 1.4 of
the time of `encode_batch_fast`; finding the two ends of a range takes a few microseconds.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenloom.tokenizer.chat.conversation import Chat
from tokenloom.tokenizer.encoders import Encoded, batches, reference_encoder
from tokenloom.tokenizer.payloads import open_tiktoken, open_tokenizers
from tokenloom.tokenizer.spec import TokenizerSpec

HEAD_CHARACTERS: Final = 1 << 23  # of beginnings that are encoded together

Range: TypeAlias = tuple[int, int]

Placer: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[Range]]], tuple[Encoded, list[list[Range]]]
]

Float32 = NDArray[np.float32]

Encode: TypeAlias = Callable[[Sequence[str]], Encoded]


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedChats:
    """Some conversations.

    Attributes:
        ids: their tokens end to end.
        lengths: tokens of each.
        weights: how much each token counts, 0 for those that are not trained on.
        problems: what is wrong with some of them, by number; their weights mean nothing.
    """

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    weights: Float32
    problems: dict[int, str]

    def kept(self) -> tuple[list[int], EncodedChats]:
        """The numbers of those without a problem, and these alone."""
        good = np.isin(np.arange(len(self.lengths)), list(self.problems), invert=True)
        inside = np.repeat(good, self.lengths)
        return np.flatnonzero(good).tolist(), EncodedChats(
            ids=self.ids[inside],
            lengths=self.lengths[good],
            weights=self.weights[inside],
            problems={},
        )


def encode_chats(
    chats: Sequence[Chat],
    wholes: Encode,
    beginnings: Encode,
    place: Placer | None,
    *,
    ended: bool,
) -> EncodedChats:
    """The tokens of conversations and how much each counts.

    Args:
        chats: the conversations.
        wholes: texts → ids, for whole conversations.
        beginnings: the same for their beginnings.
        place: the same with places, for what templates mark; None if the tokenizer knows none.
        ended: whether a token that is trained on comes after each.
    """
    marked = [place is not None and chat.marked for chat in chats]
    encoded, found = _placed(chats, marked, wholes, place)
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    weights = np.zeros(len(encoded.ids), np.float32)
    problems: dict[int, str] = {}
    views = [encoded.ids[a : a + n] for a, n in zip(starts, encoded.lengths, strict=True)]
    for numbers in _together(chats, marked):
        heads = [(n, cut) for n in numbers for cut in _cuts(chats[n], marked[n])]
        texts = [chats[n].text[:cut] for n, cut in heads]
        counts = _counts(heads, texts, beginnings(texts), views, chats, problems)
        for n in (n for n in numbers if n not in problems):
            chat, own = chats[n], counts.get(n, {})
            edges = {0: 0, len(chat.text): len(views[n]), **own}
            tokens = found[n] or [(edges[a], edges[b]) for a, b, _ in chat.spans]
            here = weights[starts[n] : starts[n] + len(views[n])]
            for (first, last), (*_, weight) in zip(tokens, chat.spans, strict=True):
                here[first:last] = weight
            here[: edges[chat.floor]] = 0
            if not (ended or chat.silent or here.any()):
                problems[n] = _UNTRAINED
    return EncodedChats(
        ids=encoded.ids, lengths=encoded.lengths, weights=weights, problems=problems
    )


_UNTRAINED: Final = (
    "nothing of it would be trained on: no token is the assistant's by the chat template, or the "
    "completion is empty; allowed: at least one trained token, or train_on='all'"
)


def _placed(
    chats: Sequence[Chat],
    marked: Sequence[bool],
    encode: Encode,
    place: Placer | None,
) -> tuple[Encoded, list[list[tuple[int, int]]]]:
    """All texts encoded, and the tokens of the spans that are marked (else an empty list)."""
    if place is None or not any(marked):
        return encode([chat.text for chat in chats]), [[] for _ in chats]
    spans = [
        [span[:2] for span in chat.spans] if yes else []
        for chat, yes in zip(chats, marked, strict=True)
    ]
    return place([chat.text for chat in chats], spans)


def _cuts(chat: Chat, marked: bool) -> list[int]:
    """Places in a text where it must be known how many tokens come before."""
    ends = {chat.floor} if marked else {chat.floor, *(e for a, b, _ in chat.spans for e in (a, b))}
    return sorted(ends - {0, len(chat.text)})


def _together(chats: Sequence[Chat], marked: Sequence[bool]) -> Iterator[list[int]]:
    """Numbers of conversations whose beginnings are encoded in one go."""
    numbers: list[int] = []
    characters = 0
    for n, chat in enumerate(chats):
        numbers.append(n)
        characters += sum(_cuts(chat, marked[n]))
        if characters >= HEAD_CHARACTERS:
            yield numbers
            numbers, characters = [], 0
    yield numbers


def _counts(
    heads: Sequence[tuple[int, int]],
    texts: Sequence[str],
    encoded: Encoded,
    views: Sequence[NDArray[Any]],
    chats: Sequence[Chat],
    problems: dict[int, str],
) -> dict[int, dict[int, int]]:
    """The number of tokens before each place, by conversation; a place inside one is a problem."""
    found: dict[int, dict[int, int]] = {}
    ends = itertools.accumulate(encoded.lengths.tolist(), initial=0)
    for (n, cut), text, (a, b) in zip(heads, texts, itertools.pairwise(ends), strict=True):
        if np.array_equal(encoded.ids[a:b], views[n][: b - a]):
            found.setdefault(n, {})[cut] = b - a
        elif n not in problems:
            problems[n] = _crossing(text, chats[n].text, chats[n].floor == cut)
    return found


def _crossing(head: str, text: str, prompt: bool) -> str:
    at = len(head)
    what = "the prompt" if prompt else "the text before or up to the end of an assistant's turn"
    return (
        f"the tokens of {what} are not the first tokens of the whole: the tokenizer reads "
        f"{text[max(0, at - 12) : at]!r} otherwise when {text[at : at + 12]!r} follows (character "
        f"{at}), so the model would be trained on a beginning that it never sees. End the prompt "
        "where a token ends (a blank belongs to what follows), give a chat_template with "
        "{% generation %} blocks, or pass train_on='all'"
    )


# -- where tokens are in a text -----------------------------------------------------------------
def place_encoder(spec: TokenizerSpec) -> Placer | None:
    """A function: texts and ranges of their characters → ids and ranges of those.

    None for a kind of tokenizer that does not know where its ids come from. Special tokens in the
    text are parsed; none is added.

    >>> place = place_encoder(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256))
    >>> place(["é!"], [[(1, 2)]])[1]
    [[(2, 3)]]
    """
    if spec.kind == "tokenizers":
        return _by_offsets(open_tokenizers(spec.payload, spec.name))
    if spec.kind == "bytes":
        return _by_bytes(spec, np.ones(256, np.int64))
    if spec.kind == "tiktoken":
        encoding = open_tiktoken(spec.payload)
        sizes = np.zeros(spec.vocab_size, np.int64)
        for token, rank in encoding._mergeable_ranks.items():
            sizes[rank] = len(token)
        for text, number in encoding._special_tokens.items():
            sizes[number] = len(text.encode())
        return _by_bytes(spec, sizes)
    return None


def _by_bytes(spec: TokenizerSpec, sizes: NDArray[np.int64]) -> Placer:
    """For ids that spell the bytes of the text end to end; `sizes` are bytes by id."""
    encoder = reference_encoder(spec, parse_special=True)

    def place(
        texts: Sequence[str], ranges: Sequence[Sequence[Range]]
    ) -> tuple[Encoded, list[list[Range]]]:
        encoded = encoder.encode(texts)
        last = np.cumsum(encoded.lengths)
        found = []
        for text, end, length, some in zip(texts, last, encoded.lengths, ranges, strict=True):
            ends = np.cumsum(sizes[encoded.ids[end - length : end]])
            cut = [(len(text[:a].encode()), len(text[:b].encode())) for a, b in some]
            found.append(
                [
                    (
                        int(np.searchsorted(ends, a, side="right")),
                        int(np.searchsorted(ends, b, side="left")) + 1,
                    )
                    if b > a
                    else (0, 0)
                    for a, b in cut
                ]
            )
        return encoded, found

    return place


def _by_offsets(tokenizer: Any) -> Placer:
    tokenizer.encode_special_tokens = False

    def place(
        texts: Sequence[str], ranges: Sequence[Sequence[Range]]
    ) -> tuple[Encoded, list[list[Range]]]:
        flat, lengths, found = array("I"), array("q"), list[list[Range]]()
        for some in batches(texts):
            for one in tokenizer.encode_batch(texts[some], add_special_tokens=False):
                ids = one.ids
                flat.fromlist(ids)
                lengths.append(len(ids))
                found.append([_tokens(one, *ends) for ends in ranges[len(found)]])
        every = np.frombuffer(flat, np.uint32) if flat else np.empty(0, np.uint32)
        counts = np.frombuffer(lengths, np.int64) if lengths else np.empty(0, np.int64)
        return Encoded(every, counts), found

    return place


def _tokens(encoding: Any, start: int, stop: int) -> Range:
    """The tokens [first, last + 1) of the characters [start, stop)."""
    first = _nearest(encoding, range(start, stop))
    if first is None:
        return 0, 0
    end = encoding.char_to_token(stop - 1)
    if end is not None:
        return first, int(end) + 1
    # dropped, or part of the character before it: that one counts, with all its tokens
    last = _nearest(encoding, reversed(range(start, stop))) or first
    own, count = encoding.token_to_chars(last), len(encoding.ids)
    while last + 1 < count and encoding.token_to_chars(last + 1) == own:
        last += 1
    return first, last + 1


def _nearest(encoding: Any, characters: Iterable[int]) -> int | None:
    held = (encoding.char_to_token(place) for place in characters)
    return next((token for token in held if token is not None), None)
