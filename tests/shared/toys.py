"""Toy tokenizers of every kind, made in milliseconds from text that every Python brings along."""

import functools
import io
import json
import pydoc_data.topics
import re
import sysconfig
from pathlib import Path

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# GPT-2's alphabet: printable Latin-1 maps to itself, other bytes to U+0100 and up
_OWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _OWN]
BYTE_OF_SYMBOL = {chr(byte): byte for byte in _OWN}
BYTE_OF_SYMBOL |= {chr(256 + number): byte for number, byte in enumerate(_OTHERS)}
SYMBOL_OF_BYTE = {byte: symbol for symbol, byte in BYTE_OF_SYMBOL.items()}

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": None, "llama3": LLAMA3, "qwen2": QWEN2, "o200k": O200K}
CHARACTERS_OF_TRAINING = 200_000

NASTY = [
    "",
    " ",
    "plain words, and more of them.",
    "  two  blanks\t\ttabs\r\nline ends\n\n",
    "it's don't IT'S 'ſ ſ",
    "déjà vu, naïve café, Å Å",
    "中文 日本語 한국어 สวัสดี مرحبا שלום",
    "😀👍🏽🇩🇪👩‍👩‍👧 ❤️",
    "e\u0301\u0302 \u200b\u200d\ufeff\u00a0\u3000",
    "𝐀𐐀𠀀 \U0010ffff \ufffe \ua7cf",
    "\x00\x01\x7f\x85 a\x00b",
    "<|endoftext|> <s> </s> [PAD] <0x0A> ▁ Ġ",
    "a" * 500 + "é" * 100,
]


def topics() -> list[str]:
    """The chapters of Python's own help: English prose."""
    return list(pydoc_data.topics.topics.values())


@functools.cache
def sources(step: int = 25) -> tuple[str, ...]:
    """Every step-th source file at the top of the standard library: code."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return tuple(path.read_text(encoding="utf-8") for path in files[::step])


@functools.cache
def bpe_json(pattern: str = "gpt2", specials: tuple[str, ...] = ("<|endoftext|>",)) -> str:
    """A byte-level BPE of 1,000 tokens, trained on the topics and some words of other scripts."""
    tokenizer = Tokenizer(models.BPE())
    regex = PATTERNS[pattern]
    tokenizer.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False)
        if regex is None
        else pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(regex), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=list(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        [" ".join(topics())[:CHARACTERS_OF_TRAINING], *NASTY * 3], trainer
    )
    return tokenizer.to_str()


def bpe(pattern: str = "gpt2", specials: tuple[str, ...] = ("<|endoftext|>",)) -> Tokenizer:
    return Tokenizer.from_str(bpe_json(pattern, specials))


@functools.cache
def revealing_json(pattern: str = "gpt2") -> str:
    """A BPE whose ids tell where words end, whatever characters stand there.

    A trained vocabulary has no merges for rare characters, so a word cut elsewhere gives the same
    ids. Here the last byte of any character merges with what follows it, if they are in one word.
    """
    probes = list(b"ab1! \n'stlLTA\t")
    vocabulary = dict(BYTE_OF_SYMBOL)
    merges = []
    for left in [*probes, *range(0x80, 0xC0)]:
        for right in [*probes, *range(0xC2, 0xF5)]:
            merges.append([SYMBOL_OF_BYTE[left], SYMBOL_OF_BYTE[right]])
            vocabulary["".join(merges[-1])] = len(vocabulary)
    data = json.loads(bpe_json(pattern))
    data["added_tokens"] = []
    data["model"] |= {"vocab": vocabulary, "merges": merges}
    return json.dumps(data)


def changed(path: str, value: object, pattern: str = "gpt2") -> bytes:
    """The toy tokenizer.json with one setting changed, e.g. ``"model.dropout", 0.1``."""
    data = json.loads(bpe_json(pattern))
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    functools.reduce(lambda node, key: node[key], parents, data)[last] = value
    return json.dumps(data).encode()


@functools.cache
def sentencepiece_model(**specials: int) -> bytes:
    """A SentencePiece BPE of 500 pieces with byte fallback that keeps text exactly."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(topics())[:CHARACTERS_OF_TRAINING].splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=500,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=["<user>"],
        control_symbols=["<control>"],
        minloglevel=2,
        **specials,
    )
    return model.getvalue()


def tiktoken_encoding(name: str = "toy", gap: int = 0) -> tiktoken.Encoding:
    """An encoding with the tokens of the toy BPE; ranks from 256 on are moved up by ``gap``."""
    merges = json.loads(bpe_json())["model"]["merges"]
    ranks = {bytes([byte]): byte for byte in range(256)}
    for left, right in merges:
        ranks[bytes(BYTE_OF_SYMBOL[symbol] for symbol in left + right)] = len(ranks) + gap
    top = max(ranks.values())
    return tiktoken.Encoding(
        name,
        pat_str=r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": top + 1, "<|pad|>": top + 3},
    )


def transformers_fast(**specials: str):
    """A transformers tokenizer around the toy BPE."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=bpe(), **specials)


def added(text: str, special: bool) -> bytes:
    """The toy tokenizer.json with one more added token."""
    tokenizer = bpe()
    tokenizer.add_tokens([AddedToken(text, special=special)])
    return tokenizer.to_str().encode()


def words(text: str) -> list[int]:
    """A tokenizer in one line: the length of each word."""
    return [len(word) for word in re.findall(r"\S+", text)]


class Counter:
    """A tokenizer that is an object: counts vowels."""

    def __call__(self, text: str) -> list[int]:
        return [text.count(vowel) for vowel in "aeiou"]

    def method(self, text: str) -> list[int]:
        return self(text)
