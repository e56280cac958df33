"""Digests of a hundred runs, written down once: the same index gives the same bytes for ever.

`python tests/laws/test_frozen_digests.py` draws them anew, which belongs in a commit that raises
ORDER_VERSION and says why.
"""

import json
import random
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from tokenloom.testing import numpy_alone

FROZEN = Path(__file__).with_name("frozen_digests.jsonl")
RUNS = 100


def digests_of(plain, known):
    from random_runs import length_of, make_run, recipe_from_json

    run = make_run(recipe_from_json(plain), known)
    n = length_of(run, 40)
    return {"examples": n, "plan": run.plan_digest(0, n), "rows": run.digest(0, n)}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_run_has_the_bytes_that_it_always_had(known):
    lines = FROZEN.read_text().splitlines()
    assert len(lines) == RUNS
    for number, line in enumerate(lines):
        frozen = json.loads(line)
        recipe = frozen.pop("recipe")
        assert digests_of(recipe, known) == frozen, (number, recipe)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_loops_in_c_and_in_numpy_give_the_same_bytes(known):
    with numpy_alone():
        test_every_run_has_the_bytes_that_it_always_had(known.numpy)


def draw_all(known):
    from random_runs import draw_run, recipe_to_json

    for seed in range(RUNS):
        recipe, _ = draw_run(random.Random(seed), known)
        plain = json.loads(json.dumps(recipe_to_json(recipe)))
        yield json.dumps({**digests_of(plain, known), "recipe": plain})


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent / "shared")]
    from known_stores import make_known

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        lines = list(draw_all(make_known(Path(folder))))
    FROZEN.write_text("\n".join(lines) + "\n")
