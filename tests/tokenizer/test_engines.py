"""Accelerators give the reference's ids, or they are refused, routed around or caught."""

import copy
import importlib.metadata
import json
import random
import sys
import unicodedata

import numpy as np
import pytest
import sentencepiece
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from tokenloom.errors import ConfigError, InputError, MissingExtra, TokenizerError
from tokenloom.tokenizer import fast as engines
from tokenloom.tokenizer.encoders import Encoded, reference_encoder
from tokenloom.tokenizer.fast import EngineDisagrees, GuardedEncoder, choose_engine
from tokenloom.tokenizer.guard import merge
from tokenloom.tokenizer.probes import ADVERSARIAL, unassigned
from tokenloom.tokenizer.spec import TokenizerSpec, resolve

DEMANDS = ["tiktoken", "fast"]


def spec_of(payload):
    data = payload if isinstance(payload, bytes) else payload.encode()
    return TokenizerSpec(kind="tokenizers", name="toy.json", vocab_size=2**20, payload=data)


def equal(left, right):
    return np.array_equal(left.ids, right.ids) and np.array_equal(left.lengths, right.lengths)


class Spy:
    """An encoder that records the texts it gets, and may give different ids."""

    def __init__(self, inner, change=lambda ids: ids, refuse=()):
        self.inner, self.change, self.refuse, self.seen = inner, change, refuse, []
        self.engine, self.version = "spy", "1"

    def encode(self, texts):
        if any(text in self.refuse for text in texts):
            raise TokenizerError("gave up")
        self.seen += texts
        ids, lengths = self.inner.encode(texts)
        return Encoded(self.change(ids.copy()), lengths)


@pytest.fixture(scope="module")
def reference():
    return reference_encoder(spec_of(toys.bpe_json()))


def guarded(reference, fast=None, **kwargs):
    return GuardedEncoder(fast=fast or Spy(reference), reference=reference, **kwargs)


EVERY = np.zeros(100, np.uint64)  # keys that put every document in the sample

# ------------------------------------------------------------------- equal to the reference


@pytest.mark.parametrize("engine", DEMANDS)
@pytest.mark.parametrize("pattern", toys.PATTERNS)
def test_ids_equal_the_reference_on_real_text(engine, pattern):
    spec = spec_of(toys.bpe_json(pattern))
    encoder, reason = choose_engine(spec, engine)
    texts = [*toys.sources(), *toys.NASTY, *ADVERSARIAL]
    assert reason is None
    assert equal(encoder.encode(texts), reference_encoder(spec).encode(texts))


@pytest.mark.parametrize("engine", DEMANDS)
@pytest.mark.parametrize("pattern", toys.PATTERNS)
def test_words_end_at_the_same_characters_all_over_unicode(engine, pattern):
    """A vocabulary whose ids reveal where words end; every 193rd assigned character in context."""
    spec = spec_of(toys.revealing_json(pattern))
    encoder = choose_engine(spec, engine)[0]
    known = np.flatnonzero(~unassigned())
    known = [chr(c) for c in known if not 0xD800 <= c < 0xE000][::193]
    contexts = ["a{0}b", " {0}{0} ", "x'{0}t", "1{0}1", "\n{0}\n!{0}?", "A{0}a {0}"]
    texts = [context.format(character) for character in known for context in contexts]
    keys = np.zeros(len(texts), np.uint64)
    assert equal(encoder.encode(texts, keys), reference_encoder(spec).encode(texts))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.text(
            st.sampled_from(" \n\r\t'sStT1aZ.é中ſ😀\u0301\u200d")
            | st.characters(exclude_categories=["Cs"])
        )
    )
)
def test_ids_equal_the_reference_on_any_text(texts):
    for pattern in ("gpt2", "o200k"):
        for encoder in _encoders(pattern):
            assert equal(encoder.encode(texts), encoder.reference.encode(texts))


_CACHE = {}


def _encoders(pattern):
    if pattern not in _CACHE:
        spec = spec_of(toys.revealing_json(pattern))
        _CACHE[pattern] = [choose_engine(spec, engine)[0] for engine in DEMANDS]
    return _CACHE[pattern]


