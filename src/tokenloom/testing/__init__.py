"""Faults on purpose, stores from nothing, and laws, for tokenloom's own tests and for yours.

One idea: everything is written through `Files` and read through `ByteSource`, so a fault is one
object put in between. Each of them counts the calls that pass, so a test can fail the first call,
then the second, and so on until nothing fails any more: every place where things can go wrong is
visited, none is guessed.

=====================  ============================================================================
`FaultFiles`           the N-th call that writes fails, is cut short, or is the last of the process
`CrashFiles`           what a power loss after the N-th effect may leave on the disk
`FaultSource`          the N-th read fails, comes short, comes with a flipped bit, or comes late
`write_store`          a store straight from lists of ids
`assert_resumable`     a run that is stopped before any step goes on as if it had not been
`assert_elastic`       the batches of all ranks together are the same for any number of ranks
`assert_exactly_once`  every epoch has every row exactly once, and its order can be undone
=====================  ============================================================================

>>> import errno, tempfile, tokenloom as tl
>>> folder = tempfile.TemporaryDirectory()
>>> full = FaultFiles(at=20, error=errno.ENOSPC)
>>> tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes", files=full)
... # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
OSError: [Errno 28] No space left on device: ...
>>> tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes").num_tokens
2
>>> folder.cleanup()
"""

from tokenloom.testing.disk import Effect, mix
from tokenloom.testing.files import Call, FaultFiles
from tokenloom.testing.laws import assert_elastic, assert_exactly_once, assert_resumable
from tokenloom.testing.power import CrashFiles
from tokenloom.testing.source import FaultSource
from tokenloom.testing.stores import first_manifest, write_store

__all__ = [
    "Call",
    "CrashFiles",
    "Effect",
    "FaultFiles",
    "FaultSource",
    "assert_elastic",
    "assert_exactly_once",
    "assert_resumable",
    "first_manifest",
    "mix",
    "write_store",
]
