"""Numbers of a page are as close as their digits say."""

import pytest

from tokenloom.page.numbers import digits

VALUES = [k * 10.0**power for power in range(-12, 15) for k in (1, 1.23456, 9.9996, 5)]


@pytest.mark.parametrize("count", [3, 4])
def test_digits_are_as_close_as_they_say(count):
    for one in VALUES:
        number, _, power = digits(one, count).replace(",", "").partition(" × 10")
        power = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        said = float(number) * 10.0 ** int(power or 0)
        assert abs(said - one) <= 0.5 * 10.0 ** (1 - count) * one, (one, digits(one, count))
