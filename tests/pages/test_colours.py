"""Colours, by numbers: what can be seen on its ground, and told apart by everybody."""

import itertools
import re

import numpy as np
import pytest

from tokenloom.explore.ages import age_legend
from tokenloom.explore.cell_marks import AGE_TINTS
from tokenloom.page.png import STRENGTH
from tokenloom.page.sheet import asset

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


def test_control_a_scale_that_is_the_same_in_both_themes_fails_in_one():
    dark, pale = np.array([0, 34, 78]) / 255, np.array([254, 232, 56]) / 255
    assert contrast(dark, colours("dark")["ground"]) < 1.25
    assert contrast(pale, colours("light")["ground"]) < 1.25


def test_legends_of_maps_have_the_strengths_of_their_pictures():
    style = asset("page.css")
    found = re.findall(r"\.q(\d+) { background: color-mix\(in srgb, var\(--heat\) (\d+)%", style)
    assert [(int(a), int(b)) for a, b in found] == list(enumerate(STRENGTH, 1))


@pytest.mark.parametrize("side", SIDES)
def test_surprise_is_seen_from_the_first_tint_on_and_words_stay_readable(side):
    known = colours(side)
    mixed = r"\.u\d+ { background: color-mix\(in srgb, var\(--s6\) (\d+)%"
    found = re.findall(mixed, asset("page.css"))
    tints = [known["paper"] + (known["s6"] - known["paper"]) * int(one) / 100 for one in found]
    assert len(tints) == 10
    assert contrast(tints[0], known["paper"]) >= 1.12
    assert all(contrast(one, known["ink"]) >= 4.5 for one in tints)


@pytest.mark.parametrize("side", SIDES)
def test_ends_of_epochs_are_seen_on_what_is_trained_and_what_is_not(side):
    known = colours(side)
    assert ".chart .cut-line { fill: none; stroke: var(--ink)" in asset("page.css")
    assert contrast(known["ink"], known["filler"]) >= 3
    assert contrast(known["ink"], known["s1"]) >= 2


def age_tints(side):
    """The colour of each age in the order of the explorer's legend, and its words."""
    known, style = colours(side), asset("page.css")
    found = {}
    for bucket, words in age_legend():
        number = AGE_TINTS[bucket]
        plain = re.search(rf"\.t{number} {{ background: none; }}", style)
        laid = (
            rf"\.t{number} {{ background: color-mix\(in srgb, var\(--(\w+)\) (\d+)%, var\(--paper"
        )
        mixed = re.search(laid, style)
        assert bool(plain) != bool(mixed), f"t{number} has one colour"
        hue, strength = (mixed[1], int(mixed[2])) if mixed else ("s6", 0)
        found[words] = known["paper"] + (known[hue] - known["paper"]) * strength / 100
    return found


@pytest.mark.parametrize("side", SIDES)
def test_ages_fade_from_just_now_to_never_and_each_is_told_from_the_next(side):
    known, tints = colours(side), age_tints(side)
    *rest, never = tints
    assert never == "never before"
    assert rest[0] == "in this step"
    assert [int(re.search(r"\d+", one.replace(",", ""))[0]) for one in rest[1:]] == [
        1,
        10,
        100,
        1000,
    ]
    fading = [tints[one] for one in (*rest, never)]
    strength = [contrast(one, known["paper"]) for one in fading]
    assert strength == sorted(strength, reverse=True)
    assert strength[-1] == 1
    assert all(contrast(a, b) >= 1.1 for a, b in itertools.pairwise(fading))
    assert all(contrast(one, known["ink"]) >= 4.5 for one in fading)
    lightness = [lab(linear(one))[0] for one in fading]
    assert lightness == sorted(lightness, reverse=side == "dark")


def test_a_document_that_was_not_looked_up_has_no_colour_of_an_age():
    ages = {AGE_TINTS[bucket] for bucket, _ in age_legend()}
    assert len(ages) == len(age_legend())
    assert AGE_TINTS[-1] not in ages
