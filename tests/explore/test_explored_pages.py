"""What pages show is what the run answers."""

import html
import itertools
import json
import re
import warnings

import numpy as np
import pytest
from exploring import Asked
from pagetoys import EVIL, MARK, everything_run, texts_of

import tokenloom as tl
from tokenloom.explore.cell_facts import NAMES, row_cells
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.page.markup import visible


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
        for one in examples:
            assert (
                f'row {one.row}</span><span class="soft"> {one.source}, epoch {one.route.epoch}'
                in page
            )


def test_strips_are_where_documents_are(asked, run):
    strips = asked.html("step", step=3).split("<svg")[1:]
    for drawn, one in zip(strips, run.at(step=3, batch_size=16), strict=True):
        names = re.findall(r"<title>document ([\d,]+): cells ([\d,]+) to ([\d,]+)</title>", drawn)
        assert [tuple(map(number, found)) for found in names] == [
            (span.document, span.cells[0].column, span.cells[-1].column + span.cells[-1].length - 1)
            for span in one.spans
        ]


@pytest.mark.parametrize("index", [0, 1, 2, 5, 399, 401])
def test_cells_tell_what_at_and_the_batch_have(asked, run, index):
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
                    assert float(one["weight"]) == batch.loss_weights[0, cell]
                    label = int(batch.labels[0, cell])
                    assert one["label"] == ("none" if label == -100 else f"{label:,}")


def test_control_other_cells_tell_something_else(asked):
    assert cells_of(asked.html("row", index=0)) != cells_of(asked.html("row", index=1))


def test_a_row_is_found_by_step_and_row_too(asked, run):
    index = run.at(step=4, row=3, batch_size=16).index
    assert f"<h1>Example {index}</h1>" in asked.html("row", step=4, row=3)
    assert "allowed in step 4" in asked.html("row", status=400, step=4, row=16)
    assert "out of range" in asked.html("step", status=400, step=10**9)
    assert asked.get("row", index=10**9).status == 400


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
            more = re.search(r'after=(\d+)" class="button">later places', page)
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
    assert "1-3" in page
    assert asked.get("document", source="wiki", document=10**6).status == 400
    assert asked.get("document", source="nobody", document=0).status == 400


def test_a_source_leads_to_its_next_row(asked, run):
    names = [run.picked([k])[0][0] for k in range(120)]
    for name in ("wiki", "code", "book"):
        for after in (0, 5, 40):
            reply = asked.get("goto", source=name, after=after)
            found = int(dict(reply.headers)["Location"].partition("index=")[2])
            assert found == next(k for k in range(after + 1, 120) if names[k] == name)
    assert "shows no row" in asked.html("goto", source="wiki", after=10**9)


def test_age_is_counted_from_the_last_place_before(asked, run):
    for index in (3, 200, 500):
        example = run.at(index)
        cells = cells_of(asked.html("row", index=index, by="age"))
        for span in example.spans[:16]:
            before = [p.index for p in run.where(span.source, span.document, before=index)]
            said = next(c["last shown"] for c in cells if c["document"] == f"{span.document:,}")
            assert (f"(example {before[-1]:,})" in said) if before else said == "never before"


def test_colours_follow_segments_sources_and_loss(asked, run):
    index = next(k for k in range(99) if len(run.at(k).spans) > 2)
    tints = {}
    for by in ("segment", "source", "loss", "age"):
        page = asked.html("row", index=index, by=by)
        tints[by] = re.findall(r'class="cell t(\d+)[^"]*" data-f', page)
    weights = run.batch([index]).loss_weights[0]
    shown = row_cells(asked.session.run(), index)
    together = len(tints["loss"]) < run.seq_len  # a long filler is one cell
    assert together or [t != "0" for t in tints["loss"]] == (weights > 0).tolist()
    assert len(set(tints["segment"])) > 2
    assert len(set(tints["source"]) - {"0"}) == 1
    assert shown.width == run.run.width
    assert asked.get("row", index=index, by="nothing").status == 400


def test_text_on_a_page_is_marked_wherever_it_is(asked, run):
    index = next(k for k in range(99) if run.at(k).source == "wiki")
    text = bytes(run.batch([index]).tokens[0, :12].astype(np.uint8)).decode()
    page = asked.html("row", index=index, text=text[4:9])
    marked = re.findall(r'class="cell [^"]*found[^"]*"', page)
    assert len(marked) >= 5
    assert not re.findall(r'class="cell [^"]*found', asked.html("row", index=index, text="ÿÿ"))


