"""Where the time of a batch goes, as a picture.

::

    python -m benchmarks flame > docs/pictures/flame.svg

One idea: a timer of CPU time interrupts the loader, and equal stacks are counted. A box is as wide
as the share of its stack; what is on top of it, it has called. Python handles an interrupt when a
call into compiled code returns, so that call's line of source is shown on top, in blue.

The loader has no thread here, and its store is in memory: this is CPU time of the caller's thread.
"""

from __future__ import annotations

import dis
import itertools
import linecache
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from xml.sax.saxutils import escape

import tokenloom as tl
from benchmarks.loaders import ALL
from benchmarks.stores import documents, publish, write_shard

__all__ = ["Box", "draw", "main", "sample"]

TOKENS, BATCH, SEQ, BATCHES = 1 << 25, 32, 2048, 1024
TICK, SECONDS = 0.001, 8.0  # CPU-seconds between samples, and of all
WIDTH, HEIGHT, LEFT = 860, 18, 10  # pixels: of the whole, of a box, of the margin
LEAST = 0.004  # share of the whole below which a box is not drawn
COLORS = ("#f3d9b1", "#f0c795", "#ecb57a")
COMPILED, INK, PALE = "#a9c9e8", "#1c1c1c", "#767676"


@dataclass(slots=True)
class Box:
    """A call under its caller: name, whether it is compiled, samples, and what it called."""

    name: str
    compiled: bool = False
    samples: int = 0
    inner: dict[tuple[str, bool], Box] = field(default_factory=dict)

    def add(self, stack: list[tuple[str, bool]]) -> None:
        """Count a stack of calls from here, outermost first."""
        self.samples += 1
        if stack:
            if stack[0] not in self.inner:
                self.inner[stack[0]] = Box(*stack[0])
            self.inner[stack[0]].add(stack[1:])


def sample(work: Callable[[], object], rounds: int) -> Box:
    """The stacks of some work, a timer's tick apart."""
    whole, outside = Box("a batch"), sys._getframe()

    def look(_: int, frame: FrameType | None) -> None:
        stack: list[tuple[str, bool]] = []
        if frame is not None and _is_call(frame):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            stack.append((line, True))
        while frame is not None and frame is not outside:
            stack.append((_name_of(frame), False))
            frame = frame.f_back
        whole.add(stack[-2::-1])  # without `work`

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
    try:
        for _ in range(rounds):
            work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return whole


def _name_of(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "")
    short = module.removeprefix("tokenloom.") if module.startswith("tokenloom.") else ""
    return f"{frame.f_code.co_qualname}  {short}".strip()


def _is_call(frame: FrameType) -> bool:
    """Whether a frame has just called something, which was no frame: something compiled."""
    return "CALL" in dis.opname[frame.f_code.co_code[frame.f_lasti]]


def draw(boxes: list[tuple[str, Box, float]]) -> str:
    """Some stacks under each other, each (title, box, microseconds of the whole), as SVG."""
    parts: list[str] = []
    top = 14.0
    for title, whole, total in boxes:
        depth = _depth(whole, whole.samples)
        words = f"{title}: {total:.1f} µs a batch"
        parts.append(f'<text x="{LEFT}" y="{top:g}" font-weight="bold">{escape(words)}</text>')
        floor = top + 8 + depth * HEIGHT
        parts.extend(_boxes(whole, LEFT, floor, WIDTH / whole.samples, total / whole.samples))
        top = floor + 34
    note = "width: time; on top: called from below; blue: compiled, by its line of source"
    parts.append(f'<text x="{LEFT}" y="{top - 14:g}" fill="{PALE}">{note}</text>')
    size = f'width="{WIDTH + 2 * LEFT}" height="{top:g}"'
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} fill="{INK}">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>\n"])


def _shown(box: Box, whole: int) -> list[Box]:
    """What is drawn on a box: all that are wide enough, widest first."""
    found = [one for one in box.inner.values() if one.samples >= LEAST * whole]
    return sorted(found, key=lambda one: -one.samples)


def _depth(box: Box, whole: int) -> int:
    return 1 + max((_depth(one, whole) for one in _shown(box, whole)), default=0)


def _boxes(box: Box, x: float, y: float, scale: float, unit: float) -> Iterator[str]:
    width, whole = box.samples * scale, round(WIDTH / scale)
    color = COMPILED if box.compiled else COLORS[len(box.name) % len(COLORS)]
    words = f"{box.name}: {box.samples * unit:.2f} µs"
    yield (
        f'<g><title>{escape(words)}</title><rect x="{x:.1f}" y="{y - HEIGHT:.1f}" '
        f'width="{width:.1f}" height="{HEIGHT - 1}" fill="{color}"/>'
    )
    room = int((width - 6) / 6.2)
    if room > 3:
        name = box.name if len(box.name) <= room else box.name.split("  ")[0]
        cut = name if len(name) <= room else name[: room - 1] + "…"
        yield f'<text x="{x + 3:.1f}" y="{y - 5:.1f}">{escape(cut)}</text>'
    yield "</g>"
    for one in _shown(box, whole):
        yield from _boxes(one, x, y - HEIGHT, scale, unit)
        x += one.samples * scale


def _profile(loader: Iterator[Any], batches: int, seconds: float) -> tuple[Box, float]:
    """The stacks of some batches, and the microseconds that one takes when nobody looks."""

    def work() -> None:
        for _ in itertools.islice(loader, batches):
            pass

    work()
    bare = []
    for _ in range(5):
        start = time.process_time()
        work()
        bare.append(time.process_time() - start)
    rounds = max(1, round(seconds / min(bare)))
    return sample(work, rounds), min(bare) / batches * 1e6


def main(size: str = "default") -> None:
    """Print the picture: tokens alone, and all arrays of packed rows."""
    tiny = size == "tiny"
    tokens, batches, seconds = (1 << 21, 32, 0.3) if tiny else (TOKENS, BATCHES, SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = documents(tokens, "uint16", 900, seed=1)
        publish(root, [write_shard(root, 0, made, "uint16")], "uint16")
        store = tl.open(root)
        jobs = {
            f"windows, tokens of {BATCH} x {SEQ:,}": (store.windows(SEQ), ("tokens",)),
            f"packed, all arrays of {BATCH} x {SEQ:,}": (store.pack(SEQ), ALL),
        }
        found = []
        for title, (rows, fields) in jobs.items():
            run = rows.shuffle().seed(7).epochs(None)
            loader = iter(tl.Loader(run, BATCH, fields=fields, prefetch=0))
            found.append((title, *_profile(loader, batches, seconds)))
        sys.stdout.write(draw(found))
