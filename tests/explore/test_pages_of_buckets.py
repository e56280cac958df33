"""Reports and the explorer over buckets: they read and never write, and no page shows a secret."""

import logging

import pytest
import servers
from buckets import objects
from exploring import Asked
from leaking import leaks

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.explore.session import Session
from tokenloom.report import report_on

ROWS = [{"text": f"words of document {k} " * 9, "id": f"d{k}"} for k in range(40)]

QUERY = "X-Amz-Signature=0a1b2c3d&sv=2021"

PAGES = (
    *(("step", {"step": 1}), ("row", {"index": 3}), ("row", {"index": 3, "by": "loss"})),
    *(("document", {"source": "a", "document": 2}), ("compare", {"a": 0, "b": 1})),
    *(("compare", {"a": 0, "b": 1, "row": 1}), ("overview", {}), ("diff", {})),
    ("find", {"kind": "id", "wanted": "d7"}),
    *(("find", {"kind": "text", "wanted": "document 7"}),),
    ("find", {"kind": "hash", "wanted": "0123456789abcdef" * 2}),
)


def built(place):
    """A run over two stores in a bucket, opened from its file there."""
    for name in "ab":
        tl.build(ROWS, f"{place}/{name}", tokenizer="bytes", id_key="id", progress=False)
    stores = {name: tl.open(f"{place}/{name}") for name in "ab"}
    run = tl.mix({"a": stores["a"].pack(64).shuffle(), "b": stores["b"].windows(64).shuffle()})
    tl.save(run.seed(3), f"{place}/run.yaml")
    return tl.load(f"{place}/run.yaml")


def shown(run):
    """Every page of the explorer with two runs, and the report."""
    asked = Asked(Session([run, run.seed(4)], ["run.yaml", "other.yaml"], 8))
    pages = [asked.html(name, **values) for name, values in PAGES]
    report = report_on(run, batch_size=8)
    stores = [report_on(tl.open(source.path)).html for source in run.sources.values()]
    return [*pages, report.html, str(report.to_dict()), *stores]


@pytest.fixture
def run(ranges, place):
    return built(place)


def test_pages_read_a_bucket_and_write_nothing(ranges, place, run, caplog):
    caplog.set_level(logging.DEBUG)
    before = objects(place)
    ranges.clear()
    pages = shown(run)
    asked = {one["method"] for one in ranges.log()}
    assert asked <= {"GET", "HEAD", "LIST"}
    assert "GET" in asked
    assert objects(place) == before
    assert leaks(*pages, caplog.text) == []
    assert not any(ranges.endpoint in one for one in pages)
    assert any(f"{place}/a" in one for one in pages)  # a store is named, without more


def test_control_a_page_that_writes_is_seen(ranges, place, run):
    ranges.clear()
    tl.save(run, f"{place}/again.yaml")
    assert "PUT" in {one["method"] for one in ranges.log()}


def test_pages_over_the_s3_of_another_author(moto, place):
    before = objects(place)
    pages = shown(built(place))
    assert leaks(*pages) == []
    assert not before
    assert not any(moto.endpoint in one for one in pages)


@pytest.mark.parametrize(
    "fault",
    [{"expire_after": 1}, {"slow_down": 1}, {"torn": 1}],
    ids=lambda one: next(iter(one)),
)
def test_errors_of_pages_hold_no_credential(ranges, place, run, fault, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TOKENLOOM_REMOTE_DEADLINE", "0.3")
    asked = Asked(Session([tl.load(f"{place}/run.yaml")], ["run.yaml"], 8))
    ranges.set(**fault)
    replies = [asked.get(name, **values) for name, values in PAGES if name != "diff"]
    texts = [one.body.decode() for one in replies]
    assert any("cannot be read" in one or 'role="alert"' in one for one in texts)
    assert leaks(*texts, caplog.text) == []
    assert not any(ranges.endpoint in one for one in [*texts, caplog.text])


@pytest.mark.parametrize("command", ["explore", "report"])
@pytest.mark.parametrize(
    "url",
    [
        f"s3://{servers.ACCESS_KEY}:{servers.SECRET_KEY}@bucket/run.yaml",
        f"https://example.invalid/run.yaml?{QUERY}",
        f"s3://bucket/run.yaml?{QUERY}",
    ],
    ids=["credential", "signed", "query"],
)
def test_a_url_with_a_credential_or_a_query_is_refused_and_not_repeated(
    command, url, capsys, caplog
):
    caplog.set_level(logging.DEBUG)
    code = main([command, url])
    out, err = capsys.readouterr()
    assert code == 2
    assert leaks(out, err, caplog.text) == []
    assert "Signature" not in out + err + caplog.text
    assert "0a1b2c3d" not in out + err + caplog.text
