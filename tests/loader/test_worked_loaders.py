"""Loaders, caches and counters at the values that the designs work out by hand."""

from toyruns import toy_run

import tokenloom as tl


def test_be_12_a_far_step_reads_no_more_than_the_first(store):
    """Seconds are printed by `python -m benchmarks order`; here what it reads is counted."""
    run = toy_run(store, "full", epochs=None)
    reads = []
    for step in (0, 10**6, 10**12):
        with tl.Loader(run, 4, prefetch=0, fetch="rows") as loader:
            before = run.counters()
            loader.seek(step)
            next(loader)
            after = run.counters()
            reads.append(after.unique_examples - before.unique_examples)
    assert reads == [4, 4, 4]