def test_ids_that_are_not_in_merge_order_are_mapped():
    data = json.loads(toys.bpe_json())
    data["added_tokens"] = []
    shuffled = random.Random(7).sample(range(5000), len(data["model"]["vocab"]))
    data["model"]["vocab"] = dict(zip(data["model"]["vocab"], shuffled, strict=True))
    spec = spec_of(json.dumps(data))
    encoder = choose_engine(spec, "tiktoken")[0]
    texts = [*toys.NASTY, *toys.topics()[:5]]
    assert equal(encoder.encode(texts), reference_encoder(spec).encode(texts))
    assert encoder.encode(texts).ids.max() > 1000


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_a_vocabulary_converted_from_ranks_is_accepted_with_all_its_merges(ignore_merges):
    """Such files (Llama 3's) list every split of a token, even those that can never happen."""
    data = json.loads(toys.bpe_json())
    order = {"".join(pair): rank for rank, pair in enumerate(data["model"]["merges"])}
    single = dict.fromkeys(toys.SYMBOL_OF_BYTE.values(), -1)
    ranks = single | order
    merges = [
        [token[:cut], token[cut:]]
        for token in order
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    assert any(ranks[right] > ranks[left + right] for left, right in merges)
    data["model"] |= {"merges": merges, "ignore_merges": ignore_merges}
    if ignore_merges:
        del data["model"]["vocab"]["<|endoftext|>"]
        data["added_tokens"][0]["id"] = 5000
    spec = spec_of(json.dumps(data))
    encoder, reason = choose_engine(spec, "auto")
    assert (encoder.engine, reason) == ("tiktoken", None)
    texts = [*toys.NASTY, *toys.topics()[:10], *toys.sources()[:5]]
    assert equal(encoder.encode(texts), reference_encoder(spec).encode(texts))


# ----------------------------------------------------------------------------------- choosing


def test_auto_is_tiktoken_under_guard_and_says_so():
    encoder, reason = choose_engine(spec_of(toys.bpe_json()))
    assert isinstance(encoder, GuardedEncoder)
    assert reason is None
    assert (encoder.engine, encoder.version) == ("tiktoken", importlib.metadata.version("tiktoken"))
    assert encoder.reference.engine == "tokenizers"
    assert choose_engine(spec_of(toys.bpe_json()), "fast")[0].engine == "fastokens"


def test_the_reference_can_be_asked_for_and_takes_over_where_nothing_is_faster():
    encoder, reason = choose_engine(spec_of(toys.bpe_json()), "reference")
    assert (encoder.engine, reason) == ("tokenizers", "the reference encoder was requested")
    encoder, reason = choose_engine(spec_of(toys.bpe_json()), parse_special=True)
    assert encoder.engine == "tokenizers"
    assert "do not parse special tokens" in reason
    assert 0 in encoder.encode(["<|endoftext|>"]).ids
    model = sentencepiece.SentencePieceProcessor(model_proto=toys.sentencepiece_model())
    for tokenizer in ("bytes", model, toys.tiktoken_encoding()):
        spec, _ = resolve(tokenizer)
        encoder, reason = choose_engine(spec)
        assert encoder.engine == spec.kind
        assert "has no accelerator" in reason
    spec, live = resolve(lambda text: [len(text)], vocab_size=9)
    assert choose_engine(spec, live=live)[0].encode(["abc"]).ids.tolist() == [3]
    assert choose_engine(resolve(toys.tiktoken_encoding())[0], "tiktoken")[1] is None


def test_demands_that_cannot_be_met_are_refused():
    with pytest.raises(ConfigError, match="Did you mean 'tiktoken'"):
        choose_engine(spec_of(toys.bpe_json()), "tictoken")
    for engine in DEMANDS:
        with pytest.raises(TokenizerError, match="accelerators do not parse"):
            choose_engine(spec_of(toys.bpe_json()), engine, parse_special=True)
        with pytest.raises(TokenizerError, match="kind 'bytes' has no accelerator"):
            choose_engine(resolve("bytes")[0], engine)


def test_a_missing_library_is_a_reason_or_an_error_when_demanded(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastokens", None)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    spec = spec_of(toys.bpe_json())
    with pytest.raises(MissingExtra, match=r"tokenloom\[fast\]"):
        choose_engine(spec, "fast")
    with pytest.raises(MissingExtra, match=r"tokenloom\[build\]"):
        choose_engine(spec, "tiktoken")
    encoder, reason = choose_engine(spec)
    assert encoder.engine == "tokenizers"
    assert "not installed" in reason


# ------------------------------------------------------------------------------ preconditions

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
SPLIT = "pre_tokenizer.pretokenizers.0."
SHARED = [
    ("gpt2", "normalizer", {"type": "NFC"}, "it has a normalizer (NFC)"),
    ("gpt2", "model.unk_token", "<|endoftext|>", "model.unk_token is '<|endoftext|>'"),
    ("gpt2", "model.byte_fallback", True, "model.byte_fallback is True"),
    ("gpt2", "model.end_of_word_suffix", "</w>", "model.end_of_word_suffix is '</w>'"),
    ("gpt2", "pre_tokenizer", None, "pre_tokenizer is None, not ByteLevel"),
    ("gpt2", "pre_tokenizer.add_prefix_space", True, "puts a space before the text"),
    ("gpt2", "pre_tokenizer.use_regex", False, "(use_regex)"),
    ("llama3", "pre_tokenizer.pretokenizers.1.use_regex", True, "(use_regex)"),
    ("llama3", SPLIT + "behavior", "Removed", "its Split has behavior Removed"),
    ("llama3", SPLIT + "behavior", "MergedWithNext", "behavior MergedWithNext"),
    ("llama3", SPLIT + "invert", True, "invert True"),
    ("llama3", SPLIT + "pattern", {"String": " "}, "a fixed string"),
    (
        "llama3",
        "pre_tokenizer.pretokenizers",
        [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True}],
        "pre_tokenizer is Digits + ByteLevel",
    ),
]


@pytest.mark.parametrize("engine", DEMANDS)
@pytest.mark.parametrize(("pattern", "path", "value", "reason"), SHARED)
def test_each_precondition_is_refused_with_its_reason(engine, pattern, path, value, reason):
    spec = spec_of(toys.changed(path, value, pattern))
    with pytest.raises(TokenizerError) as caught:
        choose_engine(spec, engine)
    assert reason in str(caught.value)
    encoder, why = choose_engine(spec, "auto")
    assert encoder.engine == "tokenizers"
    assert reason in why


def test_dropout_is_refused_before_any_engine_and_by_the_engines_too():
    payload = toys.changed("model.dropout", 0.1)
    with pytest.raises(TokenizerError, match=r"model\.dropout is 0\.1"):
        choose_engine(spec_of(payload))
    with pytest.raises(TokenizerError, match=r"its model\.dropout is 0\.1"):
        engines._split_pattern(json.loads(payload))


def test_models_other_than_bpe_are_refused():
    spec, _ = resolve(Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))
    assert choose_engine(spec)[1] == "its model is WordLevel, not BPE"


