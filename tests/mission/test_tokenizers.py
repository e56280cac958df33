"""Any tokenizer gives its own ids, keeps its text, and travels with the store."""

import functools
import json
import os
import sys

import numpy as np
import pytest
import sentencepiece
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from refusals import refused
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import tokenloom as tl

TEXT = "The cat's hat: déjà vu, 12345."


def sentencepiece_model(**specials):
    return sentencepiece.SentencePieceProcessor(model_proto=toys.sentencepiece_model(**specials))


KINDS = {
    "bytes": lambda: "bytes",
    "tokenizers": toys.bpe,
    "llama3": lambda: toys.bpe("llama3"),
    "tiktoken": toys.tiktoken_encoding,
    "tiktoken with gaps": lambda: toys.tiktoken_encoding(gap=5),
    "sentencepiece": sentencepiece_model,
    "callable": lambda: "toys:words",
}
BYTE_LEVEL = ["bytes", "tokenizers", "llama3", "tiktoken", "tiktoken with gaps"]


def built(tokenizer, texts, folder, **options):
    options = {"add_eos": False, "files": QUICK, "workers": 1, **options}
    options |= {"vocab_size": 1000} if tokenizer == "toys:words" else {}
    rows, out = [{"text": text} for text in texts], folder / f"s{len(os.listdir(folder))}"
    return tl.build(rows, out, tokenizer=tokenizer, **options)


@pytest.fixture
def build(tmp_path):
    """Builds a store of some texts without specials."""
    return lambda tokenizer, *texts, **options: built(tokenizer, texts, tmp_path, **options)


def ids_of(store):
    return [ids.tolist() for ids in store.documents(range(store.num_documents))]


# -- ids and text --------------------------------------------------------------------------


def own_ids(kind, tokenizer, text):
    """The ids of the library itself, for a text that spells no special token."""
    if kind == "bytes":
        return list(text.encode())
    if kind == "callable":
        return toys.words(text)
    if "tiktoken" in kind:
        return tokenizer.encode_ordinary(text)
    if kind == "sentencepiece":
        return tokenizer.encode(text)
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_ids_of_its_library_and_takes_text_back(build, kind):
    tokenizer = KINDS[kind]()
    texts = [text for text in [*toys.NASTY, *toys.topics()[:2]] if "<|endoftext|>" not in text]
    store = build(tokenizer, *texts)
    assert ids_of(store) == [own_ids(kind, tokenizer, text) for text in texts]
    again = tl.open(store.path).tokenizer
    if kind == "callable":
        assert again.kind == "callable"
        refused(lambda: again.encode("x"), tl.TokenizerError, "toys:words")
        refused(lambda: again.decode([1]), tl.TokenizerError, "toys:words")
        assert again.token_strings([3, 500]) == ["3", "500"]
        return
    for i, text in enumerate(texts):
        assert again.encode(text).tolist() == store.document(i).tolist()
        if kind != "sentencepiece" or "▁" not in text:  # its own mark for a space
            assert again.decode(store.document(i)) == text
    assert again.decode([]) == ""
    refused(lambda: again.decode([1, again.vocab_size]), tl.TokenizerError, again.vocab_size)


@settings(max_examples=10)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
@pytest.mark.parametrize("kind", ["tokenizers", "tiktoken"])
def test_any_text_comes_back(kind, texts):
    with quick_folder() as folder:
        texts = ["x", *texts]
        store = built(KINDS[kind](), texts, folder)
        assert [store.tokenizer.decode(ids) for ids in ids_of(store)] == texts


