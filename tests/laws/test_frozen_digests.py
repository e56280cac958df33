"""Digests of a hundred runs, written down once: the same index gives the same bytes for ever.

`python tests/laws/test_frozen_digests.py` draws them anew, which belongs in a commit that raises
ORDER_VERSION and says why.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

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


def test_the_loops_in_c_and_in_numpy_give_the_same_bytes():
    """The frozen digests, and every array of random runs, without the compiled loops."""
    here = Path(__file__).parent
    tests = [__file__ + "::test_every_run_has_the_bytes_that_it_always_had"]
    tests += [f"{here}/test_row_laws.py::test_every_array_is_what_the_recipe_says"]
    environment = {**os.environ, "TOKENLOOM_NATIVE": "0"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


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
