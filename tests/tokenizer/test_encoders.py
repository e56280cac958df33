"""The reference encoders add nothing, lose nothing, and keep text as text."""

import json
import re
import sys

import numpy as np
import pytest
import sentencepiece
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import tokenloom as tl
from tokenloom.errors import ConfigError, InputError, TokenizerError
from tokenloom.tokenizer.encoders import decode, reference_encoder, token_strings
from tokenloom.tokenizer.spec import TokenizerSpec, resolve


def sentencepiece_spec():
    return resolve(sentencepiece.SentencePieceProcessor(model_proto=toys.sentencepiece_model()))[0]


SPECS = {
    "bytes": resolve("bytes")[0],
    "tokenizers": resolve(toys.bpe())[0],
    "tokenizers, llama3": resolve(toys.bpe("llama3"))[0],
    "tiktoken": resolve(toys.tiktoken_encoding())[0],
    "sentencepiece": sentencepiece_spec(),
    "callable": resolve("toys:words", vocab_size=1000)[0],
}
BYTE_LEVEL = ["bytes", "tokenizers", "tokenizers, llama3", "tiktoken"]
ENCODERS = {name: reference_encoder(spec) for name, spec in SPECS.items()}


def ids_of(spec, text, **kwargs):
    return reference_encoder(spec, **kwargs).encode([text]).ids.tolist()


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_what_was_encoded_comes_back_character_for_character(name):
    for text in [*toys.NASTY, *toys.topics()[:2]]:
        assert decode(SPECS[name], ENCODERS[name].encode([text]).ids) == text


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back_and_conserves_its_bytes(text):
    for name in BYTE_LEVEL:
        assert decode(SPECS[name], ENCODERS[name].encode([text]).ids) == text


def test_a_sentencepiece_model_without_normalisation_gives_text_back():
    spec = SPECS["sentencepiece"]
    for text in toys.NASTY:
        if "▁" not in text:  # its own mark for a space
            assert decode(spec, ids_of(spec, text)) == text


@pytest.mark.parametrize("name", SPECS)
def test_a_batch_is_its_texts_one_after_the_other(name):
    encoder, texts = ENCODERS[name], [*toys.NASTY, *toys.NASTY[:3]]
    ids, lengths = encoder.encode(texts)
    assert (ids.dtype, lengths.dtype, ids.shape) == (np.uint32, np.int64, (lengths.sum(),))
    singles = [encoder.encode([text]) for text in texts]
    assert np.array_equal(ids, np.concatenate([single.ids for single in singles]))
    assert lengths.tolist() == [single.ids.size for single in singles]
    assert ids.max() < SPECS[name].vocab_size
    nothing = encoder.encode([])
    assert (nothing.ids.size, nothing.lengths.size, nothing.ids.dtype) == (0, 0, np.uint32)


@pytest.mark.parametrize("name", SPECS)
def test_encoders_say_which_library_and_version_they_are(name):
    assert ENCODERS[name].engine == SPECS[name].kind
    assert ENCODERS[name].version
    if name == "tiktoken":
        assert ENCODERS[name].version == sys.modules["tiktoken"].__version__


# ------------------------------------------------------------------------------ special tokens


def test_no_special_token_padding_or_truncation_is_added_even_if_the_file_asks_for_it():
    eager = toys.bpe(specials=("<s>", "</s>", "<pad>"))
    plain = eager.encode("some words here", add_special_tokens=False).ids
    eager.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    eager.enable_truncation(2)
    eager.enable_padding(length=50, pad_id=2, pad_token="<pad>")
    assert len(eager.encode("some words here").ids) == 50
    as_file = TokenizerSpec(
        kind="tokenizers", name="x", vocab_size=1000, payload=eager.to_str().encode()
    )
    for spec in (resolve(eager)[0], as_file):
        assert ids_of(spec, "some words here") == plain


@pytest.mark.parametrize("name", ["tokenizers", "tiktoken"])
def test_text_that_spells_a_special_token_stays_text_unless_parsing_is_asked_for(name):
    spec, text = SPECS[name], "one<|endoftext|>two"
    kept, parsed = ids_of(spec, text), ids_of(spec, text, parse_special=True)
    assert spec.eos not in kept
    assert parsed.count(spec.eos) == 1
    assert len(parsed) < len(kept)
    assert decode(spec, kept) == decode(spec, parsed) == text
    plain = "nothing special"
    assert ids_of(spec, plain) == ids_of(spec, plain, parse_special=True)


def test_added_tokens_that_are_not_special_are_parsed_always():
    spec, _ = resolve(Tokenizer.from_str(toys.added("<tool>", special=False).decode()))
    assert 1000 in ids_of(spec, "a<tool>b")
    spec, _ = resolve(Tokenizer.from_str(toys.added("<tool>", special=True).decode()))
    assert 1000 not in ids_of(spec, "a<tool>b")


def test_sentencepiece_keeps_control_symbols_as_text_and_parses_user_defined_ones():
    spec = SPECS["sentencepiece"]
    model = sentencepiece.SentencePieceProcessor(model_proto=spec.payload)
    ids = ids_of(spec, "<s><control></s><user>")
    assert {spec.bos, spec.eos, model.piece_to_id("<control>")}.isdisjoint(ids)
    assert ids[-1] == model.piece_to_id("<user>")


