"""Texts on which tokenizer libraries have been seen, or can be expected, to part ways.

The one idea: libraries differ where a text is cut into words, so each string sits on a border that
two regex engines or two Unicode tables can draw differently: blanks, cases, digits, marks, joined
emoji, characters beyond the first plane. An accelerator that differs on one of them is refused.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ADVERSARIAL"]

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
