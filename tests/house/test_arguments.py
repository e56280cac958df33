"""One reader of arguments: a refusal names the path, what was found and what is allowed."""

import math
import re

import numpy as np
import pytest
from tree import Tree

import tokenloom as tl
from tokenloom.arguments import (
    check_between,
    check_options,
    import_reference,
    integer,
    one_of,
    reference_of,
    wrong_type,
)
from tokenloom.errors import choices, near_miss

WORDS = ["drop", "pad", "wrap"]


@pytest.mark.parametrize(
    ("found", "hint"),
    [
        ("dropp", "drop"),
        ("dro", "drop"),
        ("d", "drop"),
        ("drop_last", "drop"),
        ("xyz", None),
        (None, None),
        (1, None),
        ("", None),
    ],
)
def test_a_word_that_is_not_allowed_is_refused_with_its_near_miss(found, hint):
    told = "" if hint is None else f" Did you mean '{hint}'?"
    message = re.escape(f"end: found {found!r}, allowed: drop, pad, wrap.{told}")
    with pytest.raises(tl.ConfigError, match=f"^{message}$"):
        one_of("end", found, WORDS)


def test_a_word_that_is_allowed_passes_and_one_is_not_true():
    one_of("end", "pad", iter(WORDS))
    one_of("flag", True, [True, False])
    with pytest.raises(tl.ConfigError, match="flag: found 1, allowed: True, False"):
        one_of("flag", 1, [True, False])


def test_names_that_exist_come_before_words_that_are_alike():
    assert near_miss("best_fit", ["nest_fit", "best_fit_decreasing"]) == (
        " Did you mean 'best_fit_decreasing'?"
    )
    assert choices("a", []) == "none."


@pytest.mark.parametrize(
    ("found", "least", "most", "allowed"),
    [
        (0, 1, None, "1 or more"),
        (math.inf, 0, None, "0 or more"),
        (math.nan, 0, None, "0 or more"),
        (9, 1, 8, "1 to 8"),
        (1 << 31, 0, (1 << 31) - 1, "0 to 2^31 - 1"),
        (1, 2, 1 << 30, "2 to 2^30"),
        (-1, 0, 0.5, "0 to 0.5"),
    ],
)
def test_a_number_outside_its_bounds_is_refused(found, least, most, allowed):
    with pytest.raises(tl.ConfigError, match=re.escape(f"n: found {found}, allowed: {allowed}.")):
        check_between("n", found, least, most)


def test_bounds_belong_to_what_is_allowed_and_none_is_no_number():
    for found in (1, 8, None):
        check_between("n", found, 1, 8)
    with pytest.raises(tl.ConfigError, match="n: found 0, allowed: 1 to 8 rows, or more later"):
        check_between("n", 0, 1, 8, unit="rows", why=", or more later")
    with pytest.raises(tl.ConfigError, match="found a number of 101 bits"):
        check_between("n", 1 << 100, 1, 8)


def test_readers_give_plain_python():
    assert type(integer("n", np.int32(3))) is int
    with pytest.raises(tl.ConfigError, match=r"n: found 1\.5 \(float\), allowed: an integer"):
        integer("n", 1.5)
    with pytest.raises(tl.ConfigError, match=r"no option 'eos'\. Options: eos_id\. Did"):
        check_options("pack", ["eos"], ["eos_id"])
    assert str(wrong_type("base", [1], "a path")) == "base: found list, allowed: a path."


def test_a_reference_is_what_another_process_can_import():
    assert reference_of(re.compile) == "re:compile"
    assert import_reference("re:compile") is re.compile
    assert import_reference("pathlib:Path.home").__name__ == "home"
    assert reference_of(lambda: 0) is None
    assert reference_of(3) is None
    for wrong in ("re", ":x", "re:", "no_such_module:f", "re:no_such_function"):
        with pytest.raises(ImportError):
            import_reference(wrong)


def test_nobody_writes_the_list_of_words_with_its_near_miss_again():
    """`choices` is the one place; what is left here says something else before the near miss."""
    assert copies(Tree.of()) <= LEFT
    assert copies(Tree({"x": 'f"{near_miss(a, b)}"\n' * 2})) == {"x"}


def copies(tree):
    return {name for name, source in tree.sources.items() if re.search(r"near_miss\(", source)}


LEFT = {
    "errors",
    "tokenizer.find",
    "tokenizer.spec",
    "api.splice",
    "integrations.trainer",
    "integrations.dialects.known",  # asks whether there is one
    "cli.grammar.verbs",  # a command has too many options to list them
}
