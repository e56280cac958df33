"""Numbers of a page are written as people write them: without an exponent, whatever their size."""

import re

import pytest

from tokenloom.page.axes import short
from tokenloom.page.numbers import amount, digits, exact, seconds

EXPONENT = re.compile(r"\d[eE][+-]\d")
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
