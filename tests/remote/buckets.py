"""What tests do with whole buckets: copy one to a folder, name its objects, die at a request."""

from pathlib import Path

from tokenloom.arguments import place
from tokenloom.remote.client import Client, client_of


class Killed(BaseException):
    """The process is gone: no handler of the writer may turn this into something else."""


class DyingClient:
    """A client whose N-th request never happens, nor any after it: what a killed process leaves.

    With `late`, the N-th request itself still reaches the bucket, and its answer is lost.
    """

    def __init__(self, inner: Client, at: int = 0, *, late: bool = False) -> None:
        self._inner, self.at, self._late, self.count = inner, at, late, 0
        self.url, self.settings = inner.url, inner.settings

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def request(*given, **more):
            self.count += 1
            if self.at and self.count >= self.at:
                if self._late and self.count == self.at:
                    method(*given, **more)
                raise Killed(f"request {self.count}: {name}")
            return method(*given, **more)

        return request


def objects(url: str) -> dict[str, bytes]:
    """Every object below a URL, by its name from there."""
    where = place("url", url)
    client = client_of(where)
    found = [one.key for one in client.list(where.key)]
    skip = len(where.key) + 1 if where.key else 0
    return {key[skip:]: bytes(client.get(key).data) for key in found}


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its name from there, but for the lock."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def copied(url: str, folder: Path) -> Path:
    """A bucket's store as files."""
    for name, data in objects(url).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
