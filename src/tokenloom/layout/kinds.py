"""All layouts, by the name used in a description."""

from __future__ import annotations

from tokenloom.documents.line import Line
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.layout.windows import Windows, WindowsSpec

__all__ = ["KINDS", "LayoutSpec", "kind_of", "make_layout"]

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
