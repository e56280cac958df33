"""How reports look to a reader: on every screen, in both themes, on paper, with any names."""

import browsing
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from pagetoys import everything_run, texts_of

import tokenloom as tl
from tokenloom.evaluate import Periodic, contrast, evaluate, pz
from tokenloom.inspect import audit_run
from tokenloom.page.axes import drawing, label
from tokenloom.page.markup import joined, tag
from tokenloom.page.sheet import document
from tokenloom.report import report_on
from tokenloom.report.assembled import BRANCHES

# words in a drawing whose box is not inside that of the drawing
OUTSIDE = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
    const box = svg.getBoundingClientRect();
    if (!box.width) return [];
    return [...svg.querySelectorAll("text")].filter((one) => {
        const own = one.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1
            || own.top < box.top - 1 || own.bottom > box.bottom + 1;
    }).map((one) => `${svg.getAttribute("aria-label")}: ${one.textContent}`);
})"""

# pairs of words in one drawing that lie over each other
OVER = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
    const found = [];
    const all = [...svg.querySelectorAll("text")].map((one) => [one.textContent,
        one.getBoundingClientRect()]);
    if (!svg.getBoundingClientRect().width) return [];
    all.forEach(([a, one], n) => all.slice(n + 1).forEach(([b, other]) => {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 1 && high > 5) found.push(`${a} / ${b}`);
    }));
    return found;
})"""

OPEN = "document.querySelectorAll('details').forEach((one) => one.open = true)"

