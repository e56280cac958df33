"""Tasks and their progress, without a cluster: a few at a time, in order, and never in the way."""

import contextlib
import pickle
from types import SimpleNamespace

import pytest

from tokenloom.errors import InputError, WorkerError
from tokenloom.ingest.cluster import ray_tasks, under_way
from tokenloom.ingest.cluster.under_way import Reporting, UnderWay, Watch
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


def test_nodes_may_come_while_tasks_run(ray):
    results = run(square, 40)
    next(results)
    ray.cpus = 10
    list(results)
    assert ray.most == ray_tasks.AHEAD * 10


def test_whoever_stops_listening_leaves_no_task_behind(ray):
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
    with pytest.raises(InputError, match="task"):
        list(run(fails, 3))
    with pytest.raises(WorkerError, match=r"lost 16 times .+the worker died"):
        list(run(is_lost, 3))


# -- progress -------------------------------------------------------------------------------


class Bar(Progress):
    """A bar that remembers what it showed."""

    def __init__(self):
        super().__init__("", total=None, show=False)
        self.shown = []

    is_shown = True

    def reach(self, amount):
        self.shown.append(amount)


class Actor:
    """An actor in this process."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._real, name))


def watching(get=None, remote=None):
    bar = Bar()
    watch = Watch(bar)
    actor = Actor(UnderWay())
    toy = SimpleNamespace(
        remote=remote or (lambda **_: lambda kind: SimpleNamespace(remote=lambda: actor)),
        get=get or (lambda value, timeout: value),
    )
    return bar, watch, toy


def test_what_is_under_way_is_added_to_what_is_done():
    bar, watch, ray = watching()
    told, _ = watch.start(ray)
    first, second = Reporting((told, 0.0), 1), Reporting((told, 0.0), 2)
    first.reach(30)
    first.count(3, 20)
    second.reach(5)
    second.count(1, 4)
    watch.look(ray)
    first.end()
    watch.done({"bytes": 40, "documents": 4, "tokens": 30})
    watch.look(ray)
    assert bar.shown == [35, 40, 45]
    told._real.__init__()  # it was lost with its node, and starts again with nothing
    watch.look(ray)
    second.reach(9)
    second.count(2, 8)
    watch.look(ray)
    assert bar.shown == [35, 40, 45, 45, 49]


def test_a_task_reports_now_and_then_and_only_if_somebody_watches(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(under_way.time, "monotonic", lambda: now[0])
    told = UnderWay()
    reports = []
    monkeypatch.setattr(told, "report", lambda *values: reports.append(values))
    bar = Reporting((Actor(told), 1.0), 7)
    for _ in range(1000):
        now[0] += 0.01
        bar.reach(int(now[0] * 100))
        bar.count(1, 1)
    assert 9 <= len(reports) <= 11
    nobody = Reporting(None, 7)
    nobody.count(1, 1)
    nobody.end()
    watch = Watch(Progress("", total=None, show=False))
    assert watch.start(None) is None  # no actor is started for a bar that nobody sees
    watch.look(None)


def test_progress_never_breaks_a_build():
    def broken(*_, **__):
        raise RuntimeError("no such actor")

    bar, watch, ray = watching(remote=broken)
    assert watch.start(ray) is None
    watch.look(ray)
    watch.done({"bytes": 40, "documents": 4, "tokens": 30})
    assert bar.shown == [40]
    bar, watch, ray = watching(get=broken)
    watch.start(ray)
    watch.look(ray)
    assert bar.shown == []
    report = Reporting((SimpleNamespace(report=SimpleNamespace(remote=broken)), 0.0), 1)
    report.count(1, 1)
    report.end()


def test_the_driver_receives_three_numbers_however_many_stretches_there_are():
    told = UnderWay()
    for stretch in range(10_000):
        told.report(stretch, [1 << 40, 1 << 30, 1 << 40])
    assert len(pickle.dumps(told.total())) < 60  # bytes
