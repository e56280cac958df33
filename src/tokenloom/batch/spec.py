"""How spans become arrays: the settings that control labels, masks and positions."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tokenloom.arguments import check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError

TOKENS = -(1 << 31), (1 << 31) - 1  # what a cell can hold

MOST_OFFSET = 1 << 30  # with the cells of the longest frame still a position of 31 bits

PAINTED = {
    "segment_ids": np.int32,
    "position_ids": np.int32,
    "loss_mask": np.bool_,
    "labels": np.int32,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderSpec:
    """How spans become arrays. No field changes which tokens are where.

    Attributes:
        label_layout: "aligned" (label i is token i, the model shifts; -100 where not trained) or
            "shifted" (label i is token i + 1).
        mask_boundary_loss: do not train the first token of a document on the document before it.
        position_scheme: positions start from 0 in every document ("reset") or frame ("absolute").
        ignore_id: a token that is never trained on.
        train_on_eos: train the prediction of EOS.
        eos_mask: which EOS tokens `train_on_eos` applies to: "all" tokens that equal `eos_id`, or
            only the "inserted" ones, which the layout put after documents.
        segments: where documents end: as stored ("documents"), or guessed from `eos_id` ("eos", for
            imported tokens without boundaries).
        eos_id: the token that ends a document.
        pad_id: the token in filler cells.
        trailing: the segment of filler at the end of a frame: 0 ("filler"), or that of the last
            document ("doc"), as some trainers expect. It is never trained.
        attend_prefix: give filler at the start of a frame the segment of the first document, which
            then attends to it.
        position_offset: added to every position.
    """

    label_layout: str = "aligned"
    mask_boundary_loss: bool = True
    position_scheme: str = "reset"
    ignore_id: int | None = None
    train_on_eos: bool = True
    eos_mask: str = "all"
    segments: str = "documents"
    eos_id: int | None = None
    pad_id: int = 0
    trailing: str = "filler"
    attend_prefix: bool = False
    position_offset: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in (
            ("label_layout", ("aligned", "shifted")),
            ("position_scheme", ("reset", "absolute")),
            ("segments", ("documents", "eos")),
            ("eos_mask", ("all", "inserted")),
            ("trailing", ("filler", "doc")),
        ):
            one_of(name, getattr(self, name), allowed)
        for name in ("pad_id", "eos_id", "ignore_id"):
            check_between(name, getattr(self, name), *TOKENS)
        check_between("position_offset", self.position_offset, -MOST_OFFSET, MOST_OFFSET)
        if self.segments == "eos" and self.eos_id is None:
            raise ConfigError(
                "eos_id: missing; segments='eos' needs the token that ends documents. Give it."
            )
        if not self.train_on_eos and self.eos_mask == "all" and self.eos_id is None:
            raise ConfigError(
                "eos_id: missing; train_on_eos=False needs the token that must not be trained. "
                "Give it."
            )

    @property
    def is_plain(self) -> bool:
        """Whether labels and the loss mask follow from boundaries alone, in the default way."""
        return (
            self.mask_boundary_loss
            and self.train_on_eos
            and self.ignore_id is None
            and self.label_layout == "aligned"
        )

    @property
    def is_lent(self) -> bool:
        """Whether some filler gets the segment of a document."""
        return self.attend_prefix or self.trailing == "doc"

    def painted_of(self, fields: tuple[str, ...], *, usual: bool) -> tuple[str, ...]:
        """Which requested fields follow from tiles and tokens alone, in the order of `PAINTED`.

        Asking for labels adds `loss_mask`, which detects batches without trained tokens.

        Args:
            fields: what is requested.
            usual: whether no stored weight and no blank cell changes what is trained.
        """
        return _painted_of(self, fields, usual)


@functools.lru_cache(maxsize=256)
def _painted_of(render: RenderSpec, fields: tuple[str, ...], usual: bool) -> tuple[str, ...]:
    wanted = {*fields, "loss_mask"} if "labels" in fields else {*fields}
    if render.is_lent:
        wanted -= {"segment_ids"}
    if render.position_scheme != "reset" or render.position_offset:
        wanted -= {"position_ids"}
    if not (usual and render.is_plain):
        wanted -= {"labels", "loss_mask"}
    return tuple([name for name in PAINTED if name in wanted])
