"""The fresh process of `benchmarks/opening.py`: open a store, look up a document, print the cost.

`python -m benchmarks.probe STORE DOCUMENT` prints seconds and bytes as JSON. Nothing of tokenloom
is imported before the clock runs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def probe(path: str, document: int) -> dict[str, float]:
    start = time.process_time()
    import numpy as np

    numpy = time.process_time()
    import tokenloom as tl

    imported = time.process_time()
    open_store = tl.open  # loads what opening needs
    loaded, memory = time.process_time(), peak()
    wall, cpu = time.perf_counter(), time.process_time()
    store = open_store(path)
    opened_wall, opened = time.perf_counter() - wall, time.process_time() - cpu
    grown = peak() - memory
    cpu = time.process_time()
    store.reader.bounds(np.array([document]))
    return {
        "numpy_cpu": numpy - start,
        "import_cpu": imported - numpy,
        "load_cpu": loaded - imported,
        "open_cpu": opened,
        "open_wall": opened_wall,
        "open_peak": grown,
        "bounds_cpu": time.process_time() - cpu,
    }


def peak() -> int:
    """The peak memory of this process so far, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux; macOS counts in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1], int(sys.argv[2]))))
