"""What is found is what reading everything finds; what an edit shows is what it does."""

import html
import re
from urllib.parse import urlencode

import numpy as np
import pytest
from exploring import Asked

import tokenloom as tl
from tokenloom.explore import scan
from tokenloom.explore.pages import edit_page
from tokenloom.explore.session import ExploredRun, Session

WORDS = ["needle", "hay", "ünï", "日本", "x", "<b>", "  ", "stack\n"]


def texts(count, seed):
    draw = np.random.default_rng(seed)
    return ["".join(draw.choice(WORDS, int(draw.integers(0, 40)))) for _ in range(count)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two stores, with all their texts."""
    folder, made = tmp_path_factory.mktemp("stores"), {}
    for seed, name in enumerate(("a", "b")):
        known = texts(300, seed)
        rows = [{"text": text, "id": f"{name}{k % 250}"} for k, text in enumerate(known)]
        store = tl.build(rows, folder / name, tokenizer="bytes", id_key="id", progress=False)
        made[name] = store, known
    return made


@pytest.fixture(scope="module")
def searched(stores):
    runs = {name: store.windows(32).shuffle() for name, (store, _) in stores.items()}
    return ExploredRun(tl.mix(runs), "toy", 0, 16)


def everything(ask):
    """All hits of a search, asked for chunk by chunk, and how many chunks it took."""
    hits, cursor, chunks = [], "", 0
    while True:
        found = ask(cursor)
        assert found.done <= found.whole
        hits += found.hits
        chunks += 1
        if not found.cursor:
            assert found.done == found.whole
            return hits, chunks
        cursor = found.cursor


@pytest.mark.parametrize(
    ("wanted", "budget"),
    [
        *[(one, 4000) for one in ("needle", "ünïneedle", "日", "x", "<b>", "nowhere", "stack\nx")],
        *[("ünïneedle", 64), ("日", 300), ("needle", 1 << 16)],
    ],
)
def test_a_text_is_found_in_every_document_that_has_it(
    stores, searched, wanted, budget, monkeypatch
):
    monkeypatch.setattr(scan, "TOKENS", budget)
    hits, chunks = everything(lambda at: scan.scan_texts(searched, wanted, ["a", "b"], at))
    known = {
        (name, k)
        for name, (_, every) in stores.items()
        for k, one in enumerate(every)
        if wanted in one
    }
    assert {(one.source, one.document) for one in hits} == known
    assert all(one.found == wanted for one in hits)
    assert chunks >= (40 if budget == 64 else 2)


def test_a_chunk_is_bounded(searched):
    found = scan.scan_texts(searched, "needle", ["a", "b"])
    assert found.done <= 300
    assert len(found.hits) <= scan.MOST_HITS


def test_an_id_is_found_by_the_index(stores, searched):
    asked = Asked(Session([searched.run], ["toy"], 16))
    for wanted, documents in (("a7", [7, 257]), ("a249", [249]), ("nobody", [])):
        page = asked.html("find", kind="id", wanted=wanted)
        links = re.findall(r"document\?source=(\w)&amp;document=(\d+)", page)
        assert links == [("a", str(one)) for one in documents]


def test_a_hash_is_found_by_a_scan(stores, searched, monkeypatch):
    monkeypatch.setattr(scan, "HASHES", 64)
    store, _ = stores["b"]
    (digest,) = store.document_hashes([17])
    hits, chunks = everything(lambda at: scan.scan_hashes(searched, digest[:12], ["a", "b"], at))
    known = [
        (name, int(k)) for name, (one, _) in stores.items() for k in one.find(hash=digest[:12])
    ]
    assert [(one.source, one.document) for one in hits] == known
    assert ("b", 17) in known
    assert chunks == 10


def test_a_text_in_a_step_is_what_its_rows_show(searched, monkeypatch):
    monkeypatch.setattr(scan, "TOKENS", 100)
    hits, chunks = everything(lambda at: scan.scan_step(searched, "needle", 3, at))
    known = [
        (one.index, span.document)
        for one in searched.run.at(step=3, batch_size=16, text=True)
        for span in one.spans
        if "needle" in span.text
    ]
    assert [(one.index, one.document) for one in hits] == known
    assert chunks > 3


def test_wrong_cursors_and_empty_texts_are_refused(searched):
    asked = Asked(Session([searched.run], ["toy"], 16))
    for cursor in ("x", "0.0", "9.0.0", "-1.0.0", "0.0.0.0"):
        assert asked.get("find", kind="text", wanted="a", **{"from": cursor}).status == 400
    assert asked.get("find", kind="hash", wanted="xyz").status == 400
    assert 'id="hits"' not in asked.html("find", kind="text", wanted="")


def test_a_search_goes_on_by_a_link_without_a_script(searched, monkeypatch):
    monkeypatch.setattr(scan, "TOKENS", 1000)
    asked = Asked(Session([searched.run], ["toy"], 16))
    page, seen = asked.html("find", kind="text", wanted="needle"), 0
    while True:
        seen += page.count("<mark>needle</mark>")
        more = re.search(r'<a href="([^"]+)" class="button" id="more"', page)
        if not more:
            break
        target = f"/t/{html.unescape(more[1])}"
        page = asked.raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).body.decode()
    assert seen >= 100


# -- edits ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(stores, tmp_path_factory):
    """A mix that is loaded from a run file."""
    runs = {name: store.windows(32).shuffle().epochs(None) for name, (store, _) in stores.items()}
    path = tmp_path_factory.mktemp("run") / "run.yaml"
    tl.save(tl.mix(runs, weights={"a": 3, "b": 1}).seed(5), path)
    return tl.load(path)


def posted(asked, kind="application/x-www-form-urlencoded", body=None, **values):
    """The reply to an edit that was typed."""
    sent = urlencode(values).encode() if body is None else body
    head = "POST /t/edit HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    head += f"Content-Type: {kind}"
    return asked.raw(f"{head}\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent)


def test_the_preview_has_the_shares_of_the_edited_run(mixed):
    asked = Asked(Session([mixed], batch_size=16))
    page = posted(asked, at="1,000", weights="b=3").body.decode()
    changed = mixed.edit(at=1000, weights={"b": 3})
    for run, column in ((mixed, 1), (changed, 2)):
        names = run.picked(range(1000, 1000 + edit_page.LOOKED))[0]
        for name in ("a", "b"):
            said = f"{names.count(name) / len(names):.1%}".replace("%", " %")
            cells = re.search(rf"<tr><td>{name}</td><td>([^<]+)</td><td>([^<]+)</td>", page)
            assert cells[column] == said
    assert "examples 0 to 999 stay as they are" in page
    assert mixed.plan_digest(0, 1000)[:16] in page
    assert changed.plan_digest(0, 1000) == mixed.plan_digest(0, 1000)


def test_control_another_past_has_another_digest(mixed):
    assert mixed.plan_digest(0, 1000) != mixed.seed(6).plan_digest(0, 1000)


@pytest.mark.filterwarnings("ignore:edit.quarantine")
@pytest.mark.parametrize("typed", [{"weights": "b=3"}, {"remove": "b"}, {"quarantine": "a:3\nb:4"}])
def test_the_saved_file_is_the_edited_run(mixed, typed, tmp_path):
    asked = Asked(Session([mixed], batch_size=16))
    reply = posted(asked, at="64", save="1", **typed)
    assert dict(reply.headers)["Content-Disposition"] == 'attachment; filename="run-edited.yaml"'
    path = tmp_path / "edited.yaml"
    path.write_bytes(reply.body)
    given = {
        "weights": {"b": 3.0} if "weights" in typed else None,
        "remove": ("b",) if "remove" in typed else (),
        "quarantine": (("a", 3), ("b", 4)) if "quarantine" in typed else (),
    }
    assert tl.load(path) == mixed.edit(at=64, **given)


def test_what_an_edit_warns_about_is_told_in_its_preview(mixed):
    asked = Asked(Session([mixed], batch_size=16))
    with pytest.warns(UserWarning, match="entirely blank") as heard:
        mixed.edit(at=64, quarantine=[("a", 3)])
    page = posted(asked, at="64", quarantine="a:3").body.decode()
    assert str(heard[0].message) in html.unescape(page)
    assert "entirely blank" not in posted(asked, at="64", weights="a=3").body.decode()


def test_json_is_taken_as_a_form_is(mixed):
    asked = Asked(Session([mixed], batch_size=16))
    reply = posted(asked, "application/json", b'{"at": "64", "weights": "b=3"}')
    assert "stay as they are" in reply.body.decode()
    assert posted(asked, "application/json", b'{"at": 64}').status == 400
    assert posted(asked, "application/json", b"[" * 50_000).status == 400
    assert posted(asked, "application/json", b"\xff").status == 400


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"weights": "nobody=3"}, "nobody"),
        ({"weights": "b"}, "NAME=NUMBER"),
        ({"weights": "b=-1"}, "-1"),
        ({"weights": "b=nan"}, "nan"),
        ({"quarantine": "a:x"}, "NAME:NUMBER"),
        ({"quarantine": "a:99999999"}, "99999999"),
        ({"remove": "nobody"}, "nobody"),
    ],
)
def test_a_wrong_edit_is_told_beside_the_form(mixed, typed, said):
    asked = Asked(Session([mixed], batch_size=16))
    page = posted(asked, at="64", **typed).body.decode()
    assert 'role="alert"' in page
    assert said in html.unescape(page)
    assert next(iter(typed.values())) in html.unescape(page)  # what was typed stays


def test_an_edit_leaves_the_session_as_it_is(mixed, tmp_path):
    asked = Asked(Session([mixed], batch_size=16))
    before = asked.html("step", step=9), mixed.fingerprint, sorted(tmp_path.iterdir())
    posted(asked, at="16", weights="b=9")
    posted(asked, at="16", weights="b=9", save="1")
    assert (asked.html("step", step=9), mixed.fingerprint, sorted(tmp_path.iterdir())) == before


def test_a_run_of_one_source_takes_documents_to_leave_out(stores):
    store, _ = stores["a"]
    asked = Asked(Session([store.windows(32).shuffle()], ["one"], 16))
    assert "stay as they are" in posted(asked, at="3", quarantine="main:5").body.decode()
    assert "one source" in posted(asked, at="3", weights="main=5").body.decode()
