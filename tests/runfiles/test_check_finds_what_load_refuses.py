"""Everything that loading a file with stores to build would refuse is found before it builds."""

import json
import warnings

import pytest

import tokenloom as tl
from tokenloom.cli import main

FILE = """\
seq_len: 16
build:
  tokenizer: bytes%s
  stores:
    new: %s
    other: corpus.jsonl
sources:
  a: {store: new, %s}
  b: {store: other, windows: {}}
mix: %s
loader: {batch_size: 2}
"""
USUAL = ("", "corpus.jsonl", "pack: {}", "{}")


def file(*changed):
    return FILE % (*changed, *USUAL[len(changed) :])


CHAT = {"messages": [{"role": "user", "content": "hi"}]}

WRONG = {
    # settings of a build
    "a word": (file("", "{inputs: corpus.jsonl, on_error: explode}"), "build.stores.new.on_error"),
    "for all": (file("\n  inner: -1"), "inner"),
    "an encoding": (file("", "{inputs: corpus.jsonl, encoding: utf-9}"), "utf-9"),
    # the tokenizer and the first record
    "no such special": (file("", "{inputs: corpus.jsonl, eos: <end>}"), "<end>"),
    "no text": (file("", "{inputs: corpus.jsonl, text_key: body}"), "'body'"),
    "no JSON": (file("", "jsonl:bad.txt"), "line 2"),
    "no template": (file("", "chat.jsonl"), "chat_template"),
    "equal files": (
        file("", "{inputs: [corpus.jsonl, same.jsonl], duplicates: error}"),
        "same.jsonl",
    ),
    # where it goes
    "other things": (file().replace("new", "taken"), "taken"),
    # what a store that is built so does not have
    "strict EOS": (
        file("", "corpus.jsonl", "pack: {add_eos: true, strict_special_tokens: true}"),
        "sources.a.pack: new: add_eos",
    ),
    "an EOS to mask": (file("", "corpus.jsonl", "pack: {train_on_eos: false}"), "sources.a.pack"),
    # sources that do not go together
    "frames": (file("", "corpus.jsonl", "pack: 32"), "seq_len"),
    "tokenizers": (file("", "{inputs: corpus.jsonl, eos: 3}"), "tokenizers"),
    "an end": (
        file("", "corpus.jsonl", "pack: {}, epochs: endless", "{stop: all_exhausted}"),
        "stop",
    ),
}


@pytest.fixture
def folder(place):
    """The place with more to build from, and a directory that holds something else."""
    (place / "chat.jsonl").write_text(json.dumps(CHAT) + "\n")
    (place / "ids.jsonl").write_text('{"input_ids": [1, 2]}\n')
    (place / "bad.txt").write_text('{"text": "a"}\n{"text": \n')
    (place / "same.jsonl").write_bytes((place / "corpus.jsonl").read_bytes())
    (place / "taken").mkdir()
    (place / "taken/notes.txt").write_text("mine")
    return place


def built(folder):
    return sorted(one.name for one in folder.iterdir() if one.name in ("new", "other", "taken"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrong", WRONG)
def test_check_finds_it_and_load_refuses_it_before_it_builds(folder, capsys, wrong):
    text, words = WRONG[wrong]
    (folder / "run.yaml").write_text(text)
    assert main(["check", "run.yaml", "--json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any(words in one for one in problems), problems
    with pytest.raises(tl.ConfigError) as refused:
        tl.load("run.yaml")
    assert words in str(refused.value)
    assert built(folder) == ["taken"]
    assert [one.name for one in (folder / "taken").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "text",
    [
        file(
            "",
            "{inputs: corpus.jsonl, eos: 3}",
            "pack: {add_eos: true}",
            "{different_tokenizers: true}",
        ),
        file("", "{inputs: ids.jsonl, tokenizer: none, vocab_size: 256}", "windows: {tail: keep}"),
        file(
            "", "corpus.jsonl", "splice: {}, select: {num_docs: 3}, epochs: 2", "{temperature: 0.5}"
        ),
        file(
            "", "corpus.jsonl", "pack: {}, shuffle: full", "{weights: {a: 2}, stages: {3: {b: 5}}}"
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_loads_is_not_refused(folder, capsys, text):
    if "ids.jsonl" in text:
        text = text.replace("mix: {}", "mix: {different_tokenizers: true}")
    (folder / "run.yaml").write_text(text)
    assert main(["check", "run.yaml"]) == 0, capsys.readouterr().out
    assert tl.load("run.yaml")


def test_a_source_beside_a_store_that_is_there_is_compared_with_it(folder):
    text = "seq_len: 16\nbuild: {tokenizer: bytes, stores: {new: corpus.jsonl}}\n"
    text += "sources: {a: {store: new, pack: {}}, b: {store: stores/wiki, pack: {}}}\n"
    (folder / "run.yaml").write_text(text)  # stores/wiki was built with an EOS
    with pytest.raises(tl.ConfigError, match=r"'a' and 'b' have different tokenizers"):
        tl.load("run.yaml")
    assert built(folder) == ["taken"]
    (folder / "run.yaml").write_text(text + "mix: {different_tokenizers: true}\n")
    assert tl.load("run.yaml")


def test_a_source_that_joins_later_is_compared_too(folder):
    text = file().replace("mix: {}", "mix: {}\nedits: [{at: 4, add: [b]}]")
    (folder / "run.yaml").write_text(text.replace("other: corpus", "other: &o corpus"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tl.load("run.yaml")
    wider = text.replace("windows: {}", "windows: 32").replace("other", "third")
    (folder / "run.yaml").write_text(wider.replace("new", "fourth"))
    with pytest.raises(tl.ConfigError, match="seq_len"):
        tl.load("run.yaml")
    assert not (folder / "third").exists()
