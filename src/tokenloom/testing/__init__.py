"""Toy stores, faults, a bucket and laws, for tests of tokenloom and of what is built on it.

=====================  ============================================================================
`write_store`          a store directly from lists of ids
`write_flat`           a store from one array of ids and the lengths of its documents
`tiny`                 internal sizes so small that toy inputs cross every border
`numpy_alone`          no compiled loops, as where no compiler was found
`FaultSource`          the N-th read fails, is short, has a flipped bit, or is late
`FaultFiles`           the N-th call of a writer fails, or is the last one of its process
`FakeBucket`           an object store that counts requests, waits, and fails on demand
`assert_resumable`     a run that is stopped before any step resumes as if it had not been stopped
`assert_elastic`       the batches of all ranks together are the same for any number of ranks
`assert_exactly_once`  every epoch has every row exactly once, and its order has an inverse
=====================  ============================================================================

Everything is read through a `ByteSource` and written through a `Files`, so a fault is one object
put in between. It counts calls: a test lets the first fail, then the second, and so on until none
fails any more. Every point of failure is visited, none is guessed.

>>> import tempfile, tokenloom as tl
>>> folder = tempfile.TemporaryDirectory()
>>> store = write_store(folder.name + "/toy", [[[1, 2, 3], [4, 5, 6]]])  # one shard
>>> run = store.windows(2).shuffle()
>>> with tiny():
...     assert_resumable(run, batch_size=1, steps=2)
>>> folder.cleanup()
"""

from tokenloom.testing.bucket import BucketRequest, FakeBucket
from tokenloom.testing.faults import FaultFiles, FaultSource, FileCall
from tokenloom.testing.laws import assert_elastic, assert_exactly_once, assert_resumable
from tokenloom.testing.small import numpy_alone, tiny
from tokenloom.testing.stores import write_flat, write_store

__all__ = [
    "BucketRequest",
    "FakeBucket",
    "FaultFiles",
    "FaultSource",
    "FileCall",
    "assert_elastic",
    "assert_exactly_once",
    "assert_resumable",
    "numpy_alone",
    "tiny",
    "write_flat",
    "write_store",
]
