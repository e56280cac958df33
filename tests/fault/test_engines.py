"""fastokens gives the ids of the reference, or it is refused, passed by, or caught."""

import copy
import functools
import json
import random
import sys
import unicodedata

import fastokens
import numpy as np
import pytest
import toys
from kit import QUICK
from refusals import refused

import tokenloom as tl

# folded by one library only, newer than most Unicode tables, or a special token in text
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
    found = {engine: build(payload, texts, engine).digest for engine in ("reference", "fast")}
    found["auto"] = build(payload, texts, verify_all=True).digest
    assert len(set(found.values())) == 1, found


def test_words_end_at_the_same_characters_all_over_unicode(build):
    """A vocabulary whose ids reveal where words end; every 487th assigned character in context."""
    known = [chr(c) for c in range(0x80, 0x110000) if unicodedata.category(chr(c)) not in "CnCsCo"]
    contexts = ["a{0}b", " {0}{0} ", "x'{0}t", "1{0}1", "\n{0}\n!{0}?", "A{0}a {0}"]
    texts = [" ".join(contexts).format(character) for character in known[::487]]
    payload = toys.revealing_json("llama3")
    found = {engine: build(payload, texts, engine).digest for engine in ("reference", "fast")}
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
    fast = build(payload, texts, verify_all=True)  # some fastokens cannot read
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
    refused(lambda: build(payload, texts, "fast"), tl.TokenizerError, "toy.json", named)
    assert build(payload, texts).digest == build(payload, texts, "reference").digest


def not_special(data):
    data["added_tokens"][0]["special"] = False


def unreachable(data):
    """b+c is merged before a+b, so "abc" is never merged."""
    tokens = [*toys.SYMBOL_OF_BYTE.values(), "bc", "ab", "abc"]
    merges = [["b", "c"], ["a", "b"], ["ab", "c"]]
    data["added_tokens"] = []
    data["model"] |= {"vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}


def word_without_merges(data):
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"]["zebra"] = 2000


@pytest.mark.parametrize("change", [not_special, unreachable, word_without_merges])
def test_odd_vocabularies_are_read_as_the_reference_reads_them(build, change):
    payload, texts = changed(change), ["abc zebra xyz", "a b<|endoftext|>c abc"]
    fast = build(payload, texts, verify_all=True)
    assert fast.digest == build(payload, texts, "reference").digest


def test_demands_that_cannot_be_met_are_refused(build, tmp_path, monkeypatch):
    payload, rows = toys.bpe_json(), [{"text": "a"}]
    refused(lambda: build(payload, "a", "tiktoken"), tl.ConfigError, "engine", "reference")
    special = lambda: build(payload, "a", "fast", parse_special=True)  # noqa: E731
    refused(special, tl.TokenizerError, "fast")
    for own in ("bytes", toys.tiktoken_encoding()):
        plain = lambda t=own: tl.build(rows, tmp_path / "b", tokenizer=t, engine="fast")  # noqa: E731
        refused(plain, tl.TokenizerError, "fast", "tokenizer.json")
    monkeypatch.setitem(sys.modules, "fastokens", None)
    refused(lambda: build(payload, "a", "fast"), tl.MissingExtra, "tokenloom[build]")
    assert build(payload, "a").num_documents == 1  # by the reference


# -- a library that is wrong ---------------------------------------------------------------


@pytest.fixture
def spoil(monkeypatch):
    """Makes fastokens give other ids for texts with a word."""
    right = fastokens.Tokenizer.from_json_str

    class Spoiled:
        def __init__(self, payload):
            self.own = right(payload)

        def __getattr__(self, name):
            return getattr(self.own, name)

        def encode_batch_flat(self, texts, **how):
            parts = [self.own.encode_batch_flat([text], **how)[0] for text in texts]
            ids = [np.frombuffer(part, "<u4") for part in parts]
            ids = [own[::-1] if word in text else own for text, own in zip(texts, ids, strict=True)]
            ends = np.cumsum([0, *map(len, ids)]).astype("<u8")
            return np.concatenate(ids).tobytes(), ends.tobytes()

    word = ""

    def spoil(some):
        nonlocal word
        word = some
        monkeypatch.setattr(fastokens.Tokenizer, "from_json_str", Spoiled)

    return spoil


def rows_with_a_zebra(number):
    texts = [part for text in toys.sources(60) for part in text.split("\n\n")][:2000]
    texts[number] += " zebra"
    return texts


@pytest.mark.parametrize(
    "how",
    [
        {"verify_all": True},
        {"engine": "fast", "verify_all": True},
        {"block_bytes": 1 << 20},  # the first documents are always checked
        {"block_bytes": 1 << 20, "on_error": "skip"},
    ],
)
def test_one_difference_stops_the_build_and_names_the_document(build, spoil, how):
    texts = rows_with_a_zebra(150)
    right = build(toys.bpe_json(), texts, "reference")
    spoil("zebra")
    wrong = functools.partial(build, toys.bpe_json(), texts, **how)
    refused(wrong, tl.TokenizerError, "rows-0: record 150", "fastokens", "'reference'")
    assert build(toys.bpe_json(), texts, "reference").digest == right.digest


def test_without_a_check_a_document_that_no_sample_hits_keeps_its_wrong_ids(build, spoil):
    """The control, as the docs say: the sample is one document in a thousand."""
    texts = rows_with_a_zebra(150)
    right = build(toys.bpe_json(), texts, "reference")
    spoil("zebra")
    store = build(toys.bpe_json(), texts)
    different = [i for i in range(len(texts)) if any(store.document(i) != right.document(i))]
    assert different == [150]