# heads of tables that are wider than their column, so that the next one lies over them
CUT_HEADS = """() => [...document.querySelectorAll("th")].filter((one) =>
    one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""

HEBREW, ARABIC = "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0639\u0631\u0628\u064a"


def saved(folder, name, report):
    path = folder / f"{name}.html"
    path.write_text(report.html, encoding="utf-8")
    return path.as_uri()


def uniform(tokens, segment_ids, position_ids):
    return np.zeros((*tokens.shape, 256))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """URLs of reports of every kind; the whole one has a state, an audit and evaluations."""
    folder = tmp_path_factory.mktemp("looks")
    whole = everything_run(folder).edit(at=410, remove=["wiki"])
    store = tl.build(texts_of(12, 5), folder / "s", tokenizer="bytes", progress=False)
    ask = {"prefix": 4, "suffix": 2, "stride": 8, "progress": False}
    series = Periodic(
        {"held": lambda model: evaluate(model, store, seq_len=64, by=("document",))}, every=10
    )
    for step in (10, 20):
        series(uniform, step)
    windows = pz(uniform, store, **ask)
    answers = {
        "losses": evaluate(uniform, store, seq_len=64, progress=False),
        "again": evaluate(uniform, store, seq_len=32, progress=False),
        "windows": windows,
        "control": contrast(windows, windows, draws=5),
        "series": series,
    }
    runs = {HEBREW: store.pack(64).shuffle(), ARABIC: store.windows(64).shuffle()}
    reports = {
        "run": report_on(whole, batch_size=8, ranks=2, examples=90),
        "whole": report_on(
            whole,
            batch_size=8,
            examples=90,
            certificate=audit_run(whole, 0, 64, progress=False),
            evaluations=answers,
            command="tokenloom report a/long/path/to/run.yaml --batch-size 8 --state s.json " * 3,
        ),
        "leftwards": report_on(tl.mix(runs).seed(2), batch_size=4),
        "store": report_on(store),
        "audit": report_on(audit_run(store.windows(64))),
        "evaluation": report_on(answers),
        "empty": report_on(store.windows(64).take(0), batch_size=2),
    }
    return {name: saved(folder, name, one) for name, one in reports.items()}


KINDS = ["run", "whole", "leftwards", "store", "audit", "evaluation", "empty"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 1280])
def test_no_words_leave_their_drawing_or_lie_over_others(chromium, pages, kind, width):
    with browsing.visit(chromium, pages[kind], width=width) as seen:
        assert seen.page.evaluate(OUTSIDE) == []
        assert seen.page.evaluate(OVER) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.clean(pages[kind])


def test_control_words_outside_and_over_each_other_are_found(chromium, tmp_path):
    words = [label(80, 20, "a long name of an axis"), label(82, 22, "another")]
    path = tmp_path / "toy.html"
    path.write_text(document("toy", tag("main", drawing(100, 40, "toy", words))))
    with browsing.visit(chromium, path.as_uri()) as seen:
        assert seen.page.evaluate(OUTSIDE) == ["toy: a long name of an axis", "toy: another"]
        assert seen.page.evaluate(OVER) == ["a long name of an axis / another"]


@pytest.mark.parametrize(
    ("kind", "scheme", "width"),
    [
        ("store", "dark", 1280),
        ("audit", "light", 360),
        ("evaluation", "dark", 1280),
        ("leftwards", "light", 1280),
        ("whole", "light", 1280),
        ("whole", "dark", 360),
    ],
)
def test_axe_finds_nothing_that_keeps_anybody_out(chromium, pages, kind, scheme, width):
    how = {"scheme": scheme, "width": width, "bypass_csp": True}
    with browsing.visit(chromium, pages[kind], **how) as seen:
        seen.page.evaluate(OPEN)
        found = Axe().run(seen.page).response["violations"]
        assert [(one["id"], [n["target"] for n in one["nodes"]][:3]) for one in found] == []


def test_control_axe_finds_a_picture_without_words(chromium, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(document("bad", tag("main", tag("img", src="data:,"), tag("h1", "x"))))
    with browsing.visit(chromium, path.as_uri(), bypass_csp=True) as seen:
        found = Axe().run(seen.page).response["violations"]
        assert "image-alt" in [one["id"] for one in found]


def test_what_is_read_first_stands_first(chromium, pages):
    parts = "#warnings, #answers, .contents, .figures section, #tree"
    with browsing.visit(chromium, pages["run"]) as seen:
        order = seen.page.locator(parts).evaluate_all(
            "(all) => all.map((one) => one.id || one.className)"
        )
        assert order[:4] == ["warnings", "answers", "contents", "mixture"]
        assert order[-1] == "tree"
        assert not seen.page.locator("#tree pre").is_visible()
        assert seen.page.locator("#mixture svg").first.bounding_box()["y"] < 900  # on the screen
    with browsing.visit(chromium, pages["run"], width=360) as phone:
        tops = [
            phone.page.locator(one).first.bounding_box()["y"]
            for one in ("#warnings", "#answers", ".contents", "#mixture")
        ]
        assert tops == sorted(tops)


@pytest.mark.parametrize("width", [1280, 2560])
def test_five_answers_are_one_row_each_with_a_large_number(chromium, pages, width):
    with browsing.visit(chromium, pages["run"], width=width) as seen:
        cards = seen.page.locator(".answers > li")
        boxes = [one.bounding_box() for one in cards.all()]
        assert len(boxes) == 5
        assert len({one["y"] for one in boxes}) == 1
        right = boxes[-1]["x"] + boxes[-1]["width"]
        whole = seen.page.locator("#answers").bounding_box()
        assert right == pytest.approx(whole["x"] + whole["width"], abs=1)  # no hole
        numbers, words = (
            cards.locator(one).evaluate_all(
                "(all) => all.map((one) => parseFloat(getComputedStyle(one).fontSize))"
            )
            for one in (".headline b", "p:not(.headline)")
        )
        assert len(numbers) == 5
        assert min(numbers) > 1.6 * max(words)


def test_a_wide_screen_is_used_and_a_desk_has_notes_in_the_margin(chromium, pages):
    def place(page, part):
        box = page.locator(part).first.bounding_box()
        return box["x"], box["y"]

    with browsing.visit(chromium, pages["run"], width=2560) as seen:
        left, right = seen.page.locator(".figures > div").all()
        one, other = left.bounding_box(), right.bounding_box()
        assert one["x"] + one["width"] < other["x"]
        assert one["y"] == other["y"]
        assert 0.6 < one["height"] / other["height"] < 1.6  # about as long as each other
    for width, beside in ((1280, True), (900, False), (360, False)):
        with browsing.visit(chromium, pages["run"], width=width) as seen:
            drawn = place(seen.page, "#rows .drawing")
            notes = place(seen.page, "#rows .notes")
            assert (notes[0] > drawn[0]) == beside, width
            assert (notes[1] > drawn[1] + 100) != beside, width


def test_paper_is_light_whatever_the_screen_was(chromium, pages):
    with browsing.visit(chromium, pages["run"], scheme="light") as seen:
        seen.page.locator("button.theme").click()
        colour = "getComputedStyle(document.querySelector('h1')).color"
        assert seen.page.evaluate(colour) == "rgb(232, 235, 239)"  # dark now
        for scheme in ("light", "dark"):
            seen.page.emulate_media(media="print", color_scheme=scheme)
            assert seen.page.evaluate(colour) == "rgb(27, 31, 36)"
        assert seen.page.locator(".figures").evaluate("(one) => getComputedStyle(one).display") == (
            "block"
        )


def order_of(page, part, *words):
    """Words of an element by the left edges of their letters."""
    return page.locator(part).first.evaluate(
        """(one, words) => {
            const nodes = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
            const found = [];
            for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
                for (const word of words) {
                    const at = node.data.indexOf(word);
                    if (at < 0) continue;
                    const range = document.createRange();
                    range.setStart(node, at);
                    range.setEnd(node, at + word.length);
                    found.push([range.getBoundingClientRect().left, word]);
                }
            }
            return found.sort((a, b) => a[0] - b[0]).map((one) => one[1]);
        }""",
        list(words),
    )


def test_names_from_right_to_left_turn_nothing_around_them(chromium, pages, tmp_path):
    with browsing.visit(chromium, pages["leftwards"]) as seen:
        about = seen.page.locator(f".strip-name:has-text('{HEBREW}')").first
        about.evaluate("(one) => { one.id = 'one'; }")
        words = ["row", HEBREW, "document"]
        assert order_of(seen.page, "#one", *words) == words
        assert seen.page.locator(f".legend bdi:text('{HEBREW}')").count()
    pieces = {"names": f"{HEBREW}: 4 rows", "control": f"{HEBREW}: 4 rows"}
    shown = [
        tag("p", pieces["names"], id="names"),
        tag("span", pieces["control"], id="control"),
        drawing(400, 30, "toy", [tag("text", pieces["names"], x=10, y=20, id="drawn")]),
    ]
    path = tmp_path / "names.html"
    path.write_text(document("toy", tag("main", joined(shown))), encoding="utf-8")
    with browsing.visit(chromium, path.as_uri()) as seen:
        assert order_of(seen.page, "#names", HEBREW, "4") == [HEBREW, "4"]
        assert order_of(seen.page, "#control", HEBREW, "4") == ["4", HEBREW]
        edges = seen.page.locator("#drawn").evaluate(
            "(one) => [one.textContent.indexOf('4'), 1].map((n) => one.getExtentOfChar(n).x)"
        )
        assert edges[0] > edges[1]


def test_a_table_that_is_wider_than_its_place_is_seen_to_scroll(chromium, pages):
    with browsing.visit(chromium, pages["run"], width=360) as seen:
        seen.page.evaluate(OPEN)
        found = seen.page.locator("#rows .scroll").first.evaluate(
            """(one) => [one.scrollWidth > one.clientWidth + 50,
                getComputedStyle(one).backgroundAttachment]"""
        )
        assert found == [True, "local, local, scroll, scroll, scroll"]
        broken = seen.page.locator("td, th").evaluate_all(
            """(all) => all.filter((one) => {
                const word = document.createRange();
                const text = [...one.childNodes].find((node) => node.nodeType === 3);
                if (!text || !/^\\w{2,20}$/.test(text.data)) return false;
                word.selectNodeContents(text);
                return word.getClientRects().length > 1;
            }).map((one) => one.textContent)"""
        )
        assert broken == []  # a single word is on one line


@pytest.mark.parametrize("kind", ["whole", "store", "leftwards"])
def test_no_head_of_a_table_is_cut(chromium, pages, kind):
    with browsing.visit(chromium, pages[kind]) as seen:
        seen.page.evaluate(OPEN)
        assert seen.page.locator("th").count() > 10
        for width in (360, 1280):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.page.evaluate(CUT_HEADS) == [], width


def test_control_a_head_that_is_cut_is_found(chromium, pages):
    with browsing.visit(chromium, pages["whole"], bypass_csp=True) as seen:
        seen.page.add_style_tag(content="th { white-space: nowrap; max-width: 9ch; }")
        seen.page.evaluate(OPEN)
        assert "most times of a row" in seen.page.evaluate(CUT_HEADS)


@pytest.mark.parametrize("width", [360, 1280])
def test_a_long_command_is_seen_whole_and_its_options_are_not_broken(chromium, pages, width):
    with browsing.visit(chromium, pages["whole"], width=width) as seen:
        seen.page.evaluate(OPEN)
        cut = seen.page.locator(".code pre").evaluate_all(
            "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        )
        assert cut == 0
        foot = seen.page.locator(".code").last
        assert foot.locator("code").text_content().startswith("tokenloom report a/long")
        assert foot.locator("pre").bounding_box()["height"] > 50  # several lines
        lines = foot.locator(".whole").evaluate_all(
            "(all) => all.map((one) => one.getClientRects().length)"
        )
        assert lines == [1] * 6


def test_a_mix_of_many_sources_has_a_short_page(chromium, tmp_path):
    store = tl.build([{"text": "abcdefgh" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    runs = {f"source {n}": store.windows(8).shuffle() for n in range(60)}
    report = report_on(tl.mix(runs).seed(1).take(64), batch_size=8)
    assert f"└─ … and {60 - BRANCHES} more" in report.tree
    assert len(report.tree.splitlines()) < 60
    with browsing.visit(chromium, saved(tmp_path, "many", report)) as seen:
        seen.page.locator("#tree summary").click()
        assert seen.page.locator("#tree pre").bounding_box()["height"] <= 470


def test_a_missing_browser_fails_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(browsing.shutil, "which", lambda name: None)
    with pytest.raises(AssertionError, match=r"no chromium.*apt-get install.*fonts-noto-core"):
        browsing.chromium()
