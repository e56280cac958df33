"""A bucket of files, served to this process as S3 and as a plain web server."""

import os
import urllib.request
from pathlib import Path


class ToyBucket:
    """The files below one prefix of a bucket.

    Attributes:
        url: where they are, as S3, which lists.
        web: where they are on a plain web server, which does not.
        server: the `servers.RangeServer`, with its faults and its log.
    """

    def __init__(self, server, prefix):
        self.server = server
        self.url, self.web = f"s3://bucket/{prefix}", f"{server.endpoint}/bucket/{prefix}"

    def upload(self, folder, path=None):
        """The URL of a path below a folder (default: the folder), all of which is put here."""
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                self.put(file.relative_to(folder).as_posix(), file.read_bytes())
        inside = os.path.relpath(path or folder, folder)
        return self.url if inside == "." else f"{self.url}/{inside}"

    def put(self, name, data):
        self._ask("PUT", name, data)

    def get(self, name):
        return self._ask("GET", name)

    def delete(self, name):
        self._ask("DELETE", name)

    def _ask(self, method, name, data=None):
        request = urllib.request.Request(f"{self.web}/{name}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()
