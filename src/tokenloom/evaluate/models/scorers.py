"""What evaluation asks of a model, and how any model is made to answer it.

One idea: logits never leave the framework that made them. A model is a callable

    model(tokens, segment_ids, position_ids) -> logits [rows, cells, vocabulary]

and a *scorer* wraps one: it takes a batch of rows with the tokens that are to be judged, and gives
a few numbers for each of these. A batch of logits is reduced where it was made and dropped before
the next one.

==================  ================================================================================
a function          called with NumPy arrays; returns anything that `np.asarray` takes
`torch.nn.Module`   called with int64 tensors on its own device, in evaluation mode and without
                    gradients; both are restored
`transformers`      a module with a `config`: called by name, with the mask that keeps documents of
                    a row apart
`in_jax(function)`  called with jnp arrays and compiled together with the reduction
==================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding, TokenScores, token_scores

__all__ = [
    "NO_TARGET",
    "ArrayScorer",
    "JudgedRows",
    "Scorer",
    "check_shape",
    "named_fingerprint",
]

Int32 = NDArray[np.int32]

PIECE = 1 << 20  # logits that are reduced together: 8 MiB in float64

NO_TARGET = -100  # in `JudgedRows.targets`: nothing is judged there


class JudgedRows(NamedTuple):
    """A batch as a model sees it, and what is to be judged.

    Attributes:
        tokens, segment_ids, position_ids: as in a `tokenloom.Batch` [rows, cells]; segment 0 is
            filler.
        targets: the token that the logits of a cell predict, `NO_TARGET` for none [rows, cells].
    """

    tokens: Int32
    segment_ids: Int32
    position_ids: Int32
    targets: Int32

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Cells whose logits are judged [rows, cells]."""
        return np.asarray(self.targets != NO_TARGET)


class Scorer(Protocol):
    """A model that is asked about tokens.

    Attributes:
        told: framework, type, device and number of parameters, in a few words.
    """

    told: str

    def fingerprint(self) -> str | None:
        """A digest of the weights; None if nobody can know."""

    def ready(self) -> AbstractContextManager[Any]:
        """While it is open, the model is set up for evaluation; afterwards it is as before."""

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells, row by row from left to right."""


class ArrayScorer:
    """Scores of a function from NumPy arrays to logits.

    >>> uniform = ArrayScorer(lambda tokens, segment_ids, position_ids: np.zeros((1, 2, 10)))
    >>> one = np.array([[1, 1]], np.int32)
    >>> rows = JudgedRows(one, one, one, np.array([[7, NO_TARGET]], np.int32))
    >>> uniform(rows, Decoding()).log_probs.tolist() == [-np.log(10)]
    True
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.told = f"function {getattr(model, '__qualname__', type(model).__name__)}"

    def fingerprint(self) -> str | None:
        """What the function says of itself, by an attribute of this name."""
        return named_fingerprint(self.model)

    def ready(self) -> AbstractContextManager[Any]:
        """Nothing to set up."""
        return nullcontext()

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        logits = np.asarray(self.model(rows.tokens, rows.segment_ids, rows.position_ids))
        check_shape(logits.shape, rows)
        flat, cells = logits.reshape(-1, logits.shape[-1]), np.flatnonzero(rows.judged)
        targets, piece = rows.targets[rows.judged], max(1, PIECE // logits.shape[-1])
        parts = [
            token_scores(flat[cells[i : i + piece]], targets[i : i + piece], decoding)
            for i in range(0, len(cells), piece)
        ]
        return TokenScores.joined(parts)


def named_fingerprint(model: Any) -> str | None:
    """The attribute `fingerprint` of a function, which its author gave it.

    >>> def model(tokens, segment_ids, position_ids): ...
    >>> named_fingerprint(model)
    >>> model.fingerprint = "counts of plays, version 2"
    >>> named_fingerprint(model)
    'counts of plays, version 2'
    """
    found = getattr(model, "fingerprint", None)
    return found if isinstance(found, str) else None


def check_shape(found: tuple[int, ...], rows: JudgedRows) -> None:
    """Refuse logits of another shape than the rows, or with too small a vocabulary."""
    if len(found) != 3 or tuple(found[:2]) != rows.tokens.shape:
        raise ConfigError(
            f"model: its logits have shape {list(found)}, allowed: "
            f"{[*rows.tokens.shape, 'vocabulary']}, one row of logits for each cell"
        )
    largest = int(max(rows.tokens.max(initial=0), rows.targets.max(initial=0)))
    if largest >= found[2]:
        raise ConfigError(
            f"model: token id {largest:,} is outside its vocabulary of {found[2]:,}; allowed: a "
            "model of the store's tokenizer. `store.tokenizer` shows which it is"
        )
