"""Faster libraries give the ids of the reference, or they are refused, passed by, or caught."""

import copy
import json
import random
import sys
import unicodedata

import pytest
import tiktoken
import toys
from kit import QUICK
from refusals import refused

import tokenloom as tl

ENGINES = ["tiktoken", "fast"]
# the last ones are newer than Unicode 14, or folded by one library only
ODD = [*toys.NASTY, "x'\u017ft x'st", "new \ua7cf", "\U0001fae8", "a<|endoftext|>b"]


@pytest.fixture
def build(tmp_path):
    """Builds a store of some texts; the tokenizer is the content of a tokenizer.json."""
    count = iter(range(1000))

    def build(payload, texts, engine="auto", **options):
        data = payload if isinstance(payload, bytes) else payload.encode()
        (tmp_path / "toy.json").write_bytes(data)
        rows, out = [{"text": text} for text in texts], tmp_path / f"s{next(count)}"
        small = {"block_bytes": 4000, "shard_tokens": 3000, "workers": 1, "files": QUICK}
        options = {"tokenizer": tmp_path / "toy.json", "engine": engine, **small, **options}
        return tl.build(rows, out, **options)

    return build


# -- the same ids --------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", toys.PATTERNS)
def test_every_engine_gives_the_store_of_the_reference(build, pattern):
    texts = [text[:4000] for text in (*toys.sources(60), *toys.topics()[:5])] + ODD
    payload = toys.bpe_json(pattern)
    found = {engine: build(payload, texts, engine).digest for engine in ("reference", *ENGINES)}
    found["auto"] = build(payload, texts, verify_all=True).digest
    assert len(set(found.values())) == 1, found


def test_words_end_at_the_same_characters_all_over_unicode(build):
    """A vocabulary whose ids reveal where words end; every 487th assigned character in context."""
    known = [chr(c) for c in range(0x80, 0x110000) if unicodedata.category(chr(c)) not in "CnCsCo"]
    contexts = ["a{0}b", " {0}{0} ", "x'{0}t", "1{0}1", "\n{0}\n!{0}?", "A{0}a {0}"]
    texts = [" ".join(contexts).format(character) for character in known[::487]]
    payload = toys.revealing_json("llama3")
    found = {engine: build(payload, texts, engine).digest for engine in ("reference", *ENGINES)}
    assert len(set(found.values())) == 1, found


def changed(change, pattern="gpt2"):
    data = copy.deepcopy(json.loads(toys.bpe_json(pattern)))
    change(data)
    return json.dumps(data)


def shuffled(data):
    data["added_tokens"] = []
    ids = random.Random(7).sample(range(5000), len(data["model"]["vocab"]))
    data["model"]["vocab"] = dict(zip(data["model"]["vocab"], ids, strict=True))


def from_ranks(data):
    """Such files (Llama 3's) list every split of a token, even those that can never happen."""
    order = {"".join(pair): rank for rank, pair in enumerate(data["model"]["merges"])}
    ranks = dict.fromkeys(toys.SYMBOL_OF_BYTE.values(), -1) | order
    data["model"]["merges"] = [
        [token[:cut], token[cut:]]
        for token in order
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]


def looked_up(data):
    from_ranks(data)
    data["model"]["ignore_merges"] = True
    del data["model"]["vocab"]["<|endoftext|>"]
    data["added_tokens"][0]["id"] = 5000


@pytest.mark.parametrize("change", [shuffled, from_ranks, looked_up])
def test_vocabularies_in_another_order_are_taken_as_they_are(build, change):
    payload, texts = changed(change), [*toys.NASTY, *toys.topics()[:5]]
    fast = build(payload, texts, "tiktoken", verify_all=True)
    assert fast.digest == build(payload, texts, "reference").digest


# -- preconditions -------------------------------------------------------------------------

SPLIT = "pre_tokenizer.pretokenizers.0."
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True}]


@pytest.mark.parametrize(
    ("pattern", "path", "value", "named"),
    [
        ("gpt2", "normalizer", {"type": "NFC"}, "NFC"),
        ("gpt2", "model.unk_token", "<|endoftext|>", "unk_token"),
        ("gpt2", "model.byte_fallback", True, "byte_fallback"),
        ("gpt2", "model.end_of_word_suffix", "</w>", "end_of_word_suffix"),
        ("gpt2", "pre_tokenizer", None, "pre_tokenizer"),
        ("gpt2", "pre_tokenizer.add_prefix_space", True, "add_prefix_space"),
        ("gpt2", "pre_tokenizer.use_regex", False, "use_regex"),
        ("llama3", SPLIT + "behavior", "MergedWithNext", "MergedWithNext"),
        ("llama3", SPLIT + "invert", True, "invert"),
        ("llama3", SPLIT + "pattern", {"String": " "}, "Split"),
        ("llama3", "pre_tokenizer.pretokenizers", DIGITS, "Digits"),
    ],
)
def test_a_tokenizer_that_an_engine_cannot_be_trusted_with_goes_to_the_reference(
    build, pattern, path, value, named
):
    payload, texts = toys.changed(path, value, pattern), toys.NASTY[:9]
    for engine in ENGINES:
        refused(lambda e=engine: build(payload, texts, e), tl.TokenizerError, "toy.json", named)
    assert build(payload, texts).digest == build(payload, texts, "reference").digest