def changed_model(change):
    data = copy.deepcopy(json.loads(toys.bpe_json()))
    change(data)
    return spec_of(json.dumps(data))


def no_byte(data):
    del data["model"]["vocab"]["ā"]  # the symbol of byte 1


def merges_apart(data):
    model = data["model"]
    model["vocab"] |= {"xy": 2000, "yz": 2001, "xyz": 2002}
    model["merges"] += [["x", "y"], ["xy", "z"], ["y", "z"], ["x", "yz"]]


def unreachable(data):
    """b+c is merged before a+b, so "abc" is never merged; tiktoken would take it as a whole."""
    vocabulary = toys.SYMBOL_OF_BYTE.values()
    merges = [["b", "c"], ["a", "b"], ["ab", "c"]]
    tokens = [*vocabulary, "bc", "ab", "abc"]
    data["added_tokens"] = []
    data["model"] |= {"vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}


def word_without_merges(data):
    data["model"]["ignore_merges"] = True
    data["model"]["vocab"]["zebra"] = 2000


def not_special(data):
    data["added_tokens"][0]["special"] = False


def gaps(data):
    split = {
        "type": "Split",
        "pattern": {"Regex": r"\w+|\s"},
        "behavior": "Isolated",
        "invert": False,
    }
    data["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [split, BYTE_LEVEL | {"use_regex": False}],
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_byte, "its vocabulary lacks 'ā'"),
        (merges_apart, "its merges that result in 'xyz' are not adjacent"),
        (unreachable, "its token 'abc' is not what its own bytes merge to"),
        (word_without_merges, "is a word without merges"),
        (not_special, "its added token '<|endoftext|>' is not special"),
        (gaps, "its pattern leaves parts of a text unmatched"),
    ],
)
def test_vocabularies_that_tiktoken_would_read_otherwise_are_refused(change, reason):
    spec = changed_model(change)
    encoder, why = choose_engine(spec)
    assert encoder.engine == "tokenizers"
    assert reason in why
    with pytest.raises(TokenizerError, match=r"cannot be used for 'toy\.json'"):
        choose_engine(spec, "tiktoken")


