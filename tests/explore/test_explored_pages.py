"""What pages show is what the run answers."""

import html
import itertools
import json
import re
import warnings
from collections import Counter

import numpy as np
import pytest
from exploring import Asked
from pagetoys import EVIL, MARK, everything_run, texts_of

import tokenloom as tl
from tokenloom.explore import session as session_module
from tokenloom.explore.ages import ages_of
from tokenloom.explore.cell_facts import NAMES, row_cells
from tokenloom.explore.cell_marks import AGE_TINTS
from tokenloom.explore.first_words import MOST_LETTERS, TOKENS_OF_A_ROW, UNREAD
from tokenloom.explore.pages import overview_page
from tokenloom.explore.pages.step_page import ROWS_OF_A_PAGE
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.layout.pack.rows import Packed
from tokenloom.page.markup import visible
from tokenloom.page.strips import MOST_SEGMENTS
from tokenloom.page.token_cells import DOTTED
from tokenloom.report import report_on


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
            about = f"<bdi>{one.source}</bdi>, epoch {one.route.epoch}"
            assert f'row {one.row}</span><span class="soft"> {about}</span>' in page


@pytest.mark.parametrize(
    ("page", "values", "keys"),
    [
        ("step", {"step": 3}, "npjk/"),
        ("row", {"index": 5}, "npjk←→/"),
        ("document", {"source": "wiki", "document": 3}, "←→"),
        ("compare", {"a": 1, "b": 2}, "np/"),
        ("compare", {"a": 1, "b": 2, "row": 3}, "np←→/"),
        ("find", {}, "/"),
        ("edit", {}, "/"),
        ("overview", {}, ""),
    ],
)
def test_the_foot_of_a_page_tells_the_keys_that_do_something_there(asked, page, values, keys):
    shown = asked.html(page, **values)
    assert "".join(re.findall(r"<kbd>(.)</kbd>", shown)) == keys
    links = {"next": "n", "prev": "p", "down": "j", "up": "k"}
    led = {links[one] for one in re.findall(r'<link rel="(next|prev|down|up)"', shown)}
    assert led <= set(keys)
    assert ("n" in keys, "j" in keys) == (bool(led & set("np")), bool(led & set("jk")))
    assert ("/" in keys, "→" in keys) == ('id="go"' in shown, "data-f=" in shown)


def test_a_row_of_a_step_starts_with_its_words_and_the_number_of_its_document(asked, run):
    for step in (0, 25):
        page = asked.html("step", step=step)
        told = re.findall(
            r'class="row-document">([^<]*)</span> <bdi>([^<]*)</bdi></span><svg', page
        )
        examples = run.at(step=step, batch_size=16, text=True)
        for one, (about, words) in zip(examples, told, strict=True):
            first, more = one.spans[0], len(one.spans) - 1
            assert about == f"document {first.document:,}" + f" and {more} more" * (more > 0)
            known = " ".join(first.text.split())
            assert known.startswith(html.unescape(words))
            assert len(words) >= min(len(known), TOKENS_OF_A_ROW - 16)


def test_first_words_are_bounded_and_whole(tmp_path):
    rows = [{"text": "日本語" * 99}, {"text": ""}, {"text": "\ta\n b" * 99}, {"text": "x" * 999}]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    page = explored(store.windows(128), 2).html("step", step=0)
    words = re.findall(r"<bdi>([^<]*)</bdi></span><svg", page)
    assert words[0] == "日本語" * 7  # 64 bytes are 21 letters and a third
    asked = explored(store.windows(128), 2)
    asked.session.run().text = lambda source, ids: None  # a store of ids alone
    (words, *_) = re.findall(r"<bdi>([^<]*)</bdi></span><svg", asked.html("step", step=0))
    assert words == " ".join(str(one) for one in store.document(0)[:64].tolist())[:MOST_LETTERS]


