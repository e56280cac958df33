"""The recipes of docs/from-what-you-have.md, on files that each project's own writer made."""

import json
import re
import sys
from pathlib import Path

import peers
import pytest

import tokenloom
import tokenloom as tl
from tokenloom import exchange

sys.path.insert(0, str(Path(__file__).parent / "consumers"))
from told import summary

PAGE = (Path(__file__).parents[2] / "docs/from-what-you-have.md").read_text()
RECIPES = re.findall(r"^```py\n# (\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
HERE = ["datasets", "numpy"]  # written with what the tests have


NAMES = [
    pytest.param(name, marks=[] if name in HERE else pytest.mark.slow) for name in dict(RECIPES)
]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_opens_what_the_project_wrote(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer = None if name in HERE else name
    told = json.loads(peers.run(peer, f"writers/by_{name}.py").splitlines()[-1])
    namespace = {"tl": tl, "tokenloom": tokenloom}
    for code in [code for whose, code in RECIPES if whose == name]:
        exec(compile(code, f"recipe of {name}", "exec"), namespace)
    store = namespace["store"]
    assert summary(store.documents(range(len(store)))) == told
    copy = exchange.convert(store, "copy")
    assert copy.digest == store.digest


def test_there_is_a_recipe_for_every_peer():
    assert {name for name, _ in RECIPES} == {*peers.PEERS, *HERE}
