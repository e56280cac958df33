"""Splices as others configure them: constructors and YAML of the published design, local paths.

The YAML and the class below are copied from it; only paths are put in their place.
"""

import ast
import inspect
import json
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from toys import bpe_json

import tokenloom as tl
from tokenloom.integrations import levanter
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    SpliceSingleDocumentLMConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
    load_yaml,
    recommended,
    splice_from_config,
)

SINGLE = """
data:
  type: splice_single_document
  base:
    type: url_single_dataset
    cache_dir: gs://.../tokenized/common_pile/wikimedia-...
    train_urls: [gs://.../wikimedia_filtered-...]
  dataset_name: common_pile/wikimedia
  doc_index: 12345
  # Placement
  offset_stride: 1
  # Content
  content_length: 3     # e.g., K=3; or null to use whole document
  content_stride: 1
  content_start_mode: slide_within
  mode: splice
  restrict_to_training_subset: true
  initial_batch_size: 128
"""

MULTI = """
data:
  type: splice_multi_document
  tokenizer: meta-llama/Meta-Llama-3.1-8B

  # Base dataset
  base:
    type: mixture
    tokenizer: meta-llama/Meta-Llama-3.1-8B
    configs:
      common_pile/wikimedia:
        cache_dir: gs://.../tokenized/common_pile/wikimedia-...
        train_urls: [gs://.../wikimedia_filtered-...]
        format: {text_key: text}
    train_weights: {common_pile/wikimedia: 1.0}
    shuffle: false
    shuffle_per_epoch: true

  dataset_name: common_pile/wikimedia

  # Multi-document selection
  num_docs: 10
  min_doc_length: 10000
  max_doc_length: 50000
  doc_select_mode: longest

  # Splice parameters
  content_length: 4096
  content_stride: 1
  content_start_mode: coverage_balanced
  min_copy_len: 128
  alpha: 0.8

  # Balancing (refined): temperature sampling over lengths
  balance_mode: by_temperature
  balance_tau: 0.7  # 1.0≈length-proportional, 0.0≈equal per doc

  # Optional absolute-position jitter (adds position diversity cheaply)
  offset_jitter: 2
  adaptive_k: true

  shuffle_per_epoch: true  # Infinite streaming
"""

MULTI_CLASS = """
class SpliceMultiDocumentLMConfig(LMTaskConfig):
    # Base dataset (reused from single-doc config)
    base: Optional[LMMixtureDatasetConfig] = None
    dataset_name: Optional[str] = None

    # Multi-document selection
    num_docs: int = 10
    min_doc_length: Optional[int] = None
    max_doc_length: Optional[int] = None
    doc_select_mode: str = "longest"  # "longest", "shortest", "random", "first"

    # Splice parameters (same as single-doc)
    content_length: Optional[int] = None
    content_stride: int = 1
    offset_stride: int = 1
    content_start_mode: str = "coverage_balanced"
    min_copy_len: int = 2
    alpha: float = 0.0
    adaptive_k: bool = True                  # NEW: clamp K to min(K,S,L_i)
    offset_jitter: int = 0                   # NEW: number of alternate s placements to cycle/sample
    jitter_mode: str = "uniform"              # NEW: "uniform" or "low_discrepancy"

    # Multi-doc balancing
    balance_mode: str = "by_temperature"     # NEW: unify balancing via temperature over lengths
    balance_tau: float = 1.0                 # τ=1→by_coverage, τ≈0→by_document

    # Streaming/epoch sizing
    epoch_length: Optional[int] = None       # If set, draw this many samples per epoch

    # Training config
    restrict_to_training_subset: bool = False
    initial_batch_size: Optional[int] = None
"""
WIKI = "common_pile/wikimedia"
TOY = ["ABCDEFG", "HIJKL", "XYZ"]
LONG = [9_000, 50_000, 10_000, 12_345, 50_001, 33_000, 20_000, 49_999, 15_000, 31_000]
LONG += [11_000, 40_000, 13_000, 200]


def published_defaults():
    """The fields of the published class and their defaults."""
    (found,) = ast.parse(MULTI_CLASS).body
    return {one.target.id: ast.literal_eval(one.value) for one in found.body}


