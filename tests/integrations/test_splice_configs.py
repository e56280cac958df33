"""Splices as others configure them: constructors and YAML of the published design, local paths.

The YAML is a part of what it publishes; tests/mission loads the whole.
"""

import json
import os
from pathlib import Path

import pytest
import yaml
from refusals import refused
from toys import bpe_json

import tokenloom as tl
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    SpliceSingleDocumentLMConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    splice_from_config,
)

MULTI = """
data:
  type: splice_multi_document
  tokenizer: meta-llama/Meta-Llama-3.1-8B
  base:
    type: mixture
    tokenizer: meta-llama/Meta-Llama-3.1-8B
    configs:
      common_pile/wikimedia:
        cache_dir: gs://.../tokenized/common_pile/wikimedia-...
        train_urls: [gs://.../wikimedia_filtered-...]
        format: {text_key: text}
    train_weights: {common_pile/wikimedia: 1.0}
  dataset_name: common_pile/wikimedia
  num_docs: 10
  content_length: 4096
  alpha: 0.8
"""

WIKI = "common_pile/wikimedia"
TOY = ["ABCDEFG", "HIJKL", "XYZ"]


def write(path, texts):
    rows = [{"text": text, "id": f"d{n}"} for n, text in enumerate(texts)]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A corpus as text, and its store."""
    folder = tmp_path_factory.mktemp("places")
    write(folder / "toy.jsonl", TOY)
    (folder / "tokenizer.json").write_text(bpe_json())
    tl.build(str(folder / "toy.jsonl"), folder / "toy", tokenizer="bytes")
    return folder


@pytest.fixture
def toy(places):
    """Settings of a splice of three short documents."""
    return {"base": str(places / "toy"), "num_docs": 3, "seq_len": 8}


def local(text, store, corpus=None, tokenizer="bytes"):
    """Published YAML with local paths put in their place, as a mapping."""
    found = yaml.safe_load(text)["data"]
    base = found["base"]
    source = base["configs"][WIKI] if "configs" in base else base
    assert source["cache_dir"].startswith("gs://")
    source["cache_dir"] = str(store)
    source["train_urls"] = [str(corpus)] if corpus else []
    for each in (found, base):
        if "tokenizer" in each:
            each["tokenizer"] = tokenizer
    return {"data": found}


def text_of(batch, row=0):
    return "".join(chr(token) if token else "." for token in batch.tokens[row])


# -- keys --------------------------------------------------------------------------------------


def test_unknown_keys_are_refused_by_path_all_at_once(places):
    config = local(MULTI, places / "toy")
    data = config["data"]
    data["num_dcos"] = data.pop("num_docs")
    data["base"]["train_wieghts"] = data["base"].pop("train_weights")
    data["base"]["configs"][WIKI]["format"] = {"txt_key": "text"}
    data["alpha"] = "0.8"
    message = refused(lambda: splice_from_config(config, seq_len=8), tl.ConfigError)
    begins = [line.split(":")[0] for line in message.split("\n")]
    assert begins == [
        "data.num_dcos",
        "data.alpha",
        f"data.base.configs.{WIKI}.format.txt_key",
        "data.base.train_wieghts",
    ]


@pytest.mark.parametrize(
    ("place", "wrong", "named"),
    [
        ((), "splice_multi_documnet", "data.type: found 'splice_multi_documnet'"),
        (("base", "configs", WIKI), "hf", f"data.base.configs.{WIKI}.type: found 'hf'"),
        (("base", "configs", WIKI, "format"), "chat", ".format.type: found 'chat'"),
    ],
)
def test_types_are_checked_at_every_place(places, place, wrong, named):
    config = local(MULTI, places / "toy")
    section = config["data"]
    for name in place:
        section = section[name]
    section["type"] = wrong
    refused(lambda: splice_from_config(config, seq_len=8), tl.ConfigError, named)


@pytest.mark.parametrize("config", [None, [], {"data": 3}, {"data": None}, "splice"])
def test_what_is_no_mapping_is_refused(config):
    with pytest.raises(tl.ConfigError, match="mapping"):
        splice_from_config(config, seq_len=8)


def test_a_base_of_another_kind_is_refused(toy):
    for base in (3, {"cache_dir": "x"}, TextLmDatasetFormat()):
        with pytest.raises(tl.ConfigError, match=r"^base: found"):
            SpliceMultiDocumentLMConfig(**toy | {"base": base})
    with pytest.raises(tl.ConfigError, match=r"^base: "):
        SpliceMultiDocumentLMConfig(seq_len=8)
    with pytest.raises(tl.ConfigError, match=r"^configs\.wiki: found str"):
        LMMixtureDatasetConfig(configs={"wiki": "stores/wiki"})
    with pytest.raises(tl.ConfigError, match=r"^format: found str"):
        UrlDatasetSourceConfig(format="text")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"window_block": 2}, "shuffle.window_block: "),
        ({"window_blocks": "2"}, "shuffle.window_blocks: found '2'"),
        ({"kind": "blocks"}, "shuffle.kind: found 'blocks'"),
        ("block", "shuffle: found 'block'"),
        (-3, "shuffle: found era length -3"),
    ],
)
def test_a_wrong_shuffle_is_refused_by_its_path(places, toy, wrong, named):
    source = UrlDatasetSourceConfig(cache_dir=places / "toy")
    base = LMMixtureDatasetConfig(configs={"wiki": source}, shuffle=wrong)
    data = {"type": "splice_multi_document", **toy, "shuffle": wrong}
    for make, place in (
        (lambda: SpliceMultiDocumentLMConfig(**toy | {"base": base}), "base."),
        (lambda: SpliceMultiDocumentLMConfig(**toy, shuffle=wrong), ""),
        (lambda: splice_from_config({"data": data}), "data."),
    ):
        assert refused(make, tl.ConfigError).startswith(f"{place}{named}")


# -- where the length of a frame is said ---------------------------------------------------------


def test_the_length_of_a_frame_is_that_of_the_nearest_place(places):
    inside = {"type": "splice_multi_document", "base": str(places / "toy"), "num_docs": 2}
    config = {"data": inside, "model": {"max_seq_len": 12, "type": "llama"}, "trainer": {"a": 1}}
    assert splice_from_config(config).seq_len == 12
    config["model"]["seq_len"] = 11
    assert splice_from_config(config).seq_len == 11
    config["train_seq_len"] = 10
    assert splice_from_config(config).seq_len == 10
    inside["seq_len"] = 9
    assert splice_from_config(config).seq_len == 9
    assert splice_from_config(config, seq_len=8).seq_len == 8
    assert tl.from_config(config, seq_len=8).seq_len == 8
    with pytest.raises(tl.ConfigError, match="cache_bytes: found 9"):
        tl.from_config(config, seq_len=8, cache_bytes=9)
    with pytest.raises(tl.ConfigError, match="path: found 'x'"):
        tl.from_config(config, seq_len=8, path="x")
    del inside["seq_len"]
    config["train_seq_len"] = "10"
    with pytest.raises(tl.ConfigError, match=r"^train_seq_len: found '10'"):
        splice_from_config(config)


# -- what is not on this machine -----------------------------------------------------------------


def test_addresses_and_hub_tokenizers_are_refused_by_their_keys_all_at_once():
    """The published file as it stands: three things to copy here, said in one go."""
    message = refused(lambda: splice_from_config(yaml.safe_load(MULTI), seq_len=8), tl.ConfigError)
    lines = message.split("\n")
    assert [line.split(": ")[0] for line in lines] == [
        f"data.base.configs.{WIKI}.cache_dir",
        f"data.base.configs.{WIKI}.train_urls[0]",
        "data.tokenizer",
    ]
    assert all("gs://" in line for line in lines[:2])
    assert "meta-llama" in lines[2]


def test_the_tokenizer_of_the_base_is_named_as_that(tmp_path, places):
    config = local(MULTI, tmp_path / "s", places / "toy.jsonl", tokenizer="meta-llama/Llama")
    del config["data"]["tokenizer"]
    with pytest.raises(tl.ConfigError, match=r"^data\.base\.tokenizer: found 'meta-llama/Llama'"):
        splice_from_config(config, seq_len=8)
    config["data"]["tokenizer"] = "bytes"
    with pytest.raises(tl.ConfigError, match=r"^data\.tokenizer: found 'bytes'"):
        splice_from_config(config, seq_len=8)


def test_text_without_a_tokenizer_or_a_store_without_text_is_refused(tmp_path, places, toy):
    source = {"cache_dir": str(tmp_path / "s"), "train_urls": [str(places / "toy.jsonl")]}
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: "):
        SpliceMultiDocumentLMConfig(**toy | {"base": UrlDatasetSourceConfig(**source)})
    config = {"type": "splice_multi_document", "base": {"cache_dir": str(tmp_path / "toi")}}
    with pytest.raises(tl.StoreNotFound, match=r"^\$\.base\.cache_dir: "):
        splice_from_config(config, seq_len=8)
    with pytest.raises(tl.ConfigError, match=r"^base\.cache_dir: "):
        SpliceMultiDocumentLMConfig(**toy | {"base": UrlDatasetSourceConfig()})
    assert not (tmp_path / "s").exists()


def test_a_bad_record_is_named_by_its_file_whatever_that_is_called(tmp_path, monkeypatch):
    """A file `mode.jsonl` is no key `mode`."""
    monkeypatch.chdir(tmp_path)
    Path("mode.jsonl").write_text('{"txt": "no such key"}\n')
    base = {"cache_dir": "s", "train_urls": ["mode.jsonl"]}
    config = {"type": "splice_multi_document", "base": base, "tokenizer": "bytes"}
    message = refused(
        lambda: splice_from_config({"data": config}, seq_len=8), tl.InputError, "mode.jsonl"
    )
    assert not message.startswith("data.")


def test_a_store_of_another_tokenizer_is_refused_where_that_can_be_known(places, tmp_path, toy):
    path = str(places / "tokenizer.json")
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: found"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer=path)
    source = UrlDatasetSourceConfig(
        cache_dir=tmp_path / "s", train_urls=(str(places / "toy.jsonl"),)
    )
    toy["base"] = source
    built = SpliceMultiDocumentLMConfig(**toy, tokenizer=path)
    again = SpliceMultiDocumentLMConfig(**toy, tokenizer=Path(path))
    assert built.fingerprint == again.fingerprint == SpliceMultiDocumentLMConfig(**toy).fingerprint
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: found 'bytes'"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer="bytes")
    with pytest.warns(UserWarning, match="tokenizer: found 'meta-llama/Llama'"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer="meta-llama/Llama")


# -- orders and options -------------------------------------------------------------------


def test_another_draw_of_documents_is_not_another_order(places):
    def drawn(**settings):
        made = SpliceSingleDocumentLMConfig(
            base=places / "toy", doc_select_mode="random", content_length=2, seq_len=8, **settings
        )
        return made.spans([0]).document.tolist()[0]

    assert len({drawn(seed=seed) for seed in range(8)}) == 1
    assert len({drawn(select_seed=seed) for seed in range(20)}) == 3


# -- what comes back ---------------------------------------------------------------------------


def test_paths_may_begin_with_a_tilde(places, monkeypatch):
    monkeypatch.setenv("HOME", str(places))
    made = SpliceSingleDocumentLMConfig(base="~/toy", seq_len=8)
    assert made.sources["main"].path == os.path.join(str(places), "toy")


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path, places):
    """Such as a cache that another tool wrote there."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train/shard_ledger.json").write_text("{}")
    base = UrlDatasetSourceConfig(cache_dir=tmp_path, train_urls=[str(places / "toy.jsonl")])
    with pytest.raises(tl.StoreExists, match=str(tmp_path)):
        SpliceSingleDocumentLMConfig(base=base, tokenizer="bytes", seq_len=8)
    left = {path.name for path in tmp_path.rglob("*")} - {".lock"}
    assert left == {"train", "shard_ledger.json"}
