"""A model of any framework, asked about tokens: only scores leave the framework of its logits.

A model is a callable

    model(tokens, segment_ids, position_ids) -> logits [rows, cells, vocabulary]

==================  ================================================================================
a function          called with NumPy arrays; returns anything that `np.asarray` takes
`torch.nn.Module`   called with int64 tensors on its own device, in evaluation mode and without
                    gradients; both are restored
`transformers`      a module with a `config`: called by name, with the mask that keeps documents of
                    a row apart
`in_jax(function)`  called with jnp arrays, compiled
==================  ================================================================================

Where all tokens may be drawn, torch and JAX do log-softmax and gather where the logits are. Logits
that greedy decoding, top-k or top-p restrict go to `tokenloom.evaluate.decoding`, in pieces.

A model of Transformers may come from a local folder. Weights are read from `*.safetensors`, which
hold numbers and nothing that runs; a configuration that names code of its own is refused; nothing
is fetched. The fingerprint is a hash of the files, so a result names its model.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import local_path, wrong_type
from tokenloom.errors import ConfigError, InputError, MissingExtra
from tokenloom.evaluate.decoding import Decoding, TokenScores, token_scores
from tokenloom.store.files import LOCAL

CONFIG = "config.json"

MOST = 1 << 24  # bytes of a configuration


def load_local(folder: str | os.PathLike[str], *, dtype: str = "float32") -> Any:
    """A causal language model from a folder, in evaluation mode.

    Args:
        folder: as `save_pretrained` writes it.
        dtype: of its weights: "float32", "bfloat16" or "float16".

    Raises:
        InputError: the folder has no configuration or no safetensors, or asks for code of its own.
        MissingExtra: transformers is not installed.

    >>> load_local("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tokenloom.errors.InputError: nowhere: no config.json there, allowed: a folder as ...
    """
    path = local_path("model", folder)
    _check(path)
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError:
        raise MissingExtra("evaluating a folder", "transformers", "hf") from None
    with _without_bars(transformers.utils.logging):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=dtype
        )
    return model.eval()  # torch's evaluation mode


@contextmanager
def _without_bars(logging: Any) -> Iterator[None]:
    """No bars of Transformers, which it draws also where nobody watches."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def model_fingerprint(folder: str | os.PathLike[str]) -> str:
    """A hash of the configuration and the weights, 64 hex digits; equal for equal files.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("config.json", "model.safetensors"):
    ...         _ = pathlib.Path(folder, name).write_text("{}")
    ...     len(model_fingerprint(folder))
    64
    """
    path = local_path("model", folder)
    _check(path)
    total = hashlib.sha256(b"tokenloom model")
    for file in [path / CONFIG, *sorted(path.glob("*.safetensors"))]:
        with file.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        total.update(f"{file.name}\0{digest}\0".encode())
    return total.hexdigest()


def _check(path: Path) -> None:
    config = path / CONFIG
    text = LOCAL.read(config, MOST)
    if text is None:
        raise InputError(
            f"{path}: no {CONFIG} there, allowed: a folder as model.save_pretrained(…) writes it."
        )
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"{config}: no JSON ({error}). Save the model again") from None
    if isinstance(given, dict) and given.get("auto_map"):
        raise InputError(
            f"{config}: auto_map names code that would be run to make the model, which is refused. "
            "Allowed: architectures that transformers has itself."
        )
    if not any(path.glob("*.safetensors")):
        others = sorted(one.name for one in path.glob("*.bin"))
        raise InputError(
            f"{path}: no *.safetensors{' but ' + others[0] if others else ''}; other files "
            "may hold code, so they are not read. Save it again: "
            "model.save_pretrained(folder, safe_serialization=True)"
        )


Int32 = NDArray[np.int32]

NO_TARGET = -100  # in `JudgedRows.targets`: nothing is judged there

PIECE = 1 << 19  # logits that are reduced together in memory: 4 MiB in float64

