"""No credential leaves the environment: everything that writing makes is searched for them."""

import contextlib
import json
import logging
import pickle

import pytest
import servers
from buckets import objects
from leaking import leaks, told

import tokenloom as tl
from tokenloom.arguments import place as parsed
from tokenloom.cli import main
from tokenloom.ingest.crew import worker
from tokenloom.loader import write_state
from tokenloom.remote.client import client_of
from tokenloom.remote.uploads import RemoteFiles, files_of

LINES = "".join(json.dumps({"text": f"record {i}"}) + "\n" for i in range(500)).encode()

SETTINGS = {"tokenizer": "bytes", "shard_tokens": 2000, "block_bytes": 1000}


@pytest.fixture
def heard(monkeypatch, caplog, capfd):
    """Gives all that was logged, printed and sent to workers so far."""
    caplog.set_level(logging.DEBUG)
    sent = []
    send = worker.send

    def listening(pipe, header, buffers=()):
        sent.append(json.dumps(header).encode() + b"".join(map(bytes, buffers)))
        send(pipe, header, buffers)

    monkeypatch.setattr(worker, "send", listening)

    def collect():
        printed = capfd.readouterr()
        return [*sent, caplog.text, printed.out, printed.err]

    return collect


@pytest.fixture
def corpus(ranges, place):
    where = parsed("url", f"{place}/in/a.jsonl")
    client_of(where).put(where.key, LINES)
    return place


def test_a_build_writes_no_credential_anywhere(corpus, heard):
    out = f"{corpus}/store"
    store = tl.build(f"{corpus}/in/*.jsonl", out, workers=2, **SETTINGS)
    tl.build([{"text": "more"}], out, append=True, **SETTINGS)
    run = store.windows(8).shuffle().seed(3)
    state = tl.Loader(run, batch_size=2).state_dict()
    write_state(state, f"{corpus}/states")
    tl.save(run, f"{corpus}/run.yaml")
    for command in (["info", out], ["verify", out], ["gc", out, "--old-snapshots"]):
        assert main(command) == 0
    records = heard()
    assert any(b'"path": "s3://' in one for one in records if isinstance(one, bytes))  # workers ran
    assert leaks(*records) == []
    assert leaks(*objects(corpus).values(), *objects(corpus)) == []
    travelled = [pickle.dumps(one) for one in (store, run, state)]
    assert leaks(*travelled, run.describe(), run.fingerprint, repr(store), repr(run)) == []


def test_what_writes_is_never_pickled_and_shows_nothing(ranges, place):
    files = files_of(parsed("url", place))
    for one in (files, client_of(parsed("url", place))):
        with pytest.raises(TypeError, match="never copied"):
            pickle.dumps(one)
    assert leaks(repr(files), repr(client_of(parsed("url", place)))) == []
    assert isinstance(files, RemoteFiles)


@pytest.mark.parametrize(
    ("fault", "deadline"),
    [
        ({"expire_after": 1}, "5"),
        ({"expire_after": 30}, "5"),
        ({"slow_down": 1}, "0.4"),
        ({"torn": 1}, "0.4"),
        ({"ignore_conditions": True}, "5"),
        ({"etag_after": 4, "only": "a.jsonl"}, "5"),
    ],
)
def test_no_error_of_a_build_repeats_a_credential(
    corpus, heard, ranges, monkeypatch, fault, deadline
):
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", deadline)
    ranges.set(**fault)
    with pytest.raises(tl.TokenloomError) as raised:
        tl.build(f"{corpus}/in", f"{corpus}/store", **SETTINGS)
    assert "s3://bucket" in str(raised.value)
    assert leaks(told(raised.value), *heard()) == []


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{servers.ACCESS_KEY}:{servers.SECRET_KEY}@bucket/x",
        f"https://example.org/x?X-Amz-Signature={servers.SECRET_KEY}",
        f"az://container/x?sig={servers.SECRET_KEY}",
    ],
)
def test_a_url_that_carries_a_secret_is_refused_everywhere_and_not_repeated(url, heard, tmp_path):
    calls = [
        lambda: tl.build([{"text": "a"}], url, tokenizer="bytes"),
        lambda: tl.build(url + ".jsonl", tmp_path / "s", tokenizer="bytes"),
        lambda: tl.open(url),
        lambda: tl.load(url),
        lambda: write_state({"examples": 1}, url),
    ]
    for call in calls:
        with pytest.raises(tl.TokenloomError) as raised:
            call()
        assert leaks(str(raised.value)) == []
    for command in ("gc", "verify", "info"):
        with contextlib.suppress(tl.TokenloomError):
            assert main([command, url]) != 0
    assert leaks(*heard()) == []
