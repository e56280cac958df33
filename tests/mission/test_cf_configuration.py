"""Configuration: published settings load and mean what they say; wrong ones are refused by path.

The files in tests/golden/configs are those that the published designs print; each says what was
changed in it. `MULTI_CLASS` is copied from the design.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import logging
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from word_tokenizers import bos_eos_pad, words

import tokenloom as tl
from tokenloom.batch import attention
from tokenloom.integrations.hf import Collator, block_tokenize
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
from tokenloom.integrations.trainer import packing_settings
from tokenloom.streams import read_offsets, stream_packer

CONFIGS = Path(__file__).parents[1] / "golden/configs"
LENGTHS = [9_000, 50_000, 10_000, 12_345, 50_001, 33_000, 20_000, 49_999, 15_000, 31_000]
LENGTHS += [11_000, 40_000, 13_000, 200]
PUBLISHED = tl.BlockShuffle(io_block_size=128, window_blocks=8, cache_windows=8)
TOY = ["ABCDEFG", "HIJKL", "XYZ"]

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


def text(length, first=0):
    """A text of this many letters, another one for every `first`."""
    return "".join(chr(97 + (first + n * n) % 26) for n in range(length))


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The published configurations, beside the text and the stores that they name."""
    folder = tmp_path_factory.mktemp("configs")
    for path in CONFIGS.iterdir():
        shutil.copy(path, folder)
    write_jsonl(folder / "wikimedia.jsonl", [text(size, n) for n, size in enumerate(LENGTHS)])
    write_jsonl(folder / "wikimedia_short.jsonl", [text(4 + n % 9, n) for n in range(12_400)])
    write_jsonl(folder / "toy.jsonl", TOY)
    for name, out in (("wikimedia", "tokenized/wikimedia"), ("toy", "toy")):
        tl.build(folder / f"{name}.jsonl", folder / out, tokenizer="bytes", progress=False)
    return folder


@pytest.fixture
def wikimedia(home):
    return tl.open(home / "tokenized/wikimedia")


@pytest.fixture
def toy(home):
    """Settings of a splice of three short documents."""
    return {"base": str(home / "toy"), "num_docs": 3, "seq_len": 8}


@pytest.fixture
def load(home, caplog):
    """Loads a configuration: the run, and the lines of the log."""
    caplog.set_level(logging.INFO)

    def from_file(name, *overrides):
        caplog.clear()
        run = tl.load(home / name, overrides=overrides)
        return run, [record.getMessage() for record in caplog.records]

    return from_file


def logs(lines, *needed):
    """Whether one line holds all of these words."""
    return any(all(word in line for word in needed) for line in lines)


def content(batch, row=0):
    """The letters of a row; filler is a dot."""
    return "".join(chr(token) if token else "." for token in batch.tokens[row])


def documents_of(run, rows):
    return set(run.spans(np.arange(rows)).document.tolist())


def refusal(call, *args, **options):
    """The message of the ConfigError that a call raises."""
    with pytest.raises(tl.ConfigError) as refused:
        call(*args, **options)
    return str(refused.value)


# -- splices of one document ---------------------------------------------------------------


def test_cf_01_the_single_constructor_takes_all_published_fields(home):
    """Every field that the design lists, with values that are allowed together."""
    run = SpliceSingleDocumentLMConfig(
        base=UrlSingleDatasetLMConfig(cache_dir=str(home / "toy"), tokenizer="bytes"),
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
    rows = {content(run[i]) for i in range(len(run))}
    # HIJKL: t 0 and 2 (4 leaves one token) at s 0, 2, 4
    assert rows == {"." * s + c + "." * (5 - s) for c in ("HIJ", "JKL") for s in (0, 2, 4)}


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("dataset_name", None),
        ("doc_index", None),
        ("doc_selector", None),
        ("pad_token_id", None),
        ("eos_token_id", None),
        ("offset_stride", 1),
        ("shuffle_offsets", False),
        ("offset_seed", 0),
        ("content_length", None),
        ("content_stride", 1),
        ("shuffle_content", False),
        ("content_seed", 0),
        ("restrict_to_training_subset", False),
        ("initial_batch_size", None),
        ("mode", "splice"),
        ("min_doc_length", None),
        ("max_doc_length", None),
    ],
)
def test_cf_01_its_fields_have_the_published_defaults(name, default):
    parameter = inspect.signature(SpliceSingleDocumentLMConfig).parameters[name]
    assert parameter.default == default
    assert type(parameter.default) is type(default)


@pytest.mark.parametrize(
    ("mode", "starts"), [("anchor_start", 1), ("slide_within", 2), ("cyclic_roll", 3)]
)
def test_cf_01_every_start_mode_has_its_name(home, mode, starts):
    run = SpliceSingleDocumentLMConfig(
        base=home / "toy",
        doc_index=2,
        content_start_mode=mode,
        content_length=2,
        position_scheme="absolute",
        seq_len=4,
    )
    assert len(run) == 3 * starts  # XYZ: s = 0, 1, 2


@pytest.mark.filterwarnings("ignore:restrict_to_training_subset", "ignore:splice. an epoch spends")
def test_cf_01_cf_03_the_published_yaml_of_one_document_loads(load, home, monkeypatch):
    run, lines = load("splice-single.yaml")
    assert run.seq_len == 5
    assert documents_of(run, len(run)) == {12_345}
    # a document of 4 + 12345 % 9 = 10 tokens and K = 3: every (t, s) that shows two tokens
    length, frame, content_length = 10, 5, 3
    pairs = [
        (t, s)
        for t in range(length)
        for s in range(frame - min(content_length, length - t) + 1)
        if min(content_length, length - t) >= 2
    ]
    assert len(run) == len(pairs) == 28
    letters = text(10, 12_345)
    expected = {(t, s): ("." * s + letters[t : t + 3]).ljust(5, ".") for t, s in pairs}
    assert sorted(content(run[i]) for i in range(28)) == sorted(expected.values())
    assert logs(lines, "splice-single.yaml")
    monkeypatch.chdir(home)  # where its paths are relative to
    assert splice_from_config(load_yaml("splice-single.yaml")) == run


