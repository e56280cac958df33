"""Tasks and their progress, without a cluster: a few at a time, in order, and never in the way."""

import contextlib
from types import SimpleNamespace

import pytest
from refusals import refused

from tokenloom.errors import InputError, WorkerError
from tokenloom.ingest.cluster import ray_tasks
from tokenloom.ingest.cluster.under_way import Reporting, Watch
from tokenloom.progress import Progress


class ToyRay:
    """Runs a task when somebody waits for it; of those, the newest is ready first."""

    class exceptions:  # noqa: N801 - as Ray calls it
        RayError = OSError

    def __init__(self, cpus=2):
        self.cpus, self.open, self.most, self.cancelled, self.up = cpus, [], 0, [], True

    def is_initialized(self):
        return self.up

    def put(self, value):
        return ("kept", value)

    def cluster_resources(self):
        return {"CPU": self.cpus}

    def remote(self, **_):
        def of(function):
            return SimpleNamespace(remote=lambda shared, task: self._add(function, shared, task))

        return of

    def _add(self, function, shared, task):
        reference = task["n"], function, shared[1]
        self.open.append(reference)
        self.most = max(self.most, len(self.open))
        return reference

    def wait(self, references, timeout):
        return references[-1:], references[:-1]

    def get(self, reference):
        self.open.remove(reference)
        number, function, message = reference
        return function(message, {"n": number})

    def cancel(self, reference, force):
        self.cancelled.append(reference[0])


def square(message, task):
    return {"n": task["n"], "square": task["n"] ** 2 + message["more"]}


@pytest.fixture
def ray(monkeypatch):
    toy = ToyRay()
    monkeypatch.setattr(ray_tasks, "with_ray", lambda *_: contextlib.nullcontext(toy))
    return toy


def run(function, count, **options):
    tasks = [{"n": n} for n in range(count)]
    options = {"executor": "ray", "workers": None, **options}
    return ray_tasks.on_ray(function, {"more": 1}, tasks, **options)


@pytest.mark.parametrize("in_order", [True, False])
def test_few_tasks_are_submitted_at_a_time_and_all_are_answered(ray, in_order):
    found = [one["n"] for one in run(square, 40, in_order=in_order)]
    assert sorted(found) == list(range(40))
    assert (found == sorted(found)) == in_order  # control: the toy answers the newest first
    assert ray.most == ray_tasks.AHEAD * ray.cpus
    ray.most = 0
    assert len(list(run(square, 40, workers=3))) == 40
    assert ray.most == 3


def test_a_caller_that_stops_listening_leaves_no_task_behind(ray):
    results = run(square, 40)
    next(results)
    results.close()
    assert len(ray.cancelled) == len(ray.open) > 0
    ray.cancelled.clear()
    ray.open.clear()
    results = run(square, 40)
    next(results)
    ray.up = False  # the user has shut it down: nothing must start it again
    results.close()
    assert not ray.cancelled


def fails(message, task):
    return {"error": "InputError", "message": f"task {task['n']}"}


def is_lost(message, task):
    raise OSError("the worker died\nand more")


def test_errors_of_tasks_are_raised_here(ray):
    refused(lambda: list(run(fails, 3)), InputError, "task")
    refused(lambda: list(run(is_lost, 3)), WorkerError, "16", "the worker died")


def test_progress_never_breaks_a_build():
    def broken(*_, **__):
        raise RuntimeError("no such actor")

    class Bar(Progress):
        is_shown = True

        def __init__(self):
            super().__init__("", total=None, show=False)
            self.shown = []

        def reach(self, amount):
            self.shown.append(amount)

    bar = Bar()
    watch, ray = Watch(bar), SimpleNamespace(remote=broken)
    assert watch.start(ray) is None
    watch.look(ray)
    watch.done({"bytes": 40, "documents": 4, "tokens": 30})
    assert bar.shown == [40]
    report = Reporting((SimpleNamespace(report=SimpleNamespace(remote=broken)), 0.0), 1)
    report.count(1, 1)
    report.end()