def no_byte(data):
    del data["model"]["vocab"]["ā"]  # the symbol of byte 1


def merges_apart(data):
    model = data["model"]
    model["vocab"] |= {"xy": 2000, "yz": 2001, "xyz": 2002}
    model["merges"] += [["x", "y"], ["xy", "z"], ["y", "z"], ["x", "yz"]]


def unreachable(data):
    """b+c is merged before a+b, so "abc" is never merged; tiktoken would take it as a whole."""
    tokens = [*toys.SYMBOL_OF_BYTE.values(), "bc", "ab", "abc"]
    merges = [["b", "c"], ["a", "b"], ["ab", "c"]]
    data["added_tokens"] = []
    data["model"] |= {"vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}


def word_without_merges(data):
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"]["zebra"] = 2000


def not_special(data):
    data["added_tokens"][0]["special"] = False


def split_by(regex):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    steps = [split, BYTE_LEVEL | {"use_regex": False}]

    def change(data):
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}

    return change


@pytest.mark.parametrize(
    "change",
    [no_byte, merges_apart, unreachable, word_without_merges, not_special, split_by(r"\w+|\s")],
)
def test_vocabularies_that_tiktoken_would_read_otherwise_are_refused(build, change):
    payload, texts = changed(change), ["abc zebra xyz", "a b"]
    refused(lambda: build(payload, texts, "tiktoken"), tl.TokenizerError, "toy.json")
    assert build(payload, texts).digest == build(payload, texts, "reference").digest


def test_demands_that_cannot_be_met_are_refused(build, tmp_path, monkeypatch):
    payload, rows = toys.bpe_json(), [{"text": "a"}]
    refused(lambda: build(payload, "a", "tictoken"), tl.ConfigError, "engine", "'tiktoken'")
    for engine, extra in (("tiktoken", "tokenloom[build]"), ("fast", "tokenloom[fast]")):
        special = lambda e=engine: build(payload, "a", e, parse_special=True)  # noqa: E731
        refused(special, tl.TokenizerError, engine)
        plain = lambda e=engine: tl.build(rows, tmp_path / "b", tokenizer="bytes", engine=e)  # noqa: E731
        refused(plain, tl.TokenizerError, engine, "bytes")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "fastokens", None)
            patch.setitem(sys.modules, "tiktoken", None)
            refused(lambda e=engine: build(payload, "a", e), tl.MissingExtra, extra)
            assert build(payload, "a").num_documents == 1  # by the reference
    own = {"tokenizer": toys.tiktoken_encoding(), "engine": "tiktoken"}  # is the reference here
    refused(lambda: tl.build(rows, tmp_path / "t", **own), tl.TokenizerError, "tiktoken")


class PanicException(BaseException):
    """As a library in Rust raises."""


# -- a library that is wrong ---------------------------------------------------------------


@pytest.fixture
def spoil(monkeypatch):
    """Makes tiktoken give other ids for texts with a word, or raise."""
    right = tiktoken.Encoding.encode_ordinary

    def spoil(word, change):
        def encode(self, text):
            ids = right(self, text)
            return change(ids) if word in text else ids

        monkeypatch.setattr(tiktoken.Encoding, "encode_ordinary", encode)

    return spoil


def rows_with_a_zebra():
    texts = [part for text in toys.sources(60) for part in text.split("\n\n")][:200]
    texts[150] += " zebra"
    return texts


@pytest.mark.parametrize("change", [lambda ids: [*ids[:-1], ids[-1] ^ 1], lambda ids: ids[:-1]])
def test_one_difference_is_found_where_every_document_is_checked(build, spoil, change):
    texts = rows_with_a_zebra()
    right = build(toys.bpe_json(), texts, "reference")
    spoil("zebra", change)
    assert build(toys.bpe_json(), texts, verify_all=True).digest == right.digest


def test_without_a_check_a_document_that_no_sample_hits_keeps_its_wrong_ids(build, spoil):
    """The control, as the docs say: the sample is one document in a thousand."""
    texts = rows_with_a_zebra()
    right = build(toys.bpe_json(), texts, "reference")
    spoil("zebra", lambda ids: [*ids[:-1], ids[-1] ^ 1])
    store = build(toys.bpe_json(), texts)
    different = [i for i in range(len(texts)) if any(store.document(i) != right.document(i))]
    assert different in ([150], [])


def test_an_engine_that_is_wrong_about_common_text_is_not_used(build, spoil):
    texts = toys.topics()[:3]
    right = build(toys.bpe_json(), texts, "reference")
    spoil("'s", lambda ids: ids[::-1])
    assert build(toys.bpe_json(), texts).digest == right.digest
    refused(lambda: build(toys.bpe_json(), texts, "tiktoken"), tl.TokenizerError, "tiktoken")


def test_a_text_on_which_the_engine_gives_up_goes_to_the_reference(build, spoil):
    texts = rows_with_a_zebra()
    right = build(toys.bpe_json(), texts, "reference")

    def give_up(ids):
        raise PanicException("too many blanks")

    spoil("zebra", give_up)
    assert build(toys.bpe_json(), texts, "tiktoken").digest == right.digest