@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
def test_cf_03_the_training_subset_is_honored_if_its_size_is_known(home):
    """One batch of 128 rows of 5 tokens: document 12345 is beyond it, so another is taken."""
    with pytest.warns(UserWarning, match=r"doc_index\b.*\b12345\b"):
        run = tl.load(home / "splice-single.yaml", overrides=["data.max_train_batches=1"])
    (document,) = documents_of(run, len(run))
    assert sum(4 + n % 9 for n in range(document + 1)) <= 128 * 5


# -- splices of several documents ----------------------------------------------------------


def published_defaults():
    """The fields of the published class and their defaults."""
    (published,) = ast.parse(MULTI_CLASS).body
    return {field.target.id: ast.literal_eval(field.value) for field in published.body}


def test_cf_02_defaults_of_the_multi_constructor_are_the_published_ones(toy):
    defaults = published_defaults()
    assert len(defaults) == 20
    parameters = inspect.signature(SpliceMultiDocumentLMConfig).parameters
    assert {name: parameters[name].default for name in defaults} == defaults
    types = {name: type(parameters[name].default) for name in defaults}
    assert types == {name: type(value) for name, value in defaults.items()}
    spelled_out = SpliceMultiDocumentLMConfig(**(defaults | toy))
    assert spelled_out == SpliceMultiDocumentLMConfig(**toy)


def test_cf_04_the_published_yaml_of_several_documents_loads(load):
    run, lines = load("splice-multi.yaml")
    fitting = [n for n, size in enumerate(LENGTHS) if 10_000 <= size <= 50_000]
    longest = sorted(fitting, key=lambda n: -LENGTHS[n])[:10]
    assert not run.is_finite
    assert len(run.epochs(1)) == sum(LENGTHS[n] - 4096 + 1 for n in longest)
    indices = np.arange(200)
    batch, spans = run.batch(indices), run.spans(indices)
    assert set(spans.document.tolist()) <= set(longest)
    assert set((4098 - 4096 - spans.at).tolist()) == {0, 1, 2}  # offset_jitter
    for row in range(0, 200, 40):
        document, t = int(spans.document[row]), int(spans.start[row])
        letters = text(LENGTHS[document], document)[t : t + 4096]
        assert content(batch, row).strip(".") == letters
    described = run.describe()
    assert described["choice"]["num_docs"] == 10
    layout = described["layout"]
    assert (layout["alpha"], layout["balance_tau"], layout["min_copy_len"]) == (0.8, 0.7, 128)
    assert described["shuffle"]["kind"] == "full"
    for name in ("train_weights", "shuffle_per_epoch"):  # of the base, which is not trained on
        assert logs(lines, f"data.base.{name}", "not used")


def test_cf_04_cf_15_text_is_built_once_into_the_store_of_the_base(tmp_path, monkeypatch):
    """The second call opens what the first one built, even if the text is gone by then."""
    monkeypatch.chdir(tmp_path)
    corpus = write_jsonl(Path("corpus.jsonl"), TOY)
    config = yaml.safe_load((CONFIGS / "splice-multi.yaml").read_text())
    data = config["data"]
    wiki = {"cache_dir": "stores/toy", "train_urls": ["corp*.jsonl"]}
    data["base"]["configs"] = {"common_pile/wikimedia": wiki}
    data |= {"num_docs": 2, "min_doc_length": 4, "max_doc_length": 10, "offset_jitter": 0}
    data |= {"content_length": 4, "min_copy_len": 2, "epochs": 1}
    data |= {"balance_mode": "by_coverage", "alpha": 0.0}
    config["model"]["seq_len"] = 8
    Path("multi.yaml").write_text(yaml.safe_dump(config))
    first = tl.load("multi.yaml")
    before = {path: path.stat().st_mtime_ns for path in Path("stores").rglob("*")}
    corpus.unlink()
    again = splice_from_config(load_yaml("multi.yaml"))
    assert {path: path.stat().st_mtime_ns for path in Path("stores").rglob("*")} == before
    assert first == again
    rows = sorted(content(again[i]).strip(".") for i in range(len(again)))
    assert rows == ["ABCD", "BCDE", "CDEF", "DEFG", "HIJK", "IJKL"]


@pytest.mark.parametrize("as_mixture", [True, False])
def test_cf_15_the_base_builds_the_caches_of_a_wrapper(tmp_path, as_mixture):
    """TS-08: what the base builds by itself is what the wrapper opens, and the other way round."""
    corpus = str(write_jsonl(tmp_path / "toy.jsonl", TOY))
    source = {"cache_dir": tmp_path / "cache", "train_urls": [corpus]}
    if as_mixture:
        configs = {"toy": UrlDatasetSourceConfig(**source)}
        base = LMMixtureDatasetConfig(tokenizer="bytes", configs=configs)
    else:
        base = UrlSingleDatasetLMConfig(**source, tokenizer="bytes")
    run = SpliceMultiDocumentLMConfig(base=base, num_docs=3, content_length=4, seq_len=8)
    (store,) = base.build_caches("train").values()
    assert store.num_documents == 3
    assert run.describe()["store"]["path"] == str(store.path)
    assert run.describe()["store"]["digest"] == store.digest


