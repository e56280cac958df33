"""Inputs in buckets: the same store as from files, read in ranges, by workers on their own."""

import gzip
import json

import pytest
import zstandard
from buckets import files, objects, put
from refusals import refused

import tokenloom as tl

TEXTS = [f"record {i} " + "x" * (i * 37 % 300) for i in range(200)]

LINES = "".join(json.dumps({"text": text, "n": i}) + "\n" for i, text in enumerate(TEXTS)).encode()


def parquet(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "p.parquet"
    pq.write_table(pa.table({"text": TEXTS, "n": range(200)}), path, row_group_size=32)
    return path.read_bytes()


@pytest.fixture
def corpus(tmp_path, ranges, place):
    """The same files on a disk and in a bucket."""
    contents = {
        "a.jsonl": LINES,
        "b.jsonl.gz": gzip.compress(LINES + b'{"text": "gz"}\n', mtime=0),
        "c/d.jsonl.zst": zstandard.compress(LINES + b'{"text": "zst"}\n'),
        "c/e.txt": b"one document",
        "p.parquet": parquet(tmp_path),
        "empty.jsonl": b"",
        ".hidden.jsonl": LINES,
        "notes.xyz": b"no",
    }
    for name, data in contents.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        put(f"{place}/{name}", data)
    return tmp_path / "corpus", place


def settings(**more):
    return {"tokenizer": "bytes", "block_bytes": 4096, "inner": 64, "chunk_tokens": 64, **more}


@pytest.mark.parametrize(
    "what", ["", "/*.jsonl", "/**/*.jsonl*", "/c", "/[pc]*/*.txt", "/p.parquet"]
)
def test_a_bucket_gives_the_store_that_its_files_give(corpus, tmp_path, what):
    folder, url = corpus
    tl.build(f"{folder}{what}", tmp_path / "local", **settings(workers=1))
    tl.build(f"{url}{what}", tmp_path / "remote", **settings(workers=1))
    assert files(tmp_path / "remote") == files(tmp_path / "local")  # the names of inputs, too


def test_workers_read_the_bucket_themselves(corpus, tmp_path, ranges):
    folder, url = corpus
    tl.build(str(folder), tmp_path / "local", **settings(workers=1))
    tl.build(url, tmp_path / "remote", **settings(workers=2))
    assert files(tmp_path / "remote") == files(tmp_path / "local")


def test_from_a_bucket_into_a_bucket_and_of_a_kind(corpus, tmp_path):
    folder, url = corpus
    tl.build(f"lines:{folder}/notes.xyz", tmp_path / "local", **settings())
    tl.build(f"lines:{url}/notes.xyz", f"{url}-out", **settings())
    assert objects(f"{url}-out") == files(tmp_path / "local")


def test_no_object_is_read_as_a_whole(ranges, place, tmp_path):
    put(f"{place}/large.jsonl", LINES * 50)
    size, block = len(LINES) * 50, 100_000
    assert size > 15 * block
    ranges.clear()
    tl.build(f"{place}/large.jsonl", tmp_path / "s", **settings(workers=1, block_bytes=block))
    sent = [one["sent"] for one in ranges.log() if one["key"].endswith("large.jsonl")]
    assert sent.count(size) == 1  # to hash it, in ranges of 8 MiB
    assert max(one for one in sent if one != size) <= block + 1  # then block by block


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "p.parquet", "c/d.jsonl.zst"])
def test_an_object_that_changes_during_a_build_is_told(corpus, tmp_path, ranges, name):
    _, url = corpus
    ranges.set(etag_after=3, only=name)  # listed, looked at, hashed: then it is another one
    with pytest.raises(tl.InputError, match=name):
        tl.build(f"{url}/{name}", tmp_path / "s", **settings(workers=1))


@pytest.mark.slow
def test_a_change_is_told_by_workers_too(corpus, tmp_path, ranges):
    _, url = corpus
    ranges.set(etag_after=3, only="a.jsonl")
    with pytest.raises(tl.InputError, match=r"a\.jsonl"):
        tl.build(f"{url}/a.jsonl", tmp_path / "s", **settings(workers=2))


def test_a_server_that_ignores_conditions_is_caught_by_the_answer(corpus, tmp_path, ranges):
    _, url = corpus
    ranges.set(etag_after=3, only="a.jsonl", ignore_conditions=True)
    with pytest.raises(tl.InputError, match=r"a\.jsonl"):
        tl.build(f"{url}/a.jsonl", tmp_path / "s", **settings(workers=1))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{url}/nothing", "/nothing"),
        ("{url}/*.nothing", "/*.nothing"),
        ("{url}/notes.xyz", ".xyz"),
        ("{url}/*.xyz", ".xyz"),
        ("parquet:{url}/a.jsonl", "a.jsonl"),
        ("hf:{url}", "'s3'"),
    ],
)
def test_what_is_not_there_or_not_meant_is_refused(corpus, text, named, tmp_path):
    given = text.format(url=corpus[1])
    refused(lambda: tl.build(given, tmp_path / "s", **settings()), tl.InputError, named)


def test_faults_of_the_bucket_change_nothing(corpus, tmp_path, ranges):
    folder, url = corpus
    ranges.set(slow_down=7, torn=5, short=11)
    tl.build(url, tmp_path / "remote", **settings(workers=1))
    ranges.set()
    tl.build(str(folder), tmp_path / "local", **settings(workers=1))
    assert files(tmp_path / "remote") == files(tmp_path / "local")


@pytest.mark.parametrize("server", ["ranges", "moto"])
def test_odd_names_are_names(request, server, place, tmp_path):
    request.getfixturevalue(server)
    names = ["ü x.jsonl", "a+b.jsonl", "a&b=c.jsonl", "100%.jsonl", "a%2Fb.jsonl", "(1)'~!.jsonl"]
    for number, name in enumerate(names):
        line = json.dumps({"text": f"text {number}"}).encode()
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(line)
        put(f"{place}/{name}", line)
    tl.build(tmp_path / "in", tmp_path / "local", **settings())
    tl.build(place, tmp_path / "remote", **settings())
    assert files(tmp_path / "remote") == files(tmp_path / "local")
    one = tl.build(f"{place}/100%.jsonl", tmp_path / "one", **settings())
    assert one.inputs[0][0].name == "100%.jsonl"


def test_a_web_server_has_inputs_that_are_named_one_by_one(corpus, ranges, place, tmp_path):
    folder, _ = corpus
    web = f"{ranges.endpoint}/{place.removeprefix('s3://')}"
    tl.build(str(folder / "a.jsonl"), tmp_path / "local", **settings())
    tl.build(f"{web}/a.jsonl", tmp_path / "remote", **settings())
    assert files(tmp_path / "remote") == files(tmp_path / "local")
    refused(lambda: tl.build(f"{web}/*.jsonl", tmp_path / "s", **settings()), tl.InputError, web)


def test_inputs_without_content_are_a_store_without_documents(ranges, place, tmp_path):
    put(f"{place}/in/a.jsonl", b"")
    with pytest.warns(UserWarning, match="no documents"):
        store = tl.build(f"{place}/in", tmp_path / "s", **settings())
    assert store.num_documents == 0
