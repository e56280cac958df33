"""Faults on purpose, and stores from nothing, for tokenloom's own tests and for yours.

One idea: everything is written through `Files` and read through `ByteSource`, so a fault is one
object put in between. Each of them counts the calls that pass, so a test can fail the first call,
then the second, and so on until nothing fails any more: every place where things can go wrong is
visited, none is guessed.

=============  ====================================================================================
`FaultFiles`   the N-th call that writes fails, is cut short, or is the last of the process
`CrashFiles`   what a power loss after the N-th effect may leave on the disk
`FaultSource`  the N-th read fails, comes short, comes with a flipped bit, or comes late
`write_store`  a store straight from lists of ids
=============  ====================================================================================

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
from tokenloom.testing.power import CrashFiles
from tokenloom.testing.source import FaultSource
from tokenloom.testing.stores import first_manifest, write_store

__all__ = [
    "Call",
    "CrashFiles",
    "Effect",
    "FaultFiles",
    "FaultSource",
    "first_manifest",
    "mix",
    "write_store",
]