def test_cf_05_the_published_python_usage_runs_with_another_import(home, tmp_path):
    wikimedia = UrlDatasetSourceConfig(
        cache_dir=str(tmp_path / "store"),
        train_urls=[str(home / "wikimedia.jsonl")],
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
    rows = len(data.epochs(1))
    shown = np.bincount(data.spans(np.arange(rows)).document, minlength=len(LENGTHS))
    shares = shown[shown > 0]
    assert len(shares) == 10
    assert shares.max() - shares.min() <= 1  # by_document
    with tl.Loader(data, batch_size=4, rank=0, world_size=1) as loader:
        batch = next(loader)
    assert batch.loss_mask.sum(axis=1).tolist() == [4095] * 4


def test_cf_06_the_selection_snippet_takes_the_longest_document(load, home, tmp_path, wikimedia):
    run, _ = load("splice-selection.yaml")
    assert documents_of(run, len(run)) == {4}
    section = yaml.safe_load((home / "splice-selection.yaml").read_text())["data"]
    names = ("min_doc_length", "doc_select_mode", "doc_index")
    settings = {name: section[name] for name in names}
    assert settings == {"min_doc_length": 1024, "doc_select_mode": "longest", "doc_index": None}
    assert wikimedia.select(**settings).indices.tolist() == [4]
    records = [{"text": text(size)} for size in (1023, 1024, 1000)]
    small = tl.build(records, tmp_path / "small", tokenizer="bytes", progress=False)
    assert small.select(**settings).indices.tolist() == [1]


# -- shuffles ------------------------------------------------------------------------------


def test_cf_07_a_block_shuffle_is_applied_as_published_and_only_if_configured(
    load, home, wikimedia
):
    run, _ = load("block-shuffle.yaml")
    plain = wikimedia.windows(2048).epochs(None)
    assert run == plain.block_shuffle(PUBLISHED)
    config = yaml.safe_load((home / "block-shuffle.yaml").read_text())
    del config["data"]["block_shuffle"]
    config["data"]["configs"]["common_pile/wikimedia"]["cache_dir"] = str(wikimedia.path)
    unshuffled = tl.from_config(config)
    assert unshuffled == plain
    assert unshuffled.describe()["shuffle"] is None


def test_cf_07_c_29_two_shuffle_settings_are_refused(load):
    with pytest.raises(tl.ConfigError, match=r"shuffle\b.*block_shuffle"):
        load("block-shuffle.yaml", "data.shuffle=true")


@pytest.mark.parametrize("key", ["shuffle", "block_shuffle"])
def test_cf_07_c_29_the_fields_of_a_block_shuffle_round_trip(wikimedia, key):
    fields = {"io_block_size": 64, "window_blocks": 4, "perm_type": "linear", "cache_windows": 2}
    assert {field.name for field in dataclasses.fields(tl.BlockShuffle)} >= set(fields)
    data = {"components": {"a": {"cache_dir": str(wikimedia.path)}}, key: fields}
    run = tl.from_config({"data": data, "model": {"seq_len": 1024}})
    assert run == wikimedia.windows(1024).epochs(None).block_shuffle(**fields)
    assert fields.items() <= run.describe()["shuffle"].items()
    again = tl.from_config(json.loads(json.dumps(run.describe())))
    assert again == run
    assert again.describe() == run.describe()


@pytest.mark.parametrize("where", ["data", "data.base"])
def test_cf_07_a_block_shuffle_of_splices_is_read_from_either_place(toy, tmp_path, where):
    base = {"configs": {"toy": {"cache_dir": toy["base"]}}}
    data = {"type": "splice_multi_document", **toy, "base": base, "content_length": 4}
    (data if where == "data" else base)["shuffle"] = {"window_blocks": 2}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"data": data}))
    plain = SpliceMultiDocumentLMConfig(**toy, content_length=4)
    assert tl.load(tmp_path / "run.yaml") == plain.block_shuffle(window_blocks=2) != plain


def test_cf_08_the_published_preset_is_128_rows_8_blocks_feistel_8_windows(wikimedia):
    published = wikimedia.windows(2048).block_shuffle(tl.BlockShuffle.published())
    shuffle = published.describe()["shuffle"]
    assert (shuffle["io_block_size"], shuffle["window_blocks"]) == (128, 8)
    assert (shuffle["perm_type"], shuffle["cache_windows"]) == ("feistel", 8)
    default = wikimedia.windows(2048).block_shuffle().describe()["shuffle"]
    assert default["window_blocks"] == 512  # of 128 rows of 2,048 tokens: 128 Mi tokens


def test_cf_08_the_docs_say_why_the_default_window_is_larger():
    page = (Path(__file__).parents[2] / "docs/order.md").read_text()
    (paragraph,) = [part for part in page.split("\n\n") if "BlockShuffle.published()" in part]
    for word in ("128", "512", "default", "reads", "memory"):
        assert word in paragraph


WAYS = [
    (True, lambda run: run.shuffle()),
    (4, lambda run: run.shuffle(4)),
    (tl.BlockShuffle(window_blocks=2), lambda run: run.block_shuffle(window_blocks=2)),
    ({"window_blocks": 2}, lambda run: run.block_shuffle(window_blocks=2)),
    (
        {"io_block_size": 3, "window_blocks": 2, "lanes": 2, "perm_type": "linear"},
        lambda run: run.block_shuffle(
            io_block_size=3, window_blocks=2, lanes=2, perm_type="linear"
        ),
    ),
    (
        {"window_blocks": 8, "cache_windows": 8},
        lambda run: run.block_shuffle(tl.BlockShuffle.published()),
    ),
    ({"kind": "full"}, lambda run: run.shuffle()),
    (False, lambda run: run),
    (None, lambda run: run),
]


@pytest.mark.parametrize(("shuffle", "same"), WAYS, ids=[str(shuffle) for shuffle, _ in WAYS])
@pytest.mark.parametrize("several", [True, False])
def test_cf_16_a_shuffle_of_the_base_or_of_the_splices_is_applied(home, shuffle, same, several):
    def spliced(of_base=None, **options):
        source = UrlDatasetSourceConfig(cache_dir=home / "toy")
        base = LMMixtureDatasetConfig(configs={"toy": source}, shuffle=of_base)
        options |= {"base": base, "seq_len": 8, "content_length": 4}
        if several:
            return SpliceMultiDocumentLMConfig(num_docs=3, **options)
        return SpliceSingleDocumentLMConfig(doc_index=0, **options)

    plain = spliced()
    assert spliced(shuffle) == same(plain)
    assert spliced(shuffle=shuffle) == same(plain)
    assert spliced(shuffle, shuffle=5) == plain.shuffle(5)  # the setting of the splices wins
    assert spliced(shuffle, shuffle=False) == plain


