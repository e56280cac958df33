"""What is found is what reading everything finds; what an edit shows is what it does."""

import html
import re
import time
from urllib.parse import urlencode

import numpy as np
import pytest
from exploring import Asked, read

import tokenloom as tl
from tokenloom.explore import scan
from tokenloom.explore.pages import edit_page
from tokenloom.explore.parts_that_differ import parts_that_differ
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.store.derived.hash_index import keep_hash_index

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


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """A plan cache of this test alone."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def of_hash(asked, digits):
    """Documents of a hash as the pages give them, and how many pages it took."""
    page, found, pages = asked.html("find", kind="hash", wanted=digits), [], 1
    while True:
        found += re.findall(r"document\?source=(\w)&amp;document=(\d+)", page)
        more = re.search(r'from=([\d.]+)" class="button" id="more"', page)
        if not more:
            kept = "an index of these hashes is being kept" in page
            assert kept == (pages > 2)  # it was read, in several chunks, and not looked up
            return found, pages
        page = asked.html("find", kind="hash", wanted=digits, **{"from": more[1]})
        pages += 1


def test_a_hash_is_found_by_an_index_once_all_were_read(stores, searched, cached, monkeypatch):
    monkeypatch.setattr(scan, "HASHES", 64)
    asked = Asked(Session([searched.run], ["toy"], 16))
    every = [(name, k) for name, (one, _) in stores.items() for k in range(one.num_documents)]
    hashes = {at: stores[at[0]][0].document_hashes([at[1]])[0] for at in every}
    for wanted in (hashes["b", 17], "0" * 32):
        assert of_hash(asked, wanted)[1] == (10 if wanted != "0" * 32 else 2)
        end = time.monotonic() + 60
        while not all(asked.session.indexes.known((0, name)).is_over for name in "ab"):
            assert time.monotonic() < end
            time.sleep(0.005)
    assert len(list(cached.glob("document-hashes-*"))) == 2
    for at in every[::40]:
        known = [(name, str(k)) for name, k in every if hashes[name, k] == hashes[at]]
        assert of_hash(asked, hashes[at]) == (known, 2)  # a page for each store
    other = Asked(Session([searched.run], ["toy"], 16))  # of another process, say
    assert of_hash(other, hashes["b", 17])[1] == 2


def test_an_index_that_is_wrong_is_read_past(stores, searched, cached, monkeypatch):
    monkeypatch.setattr(scan, "HASHES", 64)
    asked = Asked(Session([searched.run], ["toy"], 16))
    for name, (store, _) in stores.items():
        assert keep_hash_index(store.reader)
        assert asked.session.run().hash_index(name) is not None
    known = of_hash(asked, stores["b"][0].document_hashes([17])[0])
    for path in cached.glob("document-hashes-*"):
        raw = path.read_bytes()
        path.write_bytes(bytes(4096) + raw[4096:])
    found = of_hash(asked, stores["b"][0].document_hashes([17])[0])
    assert (found[0], known[1], found[1]) == (known[0], 2, 10)


def test_a_store_of_one_chunk_gets_no_index(searched, cached):
    asked = Asked(Session([searched.run], ["toy"], 16))
    assert of_hash(asked, "0" * 32) == ([], 2)
    assert asked.session.indexes.known((0, "a")) is None
    assert not cached.exists() or not list(cached.glob("document-hashes-*"))


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
    page = read(posted(asked, at="1,000", weights="b=3"))
    changed = mixed.edit(at=1000, weights={"b": 3})
    for run, column in ((mixed, 1), (changed, 2)):
        names = run.picked(range(1000, 1000 + edit_page.LOOKED))[0]
        for name in ("a", "b"):
            said = f"{names.count(name) / len(names):.1%}".replace("%", " %")
            cells = re.search(rf"<tr><td>{name}</td><td>([^<]+)</td><td>([^<]+)</td>", page)
            assert cells[column] == said
    assert "examples 0 to 999 stay as they are" in page
    first = 1000 - edit_page.PROVED
    assert mixed.plan_digest(first, 1000)[:16] in page
    assert changed.plan_digest(0, 1000) == mixed.plan_digest(0, 1000)


def told_weights(page):
    """The weights that a page of an edit names, and the sources that ended."""
    lead = html.unescape(re.search(r'<p class="lead">(.*?)</p>', page)[1])
    running, _, ended = lead.partition("Ended:")
    found = re.findall(r"<bdi>(\w+)</bdi> ([\d.e+-]+?)(?=[,. ])", running)
    return {name: float(value) for name, value in found}, re.findall(r"<bdi>(\w+)</bdi>", ended)


def test_weights_are_those_that_hold_where_the_edit_begins(stores):
    runs = {name: store.windows(32).shuffle().epochs(None) for name, (store, _) in stores.items()}
    third = stores["a"][0].pack(32).shuffle().epochs(None)
    made = tl.mix({**runs, "c": third}, weights={"a": 3, "b": 1, "c": 5}, stages={64: {"a": 7}})
    made = made.edit(at=128, weights={"b": 9}).edit(at=256, remove=["c"], add={"d": third})
    asked = Asked(Session([made], batch_size=16))
    known = {0: "a3 b1 c5", 63: "a3 b1 c5", 64: "a7 b1 c5", 200: "a7 b9 c5", 256: "a7 b9 d1"}
    for at, words in known.items():
        weights, ended = told_weights(asked.html("edit", at=at))
        assert weights == {one[0]: float(one[1:]) for one in words.split()}, at
        assert ended == (["c"] if at >= 256 else [])
        # what the mix itself goes by
        stage = [one for one in made.run.stages if one.at <= at][-1]
        clocks = {clock.name: clock.weight for clock in stage.merge.clocks}
        assert {name: clocks[name] for name in weights} == weights
    first, _ = told_weights(asked.html("edit"))
    assert first == {"a": 7, "b": 9, "d": 1}  # an edit begins at the last one, unless it is told
    assert told_weights(asked.html("edit", at="x", weights="a=1"))[0] == first


def test_new_lines_of_the_run_file_are_shown_and_the_whole_on_demand(mixed):
    asked = Asked(Session([mixed], batch_size=16))
    page = html.unescape(posted(asked, at="64", weights="b=3").body.decode())
    new, whole = re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)
    assert new.splitlines() == ["edits:", "- at: 64", "  weights: {b: 3.0}"]
    assert whole.endswith(new + "\n")
    assert whole == posted(asked, at="64", weights="b=3", save="1").body.decode()
    again = Asked(Session([mixed.edit(at=64, weights={"b": 3})], batch_size=16))
    page = html.unescape(posted(again, at="80", weights="a=2").body.decode())
    new, _ = re.findall(r"<pre[^>]*><code>(.*?)</code>", page, re.DOTALL)
    assert new.splitlines() == ["edits:", "- at: 80", "  weights: {a: 2.0}"]


def test_settings_that_differ_are_shown_where_they_differ(mixed):
    edits = [mixed.edit(at=64 * k, weights={"a": k + 1.0}) for k in (1,)]
    for k in range(2, 9):
        edits.append(edits[-1].edit(at=64 * k, weights={"a": k + 1.0, "b": 2.0}))
    one = edits[-1].edit(at=1000, weights={"b": 3})
    two = edits[-1].edit(at=1000, weights={"b": 4}).edit(at=2000, remove=["a"])
    both = Asked(Session([one, two], ["one", "two"], 16))
    page = html.unescape(re.sub(r"<[^>]+>", "|", both.html("diff")))
    assert "mix.edits[8].weights.b||3.0||4.0|" in re.sub(r"\|\|+", "||", page)
    assert "mix.edits[9]||(none)||" in re.sub(r"\|\|+", "||", page)
    assert "mix.edits[0]" not in page
    long = [{"key": "x" * 300 + "a"}], [{"key": "x" * 300 + "b"}]
    ((path, a, b),) = parts_that_differ(*long)
    assert (path, a[-1], b[-1], len(a) < 130) == ("[0].key", "a", "b", True)


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
    page = read(posted(asked, at="64", quarantine="a:3"))
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
    page = read(posted(asked, at="64", **typed))
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
