"""Snapshots on a web server without listings: the search for the newest one always ends."""

import contextlib
import http.server
import re
import threading
from pathlib import Path

import pytest
from buckets import upload

import tokenloom as tl

ROWS = [{"text": "abc"}, {"text": "defgh"}]


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of a folder in ranges, and a page for every other name."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing."""

    def do_HEAD(self):
        self.do_GET(head=True)

    def do_GET(self, head=False):
        server, name = self.server, self.path.lstrip("/")
        server.asked.append((self.command, name))
        path = Path(server.folder, name)
        data = path.read_bytes() if path.is_file() else server.page(name)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        ranged = wanted is not None and (path.is_file() or server.pages_in_ranges)
        low, high = 0, len(data)
        if ranged:
            low, high = int(wanted[1]), min(len(data), int(wanted[2]) + 1)
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {low}-{high - 1}/{len(data)}")
        self.send_header("Content-Length", str(high - low))
        self.end_headers()
        if not head:
            self.wfile.write(data[low:high])


@contextlib.contextmanager
def soft_server(folder, page=lambda name: b"<html>please log in</html>", *, pages_in_ranges=True):
    """A server that answers 200 to every name."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.folder, server.page, server.pages_in_ranges = folder, page, pages_in_ranges
    server.asked, server.daemon_threads = [], True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def grown(tmp_path):
    """A store of three snapshots."""
    store = tl.build(ROWS, tmp_path / "web/s", tokenizer="bytes")
    for number in range(2):
        rows = [{"text": f"more {number}"}]
        store = tl.build(rows, tmp_path / "web/s", tokenizer="bytes", append=True)
    return store


@pytest.mark.parametrize("pages_in_ranges", [True, False])
def test_a_server_that_answers_every_name_is_told_from_a_store(tmp_path, pages_in_ranges):
    with soft_server(tmp_path, pages_in_ranges=pages_in_ranges) as (server, url):
        with pytest.raises(tl.StoreError, match=re.escape(f"{url}/s/manifest-000001.json")):
            tl.open(f"{url}/s")
        assert len(server.asked) <= 4


def test_a_store_on_such_a_server_opens_by_the_number_of_its_snapshot(grown, tmp_path):
    with soft_server(tmp_path / "web") as (server, url):
        with pytest.raises(tl.StoreError, match=r"manifest-000004.*snapshot=3"):
            tl.open(f"{url}/s")
        assert len(server.asked) <= 6
        store = tl.open(f"{url}/s", snapshot=3)
        assert store.digest == grown.digest
        assert (store.tokens(0, store.num_tokens) == grown.tokens(0, grown.num_tokens)).all()


def test_a_server_that_gives_one_manifest_for_every_name_is_refused(grown, tmp_path):
    manifest = (tmp_path / "web/s/manifest-000001.json").read_bytes()
    with soft_server(tmp_path / "nothing", lambda name: manifest) as (server, url):
        with pytest.raises(tl.StoreError, match=re.escape(f"{url}/s/manifest-000002.json")):
            tl.open(f"{url}/s")
        assert len(server.asked) <= 5


def web_url(ranges, name):
    return f"{ranges.endpoint}/bucket/{name}"


def test_every_manifest_is_read_once_before_the_next_number_is_tried(grown, tmp_path, ranges):
    upload(tmp_path / "web/s", "s3://bucket/searched")
    ranges.clear()
    assert tl.open(web_url(ranges, "searched")).digest == grown.digest
    asked = [(one["method"], one["key"].rpartition("/")[2], one["status"]) for one in ranges.log()]
    manifests = [("GET", f"manifest-00000{number}.json", 206) for number in (1, 2, 3)]
    assert asked == [*manifests, ("GET", "manifest-000004.json", 404)]


def test_an_old_manifest_that_is_damaged_does_not_hide_the_newest(grown, tmp_path, ranges):
    upload(tmp_path / "web/s", "s3://bucket/old")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "manifest-000002.json").write_bytes(b"not what was published")
    upload(damaged, "s3://bucket/old")
    assert tl.open(web_url(ranges, "old")).snapshot == 3
    (damaged / "manifest-000002.json").rename(damaged / "manifest-000003.json")
    upload(damaged, "s3://bucket/old")
    with pytest.raises(tl.StoreCorrupt, match="manifest-000003"):
        tl.open(web_url(ranges, "old"))


def test_the_whole_search_has_one_deadline(grown, tmp_path, ranges, monkeypatch):
    for number in range(5):
        rows = [{"text": f"still more {number}"}]
        grown = tl.build(rows, tmp_path / "web/s", tokenizer="bytes", append=True)
    upload(tmp_path / "web/s", "s3://bucket/slow")
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "3")
    ranges.set(latency=0.6)  # each answer comes well within the time of one request
    ranges.clear()
    with pytest.raises(tl.StoreError, match=r"bucket/slow.*TOKENLOOM_REMOTE_DEADLINE"):
        tl.open(web_url(ranges, "slow"))
    assert 2 <= len(ranges.log()) < 8  # eight snapshots, each with a request of its own
    ranges.set()
    assert tl.open(web_url(ranges, "slow")).num_documents == grown.num_documents