def test_a_pattern_that_tiktoken_cannot_read_is_a_reason():
    data = json.loads(toys.bpe_json())
    with pytest.raises(TokenizerError, match="tiktoken cannot read its pattern"):
        engines._tiktoken(data, r"(?<name")


def test_the_unreachable_token_would_indeed_have_other_ids(monkeypatch):
    """Negative control: without the check the two differ, and the probes say so."""
    monkeypatch.setattr(engines, "_refuse_unreachable", lambda *_: None)
    _, why = choose_engine(changed_model(unreachable))
    assert "gives different ids than tokenizers" in why


# ------------------------------------------------------------------------------------ guards


def test_the_adversarial_list_is_long_and_has_no_doubles():
    assert len(ADVERSARIAL) >= 80
    assert len(set(ADVERSARIAL)) == len(ADVERSARIAL)
    categories = {unicodedata.category(c) for text in ADVERSARIAL for c in text}
    assert len(categories) >= 27  # of 30; surrogates cannot occur


def swap(left, right):
    table = np.arange(2000, dtype=np.uint32)
    table[[left, right]] = right, left
    return lambda ids: table[ids]


def test_an_engine_that_differs_on_a_probe_is_refused_with_the_text(reference):
    word = reference.encode(["return"]).ids
    broken = Spy(reference, swap(int(word[0]), 1999))
    with pytest.raises(
        TokenizerError, match=r"spy 1 gives different ids than tokenizers .* 'return\\n'"
    ):
        guarded(reference, broken, probes=("", "return\n"))
    with pytest.raises(TokenizerError, match="spy 1 gives different ids"):
        guarded(reference, broken)
    with pytest.raises(TokenizerError, match="gave up"):
        guarded(reference, Spy(reference, refuse=["\n"]))


def test_an_engine_broken_in_a_word_of_no_probe_is_caught_by_the_sample(reference):
    """Negative control for the guard: two ids exchanged, neither of them in any probe."""
    seen = set(reference.encode(ADVERSARIAL).ids.tolist())
    texts = toys.topics()[:40]
    unseen = sorted(set(reference.encode(texts).ids.tolist()) - seen)
    change = swap(unseen[0], unseen[1])
    encoder = guarded(reference, Spy(reference, change), rate=1)
    with pytest.raises(EngineDisagrees) as caught:
        encoder.encode(texts, EVERY[: len(texts)])
    error = caught.value
    right = reference.encode([texts[error.position]]).ids.tolist()
    assert right[error.first] in unseen[:2]
    assert error.reference_ids == right[max(0, error.first - 4) : error.first + 5]
    assert error.engine_ids != error.reference_ids
    assert (error.engine, error.reference.split()[0]) == ("spy 1", "tokenizers")
    for part in (f"text {error.position}", "spy 1", "tokenizers", "engine='reference'"):
        assert part in str(error)
    again = copy.copy(error)  # exceptions travel between processes by their arguments
    assert str(again) == str(EngineDisagrees(*error.args)) == str(error)
    # Probes made from the vocabulary, which choose_engine adds, find it before first use.
    own = tuple(engines._own_probes(json.loads(toys.bpe_json())))
    with pytest.raises(TokenizerError, match="gives different ids"):
        guarded(reference, Spy(reference, change), probes=own)


def test_missing_ids_at_the_end_are_a_difference_too(reference):
    class Short(Spy):
        def encode(self, texts):
            ids, lengths = super().encode(texts)
            return Encoded(ids[:-1], lengths - (np.arange(len(texts)) == len(texts) - 1))

    with pytest.raises(EngineDisagrees) as caught:
        guarded(reference, Short(reference), rate=1, probes=()).encode(["one", "two"], EVERY[:2])
    assert caught.value.position == 1
    assert len(caught.value.engine_ids) == len(caught.value.reference_ids) - 1


