"""What pages show is what the run answers."""

import html
import itertools
import json
import re
import warnings

import numpy as np
import pytest
from exploring import Asked
from pagetoys import EVIL, MARK

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.explore import session as session_module
from tokenloom.explore.cells import NAMES
from tokenloom.explore.session import Session
from tokenloom.explore.step_page import TOKENS_OF_A_ROW


def cells_of(page):
    """The facts of every cell of a page, by name."""
    found = re.findall(r'<span class="cell [^"]*" data-f="([^"]*)"', page)
    return [dict(zip(NAMES, json.loads(html.unescape(one)), strict=True)) for one in found]


def plain(text):
    """The text of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def number(text):
    return int(text.replace(",", ""))


def test_a_step_lists_the_rows_that_at_gives(asked, run):
    for step in (0, 7, 25):
        page = asked.html("step", step=step)
        examples = run.at(step=step, batch_size=16)
        links = [int(one) for one in re.findall(r'<li><a href="row\?index=(\d+)"', page)]
        assert links == [one.index for one in examples]
        names = re.findall(r'class="soft"> <bdi>([^<]*)</bdi>', page)
        assert names == [one.source for one in examples]


@pytest.mark.parametrize("index", [0, 1, 5, 401])
def test_cells_have_what_at_and_the_batch_have(asked, run, index):
    batch, example = run.batch([index]), run.at(index)
    cells = {number(one["cell"]): one for one in cells_of(asked.html("row", index=index))}
    for span in example.spans:
        for stretch in span.cells:
            for k in range(stretch.length):
                cell, one = stretch.column + k, cells[stretch.column + k]
                assert (one["source"], number(one["document"])) == (span.source, span.document)
                assert number(one["epoch"]) == span.epoch
                if not stretch.inserted and not stretch.label_only:
                    assert number(one["offset"]) == stretch.start + k
                if cell < run.seq_len:
                    assert int(one["id"]) == batch.tokens[0, cell]
                    assert int(one["segment"]) == batch.segment_ids[0, cell]
                    assert number(one["position"]) == batch.position_ids[0, cell]
                    # of the prediction of this token, which is made one cell before
                    weight = batch.loss_weights[0, cell - 1] if cell else 0
                    assert float(one["weight"]) == weight
                    label = int(batch.labels[0, cell])
                    assert one["label"] == ("none" if label == -100 else f"{label:,}")
                    assert (one["label"] == "none") == (weight == 0)


def test_shifted_labels_give_the_same_facts_of_a_token(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    runs = store.windows(8), store.windows(8, label_layout="shifted", lookahead=True)
    aligned, ahead = (cells_of(explored(one).html("row", index=0)) for one in runs)
    facts = [
        [(one["id"], one["label"], one["weight"]) for one in line] for line in (aligned, ahead)
    ]
    assert facts[1][:8] == facts[0]
    assert ahead[8]["label"] == ahead[8]["id"] == str(ord("a"))  # the look-ahead cell is a target
    assert ahead[0]["label"] == "none"


def test_a_row_is_found_by_step_and_row_and_what_is_not_there_is_refused(asked, run):
    index = run.at(step=4, row=3, batch_size=16).index
    assert f"<h1>Example {index}</h1>" in asked.html("row", step=4, row=3)
    for page, values in (
        ("row", {"step": 4, "row": 16}),
        ("row", {"index": 10**9}),
        ("step", {"step": 10**9}),
        ("row", {"index": 5, "by": "nothing"}),
        ("document", {"source": "wiki", "document": 10**6}),
        ("document", {"source": "nobody", "document": 0}),
        ("diff", {}),  # there is one run
    ):
        assert asked.get(page, **values).status == 400, (page, values)


def test_places_of_a_document_are_those_of_where(asked, run):
    for source, document in (("wiki", 3), ("code", 7), ("book", 0)):
        known = (
            (one.step, one.row, one.index, one.column)
            for one in run.where(source, document, batch_size=16)
        )
        seen, after = [], None
        for _ in range(4):
            page = asked.html("document", source=source, document=document, after=after)
            rows = re.findall(
                r'<tr><td><a href="step\?step=(\d+)">[\d,]+</a></td>'
                r'<td><a href="row\?index=(\d+)&amp;cell=(\d+)">([\d,]+)</a>',
                page,
            )
            seen += [(int(s), number(r), int(i), int(c)) for s, i, c, r in rows]
            more = re.search(r'after=(\d+)" class="button">', page)
            if not more:
                break
            after = int(more[1])
        assert len(seen) >= 6
        assert seen == list(itertools.islice(known, len(seen)))


def test_a_document_shows_its_tokens_metadata_and_hash(asked, run):
    store = tl.open(run.sources["wiki"].path)
    page = asked.html("document", source="wiki", document=3)
    found = re.findall(r'<span class="cell [^"]*" data-f="([^"]*)"', page)
    facts = [json.loads(html.unescape(one)) for one in found]
    assert [int(one[2]) for one in facts] == store.document(3).tolist()
    assert [number(one[0]) for one in facts] == list(range(len(facts)))
    assert store.document_hashes([3])[0] in page
    assert "1-3" in page  # its id


def test_colours_follow_segments_sources_and_loss(asked, run):
    full = (k for k in range(99) if int(run.spans([k]).cells.sum()) == run.seq_len)
    index = next(k for k in full if len(run.at(k).spans) > 2)
    tints = {}
    for by in ("segment", "source", "loss"):
        page = asked.html("row", index=index, by=by)
        tints[by] = [int(t) for t in re.findall(r'class="cell t(\d+)[^"]*" data-f', page)]
    batch = run.batch([index])
    assert tints["segment"] == [(k - 1) % 8 + 1 for k in batch.segment_ids[0].tolist()]
    assert tints["loss"] == [0, *(3 * batch.loss_mask[0, :-1]).tolist()]
    assert set(tints["source"]) == {list(run.sources).index(run.at(index).source) + 1}


def test_text_on_a_page_is_marked_wherever_it_is(asked, run):
    index = next(k for k in range(99) if run.at(k).source == "wiki")
    text = bytes(run.batch([index]).tokens[0, :12].astype(np.uint8)).decode()
    page = asked.html("row", index=index, text=text[4:9])
    marked = re.findall(r'class="cell [^"]*found[^"]*"', page)
    assert len(marked) >= 5
    assert not re.findall(r'class="cell [^"]*found', asked.html("row", index=index, text="ÿÿ"))


def test_rows_of_steps_and_runs_that_differ_are_marked(run, asked):
    changed = run.edit(at=500, weights={"wiki": 1})
    both = Asked(Session([run, changed], ["one", "two"], 16))
    for session, a, b, other in ((asked, 4, 4, run), (asked, 4, 5, run), (both, 31, 31, changed)):
        page = session.html("compare", a=a, b=b)
        rows = [
            [(at.source, at.spans) for at in one.at(step=step, batch_size=16)]
            for one, step in ((run, a), (other, b))
        ]
        differ = sum(one != two for one, two in zip(*rows, strict=True))
        assert len(re.findall(r'<li class="differs"', page)) == 2 * differ  # in both lists
    found = tl.diff(run, changed)
    whole = plain(both.html("diff"))
    assert f"{found.first:,}" in whole
    assert all(one.key in whole for one in found.keys)
    assert both.get("row", index=3, run=1).status == 200
    assert both.get("row", index=3, run=2).status == 400


def test_keys_lead_to_the_next_two_steps_as_long_as_there_are_any(asked):
    last = asked.session.run().step_count - 1
    assert 'rel="next"' in asked.html("compare", a=0, b=last - 1)
    assert 'rel="next"' not in asked.html("compare", a=0, b=last)


def test_texts_ids_names_and_metadata_of_strangers_stay_text_on_every_page(evil):
    source = next(iter(evil.session.run().run.sources))
    pages = {
        "step": {"step": 0},
        "row": {"index": 0},
        "document": {"source": source, "document": 0},
        "find": {"kind": "text", "wanted": MARK},
        "compare": {"a": 0, "b": 1},
        "overview": {},
    }
    for name, values in pages.items():
        page = evil.html(name, **values)
        assert MARK not in page, name
        assert "<script>window" not in page, name
        assert "\u202e" not in page, name
        assert html.escape(MARK, quote=False) in page or html.escape(MARK) in page, name
    wrong = evil.html("document", status=400, source=EVIL, document=0)
    assert MARK not in wrong
    assert "javascript:" not in re.findall(
        r'href="([^"]*)"', "".join(evil.html("document", source=source, document=0))
    )
    found = evil.html("find", kind="id", wanted=EVIL)
    assert "document?source=" in found
    assert MARK not in found


def explored(store_or_run, size=4, name="toy"):
    return Asked(Session([store_or_run], [name], size))


@pytest.mark.parametrize(
    "texts", [[], [""], ["a"], ["ab"] * 3], ids=["none", "empty", "one", "few"]
)
def test_small_stores_have_pages_too(tmp_path, texts):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing to train on
        store = tl.build(path, tmp_path / "s", tokenizer="bytes", progress=False)
    asked = explored(store.windows(2))
    for page in ("", "step", "find", "compare", "overview"):
        assert asked.get(page).status == 200, page
    assert asked.get("row").status == (200 if len("".join(texts)) >= 2 else 400)
    assert asked.get("document").status == (200 if texts else 400)
    assert asked.get("find", kind="text", wanted="a").status == 200


def test_a_run_of_a_thousand_sources_has_small_pages(tmp_path):
    store = tl.build(
        [{"text": f"text {k} " * 4} for k in range(50)],
        tmp_path / "s",
        tokenizer="bytes",
        progress=False,
    )
    names = {f"source {k}": store.windows(16).shuffle() for k in range(1000)}
    run = tl.mix(names, weights={"source 7": 5.0}, cost="rows").take(5000)
    asked = explored(run, 64)
    page = asked.html("step", step=3)
    assert page.count("<option") == 0  # a name is typed
    assert len(page) < 300_000
    assert asked.get("row", index=17).status == 200
    assert asked.get("goto", source="source 7", after=3).status == 303


def test_a_document_of_a_million_tokens_is_shown_page_by_page(tmp_path):
    text = "".join(f"{k:06d} " for k in range(150_000))
    store = tl.build(
        [{"text": "a"}, {"text": text}], tmp_path / "s", tokenizer="bytes", progress=False
    )
    asked = explored(store.windows(1_000_000))
    page = asked.html("document", document=1, first=7 * 2048)
    assert len(page) < 800_000
    facts = [
        json.loads(html.unescape(one))
        for one in re.findall(r'<span class="cell [^"]*" data-f="([^"]*)"', page)
    ]
    assert "".join(one[1] for one in facts).replace("␣", " ") == text[7 * 2048 : 8 * 2048]
    assert asked.get("document", document=1, first=10**9).status == 200
    row = asked.html("row", index=0, first=500_000 // 2048 * 2048)
    cells = cells_of(row)
    assert len(row) < 1_500_000
    assert number(cells[0]["cell"]) == 500_000 // 2048 * 2048
    assert number(cells[5]["offset"]) == number(cells[5]["cell"]) - 1
    far = asked.html("row", index=0, cell=777_777)
    (chosen,) = re.findall(r'class="cell [^"]*chosen" data-f="([^"]*)"', far)
    assert json.loads(html.unescape(chosen))[0] == "777,777"


def test_a_page_of_steps_reads_a_few_tokens_of_each_row(asked, run):
    for page, rows in (("step", 16), ("compare", 32)):
        before = run.counters()
        asked.html(page, step=2, a=1, b=2)
        after = run.counters()
        assert 0 < after.ranges - before.ranges <= rows
        assert after.useful_bytes - before.useful_bytes <= rows * TOKENS_OF_A_ROW * 4


def test_documents_that_were_appended_during_the_run_are_shown_too(tmp_path):
    path = tmp_path / "s"
    before = tl.build([{"text": "abcd" * 9}], path, tokenizer="bytes", progress=False)
    run = before.windows(4).shuffle().epochs(3)
    tl.build([{"text": "wxyz" * 9}], path, tokenizer="bytes", append=True, progress=False)
    grown = run.edit(at=4, append={"main": tl.open(path)})
    asked = explored(grown)
    places = list(grown.where(doc=1))
    index = places[0].index
    assert {one["document"] for one in cells_of(asked.html("row", index=index))} == {"1"}
    listed = re.findall(r"row\?index=(\d+)&amp;cell", asked.html("document", document=1))
    assert len(listed) >= 9
    assert [int(one) for one in listed] == [one.index for one in places[: len(listed)]]
    found = asked.html("find", kind="text", wanted="wxyz")
    assert "document?source=main&amp;document=1" in found


def test_a_report_is_made_once_and_one_that_fails_is_tried_again(run, monkeypatch):
    calls = []

    def torn(*given, **named):
        calls.append(1)
        raise tl.StoreCorrupt("s: <b>a byte</b> is another one.")

    monkeypatch.setattr(session_module, "report_on", torn)
    asked = Asked(Session([run, run], ["toy", "other"], 4))
    for count in (1, 2):
        said = "s: &lt;b&gt;a byte&lt;/b&gt; is another one."
        assert said in asked.html("overview", status=400, run=1)
        assert len(calls) == count
    monkeypatch.undo()
    assert 'class="headline"' in asked.html("overview", run=1)
    monkeypatch.setattr(session_module, "report_on", torn)
    assert 'class="headline"' in asked.html("overview", run=1)
    assert len(calls) == 2


def test_a_report_that_is_being_made_ends_with_the_explorer(run, monkeypatch, caplog):
    parts = []

    def slow(*given, tell, **named):
        while len(parts) < 100:
            tell("a part")
            parts.append(1)
            asked.session.stop()

    monkeypatch.setattr(session_module, "report_on", slow)
    asked = Asked(Session([run], ["toy"], 4))
    assert "the explorer ends" in asked.html("overview", status=400)
    assert len(parts) == 1
    assert caplog.text == ""


@pytest.mark.filterwarnings("ignore:.*no documents")
@pytest.mark.parametrize("command", [["report", "-o"], ["explore", "--seconds"]])
def test_commands_that_look_take_a_run_without_examples_which_others_refuse(tmp_path, command):
    (tmp_path / "none.jsonl").write_text("")
    tl.build(tmp_path / "none.jsonl", tmp_path / "empty", tokenizer="bytes", progress=False)
    path = tmp_path / "empty.yaml"
    path.write_text("sources: {main: {store: empty, windows: 8}}\n")
    value = str(tmp_path / "r.html") if command[0] == "report" else "0.1"
    assert main([command[0], str(path), command[1], value]) == 0
    assert main(["plan", str(path)]) == 2
