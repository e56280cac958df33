"""Which characters Unicode 14 does not know, and a fast search for them in a batch of texts.

Tokenizer libraries carry different Unicode tables, so a character that is newer than some of them
splits words differently: one library counts U+A7CF as a letter, another does not. Unicode 14 (2021)
is old enough to be common ground. Texts with characters outside it are not trusted; an accelerator
sends them to the reference encoder.

The table is committed rather than computed, because every Python has its own version of
``unicodedata``. It lists category Cn, which includes the noncharacters (U+FFFF …) but neither
surrogates nor private use. A test on a Python with Unicode 14 computes the table and compares.

Cost: all-ASCII texts cost one flag test each; others are searched once, in C.

`ADVERSARIAL`: texts on which tokenizer libraries are known, or can be expected, to differ.

The one idea: libraries differ where a text is cut into words, so each string sits on a border that
two regex engines or two Unicode tables can draw differently: blanks, cases, digits, marks, joined
emoji, characters beyond the first plane. An accelerator that differs on one of them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits

__all__ = ["ADVERSARIAL", "CODE_POINTS", "RUNS", "texts_outside", "unassigned"]

ADVERSARIAL: Final[tuple[str, ...]] = (
    # nothing, blanks, line ends
    *("", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\t\t\tx", "a  b"),
    *(
        "  lead",
        "trail  ",
        "a \n b",
        "a\r\n\r\nb",
        "line one\nline two\n",
        " \t \n \r\n x",
        "\n\n\n x",
    ),
    *("a" + " " * 17 + "b", " " * 100, "\n" * 50 + "x", "x\n" + " " * 8 + "return\n", "a\x0b\x0cb"),
    # blanks that are not ASCII, and invisible characters
    *(
        "a\u00a0b",
        "\u00a0 \u00a0",
        "a\u2003b\u2009c",
        "a\u3000b",
        "\u1680x",
        "\u2028\u2029x",
        "a\u0085b",
    ),
    *("\ufeffBOM", "zero\u200bwidth", "a\u200c\u200db", "soft\u00adhyphen", "\u2060x", "\u180ea"),
    # contractions, in both cases, with long s and other apostrophes
    *("I'm you're he'll we've they'd it's don't", "I'M YOU'RE HE'LL WE'VE THEY'D IT'S DON'T"),
    *(
        "'s't're've'm'll'd",
        "x'\u017ft",
        "'\u017f",
        "'\u017fthe 'LL'\u017f",
        "it\u2019s",
        "''s",
        "rock'n'roll",
    ),
    *("'ſs'Sſ", "\u212aelvin's \u212a'\u212a"),
    # numbers
    *("1", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000.00", "1e-10", "0x1F"),
    *("x1y22z333", "٠١٢٣٤٥", "１２３", "²³¹½⅓", "ⅣⅫ", "१२३", "𝟘𝟙𝟚", "a1 1a"),
    # punctuation, code, markup, addresses
    *(
        "!!!",
        "...---...",
        "a.b,c;d:e",
        "“quoted” ‘single’ «guille»",
        "—–-",
        "$5 €6 £7 ¥8",
        "(((([[[{{{<<<",
    ),
    "def f(x: int) -> None:\n    return x**2  # power\n\n\nclass A:\n\tpass\n",
    'if (a && b || !c) { return "x\\n\\t\\u00e9"; } // comment\n',
    '{"key": [1, 2.5, null, true], "nested": {"a\\"b": "\\\\"}}',
    "https://user@example.org:8080/path/to/file.html?query=a%20b&x=1#frag",
    "mail.name+tag@example.co.uk C:\\Users\\name\\file.txt ~/.config",
    "<html><body class='x'>&amp;&nbsp;</body></html><!-- c -->",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n",
    # words of many shapes
    *(
        "CamelCaseWord",
        "snake_case_word",
        "SCREAMING",
        "mIxEd",
        "naïve café",
        "straße STRASSE",
        "ǅ ǆ Ǆ",
    ),
    *("İstanbul ıi", "ﬁne ﬂow", "Ωμέγα ς σ", "Привет, мир!", "ЁёЙй", "שָׁלוֹם עֲלֵיכֶם", "مرحبا بالعالم"),
    *(
        "اَلْعَرَبِيَّةُ",
        "سلام\u200cعلیکم",
        "नमस्ते दुनिया",
        "สวัสดีชาวโลก",
        "བོད་སྐད",
        "ខ្មែរ",
        "မြန်မာ",
        "ქართული ᲥᲐ",
    ),
    *(
        "你好，世界。",
        "日本語のテキスト、カタカナﾊﾝｶｸ",
        "한국어 문장",
        "\u1112\u1161\u11ab\u1100\u1173\u11af",
        "𠀀𠮷野家",
    ),
    # marks on letters, on digits, on nothing
    *(
        "e\u0301 n\u0303 o\u0308",
        "\u0301",
        " \u0301x",
        "1\u20e3",
        "a\u0301\u0302\u0303\u0304b",
        "Å Å",
        "Z̷̡a̶l̵g̴o̸",
    ),
    # beyond the first plane
    *("𝐀𝑩𝒞 math", "𐐀𐐨 deseret", "𝔘𝔫𝔦", "🜁🜂", "𓀀𓁐"),
    # emoji: plain, skin tones, flags, joined, keycaps, variation selectors
    *(
        "😀",
        "😀😃😄",
        "👍🏽 👋🏿",
        "🇩🇪🇫🇷🇯🇵",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "❤️ ❤",
        "1️⃣#️⃣",
        "a😀b 😀 c",
        "🏴\U000e0067\U000e0062\U000e007f",
    ),
    # controls, noncharacters, private use, characters newer than Unicode 14
    *(
        "\x00",
        "a\x00b\x00",
        "\x01\x02\x1b[0m\x7f",
        "\x80\x9f",
        "\ufffd",
        "\ufffe\uffff",
        "\ue000\U000f0000",
    ),
    *("\ua7cf\u0020\u0022,", "a\ua7cfb", "\U0001fae8", "\U00031350"),
    # special tokens, spelled out
    *(
        "<|endoftext|>",
        "a<|endoftext|>b",
        " <|endoftext|> ",
        "<s></s><pad><unk>",
        "<|im_start|>user\n",
    ),
    *("[CLS] [SEP] [MASK] [PAD]", "<|begin_of_text|><|end_of_text|>", "<0x0A>", "▁under", "ĠG Ċ"),
    # long runs without a place to cut
    *(
        "a" * 3000,
        "ab" * 1500,
        "!" * 1000,
        "1" * 999,
        "中" * 500,
        "é" * 500,
        "😀" * 300,
        "aA" * 400,
    ),
    *("\r\n" * 300, " \n" * 300, "x " * 500, "'s" * 200, "_" * 200 + "a", "=" * 80 + "\n"),
)

CODE_POINTS: Final = 0x110000

# Lengths in base 36 of the runs of assigned, unassigned, assigned … code points, from U+0000 on:
# "oo 2 6 4" = 888 assigned (U+0000–U+0377), 2 unassigned (U+0378, U+0379), 6 assigned, 4 not.
RUNS: Final = """
oo 2 6 4 7 1 1 1 k 1 b1 1 12 2 1e 2 3 1 1j 8 r 4 6 b 7i 1 1o 2 2t e 1n 2 1d 2 f 1 s 2 1 1 b 5 v 1 2
6 6k 1 8 2 2 2 m 1 7 1 1 3 4 2 9 2 2 2 4 8 1 4 2 1 5 2 p 2 3 1 6 4 2 2 m 1 7 1 2 1 2 1 2 2 1 1 5 4
2 2 3 3 1 7 4 1 1 7 h a 3 1 9 1 3 1 m 1 7 1 2 1 5 2 a 1 3 1 3 2 1 f 4 2 c 7 7 1 3 1 8 2 2 2 m 1 7 1
2 1 5 2 9 2 2 2 3 7 3 4 2 1 5 2 i a 2 1 6 3 3 1 4 3 2 1 1 1 2 3 2 3 3 3 c 4 5 3 3 1 4 2 1 6 1 e l 5
d 1 3 1 n 1 g 2 9 1 3 1 4 7 2 1 3 2 1 2 4 2 a 7 m 1 3 1 n 1 a 1 5 2 9 1 3 1 4 7 2 6 2 1 4 2 a 1 2 d
d 1 3 1 1f 1 3 1 6 4 g 2 q 1 3 1 i 3 o 1 9 1 1 2 7 3 1 4 6 1 1 1 8 6 a 2 3 c 1m 4 t 11 2 1 1 1 5 1
o 1 1 1 n 2 5 1 1 1 6 2 a 2 4 w 20 1 10 4 13 1 10 1 f 1 d 11 5i 1 1 5 1 2 ah 1 4 2 7 1 1 1 4 2 15 1
4 2 x 1 4 2 7 1 1 1 4 2 f 1 1l 1 4 2 1v 2 w 3 q 6 2e 2 6 2 il 3 2h 7 m 9 o 9 k c d 1 3 1 2 c 2m 2 a
6 a 6 q 6 2h 7 17 5 1y a v 1 c 4 c 4 1 3 16 2 5 b 18 4 q 6 b 3 1q 2 1t 1 t 2 b 6 a 6 e 2 v 1d 25 3
1b 1 38 8 1o 3 f 3 1o 7 17 2 b 8 17 5 eu 2 6 2 12 2 6 2 8 1 1 1 1 1 1 1 v 2 1h 1 f 1 e 2 6 1 j 2 3
1 9 1 2t 1 c 2 r 1 d 3 x f x f 3w 4 if p b l 1ec 2 w 1 9p 5 19 1 1 5 1 2 1k 7 2 e o 9 7 1 7 1 7 1 7
1 7 1 7 1 7 1 7 1 3i y q 1 2h c 5y q c 4 1s 1 2e 2 2v 5 17 1 2m 1 2c c 1b 1 mlp 3 1j 9 9o k 54 8 5n
5 2 1 1 1 5 o 1n 3 a 6 1k 8 1y 8 c 6 38 b u 3 26 1 b 4 x 1 1j 9 e 2 a 2 2v o s a 6 2 6 2 6 9 7 1 7
1 1o 4 3i 2 a 6 8mc c n 4 1d 4 6su 2 2y 12 7 c 5 5 q 1 5 1 1 1 2 1 2 1 3h g cd 2 1i 7 1 w 16 6 1f 1
j 1 4 4 5 1 3r 2 1 1 5a 3 6 2 6 2 6 2 3 3 7 1 7 a 5 2 c 1 q 1 j 1 2 1 f 2 e y 3f 5 3 4 19 3 2g 1 d
3 1 1b 1a 3m t 3 1d f s 4 10 9 u 5 17 5 u 1 11 4 e 16 4e 2 a 6 10 4 10 4 14 8 1g b c 1 f 1 7 1 2 1
b 1 f 1 7 1 2 1v 8n 9 m a 8 o 6 1 16 1 9 1x 6 2 1 1 18 1 2 3 1 2 n 1 20 8 9 1c j 1 2 5 x 3 r 5 1 1s
1k 4 k 2 1e 1 2 5 8 1 3 1 t 2 3 4 a 7 9 7 1s w 13 4 c 9 1i 3 t 2 r 5 q 7 4 c 7 28 21 1j 1f d 1f 7
1a 8 a 86 v 1 16 1 3 2 2 26 14 8 16 m q 12 s k n 9 26 4 10 9 1w a 1 2 p 7 a 6 1h 1 i 8 13 9 2o 1 k
b i 1 18 1t 7 1 1 1 4 1 f 1 b 6 1n 5 a 6 4 1 8 2 2 2 m 1 7 1 2 1 5 1 a 2 2 2 3 2 1 6 1 5 7 2 7 3 5
3v 2k 1 5 u 20 8 a 4m 1i 2 12 y 1x b a 6 d j 1m 6 a 1i r 2 f 4 n 55 1o 2s 2b c 8 2 1 2 8 1 2 1 u 1
2 2 c 9 a 1y 8 2 1a 2 b r 20 8 2b d 21 7b 9 1 19 1 e a t 3 w 2 m 1 e 21 7 1 2 1 18 3 1 1 2 1 9 8 a
6 6 1 2 1 11 1 2 1 6 7 a 8m p 53 1 f 1e d pn 2u 33 1 5 b 5g 218 2r d tr 1 9 347 g7 6nt ft 7 v 1 a 4
29 1 a 6 u 2 6 a 1y a a 1 7 1 l 5 j j4 2j 2t 23 4 1l 7 h 1s 5 b 2 e 4qg 8 ye 16 9 6w7 4 1 7 1 2 1
83 19 3 h 4 8 b0 1s4 2z 5 d 3 9 7 a 2 8 3mk 1a 2 n 9 38 1o 6u a 13 2 5e l 1y 4a k c 2f 9 p 3r 2d 1
1z 1 2 2 1 2 2 2 4 1 c 1 1 1 7 1 1t 1 4 2 8 1 7 1 s 1 4 1 5 1 1 3 7 1 9g 2 84 2 ji f 5 1 f uo v 69
7 1 h 2 7 1 2 1 5 5x 19 3 e 2 a 4 2 8w v h 1m 5 1 yo 7 1 4 1 2 1 f 1 5h 2 g 15 24 4 a 4 2 lt 1w 24
1p 5e 4 1 r 1 2 1 1 2 1 1 a 1 4 1 1 1 1 6 1 4 1 1 1 1 1 1 3 1 2 1 1 2 1 1 1 1 1 1 1 1 1 1 2 1 1 2 4
1 7 1 4 1 4 1 1 1 a 1 h 5 3 1 5 1 h 1g 2 7i 18 4 2s c f 2 f 1 f 1 11 a 4u 1k t d 18 4 9 7 2 e 6 4a
rc 5 g 3 d 3 38 c 2h 7 c 4 1 f c 4 1k 8 a 6 14 8 u 2 2 26 9g c e 2 5 3 5 3 7 9 t 3 b 5 6 a a 6 8 8
7 9 43 1 1j 11 a sm wyo w 37d 7 66 2 4g2 e 5rl 2e7 f2 15u 3t7 fcfq 1 u 2o 3k 6o 1e6o 1eke 2 1eke 2
"""


@lru_cache(maxsize=8)
def unassigned(also: str = "") -> NDArray[np.bool_]:
    """For every code point, whether Unicode 14 leaves it unassigned (or it is in ``also``).

    >>> table = unassigned()
    >>> bool(table[ord("a")]), bool(table[0xA7CF])
    (False, True)
    """
    runs = np.array([int(run, 36) for run in RUNS.split()])
    table = np.repeat(np.arange(runs.size) % 2 == 1, runs)
    table[[ord(character) for character in also]] = True
    table.flags.writeable = False
    return table


def texts_outside(texts: Sequence[str], also: str = "") -> NDArray[np.int64]:
    """Indices, ascending, of the texts with a character that Unicode 14 does not know.

    Args:
        texts: The texts to search.
        also: Further characters to look for.

    >>> texts_outside(["plain", "new: \ua7cf", "déjà vu"]).tolist()
    [1]
    """
    table, first = unassigned(also), _first(also)
    found: set[int] = set()
    owners: list[int] = []
    pieces: list[str] = []
    waiting, chunk = 0, limits().probe_chunk_characters
    for i, text in enumerate(texts):
        if text.isascii():
            continue
        for start in range(0, len(text), chunk):
            owners.append(i)
            pieces.append(text[start : start + chunk])
            waiting += len(pieces[-1])
            if waiting >= chunk:
                found.update(owners[k] for k in _pieces_outside(pieces, table, first))
                owners, pieces, waiting = [], [], 0
    found.update(owners[k] for k in _pieces_outside(pieces, table, first))
    return np.array(sorted(found), np.int64)


@lru_cache(maxsize=8)
def _first(also: str) -> int:
    """The first character to look for: a Python int, as NumPy's would cast all codes to int64."""
    return int(np.argmax(unassigned(also)))


def _pieces_outside(pieces: list[str], table: NDArray[np.bool_], first: int) -> list[int]:
    """Which pieces have a character of the table; ``first`` is the lowest one in it."""
    codes = np.frombuffer("".join(pieces).encode("utf-32-le", "surrogatepass"), "<u4")
    # Most characters lie below `first`, and comparing is cheaper than looking up.
    if not table.take(codes[codes >= first]).any():
        return []
    ends = np.cumsum([len(piece) for piece in pieces])
    hits = np.searchsorted(ends, np.flatnonzero(table.take(codes)), side="right")
    return [int(k) for k in np.unique(hits)]
