"""What a store of many shards costs to open, to read and to continue; run as a script.

::

    python huge.py SHARDS RANKS

makes up a store of `SHARDS` full shards (2^27 tokens in 131,072 documents each) and prints, as
JSON, what one of `RANKS` ranks pays. 74,506 shards are 10^13 tokens.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))

from virtual import VirtualStore

import tokenloom as tl

SEQ_LEN = 4096


def forget_peak():
    """From here on, the peak is of what follows."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


class Counted:
    """The virtual store, with every read counted."""

    def __init__(self, inner):
        self.inner, self.reads, self.bytes = inner, 0, 0

    def size(self, name):
        return self.inner.size(name)

    def read(self, ranges):
        self.reads += len(ranges)
        self.bytes += sum(count for _, _, count in ranges)
        return self.inner.read(ranges)

    def taken(self):
        found, self.reads, self.bytes = (self.reads, self.bytes), 0, 0
        return found


def cpu(do):
    before = time.process_time()
    result = do()
    return result, round(time.process_time() - before, 4)


def one_rank(store, source, shuffle, ranks):
    """What the last rank reads for its first steps from the middle of the run, and how fast."""
    made = store.windows(SEQ_LEN)
    run = {
        "full": lambda: made.shuffle(),
        "lanes": lambda: made.block_shuffle(lanes=8 * ranks, window_blocks=1),
    }[shuffle]().seed(3)
    batch = 2 * ranks
    source.taken()
    loader = tl.Loader(run, batch, rank=ranks - 1, world_size=ranks, prefetch=0)
    loader.seek(len(run) // batch // 2)
    rows, first = cpu(lambda: next(loader).tokens.shape[0])
    reads = source.taken()
    _, more = cpu(lambda: [next(loader) for _ in range(8)])
    later = source.taken()
    state = json.dumps(loader.state_dict())
    return {
        "rows": rows,
        "first_seconds": first,
        "first_reads": reads[0],
        "first_bytes": reads[1],
        "reads_a_step": later[0] / 8,
        "bytes_a_step": later[1] / 8,
        "step_seconds": more / 8,
        "deciding_state_bytes": len(
            json.dumps(
                {
                    key: value
                    for key, value in json.loads(state).items()
                    if key not in ("dataset", "sources")
                }
            )
        ),
    }


def main(shards, ranks):
    virtual = VirtualStore([(131_072, 1 << 27)] * shards)
    root = virtual.write_manifest(Path(tempfile.mkdtemp()) / "huge")
    source = Counted(virtual)
    forget_peak()
    before = peak_mb()
    opened, seconds = cpu(
        lambda: tl.open(root, verify="never", source=source, cache_bytes=64 << 20)
    )
    found = {
        "tokens": opened.num_tokens,
        "documents": opened.num_documents,
        "manifest_bytes": (root / "manifest-000001.json").stat().st_size,
        "open_seconds": seconds,
        "open_reads": source.taken()[0],
        "open_mb": round(peak_mb() - before, 1),
    }
    for shuffle in ("full", "lanes"):
        found[shuffle] = one_rank(opened, source, shuffle, ranks)
    found["mb"] = round(peak_mb() - before, 1)
    run = opened.windows(SEQ_LEN).shuffle().seed(3)
    place, seconds = cpu(lambda: run.at(len(run) // 3))
    found["at_seconds"] = seconds
    document = place.spans[0].document
    _, found["where_seconds"] = cpu(lambda: next(iter(run.where("main", document, epochs=1))))
    found["cpu_seconds"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
