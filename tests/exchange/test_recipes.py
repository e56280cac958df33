"""The recipes of docs/from-what-you-have.md, on files that each project's own writer made.

What a peer writes and what it reads are tried in one process each, which imports it once: most of
the time is imports, half of it those of litdata. A peer that cannot be installed or imported is a
failure with its reason, never a skip.
"""

import json
import re
import sys
from pathlib import Path

import peers
import pytest
from test_consumers import MASKS, store_of, wanted

import tokenloom
import tokenloom as tl
from tokenloom import exchange

sys.path.insert(0, str(Path(__file__).parent / "consumers"))
from told import summary

PAGE = (Path(__file__).parents[2] / "docs/from-what-you-have.md").read_text()
RECIPES = re.findall(r"^```py\n# (\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
HERE = ["datasets", "levanter", "numpy"]  # written with what the tests have

# what each peer reads of ours, and the columns that it can have
READ = {
    "megatron": ("megatron", {}),
    "datatrove": ("parquet", MASKS),
    "litdata": ("parquet", MASKS),
    "streaming": ("mds", MASKS),
}


def opened_by_its_recipe(name, told):
    """Run the lines of the page in the folder where the project wrote its files."""
    namespace = {"tl": tl, "tokenloom": tokenloom}
    for code in [code for whose, code in RECIPES if whose == name]:
        exec(compile(code, f"recipe of {name}", "exec"), namespace)
    store = namespace["store"]
    assert summary(store.documents(range(len(store)))) == told
    copy = exchange.convert(store, "copy")
    assert copy.digest == store.digest


@pytest.mark.parametrize("name", HERE)
def test_a_recipe_opens_what_the_project_wrote(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = json.loads(peers.run(None, f"writers/by_{name}.py").splitlines()[-1])
    opened_by_its_recipe(name, told)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one == "litdata")) for one in READ]
)
def test_a_recipe_opens_what_a_peer_wrote_and_the_peer_reads_an_export(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to, columns = READ[name]
    store = store_of(tmp_path / "s", empty=to != "mds", columns=columns or None)
    exchange.export(store, "out", to=to)
    lines = peers.run(name, "at_once.py", name, tmp_path / "out", *columns).splitlines()
    written, read = [json.loads(line) for line in lines if line.startswith('{"documents"')]
    assert read == wanted(store, columns)
    opened_by_its_recipe(name, written)


def test_there_is_a_recipe_for_every_peer():
    assert {name for name, _ in RECIPES} == {*peers.PEERS, *HERE}
    assert set(READ) == set(peers.PEERS)
