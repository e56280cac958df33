"""A web server over a folder that answers requests for ranges of bytes, and counts them."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class WebServer(ThreadingHTTPServer):
    """`requests` has (path, first byte, bytes) of every answer with content.

    While `together` is a barrier, answers about tokens wait there for each other.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.requests = Path(folder), []
        self.together: threading.Barrier | None = None
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = self.server.folder / self.path.lstrip("/").partition("?")[0]
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content, wanted = path.read_bytes(), self.headers.get("Range")
        size = len(content)
        first, last = 0, size - 1
        if wanted:
            a, _, b = wanted.removeprefix("bytes=").partition("-")
            first, last = (int(a), min(int(b or last), last)) if a else (size - int(b), last)
        if self.server.together and "input_ids/c" in self.path:
            self.server.together.wait(60)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(last - first + 1))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        if self.command == "GET":
            name = path.relative_to(self.server.folder).as_posix()
            self.server.requests.append((name, first, last - first + 1))
            self.wfile.write(content[first : last + 1])

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *_):
        """Write nothing."""


@contextlib.contextmanager
def serve(folder):
    """A running server of the files of a folder, which is its `url`."""
    server = WebServer(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
