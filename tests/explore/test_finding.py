"""What is found is what reading everything finds."""

import html
import re

import numpy as np
import pytest
from exploring import Asked

import tokenloom as tl
from tokenloom.explore import find_page
from tokenloom.explore.session import Session

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
    return tl.mix(runs)


@pytest.fixture(scope="module")
def asked(searched):
    return Asked(Session([searched], ["toy"], 16))


def found_by(asked, link=r"document\?source=(\w)&amp;document=(\d+)", **values):
    """What the links of a search lead to, page by page, and how many pages there are."""
    page, found, pages = asked.html("find", **values), [], 1
    while True:
        hits = page.partition('id="hits"')[2]
        found += re.findall(rf'href="{link}', hits)
        more = re.search(r'<a href="([^"]+)" class="button" id="more"', page)
        if not more:
            return found, pages
        reply = asked.target(html.unescape(more[1]))
        page, pages = reply.body.decode(), pages + 1


@pytest.mark.parametrize(
    ("wanted", "tokens"),
    [("needle", 4000), ("ünïneedle", 64), ("日", 300), ("<b>", 1 << 16), ("nowhere", 4000)],
)
def test_a_text_is_found_in_every_document_that_has_it(stores, asked, wanted, tokens, monkeypatch):
    monkeypatch.setattr(find_page, "TOKENS", tokens)
    found, pages = found_by(asked, kind="text", wanted=wanted)
    known = {
        (name, str(k))
        for name, (_, every) in stores.items()
        for k, one in enumerate(every)
        if wanted in one
    }
    assert set(found) == known
    assert pages >= (40 if tokens == 64 else 2)  # a page looks at few tokens


def test_ids_and_hashes_are_found(stores, asked):
    for wanted, documents in (("a7", [7, 257]), ("a249", [249]), ("nobody", [])):
        found, _ = found_by(asked, kind="id", wanted=wanted)
        assert found == [("a", str(one)) for one in documents]
    (digest,) = stores["b"][0].document_hashes([17])
    same = [(n, str(k)) for n, (one, _) in stores.items() for k in one.find(hash=digest)]
    assert ("b", "17") in same
    assert found_by(asked, kind="hash", wanted=f" {digest.upper()}")[0] == same
    assert found_by(asked, kind="hash", wanted="0" * 32) == ([], 1)
    alone = [("a", str(k)) for k in stores["a"][0].find(hash=digest)]
    assert found_by(asked, kind="hash", wanted=digest, source="a")[0] == alone


def test_a_text_in_a_step_is_found_in_the_rows_that_show_it(asked, searched, monkeypatch):
    monkeypatch.setattr(find_page, "TOKENS", 100)
    found, _ = found_by(asked, r"row\?index=(\d+)", kind="text", wanted="needle", step=3)
    rows = searched.at(step=3, batch_size=16, text=True)
    known = {str(row.index) for row in rows if any("needle" in span.text for span in row.spans)}
    assert set(found) == known


def test_wrong_cursors_and_hashes_are_refused(asked):
    for cursor in ("x", "0.0", "9.0.0", "-1.0.0", "0.0.0.0"):
        assert asked.get("find", kind="text", wanted="a", **{"from": cursor}).status == 400
    for digits in ("xyz", "0123456789abcdef", "0" * 33):  # whole hashes only
        assert asked.get("find", kind="hash", wanted=digits).status == 400
