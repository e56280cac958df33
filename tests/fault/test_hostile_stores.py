"""X1, X4, X5: a hostile store gets an error, quickly, and nothing else: no code, no file, no memory."""

import shutil

import hostile
import pytest
from kit import quick_folder
from test_damage import make

MEGABYTES = 512
SECONDS = 5


@pytest.fixture(scope="module")
def reports(nursery, request):
    """What happened with every store of the catalogue: name → report."""
    with quick_folder() as folder:
        good = folder / "good"
        make(good)
        paths = {}
        for number, (name, attack) in enumerate(hostile.ATTACKS.items()):
            path = folder / f"store-{number:03d}"
            shutil.copytree(good, path)
            attack(path)
            paths[name] = str(path)
        outside = [f"{path}.outside" for path in paths.values()]
        child = nursery.start(
            "use_stores",
            paths=[str(good), *paths.values()],
            megabytes=MEGABYTES,
            seconds=SECONDS,
            watch=[*outside, "/etc"],
        )
        found = child.value(300)
        yield {name: found[path] for name, path in paths.items()}


def test_x5_there_are_more_than_a_hundred_hostile_stores():
    assert len(hostile.ATTACKS) > 100


@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_x5_a_hostile_store_gives_errors_of_ours_only(name, reports):
    report = reports[name]
    assert report["strangers"] == {}
    assert report["errors"] or name in hostile.BENIGN, "nothing was noticed"


@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_x1_a_hostile_store_runs_no_code_and_touches_nothing_outside(name, reports):
    assert reports[name]["events"] == []
