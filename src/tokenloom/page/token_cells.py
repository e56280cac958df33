"""Tokens as cells, for the explorer and for notebooks: whole letters, and what a dotted line means.

A cell is about the token in it. It is a *target* if the prediction of this very token
counts in the loss; a token that is none has a dotted line below it, everywhere. The bytes of a
letter that is spread over several tokens are put together in the first of them.

Cells of a document are one text: most of its letters decide whether it starts at the left or at the
right, and a word of the other direction keeps the order of its letters, however it is cut into
tokens. What stands for bytes, marks and special tokens has no letters of the text: it is set apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tokenloom.page.markup import Markup, tag, visible

DOTTED = "dotted: no target, in no loss"

LETTER_BYTES = 4  # of UTF-8, at most

REST = "‿"  # a cell whose bytes are shown in a cell before it

LEFTWARD = ("R", "AL")  # what Unicode calls letters that are written from right to left

# what a text has for bytes and marks that are no letters, and a special token
_NO_LETTERS = re.compile(r"(?:<0x[0-9A-F]{2}>)+|‹U\+[0-9A-F]{4,6}›|^<[^<>\s]+>$")

_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")

# text, then bytes that begin a letter; bytes that end one, then text
_TAIL = re.compile(r"(?s)(.*?)((?:<0x[0-9A-F]{2}>)+)")

_HEAD = re.compile(r"(?s)((?:<0x[0-9A-F]{2}>)+)(.*)")


def cell_classes(tint: int, *, target: bool, first: bool) -> str:
    """The classes of a cell: its tint, whether it starts a document, whether it is no target.

    >>> cell_classes(3, target=True, first=False), cell_classes(0, target=False, first=True)
    ('t3', 't0 first untrained')
    """
    return f"t{tint}" + " first" * first + " untrained" * (not target)


def dotted_item() -> Markup:
    """The line of a legend about dotted cells."""
    return tag("li", tag("span", "a", class_="cell untrained", aria_hidden="true"), DOTTED)


def directed(cells: Iterable[Markup], texts: Iterable[str]) -> Markup:
    """Cells of one document, in the direction of most letters of their texts."""
    return tag("span", *cells, dir=direction(texts))


def direction(texts: Iterable[str]) -> str:
    """Whether most letters are written from right to left ("rtl") or not ("ltr").

    >>> direction(["<0xAD>", "\u05d0", "\u05d1", "a"]), direction(["\u05d0", "loom"])
    ('rtl', 'ltr')
    """
    kinds = Counter(
        unicodedata.bidirectional(letter)
        for one in texts
        for letter in _NO_LETTERS.sub("", visible(one))
    )
    return "rtl" if sum(kinds[one] for one in LEFTWARD) > kinds["L"] else "ltr"


def extra_classes(letters: Sequence[str]) -> list[str]:
    """What the class of each cell of a text ends with, given what the cells show.

    A cell without letters of the text is set apart; the rest of a letter that is written from right
    to left stands at its left.

    >>> extra_classes(["<0xAD>", "a", "<s>", "\u05d0", "‿", "é", "‿"])
    [' apart', '', ' apart', '', ' leftward', '', '']
    """
    found, is_leftward = [], False
    for one in letters:
        if one == REST:
            found.append(" leftward" if is_leftward else "")
            continue
        found.append(" apart" if _NO_LETTERS.search(visible(one)) else "")
        is_leftward = unicodedata.bidirectional(one[-1:] or " ") in LEFTWARD
    return found


def whole_letters(texts: Sequence[str]) -> list[str]:
    """Tokens as they are shown: a letter that is spread over several is put into the first.

    >>> whole_letters(["a", "<0xC3>", "<0xA9>", "<0xFF>", "b"])
    ['a', 'é', '‿', '<0xFF>', 'b']
    >>> whole_letters([" x<0xE4><0xBD>", "<0xA0>!"])
    [' x你', '‿!']
    """
    shown = list(texts)
    for first, last, letters in _spread(texts):
        shown[first] = _before(shown[first]) + letters
        shown[first + 1 : last] = [REST] * (last - first - 1)
        shown[last] = REST + _after(texts[last])
    return shown


def spelled(texts: Sequence[str]) -> list[str]:
    """Tokens as they are told: spaces can be seen, a part of a letter names the letter.

    >>> spelled([" a", "<0xC3>", "<0xA9>", "<0xFF>"])
    ['␣a', 'part 1 of 2 of é', 'part 2 of 2 of é', '<0xFF>']
    """
    told = [one.replace("↵\n", "↵").replace(" ", "␣") for one in texts]
    for first, last, letters in _spread(texts):
        for place in range(first, last + 1):
            if _BYTES.fullmatch(texts[place]):
                told[place] = f"part {place - first + 1} of {last - first + 1} of {letters}"
    return told


def _spread(texts: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """First and last token of each letter that is spread over several, and the letter."""
    at = 0
    while at < len(texts):
        tail = _TAIL.fullmatch(texts[at])
        last, letters = (at, "") if tail is None else _joined(texts, at, _raw(tail[2]))
        if letters:
            yield at, last, letters
        # the last one may have text after the letter, and then the start of another one
        whole = not letters or _BYTES.fullmatch(texts[last]) is not None
        at = last + 1 if whole else last


def _joined(texts: Sequence[str], at: int, raw: bytes) -> tuple[int, str]:
    """The token that ends a letter, and the letter; nothing if it does not end."""
    last = at
    while last + 1 < len(texts) and len(raw) < LETTER_BYTES:
        head = _HEAD.fullmatch(texts[last + 1])
        if head is None:
            break
        last, raw = last + 1, raw + _raw(head[1])
        try:
            return last, raw.decode("utf-8")
        except UnicodeDecodeError:
            if head[2]:
                break
    return at, ""


def _raw(text: str) -> bytes:
    return bytes.fromhex(text.replace("<0x", "").replace(">", ""))


def _before(text: str) -> str:
    found = _TAIL.fullmatch(text)
    return text if found is None else found[1]


def _after(text: str) -> str:
    found = _HEAD.fullmatch(text)
    return "" if found is None else found[2]