DEVICE_PIECE = 1 << 24  # the same on a device: 64 MiB in float32


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
        description: framework, type, device and number of parameters, in a few words.
    """

    description: str

    def ready(self) -> AbstractContextManager[Any]:
        """While it is open, the model is set up for evaluation; afterwards it is as before."""

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells, row by row from left to right."""


def scorer_of(model: Any) -> Scorer:
    """A scorer of a model, whatever it is.

    Raises:
        ConfigError: it can't be called.
    """
    if isinstance(model, JaxScorer):
        return model
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return TorchScorer(model)
    if not callable(model):
        raise wrong_type("model", model, "a callable (tokens, segment_ids, position_ids) → logits")
    return ArrayScorer(model)


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
        self.description = f"function {getattr(model, '__qualname__', type(model).__name__)}"

    def ready(self) -> AbstractContextManager[Any]:
        """Nothing to set up."""
        return nullcontext()

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        logits = np.asarray(self.model(rows.tokens, rows.segment_ids, rows.position_ids))
        return _reference(logits, rows, decoding)


class TorchScorer:
    """Scores of a `torch.nn.Module`.

    A model of Transformers is called by name, as its own Trainer does, with a mask where a row has
    filler or several documents. Any other module is called as ``model(tokens, segment_ids,
    position_ids)``.

    Args:
        model: the module; it stays where it is.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.torch: Any = sys.modules["torch"]
        weights = list(model.parameters())
        self.device = weights[0].device if weights else self.torch.device("cpu")
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in weights})
        count = sum(one.numel() for one in weights)
        self.description = (
            f"{type(model).__name__}, {count:,} parameters, {' and '.join(kinds) or 'no'} weights "
            f"on {self.device}"
        )
        self.by_name = hasattr(model, "config") and hasattr(model, "generate")

    @contextmanager
    def ready(self) -> Iterator[None]:
        """In evaluation mode and without gradients; every module's own mode is restored."""
        with evaluation_mode(self.model), self.torch.no_grad():
            yield

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        logits = self._logits(rows)
        if not _draws_every_token(decoding):
            return _in_pieces(
                logits,
                rows,
                PIECE,
                lambda some, ids: token_scores(some.float().cpu().numpy(), ids, decoding),
            )
        piece = PIECE if logits.device.type == "cpu" else DEVICE_PIECE
        return _in_pieces(
            logits, rows, piece, lambda some, ids: self._log_softmax(some, ids, decoding.T)
        )

    def _log_softmax(self, logits: Any, targets: Int32, temperature: float) -> TokenScores:
        """Scores of tokens that are all drawn, from the logits that predict each."""
        wanted = self.torch.from_numpy(targets.astype(np.int64)).to(logits.device)[:, None]
        scores = logits.float()
        log_probs = (scores / temperature).log_softmax(1).gather(1, wanted)
        greedy = scores.gather(1, wanted) == scores.amax(1, keepdim=True)
        some = greedy[:, 0].nonzero()[:, 0]  # argmax is slow, and most tokens are not the largest
        greedy[some] = (
            scores[some].argmax(1, keepdim=True) == wanted[some]
        )  # of equal ones the first
        return TokenScores(
            log_probs[:, 0].cpu().numpy().astype(np.float64), greedy[:, 0].cpu().numpy()
        )

    def _sent(self, values: Any) -> Any:
        return self.torch.from_numpy(values.astype(np.int64)).to(self.device)

    def _logits(self, rows: JudgedRows) -> Any:
        tokens, positions = self._sent(rows.tokens), self._sent(rows.position_ids)
        if not self.by_name:
            found = self.model(tokens, self._sent(rows.segment_ids), positions)
            return getattr(found, "logits", found)
        return self.model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=self._mask(rows.segment_ids),
            use_cache=False,
        ).logits

    def _mask(self, segment_ids: Int32) -> Any:
        """None where causal attention is all: one document in every row, from its first cell on."""
        if (segment_ids == segment_ids[:, :1]).all():
            return None
        segments = self._sent(segment_ids)
        size = segments.shape[1]
        same = segments[:, None, :, None] == segments[:, None, None, :]
        kind = next(iter(self.model.parameters())).dtype
        earlier = self.torch.ones(size, size, dtype=self.torch.bool, device=self.device).tril()
        closed = self.torch.zeros(same.shape, dtype=kind, device=self.device)
        return closed.masked_fill_(~(same & earlier), self.torch.finfo(kind).min)


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Without dropout; every part of the model is in its own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # torch's evaluation mode
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class JaxScorer:
    """Scores of a function of JAX; see `in_jax`."""

    def __init__(self, model: Callable[..., Any], jax: Any) -> None:
        name = getattr(model, "__name__", "model")
        self.description = f"JAX function {name} on {jax.devices()[0]}"
        self._logits = jax.jit(model)
        self._log_softmax = jax.jit(partial(_log_softmax, jax))

    def ready(self) -> AbstractContextManager[Any]:
        """Nothing to set up: functions have no mode."""
        return nullcontext()

    def __call__(self, rows: JudgedRows, decoding: Decoding) -> TokenScores:
        """Scores of the judged cells."""
        logits = self._logits(rows.tokens, rows.segment_ids, rows.position_ids)
        if not _draws_every_token(decoding):
            return _reference(np.asarray(logits), rows, decoding)
        check_shape(logits.shape, rows)
        found = self._log_softmax(logits, np.maximum(rows.targets, 0), decoding.T)
        log_probs, greedy = (np.asarray(one)[rows.judged] for one in found)
        return TokenScores(log_probs.astype(np.float64), greedy)


