"""TS: documents of any length in one flat store, read lazily, in ranges, and counted."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import killing
import numpy as np
import pytest
import zarr
from counted import CountedFiles
from tokenizers import Tokenizer, models, pre_tokenizers
from webserver import serve

import tokenloom as tl
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
    async_dataset,
    build_caches,
)

LEVANTER_CACHE = Path(__file__).parents[1] / "golden/levanter_caches/text_int32"


@pytest.fixture
def jagged(store_of):
    return store_of([[1, 2, 3], [], [4, 5]])


def text_of(ids):
    return bytes(ids.tolist()).decode()


def texts(store):
    return [text_of(store.document(n)) for n in range(store.num_documents)]


def write_jsonl(path, values, key="text"):
    path.write_text("".join(json.dumps({key: value}) + "\n" for value in values))
    return path


# -- what a store holds --------------------------------------------------------------------


def test_ts_01_documents_of_any_length_are_flat_tokens_and_offsets(jagged):
    assert np.cumsum([0, *jagged.lengths]).tolist() == [0, 3, 3, 5]
    assert jagged.tokens(0, 5).tolist() == [1, 2, 3, 4, 5]
    assert jagged.document(2).tolist() == [4, 5]
    assert [jagged.document(n).tolist() for n in (0, 1)] == [[1, 2, 3], []]
    assert (jagged.num_documents, jagged.num_tokens) == (3, 5)


def test_ts_02_a_document_is_fetched_as_int32(jagged):
    for n, expected in enumerate([[1, 2, 3], [], [4, 5]]):
        document = jagged.document(n)
        assert document.dtype == np.int32
        assert document.tolist() == expected
    assert [one.tolist() for one in jagged.documents([2, 0])] == [[4, 5], [1, 2, 3]]
    with pytest.raises(IndexError, match=r"\b3\b"):
        jagged.document(3)


def test_ts_03_lengths_read_no_token_and_chosen_documents_one_range_each(store_of):
    path = store_of([[d] * 9 for d in range(10)]).path
    store = tl.open(path, source=(files := CountedFiles(path)), verify="never", cache_bytes=0)
    assert store.lengths.tolist() == [9] * 10
    chosen = store.select(doc_index=(1, 4, 8))
    assert (store.reads.read_ops, files.token_requests()) == (0, [])
    chosen.load()
    assert (store.reads.ranges, store.reads.read_ops) == (3, 3)
    (ranges,) = files.token_requests()
    assert sorted(one[1:] for one in ranges) == [(2 * 9 * d, 2 * 9) for d in (1, 4, 8)]


def test_ts_04_the_io_block_is_262144_tokens_and_another_one_is_kept(store_of):
    assert store_of([[1]]).chunk_tokens == 262_144
    small = store_of([list(range(500))], chunk_tokens=48)
    assert tl.open(small.path).chunk_tokens == small.chunk_tokens == 48
    shuffled = tl.open(small.path).windows(4).block_shuffle()
    assert shuffled.describe()["shuffle"]["io_block_size"] == 12  # rows of 4 tokens


def test_ts_05_rows_are_cut_across_documents_and_the_remainder_is_dropped(store_of):
    rows = store_of([[0, 1, 2], [], [3, 4, 5, 6, 7, 8], [9]]).windows(4)
    assert len(rows) == 2
    assert rows.batch([0, 1]).tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert rows.batch([1, 0]).tokens.tolist() == [[4, 5, 6, 7], [0, 1, 2, 3]]
    kept = store_of([list(range(10))]).windows(4, tail="keep").render(pad_id=55)
    assert [row.tokens[0].tolist() for row in kept][2:] == [[8, 9, 55, 55]]


@pytest.fixture
def ten(store_of):
    """Ten rows of four tokens."""
    return store_of([list(range(40))]).windows(4)


def asks(rows):
    """Every way to ask for rows by their indices."""
    levanter = async_dataset(rows)
    return (rows.batch, rows.spans, lambda indices: asyncio.run(levanter.get_batch(indices)))


@pytest.mark.parametrize("index", [-1, -10, -(2**70)])
def test_ts_06_a_negative_index_is_an_index_error(ten, index):
    for ask in asks(ten):
        with pytest.raises(IndexError, match=rf"index {index}\b"):
            ask([0, index])
    with pytest.raises(IndexError, match=rf"index {index}\b"):
        ten[index]


@pytest.mark.parametrize("index", [10, 11, 2**40, 2**63 - 1, 2**63, 2**70])
def test_ts_07_an_index_beyond_the_end_is_an_index_error_with_the_length(ten, index):
    assert ten.batch([9]).tokens.tolist() == [[36, 37, 38, 39]]
    for ask in asks(ten):
        with pytest.raises(IndexError, match=rf"\b{index}\b.*\b10\b"):
            ask([0, index])
    with pytest.raises(IndexError, match=rf"\b{index}\b.*\b10\b"):
        ten[index]


def test_ts_07_a_number_with_a_fraction_is_no_index(ten):
    for ask in asks(ten):
        with pytest.raises(TypeError):
            ask([0.5])


def test_ts_15_offsets_begin_with_zero_for_readers(store_of):
    """In a Levanter cache the first offset is the number of documents; no reader sees that."""
    store = store_of([[1, 2, 3], [], [4, 5]])
    stored = np.fromfile(store.path / "shard-00000/offsets/c/0", "<u4")
    assert stored[:4].tolist() == [0, 3, 3, 5]
    offsets = zarr.open_array(LEVANTER_CACHE / "input_ids/offsets", mode="r")
    assert offsets[:4].tolist() == [201, 17, 25, 1052]
    cache = tl.open(LEVANTER_CACHE)
    assert cache.num_documents == 201
    assert cache.lengths[:3].tolist() == [17, 8, 1027]
    tokens = zarr.open_array(LEVANTER_CACHE / "input_ids/data", mode="r")
    for n, (first, last) in enumerate([(0, 17), (17, 25), (25, 1052)]):
        assert np.array_equal(cache.document(n), tokens[first:last])


@pytest.mark.parametrize(
    ("vocab_size", "token_bytes"), [(50_000, 2), (65_536, 2), (65_537, 4), (128_000, 4)]
)
def test_ts_16_ids_take_two_bytes_up_to_a_vocabulary_of_65536(store_of, vocab_size, token_bytes):
    store = store_of([[0, vocab_size - 1]], vocab_size=vocab_size)
    stored = zarr.open_array(store.path / "shard-00000/input_ids", mode="r")
    assert stored.dtype.itemsize == token_bytes
    assert stored[:2].tolist() == [0, vocab_size - 1]
    payload = np.fromfile(store.path / "shard-00000/input_ids/c/0", f"<u{token_bytes}")
    assert payload[:2].tolist() == [0, vocab_size - 1]
    assert store.tokens(0, 2).tolist() == [0, vocab_size - 1]
    assert store.tokens(0, 2).dtype == np.int32


# -- building ------------------------------------------------------------------------------


TRAIN = ["abcdefghijkl", "mnopqrst", "uvwxyz"]
HELD_OUT = ["0123456789", "98765"]


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def urls(tmp_path):
    """Settings of a source with training and validation text in `body`."""
    return {
        "cache_dir": tmp_path / "caches/wiki",
        "train_urls": [str(write_jsonl(tmp_path / "train.jsonl", TRAIN, "body"))],
        "validation_urls": [str(write_jsonl(tmp_path / "validation.jsonl", HELD_OUT, "body"))],
        "format": TextLmDatasetFormat(text_key="body"),
    }


def test_ts_08_ts_09_each_split_has_a_store_that_is_built_once(urls, tmp_path):
    base = LMMixtureDatasetConfig(
        tokenizer="bytes", configs={"wiki": UrlDatasetSourceConfig(**urls)}
    )
    splits = {"validation": HELD_OUT, "train": TRAIN}
    built = {split: base.build_caches(split) for split in splits}
    for split, expected in splits.items():
        assert list(built[split]) == ["wiki"]
        assert texts(built[split]["wiki"]) == expected
    before = stamps(tmp_path / "caches")
    for split, stores in built.items():
        again = build_caches(base, split=split)
        assert again["wiki"].manifest_sha256 == stores["wiki"].manifest_sha256
    assert stamps(tmp_path / "caches") == before
    for stores in built.values():  # neither store stands inside the other
        assert stores["wiki"].verify(progress=False).ok


def test_ts_08_a_store_outlives_its_text(urls):
    single = UrlSingleDatasetLMConfig(**urls | {"train_urls": []}, tokenizer="bytes")
    assert texts(single.build_caches("validation")["main"]) == HELD_OUT
    os.remove(urls["validation_urls"][0])
    assert texts(single.build_caches("validation")["main"]) == HELD_OUT
    with pytest.raises(tl.StoreNotFound, match="cache_dir"):
        single.build_caches("train")


@pytest.mark.parametrize("key", ["text", "body"])
def test_ts_09_text_in_jsonl_comes_back_as_documents(tmp_path, key):
    written = [f"döc {n} " * (n % 17) for n in range(60)]
    path = write_jsonl(tmp_path / "a.jsonl", written, key)
    small = {"shard_tokens": 500, "block_bytes": 300}
    store = tl.build(path, tmp_path / "s", tokenizer="bytes", text_key=key, **small)
    assert texts(store) == written
    assert len(list(store.path.glob("shard-*"))) > 3
    assert store.verify(progress=False).ok


WORDS = ["<s>", "</s>", "the", "loom", "weaves", "tokens", "<unk>"]


def toy_tokenizer(path, *specials):
    """Words by their places in `WORDS`; the given ones are special tokens."""
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(path))
    return path


def test_ts_10_any_tokenizer_gives_the_same_documents_without_specials(tmp_path):
    """One has no BOS, one has no EOS, one pads with its EOS."""
    records = [{"text": "the loom weaves"}, {"text": ""}, {"text": "tokens the tokens"}]
    toys = {
        "no BOS": (["</s>"], {"eos": "</s>", "bos": None, "pad": None}),
        "no EOS": (["<s>"], {"bos": "<s>", "eos": None, "pad": None}),
        "PAD is EOS": (["<s>", "</s>"], {"bos": "<s>", "eos": "</s>", "pad": "</s>"}),
    }
    stores = {}
    for name, (specials, options) in toys.items():
        path = toy_tokenizer(tmp_path / f"{name}.json", *specials)
        for add_eos in (False, None):
            stores[name, add_eos] = tl.build(
                records, tmp_path / f"{name} {add_eos}", tokenizer=path, add_eos=add_eos, **options
            )
    without = [[2, 3, 4], [], [5, 2, 5]]
    for (name, add_eos), store in stores.items():
        # where nothing is said, a document ends with EOS if the tokenizer has one
        end = [1] if add_eos is None and name != "no EOS" else []
        found = [store.document(n).tolist() for n in range(3)]
        assert found == [ids + end for ids in without], (name, add_eos)


BUILD = """
import sys
sys.path.insert(0, sys.argv[3])
import killing, tokenloom as tl
small = {"shard_tokens": 500, "block_bytes": 300}
tl.build(sys.argv[1], sys.argv[2], tokenizer="bytes", filter=killing.keep, workers=1, **small)
"""


def test_ts_14_a_killed_build_is_incomplete_until_it_is_finished(tmp_path):
    written = [f"{n} " * 20 for n in range(100)]
    corpus = write_jsonl(tmp_path / "a.jsonl", written)
    folders = [str(one) for one in (corpus, tmp_path / "s", Path(__file__).parent)]
    killed = subprocess.run(
        [sys.executable, "-c", BUILD, *folders],
        env=os.environ | {"KILL_AT": written[50]},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = [one.parent.name for one in (tmp_path / "s").glob("shard-*/shard.json")]
    assert finished
    with pytest.raises(tl.StoreNotFound, match="incomplete"):
        tl.open(tmp_path / "s")
    before = {name: stamps(tmp_path / "s" / name) for name in finished}
    small = {"shard_tokens": 500, "block_bytes": 300, "filter": killing.keep}
    store = tl.build(corpus, tmp_path / "s", tokenizer="bytes", **small)
    assert texts(store) == written
    assert {name: stamps(tmp_path / "s" / name) for name in finished} == before
    alone = tl.build(corpus, tmp_path / "other", tokenizer="bytes", **small)
    assert store.manifest_sha256 == alone.manifest_sha256


def test_ts_14_a_build_knows_its_tokenizer_its_inputs_and_its_counts(tmp_path):
    corpus = write_jsonl(tmp_path / "a.jsonl", ["the loom", "weaves"])
    store = tl.build(corpus, tmp_path / "s", tokenizer="bytes")
    assert (store.num_documents, store.num_tokens) == (2, 14)
    again = tl.build(corpus, tmp_path / "s", tokenizer="bytes")
    assert again.manifest_sha256 == store.manifest_sha256
    path = toy_tokenizer(tmp_path / "toy.json", "</s>")
    other = tl.build(corpus, tmp_path / "other", tokenizer=path)
    assert other.tokenizer_identity != store.tokenizer_identity
    with pytest.raises(tl.StoreExists, match="tokenizer"):
        tl.build(corpus, tmp_path / "s", tokenizer=path)
    for changed in (["the loom", "weaves", "more"], ["the loom", "waives"]):  # of equal size, too
        write_jsonl(corpus, changed)
        with pytest.raises(tl.StoreExists, match="input"):
            tl.build(corpus, tmp_path / "s", tokenizer="bytes")


def test_ts_14_a_store_that_lost_bytes_is_never_silently_short(store_of):
    path = store_of([list(range(500))] * 3).path
    payload = path / "shard-00000/input_ids/c/0"
    os.truncate(payload, payload.stat().st_size - 2)
    with pytest.raises(tl.StoreCorrupt, match="input_ids"):
        tl.open(path).document(2)


# -- reading -------------------------------------------------------------------------------


READ_EVERYTHING = """
import sys
import tokenloom as tl
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("VmHWM")][0]
store = tl.open(sys.argv[1], dtype="uint16", eos=0, cache_bytes=1 << 20)
run = store.windows(5_000).shuffle()
def read(documents, examples):
    for n in range(documents):
        assert store.document(n)[-2] == n + 1
    with tl.Loader(run.take(examples), 16, prefetch=2) as loader:
        assert sum(batch.tokens.shape[0] for batch in loader) == examples
