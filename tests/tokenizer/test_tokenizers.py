"""Any tokenizer becomes plain data: what is found, what is declared, what is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
import toys
from tokenizers import Tokenizer, models, pre_tokenizers

from tokenloom.errors import ConfigError, MissingExtra, TokenizerError
from tokenloom.tokenizer.encoders import reference_encoder
from tokenloom.tokenizer.payloads import open_tiktoken
from tokenloom.tokenizer.spec import UNSET, TokenizerSpec, rebuild, resolve

TEXT = "The cat's hat: déjà vu, 12345."


def ids_of(spec, text=TEXT, **kwargs):
    return reference_encoder(spec, **kwargs).encode([text]).ids.tolist()


def save(folder, payload, **files):
    (folder / "tokenizer.json").write_text(payload)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


# ---------------------------------------------------------------------------- every accepted form


def test_bytes_needs_nothing():
    spec, live = resolve("bytes")
    assert spec.describe() | {"sha256": ""} == {
        "kind": "bytes",
        "name": "bytes",
        "vocab_size": 256,
        "bos": None,
        "eos": None,
        "pad": None,
        "sha256": "",
    }
    assert live is None
    assert ids_of(spec, "é") == [0xC3, 0xA9]


def test_all_forms_of_one_tokenizer_json_give_the_same_ids(tmp_path):
    save(tmp_path, toys.bpe_json())
    other = tmp_path / "other.json"
    other.write_text(toys.bpe_json())
    expected = toys.bpe().encode(TEXT, add_special_tokens=False).ids
    forms = [
        tmp_path,
        str(tmp_path),
        tmp_path / "tokenizer.json",
        str(other),
        toys.bpe(),
        toys.transformers_fast(eos_token="<|endoftext|>"),
    ]
    for form in forms:
        spec, live = resolve(form)
        assert (spec.kind, spec.eos, spec.vocab_size, live) == ("tokenizers", 0, 1000, None)
        assert ids_of(spec) == expected
        assert not os.path.isabs(spec.name)
    assert [resolve(form)[0].name for form in forms[:4]] == [
        tmp_path.name,
        tmp_path.name,
        "tokenizer.json",
        "other.json",
    ]


def test_state_of_an_object_that_does_not_touch_ids_does_not_touch_the_hash():
    used = toys.bpe()
    used.enable_padding(length=7)
    used.enable_truncation(3)
    assert resolve(used)[0].sha256 == resolve(toys.bpe())[0].sha256


def test_added_tokens_count_in_the_vocabulary():
    spec, _ = resolve(toys.transformers_fast(pad_token="<mine>"))
    assert spec.vocab_size == 1001
    assert (spec.pad, spec.bos, spec.eos) == (1000, None, None)


def test_a_slow_transformers_tokenizer_is_a_live_callable():
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

    spec, live = resolve(Letters(eos_token="<end>"))
    assert (spec.kind, spec.vocab_size, spec.eos, spec.reference) == ("callable", 129, 128, None)
    assert ids_of(spec, "a<end>", live=live) == [97, 60, 101, 110, 100, 62]


def test_a_tiktoken_encoding_with_gaps_in_its_ranks_comes_back_whole():
    encoding = toys.tiktoken_encoding(gap=5)
    spec, live = resolve(encoding)
    again = open_tiktoken(spec.payload)
    assert live is None
    assert (spec.kind, spec.name, spec.vocab_size) == ("tiktoken", "toy", encoding.n_vocab)
    assert (spec.eos, spec.pad) == (encoding.n_vocab - 3, encoding.n_vocab - 1)
    assert again._mergeable_ranks == encoding._mergeable_ranks
    assert again._special_tokens == encoding._special_tokens
    assert ids_of(spec) == encoding.encode_ordinary(TEXT)
    assert b"rank_values" not in resolve(toys.tiktoken_encoding())[0].payload


def test_a_tiktoken_name_is_loaded_from_its_cache_and_never_downloaded(tmp_path, monkeypatch):
    import tiktoken

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("tiktoken:cl100k_base", "cl100k_base"):
        with pytest.raises(TokenizerError, match="not in tiktoken's cache"):
            resolve(name)
    with pytest.raises(TokenizerError, match="Did you mean 'cl100k_base'"):
        resolve("tiktoken:cl100kbase")
    # The file's name in the cache is the sha1 of its URL.
    (tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").write_bytes(b"")
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: toys.tiktoken_encoding(name))
    assert resolve("tiktoken:cl100k_base")[0].name == "cl100k_base"
    assert resolve("cl100k_base")[0].kind == "tiktoken"


def test_sentencepiece_files_and_objects(tmp_path):
    path = tmp_path / "toy.model"
    path.write_bytes(toys.sentencepiece_model(pad_id=3))
    spec, live = resolve(path)
    model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    assert (spec.kind, spec.name, spec.vocab_size, live) == (
        "sentencepiece",
        "toy.model",
        500,
        None,
    )
    assert (spec.bos, spec.eos, spec.pad) == (1, 2, 3)
    assert ids_of(spec) == model.encode(TEXT)
    assert ids_of(resolve(model)[0]) == model.encode(TEXT)
    without = toys.sentencepiece_model(bos_id=-1, eos_id=-1, unk_id=1, pad_id=0)
    spec, _ = resolve(sentencepiece.SentencePieceProcessor(model_proto=without), bos="<control>")
    assert (spec.bos, spec.eos, spec.pad) == (2, None, 0)
    with pytest.raises(TokenizerError, match="without a model"):
        resolve(sentencepiece.SentencePieceProcessor())


def test_callables_are_named_by_reference_or_stay_alive():
    spec, live = resolve(toys.words, vocab_size=100)
    assert (spec.kind, spec.name, spec.reference, live) == (
        "callable",
        "toys:words",
        "toys:words",
        None,
    )
    assert resolve("toys:words", vocab_size=100) == (spec, None)
    assert ids_of(spec) == toys.words(TEXT)

    def closure(text):
        return [len(text)]

    for function in (closure, lambda text: [1], toys.Counter(), toys.Counter().method):
        spec, live = resolve(function, vocab_size=100)
        assert spec.reference is None
        assert live is function
        assert ids_of(spec, live=live) == list(function(TEXT))


def test_a_callable_of_main_stays_alive():
    code = (
        "from tokenloom.tokenizer.spec import resolve\n"
        "def f(text): return [1]\n"
        "spec, live = resolve(f, vocab_size=2)\n"
        "print(live is f, spec.reference)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "None"]


def test_a_name_in_the_local_hub_cache_is_used_without_running_its_code(tmp_path):
    """The cache has the layout of the hub client; a fresh process reads it."""
    settings = {"eos_token": "<|endoftext|>"}
    code = {"auto_map": {"AutoTokenizer": ["x.Y", None]}}
    repositories = {
        "gpt": {"tokenizer_config": settings, "config": {"model_type": "gpt2"}},
        "bare": {"tokenizer_config": settings},
        "coded": {"tokenizer_config": settings | code},
        "coded-config": {"tokenizer_config": settings, "config": code},
        "code-only": {"tokenizer_config": code},
    }
    for name, files in repositories.items():
        root = tmp_path / "hub" / f"models--owner--{name}"
        snapshot = root / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (root / "refs").mkdir()
        (root / "refs" / "main").write_text("0" * 40)
        save(snapshot, toys.bpe_json(), **files)
        (snapshot / "x.py").write_text("raise SystemExit('remote code ran')")
    (snapshot / "tokenizer.json").unlink()
    script = (
        "from tokenloom.tokenizer.spec import resolve\n"
        f"for name in {list(repositories)}:\n"
        "    try:\n"
        "        spec, _ = resolve('owner/' + name)\n"
        "        print(spec.kind, spec.name, spec.eos, spec.vocab_size)\n"
        "    except Exception as problem:\n"
        "        print(type(problem).__name__, 'which is never run' in str(problem))\n"
    )
    env = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    env.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "tokenizers owner/gpt 0 1000",
        "tokenizers owner/bare 0 1000",
        "tokenizers owner/coded 0 1000",
        "tokenizers owner/coded-config 0 1000",
        "TokenizerError True",
    ], done.stderr


# ------------------------------------------------------------------------------ special tokens


@pytest.mark.parametrize(
    ("specials", "expected"),
    [
        (("<s>", "</s>", "<pad>"), (0, 1, 2)),
        (("[PAD]", "[EOS]", "[BOS]"), (2, 1, 0)),
        (("<|begin_of_text|>", "<|end_of_text|>"), (0, 1, None)),
        (("<unk>",), (None, None, None)),
        ((), (None, None, None)),
    ],
)
def test_specials_are_found_by_their_usual_names(specials, expected):
    spec, _ = resolve(toys.bpe(specials=specials))
    assert (spec.bos, spec.eos, spec.pad) == expected


def test_a_token_that_is_not_special_plays_no_role():
    spec, _ = resolve(Tokenizer.from_str(toys.added("<pad>", special=False).decode()))
    assert spec.pad is None


def test_files_beside_the_tokenizer_declare_specials(tmp_path):
    payload = toys.bpe_json(specials=("<s>", "</s>", "<pad>", "<x>"))
    save(
        tmp_path,
        payload,
        special_tokens_map={"bos_token": "<x>", "eos_token": "</s>"},
        tokenizer_config={"bos_token": None, "eos_token": {"content": "<x>"}},
    )
    spec, _ = resolve(tmp_path)
    assert (spec.bos, spec.eos, spec.pad) == (None, 3, 2)  # the pad of the usual name
    (tmp_path / "copy.json").write_text(payload)
    assert resolve(tmp_path / "copy.json")[0].bos == 0  # those files belong to tokenizer.json


def test_a_declared_token_that_does_not_exist_is_an_error_until_overridden(tmp_path):
    save(tmp_path, toys.bpe_json(), tokenizer_config={"pad_token": "<nope>"})
    with pytest.raises(TokenizerError, match="'<nope>' as pad_token"):
        resolve(tmp_path)
    assert resolve(tmp_path, pad=None)[0].pad is None
    assert resolve(tmp_path, pad="<|endoftext|>")[0].pad == 0


def test_explicit_specials_override_and_zero_is_an_id():
    spec, _ = resolve(toys.bpe(), bos=0, eos=np.int64(5), pad="the")
    assert (spec.bos, spec.eos) == (0, 5)
    assert spec.pad == toys.bpe().token_to_id("the")
    assert type(spec.eos) is int
    assert resolve(toys.bpe(), eos=None)[0].eos is None
    assert resolve(toys.bpe(), eos=UNSET)[0].eos == 0
    assert resolve("bytes", vocab_size=257, eos=256)[0].eos == 256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eos": 1000}, "tokenizer.eos: 1000 is not an id of 'Tokenizer', whose ids are 0 to 999"),
        ({"pad": -1}, "tokenizer.pad: -1 is not an id"),
        ({"bos": "<|endoftxt|>"}, r"Did you mean '<\|endoftext\|>'"),
        ({"bos": True}, "bos: True is not a token id"),
        ({"bos": 1.5}, "bos: 1.5 is not a token id"),
        ({"vocab_size": 10}, "vocab_size: 10 is less than the 1000 ids"),
        ({"vocab_size": 2**31 + 1}, "tokenizer.vocab_size: found 2147483649"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        resolve(toys.bpe(), **arguments)


# --------------------------------------------------------------------------------- as plain data


def every_kind():
    return [
        resolve("bytes")[0],
        resolve(toys.bpe())[0],
        resolve(toys.tiktoken_encoding())[0],
        resolve(sentencepiece.SentencePieceProcessor(model_proto=toys.sentencepiece_model()))[0],
        resolve("toys:words", vocab_size=10_000, eos=0)[0],
    ]


def test_a_spec_made_again_in_another_process_gives_the_same_ids(tmp_path):
    specs = every_kind()
    for i, spec in enumerate(specs):
        (tmp_path / f"{i}.json").write_text(json.dumps(spec.describe()))
        (tmp_path / f"{i}.payload").write_bytes(spec.payload)
    code = (
        "import json, pathlib, sys\n"
        "from tokenloom.tokenizer.encoders import reference_encoder\n"
        "from tokenloom.tokenizer.spec import rebuild\n"
        "text = sys.stdin.read()\n"
        "for path in sorted(pathlib.Path('.').glob('*.json')):\n"
        "    payload = path.with_suffix('.payload').read_bytes()\n"
        "    spec = rebuild(json.loads(path.read_text()), payload)\n"
        "    print(reference_encoder(spec).encode([text]).ids.tolist())\n"
    )
    paths = [os.path.dirname(toys.__file__), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUTF8": "1"}
    text = "\n".join(toys.NASTY[2:7])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, input=text, capture_output=True,
        text=True, check=True, encoding="utf-8",
    )  # fmt: skip
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        ids_of(spec, text) for spec in specs
    ]


def test_descriptions_are_json_without_paths_and_rebuild_is_their_inverse():
    for spec in every_kind():
        described = json.loads(json.dumps(spec.describe()))
        assert set(described) == {"kind", "name", "vocab_size", "bos", "eos", "pad", "sha256"}
        assert rebuild(described, spec.payload) == spec
        assert rebuild(described | {"reference": spec.reference}, spec.payload) == spec
    with pytest.raises(TokenizerError, match="Give the payload that belongs"):
        rebuild(described | {"sha256": "0" * 64})


def test_the_hash_tells_tokenizers_apart():
    hashes = {spec.sha256 for spec in every_kind()}
    hashes |= {resolve(toys.bpe(specials=("<s>",)))[0].sha256}
    hashes |= {resolve("toys:topics", vocab_size=9)[0].sha256}
    assert len(hashes) == 7
    assert resolve(toys.bpe(), eos=None)[0].sha256 in hashes  # specials are described separately


def test_specs_refuse_nonsense():
    with pytest.raises(ConfigError, match="Did you mean 'tiktoken'"):
        TokenizerSpec(kind="tictoken", name="x", vocab_size=1)
    with pytest.raises(ConfigError, match="vocab_size: found 0"):
        TokenizerSpec(kind="bytes", name="x", vocab_size=0)


# ----------------------------------------------------------------------------------- refusals


def test_a_name_that_is_nothing_lists_what_was_tried():
    with pytest.raises(TokenizerError) as caught:
        resolve("no-such-tokenizer")
    for part in ("no such path", "Hugging Face cache", "no tiktoken encoding", "Allowed:", "bytes"):
        assert part in str(caught.value)


def test_a_mistyped_builtin_is_suggested():
    with pytest.raises(TokenizerError, match="Did you mean 'bytes'"):
        resolve("byte")


def test_wrong_paths_are_explained(tmp_path):
    (tmp_path / "tokenizer.jsn").write_text("{}")
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    (tmp_path / "spiece.vocab").write_text("x")
    cases = {
        tmp_path: "has no tokenizer.json",
        tmp_path / "tokenizer.json": "Did you mean 'tokenizer.jsn'",
        tmp_path / "nowhere" / "x.model": "no such file",
        tmp_path / "bad.json": "not a tokenizer.json",
        tmp_path / "bad.model": "not a SentencePiece model",
        tmp_path / "spiece.vocab": "ends in .json",
    }
    for path, message in cases.items():
        for form in (path, str(path)):
            with pytest.raises(TokenizerError, match=message):
                resolve(form)


@pytest.mark.parametrize(
    ("tokenizer", "error", "message"),
    [
        (7, ConfigError, "none of the accepted forms"),
        (toys.words, ConfigError, "vocab_size: missing"),
        ("toys:nope", TokenizerError, "cannot be imported"),
        ("no_such_module:f", TokenizerError, "cannot be imported"),
        ("toys:NASTY", TokenizerError, "is a list"),
    ],
)
def test_other_things_are_refused(tokenizer, error, message):
    with pytest.raises(error, match=message):
        resolve(tokenizer)


def test_dropout_and_parts_made_in_python_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(toys.changed("model.dropout", 0.1))
    with pytest.raises(TokenizerError, match=r"model\.dropout is 0\.1"):
        resolve(path)

    class Nothing:
        def pre_tokenize(self, text):
            pass

    custom = Tokenizer(models.BPE())
    custom.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Nothing())
    with pytest.raises(TokenizerError, match=r"cannot be written as a tokenizer\.json"):
        resolve(custom)


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text(toys.bpe_json())
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtra, match=r"tokenloom\[build\]"):
        resolve(path)
    with pytest.raises(MissingExtra, match="'tiktoken'"):
        resolve("tiktoken:gpt2")
    assert resolve("bytes")[0].vocab_size == 256


def test_importing_the_modules_imports_no_tokenizer_library():
    code = (
        "import sys, tokenloom.tokenizer.fast\n"
        "heavy = {'tokenizers', 'tiktoken', 'fastokens', 'sentencepiece', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
