"""Measure what a model has learned: `tokenloom evaluate`."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.store import Store
from tokenloom.cli.printing import write, write_whole
from tokenloom.cli.runs import open_target
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.extract import pz
from tokenloom.evaluate.losses import Losses
from tokenloom.evaluate.losses import evaluate as losses_of
from tokenloom.evaluate.models.folders import load_local, model_fingerprint
from tokenloom.evaluate.window_scores import Extraction

__all__ = ["evaluate"]


def evaluate(arguments: argparse.Namespace) -> int:
    """Measure a model: `tokenloom evaluate`."""
    sets = _sets(open_target(arguments.target, arguments.set), arguments)
    name, model = (
        model_fingerprint(arguments.model),
        load_local(arguments.model, dtype=arguments.dtype),
    )
    progress = False if arguments.quiet else None
    found: dict[str, Losses] = {}
    windows: dict[str, Extraction] = {}
    for title, one in sets.items():
        found[title] = losses_of(
            model,
            one,
            by=tuple(dict.fromkeys(("document", *arguments.by))),
            seq_len=arguments.seq_len if isinstance(one, Documents) else None,
            batch_size=arguments.batch_size,
            progress=progress,
        )
        if arguments.pz:
            for source, documents in _documents(one).items():
                label = title if source is None else f"{title}/{source}"
                windows[label] = _windows(model, documents, arguments, progress)
    answer = {
        "model": {"folder": arguments.model, "fingerprint": name},
        "losses": {title: one.as_json() for title, one in found.items()},
        "windows": {title: one.as_json() for title, one in windows.items()},
    }
    if arguments.output:
        _save(Path(arguments.output), answer, windows)
    write(arguments, answer, _lines(found, windows, name))
    return 0


def _sets(target: Dataset | Store, arguments: argparse.Namespace) -> Mapping[str, Any]:
    """What is evaluated, by name."""
    if isinstance(target, Store):
        if arguments.seq_len is None:
            raise ConfigError(
                "--seq-len: missing, and a store has no rows of its own; allowed: the tokens of a "
                "row, as many as the model takes."
            )
        return {target.path.name: target}
    if arguments.seq_len is not None:
        raise ConfigError(
            f"--seq-len: found {arguments.seq_len} with a run, whose rows have a length. Leave it "
            "out, or name a store."
        )
    held = target.file.evaluate if target.file is not None else {}
    return held or {"run": target}


def _documents(one: Any) -> dict[str | None, Documents]:
    """The documents behind a run, by source; None stands for the only one."""
    if isinstance(one, Documents):
        return {None: one}
    parts = {
        name: Documents(source.reader, source.path, source.config.choice)
        for name, source in one.sources.items()
    }
    return {None: next(iter(parts.values()))} if len(parts) == 1 else {**parts}


def _windows(
    model: Any, documents: Documents, arguments: argparse.Namespace, progress: bool | None
) -> Extraction:
    return pz(
        model,
        documents,
        prefix=arguments.prefix,
        suffix=arguments.suffix,
        stride=arguments.stride,
        decoding=Decoding(arguments.temperature, arguments.top_k, arguments.top_p),
        batch_size=arguments.batch_size,
        progress=progress,
    )


def _lines(
    found: Mapping[str, Losses], windows: Mapping[str, Extraction], name: str
) -> Iterator[str]:
    yield f"model {name[:12]}"
    for title, one in found.items():
        yield f"{title}: {one.settings['model']}"
        yield from (f"  {line}" for line in one.lines())
    for title, each in windows.items():
        yield f"{title}: P(z)"
        yield from (f"  {line}" for line in each.lines())


def _save(folder: Path, answer: Mapping[str, Any], windows: Mapping[str, Extraction]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "evaluation.json", json.dumps(answer, indent=1) + "\n", "evaluation")
    for title, one in windows.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(one.table())
        place = folder / f"windows-{title.replace('/', '-')}.csv"
        write_whole(place, text.getvalue(), "table of windows")
