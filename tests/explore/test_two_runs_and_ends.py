"""Ways between two runs, the short last step, and commands that look at a run without examples."""

import re

import pytest
from exploring import Asked
from pagetoys import texts_of

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.explore.session import Session


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "s"
    return tl.build(texts_of(40, 1), folder, tokenizer="bytes", progress=False)


def top(page):
    return re.search(r"<header.*?</header>", page, re.S)[0]


def test_both_runs_are_named_on_every_page_and_ways_stay_in_the_one_that_is_shown(store):
    runs = [store.windows(32).shuffle().seed(k) for k in (1, 2)]
    asked = Asked(Session(runs, ["first", "second"], 8))
    for page in ("step", "find", "compare", "edit"):
        head = top(asked.html(page))
        assert '<a href="step?run=1"><bdi>second</bdi></a>' in head, page
        assert "<b><bdi>first</bdi></b>" in head
        assert 'href="find"' in head
    head = top(asked.html("step", run=1))
    assert '<a href="step"><bdi>first</bdi></a>' in head
    assert "<b><bdi>second</bdi></b>" in head
    for way in ("step", "find", "overview"):
        assert f'href="{way}?run=1"' in head
    assert 'href="compare"' in head
    assert "second" not in top(Asked(Session(runs[:1], ["first"], 8)).html("step"))


def test_a_short_last_step_says_that_it_is_dropped(store):
    run = store.windows(32)
    asked = Asked(Session([run], ["run"], 8))
    last = asked.session.run().step_count - 1
    assert len(run) % 8, "the last step is short"
    assert "This step is short: a loader drops it" in asked.html("step", step=last)
    assert "is short" not in asked.html("step", step=last - 1)


@pytest.mark.filterwarnings("ignore:.*no documents")
@pytest.mark.parametrize("command", [["report", "-o"], ["explore", "--seconds"]])
def test_commands_that_look_take_a_run_without_examples(tmp_path, command, capsys):
    (tmp_path / "none.jsonl").write_text("")
    none = str(tmp_path / "none.jsonl")
    empty = tl.build(none, tmp_path / "empty", tokenizer="bytes", progress=False)
    assert empty.num_documents == 0
    path = tmp_path / "empty.yaml"
    path.write_text("sources: {main: {store: empty, windows: 8}}\n")
    value = str(tmp_path / "r.html") if command[0] == "report" else "0.1"
    assert main([command[0], str(path), command[1], value]) == 0
    assert main(["plan", str(path)]) == 2, "the others still refuse it"
    assert "0 examples" in capsys.readouterr().err


def test_commands_that_look_do_not_list_the_documents_of_a_splice(store, tmp_path, caplog):
    caplog.set_level("INFO", "tokenloom")
    path = tmp_path / "spliced.yaml"
    run = tl.open(store._path).splice(32, content_length=8)
    tl.save(run, path)
    caplog.clear()
    main(["report", str(path), "-o", str(tmp_path / "r.html")])
    assert "Selected doc_idx" not in caplog.text
    tl.load(path)
    assert "Selected doc_idx" in caplog.text, "the control"
