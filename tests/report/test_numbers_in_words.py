"""Numbers of a page are written as people write them: no exponent, whatever their size."""

import html
import re

import pytest
from orderruns import order_runs
from readwords import plain
from toyruns import toy_store

import tokenloom as tl
from tokenloom.page.axes import short
from tokenloom.page.charts import lines
from tokenloom.page.numbers import amount, digits, exact, seconds
from tokenloom.report import report_on

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EXPONENT = re.compile(r"\d[eE][+-]\d")


def words_of(page):
    """Everything that a person reads on a page, tables and titles included; one piece a line."""
    body = re.sub(r"<(style|script|pre)\b.*?</\1>", "", page, flags=re.DOTALL)
    return plain(html.unescape(re.sub(r"<[^>]+>", "\n", body)))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Numbers above a thousand everywhere: blocks of a batch, epochs, steps between rows."""
    folder = tmp_path_factory.mktemp("large")
    web, few = toy_store(folder / "web", rows=9000), toy_store(folder / "few", rows=3)
    one = web.windows(8).shuffle()
    pair = {"web": one, "few": few.windows(8, tail="keep").shuffle().epochs(None)}
    often = tl.mix(pair, weights={"web": 1, "few": 2.5}, cost="tokens", stop="first_exhausted")
    return {
        "blocks": report_on(one, batch_size=4096),
        "steps": report_on(web.pack(8).shuffle().epochs(2), batch_size=3),
        "epochs": report_on(often, batch_size=3),
    }


@pytest.mark.parametrize("name", ["blocks", "steps", "epochs"])
def test_no_word_of_a_page_has_an_exponent(large, name):
    words = words_of(large[name].html)
    assert EXPONENT.findall(words) == []
    assert re.search(r"\d,\d{3}", words)  # the control: there are numbers that could have one


@pytest.mark.parametrize("kind", ["one source", "lanes", "staged and edited", "endless mix"])
def test_no_word_about_a_small_run_has_an_exponent(tmp_path, kind):
    for speed in ({}, {"latency": 1e-5, "bandwidth": 1e12, "step_seconds": 1e-6}):
        page = report_on(order_runs(tmp_path / kind)[kind], batch_size=8, **speed).html
        assert EXPONENT.findall(words_of(page)) == []


def test_numbers_above_a_thousand_are_those_that_were_counted(large):
    by_name = {one.name: one for one in large["blocks"].answers}
    found = by_name["shuffled"]
    assert found.numbers["batch_blocks"] > 1000
    said = f"from {found.numbers['batch_blocks']:,.0f} storage blocks"
    assert said in plain(found.sentence)
    assert f"<b>{found.numbers['batch_blocks']:,.0f}</b>" in large["blocks"].html
    (often,) = (one for one in large["epochs"].answers if one.name == "repeated")
    assert often.numbers["epochs"] > 1000
    assert f", {often.numbers['epochs']:,.0f} epochs" in plain(often.sentence)
    (warned,) = (one for one in large["epochs"].cautions if "is repeated" in one.words)
    assert f"repeated {often.numbers['epochs']:,.0f} epochs" in plain(warned.words)


VALUES = [k * 10.0**power for power in range(-12, 15) for k in (1, 1.23456, 9.9996, 5)]


@pytest.mark.parametrize("write", [digits, exact, amount, short, seconds])
def test_no_number_is_written_with_an_exponent(write):
    assert [one for one in VALUES if EXPONENT.search(write(one))] == []


@pytest.mark.parametrize("count", [3, 4])
def test_digits_are_as_close_as_they_say(count):
    for one in VALUES:
        number, _, power = digits(one, count).replace(",", "").partition(" × 10")
        power = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        said = float(number) * 10.0 ** int(power or 0)
        assert abs(said - one) <= 0.5 * 10.0 ** (1 - count) * one, (one, digits(one, count))


def test_a_title_over_a_point_has_no_exponent():
    drawn = lines({"a": [(0, 0.00001234), (2_000_000, 12_345.6)]}, 340, "toy", below="step")
    assert EXPONENT.findall("\n".join(re.findall(r"<title>(.*?)</title>", drawn))) == []
    assert "2,000,000: 12,346" in drawn
