"""What is put into an element stays text, whatever it is."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
from tokenloom.page.markup import Markup, joined, tag, visible


class Read(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


@given(st.text(), st.text())
def test_any_text_and_any_attribute_come_back_as_they_are_seen(text, value):
    read = Read(tag("p", text, title=value))
    assert read.tags == ["p"]
    assert read.attributes == [("title", visible(value))]
    assert "".join(read.texts).replace("\r", "\n") == visible(text).replace("\r", "\n")


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "</p><img src=x onerror=alert(1)>",
        '" onmouseover="alert(1)',
        "' autofocus onfocus='alert(1)",
        "<!--",
        "]]>",
        "&lt;script&gt;",
        "javascript:alert(1)",
    ],
)
def test_code_in_a_text_makes_no_element_and_no_attribute(evil):
    read = Read(tag("div", evil, tag("b", evil), title=evil))
    assert read.tags == ["div", "b"]
    assert read.attributes == [("title", evil)]
    assert read.texts == [evil, evil]


def test_control_a_text_taken_for_markup_makes_an_element():
    assert Read(tag("p", Markup("<img src=x>"))).tags == ["p", "img"]


@pytest.mark.parametrize("name", ["style", "onclick", "onfocus"])
def test_attributes_that_hold_code_are_refused(name):
    with pytest.raises(ConfigError, match="holds code"):
        tag("p", **{name: "x"})


def test_nothing_unseen_is_left_in_a_text():
    unseen = "".join(map(chr, [*range(9), *range(11, 32), 127, 0x202E, 0x2066, 0xFEFF, 0xD83D]))
    shown = visible(f"a{unseen}b")
    assert shown.isprintable()
    assert shown.startswith("a␀␁")
    assert visible("line\nnext\ttab") == "line\nnext\ttab"
    shown.encode()  # no half of a pair is left


def test_parts_are_joined_and_none_is_left_out():
    assert joined(["a", None, tag("b", "&"), 3]) == "a<b>&amp;</b>3"
    assert tag("p", None, class_=None, hidden=False) == "<p></p>"
