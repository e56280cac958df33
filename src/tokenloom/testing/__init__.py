"""Takes stores, runs and batches → gives faults, toy stores and laws for tests, ours and yours.

One idea: everything is read through `ByteSource`, so a fault is one object put in between. It
counts reads, so a test can fail the first, then the second, and so on until nothing fails any more:
every point of failure is visited, none is guessed.

=====================  ============================================================================
`FaultSource`          the N-th read fails, is short, has a flipped bit, or is late
`write_store`          a store directly from lists of ids
`first_manifest`       the manifest of a first build, from its shards
`tiny`                 internal sizes so small that toy inputs cross every border
`assert_resumable`     a run that is stopped before any step resumes as if it had not been stopped
`assert_elastic`       the batches of all ranks together are the same for any number of ranks
`assert_exactly_once`  every epoch has every row exactly once, and its order has an inverse
=====================  ============================================================================

>>> import tempfile, tokenloom as tl
>>> folder = tempfile.TemporaryDirectory()
>>> write_store(folder.name + "/toy", [[[1, 2, 3], [4, 5, 6]]]).tokens  # one shard
6
>>> run = tl.open(folder.name + "/toy").windows(2).shuffle()
>>> assert_resumable(run, batch_size=1, steps=2)
>>> folder.cleanup()
"""

from tokenloom.testing.faulty import FaultSource
from tokenloom.testing.laws import assert_elastic, assert_exactly_once, assert_resumable
from tokenloom.testing.small import tiny
from tokenloom.testing.stores import first_manifest, write_store

__all__ = [
    "FaultSource",
    "assert_elastic",
    "assert_exactly_once",
    "assert_resumable",
    "first_manifest",
    "tiny",
    "write_store",
]