def test_a_step_of_a_store_that_cannot_be_read_still_has_its_strips(tmp_path, monkeypatch):
    store = tl.build([{"text": "abcd" * 99}], tmp_path / "s", tokenizer="bytes", progress=False)
    whole = explored(store.windows(8)).html("step", step=0)

    def torn(*given, **named):
        raise tl.StoreCorrupt("s: a byte is another one.")

    asked = explored(store.windows(8))
    monkeypatch.setattr(type(store.reader), "read", torn)
    page = asked.html("step", step=0)
    assert "abcdabcd" in whole
    assert page.count(UNREAD) == 4
    assert page.count("<svg") == whole.count("<svg")


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
                    # of the prediction of this token, which is made one cell before
                    weight = batch.loss_weights[0, cell - 1] if cell else 0
                    assert float(one["weight"]) == weight
                    label = int(batch.labels[0, cell])
                    assert one["label"] == ("none" if label == -100 else f"{label:,}")
                    assert (one["label"] == "none") == (weight == 0)


@pytest.mark.parametrize("index", [0, 1, 5])
def test_dotted_cells_are_those_that_are_no_target_in_the_explorer_and_in_a_notebook(
    asked, run, index
):
    batch = run.batch([index])
    marks = r'<span class="(cell t[^"]*)" %s="([^"]*)"'
    page = re.findall(marks % "data-f", asked.html("row", index=index))
    told = [(classes, json.loads(html.unescape(facts))) for classes, facts in page]
    book = re.findall(marks % "title", batch.view()._repr_html_())
    for classes, facts in told:
        cell = number(facts[0])
        target = bool(cell and batch.loss_mask[0, cell - 1])
        if cell < run.seq_len:
            assert ("untrained" in classes) == ("untrained" in book[cell][0]) or " t0" in classes
            assert ("untrained" not in classes) == target or "filler" in facts
    assert any("untrained" in classes for classes, _ in told)


