"""Settings from YAML files: plain data, every key once, of bounded size."""

import sys

import pytest
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


def test_without_pyyaml_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text("a: 1")
    monkeypatch.setitem(sys.modules, "yaml", None)
    yaml_files._strict_loader.cache_clear()
    try:
        with pytest.raises(tl.MissingExtra, match="PyYAML"):
            load_yaml(tmp_path / "a.yaml")
    finally:
        yaml_files._strict_loader.cache_clear()
