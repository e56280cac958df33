"""A model of Transformers from a local folder: safetensors only, no code of others, with a name.

Weights are read from `*.safetensors`, which hold numbers and nothing that runs; a configuration
that names code of its own is refused; nothing is fetched. The fingerprint is a hash of the files,
so a result names its model.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenloom.arguments import local_path
from tokenloom.errors import InputError, MissingExtra
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