def test_a_chosen_cell_is_told_without_a_script(asked, run):
    page = asked.html("row", index=5, cell=7)
    known = next(one for one in cells_of(page) if one["cell"] == "7")
    told = re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([^<]*)</dd>", page)
    assert {name: html.unescape(value) for name, value in told} == known


def test_steps_are_compared_row_by_row_and_cell_by_cell(run, asked):
    same = asked.html("compare", a=4, b=4)
    assert "16 of 16 rows" in plain(same)
    assert 'class="differs"' not in same
    other = asked.html("compare", a=4, b=5)
    assert "0 of 16 rows" in plain(other)
    pair = asked.html("compare", a=4, b=5, row=2)
    indices = [run.at(step=step, row=2, batch_size=16).index for step in (4, 5)]
    a, b = run.batch(indices).tokens
    segments = run.batch(indices).segment_ids
    weights = run.batch(indices).loss_weights
    odd = (a != b) | (segments[0] != segments[1]) | (weights[0] != weights[1])
    assert f"{int(odd.sum())} of 64 cells differ" in plain(pair)


def test_two_runs_are_compared_and_their_difference_is_that_of_diff(run):
    changed = run.edit(at=500, weights={"wiki": 1})
    both = Asked(Session([run, changed], ["one", "two"], 16))
    assert "16 of 16 rows" in plain(both.html("compare", a=3, b=3))
    late = both.html("compare", a=40, b=40)
    assert "16 of 16 rows" not in plain(late)
    found = tl.diff(run, changed)
    whole = plain(both.html("diff"))
    assert f"xample {found.first:,} is the first that differs" in whole
    assert all(one.key in whole for one in found.keys)
    assert "<h1>Example 3" in both.html("row", index=3, run=1)
    assert both.get("row", index=3, run=2).status == 400


def test_one_run_has_nothing_to_be_compared_with_as_a_whole(asked):
    assert "allowed: two" in plain(asked.html("diff", status=400))
    assert 'href="diff"' not in asked.html("compare", a=0, b=1)


def test_the_overview_has_the_answers_of_the_report(asked, run):
    from tokenloom.report import report_on

    page = plain(asked.html("overview"))
    for one in report_on(run, batch_size=16).answers:
        assert one.sentence in page


