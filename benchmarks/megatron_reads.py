"""Megatron's own indexed dataset, timed in its own environment: `megatron_reads.py STEM BATCHES`.

It is asked for a pass by a line on standard input, and answers with the CPU-seconds of that pass,
so it can take turns with a process that does not have it. A pass is batches of 32 rows of 2,048
tokens in shuffled order, each row from the parts of documents that it covers, as a GPTDataset
collects them. Where these parts are is worked out before, so its sample index costs nothing here.
"""

from __future__ import annotations

import sys
import time

import numpy as np

BATCH, SEQ = 32, 2048


def main() -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(sys.argv[1])
    batches = int(sys.argv[2])
    edges = np.concatenate([[0], np.cumsum(dataset.sequence_lengths, dtype=np.int64)])
    rows = np.random.default_rng(7).permutation(int(edges[-1]) // SEQ)
    parts = {}
    for row in rows.tolist():
        low, high = row * SEQ, (row + 1) * SEQ
        head = int(np.searchsorted(edges, low, side="right")) - 1
        tail = int(np.searchsorted(edges, high, side="left")) - 1
        parts[row] = [
            (
                n,
                int(max(low, edges[n]) - edges[n]),
                int(min(high, edges[n + 1]) - max(low, edges[n])),
            )
            for n in range(head, tail + 1)
            if min(high, edges[n + 1]) > max(low, edges[n])
        ]
    place = 0
    print("ready", flush=True)
    for _ in sys.stdin:
        before = time.process_time()
        for _ in range(batches):
            chosen = [int(rows[(place + i) % len(rows)]) for i in range(BATCH)]
            place += BATCH
            np.stack(
                [
                    np.concatenate([dataset.get(n, offset=a, length=b) for n, a, b in parts[row]])
                    for row in chosen
                ]
            )
        print(time.process_time() - before, flush=True)


if __name__ == "__main__":
    main()
