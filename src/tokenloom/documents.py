"""`Documents`: all or some documents of a store, to be laid out: where every dataset begins."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch import RenderSpec
from tokenloom.chosen import chosen_documents
from tokenloom.dataset import Dataset, SourceConfig, names_of, with_known_eos
from tokenloom.errors import ConfigError, TokenizerError
from tokenloom.layout.kinds import LayoutSpec
from tokenloom.layout.pack import PackSpec
from tokenloom.layout.packed import Packed
from tokenloom.layout.windows import WindowsSpec
from tokenloom.line import ChosenLine, Line, WholeLine
from tokenloom.split import SplitSpec
from tokenloom.store.reader import Reader
from tokenloom.words import check_options, warn

__all__ = ["Documents"]


class Documents:
    """Some documents of a store, to be laid out like a whole one.

    Made by `Store.split`.
    """

    def __init__(self, reader: Reader, path: str, choice: SplitSpec | None) -> None:
        self._reader, self._path, self._choice = reader, path, choice

    def windows(
        self,
        seq_len: int,
        *,
        tail: str = "drop",
        lookahead: bool = False,
        overlap: int | None = None,
        align: bool = False,
        **render: Any,
    ) -> Dataset:
        """Token windows: the documents end to end, cut every `seq_len` tokens.

        Args:
            seq_len: tokens of a frame.
            tail: "drop" the last, short row or "keep" it, filled up.
            lookahead: one more token for each row, as the label of its last cell; labels are then
                "shifted" unless told otherwise, because aligned ones have no cell for it.
            overlap: tokens that rows share; with `lookahead` 1 unless told otherwise, else 0.
            align: let blocks of rows end where io blocks end.
            render: fields of `RenderSpec`, such as ``label_layout="shifted"``.
        """
        check_options("windows", render, [*names_of(WindowsSpec), *names_of(RenderSpec)])
        layout = WindowsSpec(
            seq_len=seq_len,
            tail=tail,
            lookahead=lookahead,
            overlap=int(lookahead) if overlap is None else overlap,
            align=align,
        )
        made = self._laid_out(layout, render)
        made.run.layout.warn_if_unaligned()
        return made

    def pack(
        self,
        seq_len: int,
        *,
        strategy: str = "best_fit_decreasing",
        overflow: str = "split",
        add_bos: bool = False,
        add_eos: bool = False,
        bos_id: int | None = None,
        eos_id: int | None = None,
        strict_special_tokens: bool = False,
        **options: Any,
    ) -> Dataset:
        """Documents packed into frames, planned from their lengths; nothing is lost by default.

        Args:
            seq_len: tokens of a frame.
            strategy: "best_fit_decreasing", "first_fit_decreasing" (or "bin"), "best_fit",
                "first_fit", "greedy", "one_doc", or "sequential" (end to end, cut when full).
            overflow: what to do with longer documents: "split", "truncate", "drop", "error".
            add_bos: put BOS before every document; the store stays as it is.
            add_eos: put EOS behind every document.
            bos_id: which token that is; the tokenizer's own if nothing is said.
            eos_id: the same for EOS; also the one that ``train_on_eos=False`` means.
            strict_special_tokens: raise if there is no such token; else it is left out, with a
                warning.
            options: further fields of `PackSpec` and `RenderSpec`.
        """
        packing = [name for name in names_of(PackSpec) if name not in ("bos_id", "eos_id")]
        rendering = names_of(RenderSpec)
        named = ("add_bos", "add_eos", "bos_id", "eos_id", "strict_special_tokens")
        check_options("pack", options, sorted({*packing, *rendering, *named}))
        render = {name: options.pop(name) for name in list(options) if name in rendering}
        _check_used(render, add_bos, bos_id, add_eos, eos_id)
        if add_bos and bos_id is None:
            bos_id = self._special("bos", strict_special_tokens)
        if add_eos and eos_id is None:
            eos_id = self._special("eos", strict_special_tokens)
        specials: dict[str, Any] = {"bos_id": bos_id, "eos_id": eos_id if add_eos else None}
        layout = PackSpec(
            seq_len=seq_len, strategy=strategy, overflow=overflow, **specials, **options
        )
        made = self._laid_out(layout, render | {"eos_id": eos_id})
        _tell_losses(self._path, made)
        return made

    def _laid_out(self, layout: LayoutSpec, render: dict[str, Any]) -> Dataset:
        """The dataset, with what is usual where nothing was said."""
        usual: dict[str, Any] = {"pad_id": self._filler(), "label_layout": "aligned"}
        if layout.lookahead:
            usual["label_layout"] = "shifted"
        render = with_known_eos(usual | render, self._reader)
        config = SourceConfig(layout=layout, choice=self._choice, render=RenderSpec(**render))
        return Dataset(self._reader, self._path, config, self.line)

    def _special(self, name: str, strict: bool) -> int | None:
        """The tokenizer's BOS or EOS, if it has one."""
        manifest = self._reader.manifest
        found: int | None = getattr(manifest.tokenizer, name) if manifest.tokenizer else None
        message = None
        if any(part.settings.get(name) is not None for part in manifest.parts):
            message = f"its documents have had their {name.upper()} since they were built"
        elif found is None:
            message = f"its tokenizer has no {name.upper()} token"
        if message is not None:
            message = (
                f"{self._path}: add_{name}: {message}, so none is added. Leave add_{name} out, or "
                f"name one with {name}_id=..."
            )
            if strict:
                raise TokenizerError(message)
            warn(message)
            return None
        return found

    @functools.cached_property
    def line(self) -> Line:
        """The documents, end to end."""
        if self._choice is None:
            return WholeLine(self._reader)
        return ChosenLine(self._reader, self.indices, repr(self._choice))

    @functools.cached_property
    def indices(self) -> NDArray[np.int64]:
        """Which documents of the store these are."""
        indices = chosen_documents(self._reader, self._choice)
        indices.flags.writeable = False
        return indices

    @property
    def num_documents(self) -> int:
        """How many there are."""
        return len(self.indices)

    @property
    def num_tokens(self) -> int:
        """Their tokens."""
        start, stop = self._reader.bounds(self.indices)
        return int((stop - start).sum())

    def _filler(self) -> int:
        """What stands in filler cells unless told otherwise: pad, else eos, else 0."""
        tokenizer = self._reader.manifest.tokenizer
        known = (tokenizer.pad, tokenizer.eos) if tokenizer else ()
        return next((token for token in known if token is not None), 0)


