"""The servers of these tests answer as buckets do; where they differ, it is on purpose."""

import asyncio
from unittest.mock import ANY

import obstore
import pytest
import servers
from obstore.store import S3Store


def bucket(server):
    known = server.environment()
    return S3Store(
        "bucket",
        endpoint=known["AWS_ENDPOINT_URL"],
        region="us-east-1",
        access_key_id=known["AWS_ACCESS_KEY_ID"],
        secret_access_key=known["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


@pytest.fixture(params=["ranges", "moto"])
def both(request):
    """Our own server, and the one that it must agree with."""
    return bucket(request.getfixturevalue(request.param))


def names(found):
    return sorted(one["path"] for one in found)


def test_what_is_put_is_got_whole_and_in_ranges(both):
    data = bytes(range(256)) * 4
    both.put("a/whole", data)
    assert both.get("a/whole").bytes() == data
    assert both.get_range("a/whole", start=250, length=12) == data[250:262]
    assert both.get("a/whole", options={"range": {"suffix": 3}}).bytes() == data[-3:]
    found = both.head("a/whole")
    assert (found["size"], found["e_tag"]) == (1024, both.get("a/whole").meta["e_tag"])
    with pytest.raises(FileNotFoundError):
        both.head("a/nothing")


def test_a_name_is_created_once(both):
    both.put("once", b"first", mode="create")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        both.put("once", b"second", mode="create")
    assert both.get("once").bytes() == b"first"
    both.delete("once")
    both.put("once", b"third", mode="create")


def test_a_condition_on_the_etag_is_kept(both):
    both.put("tagged", b"one")
    etag = both.head("tagged")["e_tag"]
    assert both.get("tagged", options={"if_match": etag}).bytes() == b"one"
    both.put("tagged", b"two")
    with pytest.raises(obstore.exceptions.PreconditionError):
        both.get("tagged", options={"if_match": etag})


def test_listings_give_names_sizes_and_folders(both):
    for name in ("l/a", "l/b/1", "l/b/2", "l/c&d", "other"):
        both.put(name, b"xyz")
    found = both.list("l").collect()
    assert names(found) == ["l/a", "l/b/1", "l/b/2", "l/c&d"]
    assert {one["size"] for one in found} == {3}
    shallow = both.list_with_delimiter("l")
    assert (names(shallow["objects"]), shallow["common_prefixes"]) == (["l/a", "l/c&d"], ["l/b"])


def test_long_listings_come_in_pages(ranges):
    store = bucket(ranges)

    async def fill():
        await asyncio.gather(*(store.put_async(f"many/{i:05}", b"") for i in range(1_100)))

    asyncio.run(fill())
    ranges.clear()
    assert len(store.list("many").collect()) == 1_100
    assert [entry["method"] for entry in ranges.log()] == ["LIST"] * 2


def test_every_request_is_written_down(ranges):
    store = bucket(ranges)
    store.put("k", b"0123456789")
    store.get_range("k", start=2, length=5)
    store.delete("k")
    shown = [(e["method"], e["key"], e["start"], e["size"], e["sent"]) for e in ranges.log()]
    assert shown == [
        ("PUT", "bucket/k", -1, -1, 0),
        ("GET", "bucket/k", 2, 5, 5),
        ("DELETE", "bucket/k", -1, -1, ANY),
    ]
    assert ranges.log()[0]["received"] == 10


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"slow_down": 1}, "SlowDown"),
        ({"torn": 1}, "body"),
        ({"expire_after": 1}, "ExpiredToken"),
        ({"etag_after": 1}, "recondition"),
    ],
)
def test_faults_reach_the_client(ranges, fault, kind):
    store = bucket(ranges)
    store.put("k", bytes(10_000))
    etag = store.head("k")["e_tag"]
    ranges.set(**fault)

    def read():
        for _ in range(2):  # what comes "after one request" strikes the second
            store.get("k", options={"if_match": etag}).bytes()

    with pytest.raises(Exception, match=kind):
        read()
    ranges.set()
    assert len(store.get("k").bytes()) == 10_000


def test_a_short_answer_says_so_and_conditions_can_be_ignored(ranges):
    store = bucket(ranges)
    store.put("k", bytes(1000))
    ranges.set(short=1)
    with pytest.raises(obstore.exceptions.GenericError, match=r"got 0\.\.500"):
        store.get("k", options={"range": (0, 1000)})
    ranges.set(ignore_conditions=True)
    assert len(store.get("k", options={"if_match": '"other"'}).bytes()) == 1000
    store.put("k", b"again", mode="create")  # accepted


def test_a_conflict_refuses_a_free_name_and_looks_like_a_name_that_is_taken(ranges):
    store = bucket(ranges)
    ranges.set(conflicts=1, only="free")
    with pytest.raises(obstore.exceptions.AlreadyExistsError, match="ConditionalRequestConflict"):
        store.put("free", b"x", mode="create")
    with pytest.raises(FileNotFoundError):
        store.head("free")
    store.put("free", b"x", mode="create")


def test_bandwidth_is_shared(ranges):
    store = bucket(ranges)
    store.put("k", bytes(1 << 20))
    ranges.set(bandwidth=4 << 20, latency=0.01)
    ranges.clear()

    async def read():
        await asyncio.gather(*(store.get_range_async("k", start=0, length=1 << 20) for _ in "123"))

    asyncio.run(read())
    entries = ranges.log()
    assert max(entry["in_flight"] for entry in entries) == 3
    spent = max(entry["ended"] for entry in entries) - min(entry["began"] for entry in entries)
    assert spent >= 3 / 4  # a floor that the server itself enforces


@pytest.mark.slow
def test_s3rver_ignores_conditions(tmp_path):
    with servers.s3rver(tmp_path, "bucket") as server:
        store = bucket(server)
        store.put("once", b"first", mode="create")
        store.put("once", b"second", mode="create")
        assert store.get("once").bytes() == b"second"


@pytest.mark.slow
def test_azurite_starts(tmp_path):
    with servers.azurite(tmp_path) as server:
        assert server.port