@pytest.mark.parametrize("name", ["sentencepiece", "callable"])
def test_parsing_is_refused_where_it_cannot_be_done(name):
    with pytest.raises(ConfigError, match="parse_special: True is not possible"):
        reference_encoder(SPECS[name], parse_special=True)


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", SPECS)
def test_a_lone_surrogate_is_refused_with_its_place(name):
    text = json.loads(r'"caf\u00e9 \ud83d!"')
    with pytest.raises(InputError, match=r"text 2 of the batch: character 5 .* U\+D83D"):
        ENCODERS[name].encode(["fine", "é", text])


def test_a_panic_of_tiktoken_is_an_error_that_can_be_caught(capfd):
    with pytest.raises(TokenizerError, match="tiktoken gave up"):
        ENCODERS["tiktoken"].encode([" " * 1_000_000 + "x"])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1, 100], "returned the id 100 for a text; ids must be 0 to 99"),
        ([-1], "returned the id -1"),
        ([0.5], "an array of float64, 1 axes"),
        ([[1], [2]], "an array of int64, 2 axes"),
        (["a"], "flat sequence of integers"),
        ([True], "an array of bool"),
    ],
)
def test_what_a_callable_gives_is_checked(result, message):
    spec, live = resolve(lambda text: result, vocab_size=100)
    with pytest.raises(TokenizerError, match=message):
        ids_of(spec, "x", live=live)


@pytest.mark.parametrize(
    "result", [[], (1, 99), np.array([1, 2], np.uint16), np.arange(0), range(3)]
)
def test_a_callable_may_give_any_sequence_of_integers(result):
    spec, live = resolve(lambda text: result, vocab_size=100)
    assert ids_of(spec, "x", live=live) == list(result)


def test_a_callable_of_another_process_is_refused():
    spec, _ = resolve(lambda text: [1], vocab_size=100)
    with pytest.raises(TokenizerError, match="exists only in the process that made it"):
        reference_encoder(spec)


def test_a_callable_that_was_refused_works_as_the_message_says(tmp_path):
    """By module and name, or in one process; the error names the number of workers to use."""
    spec, _ = resolve(lambda text: [1], vocab_size=100)
    with pytest.raises(TokenizerError) as refused:
        reference_encoder(spec)
    assert "pass 'module:function'" in str(refused.value)
    named, _ = resolve("toys:words", vocab_size=1000)
    assert reference_encoder(named).encode(["a b a"]).ids.tolist() == toys.words("a b a")
    (workers,) = re.findall(r"workers=(\d+)", str(refused.value))
    store = tl.build(
        [{"text": "x"}],
        tmp_path / "s",
        tokenizer=lambda text: [1, 2],
        vocab_size=9,
        workers=int(workers),
    )
    assert store.document(0).tolist() == [1, 2]


# --------------------------------------------------------------------------------- back to text


@pytest.mark.parametrize("name", [*BYTE_LEVEL, "sentencepiece"])
def test_every_token_has_one_printable_string(name):
    spec = SPECS[name]
    strings = token_strings(spec, np.arange(spec.vocab_size))
    assert len(strings) == spec.vocab_size
    assert all(string.isprintable() for string in strings)


@pytest.mark.parametrize("name", [*BYTE_LEVEL, "sentencepiece"])
def test_pieces_of_a_character_are_shown_as_bytes(name):
    spec = SPECS[name]
    assert "".join(token_strings(spec, ids_of(spec, "a ⛵\n"))) in (
        "a <0xE2><0x9B><0xB5>\\n",
        "a <0xE2><0x9B><0xB5><0x0A>",  # SentencePiece, where the line end is a byte piece too
    )


def test_special_tokens_unknown_ids_and_callables_are_shown_too():
    assert token_strings(SPECS["tokenizers"], [0]) == ["<|endoftext|>"]
    top = SPECS["tiktoken"].vocab_size
    assert token_strings(SPECS["tiktoken"], [top - 1, top - 2]) == ["<|pad|>", f"<id {top - 2}>"]
    assert token_strings(SPECS["callable"], [3, 500]) == ["3", "500"]
    larger, _ = resolve("bytes", vocab_size=300)
    assert token_strings(larger, [65, 256]) == ["A", "<id 256>"]


def test_tokens_of_a_vocabulary_without_bytes_are_shown_as_they_are():
    model = models.WordLevel({"hello": 0, "##ing": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    spec, _ = resolve(tokenizer)
    assert token_strings(spec, [0, 1, 2, 0]) == ["hello", "##ing", "[UNK]", "hello"]


def test_decoding_refuses_foreign_ids_and_callables():
    with pytest.raises(TokenizerError, match="id 1000: not an id"):
        decode(SPECS["tokenizers"], [1, 1000])
    with pytest.raises(TokenizerError, match="no inverse"):
        decode(SPECS["callable"], [1])
    assert decode(SPECS["bytes"], [0xE2, 0x82]) == "\ufffd"
    assert decode(SPECS["tokenizers"], []) == ""