def test_cf_16_the_base_may_be_one_dataset(home, toy):
    base = UrlSingleDatasetLMConfig(
        cache_dir=home / "toy", shuffle=tl.BlockShuffle(window_blocks=2)
    )
    plain = SpliceMultiDocumentLMConfig(**toy, content_length=4)
    run = SpliceMultiDocumentLMConfig(**(toy | {"base": base}), content_length=4)
    assert run == plain.block_shuffle(window_blocks=2)


def test_cf_16_one_shuffle_reaches_every_component_of_a_mixture(load, home):
    run, lines = load("lm-data.yaml")
    components = {"wikimedia": "wikimedia", "short": "wikimedia-short"}
    sources = {
        name: tl.open(home / "tokenized" / folder).windows(2048).epochs(None)
        for name, folder in components.items()
    }
    shuffled = {name: source.block_shuffle(PUBLISHED) for name, source in sources.items()}
    weights = {"wikimedia": 3.0, "short": 1.0}
    assert run == tl.mix(shuffled, rule="random", block=64, weights=weights).seed(0)
    for name in ("data.num_validation_sequences", "trainer"):
        assert logs(lines, f"{name}:", "not used")


# -- packing -------------------------------------------------------------------------------

DOCUMENTS = [[10, 11, 12], [20, 21], [30, 31, 32, 33]]
CF_10 = """
data:
  seq_len: 8
  packing_mode: {mode}
  packing_buffer_docs: 2
  packing_max_docs_per_bin: 3
  mask_boundary_loss: true
  train_on_eos: false
  tokenizer: {{add_bos: true, add_eos: true}}
model:
  segment_masking: false
  bos_token_id: 1
  eos_token_id: 2
  pad_token_id: 0
"""


@pytest.mark.filterwarnings("ignore:data.packing_max_docs_per_bin")
@pytest.mark.parametrize("mode", ["sequential", "bin", "multipack"])
def test_cf_10_the_names_of_a_trainer_are_accepted_and_mean_what_they_say(store_of, mode):
    config = yaml.safe_load(CF_10.format(mode=mode))
    store = store_of(DOCUMENTS)
    data = config["data"] | {"store": str(store.path)}
    run = tl.from_config(config | {"data": data})
    batch = run.batch(np.arange(len(run)))
    assert batch.tokens.shape[1] == 8
    assert batch.label_layout == "shifted"
    if mode == "sequential":
        assert batch.tokens[0].tolist() == [1, 10, 11, 12, 2, 1, 20, 21]
        assert batch.tokens[1, 0] == 2  # the token after row 0 is shared, so no target is lost
    ids = batch.tokens[batch.segment_ids > 0].tolist()
    assert 1 in ids  # add_bos
    assert 2 in ids  # add_eos
    assert 2 not in batch.labels  # train_on_eos
    first = np.diff(batch.segment_ids, axis=1, prepend=0) > 0
    starts = batch.tokens[first]
    assert not np.isin(batch.labels, starts[starts == 1]).any()  # mask_boundary_loss
    assert {10, 20, 30} < set(ids)
    streamed = packing_settings(config)
    rows = [
        row.tokens.tolist() for row in stream_packer(seq_len=8, **streamed.stream).rows(DOCUMENTS)
    ]
    assert sorted(t for row in rows for t in row if t > 2) == sorted(itertools.chain(*DOCUMENTS))
    mask = attention.dense_mask(batch.segment_ids, **streamed.attention)
    row = int(np.argmax(batch.segment_ids.max(axis=1)))
    last = int((batch.segment_ids[row] > 0).sum()) - 1
    assert batch.segment_ids[row, last] > 1
    assert mask[row, last, 0]  # segment_masking is off, so documents see each other


@pytest.mark.parametrize(
    ("key", "value", "changed"),
    [
        ("data.seq_len", 6, True),
        ("data.packing_mode", "sequential", True),
        ("data.packing_max_docs_per_bin", 1, True),
        ("data.mask_boundary_loss", False, True),
        ("data.train_on_eos", True, True),
        ("data.tokenizer.add_bos", False, True),
        ("data.tokenizer.add_eos", False, True),
        ("model.eos_token_id", 3, True),
        ("model.pad_token_id", 3, True),
        ("data.packing_buffer_docs", 9, False),  # of streams: a store is packed by a plan
        ("model.segment_masking", True, False),  # of the model
    ],
)
@pytest.mark.filterwarnings("ignore:data.packing_max_docs_per_bin")
def test_cf_10_every_name_changes_what_it_names(store_of, key, value, changed):
    store = store_of(DOCUMENTS)

    def arrays(**change):
        config = yaml.safe_load(CF_10.format(mode="bin"))
        config["data"]["store"] = str(store.path)
        for path, new in change.items():
            *sections, name = path.split(".")
            section = config
            for part in sections:
                section = section[part]
            section[name] = new
        run = tl.from_config(config)
        batch = run.batch(np.arange(len(run)))
        return batch.tokens.tolist(), batch.labels.tolist()

    assert (arrays() != arrays(**{key: value})) == changed


def test_cf_10_packing_settings_of_a_trainer_load_from_a_file(load, wikimedia):
    run, lines = load("packing.yaml")
    packed = wikimedia.pack(
        512,
        strategy="first_fit_decreasing",
        lookahead=True,
        max_docs_per_bin=8,
        add_eos=True,
        eos_id=3,
    )
    assert run == packed.render(pad_id=0, train_on_eos=False)
    assert logs(lines, "optim:", "not used")
    assert logs(lines, "data.packing_buffer_docs:", "not used")
    assert logs(lines, "model.segment_masking:")


