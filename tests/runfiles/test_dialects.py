"""Configurations that others print load with a stated difference; what is not used is said.

The files are in tests/golden/configs; each says what was changed in it.
"""

import json
import logging
import shutil
from pathlib import Path

import pytest
import yaml

import tokenloom as tl
from tokenloom.streams import read_offsets

CONFIGS = Path(__file__).parents[1] / "golden/configs"
LONG = [9_000, 50_000, 10_000, 12_345, 50_001, 33_000, 20_000, 49_999, 15_000, 31_000]
LONG += [11_000, 40_000, 13_000, 200]


def text(length, first=0):
    return "".join(chr(97 + (first + n * n) % 26) for n in range(length))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The configurations beside the texts and stores that they name."""
    folder = tmp_path_factory.mktemp("configs")
    for path in CONFIGS.iterdir():
        shutil.copy(path, folder)
    rows = [{"text": text(length, n)} for n, length in enumerate(LONG)]
    (folder / "wikimedia.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"text": text(4 + n % 9, n)} for n in range(12_400)]
    (folder / "wikimedia_short.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    tl.build(folder / "wikimedia.jsonl", folder / "tokenized/wikimedia", tokenizer="bytes")
    return folder


@pytest.fixture
def load(home, caplog):
    """Loads a configuration and answers the run with the lines of the log."""
    caplog.set_level(logging.INFO)

    def from_file(name, *overrides):
        caplog.clear()
        run = tl.load(home / name, overrides=overrides)
        return run, [record.getMessage() for record in caplog.records]

    return from_file


def store(home):
    return tl.open(home / "tokenized/wikimedia")


def said(lines, words):
    return any(words in line for line in lines)


def test_every_configuration_says_first_what_was_changed():
    files = [path for path in CONFIGS.iterdir() if path.suffix == ".yaml"]
    assert len(files) == 7
    for path in files:
        assert path.read_text().startswith("# Changed: ")
        assert f"`{path.name}`" in (CONFIGS / "README.md").read_text()


@pytest.mark.filterwarnings("ignore:restrict_to_training_subset")
@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
def test_cf_03_splices_of_one_document_load(load):
    run, lines = load("splice-single.yaml")
    assert run.seq_len == 5
    # a document of 4 + 12345 % 9 = 10 tokens, K = 3: the formula counts every (t, s) with 2 tokens
    assert run.sources["main"].config.choice.doc_index == 12_345
    length, frame, content = 10, 5, 3
    pairs = [
        (t, s)
        for t in range(length)
        for s in range(frame - min(content, length - t) + 1)
        if min(content, length - t) >= 2
    ]
    assert len(run) == len(pairs)
    assert said(lines, "splice-single.yaml: read as splice settings.")


def test_cf_04_splices_of_several_documents_load_and_say_what_the_base_has_for_nothing(load):
    run, lines = load("splice-multi.yaml")
    assert run.sources["main"].config.choice.num_docs == 10
    assert not run.is_finite
    for name in ("train_weights", "shuffle_per_epoch"):
        assert said(lines, f"data.base.{name}: not used; it is for training on the base itself.")
    assert run.file.dialect == "splice settings"
    assert len(run.file.unused) == 2


def test_cf_06_a_document_is_selected_by_its_length(load, home):
    run, _ = load("splice-selection.yaml")
    assert store(home).select(min_doc_length=1024, doc_select_mode="longest").indices == [4]
    assert run.spans([0]).document.tolist() == [4]


def test_cf_07_a_block_shuffle_config_is_applied_as_published(load, home):
    run, lines = load("block-shuffle.yaml")
    published = tl.BlockShuffle(window_blocks=8, cache_windows=8)
    same = store(home).windows(2048).epochs(None).block_shuffle(published)
    assert run == same
    assert run.describe()["shuffle"]["io_block_size"] == 128  # a chunk of 256 Ki tokens
    assert said(lines, "read as Levanter's data section.")
    config = yaml.safe_load((home / "block-shuffle.yaml").read_text())
    with pytest.raises(tl.ConfigError, match=r"shuffle, block_shuffle: found both, True and Block"):
        tl.from_config({"data": {**config["data"], "shuffle": True}, "train_seq_len": 2048})
    del config["data"]["block_shuffle"]
    config["data"]["configs"]["common_pile/wikimedia"]["cache_dir"] = str(store(home).path)
    plain = tl.from_config(config)
    assert plain.sources["main"].config.shuffle is None  # only if it is asked for


@pytest.mark.parametrize("key", ["shuffle", "block_shuffle"])
def test_cf_07_the_fields_of_a_block_shuffle_round_trip(home, key):
    fields = {"io_block_size": 64, "window_blocks": 4, "perm_type": "linear", "cache_windows": 2}
    data = {"components": {"a": {"cache_dir": str(store(home).path)}}, key: fields}
    run = tl.from_config({"data": data, "model": {"seq_len": 1024}})
    assert run.sources["main"].config.shuffle == tl.BlockShuffle(**fields)
    assert tl.from_config(json.loads(json.dumps(run.describe()))) == run


def test_cf_16_one_shuffle_reaches_every_component(load, home):
    run, lines = load("lm-data.yaml")
    published = tl.BlockShuffle(io_block_size=128, window_blocks=8, cache_windows=8)
    assert [one.config.shuffle for one in run.sources.values()] == [published] * 2
    sources = {
        "wikimedia": store(home).windows(2048).epochs(None).block_shuffle(published),
        "short": tl.open(home / "tokenized/wikimedia-short")
        .windows(2048)
        .epochs(None)
        .block_shuffle(published),
    }
    weights = {"wikimedia": 3.0, "short": 1.0}
    assert run == tl.mix(sources, rule="random", block=64, weights=weights).seed(0)
    assert said(lines, "data.num_validation_sequences: not used.")
    assert said(lines, "trainer: not used; it is about something else than the data.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shufle": True}, r"data\.shufle: unknown key.* Did you mean 'shuffle'"),
        ({"shuffle": {"window_block": 8}}, r"data\.shuffle\.window_block: unknown key"),
        ({"block_shuffle": True}, r"data\.block_shuffle: found True, allowed: fields"),
        ({"train_weights": {"wiki": 1}}, r"data\.train_weights\.wiki: no source named 'wiki'"),
        ({"train_weights": [[0, {"a": 1}]]}, r"data\.train_weights: found list, .* mix\.stages"),
        ({"permutation_type": "fiestel"}, r"perm_type: found 'fiestel'.* mean 'feistel'"),
        ({"stop_strategy": "never", "components": 2}, r"data\.stop_strategy: found 'never'"),
    ],
)
def test_cf_12_wrong_data_sections_are_refused_with_their_paths(home, change, words):
    place = {"cache_dir": str(store(home).path)}
    two = change.pop("components", 1) == 2
    data = {"configs": {"a": place, "b": place} if two else {"a": place}, **change}
    with pytest.raises(tl.ConfigError, match=words):
        tl.from_config({"data": data, "train_seq_len": 64})


def test_a_component_without_weight_is_left_out_and_named(home, caplog):
    caplog.set_level(logging.INFO)
    place = {"cache_dir": str(store(home).path)}
    data = {"configs": {"a": place, "b": place}, "train_weights": {"a": 1, "b": 0}}
    run = tl.from_config({"data": data, "train_seq_len": 64})
    assert run.rule is None
    assert "data.configs.b: not used; its weight is 0 or missing." in caplog.text


def test_cf_10_packing_settings_load_and_say_what_is_only_for_streams(load, home):
    run, lines = load("packing.yaml")
    same = store(home).pack(
        512,
        strategy="first_fit_decreasing",
        lookahead=True,
        max_docs_per_bin=8,
        add_eos=True,
        eos_id=3,
        pad_id=0,
        train_on_eos=False,
    )
    assert run == same
    assert said(lines, "packing.yaml: read as packing settings of a trainer.")
    assert said(lines, "optim: not used; it is about something else than packing.")
    assert said(lines, "data.packing_buffer_docs: not used; a store is packed by a plan")
    assert said(lines, "model.segment_masking: True; attention is the model's")


def test_cf_12_a_typo_among_packing_settings_is_refused(load):
    words = r"data\.packing_mod: found an unknown key.* Did you mean 'packing_mode'\?"
    with pytest.raises(tl.ConfigError, match=words):
        tl.from_config({"data": {"packing_mod": "bin", "seq_len": 8, "store": "x"}})
    with pytest.raises(tl.ConfigError, match=r"packing\.yaml: read as .*packing_mode: found 'bim'"):
        load("packing.yaml", "data.packing_mode=bim")


def test_cf_11_preprocessor_and_collator_settings_keep_their_meaning(load, home):
    """Best fit there means the longest documents first; what is longer than a row is cut off."""
    rows = [{"text": text(length)} for length in (5_000, 4_000, 90, 700, 3_000)]
    target = home / "tokenized/specials"
    tl.build(rows, target, tokenizer="bytes", eos=0, add_eos=False)
    with pytest.warns(UserWarning, match="904 in documents truncated"):
        run, lines = load("preprocessor.yaml")
    with pytest.warns(UserWarning, match="904 in documents truncated"):
        same = tl.open(target).pack(
            4096, strategy="best_fit_decreasing", overflow="truncate", add_eos=True
        )
    assert run == same
    assert said(lines, "datacollator.return_tensors: not used; a batch is made when it is asked")
    with pytest.raises(tl.ConfigError, match=r"datacollator\.max_length: found 512, but"):
        load("preprocessor.yaml", "datacollator.max_length=512")
    with pytest.raises(tl.ConfigError, match=r"packing_strategi: unknown key.* 'packing_strategy'"):
        load("preprocessor.yaml", "datasets_preprocessor_args.packing_strategi=greedy")


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
def test_cf_11_the_words_of_a_preprocessor_are_the_strategies_that_they_mean(home, settings, same):
    place = str(store(home).path)
    blocks = {"max_length": 128, "add_eos": False, **settings}
    run = tl.from_config({"store": place, "datasets_preprocessor_args": blocks})
    seed = {"shuffle_seed": settings.get("seed", 0)}
    assert run == store(home).pack(128, **same, **seed)


def test_a_tag_that_names_code_is_refused_in_one_sentence(home):
    printed = (CONFIGS / "preprocessor.yaml").read_text()
    tag = "!partial:forgather.ml.data_collator:DataCollatorForCausalLM"
    (home / "tagged.yaml").write_text(printed.replace("datacollator:", f"datacollator: {tag}"))
    with pytest.raises(tl.ConfigError) as refused:
        tl.load(home / "tagged.yaml")
    assert str(refused.value).endswith(
        f"line 11, column 15: the tag '{tag}' names code or a type, but settings are plain data "
        "and run nothing. Remove the tag."
    )


def test_cf_14_specs_of_datasets_are_read_and_are_inputs_of_a_build(home, tmp_path):
    saved = json.loads((home / "offsets.json").read_text())
    specs = [one["spec"] for one in saved["datasets"]]
    offsets = read_offsets(saved, specs)
    assert [offset.rows for offset in offsets.values()] == [123, 2]
    with pytest.raises(tl.ConfigError, match=r"it is a checkpoint of datasets by spec, not a run"):
        tl.load(home / "offsets.json")
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / f"texts/{name}.txt").write_text(f"a text called {name}")
    (tmp_path / "run.yaml").write_text(
        "build: {tokenizer: bytes, stores: {made: 'txt:texts/*.txt'}}\n"
        "sources: {texts: {store: made, windows: 8}}\n"
    )
    run = tl.load(tmp_path / "run.yaml")
    assert run.sources["main"].reader.manifest.documents == 2


@pytest.mark.slow
def test_cf_14_a_saved_dataset_is_an_input_of_a_build(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"text": ["abc", "defgh"]})
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / "saved/wiki")
    (tmp_path / "run.yaml").write_text(
        "build: {tokenizer: bytes, stores: {made: 'hf:saved/wiki:train'}}\n"
        "sources: {texts: {store: made, windows: 2}}\n"
    )
    assert len(tl.load(tmp_path / "run.yaml")) == 4
