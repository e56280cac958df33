"""Splices under the names that users of Levanter know: functions that give a `Dataset`.

One idea: a configuration that is already written keeps its names and defaults, and comes down to
``store.select(...).splice(...)``. Trailing filler has the segment of the document, as published; a
frame has `seq_len` tokens, which there is the size of the model's `Pos` axis, here an argument.
"""

from __future__ import annotations

from typing import Any

from tokenloom.dataset import Dataset
from tokenloom.errors import ConfigError
from tokenloom.splice_configs.arguments import make_splices
from tokenloom.splice_configs.sources import Base

__all__ = ["SpliceMultiDocumentLMConfig", "SpliceSingleDocumentLMConfig", "recommended"]


def SpliceSingleDocumentLMConfig(  # noqa: N802 - the name that its users know
    *,
    base: Base = None,
    dataset_name: str | None = None,
    tokenizer: Any = None,
    doc_index: int | None = None,
    doc_key: Any = None,
    doc_selector: dict[str, Any] | None = None,
    min_doc_length: int | None = None,
    max_doc_length: int | None = None,
    doc_select_mode: str = "first",
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    offset_stride: int = 1,
    shuffle_offsets: bool | int = False,
    offset_seed: int = 0,
    content_length: int | None = None,
    content_stride: int = 1,
    shuffle_content: bool | int = False,
    content_seed: int = 0,
    content_start_mode: str = "coverage_balanced",
    min_copy_len: int = 2,
    alpha: float = 0.0,
    mode: str = "splice",
    restrict_to_training_subset: bool = False,
    initial_batch_size: int | None = None,
    max_train_batches: int | None = None,
    shuffle: bool | int = False,
    shuffle_per_epoch: bool = False,
    seq_len: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    select_seed: int = 0,
    **options: Any,
) -> Dataset:
    """One document of a base, at many positions of frames.

    Args:
        base: where documents are; see `tokenloom.splice_configs.sources`.
        dataset_name: which dataset of a mixture; may be left out if it has one.
        tokenizer: of the text, if the store is to be built; else compared with the store's.
        doc_index: the number of the document in the store.
        doc_key: conditions on its metadata; this and what follows as for `Documents.select`.
        doc_selector: a mapping of `min_len`, `max_len` and `hash`.
        min_doc_length: tokens that it must have. If none has, the longest is taken; if that of
            `doc_index` has not, what the mode chooses; each with a warning.
        max_doc_length: tokens that it may have; the same.
        doc_select_mode: "first", "longest", "shortest" or "random".
        pad_token_id: what stands in filler cells; the tokenizer's pad, else EOS, else 0.
        eos_token_id: EOS, where the tokenizer names none or another one is meant.
        offset_stride: cells from one offset to the next; this and what follows are fields of
            `tokenloom.layout.splice.SpliceSpec`, which says more.
        shuffle_offsets: go through offsets in random order.
        offset_seed: of that order.
        content_length: tokens of a splice, 2 or more; None is as many as fit.
        content_stride: tokens from one start to the next.
        shuffle_content: go through starts in random order.
        content_seed: of that order.
        content_start_mode: "coverage_balanced", "slide_within", "anchor_start" or "cyclic_roll".
        min_copy_len: splices with fewer tokens are left out.
        alpha: prefer starts near the ends of the document.
        mode: "splice", or "slide": full frames of a document, without filler.
        restrict_to_training_subset: only documents inside the first `max_train_batches` x
            `initial_batch_size` x `seq_len` tokens of the store.
        initial_batch_size: rows of a batch.
        max_train_batches: batches that were trained on; else what the mixture says. If nobody
            says, all of the store was, with a warning.
        shuffle: True, or the length of stretches to shuffle inside.
        shuffle_per_epoch: shuffled anew in every epoch: the orders of `shuffle_offsets` and
            `shuffle_content` if there are any, else all rows.
        seq_len: tokens of a frame.
        epochs: how often everything is shown; None is once, and for ever with `shuffle_per_epoch`.
        seed: of the order of examples.
        select_seed: of doc_select_mode="random".
        options: of `Documents.select` and `Documents.splice`, such as position_scheme="relative".

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcd"}, {"text": "xyz"}], folder + "/toy", tokenizer="bytes")
    ...     made = SpliceSingleDocumentLMConfig(base=folder + "/toy", doc_index=1, seq_len=5)
    ...     len(made), made[0].tokens.tolist(), made[0].segment_ids.tolist()
    (1, [[0, 0, 120, 121, 122]], [[0, 0, 1, 1, 1]])
    """
    return make_splices(SpliceSingleDocumentLMConfig, **locals())