@pytest.mark.filterwarnings("ignore:.*truncated")
def test_cf_11_preprocessor_and_collator_settings_keep_their_meaning(load, home):
    """Best fit there is by decreasing length; what is longer than a row is cut off."""
    records = [{"text": text(length)} for length in (5_000, 4_000, 90, 700, 3_000)]
    path = home / "tokenized/specials"
    store = tl.build(records, path, tokenizer="bytes", eos=0, add_eos=False, progress=False)
    run, lines = load("preprocessor.yaml")
    packed = store.pack(4096, strategy="best_fit_decreasing", overflow="truncate", add_eos=True)
    assert run == packed
    assert logs(lines, "datacollator.return_tensors:", "not used")
    message = refusal(load, "preprocessor.yaml", "datacollator.max_length=512")
    assert "datacollator.max_length" in message
    assert "512" in message
    typo = "datasets_preprocessor_args.packing_strategi"
    message = refusal(load, "preprocessor.yaml", f"{typo}=greedy")
    assert f"{typo}:" in message
    assert "'packing_strategy'" in message


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"packed": True}, {"strategy": "sequential"}),
        ({"packed": True, "overflow": False}, {"strategy": "greedy", "overflow": "truncate"}),
        ({"packed": True, "packing_strategy": "first_fit"}, {"strategy": "first_fit_decreasing"}),
        ({}, {"strategy": "one_doc"}),
        ({"packed": True, "min_len": 3, "seed": 4}, {"strategy": "sequential", "min_len": 3}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_cf_11_the_words_of_a_preprocessor_mean_its_strategies(wikimedia, settings, same):
    arguments = {"max_length": 128, "add_eos": False, **settings}
    config = {"store": str(wikimedia.path), "datasets_preprocessor_args": arguments}
    shuffle_seed = settings.get("seed", 0)
    assert tl.from_config(config) == wikimedia.pack(128, **same, shuffle_seed=shuffle_seed)


def test_cf_11_the_sections_are_arguments_of_the_batch_function_and_the_collator():
    sections = yaml.safe_load((CONFIGS / "preprocessor.yaml").read_text())
    arguments = sections["datasets_preprocessor_args"]
    assert arguments == {
        "max_length": 4096,
        "packed": True,
        "packing_strategy": "best_fit",
        "overflow": False,
        "add_eos": True,
    }
    texts = {"text": ["10 11 12", "20 21 22 23 24", "30 31"]}
    rows = block_tokenize(texts, words, "text", **arguments, add_bos=False, eos_id=2)
    assert rows["input_ids"] == [[20, 21, 22, 23, 24, 2, 10, 11, 12, 2, 30, 31, 2]]
    assert rows["document_starts"] == [[0, 6, 10]]
    pickled = pickle.dumps(Collator(bos_eos_pad(), **sections["datacollator"]))
    assert len(pickled) < 2000  # for workers: ids, not the tokenizer
    batch = pickle.loads(pickled)([{"input_ids": rows["input_ids"][0]}])
    assert batch["input_ids"].tolist() == rows["input_ids"]
    assert type(batch["input_ids"]).__module__ == "torch"  # return_tensors


# -- the preset ----------------------------------------------------------------------------


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
    assert set(recommended(4096)) <= set(published_defaults())


@pytest.mark.parametrize("seq_len", [2, 512, 4096, 32_768, 100_000, 131_072, 1_000_000])
@pytest.mark.parametrize("jitter", [0, 2, 4])
def test_cf_09_c_12_the_preset_never_contradicts_itself(seq_len, jitter):
    """Room for the jitter, a full splice in every document, and lengths that can be met."""
    if seq_len - jitter < 2:
        with pytest.raises(tl.ConfigError, match=rf"offset_jitter\b.*\b{jitter}\b"):
            recommended(seq_len, offset_jitter=jitter)
        return
    settings = recommended(seq_len, offset_jitter=jitter)
    assert settings["offset_jitter"] == jitter
    assert settings["content_length"] == seq_len - jitter
    assert settings["content_length"] <= settings["min_doc_length"] < settings["max_doc_length"]


def test_cf_09_c_12_the_preset_runs_without_a_warning_with_and_without_jitter(wikimedia):
    base = str(wikimedia.path)
    fixed = SpliceMultiDocumentLMConfig(base=base, seq_len=4096, **recommended(4096))
    assert set(fixed.spans(np.arange(300)).at.tolist()) == {0}
    settings = recommended(4096, offset_jitter=2)
    moved = SpliceMultiDocumentLMConfig(base=base, seq_len=4096, **settings, shuffle=True)
    assert set(moved.spans(np.arange(300)).at.tolist()) == {0, 1, 2}


def test_c_10_both_layers_balance_by_temperature_one_unless_set(home, toy):
    run = SpliceMultiDocumentLMConfig(**toy, content_length=4)
    spliced = tl.open(home / "toy").select(num_docs=3).splice(8, content_length=4)
    assert run == spliced.render(trailing="doc").seed(0)
    for either in (run, spliced):
        layout = either.describe()["layout"]
        assert (layout["balance_mode"], layout["balance_tau"]) == ("by_temperature", 1.0)
    assert recommended(4096)["balance_tau"] == 0.7
    shown = {}
    for mode in ("by_coverage", "by_document"):
        legacy = SpliceMultiDocumentLMConfig(**toy, content_length=4, balance_mode=mode)
        documents = legacy.spans(np.arange(len(legacy))).document
        shown[mode] = np.bincount(documents, minlength=3).tolist()
    assert shown["by_coverage"] == [4, 2, 1]
    assert max(shown["by_document"]) - min(shown["by_document"]) <= 1


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
def test_c_20_only_a_shuffle_of_every_epoch_without_a_number_of_epochs_is_endless(
    toy, settings, length, shuffled
):
    options = {"content_length": 4, "balance_mode": "by_coverage"} | settings
    run = SpliceMultiDocumentLMConfig(**toy, **options)
    assert run.is_finite == (length is not None)
    if length is not None:
        assert len(run) == length
    assert (run.describe()["shuffle"] is not None) == shuffled
    rows = sorted(content(run[i]) for i in range(7))
    rows_of_an_epoch = [*("...." + TOY[0][t : t + 4] for t in range(4)), "....HIJK", "....IJKL"]
    assert rows == sorted([*rows_of_an_epoch, ".....XYZ"])


def test_c_20_every_epoch_has_another_order(toy):
    run = SpliceMultiDocumentLMConfig(**toy, content_length=2, shuffle_per_epoch=True)
    rows = len(run.epochs(1))
    epochs = [[content(run[e * rows + i]) for i in range(rows)] for e in range(4)]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1
    other = SpliceMultiDocumentLMConfig(**toy, content_length=2, shuffle_per_epoch=True, seed=1)
    assert [content(other[i]) for i in range(rows)] != epochs[0]


@pytest.mark.parametrize("anew", [True, False])
def test_c_20_a_shuffle_of_starts_alone_permutes_only_these(home, anew):
    run = SpliceSingleDocumentLMConfig(
        base=home / "toy",
        doc_index=0,
        content_start_mode="slide_within",
        content_length=3,
        min_copy_len=3,
        shuffle_content=True,
        shuffle_per_epoch=anew,
        epochs=6,
        position_scheme="absolute",
        seq_len=5,
    )
    assert run.describe()["shuffle"] is None
    spans = run.spans(np.arange(len(run)))
    assert spans.at.reshape(-1, 3).tolist() == [[0, 1, 2]] * 30  # offsets ascend
    starts = spans.start.reshape(6, 5, 3)[:, :, 0]
    assert (np.sort(starts, axis=1) == np.arange(5)).all()
    assert (len(np.unique(starts, axis=0)) > 1) == anew


@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
def test_c_06_the_trailer_of_published_constructors_has_the_segment_of_the_document(home):
    """The arrays of the published unit test: XYZ in frames of five."""
    settings = {"base": home / "toy", "doc_index": 2, "seq_len": 5}
    settings["content_start_mode"] = "anchor_start"
    run = SpliceSingleDocumentLMConfig(**settings)
    batch = run.batch([0, 1, 2])
    assert [content(batch, row) for row in range(3)] == ["XYZ..", ".XYZ.", "..XYZ"]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 1, 1], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    trained = [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]]
    assert batch.loss_mask.astype(int).tolist() == trained
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 3
    other = SpliceSingleDocumentLMConfig(**settings, trailing="filler")
    assert other[1].segment_ids.tolist() == [[0, 1, 1, 1, 0]]
    assert other[1].loss_mask.astype(int).tolist() == trained[1:2]