def _check_used(
    render: dict[str, Any], add_bos: bool, bos_id: int | None, add_eos: bool, eos_id: int | None
) -> None:
    """Refuse a special token that is named but not used: its name does not put it anywhere."""
    looked_at = not render.get("train_on_eos", True) or render.get("segments") == "eos"
    for name, given, used in (
        ("bos", bos_id, add_bos),
        ("eos", eos_id, add_eos or looked_at),
    ):
        if given is not None and not used:
            raise ConfigError(
                f"{name}_id: found {given}, but nothing uses it. add_{name}=True puts it there "
                "for every document."
            )


def _tell_losses(path: str, made: Dataset) -> None:
    """Say before anything runs how many tokens are in no row."""
    layout = made.run.layout
    tally = layout.groups.tally if isinstance(layout, Packed) else None
    if tally is None or not tally.lost:
        return
    why = {
        "documents filtered by length": tally.filtered_tokens,
        "documents truncated": tally.truncated_tokens,
        "documents dropped as too long": tally.overlong_tokens,
        "rows dropped as too short": tally.short_row_tokens,
    }
    listed = ", ".join(f"{count:,} in {name}" for name, count in why.items() if count)
    warn(
        f"{path}: pack: {tally.lost:,} of {tally.tokens:,} tokens "
        f"({tally.lost / tally.tokens:.1%}) are in no row: {listed}. overflow='split' and no "
        "filters lose nothing."
    )
