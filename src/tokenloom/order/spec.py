"""The settings of one source, which decide the row at each index, as one frozen record.

All layouts, by the name used in a description.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenloom.arguments import check_between
from tokenloom.bind import check_fields
from tokenloom.documents.line import Line
from tokenloom.documents.spec import Choice
from tokenloom.errors import ConfigError
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.windows import Windows, WindowsSpec
from tokenloom.order.shuffle import Shuffle
from tokenloom.random.keys import check_seed

MAIN = "main"  # the name of the source in a run of one


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceConfig:
    """Everything that decides which row a source shows at an index.

    Attributes:
        layout: how rows are cut.
        choice: which documents; None is all of them.
        shuffle: how rows are ordered; None is stored order.
        epochs: how often rows are shown; None is endless.
        seed: seed of the order; None takes the mix's seed, else 0.
        take: the maximum number of examples.
        name: name of the source, part of its keys.
    """

    layout: LayoutSpec
    choice: Choice | None = None
    shuffle: Shuffle | None = None
    epochs: int | None = 1
    seed: int | None = None
    take: int | None = None
    name: str = MAIN

    def __post_init__(self) -> None:
        check_fields(self)
        check_between("epochs", self.epochs, 0, why=", or None for endless")
        if self.take is not None and self.take < 0:
            raise ConfigError(f"take: found {self.take}, allowed: 0 examples or more.")
        if self.seed is not None:
            check_seed(self.seed)


LayoutSpec = WindowsSpec | PackSpec | SpliceSpec

KINDS: dict[str, type[LayoutSpec]] = {
    "windows": WindowsSpec,
    "pack": PackSpec,
    "splice": SpliceSpec,
}


def kind_of(spec: LayoutSpec) -> str:
    """The name of a layout."""
    return next(name for name, kind in KINDS.items() if isinstance(spec, kind))


def make_layout(spec: LayoutSpec, line: Line) -> Windows | Packed | Spliced:
    """The layout that a spec describes, over a line."""
    if isinstance(spec, PackSpec):
        return Packed(spec, line)
    if isinstance(spec, SpliceSpec):
        return Spliced(spec, line)
    return Windows(spec, line, line.reader.manifest.chunk_tokens)
