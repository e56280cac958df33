"""Ruling 42: the identity of a tokenizer is which token each id is, and which ids are special."""

import hashlib
import json
import struct

import sentencepiece
import tiktoken
import toys
from kit import QUICK, quick_folder
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import tokenloom as tl

WORDS = {"[PAD]": 0, "a": 1, "b": 2, "über": 3}


def words(vocabulary=WORDS, **changes):
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    for name, value in changes.items():
        getattr(made, f"enable_{name}")(**value)
    return made


def slow_identity(tokens, bos=None, eos=None, pad=None):
    raw = b"".join(struct.pack("<II", i, len(t)) + t for i, t in sorted(tokens.items()))
    raw += struct.pack("<3q", *(-1 if one is None else one for one in (bos, eos, pad)))
    return hashlib.sha256(raw).hexdigest()


def identity(tokenizer, **specials):
    """What a store built with it says."""
    with quick_folder() as folder:
        options = {"tokenizer": tokenizer, "add_eos": False, "files": QUICK, **specials}
        return tl.build([{"text": "a"}], folder / "s", **options).tokenizer_identity


def test_the_identity_is_over_ids_tokens_and_specials():
    tokens = {number: text.encode() for text, number in WORDS.items()}
    assert identity(words(), pad=0) == slow_identity(tokens, pad=0)
    assert identity("bytes", eos=0) == slow_identity({i: bytes([i]) for i in range(256)}, eos=0)


def test_padding_and_truncation_do_not_count_even_in_the_file(tmp_path):
    plain, padded = words(), words(padding={"pad_id": 0, "length": 9}, truncation={"max_length": 5})
    assert json.loads(padded.to_str())["padding"]
    for name, one in (("plain", plain), ("padded", padded)):
        (tmp_path / f"{name}.json").write_text(one.to_str())
    assert identity(tmp_path / "plain.json") == identity(tmp_path / "padded.json")


def test_another_token_another_id_or_another_special_is_another_tokenizer():
    swapped = WORDS | {"a": 2, "b": 1}
    found = [
        identity(words(), pad=0),
        identity(words()),
        identity(words(), pad=1),
        identity(words(), eos=0),
        identity(words(), bos=0),
        identity(words(swapped), pad=0),
        identity(words(WORDS | {"c": 4}), pad=0),
        identity(words({"A" if k == "a" else k: v for k, v in WORDS.items()} | {"a": 9}), pad=0),
    ]
    assert len(set(found)) == len(found)


def test_room_in_the_vocabulary_is_no_token():
    assert identity(words(), vocab_size=64) == identity(words())


def byte_level():
    symbol = toys.SYMBOL_OF_BYTE
    vocabulary = {symbol[byte]: byte for byte in range(256)} | {symbol[32] + "a": 256}
    made = Tokenizer(models.BPE(vocabulary, [(symbol[32], "a")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|end|>"])
    return made


def test_a_byte_level_vocabulary_is_the_same_in_either_library():
    ranks = {bytes([byte]): byte for byte in range(256)} | {b" a": 256}
    encoding = tiktoken.Encoding(
        "toy", pat_str=".+", mergeable_ranks=ranks, special_tokens={"<|end|>": 257}
    )
    expected = slow_identity(
        {rank: token for token, rank in ranks.items()} | {257: b"<|end|>"}, eos=257
    )
    assert identity(byte_level(), eos=257) == expected
    assert identity(encoding, eos=257) == expected


def test_a_sentencepiece_model_has_the_identity_of_its_pieces(tmp_path):
    (tmp_path / "toy.model").write_bytes(toys.sentencepiece_model())
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "toy.model"))
    pieces = {i: model.id_to_piece(i).encode() for i in range(model.get_piece_size())}
    expected = slow_identity(pieces, bos=model.bos_id(), eos=model.eos_id())
    assert identity(tmp_path / "toy.model") == expected


def test_a_store_keeps_the_identity_or_gives_its_vocabulary_size(tmp_path):
    def build(name, rows, **options):
        return tl.build(rows, tmp_path / name, files=QUICK, **options)

    text = [{"text": "a b"}]
    kept = build("words", text, tokenizer=words(), pad=0)
    assert kept.tokenizer_identity == kept.tokenizer.identity == identity(words(), pad=0)
    assert tl.open(kept.path).tokenizer.decode([1, 2])
    padded = words(padding={"pad_id": 0, "length": 9})
    assert build("padded", text, tokenizer=padded, pad=0).tokenizer_identity == identity(
        words(), pad=0
    )
    ready = build("ids", [{"input_ids": [1]}], tokenizer=None, vocab_size=77)
    assert ready.tokenizer_identity == "vocab_size=77"
    function = build("function", text, tokenizer=lambda text: [1], vocab_size=78)
    assert function.tokenizer_identity == "vocab_size=78"
    more = build("words", [{"text": "b"}], tokenizer=words(), pad=0, append=True)
    assert more.tokenizer_identity == kept.tokenizer_identity