def test_many_texts_in_one_call_have_the_ids_of_single_texts(build):
    texts = [f"the cat {i} " * (i % 9) for i in range(1, 700)] + ["x" * 70_000, "é" * 9000, ""]
    own = toys.bpe()
    store = build(own, *texts, engine="reference")
    assert ids_of(store) == [own.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.mark.parametrize("kind", [*BYTE_LEVEL, "sentencepiece"])
def test_every_token_has_one_printable_string(build, kind):
    tokenizer = build(KINDS[kind](), "a ⛵\n").tokenizer
    strings = tokenizer.token_strings(range(tokenizer.vocab_size))
    assert len(strings) == tokenizer.vocab_size
    assert all(string.isprintable() for string in strings)
    shown = "".join(tokenizer.token_strings(tokenizer.encode("a ⛵\n")))
    assert shown in ("a <0xE2><0x9B><0xB5>\\n", "a <0xE2><0x9B><0xB5><0x0A>")


def test_special_and_unknown_ids_and_words_are_shown_too(build):
    assert build(toys.bpe(), "a").tokenizer.token_strings([0]) == ["<|endoftext|>"]
    own = build(toys.tiktoken_encoding(), "a").tokenizer
    top = own.vocab_size
    assert own.token_strings([top - 1, top - 2]) == ["<|pad|>", f"<id {top - 2}>"]
    larger = build("bytes", "a", vocab_size=300).tokenizer
    assert larger.token_strings([65, 256]) == ["A", "<id 256>"]
    model = models.WordLevel({"hello": 0, "##ing": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    shown = build(tokenizer, "hello").tokenizer.token_strings([0, 1, 2, 0])
    assert shown == ["hello", "##ing", "[UNK]", "hello"]
    tokenizer.decoder = decoders.WordPiece()
    assert build(tokenizer, "hello").tokenizer.decode([0, 1]) == "helloing"


# -- every accepted form -------------------------------------------------------------------


def save(folder, payload, **files):
    (folder / "tokenizer.json").write_text(payload)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_all_forms_of_one_tokenizer_json_give_the_same_ids(build, tmp_path):
    folder = tmp_path / "form"
    folder.mkdir()
    save(folder, toys.bpe_json())
    other = tmp_path / "other.json"
    other.write_text(toys.bpe_json())
    used = toys.bpe()  # what earlier calls left does not touch its ids
    used.enable_padding(length=7)
    used.enable_truncation(3)
    expected = [toys.bpe().encode(TEXT, add_special_tokens=False).ids]
    named = {"form": [folder, str(folder)], "tokenizer.json": [folder / "tokenizer.json"]}
    named |= {"other.json": [str(other)], "Tokenizer": [toys.bpe(), used]}
    objects = [toys.transformers_fast(eos_token="<|endoftext|>")]
    identities = set()
    for name, forms in {**named, None: objects}.items():
        for form in forms:
            store = build(form, TEXT)
            found = store.tokenizer
            assert ids_of(store) == expected
            assert (found.kind, found.eos, found.vocab_size) == ("tokenizers", 0, 1000)
            assert name is None or found.name == name
            identities.add(found.identity)
    assert len(identities) == 1


def test_no_special_token_padding_or_truncation_is_added_even_if_the_file_asks_for_it(
    build, tmp_path
):
    eager = toys.bpe(specials=("<s>", "</s>", "<pad>"))
    plain = eager.encode("some words here", add_special_tokens=False).ids
    eager.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    eager.enable_truncation(2)
    eager.enable_padding(length=50, pad_id=2, pad_token="<pad>")
    assert len(eager.encode("some words here").ids) == 50
    eager.save(str(tmp_path / "eager.json"))
    for form in (eager, tmp_path / "eager.json"):
        assert ids_of(build(form, "some words here")) == [plain]


def test_a_slow_transformers_tokenizer_is_called_as_a_function(build):
    from transformers import PreTrainedTokenizer

    class Letters(PreTrainedTokenizer):
        vocab_size = 128

        def get_vocab(self):
            return {chr(i): i for i in range(128)} | self.added_tokens_encoder

        def _tokenize(self, text, **kwargs):
            return list(text)

        def _convert_token_to_id(self, token):
            return ord(token)

        def _convert_id_to_token(self, index):
            return chr(index)

    store = build(Letters(eos_token="<end>"), "a<end>")
    assert ids_of(store) == [[97, 60, 101, 110, 100, 62]]
    assert (store.tokenizer.kind, store.vocab_size, store.tokenizer.eos) == ("callable", 129, 128)


def test_sentencepiece_files_and_objects(build, tmp_path):
    path = tmp_path / "toy.model"
    path.write_bytes(toys.sentencepiece_model(pad_id=3))
    expected = [sentencepiece_model(pad_id=3).encode(TEXT)]
    for form in (path, str(path), sentencepiece_model(pad_id=3)):
        store = build(form, TEXT)
        assert ids_of(store) == expected
        own = store.tokenizer
        assert (own.kind, own.bos, own.eos, own.pad) == ("sentencepiece", 1, 2, 3)
    without = sentencepiece_model(bos_id=-1, eos_id=-1, unk_id=1, pad_id=0)
    own = build(without, TEXT, bos="<control>").tokenizer
    assert (own.bos, own.eos, own.pad) == (2, None, 0)
    refused(lambda: build(sentencepiece.SentencePieceProcessor(), "x"), tl.TokenizerError)


@pytest.mark.parametrize(
    "function", [toys.words, toys.Counter(), toys.Counter().method, "toys:words", lambda text: [1]]
)
def test_functions_are_called(build, function):
    call = toys.words if isinstance(function, str) else function
    store = build(function, TEXT, "b", vocab_size=1000)
    assert ids_of(store) == [list(call(TEXT)), list(call("b"))]


@pytest.mark.parametrize("result", [[], (1, 99), np.array([1, 2], np.uint16), range(3)])
def test_a_function_may_give_any_sequence_of_integers(build, result):
    store = build(lambda text: result if text == "x" else [7], "x", "y", vocab_size=100)
    assert ids_of(store) == [list(result), [7]]


@pytest.mark.parametrize(
    ("result", "named"),
    [([1, 100], 100), ([-1], -1), ([0.5], "float64"), ([[1], [2]], 2), ([True], "bool")],
)
def test_what_a_function_gives_is_checked(build, result, named):
    refused(lambda: build(lambda text: result, "x", vocab_size=100), tl.TokenizerError, named)


def test_a_tiktoken_name_is_loaded_from_its_cache_and_never_downloaded(
    build, tmp_path, monkeypatch
):
    import tiktoken

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    for name in ("tiktoken:cl100k_base", "cl100k_base"):
        refused(functools.partial(build, name, "x"), tl.TokenizerError, "cl100k_base", "cache")
    refused(lambda: build("tiktoken:cl100kbase", "x"), tl.TokenizerError, "'cl100k_base'")
    # The file's name in the cache is the sha1 of its URL.
    (tmp_path / "cache/9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"")
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: toys.tiktoken_encoding(name))
    for name in ("tiktoken:cl100k_base", "cl100k_base"):
        assert build(name, "x").tokenizer.name == "cl100k_base"


# -- special tokens ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tokenizers", "tiktoken"])
def test_text_that_spells_a_special_token_stays_text_unless_parsing_is_asked_for(build, kind):
    text = "one<|endoftext|>two"
    for parse in (False, True):
        store = build(KINDS[kind](), text, parse_special=parse)
        (ids,) = ids_of(store)
        assert ids.count(store.tokenizer.eos) == parse
        assert store.tokenizer.decode(ids) == text


def test_added_tokens_that_are_not_special_are_parsed_always(build):
    for special, times in ((False, 1), (True, 0)):
        own = Tokenizer.from_str(toys.added("<tool>", special=special).decode())
        assert ids_of(build(own, "a<tool>b"))[0].count(1000) == times


def test_sentencepiece_keeps_control_symbols_as_text_and_parses_user_defined_ones(build):
    model = sentencepiece_model()
    store = build(model, "<s><control></s><user>")
    (ids,) = ids_of(store)
    specials = {store.tokenizer.bos, store.tokenizer.eos, model.piece_to_id("<control>")}
    assert specials.isdisjoint(ids)
    assert ids[-1] == model.piece_to_id("<user>")


@pytest.mark.parametrize("kind", ["sentencepiece", "callable"])
def test_parsing_is_refused_where_it_cannot_be_done(build, kind):
    refused(lambda: build(KINDS[kind](), "x", parse_special=True), tl.ConfigError, "parse_special")


@pytest.mark.parametrize(
    ("specials", "expected"),
    [
        (("<s>", "</s>", "<pad>"), (0, 1, 2)),
        (("[PAD]", "[EOS]", "[BOS]"), (2, 1, 0)),
        (("<|begin_of_text|>", "<|end_of_text|>"), (0, 1, None)),
        (("<unk>",), (None, None, None)),
    ],
)
def test_specials_are_found_by_their_usual_names(build, specials, expected):
    own = build(toys.bpe(specials=specials), "a").tokenizer
    assert (own.bos, own.eos, own.pad) == expected


def test_a_token_that_is_not_special_plays_no_role_and_an_added_one_counts(build):
    plain = Tokenizer.from_str(toys.added("<pad>", special=False).decode())
    assert build(plain, "a").tokenizer.pad is None
    own = build(toys.transformers_fast(pad_token="<mine>"), "a").tokenizer
    assert (own.vocab_size, own.pad, own.bos, own.eos) == (1001, 1000, None, None)


def test_files_beside_the_tokenizer_declare_specials(build, tmp_path):
    payload = toys.bpe_json(specials=("<s>", "</s>", "<pad>", "<x>"))
    folder = tmp_path / "t"
    folder.mkdir()
    maps = {"bos_token": "<x>", "eos_token": "</s>"}
    config = {"bos_token": None, "eos_token": {"content": "<x>"}}
    save(folder, payload, special_tokens_map=maps, tokenizer_config=config)
    own = build(folder, "a").tokenizer
    assert (own.bos, own.eos, own.pad) == (None, 3, 2)  # the pad of the usual name
    (folder / "copy.json").write_text(payload)
    assert build(folder / "copy.json", "a").tokenizer.bos == 0  # those files are not of a copy
    (folder / "tokenizer_config.json").write_text("{")
    refused(lambda: build(folder, "a"), tl.TokenizerError, "tokenizer_config.json")


def test_a_declared_token_that_does_not_exist_is_an_error_until_overridden(build, tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    save(folder, toys.bpe_json(), tokenizer_config={"pad_token": "<nope>"})
    refused(lambda: build(folder, "a"), tl.TokenizerError, "'<nope>'", "pad_token")
    assert build(folder, "a", pad=None).tokenizer.pad is None
    assert build(folder, "a", pad="<|endoftext|>").tokenizer.pad == 0


def test_explicit_specials_override_and_zero_is_an_id(build):
    own = build(toys.bpe(), "a", bos=0, eos=np.int64(5), pad="the").tokenizer
    assert (own.bos, own.eos, own.pad) == (0, 5, toys.bpe().token_to_id("the"))
    assert build(toys.bpe(), "a", eos=None).tokenizer.eos is None
    assert build("bytes", "a", vocab_size=257, eos=256).tokenizer.eos == 256
    own = build(toys.tiktoken_encoding(), "a", bos="<|pad|>", pad="a").tokenizer
    assert (own.bos, own.pad) == (own.vocab_size - 1, 97)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"eos": 1000}, ["eos", "1000", "999"]),
        ({"pad": -1}, ["pad", "-1"]),
        ({"bos": "<|endoftxt|>"}, ["bos", "'<|endoftext|>'"]),
        ({"vocab_size": 10}, ["vocab_size", "10", "1000"]),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(build, arguments, named):
    refused(lambda: build(toys.bpe(), "a", **arguments), tl.ConfigError, *named)


# -- refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_refused_with_its_place(build, kind):
    """One that came with a transform, as JSON of a file or a list holds none."""
    own = KINDS[kind]()

    def spoil(record):
        return {"text": "caf\u00e9 \ud83d!" if record["text"] == "c" else record["text"]}

    bad = functools.partial(build, own, "a", "b", "c", transform=spoil)
    refused(bad, tl.InputError, "record 2", "D83D")


def test_a_panic_of_tiktoken_is_an_error_that_can_be_caught(build, capfd):
    text = " " * 1_000_000 + "x"
    refused(lambda: build(toys.tiktoken_encoding(), text), tl.TokenizerError, "tiktoken")


@pytest.mark.parametrize(
    ("tokenizer", "error", "named"),
    [
        ("no-such-tokenizer", tl.TokenizerError, ["no-such-tokenizer", "bytes"]),
        ("byte", tl.TokenizerError, ["'bytes'"]),
        (7, tl.ConfigError, ["7"]),
        (toys.words, tl.ConfigError, ["vocab_size"]),
        ("toys:nope", tl.TokenizerError, ["toys:nope"]),
        ("no_such_module:f", tl.TokenizerError, ["no_such_module:f"]),
        ("toys:NASTY", tl.TokenizerError, ["list"]),
    ],
)
def test_what_is_no_tokenizer_is_refused(build, tokenizer, error, named):
    refused(lambda: build(tokenizer, "x"), error, *named)


def test_wrong_paths_are_explained(build, tmp_path):
    (tmp_path / "tokenizer.jsn").write_text("{}")
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    (tmp_path / "spiece.vocab").write_text("x")
    cases = {
        tmp_path: "tokenizer.json",
        tmp_path / "tokenizer.json": "'tokenizer.jsn'",
        tmp_path / "nowhere" / "x.model": "x.model",
        tmp_path / "bad.json": "bad.json",
        tmp_path / "bad.model": "bad.model",
        tmp_path / "spiece.vocab": ".json",
    }
    for path, named in cases.items():
        for form in (path, str(path)):
            refused(functools.partial(build, form, "x"), tl.TokenizerError, named)


def test_dropout_and_parts_made_in_python_are_refused(build, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(toys.changed("model.dropout", 0.1))
    refused(lambda: build(path, "x"), tl.TokenizerError, "model.dropout", 0.1)

    class Nothing:
        def pre_tokenize(self, text):
            pass

    custom = Tokenizer(models.BPE())
    custom.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Nothing())
    refused(lambda: build(custom, "x"), tl.TokenizerError)


def test_a_missing_library_is_named_with_its_extra(build, tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text(toys.bpe_json())
    (tmp_path / "toy.model").write_bytes(b"x")
    for name in ("tokenizers", "tiktoken", "sentencepiece"):
        monkeypatch.setitem(sys.modules, name, None)
    refused(lambda: build(tmp_path / "tokenizer.json", "x"), tl.MissingExtra, "tokenloom[build]")
    refused(lambda: build("tiktoken:gpt2", "x"), tl.MissingExtra, "'tiktoken'")
    refused(lambda: build(tmp_path / "toy.model", "x"), tl.MissingExtra, "sentencepiece")
    assert build("bytes", "x").vocab_size == 256