# -- wrong settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "path", "meant"),
    [
        ({"data": {"packing_mod": "bin", "seq_len": 8}}, "data.packing_mod", "packing_mode"),
        (
            {"data": {"packing_mode": "bin", "buffer_docs": 2}},
            "data.buffer_docs",
            "packing_buffer_docs",
        ),
        (
            {"data": {"packing_mode": "bin", "mask_boundry_loss": True}},
            "data.mask_boundry_loss",
            "mask_boundary_loss",
        ),
        (
            {"data": {"packing_mode": "bin", "train_on_eoss": True}},
            "data.train_on_eoss",
            "train_on_eos",
        ),
        (
            {"data": {"packing_mode": "bin", "tokenizer": {"add_eoss": True}}},
            "data.tokenizer.add_eoss",
            "add_eos",
        ),
        (
            {"data": {"packing_mode": "bin"}, "model": {"segment_maskin": True}},
            "model.segment_maskin",
            "segment_masking",
        ),
    ],
)
def test_cf_12_a_typo_among_packing_settings_is_refused_with_the_name_meant(config, path, meant):
    message = refusal(tl.from_config, config)
    assert f"{path}:" in message
    assert f"'{meant}'" in message
    message = refusal(packing_settings, config)
    assert f"{path}:" in message
    assert f"'{meant}'" in message


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"shufle": True}, "data.shufle", ["'shuffle'"]),
        ({"shuffle": {"window_block": 8}}, "data.shuffle.window_block", ["'window_blocks'"]),
        ({"block_shuffle": True}, "data.block_shuffle", ["True"]),
        ({"train_weights": {"wiki": 1}}, "data.train_weights.wiki", ["'wiki'"]),
        ({"train_weights": [[0, {"a": 1}]]}, "data.train_weights", ["list"]),
        ({"permutation_type": "fiestel"}, "perm_type", ["'fiestel'", "'feistel'"]),
        ({"stop_strategy": "never", "components": 2}, "data.stop_strategy", ["'never'"]),
    ],
)
def test_cf_12_wrong_data_sections_are_refused_with_their_paths(wikimedia, change, path, words):
    component = {"cache_dir": str(wikimedia.path)}
    change = dict(change)
    names = "ab"[: change.pop("components", 1)]
    data = {"configs": dict.fromkeys(names, component), **change}
    message = refusal(tl.from_config, {"data": data, "train_seq_len": 64})
    for part in (f"{path}:", *words):
        assert part in message


RUN = """\
seed: 7
seq_len: 32
sources:
  main: {store: toy, windows: {}, shuffle: full}
loader: {batch_size: 4, end: pad}
"""


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("sources: {main: {stoer: toy, windows: {}}}", "sources.main.stoer", ["'store'"]),
        (
            "sources: {main: {store: toy, pack: {strategi: greedy}}}",
            "pack.strategi",
            ["'strategy'"],
        ),
        (
            "sources: {main: {store: toy, pack: {strategy: gredy}}}",
            "strategy",
            ["'gredy'", "'greedy'"],
        ),
        ("loader: {batch_sise: 4}", "loader.batch_sise", ["'batch_size'"]),
        ("laoder: {batch_size: 4}", "laoder", ["'loader'"]),
        ("seed: -1", "seed", ["-1"]),
        (
            "sources: {main: {store: toy, windows: {}, pack: {}}}",
            "sources.main",
            ["windows", "pack"],
        ),
    ],
)
def test_cf_12_unknown_keys_and_wrong_values_of_a_run_file_are_refused(
    home, tmp_path, line, path, words
):
    (tmp_path / "toy").symlink_to(home / "toy")
    config = yaml.safe_load(RUN) | yaml.safe_load(line)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    message = refusal(tl.load, tmp_path / "run.yaml")
    assert "run.yaml" in message
    for part in (path, *words):
        assert part in message