def test_texts_ids_names_and_metadata_of_strangers_stay_text_on_every_page(evil):
    source = evil.session.run().run.run.names[0]
    pages = {
        "step": {"step": 0},
        "row": {"index": 0},
        "document": {"source": source, "document": 0},
        "find": {"kind": "text", "wanted": MARK},
        "compare": {"a": 0, "b": 1},
        "edit": {"at": 2, "weights": f"{source}=3"},
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
    assert "1 document" in plain(found)
    assert MARK not in found


def test_control_a_name_that_is_taken_for_markup_is_found(evil, monkeypatch):
    from tokenloom.page import markup

    monkeypatch.setattr(markup.html, "escape", lambda text, quote=True: text)
    assert MARK in evil.html("step", step=0)


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
    for page in ("", "step", "find", "compare", "edit", "overview"):
        assert asked.get(page).status == 200, page
    assert asked.get("row").status == (200 if len("".join(texts)) >= 2 else 400)
    assert asked.get("document").status == (200 if texts else 400)
    assert asked.get("find", kind="text", wanted="a").status == 200


def test_a_thousand_sources_have_eight_colours_and_a_page(tmp_path):
    store = tl.build(
        [{"text": f"text {k} " * 4} for k in range(50)],
        tmp_path / "s",
        tokenizer="bytes",
        progress=False,
    )
    names = {f"source {k}": store.windows(16).shuffle() for k in range(1000)}
    run = tl.mix(names, weights={"source 7": 5.0}, cost="rows").take(5000)
    asked = explored(run, 64)
    colours = asked.session.run().colours
    assert sorted(set(colours.values())) == list(range(1, 10))
    assert colours["source 7"] < 9
    page = asked.html("step", step=3)
    assert page.count("<option") == 0  # a name is typed
    assert len(page) < 300_000
    assert asked.get("row", index=17).status == 200
    assert asked.get("goto", source="source 7", after=3).status == 303
    assert asked.get("edit", at=10, weights="source 9=2").status == 200


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
    assert "".join(one[1] for one in facts) == text[7 * 2048 : 8 * 2048]
    last = asked.html("document", document=1, first=10**9)
    assert f"of {len(text):,}" in last
    row = asked.html("row", index=0, first=500_000 // 2048 * 2048)
    cells = cells_of(row)
    assert len(row) < 1_500_000
    assert number(cells[0]["cell"]) == 500_000 // 2048 * 2048
    assert number(cells[5]["offset"]) == number(cells[5]["cell"]) - 1


def test_what_cannot_be_seen_is_written_out_and_letters_of_several_tokens_are_whole(evil):
    run = evil.session.run().run
    pages = "".join(evil.html("row", index=k) for k in range(len(run)))
    assert "你" in pages
    assert "ש" in pages
    assert "\x1b" not in pages
    assert "\x00" not in pages
    assert "\\x1b" in pages or "␛" in pages
    assert visible("\u202e") in pages or "<0xE2>" in html.unescape(pages)


def test_a_row_page_reads_its_own_row_and_no_other(tmp_path):
    run = everything_run(tmp_path)
    session = ExploredRun(run, "toy", 0, 16)
    run[0].tokens  # noqa: B018 - opens the files
    for index in (5, 77):
        before = run.counters()
        row_cells(session, index)
        after = run.counters()
        spans = run.spans([index])
        assert after.ranges - before.ranges <= len(spans.document)
        assert after.useful_bytes - before.useful_bytes <= int(spans.length.sum()) * 8


def test_no_page_of_steps_reads_a_token(asked, run):
    before = run.counters()
    asked.html("step", step=2)
    asked.html("compare", a=1, b=2)
    assert run.counters() == before


def test_documents_that_were_appended_during_the_run_are_shown_too(tmp_path):
    path = tmp_path / "s"
    before = tl.build([{"text": "abcd" * 9}], path, tokenizer="bytes", progress=False)
    run = before.windows(4).shuffle().epochs(3)
    tl.build([{"text": "wxyz" * 9}], path, tokenizer="bytes", append=True, progress=False)
    grown = run.edit(at=4, append={"main": tl.open(path)})
    asked = explored(grown)
    assert "<h1>Document 1 of main" in asked.html("document", document=1)
    places = list(grown.where(doc=1))
    index = places[0].index
    assert {one["document"] for one in cells_of(asked.html("row", index=index))} == {"1"}
    listed = re.findall(r"row\?index=(\d+)&amp;cell", asked.html("document", document=1))
    assert len(listed) >= 9
    assert [int(one) for one in listed] == [one.index for one in places[: len(listed)]]
    found = asked.html("find", kind="text", wanted="wxyz")
    assert "document?source=main&amp;document=1" in found


def by_tokens(folder):
    """A mix whose steps need sums of costs, with no plan or sum in memory."""
    stores = [
        tl.build(texts_of(200, seed), folder / f"s{seed}", tokenizer="bytes", progress=False)
        for seed in (1, 2)
    ]
    runs = {f"s{k}": one.pack(64).shuffle().epochs(None) for k, one in enumerate(stores)}
    return tl.mix(runs, cost="tokens").seed(3)


def test_a_step_whose_sums_are_not_kept_is_greyed_with_the_command(tmp_path, monkeypatch):
    from tokenloom.explore import unkept

    late = Asked(Session([by_tokens(tmp_path)], ["late"], 16))
    monkeypatch.setattr(unkept, "QUICK_ROWS", 3)
    for page, values in (
        ("step", {"step": 50}),
        ("row", {"index": 800}),
        ("compare", {"a": 50, "b": 50}),
        ("goto", {"source": "s0", "after": 800}),
    ):
        found = late.html(page, **values)
        assert "not kept yet" in found, page
        assert "run.at(800)" in found
    found = late.html("document", source="s0", document=1, after=900)
    assert "not kept yet" in found
    assert "run.next('s0', 1, after=900)" in html.unescape(found)
    assert 'class="cell plain"' in found  # its tokens are shown
    assert late.get("find", kind="text", wanted="a").status == 200
    late.session.run().run.at(800)  # what the page says to do
    assert "<h1>Example 800" in late.html("row", index=800)


def test_control_with_time_for_them_the_same_pages_are_shown(tmp_path):
    late = Asked(Session([by_tokens(tmp_path)], ["late"], 16))
    assert "<h1>Step 50" in late.html("step", step=50)
    assert "not kept" not in late.html("document", source="s0", document=1, after=900)
