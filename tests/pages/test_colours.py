"""Colours, by numbers: what can be seen on its ground, and told apart by everybody."""

import itertools
import re

import numpy as np
import pytest

from tokenloom.page.document import asset
from tokenloom.page.png import STRENGTH

SIDES = {"light": 0, "dark": 1}

# how colours are seen without one kind of cones; Machado, Oliveira and Fernandes, 2009
BLIND = {
    "nobody": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
APART = 12  # CIE76; 2.3 is what a person just sees between two areas that touch


def colours(side):
    """The variables of the style sheet as colours from 0 to 1, in the light or in the dark."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", asset("page.css"))
    assert len(found) > 20
    return {
        name: np.array([int(both[SIDES[side]][k : k + 2], 16) / 255 for k in (1, 3, 5)])
        for name, *both in found
    }


def linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """As the guidelines for accessible content define it: from 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour):
    """CIE L*a*b* of linear light."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = to_xyz @ np.clip(colour, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(series, kind):
    """The smallest distance between two of these colours, and which two they are."""
    seen = {name: lab(np.asarray(BLIND[kind]) @ linear(one)) for name, one in series.items()}
    pairs = itertools.combinations(seen, 2)
    return min((float(np.linalg.norm(seen[a] - seen[b])), a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("side", SIDES)
def test_eight_colours_are_told_apart_by_everybody(side, kind):
    series = {f"s{k}": colours(side)[f"s{k}"] for k in range(1, 9)}
    distance, one, other = nearest(series, kind)
    assert distance >= APART, f"{one} and {other} are {distance:.1f} apart"


def test_control_red_and_green_are_found_too_near_for_some():
    series = {"red": np.array([0.70, 0.30, 0.15]), "green": np.array([0.42, 0.42, 0.10])}
    assert nearest(series, "nobody")[0] > 30
    assert nearest(series, "deuteranopia")[0] < APART


def laid(side, strength):
    """The colour of a level of a map."""
    known = colours(side)
    return known["ground"] + (known["heat"] - known["ground"]) * strength / 100


@pytest.mark.parametrize("side", SIDES)
def test_every_level_of_a_map_is_seen_on_its_ground_and_beside_the_next(side):
    levels = [colours(side)["ground"], *(laid(side, one) for one in STRENGTH)]
    found = [contrast(levels[0], one) for one in levels[1:]]
    assert found[0] >= 1.25  # few are not none
    assert found[-1] >= 7  # and the most is what is seen first
    assert all(contrast(a, b) >= 1.1 for a, b in itertools.pairwise(levels))
    assert found == sorted(found)
