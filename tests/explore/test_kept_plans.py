"""Pages are shown at once where plans are kept; others say what keeps them, and that helps."""

import html
import re

import pytest
from exploring import Asked
from pagetoys import texts_of
from toystore import keep_plans

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.cluster import prepare_run
from tokenloom.explore import unkept
from tokenloom.explore.session import Session
from tokenloom.layout.pack import kept_rows

PAGES = {
    "step": {"step": 7},
    "row": {"index": 130},
    "compare": {"a": 7, "b": 3},
    "edit": {"at": 150, "quarantine": "main:5"},
    "document": {"source": "main", "document": 150, "after": 90},
}

LATE = {"step": {"step": 6000}, "row": {"index": 96_000}, "compare": {"a": 6000, "b": 7000}}

GREY = "figure unable"


@pytest.fixture(autouse=True)
def hurried(tmp_path, monkeypatch):
    """Small stores are kept, in parts of two rows; no page may plan a group."""
    monkeypatch.setattr(unkept, "QUICK_ROWS", 900)
    with keep_plans(tmp_path / "cache", packing_file_part_rows=2, packing_sparse_rows=1):
        yield


def stored(folder, seed=1):
    return tl.build(texts_of(200, seed), folder / f"s{seed}", tokenizer="bytes", progress=False)


@pytest.fixture
def packed(tmp_path):
    """The file of a run with groups of hundreds of rows."""
    path = tmp_path / "packed.yaml"
    run = stored(tmp_path).pack(16, group_docs=50).shuffle().epochs(None)
    assert min(run.run.layout.groups.rows) * kept_rows.PLANNED > unkept.QUICK_ROWS
    tl.save(run, path)
    return path


def asked(*paths):
    """A session of its own, as of a new process."""
    return Asked(Session([tl.load(one) for one in paths], batch_size=16))


def follow(page):
    """Do what a greyed page says."""
    code = html.unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.S)[1])
    code = re.sub(r"<[^>]+>", "", code)
    if not code.startswith("tokenloom"):
        exec(code, {})
        return
    for line in code.splitlines():
        assert main([*line.split()[1:], "--quiet"]) == 0, line


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_packed_run_whose_plans_are_kept_is_shown_at_once(packed, page):
    prepare_run(tl.load(packed), epochs=0, executor="local")
    assert GREY not in asked(packed).html(page, **PAGES[page])


@pytest.mark.parametrize("page", PAGES)
def test_what_a_greyed_page_of_a_packed_run_advises_shows_it(packed, page):
    session = asked(packed)
    grey = session.html(page, **PAGES[page])
    assert GREY in grey
    assert "the plans of packed groups" in grey
    follow(grey)
    assert GREY not in session.html(page, **PAGES[page])
    assert GREY not in asked(packed).html(page, **PAGES[page])


@pytest.mark.parametrize("page", LATE)
def test_what_a_greyed_page_of_a_mix_by_tokens_advises_shows_it(
    tmp_path, page, monkeypatch, capsys
):
    path = tmp_path / "mix.yaml"
    stores = (stored(tmp_path, seed) for seed in (1, 2))
    runs = {f"s{k}": one.pack(64).shuffle().epochs(None) for k, one in enumerate(stores)}
    tl.save(tl.mix(runs, cost="tokens").seed(3), path)
    prepare_run(tl.load(path), epochs=0, executor="local")
    monkeypatch.setattr(unkept, "QUICK_ROWS", 150)
    session = asked(path)
    grey = session.html(page, **LATE[page])
    assert "the costs of epoch" in grey
    follow(grey)
    assert GREY not in session.html(page, **LATE[page])
    assert GREY not in asked(path).html(page, **LATE[page])
    capsys.readouterr()


def test_two_runs_are_advised_about_both(packed, tmp_path):
    other = tmp_path / "other.yaml"
    tl.save(stored(tmp_path, 2).pack(16, group_docs=50).shuffle().epochs(None), other)
    session = asked(packed, other)
    grey = session.html("compare", a=3)
    assert GREY in grey
    follow(grey)
    assert GREY not in session.html("compare", a=3)
