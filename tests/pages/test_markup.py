"""What is put into an element stays text, whatever it is."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
from tokenloom.page.markup import tag, visible


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
    for name in ("span", "p"):
        read = Read(tag(name, text, title=value))
        assert {*read.tags} <= {name, "bdi"}
        assert read.attributes == [("title", visible(value))]
        seen = "".join(read.texts).replace("\r", "\n")
        if name == "p":  # a number and its unit are kept together
            seen, text = seen.replace("\xa0", " "), text.replace("\xa0", " ")
        assert seen == visible(text).replace("\r", "\n")


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


HEBREW = "\u05e2\u05d1\u05e8\u05d9\u05ea"


def test_a_name_from_right_to_left_is_isolated_in_what_we_say_and_nowhere_else():
    assert tag("p", f"{HEBREW}: 4 rows") == f"<p><bdi>{HEBREW}</bdi>: 4\xa0rows</p>"
    assert tag("p", f"{HEBREW} {HEBREW}, 2") == f"<p><bdi>{HEBREW} {HEBREW}</bdi>, 2</p>"
    assert tag("text", f"{HEBREW}: 4") == f"<text>\u2068{HEBREW}\u2069: 4</text>"
    # texts of documents, code and what is chosen in a form
    for name in ("span", "i", "code", "pre", "option", "textarea", "title", "q", "mark"):
        assert tag(name, f"{HEBREW} 4 rows") == f"<{name}>{HEBREW} 4 rows</{name}>"
    assert tag("p", HEBREW, dir="auto") == f'<p dir="auto">{HEBREW}</p>'  # it says so itself
