"""An evaluation that was stopped goes on where it was.

One idea: rows are judged in order of indices, so what was found so far and one integer, the rows
that are done, are all there is to keep. They are one small file, replaced as a whole every half
minute and at the end. The file says what it belongs to (rows, weights, settings, share of the
rank), and a call that asks for anything else refuses it; the same call after the end reads its
answer and runs no model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from tokenloom.arguments import local_path
from tokenloom.errors import ConfigError, InputError
from tokenloom.evaluate.answer_files import packed, unpacked
from tokenloom.evaluate.models.scorers import Scorer
from tokenloom.store.files import LOCAL, replace_file

__all__ = ["Kept"]

SECONDS = 30.0  # from one writing to the next

SHARE = 20  # writing takes at most one of these parts of the time

MOST = 1 << 32  # bytes of a file that is read again

Arrays = dict[str, NDArray[Any]]


class Kept:
    """What an evaluation has found so far, in a file.

    Args:
        path: of the file; None keeps nothing.
        kind: of the answer.
        scorer: the model; its weights are named by their digest.
        about: what else the answer depends on, plain values.

    Attributes:
        done: rows that were judged before.
        arrays: what was found about them; empty at the start.

    >>> class Model:
    ...     told, fingerprint = "toy", lambda self: "weights of step 100"
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = Kept(folder + "/toy.npz", "toy", Model(), {"run": "abc"})
    ...     first.write(4, {"x": np.arange(4)})
    ...     again = Kept(folder + "/toy.npz", "toy", Model(), {"run": "abc"})
    >>> first.done, again.done, again.arrays["x"].tolist()
    (0, 4, [0, 1, 2, 3])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        kind: str,
        scorer: Scorer,
        about: Mapping[str, Any],
    ) -> None:
        self.path = None if path is None else local_path("keep", path)
        self.kind, self.done = kind, 0
        self.arrays: Arrays = {}
        if self.path is None:
            return
        self.about = {**about, "weights": _weights(scorer)}
        self._next = time.monotonic() + SECONDS
        data = LOCAL.read(self.path, MOST)
        if data is not None:
            self._take(data)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return self.path is not None and time.monotonic() >= self._next

    def write(self, done: int, arrays: Arrays) -> None:
        """Keep what was found about the first rows.

        Args:
            done: rows that were judged.
            arrays: what was found.
        """
        if self.path is not None:
            before = time.monotonic()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = {"done": done, "belongs": self.about}
            replace_file(self.path, packed(f"kept {self.kind}", whole, arrays))
            after = time.monotonic()
            self._next = after + max(SECONDS, SHARE * (after - before))

    def _take(self, data: bytes) -> None:
        """Read what is there, if it is of this evaluation."""
        try:
            whole, arrays = unpacked(f"kept {self.kind}", data)
        except InputError as error:
            raise InputError(
                f"{self.path}: no evaluation of this kind was kept here ({error}) Name another "
                "file in keep=, or move this one away."
            ) from None
        theirs = whole["belongs"]
        names = {**self.about, **theirs}
        name = next((name for name in names if theirs.get(name) != self.about.get(name)), None)
        if name is not None:
            raise ConfigError(
                f"keep: {self.path} belongs to another evaluation: {name} is "
                f"{theirs.get(name)!r:.80} there and {self.about.get(name)!r:.80} here. Name "
                "another file, or move this one away to start anew."
            )
        self.done, self.arrays = whole["done"], arrays


def _weights(scorer: Scorer) -> str:
    found = scorer.fingerprint()
    if found is None:
        raise ConfigError(
            f"keep: nobody can say whether the {scorer.told} is the same after a stop; allowed: a "
            'model with an attribute `fingerprint`, such as model.fingerprint = "step 100".'
        )
    return found
