"""Bases of other trainers: their shuffle reaches the splices, and validation text has a store."""

import json

import pytest

import tokenloom as tl
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    SpliceSingleDocumentLMConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
    load_yaml,
    splice_from_config,
)

TRAIN = ["abcdefghijkl", "mnopqrst", "uvwxyz"]
HELD_OUT = ["0123456789", "98765"]
TEXT = TextLmDatasetFormat(text_key="body")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    for name, texts in (("train", TRAIN), ("validation", HELD_OUT)):
        lines = [json.dumps({"body": text}) for text in texts]
        (root / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "toy"
    tl.build([{"text": text} for text in TRAIN], path, tokenizer="bytes")
    return path


def spliced(store, base_shuffle=None, constructor=SpliceMultiDocumentLMConfig, **options):
    source = UrlDatasetSourceConfig(cache_dir=store)
    base = LMMixtureDatasetConfig(configs={"wiki": source}, shuffle=base_shuffle)
    many = {"num_docs": 3} if constructor is SpliceMultiDocumentLMConfig else {"doc_index": 0}
    return constructor(base=base, seq_len=8, content_length=4, **many, **options)


# -- CF-07, CF-16: one shuffle setting reaches the run ---------------------------------------------

WAYS = [
    (True, lambda ds: ds.shuffle()),
    (4, lambda ds: ds.shuffle(4)),
    (tl.BlockShuffle(window_blocks=2), lambda ds: ds.block_shuffle(window_blocks=2)),
    ({"window_blocks": 2}, lambda ds: ds.block_shuffle(window_blocks=2)),
    (
        {"io_block_size": 3, "window_blocks": 2, "lanes": 2, "perm_type": "linear"},
        lambda ds: ds.block_shuffle(io_block_size=3, window_blocks=2, lanes=2, perm_type="linear"),
    ),
    (
        {"window_blocks": 8, "cache_windows": 8},
        lambda ds: ds.block_shuffle(tl.BlockShuffle.published()),
    ),
    ({"kind": "full"}, lambda ds: ds.shuffle()),
    (False, lambda ds: ds),
    (None, lambda ds: ds),
]


@pytest.mark.parametrize(("given", "same"), WAYS, ids=[str(given) for given, _ in WAYS])
@pytest.mark.parametrize("kind", [SpliceMultiDocumentLMConfig, SpliceSingleDocumentLMConfig])
def test_cf_16_a_shuffle_of_the_base_or_of_the_splices_is_applied(store, given, same, kind):
    plain = spliced(store, constructor=kind)
    expected = same(plain)
    assert spliced(store, given, kind) == expected
    assert spliced(store, constructor=kind, shuffle=given) == expected
    assert spliced(store, given, kind).cache_bytes == expected.cache_bytes
    # what the splices say comes first
    assert spliced(store, given, kind, shuffle=5) == plain.shuffle(5)
    assert spliced(store, given, kind, shuffle=False) == plain


def test_cf_16_the_base_may_be_one_dataset(store):
    base = UrlSingleDatasetLMConfig(cache_dir=store, shuffle=tl.BlockShuffle(window_blocks=2))
    made = SpliceMultiDocumentLMConfig(base=base, seq_len=8, num_docs=3, content_length=4)
    assert made == spliced(store).block_shuffle(window_blocks=2)


@pytest.mark.parametrize("where", ["data", "base"])
def test_cf_07_a_block_shuffle_is_read_from_yaml(store, tmp_path, where):
    shuffle = {"data": "", "base": "    "}[where]
    lines = [
        "data:",
        "  type: splice_multi_document",
        "  base:",
        "    configs:",
        f"      wiki: {{cache_dir: {store}}}",
        *([] if where == "data" else ["    shuffle:", f"  {shuffle}window_blocks: 2"]),
        *([] if where == "base" else ["  shuffle:", "    window_blocks: 2"]),
        "  num_docs: 3",
        "  content_length: 4",
        "model: {seq_len: 8}",
    ]
    (tmp_path / "data.yaml").write_text("\n".join(lines) + "\n")
    config = load_yaml(tmp_path / "data.yaml")
    assert splice_from_config(config) == spliced(store).block_shuffle(window_blocks=2)
    assert tl.from_config(config) == splice_from_config(config)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window_block": 2}, r"shuffle\.window_block: unknown key.*Did you mean 'window_blocks'"),
        ({"window_blocks": "2"}, r"shuffle\.window_blocks: found '2'"),
        ({"window_blocks": 0}, r"shuffle.*window_blocks: found 0"),
        ({"kind": "blocks"}, r"shuffle\.kind: found 'blocks', allowed: full, era, block"),
        ("block", r"shuffle: found 'block'"),
        (-3, r"shuffle: found era length -3"),
    ],
)
def test_a_wrong_shuffle_is_refused_by_its_path(store, wrong, words):
    with pytest.raises(tl.ConfigError, match=r"^base\." + words):
        spliced(store, wrong)
    with pytest.raises(tl.ConfigError, match="^" + words):
        spliced(store, shuffle=wrong)
    data = {"type": "splice_multi_document", "base": str(store), "seq_len": 8, "shuffle": wrong}
    with pytest.raises(tl.ConfigError, match=r"^data\." + words):
        splice_from_config({"data": data})


# -- validation text ---------------------------------------------------------------


def configured(text, root, **fields):
    source = UrlDatasetSourceConfig(
        cache_dir=root / "wiki",
        train_urls=[str(text / "train.jsonl")],
        validation_urls=[str(text / "validation.jsonl")],
        format=TEXT,
    )
    return LMMixtureDatasetConfig(tokenizer="bytes", configs={"wiki": source}, **fields)


def test_datasets_without_validation_text_are_left_out(text, tmp_path):
    base = configured(text, tmp_path)
    more = {**base.configs, "code": UrlDatasetSourceConfig(cache_dir=tmp_path / "code")}
    both = LMMixtureDatasetConfig(tokenizer="bytes", configs=more)
    assert list(both.build_caches("validation")) == ["wiki"]


def test_what_is_not_here_is_refused_by_its_key(text, tmp_path):
    with pytest.raises(tl.ConfigError, match=r"split: found 'test', allowed: train, validation"):
        configured(text, tmp_path).build_caches("test")
    source = UrlDatasetSourceConfig(cache_dir=tmp_path / "w", validation_urls=["gs://a/b.jsonl"])
    with pytest.raises(tl.ConfigError, match=r"base\.validation_urls\[0\]: found 'gs://a/b.jsonl'"):
        source.build_caches("validation", tokenizer="bytes")
    missing = UrlDatasetSourceConfig(
        cache_dir=tmp_path / "w", validation_urls=[tmp_path / "no.txt"]
    )
    with pytest.raises(tl.InputError, match=r"base\.validation_urls"):
        missing.build_caches("validation", tokenizer="bytes")
