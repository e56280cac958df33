"""Figures draw what there is to see: nothing for nothing, and no pattern where chance has one."""

import re

import numpy as np
import pytest
from pagetoys import texts_of

import tokenloom as tl
from tokenloom.page.figure import Numbers, numbers_html
from tokenloom.report.figures.attention_row import boundary_figure
from tokenloom.report.figures.packing_table import packing_figure
from tokenloom.report.figures.resume_line import resume_figure
from tokenloom.report.figures.shuffle_map import EACH, block_map, map_size, shuffle_figure
from tokenloom.report.subject import Asked, RunSubject


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("left-out")
    return tl.build(texts_of(120, 5), folder / "s", tokenizer="bytes", progress=False)


def subject(run, **asked):
    return RunSubject(run, Asked(batch_size=4, **asked))


@pytest.mark.parametrize("rows", [1, 127, 128, 1000, 10**5])
def test_a_square_of_a_map_stands_for_eight_rows_or_there_is_no_map(rows):
    size = map_size(rows)
    assert (size is None) == (rows < 16 * EACH)
    if size is not None:
        assert rows >= EACH * size[0] * size[1]


def test_the_map_of_a_fair_shuffle_has_the_rows_of_the_map_beside_it(store):
    source = store.windows(16).run.sources[0]  # in stored order
    found = block_map(source, 4, 8)
    assert (found.fair.sum(axis=1) == found.counts.sum(axis=1)).all()
    assert (found.counts > 0).sum(axis=1).max() <= 3  # the control: a stretch stays together
    assert ((found.fair > 0).sum(axis=1) == 8).all()
    spread = np.abs(found.fair - found.rows[:, None] / 8).max()
    assert spread < 6 * np.sqrt(found.rows.max() / 8)
    drawn = shuffle_figure(subject(store.windows(16))).drawing
    assert re.findall(r'<p class="soft">([^<]*)</p>', drawn) == ["This order", "A fair shuffle"]
    assert len({*re.findall(r'href="(data:[^"]+)"', drawn)}) == 2


def test_a_source_of_few_rows_has_no_map_and_the_reason(store):
    few = shuffle_figure(subject(store.windows(16).shuffle().take(9)))
    assert few.drawing  # the order is of all rows of the source, however few are taken
    small = shuffle_figure(subject(store.select(doc_index=[0, 1]).windows(16).shuffle()))
    assert not small.drawing
    assert any("too few for a map" in one for one in small.notes)


def test_ways_that_cut_nothing_are_a_sentence(store, tmp_path):
    said, bars = "No way cuts a document that would fit into a frame.", "but are cut"
    some = packing_figure(subject(store.pack(256))).drawing
    assert said not in some
    cut = some.partition(bars)[2]
    assert ">sequential<" in cut
    assert ">one_doc<" not in cut  # a way that cuts none has no bar
    assert "ways cut none of them." in cut
    rows = [{"text": "x" * 32}] * 8
    even = tl.build(rows, tmp_path / "even", tokenizer="bytes", progress=False)
    none = packing_figure(subject(even.pack(32))).drawing
    assert said in none
    assert bars not in none


def test_without_a_state_there_is_a_line_only_where_it_has_something_to_show(store):
    assert not resume_figure(subject(store.windows(16))).drawing
    epochs = resume_figure(subject(store.windows(16).epochs(3))).drawing
    assert epochs.partition('class="narrow"')[0].count('<path d="M') >= 2
    assert epochs.partition('class="narrow"')[0].count('V42" class="cut-line"') == 2
    assert "an epoch ends" in epochs
    state = resume_figure(subject(store.windows(16), examples=8)).drawing
    assert 'class="stand"' in state
    assert "not trained" in state


def test_rows_of_one_document_have_no_map_of_attention(store):
    alone = boundary_figure(subject(store.pack(4096, strategy="one_doc")))
    assert not alone.drawing
    assert "there is no boundary" in alone.message
    several = boundary_figure(subject(store.pack(256, strategy="greedy")))
    assert several.drawing.count('class="chart"') == 2
    assert 'class="filler"' in several.drawing.partition("panels squares")[2]
    assert "swatch filler" in several.drawing  # and so the legend has it
    full = boundary_figure(subject(store.windows(256)))
    assert "swatch filler" not in full.drawing


def test_tables_say_per_cent_and_units_where_their_words_do():
    head = ("source", "share of tokens", "seconds a step", "rows", "mixed")
    rows = [("a", 0.52254, 5.5e-7, 1234, 3), ("b", 0.0, 0.25, 5, "none")]
    shown = numbers_html(Numbers.of(head, rows)).replace("\xa0", " ")
    cells = re.findall(r"<t[dh](?: [^>]*)?>([^<]*)<", shown)
    assert cells[5:] == ["a", "52.25 %", "550 ns", "1,234", "3", "b", "0 %", "250 ms", "5", "none"]
    classes = re.findall(r'<t[dh](?: scope="col")?( class="number")?>', shown)
    assert [bool(one) for one in classes] == [False, True, True, True, False] * 3
