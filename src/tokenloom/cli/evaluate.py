"""Measure what a model has learned: `tokenloom evaluate`."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import one_of
from tokenloom.cli.printing import write, write_whole
from tokenloom.cli.runs import open_target
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding
from tokenloom.evaluate.evaluation_sets import content_hash, documents_of
from tokenloom.evaluate.extraction import Contrast, Extraction, contrast
from tokenloom.evaluate.heat_map import heat_map
from tokenloom.evaluate.losses import Losses
from tokenloom.evaluate.losses import evaluate as losses_of
from tokenloom.evaluate.models import load_local, model_fingerprint
from tokenloom.evaluate.token_page import TokenPage, token_page
from tokenloom.evaluate.windows import pz

CONTROL = "control"


def evaluate(arguments: argparse.Namespace) -> int:
    """Measure a model: `tokenloom evaluate`."""
    sets, control = _sets(open_target(arguments.target, arguments.set), arguments)
    name = model_fingerprint(arguments.model)
    asking = _Asking(arguments, load_local(arguments.model, dtype=arguments.dtype))
    found = _Found(name)
    for title, one in sets.items():
        found.contents[title] = content_hash(one)
        found.losses[title] = asking.losses(one)
        if arguments.pz:
            for source, documents in _documents(one).items():
                label = title if source is None else f"{title}/{source}"
                found.windows[label] = asking.windows(documents)
        for number in arguments.page:
            found.pages[title, number] = asking.page(one, number)
    if control is not None:
        found.contents[CONTROL] = content_hash(control)
        guessed = asking.windows(control)
        found.windows[CONTROL] = guessed
        found.beside |= {
            title: contrast(each, guessed)
            for title, each in found.windows.items()
            if each is not guessed
        }
    if arguments.output:
        _save(Path(arguments.output), found, arguments)
    write(arguments, found.as_json(arguments.model), found.lines())
    return 0


@dataclass(kw_only=False)
class _Found:
    """Everything that one command finds."""

    model: str
    contents: dict[str, str] = field(default_factory=dict)
    losses: dict[str, Losses] = field(default_factory=dict)
    windows: dict[str, Extraction] = field(default_factory=dict)
    beside: dict[str, Contrast] = field(default_factory=dict)
    pages: dict[tuple[str, int], TokenPage] = field(default_factory=dict)

    def as_json(self, folder: str) -> dict[str, Any]:
        """The answer of --json, and of the file."""
        return {
            "model": {"folder": folder, "fingerprint": self.model},
            "content": self.contents,
            "losses": {title: one.as_json() for title, one in self.losses.items()},
            "windows": {title: one.as_json() for title, one in self.windows.items()},
            "control": {title: one.as_json() for title, one in self.beside.items()},
        }

    def lines(self) -> Iterator[str]:
        """The answer for people."""
        yield f"model {self.model[:12]}"
        for title, one in self.losses.items():
            yield f"{title}: {one.settings['model']}; content {self.contents[title][:12]}"
            yield from (f"  {line}" for line in one.lines())
        for title, each in self.windows.items():
            yield f"{title}: P(z)"
            yield from (f"  {line}" for line in each.lines())
        for title, both in self.beside.items():
            yield f"{title} beside the control:"
            yield from (f"  {line}" for line in both.lines())


class _Asking:
    """A model, and what the command says about how it is asked."""

    def __init__(self, arguments: argparse.Namespace, model: Any) -> None:
        self.asked, self.model = arguments, model
        self.progress = False if arguments.quiet else None

    def losses(self, one: Dataset | Documents) -> Losses:
        return losses_of(
            self.model,
            one,
            by=tuple(dict.fromkeys(("document", *self.asked.by))),
            seq_len=self.asked.seq_len if isinstance(one, Documents) else None,
            batch_size=self.asked.batch_size,
            progress=self.progress,
        )

    def windows(self, documents: Documents) -> Extraction:
        asked = self.asked
        return pz(
            self.model,
            documents,
            prefix=asked.prefix,
            suffix=asked.suffix,
            stride=asked.stride,
            decoding=Decoding(asked.temperature, asked.top_k, asked.top_p),
            batch_size=asked.batch_size,
            progress=self.progress,
        )

    def page(self, one: Dataset | Documents, number: int) -> TokenPage:
        (documents, *others) = _documents(one).values()
        if others:
            raise ConfigError(
                f"page: found {number}, but a mix has a document of this number in every source. "
                "Name a store, or a run of one source."
            )
        length = one.seq_len if isinstance(one, Dataset) else self.asked.seq_len
        return token_page(
            self.model, documents, number, seq_len=length, batch_size=self.asked.batch_size
        )


def _sets(
    target: Dataset | Store, arguments: argparse.Namespace
) -> tuple[Mapping[str, Any], Documents | None]:
    """What is evaluated, by name, and the control."""
    if arguments.control is not None and not arguments.pz:
        raise ConfigError("control: found without --pz, whose windows it is compared by. Add --pz.")
    if arguments.page and not arguments.output:
        raise ConfigError("page: found without a folder to write it into. Add -o DIR.")
    if isinstance(target, Store):
        if arguments.seq_len is None:
            raise ConfigError(
                "--seq-len: missing, and a store has no rows of its own; allowed: the tokens of a "
                "row, as many as the model takes."
            )
        return {target.path.name: target}, _control(arguments.control, {})
    if arguments.seq_len is not None:
        raise ConfigError(
            f"--seq-len: found {arguments.seq_len} with a run, whose rows have a length. Leave it "
            "out, or name a store."
        )
    held = dict(target.file.evaluate) if target.file is not None else {}
    control = _control(arguments.control, held)
    rest = {name: one for name, one in held.items() if name != arguments.control}
    return rest or {"run": target}, control


def _control(name: str | None, held: Mapping[str, Any]) -> Documents | None:
    """The documents that were held out: a set of the run file, or a store."""
    if name is None:
        return None
    if name in held:
        (documents, *_) = documents_of(held[name]).values()
        return documents
    if not Path(name).is_dir():
        one_of("control", name, (*held, "the path of a store"))
    return open_store(name)


def _documents(one: Any) -> dict[str | None, Documents]:
    """The documents of a run, by source; None stands for the only one."""
    if isinstance(one, Documents):
        return {None: one}
    parts: dict[str | None, Documents] = dict(documents_of(one).items())
    return {None: next(iter(parts.values()))} if len(parts) == 1 else parts


def _save(folder: Path, found: _Found, arguments: argparse.Namespace) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    answer = json.dumps(found.as_json(arguments.model), indent=1)
    write_whole(folder / "evaluation.json", answer + "\n", "evaluation")
    for title, one in found.windows.items():
        text, name = io.StringIO(), title.replace("/", "-")
        csv.writer(text, lineterminator="\n").writerows(one.table())
        write_whole(folder / f"windows-{name}.csv", text.getvalue(), "table of windows")
        write_whole(folder / f"windows-{name}.npz", one.to_bytes(), "file of windows")
        write_whole(folder / f"heat-{name}.svg", heat_map(one), "picture")
    for (title, number), page in found.pages.items():
        write_whole(folder / f"{title.replace('/', '-')}-{number}.html", page.html(), "page")
