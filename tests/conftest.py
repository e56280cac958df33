"""Hypothesis profiles, and the helper modules of `tests/shared`.

Plans are remembered in a folder that goes with the tests, not in the user's.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# no check of time: the machine may be doing something else
settings.register_profile("timeless", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "default", settings.get_profile("timeless"), derandomize=True, max_examples=40
)
settings.register_profile(
    "quick", settings.get_profile("timeless"), derandomize=True, max_examples=12
)
settings.register_profile("thorough", settings.get_profile("timeless"), max_examples=1000)
settings.load_profile(os.environ.get("TOKENLOOM_HYPOTHESIS", "default"))

os.environ["TOKENLOOM_CACHE_DIR"] = tempfile.mkdtemp(prefix="tokenloom-tests-")
atexit.register(shutil.rmtree, os.environ["TOKENLOOM_CACHE_DIR"], ignore_errors=True)

sys.path.insert(0, str(Path(__file__).parent / "shared"))

gc.disable()  # nothing of what imports make is garbage; see pytest_collection_finish


def pytest_addoption(parser):
    """One option: golden screenshots are written anew."""
    parser.addoption("--renew-goldens", action="store_true", help="write golden screenshots anew")


def pytest_collection_finish():
    """What was imported is left out of every later collection.

    A Trainer collects garbage at each start, and torch, transformers and the tests themselves are
    half a million objects: 0.3 seconds each time.
    """
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def few_objects():
    """For modules that collect garbage after each test: only what they make is looked at.

    After some thousand tests of other modules a collection takes a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def bucket():
    """An empty object store that this process and its children reach."""
    from tokenloom.testing import FakeBucket

    with FakeBucket() as made:
        yield made


@pytest.fixture(autouse=True)
def workers_of_torch_end_with_their_test(monkeypatch):
    """An iterator of torch that an exception holds is told to end, not left to be collected.

    Collected as garbage it waits five seconds for each of its workers, in whatever test comes next.
    """
    loading = sys.modules.get("torch.utils.data.dataloader")
    if loading is None:
        yield
        return
    made, kind = weakref.WeakSet(), loading._MultiProcessingDataLoaderIter
    begin = kind.__init__

    def noted(self, *given):
        begin(self, *given)
        made.add(self)

    monkeypatch.setattr(kind, "__init__", noted)
    yield
    for one in list(made):
        one._shutdown_workers()


@pytest.fixture(autouse=True)
def no_worker_rests_from_test_to_test():
    """Workers of a build serve the next one; a test starts without them."""
    yield
    worker = sys.modules.get("tokenloom.ingest.crew.worker")
    if worker is not None:
        worker.close_resting()
