"""A run over foreign files is the run over a tokenloom store with the same documents."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from everyformat import EVERY
from foreignfiles import EOT, WRITERS, some_documents, write_datatrove

import tokenloom as tl
from tokenloom.inspect import simulate_run
from tokenloom.testing import tiny, write_store

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle", "ignore:.*cache")

LAYOUTS = {
    "windows": lambda one: one.windows(16),
    "windows with look-ahead": lambda one: one.windows(16, lookahead=True),
    "windows that keep the tail": lambda one: one.windows(16, tail="keep"),
    "packed": lambda one: one.pack(24),
    "packed with BOS": lambda one: one.pack(24, add_bos=True, bos_id=7, lookahead=True),
    "spliced": lambda one: one.splice(16),
    "some documents": lambda one: one.select(num_docs=9, doc_select_mode="random").windows(8),
    "a split by content": lambda one: one.split({"a": 0.6, "b": 0.4}, by="content")["a"].pack(24),
}
ORDERS = {
    "as stored": lambda one: one,
    "shuffled": lambda one: one.shuffle(),
    "block-shuffled": lambda one: one.block_shuffle(io_block_size=2, window_blocks=2, lanes=2),
}


ARRAYS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids", "index")


@pytest.fixture
def copied(tmp_path):
    """Opens the files of a format, and a tokenloom store with the same documents.

    Shards of both are small, so that every border is met.
    """
    with tiny(foreign_shard_tokens=200):

        def make(name, documents=None, **said):
            folder = tmp_path / "files"
            folder.mkdir()
            path, needed, expected = EVERY[name](folder, documents or some_documents())
            third = len(expected) // 3
            shards = [expected[:third], expected[third:]]
            write_store(tmp_path / "own", shards, inner=16)
            own = tl.open(tmp_path / "own", cache_bytes=1 << 20)
            said = {"vocab_size": 1000, "cache_bytes": 1 << 20, **needed, **said}
            return tl.open(path, **said), own, expected

        yield make


def same(one, other, what):
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), (what, name)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_every_layout_and_order_has_the_rows_that_a_tokenloom_store_has(copied, name):
    foreign, own, _ = copied(name)
    assert foreign.digest == own.digest
    place = sorted(WRITERS).index(name)
    for number, (layout, lay) in enumerate(LAYOUTS.items()):
        orders = list(ORDERS.items())
        if place % 5:  # every layout meets every order in some formats, and one of them in each
            orders = [orders[(place + number) % len(orders)]]
        for order, shuffle in orders:
            runs = [shuffle(lay(store)).seed(5).epochs(2) for store in (foreign, own)]
            what, n = (name, layout, order), min(len(runs[0]), 24)
            assert runs[0].fingerprint == runs[1].fingerprint, what
            assert runs[0].plan_digest(0, n) == runs[1].plan_digest(0, n), what
            assert runs[0].digest(0, n) == runs[1].digest(0, n), what
            same(runs[0].batch(range(n)), runs[1].batch(range(n)), what)


@pytest.mark.parametrize("name", ["megatron uint16", "llm.c, four shards of uint32", "flat uint64"])
@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_a_run_over_foreign_files_continues_over_a_copy(copied, name, fetch):
    foreign, own, _ = copied(name)
    runs = [store.windows(16).shuffle().seed(1).epochs(2) for store in (foreign, own)]
    whole = [batch.tokens for batch in tl.Loader(runs[1], 4, fetch=fetch)]
    with tl.Loader(runs[0], 4, fetch=fetch) as loader:
        begun = [next(loader).tokens for _ in range(5)]
        state = loader.state_dict()
    with tl.Loader(runs[1], 4, fetch=fetch) as loader:
        loader.load_state_dict(state)
        rest = [batch.tokens for batch in loader]
    assert len(begun + rest) == len(whole)
    assert all(map(np.array_equal, begun + rest, whole))


@pytest.mark.parametrize("name", ["megatron int32", "llm.c, four shards of uint32", "flat uint64"])
def test_all_that_looks_into_a_run_answers_as_over_a_copy(copied, name):
    foreign, own, expected = copied(name)
    both = foreign, own
    runs = [tl.mix({"a": one.windows(16).shuffle(), "b": one.pack(16)}) for one in both]
    document = max(range(len(expected)), key=lambda number: len(expected[number]))
    answers = []
    for run in runs:
        places = [place.index for place in run.where("a", document, epochs=1)]
        spans = [span.document for span in run.at(places[0]).spans]
        assert document in spans
        assert run.audit().ok
        answers.append((places, spans, run.fingerprint))
    assert answers[0] == answers[1]
    assert tl.diff(*runs).first is None
    assert foreign.document_hashes(range(9)) == own.document_hashes(range(9))
    assert foreign.find(hash=own.document_hashes([document])[0]).tolist() == [document]
    assert [one.tolist() for one in foreign.duplicates()] == [
        one.tolist() for one in own.duplicates()
    ]


def test_copies_pickles_and_descriptions_open_the_same_files(copied):
    foreign, _, expected = copied("flat uint16")
    run = foreign.windows(16).shuffle()
    for other in (copy.copy(run), pickle.loads(pickle.dumps(run)), tl.from_config(run.describe())):
        assert other.fingerprint == run.fingerprint
        assert np.array_equal(other.batch(range(5)).tokens, run.batch(range(5)).tokens)
    again = pickle.loads(pickle.dumps(foreign))
    assert [one.tolist() for one in again.documents(range(len(expected)))] == expected
    described = run.describe()["store"]
    assert described["foreign"]["dtype"] == "uint16"
    assert "identity" not in described


def test_run_files_name_foreign_files_with_their_options(copied, tmp_path):
    foreign, _, _ = copied("flat uint16")
    run = foreign.windows(16).shuffle().seed(3)
    tl.save(run, tmp_path / "run.yaml")
    loaded = tl.load(tmp_path / "run.yaml")
    assert loaded.fingerprint == run.fingerprint
    assert loaded.describe()["store"]["foreign"] == run.describe()["store"]["foreign"]
    sampled = tl.open(foreign.path, dtype="uint16", eos=EOT, vocab_size=1000, identity="sample")
    tl.save(sampled.windows(16), tmp_path / "other.yaml")
    assert tl.load(tmp_path / "other.yaml").describe()["store"]["identity"] == "sample"


def test_a_description_of_foreign_files_opens_a_copy_by_its_path(copied):
    foreign, own, _ = copied("flat uint16")
    run = foreign.windows(16).shuffle()
    moved = tl.from_config(run.describe(), path=str(own.path))
    assert moved.fingerprint == run.fingerprint
    assert np.array_equal(moved.batch([0, 5]).tokens, run.batch([0, 5]).tokens)
    sampled = tl.open(foreign.path, dtype="uint16", eos=EOT, vocab_size=1000, identity="sample")
    with pytest.raises(tl.ConfigError, match="own"):
        tl.from_config(sampled.windows(16).describe(), path=str(own.path))


def test_a_copy_is_opened_where_the_files_were_when_they_were_named(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    write_datatrove(tmp_path / "a.ds", [[1, 2]])
    monkeypatch.chdir(tmp_path)
    store = tl.open("a.ds")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickle.dumps(store)).document(0).tolist() == [1, 2]


def test_a_copy_of_a_reader_whose_files_changed_is_refused(copied):
    foreign, _, _ = copied("megatron uint16")
    pickled, path = pickle.dumps(foreign), f"{foreign.path}.bin"
    ids = np.fromfile(path, "<u2")
    ids[3] += 1
    ids.tofile(path)
    with pytest.raises(tl.StoreError, match=r"corpus"):
        pickle.loads(pickled)


def test_a_child_of_a_fork_reads_on(copied):
    foreign, _, expected = copied("llm.c, four shards of uint32")
    first = foreign.document(0).tolist()
    child = os.fork()
    if child == 0:
        good = [one.tolist() for one in foreign.documents(range(len(expected)))] == expected
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert first == expected[0]


def test_another_process_has_the_same_rows(copied, tmp_path):
    foreign, own, _ = copied("datatrove, three files of uint32")
    code = """if True:
        import sys, tokenloom as tl
        print(tl.open(sys.argv[1], vocab_size=1000).windows(16).digest(0, 9))
    """
    printed = subprocess.run(
        [sys.executable, "-c", code, str(foreign.path)], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == own.windows(16).digest(0, 9)


def test_bytes_of_converted_ids_are_counted_once_while_they_are_cached(copied):
    foreign, _, expected = copied("flat uint64")
    for _ in range(2):
        foreign.documents(range(len(expected)))
    assert foreign.reads.bytes == 8 * foreign.num_tokens


def test_foreign_files_that_grew_are_no_append(tmp_path):
    write_datatrove(tmp_path / "0.ds", [[1, 2], [3]])
    before = tl.open(tmp_path)
    write_datatrove(tmp_path / "1.ds", [[4, 5]])
    with pytest.raises(tl.ConfigError, match="append"):
        before.windows(1).edit(at=1, append={"main": tl.open(tmp_path)})


@pytest.mark.parametrize("name", ["megatron uint16", "datatrove, three files of uint32"])
@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_a_simulation_foresees_every_read_of_files_that_are_read_in_place(copied, name, fetch):
    foreign, _, _ = copied(name)
    run = foreign.windows(8).block_shuffle(io_block_size=2, window_blocks=2)
    (seen,) = simulate_run(run, batch_size=4, fetch=fetch).ranks
    with tl.Loader(run, 4, fetch=fetch) as loader:
        for _ in loader:
            pass
    reads = foreign.reads
    assert (seen.reads, seen.bytes, seen.useful_bytes) == (
        reads.read_ops,
        reads.bytes,
        reads.useful_bytes,
    )