def test_the_sample_is_the_texts_whose_keys_are_below_the_rate(reference):
    texts = [f"text {i}" for i in range(8)]
    step = 2**61
    keys = np.arange(8, dtype=np.uint64) * np.uint64(step)
    for rate, expected in ((0, 0), (0.25, 2), (0.5, 4), (1, 8)):
        judge = Spy(reference)
        encoder = GuardedEncoder(fast=reference, reference=judge, rate=rate, probes=())
        encoder.encode(texts, keys)
        assert judge.seen == texts[:expected]
    judge = Spy(reference)
    GuardedEncoder(fast=reference, reference=judge, rate=1, probes=()).encode(texts)
    assert judge.seen == []
    top = np.full(8, 2**64 - 1, np.uint64)
    GuardedEncoder(fast=reference, reference=judge, rate=1, probes=()).encode(texts, top)
    assert judge.seen == texts


@pytest.mark.parametrize("rate", [-0.1, 1.1])
def test_a_rate_that_is_no_share_is_refused(reference, rate):
    with pytest.raises(ConfigError, match="not a share"):
        guarded(reference, rate=rate)


@pytest.mark.parametrize("keys", [np.zeros(3, np.uint64), np.zeros(2, np.int64)])
def test_keys_must_be_one_uint64_per_text(reference, keys):
    with pytest.raises(ConfigError, match="Give one uint64 per text"):
        guarded(reference, probes=()).encode(["a", "b"], keys)


def test_a_character_newer_than_unicode_14_goes_to_the_reference(reference):
    fast, judge = Spy(reference), Spy(reference)
    encoder = GuardedEncoder(fast=fast, reference=judge, rate=1, probes=())
    texts = ["old", "new \ua7cf", "déjà", "\U0001fae8", ""]
    encoded = encoder.encode(texts, EVERY[:5])
    assert fast.seen == ["old", "déjà", ""]
    assert judge.seen == ["new \ua7cf", "\U0001fae8", "old", "déjà", ""]
    assert equal(encoded, reference.encode(texts))


def test_fastokens_leaves_long_s_to_the_reference():
    """Unlike tokenizers, it does not fold it in (?i:'s): found with the revealing vocabulary."""
    spec = spec_of(toys.revealing_json("llama3"))
    encoder = choose_engine(spec, "fast")[0]
    texts = ["x'\u017ft", "x'st"]
    assert equal(encoder.encode(texts, EVERY[:2]), reference_encoder(spec).encode(texts))
    assert encoder.suspicious == "\u017f"


def test_a_text_on_which_the_engine_gives_up_goes_to_the_reference(reference):
    texts = ["one", "bad", "three"]
    fast, judge = Spy(reference, refuse=["bad"]), Spy(reference)
    encoder = GuardedEncoder(fast=fast, reference=judge, probes=())
    assert equal(encoder.encode(texts), reference.encode(texts))
    assert (fast.seen, judge.seen) == (["one", "three"], ["bad"])


def test_a_panic_of_tiktoken_costs_no_document(capfd):
    """A million blanks make it panic; bytes replace the reference, which would take too long."""
    fast = choose_engine(spec_of(toys.bpe_json()), "tiktoken")[0].fast
    judge = reference_encoder(resolve("bytes")[0])
    texts = ["before", " " * 1_000_000 + "x", "after"]
    ids, lengths = GuardedEncoder(fast=fast, reference=judge, probes=()).encode(texts)
    first, last = fast.encode(texts[:1]).ids, fast.encode(texts[2:]).ids
    assert lengths.tolist() == [first.size, 1_000_001, last.size]
    assert np.array_equal(ids, np.concatenate([first, judge.encode(texts[1:2]).ids, last]))


def test_a_lone_surrogate_is_named_by_its_place_in_the_whole_batch(reference):
    with pytest.raises(InputError, match="text 2 of the batch"):
        guarded(reference, probes=()).encode(["\ua7cf", "a", "\ud800"])


def test_empty_batches_are_fine(reference):
    encoder = choose_engine(spec_of(toys.bpe_json()))[0]
    ids, lengths = encoder.encode([], np.empty(0, np.uint64))
    assert (ids.size, lengths.size) == (0, 0)


@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.integers(0, 2))))
def test_merging_parts_puts_every_text_back_in_its_place(items):
    parts = []
    for part in range(3):
        mine = [(i, ids) for i, (ids, where) in enumerate(items) if where == part]
        flat = np.array([x for _, ids in mine for x in ids], np.uint32)
        lengths = np.array([len(ids) for _, ids in mine], np.int64)
        parts.append((np.array([i for i, _ in mine], np.int64), Encoded(flat, lengths)))
    ids, lengths = merge(parts)
    assert ids.tolist() == [x for ids, _ in items for x in ids]
    assert lengths.tolist() == [len(ids) for ids, _ in items]