def test_shifted_labels_tell_the_same_about_a_token(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    runs = store.windows(8), store.windows(8, label_layout="shifted", lookahead=True)
    aligned, ahead = (cells_of(explored(one).html("row", index=0)) for one in runs)
    facts = [
        [(one["id"], one["label"], one["weight"]) for one in line] for line in (aligned, ahead)
    ]
    assert facts[1][:8] == facts[0]
    assert ahead[8]["label"] == ahead[8]["id"] == str(ord("a"))  # the look-ahead cell is a target
    assert ahead[0]["label"] == "none"


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


AGES = ("never before", "in this step", "1 to 9 steps ago", "10 to 99", "100 to 999")


def test_tints_of_ages_are_those_of_the_steps_since(asked, run):
    seen = set()
    picked = run.picked(range(9000, 9100))[0]
    late = [9000 + picked.index(name) for name in ("wiki", "code", "book")]
    for index in (3, 77, 1500, *late):
        page = asked.html("row", index=index, by="age")
        tints = re.findall(r'class="cell t(\d+)[^"]*" data-f="([^"]*)"', page)
        told = {json.loads(html.unescape(facts))[4]: int(tint) for tint, facts in tints}
        legend = re.findall(r'swatch t(\d+)"[^>]*></span>([^<]+)</li>', page)
        named = {words: int(tint) for tint, words in legend}
        assert len(set(named.values())) == len(named)
        for span in run.at(index).spans[:16]:
            before = [p.index for p in run.where(span.source, span.document, before=index)]
            steps = index // 16 - before[-1] // 16 if before else None
            bucket = 0 if steps is None else 1 + sum(steps >= n for n in (1, 10, 100, 1000))
            assert told[f"{span.document:,}"] == named[AGES[bucket]], (index, span.document)
            seen.add(bucket)
    assert seen >= {0, 1, 2, 3}, seen


@pytest.mark.parametrize(("rows", "bucket"), [(9, 2), (10, 3), (99, 3), (100, 4), (999, 4)])
def test_ages_are_told_apart_at_the_edges_that_the_legend_names(tmp_path, rows, bucket):
    texts = [{"text": f"{k:04d}"} for k in range(rows)]
    store = tl.build(texts, tmp_path / "s", tokenizer="bytes", progress=False)
    one = ExploredRun(store.windows(4).epochs(3), "toy", 0, 1)  # in order: back after as many steps
    assert ages_of(one, "main", 1, rows + 3, [3])[3].bucket == bucket
    assert ages_of(one, "main", 1, rows + 3, [3])[3].words == f"{rows} steps ago (example 3)"


def test_control_ages_in_other_steps_have_other_tints(asked):
    row = asked.session.run().run.at(3).spans[0]
    explored = asked.session.run()
    early, late = (ages_of(explored, row.source, 0, at, [row.document]) for at in (3, 500))
    assert AGE_TINTS[early[row.document].bucket] != AGE_TINTS[late[row.document].bucket]


def test_colours_follow_segments_sources_and_loss(asked, run):
    full = (k for k in range(99) if int(run.spans([k]).cells.sum()) == run.seq_len)
    index = next(k for k in full if len(run.at(k).spans) > 2)
    tints, legends = {}, {}
    for by in ("segment", "source", "loss", "age"):
        page = asked.html("row", index=index, by=by)
        tints[by] = [int(t) for t in re.findall(r'class="cell t(\d+)[^"]*" data-f', page)]
        legends[by] = plain(re.search(r'<ul class="legend">.*?</ul>', page)[0])
    batch = run.batch([index])
    assert tints["segment"] == [(k - 1) % 8 + 1 for k in batch.segment_ids[0].tolist()]
    assert tints["loss"] == [0, *(3 * batch.loss_mask[0, :-1]).tolist()]
    source = run.at(index).source
    assert set(tints["source"]) == {list(run.run.names).index(source) + 1}
    assert legends["source"].startswith(source)
    assert all(DOTTED in one for one in legends.values())
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
    page = plain(asked.made("overview"))
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
        page = evil.made(name, **values)
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
    page = asked.html("step", step=3)
    rows = Counter(one.source for one in run.at(step=3, batch_size=64)[:32])
    told = re.findall(
        r'<span class="swatch (\w+)"[^>]*></span><span><bdi>([^<]*)</bdi>: (\d+) row', page
    )
    largest = sorted(rows, key=lambda name: (-rows[name], name))[:8]
    assert told == [(f"s{k}", name, str(rows[name])) for k, name in enumerate(largest, 1)]
    assert f"{len(rows) - 8} other sources: {32 - sum(rows[one] for one in largest)} rows" in page
    for name, strip in re.findall(r"<bdi>(source \d+)</bdi>, epoch.*?(<svg.*?</svg>)", page):
        drawn = re.search(r'class="(s\d|rest)( odd)?"', strip)[1]
        assert drawn == (f"s{largest.index(name) + 1}" if name in largest else "rest")
    assert page.count("<option") == 0  # a name is typed
    assert len(page) < 300_000
    assert asked.get("row", index=17).status == 200
    assert asked.get("goto", source="source 7", after=3).status == 303
    edit = asked.html("edit", at=10, weights="source 9=2")
    assert len(edit) < 30_000  # 92,000 pixels of run file once
    assert edit.count("\n") < 100
    assert "source 9: 2" in edit
    assert "and 970 lighter ones" in edit
    assert "The whole file has 1,000 sources" in edit


def test_a_report_on_very_many_sources_is_made_when_it_is_asked_for(tmp_path, monkeypatch):
    store = tl.build([{"text": "abcd" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    calls = []

    def counted(run, **settings):
        calls.append(len(run.sources))
        return report_on(run, **settings)

    monkeypatch.setattr(session_module, "report_on", counted)
    monkeypatch.setattr(overview_page, "AT_ONCE", 3)
    for many in (3, 4):
        run = tl.mix({f"s{k}": store.windows(8) for k in range(many)}).take(200)
        asked = explored(run)
        page = asked.made("overview")
        assert ("Not made yet" in page) == (many > overview_page.AT_ONCE) == (calls != [many])
    assert f"each of the {many:,} sources" in page
    assert "What is trained" in plain(asked.made("overview", whole=1))
    assert "What is trained" in plain(asked.html("overview"))  # it is kept
    assert calls == [many - 1, many]


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
    assert 'name="first" value="14336"' in page  # the way to any other token
    last = asked.html("document", document=1, first=10**9)
    assert f"of {len(text):,}" in last
    row = asked.html("row", index=0, first=500_000 // 2048 * 2048)
    cells = cells_of(row)
    assert len(row) < 1_500_000
    assert number(cells[0]["cell"]) == 500_000 // 2048 * 2048
    assert number(cells[5]["offset"]) == number(cells[5]["cell"]) - 1
    assert 'id="to-cell"' in row
    far = asked.html("row", index=0, cell=777_777)
    (chosen,) = re.findall(r'class="cell [^"]*chosen" data-f="([^"]*)"', far)
    assert json.loads(html.unescape(chosen))[0] == "777,777"
    assert 'id="to-cell"' not in explored(store.windows(64)).html("row", index=0)


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


def test_a_page_of_steps_reads_a_few_tokens_of_each_row(asked, run):
    for page, rows in (("step", 16), ("compare", 32)):
        before = run.counters()
        asked.html(page, step=2, a=1, b=2)
        after = run.counters()
        assert 0 < after.ranges - before.ranges <= rows
        assert after.useful_bytes - before.useful_bytes <= rows * TOKENS_OF_A_ROW * 4


def test_a_page_of_steps_plans_the_groups_of_its_rows_once_and_draws_a_bounded_strip_of_each(
    tmp_path, monkeypatch
):
    texts = [{"text": "abcde"} for _ in range(30_000)]
    store = tl.build(texts, tmp_path / "s", tokenizer="bytes", progress=False)
    run = store.pack(1000, group_docs=400).shuffle()  # 200 documents a row, two rows a group
    asked, layout = explored(run, 64), run.run.sources[0].layout
    planned, plan = [], Packed.plan

    def counted(self, number):
        planned.append(number)
        return plan(self, number)

    monkeypatch.setattr(Packed, "plan", counted)
    page = asked.html("step", step=1)
    rows = run.run.locate(np.arange(64, 64 + ROWS_OF_A_PAGE))[1]
    groups = np.unique(layout.blocks().of(rows)).tolist()
    assert sorted(planned) == groups
    assert len(groups) < len(layout.groups)
    assert page.count("<rect") <= ROWS_OF_A_PAGE * (MOST_SEGMENTS + 1)
    assert page.count(" and 199 more<") == ROWS_OF_A_PAGE  # all of them are counted
    assert asked.html("step", step=1) == page
    assert sorted(planned) == groups


def test_texts_that_need_no_escaping_are_not_escaped(tmp_path, monkeypatch):
    """Most of a page are numbers; escaping each took as long as all the rest of its drawing."""
    store = tl.build([{"text": "abcde"}] * 9000, tmp_path / "s", tokenizer="bytes", progress=False)
    asked, escaped, escape = explored(store.pack(500), 32), [], html.escape

    def counted(text, quote=True):
        escaped.append(text)
        return escape(text, quote=quote)

    monkeypatch.setattr(html, "escape", counted)
    page = asked.html("step", step=0)
    assert page.count("<rect") > 2000
    assert len(escaped) < page.count("<rect") / 10


def test_documents_that_were_appended_during_the_run_are_shown_too(tmp_path):
    path = tmp_path / "s"
    before = tl.build([{"text": "abcd" * 9}], path, tokenizer="bytes", progress=False)
    run = before.windows(4).shuffle().epochs(3)
    tl.build([{"text": "wxyz" * 9}], path, tokenizer="bytes", append=True, progress=False)
    grown = run.edit(at=4, append={"main": tl.open(path)})
    asked = explored(grown)
    assert "<h1>Document 1 of <bdi>main</bdi>" in asked.html("document", document=1)
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
    for page, values, advice in (
        ("step", {"step": 6000}, "run.at(step=6000, batch_size=16)"),
        ("row", {"index": 96000}, "run.at(96000)"),
        ("compare", {"a": 6000, "b": 6000}, "run.at(step=6000, batch_size=16)"),
        ("goto", {"source": "s0", "after": 96000}, "run.at(96000)"),
    ):
        found = late.html(page, **values)
        assert "not kept yet" in found, page
        assert advice in found
    found = late.html("document", source="s0", document=1, after=96100)
    assert "not kept yet" in found
    assert "run.next('s0', 1, after=96100)" in html.unescape(found)
    assert 'class="cell plain"' in found  # its tokens are shown
    assert late.get("find", kind="text", wanted="a").status == 200
    late.session.run().run.at(step=6000, batch_size=16)  # what the page says to do
    assert "<h1>Example 96,000" in late.html("row", index=96000)
    assert "<h1>Step 6,000" in late.html("step", step=6000)


def test_control_with_time_for_them_the_same_pages_are_shown(tmp_path):
    late = Asked(Session([by_tokens(tmp_path)], ["late"], 16))
    assert "<h1>Step 6,000" in late.html("step", step=6000)
    assert "not kept" not in late.html("document", source="s0", document=1, after=900)