def _log_softmax(jax: Any, logits: Any, targets: Any, temperature: Any) -> tuple[Any, Any]:
    """(log probabilities, greedy) of the targets of all cells."""
    jnp = jax.numpy
    scores = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    wanted = targets[..., None]
    log_probs = jax.nn.log_softmax(scores / temperature, -1)
    greedy = scores.argmax(-1) == targets  # of equal ones the first
    return jnp.take_along_axis(log_probs, wanted, -1)[..., 0], greedy


def in_jax(model: Callable[..., Any]) -> JaxScorer:
    """A model of JAX that can be evaluated.

    Args:
        model: ``(tokens, segment_ids, position_ids) -> logits``, traceable by `jax.jit`; parameters
            are bound, for example with `functools.partial`.

    >>> import jax.numpy as jnp
    >>> uniform = in_jax(lambda tokens, segment_ids, position_ids: jnp.zeros((*tokens.shape, 4)))
    >>> one = np.ones((1, 2), np.int32)
    >>> rows = JudgedRows(one, one, one, np.array([[3, -100]], np.int32))
    >>> uniform(rows, Decoding()).log_probs.round(3).tolist()
    [-1.386]
    """
    return JaxScorer(model, importlib.import_module("jax"))


def _draws_every_token(decoding: Decoding) -> bool:
    return decoding.T > 0 and decoding.top_k is None and decoding.top_p is None


def _reference(logits: NDArray[Any], rows: JudgedRows, decoding: Decoding) -> TokenScores:
    """Scores of logits in memory."""
    return _in_pieces(logits, rows, PIECE, lambda some, ids: token_scores(some, ids, decoding))


def _in_pieces(
    logits: Any, rows: JudgedRows, piece: int, scores: Callable[[Any, Int32], TokenScores]
) -> TokenScores:
    """The scores of all judged cells, a number of logits at a time."""
    check_shape(tuple(logits.shape), rows)
    flat, cells = logits.reshape(-1, logits.shape[-1]), np.flatnonzero(rows.judged)
    targets, step = rows.targets[rows.judged], max(1, piece // logits.shape[-1])
    starts = range(0, len(cells), step)
    return TokenScores.joined(
        [scores(flat[cells[i : i + step]], targets[i : i + step]) for i in starts]
    )


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
