"""Settings from YAML files: plain data, every key once, of bounded size."""

import subprocess
import sys

import pytest
import yaml
from refusals import refused

import tokenloom as tl
from tokenloom.runfiles import text as yaml_files
from tokenloom.runfiles.text import load_yaml


@pytest.fixture
def load(tmp_path):
    def from_text(text):
        path = tmp_path / "a.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_yaml(path)

    return from_text


def test_it_reads_what_a_safe_loader_reads(load):
    text = "data: {a: [1, 2.5, null, true, 'x'], b: {c: é}}\n# a comment\nd: |\n  two\n  lines\n"
    assert load(text) == yaml.safe_load(text)


def test_numbers_with_an_exponent_are_numbers(load):
    assert load("a: 1e-3\nb: -2E5\nc: 8.5e+1\nd: 1e\ne: e5") == {
        "a": 0.001,
        "b": -2e5,
        "c": 85.0,
        "d": "1e",
        "e": "e5",
    }


@pytest.mark.parametrize(
    "case",
    [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: ", "'a'", "line 1"),
        ("a:\n  b: 1\n  'b': 2\n", "line 3, column 3: ", "'b'", "line 2"),
        ("a: [{x: 1, x: 1}]", "line 1, column 12: ", "'x'"),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "'<<'"),
    ],
)
def test_a_key_that_appears_twice_is_refused_with_both_lines(load, case):
    text, *named = case
    refused(lambda: load(text), tl.ConfigError, *named)


def test_the_same_key_at_different_places_and_overridden_merges_are_fine(load):
    text = "deep: {inner: &b {<<: &a {x: 0, y: 0}, x: 1}}\nuse: {<<: *b, y: 2}\nx: {x: {x: 1}}\n"
    assert load(text) == {
        "deep": {"inner": {"x": 1, "y": 0}},
        "use": {"x": 1, "y": 2},
        "x": {"x": {"x": 1}},
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system",
        "!!python/module:os",
        "a: !unknown 3",
    ],
)
def test_no_tag_makes_anything_but_plain_data(load, text):
    with pytest.raises(tl.ConfigError, match=r"line 1, column \d+: .*'.*'"):
        load(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a: [1", "a: b: c", "a: 1\n--- \nb: 2", "a: *b", "a: 1\x00", b"a: \xff\xfe\xfa"),
        *("a: 2001-99-99", "- a", "3", ""),
    ],
)
def test_what_is_no_mapping_in_yaml_is_refused_with_its_file(load, text):
    refused(lambda: load(text), tl.ConfigError, "a.yaml: ")


def doubled(pattern, levels=40):
    """Every level mentions the one before twice."""
    return "".join(f"k{n}: &k{n} {pattern.format(f'*k{n - 1}')}\n" for n in range(1, levels))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("k0: &k0 [1, 1]\n" + doubled("[{0}, {0}]"), "100,000"),
        ("k0: &k0 {x: 1}\n" + doubled("{{<<: [{0}, {0}]}}"), "100,000"),
        ("a: &a [*a]", "32"),
        ("a: &a {b: *a}", "32"),
        ("a: " + "[" * 40 + "]" * 40, "32"),
        ("a: " + "[" * 600 + "]" * 600, "deep"),
        ("#" * (1 << 20) + "\na: 1", "1 MiB"),
    ],
    ids=["aliases", "merges", "ring", "ring of keys", "deep", "deeper", "long"],
)
def test_a_file_that_would_blow_up_is_refused(load, text, limit):
    refused(lambda: load(text), tl.ConfigError, limit)


def test_values_are_counted_wherever_they_stand(load, monkeypatch):
    monkeypatch.setattr(yaml_files, "MAX_VALUES", 7)
    assert load("a: [1, 2, 3]\nb: {c: [4]}")  # a, b; three; c; one
    with pytest.raises(tl.ConfigError, match="7"):
        load("a: [1, 2, 3]\nb: {c: [4, 5]}")


def test_a_file_that_is_not_there_is_that(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_yaml(tmp_path / "no.yaml")


def test_without_pyyaml_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("a: 1")
    monkeypatch.setitem(sys.modules, "yaml", None)
    yaml_files._strict_loader.cache_clear()
    try:
        with pytest.raises(tl.MissingExtra, match="PyYAML"):
            load_yaml(tmp_path / "a.yaml")
    finally:
        yaml_files._strict_loader.cache_clear()


def test_yaml_is_imported_when_a_file_is_read_and_not_before():
    code = "import sys, tokenloom.integrations.levanter; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