def test_cf_12_several_mistakes_are_reported_at_once_before_anything_is_built(home, tmp_path):
    source = UrlDatasetSourceConfig(
        cache_dir=str(tmp_path / "store"), train_urls=(str(home / "toy.jsonl"),)
    )
    wrong = {"content_length": 1, "num_docs": 0, "pad_token_id": -1, "shuffle": -1}
    settings = {"base": source, "tokenizer": "bytes", "seq_len": 8} | wrong
    message = refusal(SpliceMultiDocumentLMConfig, **settings)
    assert [line.split(":")[0] for line in message.split("\n")] == [*wrong]
    assert not (tmp_path / "store").exists()


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
    ("num_docs", "3", {}),
    ("content_length", 2.5, {}),
    ("content_stride", True, {}),
    ("alpha", "high", {}),
    ("adaptive_k", 1, {}),
    ("shuffle_per_epoch", "yes", {}),
    ("epochs", 1.5, {}),
]


@pytest.mark.parametrize(("key", "value", "others"), BAD, ids=str)
def test_cf_13_values_that_cannot_be_meant_are_refused_by_their_key(toy, key, value, others):
    """In Python and in YAML: the key and the value seen."""
    settings = toy | others | {key: value}
    seen = str(value[-1]) if isinstance(value, list) else str(value)
    message = refusal(SpliceMultiDocumentLMConfig, **settings)
    assert message.startswith(f"{key}:")
    assert seen in message
    data = {"type": "splice_multi_document", **settings}
    message = refusal(splice_from_config, {"data": data})
    assert message.startswith(f"data.{key}:")
    assert seen in message


@pytest.mark.parametrize(
    ("call", "key", "value"),
    [
        (lambda store: store.windows(0), "seq_len", 0),
        (lambda store: store.pack(0), "seq_len", 0),
        (lambda store: store.splice(1), "seq_len", 1),
        (lambda store: store.splice(8, content_stride=0), "content_stride", 0),
        (lambda store: store.splice(8, offset_stride=0), "offset_stride", 0),
        (lambda store: store.splice(8, alpha=-0.5), "alpha", -0.5),
        (lambda store: store.splice(8, balance_tau=-0.5), "balance_tau", -0.5),
        (lambda store: store.splice(8, offset_jitter=-1), "offset_jitter", -1),
        (lambda store: store.windows(8).shuffle(0), "shuffle", 0),
        (lambda store: store.windows(8).block_shuffle(window_blocks=0), "window_blocks", 0),
        (lambda store: tl.Loader(store.windows(2), batch_size=0), "batch_size", 0),
    ],
)
def test_cf_13_every_layer_refuses_numbers_out_of_range(home, call, key, value):
    message = refusal(call, tl.open(home / "toy"))
    assert key in message
    assert str(value) in message


@pytest.mark.parametrize(("stride", "allowed"), [(7, True), (8, False), (9, False), (-1, False)])
def test_cf_13_a_stride_is_shorter_than_a_row(stride, allowed):
    texts = {"text": [" ".join(map(str, range(10, 30)))]}
    options = {"max_length": 8, "stride": stride, "add_bos": False, "add_eos": False}
    if allowed:
        assert block_tokenize(texts, words, "text", **options)["input_ids"][1][:7] == [
            *range(11, 18)
        ]
        return
    message = refusal(block_tokenize, texts, words, "text", **options)
    assert "stride" in message
    assert str(stride) in message


@pytest.mark.parametrize(("docs", "allowed"), [(12, True), (13, True), (11, False), (0, False)])
def test_cf_13_a_buffer_holds_the_documents_of_a_step(docs, allowed):
    """A step of A = 3 accumulated batches of B = 4 rows is 12 bins."""
    options = {"packing_buffer_docs": docs, "bins_per_pack": 3 * 4}
    if allowed:
        rows = stream_packer("bin", 8, **options).rows(DOCUMENTS)
        assert sum(int((row.segment_ids > 0).sum()) for row in rows) == 9
        return
    message = refusal(stream_packer, "bin", 8, **options)
    assert "packing_buffer_docs" in message
    assert str(docs) in message


def test_cf_13_a_document_that_is_not_there(home):
    message = refusal(SpliceSingleDocumentLMConfig, base=home / "toy", doc_index=3, seq_len=8)
    assert message.startswith("doc_index:")
    assert "3" in message


def test_cf_13_a_length_of_frames_is_needed(home):
    base = str(home / "toy")
    assert refusal(SpliceMultiDocumentLMConfig, base=base).startswith("seq_len:")
    config = {"data": {"type": "splice_multi_document", "base": base}}
    assert refusal(splice_from_config, config).startswith("data.seq_len:")