read(10, 160)
before = peak()
read(store.num_documents, 1_600)
print(store.num_documents, peak() - before)
"""


def test_ts_11_reading_a_thousand_documents_of_50000_tokens_takes_little_memory(tmp_path):
    documents, length = 1_000, 50_000
    tokens = np.repeat(np.arange(1, documents + 1, dtype=np.uint16), length)
    tokens[length - 1 :: length] = 0  # each document ends with id 0
    tokens.tofile(tmp_path / "tokens.bin")
    command = [sys.executable, "-c", READ_EVERYTHING, str(tmp_path / "tokens.bin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, grown_kib = map(int, done.stdout.split())
    assert found == documents
    assert grown_kib * 1024 < 0.05 * documents * length * 4


def test_ts_12_remote_reads_are_ranges_and_counted(store_of):
    """Counted by the web server, too."""
    path = store_of([list(range(100, 900))]).path
    expected = tl.open(path).windows(8).batch([5, 3, 4, 9, 3]).tokens
    assert expected[:, 0].tolist() == [100 + 8 * row for row in (5, 3, 4, 9, 3)]
    row_bytes = 8 * 2
    with serve(path.parent) as server:
        store = tl.open(f"{server.url}/{path.name}", verify="never", cache_bytes=0)
        rows = store.windows(8)
        assert not [name for name, *_ in server.requests if "shard" in name]
        for asked in (1, 2):
            assert np.array_equal(rows.batch([5, 3, 4, 9, 3]).tokens, expected)
            ranges = [(a, b) for name, a, b in server.requests if "input_ids/c" in name]
            expected_ranges = [(3 * row_bytes, 3 * row_bytes), (9 * row_bytes, row_bytes)]
            assert sorted(ranges) == sorted(expected_ranges * asked)
            reads = store.reads
            assert (reads.read_ops, reads.requests, reads.retries) == (2 * asked, 2 * asked, 0)
            assert reads.bytes == reads.useful_bytes == 4 * row_bytes * asked


# -- which tokens may be selected or trained -----------------------------------------------


def test_ts_13_only_documents_wholly_in_the_trained_tokens_are_candidates(store_of):
    """1 batch x 128 rows x 16 tokens: the first 2,048 tokens."""
    subset = {
        "restrict_to_training_subset": True,
        "max_train_batches": 1,
        "initial_batch_size": 128,
        "seq_len": 16,
    }
    store = store_of([[1] * 1000, [2] * 1048, [3], [4] * 5000])  # document 1 ends at 2,048
    chosen = store.select(num_docs=2, doc_select_mode="first", **subset)
    assert chosen.indices.tolist() == [0, 1]
    with pytest.raises(tl.ConfigError, match="2 of 3"):
        store.select(num_docs=3, **subset)
    crossing = store_of([[1] * 1000, [2] * 1049])
    assert crossing.select(**subset).indices.tolist() == [0]
    twice = store.select(num_docs=3, doc_select_mode="first", **subset | {"max_train_batches": 2})
    assert twice.indices.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("documents", "segments"), [([[5, 9, 0, 7]], "eos"), ([[5, 9, 0], [7]], "documents")]
)
@pytest.mark.parametrize(
    ("render", "loss"),
    [
        ({}, [1, 1, 0, 0]),  # the loss of a document's first token is masked by default
        ({"mask_boundary_loss": False}, [1, 1, 1, 0]),
        ({"mask_boundary_loss": False, "ignore_id": 9}, [0, 1, 1, 0]),
        ({"ignore_id": 9}, [0, 1, 0, 0]),
        ({"ignore_id": 7}, [1, 1, 0, 0]),
    ],
)
def test_ts_17_a_row_is_trained_but_for_its_last_position(
    store_of, documents, segments, render, loss
):
    rows = store_of(documents).windows(4).render(segments=segments, eos_id=0, **render)
    batch = rows.batch([0])
    assert batch.tokens.tolist() == [[5, 9, 0, 7]]
    assert batch.loss_mask.astype(int).tolist() == [loss]
    assert batch.segment_ids.tolist() == [[1, 1, 1, 2]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0]]
    tokens = [5, 9, 0, 7]
    labels = [-100] + [tokens[i + 1] if loss[i] else -100 for i in range(3)]
    assert batch.labels.tolist() == [labels]


def test_ts_18_only_the_completion_after_a_prompt_is_trained(store_of):
    """A prompt of 3 tokens and a completion of 2, alone and in one row with another."""
    masks = [{"completion_mask": [0, 0, 0, 1, 1]}, {"completion_mask": [0, 1]}]
    store = store_of([[5, 6, 7, 8, 9], [3, 4]], more=masks)
    alone = store.pack(5, strategy="one_doc").batch([0])
    assert alone.tokens.tolist() == [[5, 6, 7, 8, 9]]
    assert alone.loss_mask.astype(int).tolist() == [[0, 0, 1, 1, 0]]
    together = store.pack(7, strategy="sequential").batch([0])
    assert together.segment_ids.tolist() == [[1, 1, 1, 1, 1, 2, 2]]
    assert together.loss_mask.astype(int).tolist() == [[0, 0, 1, 1, 0, 1, 0]]
    assert together.labels.tolist() == [[-100, -100, -100, 8, 9, -100, 4]]
