"""The arguments of a splice as settings, and the warnings a user gets before it runs.

One idea: `position_scheme` names the kind of model, and sensible defaults follow. A *relative*
model (RoPE, NoPE, ALiBi) sees no difference between offsets, because the filler before a splice is
masked: it gets clipped windows, several to a frame. An *absolute* model (learned positions) does
see one: it gets one splice to a frame, where it was placed. The defaults are as published.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenloom.arguments import field_names, integer
from tokenloom.batch.spec import RenderSpec
from tokenloom.documents.select import tell_documents
from tokenloom.errors import ConfigError, near_miss, plural, warn
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.splice.spec import SpliceSpec

log = logging.getLogger("tokenloom")

SCHEMES: dict[str, dict[str, str]] = {
    "relative": {"edge": "clip", "fill": "pack", "position_scheme": "reset"},
    "absolute": {"position_scheme": "absolute"},
    "reset": {"position_scheme": "reset"},
}

FOUND = ("edge", "fill", "pad_id", "label_layout")  # None depends on the other arguments

LISTED = 20  # documents in a line of the log


def splice_settings(
    seq_len: int,
    *,
    position_scheme: str | None,
    filler: str,
    bos: int | None,
    eos_before: int | None,
    eos: int | None,
    content_length: int | Mapping[int, int] | None,
    doc_schedule: Mapping[int, int] | None,
    doc_growth: Mapping[int, int] | None,
    schedule_batch_size: int | None,
    **options: Any,
) -> tuple[SpliceSpec, dict[str, Any]]:
    """Given the arguments of `Documents.splice`, answers the layout and the fields of a render.

    The arguments are those of `Documents.splice`, except that `bos` and `eos_before` are already
    tokens and `eos` is the tokenizer's own.
    """
    scheme = position_scheme or "absolute"
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise ConfigError(
            f"position_scheme: found {position_scheme!r}, allowed: relative (RoPE, NoPE, ALiBi), "
            f"absolute (learned positions), reset.{near_miss(str(scheme), list(SCHEMES))}"
        )
    usual = dict(SCHEMES[scheme])
    if options.get("content_start_mode", "coverage_balanced") != "coverage_balanced":
        usual = {"position_scheme": usual["position_scheme"]}  # other modes sweep one per frame
    given = {name: one for name, one in options.items() if name not in FOUND or one is not None}
    chosen = {**usual, **given}
    render = {name: chosen.pop(name) for name in field_names(RenderSpec) if name in chosen}
    if filler not in ("pad", "eos"):
        raise ConfigError(f"filler: found {filler!r}, allowed: pad, eos.")
    if filler == "eos" and "pad_id" not in render:
        if eos is None:
            raise ConfigError(
                "filler: found 'eos', but the store's tokenizer names none. Give pad_id=..., the "
                "token to use as filler."
            )
        render["pad_id"] = eos
    groups = chosen.pop("doc_groups", None)
    spec = SpliceSpec(
        seq_len=seq_len,
        bos_id=bos,
        eos_id=eos_before,
        content_length=None if isinstance(content_length, Mapping) else content_length,
        content_schedule=_pairs("content_length", content_length, schedule_batch_size),
        doc_schedule=_pairs("doc_schedule", doc_schedule, schedule_batch_size),
        doc_growth=_pairs("doc_growth", doc_growth, None),
        doc_groups=None if groups is None else _numbered(groups),
        **{name: _plain(value) for name, value in chosen.items()},
    )
    return spec, render


def _pairs(
    name: str, schedule: int | Mapping[int, int] | None, batch_size: int | None
) -> tuple[tuple[int, ...], ...]:
    """A schedule as (example, value) pairs; a step is `batch_size` examples."""
    if not isinstance(schedule, Mapping):
        if schedule is None or name == "content_length":
            return ()
        raise ConfigError(
            f"{name}: found {schedule!r}, allowed: a mapping from the first example to the value, "
            "such as {0: 1, 640: 2}."
        )
    step = 1 if batch_size is None else batch_size
    if type(step) is not int or step < 1:
        raise ConfigError(f"schedule_batch_size: found {step!r}, allowed: 1 or more examples.")
    pairs = [
        (integer(f"{name}: from", _unquoted(begin)) * step, integer(f"{name}[{begin!r}]", value))
        for begin, value in schedule.items()
    ]
    return tuple(sorted(pairs))


def _unquoted(begin: Any) -> Any:
    """A number that is a key, which JSON writes as text."""
    return int(begin) if isinstance(begin, str) and begin.isdecimal() else begin


def _numbered(groups: Any) -> tuple[int, ...]:
    """Groups by number, in order of their names."""
    if isinstance(groups, str) or not isinstance(groups, (Sequence, np.ndarray)):
        raise ConfigError(
            f"doc_groups: found {groups!r}, allowed: one name or number for each document."
        )
    names = {name: number for number, name in enumerate(sorted(set(groups), key=str))}
    return tuple(names[name] for name in groups)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return tuple(value) if isinstance(value, list) else value


# -- warnings and log ----------------------------------------------------------------------
def say_what_it_costs(layout: Spliced, render: RenderSpec, position_scheme: str | None) -> None:
    """Warn about wasted work, and show the arithmetic."""
    spec, part = layout.spec, layout.parts[-1]
    if spec.min_copy_len < 2:
        warn(
            f"min_copy_len: found {spec.min_copy_len}; a splice of one token trains nothing. Use "
            "2 or more."
        )
    room = int((spec.seq_len - part.content)[part.quota > 0].max(initial=0))
    if spec.offset_jitter and (room < 1 or part.packed):
        why = "splices are packed side by side" if part.packed else "splices are as long as frames"
        warn(
            f"offset_jitter: found {spec.offset_jitter}, but {why} (content_length="
            f"{int(part.content.max())}, seq_len={spec.seq_len}), so there is no room to move "
            f"them. Lower content_length to {spec.seq_len - spec.offset_jitter}, or leave it out."
        )
    _warn_of_temperature(spec)
    _warn_of_uneven_clips(spec, part)
    _warn_of_short_clips(spec, part)
    told = position_scheme == "absolute" and render.position_scheme == "absolute"
    if spec.sweeps and not told and not render.attend_prefix:
        _warn_of_offsets(layout, part)


def _warn_of_temperature(spec: SpliceSpec) -> None:
    """Warn about weights that are out of bounds or not used."""
    if spec.balance_tau > 1:
        warn(
            f"balance_tau: found {spec.balance_tau}, usual is 0 (equal) to 1 (proportional); "
            "above 1 long documents get more than their share."
        )
    if spec.sampler != "enumerate":
        return
    usually = {"alpha": 0.0, "balance_tau": 1.0, "max_epochs": None}
    usually |= dict.fromkeys(("doc_weights", "doc_alphas", "doc_groups"))
    for name, usual in usually.items():
        found = getattr(spec, name)
        if found != usual and (name, spec.edge_mode) != ("alpha", "duplicate"):
            warn(
                f"{name}: found {found} with sampler='enumerate', which shows every choice once "
                "and ignores it. Use sampler='quota'."
            )


def _warn_of_offsets(layout: Spliced, part: SplicePhase) -> None:
    starts = sum(part.starts)
    frames = int(part.quota.sum())
    if frames <= starts:
        return
    warn(
        f"splice: an epoch spends {frames:,} frames on {starts:,} starts, each at several offsets. "
        "Filler before a splice is masked, so a model with RoPE, NoPE or ALiBi, or with positions "
        f"that are reset, sees no difference between them: {frames - starts:,} frames "
        f"({1 - starts / frames:.0%}) teach it nothing new. For such a model use "
        "position_scheme='relative' with content_start_mode='coverage_balanced'; if it has "
        "learned positions, position_scheme='absolute'; attend_prefix=True shows it the filler."
    )


def _warn_of_uneven_clips(spec: SpliceSpec, part: SplicePhase) -> None:
    """Warn if the stride does not divide K - 1: clipped windows then show tokens unevenly."""
    if spec.edge != "clip":
        return
    sizes = np.unique(part.content[part.quota > 0]) - 1
    uneven = sizes[sizes % spec.content_stride > 0]
    if len(uneven) and not spec.doc_strides:
        k, times = spec.content_stride, int(uneven[-1]) / spec.content_stride
        warn(
            f"content_stride: found {k} with edge='clip' and windows of {int(uneven[-1]) + 1} "
            f"tokens: tokens are targets {int(times)} or {int(times) + 1} times. A stride that "
            f"divides {int(uneven[-1])} makes it the same for all."
        )


def _warn_of_short_clips(spec: SpliceSpec, part: SplicePhase) -> None:
    """Warn if documents much shorter than K take about K frames each."""
    short = (part.quota > 0) & (4 * part.length < part.content)
    if spec.edge != "clip" or part.packed or not short.any():
        return
    rows, most = int(part.quota[short].sum()), int(part.content.max())
    warn(
        f"edge: found 'clip' with fill='one': {plural(int(short.sum()), 'document')} shorter than "
        f"a quarter of content_length={most:,} take {rows:,} of {part.slots.rows:,} rows, about "
        "one for each of the K windows that reach them, mostly filler. Use fill='pack', lower "
        "content_length, select longer documents, or leave short ones out with adaptive_k=False."
    )


def tell(layout: Spliced, path: str, *, selected: bool) -> None:
    """Log what is spliced: the lines of the published design, with true numbers.

    Args:
        layout: the splices.
        path: path of the store.
        selected: whether the documents were already logged.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    spec, part = layout.spec, layout.parts[-1]
    used = np.flatnonzero(part.length > 0)
    lengths, quota = part.length[used], part.quota[used]
    splices = part.splices(0, 1)[used]  # more than the quota where clipped splices come in pairs
    if len(used) == 1:
        log.info(
            "[splice] dataset=%s doc_index=%d doc_len=%d seq_len=%d content_stride=%d "
            "offset_stride=%d offsets=%d starts=%d examples=%d",
            path,
            layout.documents[used[0]],
            lengths[0],
            spec.seq_len,
            spec.content_stride,
            spec.offset_stride,
            part.most_offsets,
            part.starts[used[0]],
            part.slots.rows,
        )
        return
    log.info(
        "[multi_splice] num_docs=%d doc_lengths=%s Pos.size=%d content_length=%s mode=%s "
        "balance_mode=%s total_pairs=%d",
        len(used),
        _listed(lengths.tolist()),
        spec.seq_len,
        int(part.content.max()),
        spec.content_start_mode,
        spec.balance_mode,
        splices.sum(),
    )
    log.info("[multi_splice] pairs_per_doc=%s", _listed(splices.tolist()))
    if not selected:
        tell_documents("[multi_splice] ", layout.documents[used], lengths)
    if spec.balance_mode == "by_temperature" and spec.sampler != "enumerate":
        log.info("[multi_splice] doc_probs ~ %s normalized", _formula(spec))
        total = sum(part.weights)
        shares = [f"{part.weights[place] / total:.4f}" for place in used.tolist()]
        log.info("[multi_splice] expected_doc_fraction=[%s]", ", ".join(_short(shares)))
    short = int((part.shown[used] == 0).sum())
    if short:
        log.info("[multi_splice] %s not shown: too short", plural(short, "document"))
    skipped = len(used) - short - int((quota > 0).sum())
    if skipped:
        log.info("[multi_splice] %s not shown: too small a share", plural(skipped, "document"))
    choices = np.maximum(part.choices, part.shown)[used]  # both of a clipped pair count
    missed = int((choices - splices)[quota < part.shown[used]].sum())
    if missed:
        epochs = int((-(-part.shown[used] // np.maximum(quota, 1)))[quota > 0].max())
        log.info(
            "[multi_splice] %d of %d choices are not in one epoch; all are after %d epochs%s",
            missed,
            choices.sum(),
            epochs,
            "" if not spec.alpha else " without alpha, later with it",
        )


def _formula(spec: SpliceSpec) -> str:
    extra = " * weight" if spec.doc_weights else ""
    return f"{spec.balance_measure}^{spec.balance_tau:g}{extra}"


def _short(items: list[Any]) -> list[str]:
    shown = [str(item) for item in items[:LISTED]]
    return [*shown, f"… {len(items) - LISTED} more"] if len(items) > LISTED else shown


def _listed(items: list[Any]) -> str:
    return f"[{', '.join(_short(items))}]"
