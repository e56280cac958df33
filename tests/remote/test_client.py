"""The one door to the network, over a backend that fails as it is told."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time

import pytest

from tokenloom.arguments import Url, place
from tokenloom.errors import ConfigError, StoreCorrupt, StoreError, StoreNotFound
from tokenloom.remote.client import Client, ClientSettings, Meta, Reply, Request, client_of

SECRET = "wJalrXUtnFEMI/K7MDENG"
QUICK = ClientSettings(deadline=2.0, pause=0.001)
DATA = bytes(range(256)) * 4


class Flaky:
    """An object in memory, and a list of failures that come before the first answer."""

    lists = True

    def __init__(self, *failures: Exception, etag: str = "a", cut: int = 0) -> None:
        self.failures, self.etag, self.cut = list(failures), etag, cut
        self.asked, self.held, self.most = 0, 0, 0
        self.written: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def fail(self) -> None:
        with self.lock:
            self.asked += 1
            failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def get(self, key: str, start: int, size: int | None, etag: str | None) -> Reply:
        self.fail()
        data = self.written.get(key, DATA)
        stop = len(data) if size is None else start + size
        with self.lock:
            cut, self.cut = self.cut, 0
        return Reply(data[start:stop][: -cut or None], Meta(len(data), self.etag))

    def head(self, key: str) -> Meta:
        self.fail()
        if key not in self.written:
            raise FileNotFoundError(key)
        return Meta(len(self.written[key]), self.etag)

    def put(self, key: str, data: bytes, new: bool) -> None:
        taken = new and key in self.written
        if not taken:
            self.written[key] = bytes(data)
        self.fail()
        if taken:
            raise FileExistsError(key)


def status(code: int, text: str = "") -> Exception:
    return OSError(f"GET https://host/x?sig={SECRET}: status code: {code} {text} {SECRET}")


def client(*failures: Exception, **options) -> tuple[Client, Flaky]:
    backend = Flaky(*failures, **options)
    return Client(Url("s3", "bucket"), QUICK, backend), backend


@pytest.mark.parametrize("code", [429, 500, 503, 408])
def test_what_may_pass_is_asked_again_and_counted(code):
    found, backend = client(status(code), status(code, "SlowDown"))
    answer = found.get("x", 3, 5)
    assert (bytes(answer.data), answer.retries, backend.asked) == (DATA[3:8], 2, 3)


def test_a_short_body_is_asked_again():
    found, backend = client(cut=2)
    assert bytes(found.get("x", 3, 5).data) == DATA[3:8]
    assert backend.asked == 2


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (status(403), StoreError),
        (status(401), StoreError),
        (status(400, "<Code>ExpiredToken</Code>"), StoreError),
        (FileNotFoundError(SECRET), StoreNotFound),
        (status(412), StoreError),
        (NotImplementedError(SECRET), StoreError),
    ],
)
def test_what_never_passes_is_raised_at_once_and_without_secrets(failure, kind):
    found, backend = client(failure)
    with pytest.raises(kind) as caught:
        found.get("x", 0, 5)
    assert backend.asked == 1
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__}"
    assert str(caught.value).startswith("s3://bucket/x: ")


def test_an_endpoint_that_keeps_failing_is_an_error_within_the_deadline():
    backend = Flaky(*[status(503)] * 10_000)
    found = Client(Url("s3", "bucket"), ClientSettings(deadline=0.3, pause=0.01), backend)
    started = time.monotonic()
    with pytest.raises(StoreError, match="503"):
        found.get("x", 0, 5)
    assert 2 <= backend.asked < 50
    assert time.monotonic() - started < 30  # far above the deadline: not a measurement


def test_pauses_grow_until_they_are_long_and_end_before_the_deadline(monkeypatch):
    clock, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("tokenloom.remote.client.time.sleep", sleep)
    monkeypatch.setattr("tokenloom.remote.client.time.monotonic", lambda: clock[0])
    found = Client(Url("s3", "bucket"), ClientSettings(), Flaky(*[status(503)] * 1000))
    with pytest.raises(StoreError, match="503"):
        found.get("x", 0, 5)
    assert sum(pauses) <= 40  # two thirds of a minute: the last answer may take the rest
    doubled = [min(0.1 * 2.0**n, 5.0) for n in range(len(pauses))]
    assert all(full / 2 <= one <= full for one, full in zip(pauses, doubled, strict=True))
    growing = pauses[:6]  # until the longest is reached, each is between half and all of its own
    assert all(later > earlier for earlier, later in zip(growing, growing[2:], strict=False))
    assert max(pauses) > 20 * pauses[0]
    again = [*pauses]
    pauses.clear()
    clock[0] = 0.0
    other = Client(Url("s3", "bucket"), ClientSettings(), Flaky(*[status(503)] * 1000))
    with pytest.raises(StoreError):
        other.get("y", 0, 5)
    assert pauses[0] != again[0]  # requests that failed together are not asked again together


def test_another_etag_is_damage_also_where_the_server_ignores_conditions():
    found, _ = client(etag="b")
    with pytest.raises(StoreCorrupt, match="etag"):
        found.get("x", 0, 5, etag="a")
    assert bytes(found.get("x", 0, 5, etag="b").data) == DATA[:5]


def test_many_requests_are_in_flight_together():
    together = threading.Barrier(32)

    class Meeting(Flaky):
        def get(self, *asked):
            together.wait(timeout=20)  # passes only if 32 are here
            return super().get(*asked)

    found = Client(Url("s3", "bucket"), QUICK, Meeting())
    answers = found.get_many([Request("x", k, 2) for k in range(64)])
    assert [bytes(one.data) for one in answers] == [DATA[k : k + 2] for k in range(64)]


def test_a_create_that_succeeded_unheard_is_not_taken_for_another():
    found, backend = client(status(500))
    assert found.put_new("x", b"mine")
    assert backend.written == {"x": b"mine"}
    assert not found.put_new("x", b"mine")  # asked once: it was there before


def test_a_create_that_lost_after_a_failure_says_so():
    found, backend = client(status(500))
    backend.written["x"] = b"ours"
    assert not found.put_new("x", b"mine")
    assert backend.written == {"x": b"ours"}


class AlreadyExistsError(Exception):
    """What obstore raises for every 409."""


class Conflicting(Flaky):
    """Refuses the first creates with 409 and writes nothing; `rival` is written in between."""

    def __init__(self, refusals: int, code: str, rival: bytes | None = None) -> None:
        super().__init__()
        self.refusals, self.code, self.rival, self.puts = refusals, code, rival, 0

    def put(self, key: str, data: bytes, new: bool) -> None:
        self.puts += 1
        if self.puts > self.refusals:
            super().put(key, data, new)
            return
        if self.rival is not None:
            self.written[key] = self.rival
        raise AlreadyExistsError(f"exists: {status(409, f'<Code>{self.code}</Code>')}")


CONFLICTS = ["ConditionalRequestConflict", "OperationAborted", "SomethingElse"]


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_create_that_is_refused_while_nothing_is_there_is_asked_again(code):
    backend = Conflicting(2, code)
    found = Client(Url("s3", "bucket"), QUICK, backend)
    assert found.put_new("x", b"mine")
    assert (backend.written, backend.puts) == ({"x": b"mine"}, 3)


@pytest.mark.parametrize("code", CONFLICTS)
@pytest.mark.parametrize("rival", [b"ours", b"mine"])
def test_a_create_that_is_refused_while_something_is_there_found_the_name_taken(code, rival):
    """The control of the test above: 409 is also what Azure says of a name that is taken."""
    backend = Conflicting(1, code, rival)
    found = Client(Url("s3", "bucket"), QUICK, backend)
    assert not found.put_new("x", b"mine")
    assert (backend.written, backend.puts) == ({"x": rival}, 1)


def test_creates_that_stay_in_conflict_are_told_without_blaming_another_content():
    found = Client(Url("s3", "bucket"), ClientSettings(deadline=0.1), Conflicting(10_000, "x"))
    with pytest.raises(StoreError, match="s3://bucket/x") as caught:
        found.put_new("x", b"mine")
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__} {caught.value.__context__}"


def test_a_conflict_of_any_other_write_is_asked_again():
    found, backend = client(AlreadyExistsError(str(status(409, "OperationAborted"))))
    found.put("x", b"new")
    assert backend.asked == 2


def test_a_look_that_is_throttled_after_a_refusal_is_taken_again():
    class Throttled(Flaky):
        looks = 0

        def head(self, key: str) -> Meta:
            self.looks += 1
            if self.looks == 1:
                raise status(503)
            return super().head(key)

    backend = Throttled()
    backend.written["x"] = b"mine"
    assert not Client(Url("s3", "bucket"), QUICK, backend).put_new("x", b"mine")


def test_the_memory_store_has_every_call():
    found = client_of(Url("memory", "every-call"))
    assert found.put_new("a/b", b"12345")
    assert not found.put_new("a/b", b"other")
    found.put("a/c/d", b"6")
    assert bytes(found.get("a/b").data) == b"12345"
    assert bytes(found.get("a/b", 3, 10).data) == b"45"
    assert [one[:2] for one in found.list("a")] == [("a/b", 5), ("a/c/d", 1)]
    assert found.names("a") == ["b", "c"]
    found.delete("a/b")
    found.delete("a/b")
    assert found.head("a/b") is None
    assert found.names("nothing") == []


def test_a_client_is_never_copied_or_pickled():
    found = client_of(Url("memory", "single"))
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="Client"):
            copying(found)


def test_settings_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "7.5")
    monkeypatch.setenv("TOKENLOOM_REMOTE_IN_FLIGHT", "48")
    assert client_of(Url("memory", "set")).settings == ClientSettings(deadline=7.5, in_flight=48)
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "soon")
    with pytest.raises(ConfigError, match="TOKENLOOM_REMOTE_DEADLINE: found 'soon'"):
        ClientSettings.from_environment()


@pytest.mark.parametrize(
    "text",
    [
        f"s3://key:{SECRET}@bucket/x",
        f"https://{SECRET}@host/x",
        f"https://host/x?sig={SECRET}",
        f"abfss://c:{SECRET}@account.dfs.core.windows.net/x",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(text):
    with pytest.raises(ConfigError, match="environment") as caught:
        place("store", text)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


def test_places_are_paths_or_urls():
    assert str(place("store", "s3://b/k/x/")) == "s3://b/k/x"
    assert str(place("store", "abfss://c@a.dfs.core.windows.net/k").parent / "y").endswith("net/y")
    assert place("store", "a/b").name == place("store", "gs://b/a/b").name == "b"
    for odd in ("s3:/b/x", "file:///x", "s3://b/a/../c", "s3://b/a//c", "s3:///k"):
        with pytest.raises(ConfigError, match="store: found"):
            place("store", odd)


def test_the_child_of_a_fork_has_a_client_of_its_own():
    found = client_of(Url("memory", "forked"))
    found.put("x", b"parent")
    pid = os.fork()
    if pid == 0:
        # what is in memory belongs to the parent; the client answers, with a runtime of its own
        fresh = found.head("x") is None and found.put_new("x", b"child")
        os._exit(0 if fresh and bytes(found.get("x").data) == b"child" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert bytes(found.get("x").data) == b"parent"