# -- specs of datasets ---------------------------------------------------------------------


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """Texts in files, as lines and as records; the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    for name in "ab":
        Path(f"texts/{name}.txt").write_text(f"text {name}\nof two lines")
    write_jsonl(Path("some.jsonl"), ["one", "two"])
    Path("odd.name").write_text('{"text": "three"}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("txt:texts/a.txt", ["text a\nof two lines"]),
        ("txt:texts/*.txt", ["text a\nof two lines", "text b\nof two lines"]),
        ("lines:texts/b.txt", ["text b", "of two lines"]),
        ("jsonl:odd.name", ["three"]),
        ("some.jsonl", ["one", "two"]),
    ],
)
def test_cf_14_a_spec_is_a_kind_and_a_path(corpora, spec, expected):
    store = tl.build(spec, "store", tokenizer="bytes", progress=False)
    texts = [bytes(store.document(n).tolist()).decode() for n in range(store.num_documents)]
    assert texts == expected
    run = {
        "build": {"tokenizer": "bytes", "stores": {"made": spec}},
        "sources": {"texts": {"store": "made", "windows": 2}},
    }
    (corpora / "run.yaml").write_text(yaml.safe_dump(run))
    assert tl.load("run.yaml").describe()["store"]["digest"] == store.digest


@pytest.mark.parametrize("spec", ["hf:saved/wiki:train", "hf:saved/wiki/train"])
def test_cf_14_a_saved_dataset_is_a_spec_with_its_split(corpora, spec):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": ["abc", "defgh"]})
    datasets.DatasetDict({"train": rows}).save_to_disk("saved/wiki")
    store = tl.build(spec, "store", tokenizer="bytes", progress=False)
    assert store.lengths.tolist() == [3, 5]
    with pytest.raises(tl.InputError, match=r"'test'.*\btrain\b"):
        tl.build("hf:saved/wiki:test", "other", tokenizer="bytes", progress=False)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("txt:", "'txt:'"),
        ("hf:", "'hf:'"),
        ("txt: ", "'txt: '"),
        ("txtt:texts/a.txt", "txt"),
        ("txt:texts/c.txt", "texts/c.txt"),
        ("hf:no/where", "no/where"),
    ],
)
def test_cf_14_an_empty_or_unknown_spec_is_refused(corpora, spec, words):
    for inputs in (spec, [spec], ["some.jsonl", spec]):
        with pytest.raises(tl.InputError, match=words):
            tl.build(inputs, "store", tokenizer="bytes", progress=False)
    assert not (corpora / "store").exists()


def test_cf_14_specs_name_the_offsets_of_a_published_checkpoint(home):
    saved = json.loads((home / "offsets.json").read_text())
    specs = ["hf:saved/wiki:train", "txt:texts/*.txt"]
    offsets = read_offsets(saved, specs)
    assert [*offsets] == specs
    assert [offset.rows for offset in offsets.values()] == [123, 2]
    assert "offsets.json" in refusal(tl.load, home / "offsets.json")  # it is no run


# -- overrides -----------------------------------------------------------------------------


@pytest.fixture
def run_file(home, tmp_path):
    (tmp_path / "toy").symlink_to(home / "toy")
    (tmp_path / "2024").symlink_to(home / "toy")
    (tmp_path / "run.yaml").write_text(RUN.replace("seq_len: 32", "seq_len: 2"))
    return tmp_path / "run.yaml"


def steps(run):
    """The rows of every step of a loader with the settings of the file."""
    with tl.Loader(run, rank=0, world_size=1, prefetch=0) as loader:
        return [len(batch) for batch in itertools.islice(loader, 9)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 0),
        ("batch_size", "[[5, 1]]"),
        ("accumulate", 0),
        ("prefetch", -1),
        ("patience", 0),
    ],
)
def test_cf_17_a_setting_that_no_loader_takes_is_refused_with_the_file(run_file, setting, value):
    message = refusal(tl.load, run_file, overrides=[f"loader.{setting}={value}"])
    assert f"loader.{setting}" in message
    assert tl.load(run_file, overrides=["loader.accumulate=1", "loader.prefetch=0"]).file


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("loader.batch_size=3", [3, 3, 3]),  # 15 tokens are 7 rows of 2; the last step is padded
        ("loader.end=drop", [4]),
        ("loader.end=wrap", [4] * 9),
        ("loader.batch_size=[[0, 1], [2, 5]]", [1, 1, 5]),
    ],
)
def test_cf_17_an_override_of_the_loader_has_the_type_of_its_key(run_file, override, expected):
    assert steps(tl.load(run_file)) == [4, 4]
    assert steps(tl.load(run_file, overrides=[override])) == expected


def test_cf_17_overrides_set_keys_of_every_section_and_add_missing_ones(run_file):
    overrides = ["seed=8", "seq_len=4", "sources.main.shuffle=none", "sources.main.epochs=2"]
    run = tl.load(run_file, overrides=overrides)
    store = tl.open(run_file.parent / "toy")
    assert run == store.windows(4).epochs(2).seed(8)
    assert len(run) == 2 * 3
    packed = tl.load(
        run_file,
        overrides=["sources.main={store: toy}", "sources.main.pack.strategy=greedy"],
    )
    assert packed == store.pack(2, strategy="greedy").seed(7)


def test_cf_17_text_that_looks_like_a_number_stays_text_where_text_belongs(run_file, monkeypatch):
    monkeypatch.chdir(run_file.parent)
    run = tl.load("run.yaml", overrides=["sources.main.store=2024"])
    assert run.describe()["store"]["path"] == "2024"
    assert run == tl.load("run.yaml")


def test_cf_17_a_key_with_dots_is_put_in_quotes(run_file):
    config = yaml.safe_load(run_file.read_text())
    config["sources"] = {"v1.5": config["sources"]["main"]}
    run_file.write_text(yaml.safe_dump(config))
    run = tl.load(run_file, overrides=['sources."v1.5".shuffle=3'])
    assert run == tl.open(run_file.parent / "toy").windows(2).shuffle(3).seed(7)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed", ["'seed'"]),
        ("=3", ["'=3'"]),
        ("seed.x=3", ["'seed.x=3'", "7"]),
        ("loader.batch_sise=3", ["loader.batch_sise", "'batch_size'"]),
        ("loader.batch_size=four", ["loader.batch_size", "'four'"]),
        ("loader.batch_size=2.5", ["loader.batch_size", "2.5"]),
        ("seed=x1", ["seed", "'x1'"]),
        ("seed=true", ["seed", "true"]),
        ("seed=[1", ["seed=[1"]),
        ("seed=!!python/name:os.system", ["python/name:os.system"]),
    ],
)
def test_cf_17_a_wrong_override_is_refused(run_file, override, words):
    message = refusal(tl.load, run_file, overrides=[override])
    for word in words:
        assert word in message