def SpliceMultiDocumentLMConfig(  # noqa: N802 - the name that its users know
    *,
    base: Base = None,
    dataset_name: str | None = None,
    tokenizer: Any = None,
    num_docs: int | None = 10,
    min_doc_length: int | None = None,
    max_doc_length: int | None = None,
    doc_select_mode: str = "longest",
    pad_token_id: int | None = None,
    eos_token_id: int | None = None,
    content_length: int | None = None,
    content_stride: int = 1,
    offset_stride: int = 1,
    content_start_mode: str = "coverage_balanced",
    min_copy_len: int = 2,
    alpha: float = 0.0,
    adaptive_k: bool = True,
    offset_jitter: int = 0,
    jitter_mode: str = "uniform",
    balance_mode: str = "by_temperature",
    balance_tau: float = 1.0,
    epoch_length: int | None = None,
    restrict_to_training_subset: bool = False,
    initial_batch_size: int | None = None,
    max_train_batches: int | None = None,
    shuffle: bool | int = False,
    shuffle_per_epoch: bool = False,
    seq_len: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    select_seed: int = 0,
    **options: Any,
) -> Dataset:
    """Several documents of a base, balanced, at chosen positions of frames.

    What it shares with `SpliceSingleDocumentLMConfig` means the same here. `num_docs` documents are
    selected, and it is an error if there are fewer, unless ``on_shortage="fewer"`` is among the
    options. `adaptive_k` splices documents shorter than `content_length` as a whole;
    `offset_jitter` moves splices to the left by up to so many cells, in the order of `jitter_mode`;
    `balance_mode` and `balance_tau` say how often each document is shown, `epoch_length` how many
    examples an epoch has (None: as many as there are splices). See
    `tokenloom.layout.splice.SpliceSpec`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = tl.build([{"text": "abcd"}, {"text": "xyz"}], folder + "/toy", tokenizer="bytes")
    ...     made = SpliceMultiDocumentLMConfig(
    ...         base=folder + "/toy", num_docs=2, content_length=3, seq_len=4
    ...     )
    ...     made.batch([0, 1, 2]).tokens.tolist()
    [[0, 97, 98, 99], [0, 98, 99, 100], [0, 120, 121, 122]]
    """
    return make_splices(SpliceMultiDocumentLMConfig, **locals())


def recommended(seq_len: int, *, offset_jitter: int = 0) -> dict[str, Any]:
    """The recommended settings for frames of `seq_len` tokens, without their contradictions.

    Splices fill the frame, or leave the room that `offset_jitter` needs to move them. Documents
    have a full splice at least; for very long frames the longest that is allowed has two.

    >>> made = recommended(4096, offset_jitter=4)
    >>> made["content_length"], made["min_doc_length"], made["balance_tau"]
    (4092, 4096, 0.7)
    """
    if offset_jitter < 0 or seq_len - offset_jitter < 2:
        raise ConfigError(
            f"offset_jitter: found {offset_jitter}, allowed is 0 to {seq_len - 2} with frames of "
            f"{seq_len} tokens: a splice has 2 or more."
        )
    shortest = max(4096, seq_len)
    return {
        "num_docs": 10,
        "min_doc_length": shortest,
        "max_doc_length": 100_000 if shortest < 100_000 else 2 * shortest,
        "doc_select_mode": "longest",
        "balance_mode": "by_temperature",
        "balance_tau": 0.7,
        "content_length": seq_len - offset_jitter,
        "content_stride": 1,
        "content_start_mode": "coverage_balanced",
        "alpha": 0.8,
        "adaptive_k": True,
        "offset_jitter": offset_jitter,
    }
