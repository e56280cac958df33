"""A document with the probability of every token: all of them, once, as lines and as a page."""

import html.parser
import math

import numpy as np
import pytest
from markov import Markov

import tokenloom as tl
from tokenloom.evaluate import token_page, token_scores

TEXT = "to be & <not> 'to' \"be\"\nthat is é"


class Elements(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tokens, self.inside, self.loaded = [], None, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.loaded += [named[key] for key in ("src", "href") if key in named]
        if tag == "i" and "title" in named:
            self.tokens.append([named["title"], ""])
            self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.tokens[-1][1] += data


@pytest.fixture
def store(tmp_path):
    return tl.build([{"text": "other"}, {"text": TEXT}], tmp_path / "store", tokenizer="bytes")


@pytest.mark.parametrize(("seq_len", "overlap"), [(64, None), (8, None), (8, 1), (5, 3)])
def test_every_token_but_the_first_is_judged_once(store, seq_len, overlap):
    chain = Markov(size=256)
    page = token_page(chain, store, 1, seq_len=seq_len, overlap=overlap)
    tokens = store[1]
    wanted = token_scores(chain.table[tokens[:-1]], tokens[1:])
    assert math.isnan(page.log_probs[0])
    np.testing.assert_array_equal(page.log_probs[1:], wanted.log_probs)
    np.testing.assert_array_equal(page.greedy[1:], wanted.greedy)


def test_the_page_has_every_token_and_nothing_from_elsewhere(store):
    page = token_page(Markov(size=256), store, 1, seq_len=16)
    found = Elements(page.html())
    assert len(found.tokens) == len(store[1]) == len(TEXT.encode())
    *most, first, second = (text for _, text in found.tokens)
    assert most == page.strings[:-2]
    assert (first, second) == ("é", "‿")  # two bytes of one letter
    assert found.loaded == []
    assert "<not>" not in page.html()
    assert found.tokens[0][0] == "token 0, id 116, no prediction"
    assert len(list(page.lines())) == len(store[1]) + 1


def test_a_text_from_right_to_left_shows_its_letters_from_the_right(tmp_path):
    store = tl.build([{"text": "שלום"}], tmp_path / "rtl", tokenizer="bytes")
    page = token_page(Markov(size=256), store, 0, seq_len=16)
    assert [text for _, text in Elements(page.html()).tokens][::2] == list("שלום")
    assert '<div class="cells surprise"><span dir="rtl">' in page.html()


def test_ids_stand_for_themselves_where_no_tokenizer_is_known(tmp_path):
    store = tl.build([{"input_ids": [3, 1, 4]}], tmp_path / "ids", tokenizer=None, vocab_size=12)
    page = token_page(Markov(), store, 0, seq_len=8)
    assert page.strings == [" 3", " 1", " 4"]
