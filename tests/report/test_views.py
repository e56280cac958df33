"""What a notebook shows: the tokens of rows in their segments, and nothing that runs."""

import pickle
from html.parser import HTMLParser

import pytest
from pagetoys import EVIL, hostile_run
from toyruns import toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.page.token_cells import DOTTED
from tokenloom.report import notebook


class Cells(HTMLParser):
    """The cells of a view: class, title and text of each."""

    def __init__(self, page):
        super().__init__()
        self.cells, self.tags, self.attributes, self.inside = [], [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.tags.append(tag)
        self.attributes += named
        self.inside = named.get("class", "").startswith("cell ") and "title" in named
        if self.inside:
            self.cells.append([named["class"].split(), named["title"], ""])

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.cells[-1][2] += data


def safe(page):
    """Whether nothing in a view runs, loads, or reaches the notebook around it."""
    read = Cells(page)
    assert not {"script", "img", "iframe", "link"} & set(read.tags)
    assert not [one for one in read.attributes if one == "style" or one.startswith("on")]
    assert read.tags.count("style") == 1
    assert read.tags[:2] == ["div", "style"]
    return read


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy")).pack(16).shuffle()


def test_every_cell_of_the_first_rows_is_shown_with_its_token_segment_and_loss(run):
    batch = run.batch(range(4))
    read = safe(batch.view(rows=3)._repr_html_())
    rows, width = 3, batch.shape[1]
    assert len(read.cells) == rows * width
    strings = [text for row in batch.token_strings(rows) for text in row]
    for number, (classes, title, text) in enumerate(read.cells):
        row, cell = divmod(number, width)
        segment = batch.segment_ids[row, cell]
        assert text == (strings[number] if segment else notebook.FILLER)
        assert f"id {batch.tokens[row, cell]}" in title
        assert classes[1] == (f"t{segment}" if segment else "t0")
        target = cell > 0 and batch.loss_mask[row, cell - 1]
        assert ("untrained" in classes) == (not target)
        starts = segment and (not cell or batch.segment_ids[row, cell - 1] != segment)
        assert ("first" in classes) == bool(starts)


def test_letters_of_several_tokens_are_whole_and_hebrew_starts_at_the_right(tmp_path):
    rows = [{"text": "שלום עולם"}, {"text": "日本"}]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    page = store.pack(23)[0].view()._repr_html_()
    texts = "".join(text for _, _, text in Cells(page).cells).replace("‿", "")
    assert texts.strip("·") in ("שלום עולם日本", "日本שלום עולם")
    assert page.count('<span dir="rtl"><span class="cell ') == 1
    assert page.count('<span dir="ltr"><span class="cell ') == 1
    assert DOTTED in page


def test_hostile_texts_stay_text(tmp_path):
    run = hostile_run(tmp_path)
    for one in (run.view(), run.view(step=0), run[:4].view()):
        safe(one._repr_html_())
        assert "\x1b" not in repr(one)
    for store in {source.path for source in run.sources.values()}:
        safe(tl.open(store).view()._repr_html_())
    safe(run._repr_html_())
    safe(run[:2]._repr_html_())
    assert EVIL not in run._repr_html_()


def test_a_copy_without_its_store_shows_ids(run):
    batch = pickle.loads(pickle.dumps(run.batch([0])))
    assert batch.token_strings()[0] == [str(token) for token in batch.tokens[0].tolist()]
    assert len(Cells(batch.view()._repr_html_()).cells) == batch.shape[1]


def test_long_rows_and_many_rows_are_cut_and_counted(tmp_path):
    store = tl.build([{"text": "x" * 5000}], tmp_path / "long", tokenizer="bytes")
    batch = store.windows(1024)[:4]
    page = batch.view(rows=2)._repr_html_()
    assert len(Cells(page).cells) == 2 * notebook.MOST_CELLS
    assert "512 more" in page
    assert "2 more" in page
    with pytest.raises(ConfigError, match="rows"):
        batch.view(rows=0)