def write(path, texts):
    rows = [{"text": text, "id": f"d{n}"} for n, text in enumerate(texts)]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def letters(length, first=0):
    """A text whose every place is another one, as far as it goes."""
    return "".join(chr(33 + (first + i * i + i // 90) % 90) for i in range(length))


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Three corpora as text, and their stores where they are to be built."""
    folder = tmp_path_factory.mktemp("places")
    tiny = [letters(2 + n % 9, n) for n in range(12_400)]
    write(folder / "toy.jsonl", TOY)
    write(folder / "wiki.jsonl", tiny)
    write(folder / "long.jsonl", [letters(size, n) for n, size in enumerate(LONG)])
    (folder / "tokenizer.json").write_text(bpe_json())
    tl.build(str(folder / "toy.jsonl"), folder / "toy", tokenizer="bytes")
    return folder


@pytest.fixture
def toy(places):
    """Settings of a splice of three short documents."""
    return {"base": str(places / "toy"), "num_docs": 3, "seq_len": 8}


@pytest.fixture
def quiet():
    """Of what a sweep costs other tests speak."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="splice: an epoch spends")
        yield


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


# -- CF-01, CF-03: one document ----------------------------------------------------------------


def test_cf_01_the_single_constructor_takes_all_published_fields(places):
    """Every field that the design lists, with values that are allowed together."""
    made = SpliceSingleDocumentLMConfig(
        base=UrlSingleDatasetLMConfig(cache_dir=str(places / "toy"), tokenizer="bytes"),
        dataset_name="anything",
        doc_index=1,
        doc_selector={"min_len": 2},
        min_doc_length=None,
        max_doc_length=None,
        doc_select_mode="first",
        pad_token_id=46,
        eos_token_id=10,
        offset_stride=2,
        shuffle_offsets=True,
        offset_seed=1,
        content_length=3,
        content_stride=2,
        shuffle_content=2,
        content_seed=2,
        content_start_mode="slide_within",
        restrict_to_training_subset=True,
        initial_batch_size=2,
        max_train_batches=1,
        mode="splice",
        position_scheme="absolute",
        seq_len=8,
    )
    rows = {text_of(made[i]) for i in range(len(made))}
    # HIJKL: t 0 and 2 (4 leaves one token) at s 0, 2, 4
    assert rows == {"." * s + c + "." * (5 - s) for c in ("HIJ", "JKL") for s in (0, 2, 4)}


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("dataset_name", None),
        ("doc_index", None),
        ("doc_selector", None),
        ("doc_key", None),
        ("pad_token_id", None),
        ("eos_token_id", None),
        ("offset_stride", 1),
        ("shuffle_offsets", False),
        ("offset_seed", 0),
        ("content_length", None),
        ("content_stride", 1),
        ("shuffle_content", False),
        ("content_seed", 0),
        ("content_start_mode", "coverage_balanced"),
        ("restrict_to_training_subset", False),
        ("initial_batch_size", None),
        ("mode", "splice"),
        ("min_doc_length", None),
        ("max_doc_length", None),
    ],
)
def test_cf_01_its_fields_have_the_published_defaults(name, default):
    found = inspect.signature(SpliceSingleDocumentLMConfig).parameters[name]
    assert found.default == default
    assert type(found.default) is type(default)
    assert found.kind is found.KEYWORD_ONLY


@pytest.mark.parametrize("mode", ["anchor_start", "slide_within", "cyclic_roll"])
def test_cf_01_every_start_mode_has_its_name(places, mode, quiet):
    made = SpliceSingleDocumentLMConfig(
        base=places / "toy", doc_index=2, content_start_mode=mode, content_length=2, seq_len=4
    )
    starts = {"anchor_start": 1, "slide_within": 2, "cyclic_roll": 3}[mode]
    assert len(made) == 3 * starts


@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
def test_cf_03_the_published_yaml_of_one_document_loads(places, tmp_path):
    config = local(SINGLE, tmp_path / "store", places / "wiki.jsonl")
    config["data"]["tokenizer"] = "bytes"
    with pytest.warns(UserWarning, match=r"restrict_to_training_subset: found True, but nothing"):
        made = splice_from_config(config, seq_len=16)
    length = 2 + 12345 % 9
    # the published count: sum over t of S - min(K, L - t) + 1, where two tokens are left
    count = sum(16 - min(3, length - t) + 1 for t in range(length) if length - t >= 2)
    assert len(made) == count
    text = letters(length, 12345)
    assert [text_of(made[i]) for i in range(3)] == [
        "." * s + text[:3] + "." * (13 - s) for s in range(3)
    ]
    assert made.spans([0, count - 1]).document.tolist() == [12345, 12345]


@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
def test_cf_03_the_training_subset_is_honoured_if_its_size_is_known(places, tmp_path):
    """One batch of 128 rows of 16 tokens: document 12345 is beyond it, so another is taken."""
    config = local(SINGLE, tmp_path / "store", places / "wiki.jsonl")
    config["data"] |= {"tokenizer": "bytes", "max_train_batches": 1}
    with pytest.warns(UserWarning, match=r"doc_index: document 12345 ends at token"):
        made = splice_from_config(config, seq_len=16)
    (document,) = set(made.spans(np.arange(len(made))).document.tolist())
    ends = np.cumsum([2 + n % 9 for n in range(12_400)])
    assert ends[document] <= 128 * 16


# -- CF-02, CF-04: several ---------------------------------------------------------------------


def test_cf_02_defaults_of_the_multi_constructor_are_the_published_ones():
    defaults = published_defaults()
    assert len(defaults) == 20
    parameters = inspect.signature(SpliceMultiDocumentLMConfig).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    kinds = {name: type(parameters[name].default) for name in defaults}
    assert kinds == {name: type(value) for name, value in defaults.items()}


def test_cf_02_all_published_fields_can_be_said(toy):
    said = published_defaults() | toy
    assert SpliceMultiDocumentLMConfig(**said).fingerprint == (
        SpliceMultiDocumentLMConfig(**toy).fingerprint
    )


def test_cf_04_the_published_yaml_of_several_documents_loads(places, tmp_path):
    config = local(MULTI, tmp_path / "store", places / "long.jsonl")
    made = splice_from_config(config, seq_len=4100)
    fitting = sorted((n for n, size in enumerate(LONG) if 10_000 <= size <= 50_000))
    longest = sorted(fitting, key=lambda n: -LONG[n])[:10]
    assert not made.is_finite
    assert made.run.rows == sum(LONG[n] - 4096 + 1 for n in longest)
    indices = np.arange(200)
    batch, spans = made.batch(indices), made.spans(indices)
    assert set(spans.document.tolist()) <= set(longest)
    assert set((4100 - 4096 - spans.at).tolist()) == {0, 1, 2}
    for row in range(0, 200, 40):
        document, t = int(spans.document[row]), int(spans.start[row])
        text = letters(LONG[document], document)[t : t + 4096]
        assert text_of(batch, row).strip(".") == text.strip(".")
    described = made.describe()
    assert described["choice"]["num_docs"] == 10
    layout = described["layout"]
    assert (layout["alpha"], layout["balance_tau"], layout["min_copy_len"]) == (0.8, 0.7, 128)
    assert described["shuffle"]["kind"] == "full"


def test_cf_04_a_file_loads_like_the_mapping_and_a_store_is_built_once(
    places, tmp_path, monkeypatch
):
    """TS-08: the second call opens what the first has built, even if the text is gone by then."""
    monkeypatch.chdir(tmp_path)
    corpus = Path(write("corpus.jsonl", TOY))
    config = local(MULTI, "stores/toy", "corp*.jsonl")
    config["data"] |= {"num_docs": 2, "min_doc_length": 4, "max_doc_length": 10}
    config["data"] |= {"content_length": 4, "min_copy_len": 2, "epochs": 1}
    config["data"] |= {"balance_mode": "by_coverage", "alpha": 0.0}
    config["model"] = {"seq_len": 8}
    Path("multi.yaml").write_text(yaml.safe_dump(config))
    first = splice_from_config(load_yaml("multi.yaml"))
    before = {path: path.stat().st_mtime_ns for path in Path("stores").rglob("*")}
    corpus.unlink()
    again = tl.from_config(load_yaml("multi.yaml"))
    assert {path: path.stat().st_mtime_ns for path in Path("stores").rglob("*")} == before
    assert first.fingerprint == again.fingerprint
    rows = sorted(text_of(again[i]).strip(".") for i in range(len(again)))
    assert rows == ["ABCD", "BCDE", "CDEF", "DEFG", "HIJK", "IJKL"]


# -- CF-05, CF-06 ------------------------------------------------------------------------------


def test_cf_05_the_published_python_usage_runs_with_another_import(places, tmp_path):
    wikimedia = UrlDatasetSourceConfig(
        cache_dir=str(tmp_path / "store"),
        train_urls=[str(places / "long.jsonl")],
        format=TextLmDatasetFormat(text_key="text"),
    )
    base_mixture = LMMixtureDatasetConfig(
        tokenizer="bytes",
        configs={"common_pile/wikimedia": wikimedia},
        train_weights={"common_pile/wikimedia": 1.0},
        shuffle=False,
        shuffle_per_epoch=True,
    )
    data = SpliceMultiDocumentLMConfig(
        tokenizer="bytes",
        base=base_mixture,
        dataset_name="common_pile/wikimedia",
        num_docs=10,
        min_doc_length=10_000,
        max_doc_length=50_000,
        doc_select_mode="longest",
        balance_mode="by_document",
        content_length=4096,
        content_stride=1,
        content_start_mode="coverage_balanced",
        min_copy_len=128,
        alpha=0.8,
        shuffle_per_epoch=True,
        seq_len=4096,
    )
    shown = np.bincount(data.spans(np.arange(data.run.rows)).document, minlength=len(LONG))
    equal = shown[shown > 0]
    assert len(equal) == 10
    assert equal.max() - equal.min() <= 1
    batch = next(tl.Loader(data, batch_size=4))
    assert batch.loss_mask.sum(axis=1).tolist() == [4095] * 4


def test_cf_06_the_selection_of_the_published_snippet(tmp_path):
    snippet = """
    data:
      dataset_name: common_pile/wikimedia
      min_doc_length: 1024
      doc_select_mode: longest
      doc_index: null
    """
    write(tmp_path / "a.jsonl", [letters(n) for n in (1023, 1024, 3000, 2000)])
    config = yaml.safe_load(SINGLE)["data"] | yaml.safe_load(snippet)["data"]
    config["base"] = {"cache_dir": str(tmp_path / "s"), "train_urls": [str(tmp_path / "a.jsonl")]}
    config |= {"tokenizer": "bytes", "restrict_to_training_subset": False}
    config |= {"content_start_mode": "coverage_balanced", "content_length": None}
    made = splice_from_config(config, seq_len=1024)
    assert len(made) == 3000 - 1024 + 1
    assert made.spans([0]).document.tolist() == [2]


# -- CF-09, C-12: the preset -------------------------------------------------------------------


def test_cf_09_the_recommended_settings():
    assert recommended(4096) == {
        "num_docs": 10,
        "min_doc_length": 4096,
        "max_doc_length": 100_000,
        "doc_select_mode": "longest",
        "balance_mode": "by_temperature",
        "balance_tau": 0.7,
        "content_length": 4096,
        "content_stride": 1,
        "content_start_mode": "coverage_balanced",
        "alpha": 0.8,
        "adaptive_k": True,
        "offset_jitter": 0,
    }
    assert recommended(2048)["min_doc_length"] == 4096
    assert recommended(8192)["min_doc_length"] == 8192
    assert set(recommended(4096)) <= set(published_defaults())


@pytest.mark.parametrize("seq_len", [2, 512, 4096, 32_768, 100_000, 131_072, 1_000_000])
@pytest.mark.parametrize("jitter", [0, 2, 4])
def test_cf_09_and_c_12_the_preset_never_contradicts_itself(seq_len, jitter):
    """Room for the jitter, a full splice in every document, and lengths that can be met."""
    if seq_len - jitter < 2:
        with pytest.raises(tl.ConfigError, match=f"offset_jitter: found {jitter}, allowed"):
            recommended(seq_len, offset_jitter=jitter)
        return
    made = recommended(seq_len, offset_jitter=jitter)
    assert made["content_length"] + made["offset_jitter"] == seq_len
    assert made["content_length"] <= made["min_doc_length"] < made["max_doc_length"]


def test_c_12_the_preset_runs_without_a_warning_with_and_without_jitter(places, tmp_path):
    store = {"base": str(tmp_path / "store")}
    tl.build(str(places / "long.jsonl"), tmp_path / "store", tokenizer="bytes")
    plain = SpliceMultiDocumentLMConfig(**store, seq_len=4096, **recommended(4096))
    assert set(plain.spans(np.arange(300)).at.tolist()) == {0}
    moved = SpliceMultiDocumentLMConfig(
        **store, seq_len=4096, **recommended(4096, offset_jitter=2), shuffle=True
    )
    assert set(moved.spans(np.arange(300)).at.tolist()) == {0, 1, 2}


def test_c_12_jitter_without_room_is_told_once_and_has_no_effect(toy):
    with pytest.warns(UserWarning, match=r"offset_jitter: found 2, but splices are") as told:
        made = SpliceMultiDocumentLMConfig(
            **toy | {"seq_len": 3, "content_length": 3, "offset_jitter": 2}
        )
    assert len(told) == 1
    assert set(made.spans(np.arange(len(made))).at.tolist()) == {0}


# -- CF-13: impossible settings ---------------------------------------------------------------

BAD = [
    ("seq_len", 1, {}),
    ("content_length", 1, {}),
    ("content_length", 0, {}),
    ("content_stride", 0, {}),
    ("offset_stride", -1, {}),
    ("min_copy_len", 0, {}),
    ("alpha", -0.1, {}),
    ("alpha", float("nan"), {}),
    ("balance_tau", -1.0, {}),
    ("balance_tau", float("inf"), {}),
    ("offset_jitter", -2, {}),
    ("epoch_length", 0, {}),
    ("num_docs", 0, {}),
    ("min_doc_length", -1, {}),
    ("max_doc_length", 3, {"min_doc_length": 4}),
    ("doc_select_mode", "longst", {}),
    ("content_start_mode", "slide", {}),
    ("balance_mode", "by_documents", {}),
    ("jitter_mode", "unform", {}),
    ("doc_index", [0, 1, 3], {"num_docs": 3}),
    ("doc_index", [-1], {"num_docs": 1}),
    ("pad_token_id", -1, {}),
    ("eos_token_id", 1 << 31, {}),
    ("epochs", -1, {}),
    ("seed", -1, {}),
    ("select_seed", -1, {}),
    ("shuffle", -3, {}),
    ("on_shortage", "ignore", {}),
    ("position_scheme", "rope", {}),
    ("trailing", "docs", {}),
    ("dataset_name", "x", {"base": "mixture"}),
]
TYPES = [
    ("num_docs", "3"),
    ("content_length", 2.5),
    ("content_stride", True),
    ("alpha", "high"),
    ("adaptive_k", 1),
    ("shuffle_per_epoch", "yes"),
    ("epochs", 1.5),
]


@pytest.mark.parametrize(("key", "value", "others"), BAD, ids=lambda one: str(one))
def test_cf_13_values_that_cannot_be_meant_are_refused_by_their_key(
    toy, places, key, value, others
):
    """In Python and in YAML: the key, the value seen, what is allowed."""
    settings = toy | others | {key: value}
    if others.get("base") == "mixture":
        one = UrlDatasetSourceConfig(cache_dir=str(places / "toy"))
        settings["base"] = LMMixtureDatasetConfig(configs={"wiki": one, "code": one})
    seen = str(value)[-3:].strip("']")
    with pytest.raises(tl.ConfigError) as refused:
        SpliceMultiDocumentLMConfig(**settings)
    message = str(refused.value)
    assert message.startswith(f"{key}:")
    assert seen in message
    assert "allowed" in message
    if "base" in others:
        return
    with pytest.raises(tl.ConfigError) as refused:
        splice_from_config({"data": {"type": "splice_multi_document", **settings}})
    assert str(refused.value) == f"data.{message}"


@pytest.mark.parametrize(("key", "value"), TYPES)
def test_cf_13_values_of_another_type_are_refused_by_their_key(toy, key, value):
    with pytest.raises(tl.ConfigError, match=f"^{key}: found") as refused:
        SpliceMultiDocumentLMConfig(**toy | {key: value})
    assert repr(value) in str(refused.value)
    with pytest.raises(tl.ConfigError, match=rf"^data\.{key}: found"):
        splice_from_config({"data": {"type": "splice_multi_document", **toy, key: value}})


def test_cf_13_a_document_that_is_not_there(places):
    with pytest.raises(tl.ConfigError, match=r"^doc_index: found 3, but there are 3 documents; "):
        SpliceSingleDocumentLMConfig(base=places / "toy", doc_index=3, seq_len=8)


def test_cf_13_several_mistakes_are_told_at_once_and_before_anything_is_built(places, tmp_path):
    source = UrlDatasetSourceConfig(
        cache_dir=str(tmp_path / "store"), train_urls=(str(places / "toy.jsonl"),)
    )
    wrong = {"content_length": 1, "num_docs": 0, "pad_token_id": -1, "shuffle": -1}
    with pytest.raises(tl.ConfigError) as refused:
        SpliceMultiDocumentLMConfig(base=source, tokenizer="bytes", seq_len=8, **wrong)
    keys = [line.split(":")[0] for line in str(refused.value).split("\n")]
    assert keys == ["content_length", "num_docs", "pad_token_id", "shuffle"]
    assert not (tmp_path / "store").exists()


def test_cf_13_a_length_of_frames_is_needed(places):
    with pytest.raises(tl.ConfigError, match=r"^seq_len: missing; the tokens of a frame"):
        SpliceMultiDocumentLMConfig(base=places / "toy")
    with pytest.raises(tl.ConfigError, match=r"^data\.seq_len: missing"):
        splice_from_config({"data": {"type": "splice_multi_document", "base": str(places / "toy")}})


# -- keys --------------------------------------------------------------------------------------


def test_unknown_keys_are_refused_by_path_with_the_near_miss_all_at_once(places):
    config = local(MULTI, places / "toy")
    data = config["data"]
    data["num_dcos"] = data.pop("num_docs")
    data["base"]["train_wieghts"] = data["base"].pop("train_weights")
    data["base"]["configs"][WIKI]["format"] = {"txt_key": "text"}
    data["alpha"] = "0.8"
    with pytest.raises(tl.ConfigError) as refused:
        splice_from_config(config, seq_len=8)
    lines = str(refused.value).split("\n")
    begins = [line.split(":")[0] for line in lines]
    assert begins == [
        "data.num_dcos",
        "data.alpha",
        f"data.base.configs.{WIKI}.format.txt_key",
        "data.base.train_wieghts",
    ]
    for line, meant in zip(lines, ["num_docs", None, "text_key", "train_weights"], strict=True):
        assert meant is None or line.endswith(f"Did you mean {meant!r}?")


def test_an_unknown_argument_is_refused_with_the_near_miss(toy):
    with pytest.raises(tl.ConfigError, match=r"no option 'num_dcos'\. .* mean 'num_docs'\?"):
        SpliceMultiDocumentLMConfig(**toy, num_dcos=2)
    with pytest.raises(tl.ConfigError, match=r"no option 'pad_id'\. .* mean 'pad_token_id'\?"):
        SpliceMultiDocumentLMConfig(**toy, pad_id=2)


@pytest.mark.parametrize(
    ("place", "wrong", "words"),
    [
        ((), "splice_multi_documnet", r"^data\.type: found .* mean 'splice_multi_document'\?"),
        ((), None, r"^data\.type: found None, allowed: splice_single_document, splice_multi"),
        ((), ["splice_multi_document"], r"^data\.type: found \['splice_multi_document'\], allowed"),
        (("base",), "mixtur", r"data\.base\.type: found 'mixtur', .* mean 'mixture'\?"),
        (("base", "configs", WIKI), "hf", rf"data\.base\.configs\.{WIKI}\.type: found 'hf', "),
        (("base", "configs", WIKI, "format"), "chat", r"\.format\.type: found 'chat', allowed: te"),
    ],
)
def test_types_are_checked_at_every_place(places, place, wrong, words):
    config = local(MULTI, places / "toy")
    section = config["data"]
    for name in place:
        section = section[name]
    section["type"] = wrong
    with pytest.raises(tl.ConfigError, match=words):
        splice_from_config(config, seq_len=8)


@pytest.mark.parametrize("config", [None, [], {"data": 3}, {"data": None}, "splice"])
def test_what_is_no_mapping_is_refused(config):
    with pytest.raises(tl.ConfigError, match=r"allowed: a mapping"):
        splice_from_config(config, seq_len=8)


def test_a_base_of_another_kind_is_refused(toy):
    for base in (3, {"cache_dir": "x"}, TextLmDatasetFormat()):
        with pytest.raises(tl.ConfigError, match=r"^base: found .* allowed: a LMMixture"):
            SpliceMultiDocumentLMConfig(**toy | {"base": base})
    with pytest.raises(tl.ConfigError, match=r"^base: found nothing"):
        SpliceMultiDocumentLMConfig(seq_len=8)
    with pytest.raises(tl.ConfigError, match=r"^configs.wiki: found str, allowed: a Url"):
        LMMixtureDatasetConfig(configs={"wiki": "stores/wiki"})
    with pytest.raises(tl.ConfigError, match=r"^format: found str, allowed: a TextLm"):
        UrlDatasetSourceConfig(format="text")


def test_types_that_are_usual_may_be_said_or_left_out(places):
    config = local(MULTI, places / "toy", tokenizer=None)
    data = config["data"]
    data |= {"num_docs": 2, "min_doc_length": None, "content_length": 4, "min_copy_len": 2}
    first = splice_from_config(config, seq_len=8).fingerprint
    source = data["base"]["configs"][WIKI]
    source |= {"type": "url", "format": {"type": "text", "text_key": "text"}}
    source |= {"validation_urls": [], "tags": []}
    del data["base"]["type"]
    assert splice_from_config(config, seq_len=8).fingerprint == first
    assert splice_from_config(data, seq_len=8).fingerprint == first  # without the outer key


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
    with pytest.raises(tl.ConfigError, match="cache_bytes: found 9, allowed: only with a descript"):
        tl.from_config(config, seq_len=8, cache_bytes=9)
    with pytest.raises(tl.ConfigError, match="path: found 'x', but splice settings"):
        tl.from_config(config, seq_len=8, path="x")
    del inside["seq_len"]
    config["train_seq_len"] = "10"
    with pytest.raises(tl.ConfigError, match=r"^train_seq_len: found '10', allowed: an integer"):
        splice_from_config(config)


# -- which dataset -----------------------------------------------------------------------------


def test_a_mixture_may_say_where_its_datasets_are_and_how_much_was_trained_on(toy, places):
    base = LMMixtureDatasetConfig(
        cache_dir=str(places),
        configs={"toy": UrlDatasetSourceConfig(), "wiki": UrlDatasetSourceConfig()},
        max_train_batches={"toy": 1},
    )
    toy |= {"base": base, "dataset_name": "toy", "num_docs": 1}
    # 1 batch x 1 row x 8 tokens: only the first document lies wholly inside
    made = SpliceMultiDocumentLMConfig(
        **toy, doc_select_mode="shortest", restrict_to_training_subset=True, initial_batch_size=1
    )
    assert set(made.spans([0]).document.tolist()) == {0}


# -- what is not on this machine -----------------------------------------------------------------


def test_addresses_and_hub_tokenizers_are_refused_by_their_keys_all_at_once():
    """The published file as it stands: three things to copy here, said in one go."""
    with pytest.raises(tl.ConfigError) as refused:
        splice_from_config(yaml.safe_load(MULTI), seq_len=8)
    lines = str(refused.value).split("\n")
    assert [line.split(": ")[0] for line in lines] == [
        f"data.base.configs.{WIKI}.cache_dir",
        f"data.base.configs.{WIKI}.train_urls[0]",
        "data.tokenizer",
    ]
    assert all("local path" in line for line in lines)
    assert all("gs://" in line for line in lines[:2])
    assert "meta-llama" in lines[2]


def test_the_tokenizer_of_the_base_is_named_as_that(tmp_path, places):
    config = local(MULTI, tmp_path / "s", places / "toy.jsonl", tokenizer="meta-llama/Llama")
    del config["data"]["tokenizer"]
    with pytest.raises(tl.ConfigError, match=r"^data\.base\.tokenizer: found 'meta-llama/Llama'"):
        splice_from_config(config, seq_len=8)
    config["data"]["tokenizer"] = "bytes"
    with pytest.raises(tl.ConfigError, match=r"^data\.tokenizer: found 'bytes', but base\.token"):
        splice_from_config(config, seq_len=8)


def test_text_without_a_tokenizer_or_a_store_without_text_is_refused(tmp_path, places, toy):
    source = {"cache_dir": str(tmp_path / "s"), "train_urls": [str(places / "toy.jsonl")]}
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: missing; there is no store at"):
        SpliceMultiDocumentLMConfig(**toy | {"base": UrlDatasetSourceConfig(**source)})
    config = {"type": "splice_multi_document", "base": {"cache_dir": str(tmp_path / "toi")}}
    with pytest.raises(tl.StoreNotFound, match=r"^\$\.base\.cache_dir: .*Or pass train_urls"):
        splice_from_config(config, seq_len=8)
    with pytest.raises(tl.ConfigError, match=r"^base\.cache_dir: missing"):
        SpliceMultiDocumentLMConfig(**toy | {"base": UrlDatasetSourceConfig()})
    assert not (tmp_path / "s").exists()


def test_text_that_is_not_there_is_named_by_its_key(tmp_path):
    base = {"cache_dir": str(tmp_path / "s"), "train_urls": [str(tmp_path / "no.jsonl")]}
    config = {"type": "splice_multi_document", "base": base, "tokenizer": "bytes"}
    with pytest.raises(tl.InputError, match=r"^data\.base\.train_urls\[0\]: no file or directory"):
        splice_from_config({"data": config}, seq_len=8)


def test_a_bad_record_is_named_by_its_file_whatever_that_is_called(tmp_path, monkeypatch):
    """A file `mode.jsonl` is no key `mode`."""
    monkeypatch.chdir(tmp_path)
    Path("mode.jsonl").write_text('{"txt": "no such key"}\n')
    base = {"cache_dir": "s", "train_urls": ["mode.jsonl"]}
    config = {"type": "splice_multi_document", "base": base, "tokenizer": "bytes"}
    with pytest.raises(tl.InputError) as refused:
        splice_from_config({"data": config}, seq_len=8)
    assert not str(refused.value).startswith("data.")
    assert "mode.jsonl" in str(refused.value)


def test_a_text_key_is_honoured(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "hello"}\n')
    base = UrlSingleDatasetLMConfig(
        cache_dir=tmp_path / "s",
        train_urls=str(tmp_path / "a.jsonl"),
        format=TextLmDatasetFormat(text_key="body"),
        tokenizer="bytes",
    )
    made = SpliceSingleDocumentLMConfig(base=base, seq_len=6)
    assert text_of(made[0]) == ".hello"


def test_a_store_of_another_tokenizer_is_refused_where_that_can_be_known(places, tmp_path, toy):
    path = str(places / "tokenizer.json")
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: found .*a different tokenizer, made"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer=path)
    source = UrlDatasetSourceConfig(
        cache_dir=tmp_path / "s", train_urls=(str(places / "long.jsonl"),)
    )
    toy["base"] = source
    built = SpliceMultiDocumentLMConfig(**toy, tokenizer=path)
    again = SpliceMultiDocumentLMConfig(**toy, tokenizer=Path(path))
    assert built.fingerprint == again.fingerprint == SpliceMultiDocumentLMConfig(**toy).fingerprint
    with pytest.raises(tl.ConfigError, match=r"^tokenizer: found 'bytes', but 'tokenizer.json'"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer="bytes")
    with pytest.warns(UserWarning, match=r"tokenizer: found 'meta-llama/Llama', .* not compared"):
        SpliceMultiDocumentLMConfig(**toy, tokenizer="meta-llama/Llama")


# -- C-06, C-10, C-20 and filler -------------------------------------------------------------------


def test_c_06_trailing_filler_has_the_segment_of_the_document_as_published(places, quiet):
    """The arrays of the published unit test: XYZ in frames of five."""
    settings = {"base": places / "toy", "doc_index": 2, "seq_len": 5}
    made = SpliceSingleDocumentLMConfig(**settings, content_start_mode="anchor_start")
    batch = made.batch([0, 1, 2])
    assert [text_of(batch, row) for row in range(3)] == ["XYZ..", ".XYZ.", "..XYZ"]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    trained = [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
    assert batch.loss_mask.astype(int).tolist() == trained
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 3
    other = SpliceSingleDocumentLMConfig(
        **settings, content_start_mode="anchor_start", trailing="filler"
    )
    assert other[1].segment_ids.tolist() == [[0, 1, 1, 1, 0]]
    assert other[1].loss_mask.astype(int).tolist() == trained[1:2]


def test_c_10_both_layers_balance_by_temperature_one_unless_told_otherwise(places, toy):
    store = tl.open(places / "toy")
    made = SpliceMultiDocumentLMConfig(**toy, content_length=4)
    same = store.select(num_docs=3).splice(8, content_length=4, trailing="doc")
    layout = made.describe()["layout"]
    assert (layout["balance_mode"], layout["balance_tau"]) == ("by_temperature", 1.0)
    assert made.fingerprint == same.seed(0).fingerprint
    legacy = {
        mode: SpliceMultiDocumentLMConfig(**toy, content_length=4, balance_mode=mode)
        for mode in ("by_coverage", "by_document")
    }
    shown = {
        mode: np.bincount(one.spans(np.arange(len(one))).document, minlength=3).tolist()
        for mode, one in legacy.items()
    }
    assert shown["by_coverage"] == [4, 2, 1]
    assert max(shown["by_document"]) - min(shown["by_document"]) <= 1
    assert recommended(4096)["balance_tau"] == 0.7


@pytest.mark.parametrize(
    ("settings", "length", "shuffled"),
    [
        ({}, 7, False),
        ({"epochs": 3}, 21, False),
        ({"shuffle": True}, 7, True),
        ({"shuffle": 4}, 7, True),
        ({"shuffle": True, "epochs": 2}, 14, True),
        ({"shuffle_per_epoch": True}, None, True),
        ({"shuffle_per_epoch": True, "epochs": 1}, 7, True),
        ({"shuffle_per_epoch": True, "epochs": 5}, 35, True),
        ({"shuffle_per_epoch": True, "shuffle": 4}, None, True),
        ({"sampler": "stream"}, None, True),
    ],
)
def test_c_20_epochs_end_unless_they_are_shuffled_anew_and_nobody_counts(
    toy, settings, length, shuffled
):
    made = SpliceMultiDocumentLMConfig(
        **toy, content_length=4, balance_mode="by_coverage", **settings
    )
    assert made.is_finite == (length is not None)
    if length is not None:
        assert len(made) == length
    assert (made.describe()["shuffle"] is not None) == shuffled
    rows = sorted(text_of(made[i]) for i in range(7))
    assert rows == sorted(
        [*("...." + TOY[0][t : t + 4] for t in range(4)), "....HIJK", "....IJKL", ".....XYZ"]
    )


def test_c_20_every_epoch_has_another_order(toy):
    made = SpliceMultiDocumentLMConfig(**toy, content_length=2, shuffle_per_epoch=True)
    rows = made.run.rows
    epochs = [[text_of(made[e * rows + i]) for i in range(rows)] for e in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1
    other = SpliceMultiDocumentLMConfig(**toy, content_length=2, shuffle_per_epoch=True, seed=1)
    assert [text_of(other[i]) for i in range(rows)] != epochs[0]


def test_c_20_orders_of_one_axis_stay_what_they_are(places):
    """shuffle_content permutes starts only, in every epoch anew or the same; offsets ascend."""
    settings = {"base": places / "toy", "doc_index": 0, "content_length": 3, "seq_len": 5}
    settings |= {"content_start_mode": "slide_within", "position_scheme": "absolute"}
    settings |= {"shuffle_content": True, "epochs": 6, "min_copy_len": 3}
    for anew in (False, True):
        made = SpliceSingleDocumentLMConfig(**settings, shuffle_per_epoch=anew)
        assert made.describe()["shuffle"] is None
        spans = made.spans(np.arange(len(made)))
        assert spans.at.reshape(-1, 3).tolist() == [[0, 1, 2]] * 30
        starts = spans.start.reshape(6, 5, 3)[:, :, 0]
        assert (np.sort(starts, axis=1) == np.arange(5)).all()
        assert (len(np.unique(starts, axis=0)) > 1) == anew


def test_further_options_of_select_and_splice_are_taken(toy, places):
    made = SpliceMultiDocumentLMConfig(
        **toy | {"num_docs": 9}, on_shortage="fewer", content_length=4, position_scheme="relative"
    )
    assert made.sources["main"].render.position_scheme == "reset"
    assert made.sources["main"].config.layout.edge == "clip"
    named = SpliceMultiDocumentLMConfig(**toy | {"num_docs": None}, doc_index=[2, 0])
    assert set(named.spans(np.arange(len(named))).document.tolist()) == {0, 2}
    found = SpliceSingleDocumentLMConfig(base=places / "toy", doc_key="id==d1", seq_len=5)
    assert text_of(found[0]) == "HIJKL"


def test_another_draw_of_documents_is_not_another_order(places):
    def drawn(**settings):
        made = SpliceSingleDocumentLMConfig(
            base=places / "toy", doc_select_mode="random", content_length=2, seq_len=8, **settings
        )
        return made.spans([0]).document.tolist()[0]

    assert len({drawn(seed=seed) for seed in range(8)}) == 1
    assert len({drawn(select_seed=seed) for seed in range(20)}) == 3


# -- what comes back ---------------------------------------------------------------------------


def test_what_comes_back_is_a_dataset_like_any_other(toy):
    made = SpliceMultiDocumentLMConfig(**toy, content_length=4, shuffle_per_epoch=True, seed=5)
    assert isinstance(made, tl.Dataset)
    again = tl.from_config(json.loads(json.dumps(made.describe())))
    sent = pickle.loads(pickle.dumps(made))
    for other in (again, sent):
        assert other.fingerprint == made.fingerprint
        assert (other.batch([3, 99]).tokens == made.batch([3, 99]).tokens).all()


def test_from_config_reads_both_and_refuses_a_path_for_settings(toy):
    config = {"data": {"type": "splice_multi_document", **toy}}
    assert tl.from_config(config).fingerprint == SpliceMultiDocumentLMConfig(**toy).fingerprint
    assert tl.from_config(config["data"]).seq_len == 8
    with pytest.raises(
        tl.ConfigError, match=r"^path: found 'x', but splice settings name their own"
    ):
        tl.from_config(config, path="x")
    with pytest.raises(tl.ConfigError, match=r"^\$\.type: found 'splice_documents'"):
        tl.from_config({"type": "splice_documents"})
    with pytest.raises(tl.ConfigError, match=r"\$\.layout: missing"):
        tl.from_config({"type": "windows"})


def test_paths_may_begin_with_a_tilde(places, monkeypatch):
    monkeypatch.setenv("HOME", str(places))
    made = SpliceSingleDocumentLMConfig(base="~/toy", seq_len=8)
    assert made.sources["main"].path == os.path.join(str(places), "toy")


def test_the_names_of_the_module_are_pinned():
    assert levanter.__all__ == [
        "ContinuedRun",
        "LMMixtureDatasetConfig",
        "SpliceMultiDocumentLMConfig",
        "SpliceSingleDocumentLMConfig",
        "TextLmDatasetFormat",
        "UrlDatasetSourceConfig",
        "UrlSingleDatasetLMConfig",
        "async_dataset",
        "build_caches",
        "continue_run",
        "load_yaml",
        "recommended",
        "splice_from_config",
    ]


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path, places):
    """Such as a cache that another tool wrote there."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train/shard_ledger.json").write_text("{}")
    base = UrlDatasetSourceConfig(cache_dir=tmp_path, train_urls=[str(places / "toy.jsonl")])
    with pytest.raises(tl.StoreExists, match=str(tmp_path)):
        SpliceSingleDocumentLMConfig(base=base, tokenizer="bytes", seq_len=8)
    left = {path.name for path in tmp_path.rglob("*")} - {".lock"}
    assert left == {"train", "shard_ledger.json"}
