"""A run over foreign files is the run over a store of ours with the same documents."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from everyformat import EVERY
from foreignfiles import EOT, WRITERS, write_datatrove
from toydata import ARRAYS

import tokenloom as tl
from tokenloom import native
from tokenloom.inspect import simulate_run
from tokenloom.store.derived.payload import payloads_of

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


def same(one, other, what):
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), (what, name)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_every_layout_and_order_has_the_rows_that_a_store_of_ours_has(copied, name):
    foreign, own, _ = copied(name)
    assert foreign.digest == own.digest
    assert len(foreign.reader.manifest.shards) > 2
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
def test_a_run_over_foreign_files_goes_on_over_a_copy(copied, name, fetch):
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
    told = run.describe()["store"]
    assert told["foreign"]["dtype"] == "uint16"
    assert "identity" not in told


def test_run_files_name_foreign_files_with_what_is_said_about_them(copied, tmp_path):
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
    with pytest.raises(tl.ConfigError, match="the sample of foreign files that the description"):
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
    with pytest.raises(tl.StoreError, match="files were changed"):
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
    told = subprocess.run(
        [sys.executable, "-c", code, str(foreign.path)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == own.windows(16).digest(0, 9)


def test_a_document_over_the_end_of_a_file_is_read_from_both(copied):
    foreign, _, expected = copied("llm.c, four shards of uint32")
    shards = foreign.reader.inside.shards
    seams = [shard for shard in shards if shard.piece < 0]
    assert [shard.documents for shard in seams] == [1, 1, 1]
    for shard in seams:
        number = shard.first_document
        assert foreign.document(number).tolist() == expected[number]


IN_PLACE = {
    *("megatron uint16", "megatron int32", "datatrove", "datatrove, three files of uint32"),
    *("llm.c", "llm.c kin", "llm.c, four shards of uint32", "flat uint16", "OLMo, two files"),
    *("npy", "litdata", "litdata, three chunks", "arrays"),
}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_ids_in_place_are_read_by_the_compiled_loops(copied, name):
    foreign, _, _ = copied(name)
    with tl.Loader(foreign.windows(16).shuffle(), 4, fetch="rows", untrained="zero") as loader:
        for _ in loader:
            pass
    files = {piece.file for piece in foreign.reader.inside.described.tokens}
    wanted = files if native.compiled is not None and name in IN_PLACE else set()
    assert {key[0] for key in payloads_of(foreign.reader)._open} == wanted


def test_bytes_of_converted_ids_are_counted_once_while_they_are_cached(copied):
    foreign, _, expected = copied("flat uint64")
    for _ in range(2):
        foreign.documents(range(len(expected)))
    assert foreign.reads.bytes == 8 * foreign.num_tokens


def test_foreign_files_that_grew_are_no_append(tmp_path):
    write_datatrove(tmp_path / "0.ds", [[1, 2], [3]])
    before = tl.open(tmp_path)
    write_datatrove(tmp_path / "1.ds", [[4, 5]])
    with pytest.raises(tl.ConfigError, match="is not the one of 2 with others appended"):
        before.windows(1).edit(at=1, append={"main": tl.open(tmp_path)})


@pytest.mark.parametrize("name", ["megatron uint16", "datatrove, three files of uint32"])
@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_a_simulation_foresees_every_read_of_files_that_are_read_in_place(copied, name, fetch):
    foreign, _, _ = copied(name)
    run = foreign.windows(8).block_shuffle(io_block_size=2, window_blocks=2)
    (seen,) = simulate_run(run, batch_size=4, fetch=fetch).ranks
    with tl.Loader(tl.from_config(run.describe()), 4, fetch=fetch) as loader:
        real = loader.dataset
        for _ in loader:
            pass
    reads = real.counters()
    assert (seen.reads, seen.bytes, seen.useful_bytes) == (
        reads.read_ops,
        reads.bytes,
        reads.useful_bytes,
    )
