"""A store in a bucket reads as the same store on a disk, with the requests that its plan names."""

import copy
import functools
import hashlib
import http.server
import multiprocessing
import pickle
import socket
import threading
import time

import numpy as np
import pytest
from buckets import PAYLOAD, asked, delete, get, put, upload
from plainsource import PlainSource
from refusals import refused
from toyruns import KINDS, toy_store

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.inspect import simulate_run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LAYOUTS = {
    "windows": lambda documents: documents.windows(8),
    "packed": lambda documents: documents.pack(16, group_docs=13),
    "spliced": lambda documents: documents.splice(24, content_length=6),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("local"), rows=160)


@pytest.fixture
def url(ranges, place, local):
    upload(local.path, place)
    ranges.clear()
    return place


def test_opening_asks_for_one_listing_and_one_manifest(ranges, url):
    tl.open(url)
    assert [(one["method"], one["key"].rpartition("/")[2]) for one in ranges.log()] == [
        ("LIST", ""),
        ("GET", "manifest-000001.json"),
    ]


@pytest.mark.parametrize("server", ["ranges", "moto"])
def test_everything_reads_as_on_a_disk(request, server, place, tmp_path):
    request.getfixturevalue(server)
    local = toy_store(tmp_path / "s", rows=60, weights=True)
    upload(local.path, place)
    store = tl.open(place)
    assert (store.digest, store.manifest_sha256) == (local.digest, local.manifest_sha256)
    assert str(store.path) == place
    assert np.array_equal(store.lengths, local.lengths)
    every = range(store.num_documents)
    for column in (None, "loss_weights"):
        pairs = zip(store.documents(every, column), local.documents(every, column), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    assert store.find("nothing").tolist() == []
    assert store.document_hashes([3]) == local.document_hashes([3])
    assert store.verify().problems == ()
    here, there = (one.windows(8).block_shuffle(window_blocks=2).seed(5) for one in (local, store))
    assert there.digest(0, len(there)) == here.digest(0, len(here))
    assert _digest(there) == _digest(here)


def _digest(run):
    """The sha256 of all tokens and weights that a loader gives."""
    sha256 = hashlib.sha256()
    with tl.Loader(run, 6, end="pad") as loader:
        for batch in loader:
            sha256.update(batch.tokens.tobytes() + batch.loss_weights.tobytes())
    return sha256.hexdigest()


def test_an_object_that_is_replaced_while_a_store_is_open_is_damage_on_moto(moto, place, local):
    upload(local.path, place)
    store = tl.open(place, cache_bytes=0, verify="never")
    every = range(store.num_documents)
    store.documents(every)
    name = f"{place}/shard-00000/{PAYLOAD}"
    data = get(name)
    put(name, data)  # the same bytes have the same etag there
    assert all(map(np.array_equal, store.documents(every), local.documents(every)))
    put(name, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(tl.StoreCorrupt, match=rf"^{place}/shard-00000/{PAYLOAD}: "):
        store.documents(every)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["full", "block", "lanes 3"])
def test_a_bucket_gets_the_requests_that_the_simulation_names(ranges, url, local, layout, kind):
    def run_of(store):
        return KINDS[kind](LAYOUTS[layout](store)).seed(7).epochs(2)

    run = run_of(tl.open(url, cache_bytes=1500))
    (told,) = simulate_run(run, batch_size=6).ranks
    ranges.clear()
    with tl.Loader(run, 6) as loader:
        found = [batch.tokens.tobytes() for batch in loader]
    reads = run.counters()
    log = asked(ranges)
    assert (reads.read_ops, reads.bytes) == (told.reads, told.bytes)
    assert (len(log), sum(size for _, _, size in log)) == (told.reads, told.bytes)
    assert (reads.requests, reads.retries) == (told.reads, 0)
    with tl.Loader(run_of(local), 6) as loader:
        assert found == [batch.tokens.tobytes() for batch in loader]


def test_twenty_reads_of_a_batch_are_under_way_together(ranges, url):
    dataset = tl.open(url, verify="never").windows(8)
    dataset.batch([0])  # the shards are open
    dataset.batch([150])
    ranges.set(latency=0.01)
    ranges.clear()
    dataset.batch(np.arange(0, 60, 3))
    log = [one for one in ranges.log() if PAYLOAD in one["key"]]
    assert len(log) == 20
    assert max(one["began"] for one in log) < min(one["ended"] for one in log)


def test_a_gap_is_read_where_that_saves_a_request(ranges, url):
    found = {}
    for gap in (0, 16):
        dataset = tl.open(url, verify="never", gap_bytes=gap).windows(8)
        dataset.batch([3])
        ranges.clear()
        dataset.batch([3, 5])
        found[gap] = [(start, size) for _, start, size in asked(ranges)]
    assert found == {0: [(48, 16), (80, 16)], 16: [(48, 48)]}


def test_no_request_is_longer_than_the_cap(ranges, url):
    store = tl.open(url, verify="never", cap_bytes=64)
    store.tokens(0, 100)
    assert max(size for _, _, size in asked(ranges)) == 64


@pytest.mark.parametrize("fault", ["slow_down", "torn", "short"])
def test_faults_change_no_byte_and_are_counted_apart(ranges, url, local, fault):

    def run_of(store):
        return store.windows(8).block_shuffle(window_blocks=2).seed(7)

    run = run_of(tl.open(url, cache_bytes=1500))
    (told,) = simulate_run(run, batch_size=6).ranks
    ranges.set(**{fault: 3}, only=PAYLOAD)
    ranges.clear()
    with tl.Loader(run, 6) as loader, tl.Loader(run_of(local), 6) as wanted:
        for one, other in zip(loader, wanted, strict=True):
            assert np.array_equal(one.tokens, other.tokens)
    reads = run.counters()
    assert reads.read_ops == reads.requests == told.reads
    assert reads.retries > 0
    assert len(asked(ranges)) == reads.requests + reads.retries


@pytest.mark.parametrize("ignores", [False, True])
def test_an_object_that_changes_while_a_store_is_open_is_damage(ranges, url, ignores):
    store = tl.open(url)
    store.documents(range(store.num_documents))
    ranges.set(etag_after=1, only=PAYLOAD, ignore_conditions=ignores)
    with pytest.raises(tl.StoreCorrupt, match=rf"^{url}/shard-0000./{PAYLOAD}: "):
        store.documents(range(store.num_documents))


def test_a_server_without_faults_in_between_is_not_damage(ranges, url):
    """The control of the test above."""
    store = tl.open(url)
    store.document(5)
    assert len(store.documents(range(store.num_documents))) == store.num_documents


def test_an_object_of_another_size_or_none_is_damage(ranges, url):
    name = f"{url}/shard-00000/{PAYLOAD}"
    data = get(name)
    put(name, data + b"\0")
    with pytest.raises(tl.StoreCorrupt, match=rf"{PAYLOAD}: .*{len(data) + 1:,}"):
        tl.open(url).document(5)
    delete(name)
    with pytest.raises(tl.StoreCorrupt, match=PAYLOAD):
        tl.open(url).document(5)
    put(name, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(tl.StoreCorrupt, match="crc32c"):
        tl.open(url).document(0)


def test_expired_credentials_are_told_at_once(ranges, url):
    store = tl.open(url)
    ranges.set(expire_after=1)
    ranges.clear()
    with pytest.raises(tl.StoreError, match="ExpiredToken"):
        store.documents(range(store.num_documents))
    assert len([one for one in ranges.log() if one["status"] == 403]) == 1


def test_an_endpoint_that_fails_raises_within_its_deadline(ranges, url, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.5")
    store = tl.open(url)
    ranges.set(slow_down=1)
    started = time.monotonic()
    with pytest.raises(tl.StoreError, match="503"):
        store.document(0)
    assert time.monotonic() - started < 20  # of a deadline of half a second
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # a port where nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(tl.StoreError, match="refused"):
            tl.open(url)


@pytest.mark.parametrize("what", ["read", "open", "build"])
def test_an_endpoint_that_never_answers_raises_within_its_deadline(
    ranges, url, what, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "1.5")
    store = tl.open(url)
    calls = {
        "read": lambda: store.document(0),
        "open": lambda: tl.open(url),
        "build": lambda: tl.build(f"{url}/a.jsonl", tmp_path / "s", tokenizer="bytes"),
    }
    ranges.set(latency=40)
    started = time.monotonic()
    with pytest.raises(tl.TokenloomError, match="asked"):
        calls[what]()
    assert time.monotonic() - started < 30  # one answer would have taken 40


def test_verify_finds_what_is_wrong_in_a_bucket(ranges, url):
    put(f"{url}/shard-00000/stranger", b"?")
    data = bytearray(get(f"{url}/shard-00001/{PAYLOAD}"))
    data[3] ^= 1
    put(f"{url}/shard-00001/{PAYLOAD}", bytes(data))
    problems = "\n".join(tl.open(url).check().problems)
    assert f"{url}/shard-00000/stranger" in problems
    assert f"{url}/shard-00001/{PAYLOAD}" in problems


def test_a_web_server_without_listings_serves_a_store(ranges, url, local):
    web = f"{ranges.endpoint}/{url.removeprefix('s3://')}"
    ranges.clear()
    store = tl.open(web)
    assert [(one["method"], one["status"]) for one in ranges.log()] == [
        ("GET", 206),
        ("GET", 404),
    ]
    assert store.digest == local.digest
    assert np.array_equal(store.document(7), local.document(7))
    report = store.verify()
    assert report.unseen
    assert report.problems == ()


def test_a_bucket_without_a_store_says_so(ranges, url):
    with pytest.raises(tl.StoreNotFound, match=f"{url}-other"):
        tl.open(f"{url}-other")
    with pytest.raises(tl.StoreNotFound, match="snapshot 7"):
        tl.open(url, snapshot=7)


def test_the_description_of_a_run_opens_it_again_by_its_url(url, local):
    run = tl.open(url).windows(8).shuffle().seed(3)
    again = tl.from_config(run.describe())
    assert again.fingerprint == run.fingerprint
    assert again.fingerprint == local.windows(8).shuffle().seed(3).fingerprint
    assert np.array_equal(again.batch([4, 2]).tokens, run.batch([4, 2]).tokens)


def test_copies_and_pickles_open_the_same_snapshot_by_its_url(url, local, tmp_path):
    store = tl.open(url)
    for one in (copy.copy(store), copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert np.array_equal(one.document(9), local.document(9))
        assert str(one.path) == url
    kept = pickle.dumps(store)
    upload(toy_store(tmp_path / "b", rows=40).path, url)
    with pytest.raises(tl.StoreError, match=url):
        pickle.loads(kept)


def _sum(run) -> int:
    with tl.Loader(run, 4) as loader:
        return sum(int(batch.tokens.sum()) for batch in loader)


@pytest.mark.slow
def test_children_read_with_clients_of_their_own(url, local):
    run = tl.open(url).windows(8).block_shuffle(window_blocks=2).seed(1)
    wanted = _sum(local.windows(8).block_shuffle(window_blocks=2).seed(1))
    assert _sum(run) == wanted  # the parent has threads, connections and a runtime
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map_async(_sum, [run, run]).get(timeout=100) == [wanted] * 2
    assert _sum(run) == wanted


def test_commands_take_a_url(url, capsys):
    assert main(["verify", url]) == 0
    assert main(["show", url, "--doc", "3", "--json"]) == 0
    assert main(["info", url]) == 0
    assert url in capsys.readouterr().out
    assert main(["info", f"{url}-other"]) == 1
    assert f"{url}-other" in capsys.readouterr().err


def test_a_source_that_lists_nothing_is_no_source_of_a_bucket(url, tmp_path):
    refused(lambda: tl.open(url, source=PlainSource(tmp_path)), tl.ConfigError, "source", url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENLOOM_REMOTE_DEADLINE", "soon"),
        ("TOKENLOOM_REMOTE_DEADLINE", "-1"),
        ("TOKENLOOM_REMOTE_IN_FLIGHT", "0"),
    ],
)
def test_settings_of_requests_that_make_no_sense_are_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    refused(lambda: tl.open("s3://bucket-of-settings/x"), tl.ConfigError, name, repr(value))


@pytest.mark.parametrize(
    "text", ["s3:/b/x", "file:///x", "s3://b/a/../c", "s3://b/a//c", "s3:///k"]
)
def test_a_url_that_names_no_place_is_refused(text):
    refused(lambda: tl.open(text), tl.ConfigError, "found")


def test_a_run_file_without_content_is_told_from_one_that_is_not_there(ranges, place):
    put(f"{place}/run.yaml", b"")
    with pytest.raises(tl.ConfigError, match=r"run\.yaml"):
        tl.load(f"{place}/run.yaml")
    with pytest.raises(FileNotFoundError, match=r"other\.yaml"):
        tl.load(f"{place}/other.yaml")


def test_a_server_that_gives_whole_files_only_is_told_as_such(local):
    class Whole(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass  # tests are quiet

    made = functools.partial(Whole, directory=str(local.path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        web = f"http://127.0.0.1:{server.server_port}"
        refused(lambda: tl.open(web), tl.StoreError, web, "range")
        server.shutdown()
        thread.join()
