"""`tokenloom.build`: the public, documented entry point of `tokenloom.ingest`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import Place, field_names, near_misses, one_of
from tokenloom.errors import ConfigError
from tokenloom.ingest.cluster.drive import prepare, run_all, survey
from tokenloom.ingest.cluster.on_ray import check_executor
from tokenloom.ingest.cuts import BLOCK_BYTES
from tokenloom.ingest.identity import duplicates_among, identify_equal_sizes
from tokenloom.ingest.inputs import MAX_RECORD_BYTES
from tokenloom.ingest.pipeline import BuildMode, report_duplicates, run_build
from tokenloom.ingest.plan import BuildOptions, BuildPlan
from tokenloom.ingest.shards import check_first_records
from tokenloom.store import format as fmt
from tokenloom.store.files import Files
from tokenloom.tokenizer.spec import UNSET, Special


@near_misses("build")
def build_store(
    inputs: Any,
    out: str | Place,
    *,
    tokenizer: Any,
    text_key: str = "text",
    id_key: str | None = None,
    ids_key: str | None = None,
    metadata_keys: Sequence[str] | None = None,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    vocab_size: int | None = None,
    bos: Special = UNSET,
    eos: Special = UNSET,
    pad: Special = UNSET,
    add_bos: bool | None = None,
    add_eos: bool | None = None,
    strict: bool = False,
    parse_special: bool = False,
    engine: str = "auto",
    verify_all: bool = False,
    filter: Callable[[dict[str, Any]], Any] | str | None = None,
    transform: Callable[[dict[str, Any]], Any] | str | None = None,
    chat: bool | None = None,
    chat_template: str | Path | None = None,
    train_on: str | None = None,
    template_args: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    encoding: str = "utf-8",
    errors: str = "strict",
    max_record_bytes: int = MAX_RECORD_BYTES,
    append: bool = False,
    overwrite: bool = False,
    duplicates: str = "warn",
    workers: int | None = None,
    stretches: int = 1,
    executor: str = "local",
    progress: bool | None = None,
    chunk_tokens: int = fmt.CHUNK_TOKENS,
    shard_tokens: int = fmt.SHARD_TOKENS,
    block_bytes: int = BLOCK_BYTES,
    inner: int = fmt.INNER,
    files: Files | None = None,
) -> Store:
    """Tokenise text into a store, and open it.

    If the call is killed at any moment and repeated with the same arguments, it resumes after the
    last finished shard and produces the same bytes; the number of workers never changes them. If
    `out` already holds a store made by the same call, that store is opened and returned.

    Args:
        inputs: one or several of: a file, a directory, a glob, a `datasets.Dataset`, a DataFrame or
            Arrow table, a list of records, or an iterator of records (a generator, a streaming
            dataset), which is kept in a temporary file first. The prefix ``txt:``, ``lines:``,
            ``jsonl:``, ``parquet:`` or ``hf:`` of a path sets its kind. Files may be plain, .gz or
            .zst.
        out: directory of the store, or a URL such as ``s3://bucket/stores/wiki`` (extra `remote`).
        tokenizer: a tokenizer.json (or its directory), ``"bytes"``, a SentencePiece .model,
            ``"tiktoken:NAME"``, the name of a transformers tokenizer available on this machine, an
            object of one of those libraries, or a function text → ids (with `vocab_size`). None
            for records that hold ready-made ids (with `vocab_size`). A tokenizer beside ready-made
            ids is kept for decoding and for its specials.
        text_key: key of the text in each record.
        id_key: key of the document's id, kept as ``id`` in its metadata.
        ids_key: key of ready-made ids; "input_ids" if `tokenizer` is None, or if the first record
            has that key and no text. Ids are stored exactly as given.
        metadata_keys: which other keys to keep as metadata; default: all.
        columns: further per-token columns stored with ready-made ids, name → dtype. `labels`,
            `completion_mask`, `assistant_masks`, `loss_mask`, `loss_weights` and `attention_mask`
            are found in the first record and keep their meaning. For conversations only
            ``["loss_weights"]``, to keep weights of turns that the first record does not have.
        vocab_size: every id must be below it; most tokenizers provide it.
        bos: id or token string that starts a document; None declares that there is none.
        eos: id or token string that ends a document.
        pad: id or token string of padding; may equal `eos`.
        add_bos: put `bos` before every document (default: no).
        add_eos: put `eos` after every document (default: if there is one).
        strict: raise instead of warning when a requested special token does not exist.
        parse_special: text that spells a special token becomes that token; otherwise it stays
            text, which is the safe choice for training data. A message that spells one is refused
            unless this is True.
        engine: "auto" (fastokens where it can be trusted), "reference" (the tokenizers library), or
            "fast" (fastokens). It is checked against the reference while it runs, and a difference
            stops the build; the engine is part of the fingerprint.
        verify_all: check every document against the reference, not one in a thousand.
        filter: called with each record; the record is kept if the result is true.
        transform: called with each record; returns the record to use, or None to drop it.
        chat: whether records hold conversations (``messages``, ``conversations``, or ``prompt`` and
            ``completion``); default: if the first one has them and neither text nor ids. They are
            rendered with the chat template, and the column ``loss_mask`` says what is trained on.
        chat_template: a template of jinja2 as text, or the path of a file with one; default: the
            tokenizer's own. It writes special tokens itself: no BOS or EOS is added.
        train_on: "assistant" (the turns of the assistant; the default for messages), "last" (only
            its last one), "completion" (the default for a prompt and a completion) or "all".
        template_args: further names that the template may read, as plain JSON data; ``now`` is the
            date that it is told.
        on_error: "raise" at the first unusable record, or "skip" such records; a table of reasons
            and a file of their places tell which.
        encoding: encoding of text files, lines and JSON.
        errors: what becomes of bytes that do not fit the encoding: "strict" makes the record
            unusable, "replace" puts U+FFFD in their place, "ignore" leaves them out. Both are
            counted.
        max_record_bytes: a longer record is unusable, and is not read whole.
        append: add to the store at `out`, as a new snapshot.
        overwrite: replace the store at `out` if it is another one. It stays readable until the new
            one is published; then its files are removed, and nothing else. A directory that holds
            other things is refused as ever.
        duplicates: what to do about files that are listed twice, or whose content is that of
            another input or already in the store that is appended to: "warn" stores them and warns
            with their number, "error" refuses them, "allow" stores them.
        workers: number of encoding processes. Default: this process starts to encode, and takes
            as many others beside it, up to one per core, as pay for their own start; the log
            says how many and why. Workers rest for 20 s and serve the next build.
        stretches: the inputs are cut into that many before anything is encoded, by their sizes;
            shards begin anew at each. More than 1 is for builds that several machines share, see
            `tokenloom.cluster`: the same number gives the same bytes, whoever did what; another one
            gives other shards with the same documents in the same order, digest and runs.
        executor: "local", or "ray" (extra `ray`), where each stretch is a task: on a running
            `ray.init`, the cluster of RAY_ADDRESS, or else one on this machine;
            "ray:10.0.0.5:6379" and "ray:auto" say where the cluster is. `workers` is then the most
            that run at once. Every node must see the inputs and `out`.
        progress: show a progress bar; default: if standard error is a terminal.
        chunk_tokens: tokens per io block.
        shard_tokens: maximum tokens per shard.
        block_bytes: bytes of input per unit of work.
        inner: elements per checksum.
        files: the interface that everything is written through; default: by `out`.

    Raises:
        InputError: a bad record or file, named with its line.
        TokenizerError: the tokenizer is missing or gives ids outside its vocabulary.
        StoreExists: another store is at `out`.
        StoreError: the disk is full or fails. In all of these cases nothing is published.

    Warns if every document is empty.

    >>> import tempfile, tokenloom as tl
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = tl.build([{"text": "ab"}, {"text": ""}], folder.name + "/toy", tokenizer="bytes")
    >>> store.num_documents, store.num_tokens, store.lengths.tolist()
    (2, 2, [2, 0])
    >>> folder.cleanup()
    """
    given = locals()
    options = BuildOptions(**{name: given[name] for name in field_names(BuildOptions)})
    mode = BuildMode(append=append, overwrite=overwrite, duplicates=duplicates)
    workers = _check_run(options, workers=workers, executor=executor, progress=progress)
    if options.stretches > 1:
        site = prepare(inputs, out, options, mode, files)
        run_all(site, executor=executor, workers=workers, progress=progress)
    else:
        run_build(inputs, out, options, mode, workers=workers, progress=progress, files=files)
    return open_store(out)


def survey_build(inputs: Any, out: str | Place, given: Mapping[str, Any]) -> BuildPlan:
    """What `build_store` would do, with everything that it refuses before it encodes.

    Inputs are listed and their first records read (with duplicates="error", those of equal size
    are read whole); nothing is written.

    Args:
        inputs: as for `build_store`, and so is all that follows.
        out: directory of the store.
        given: further arguments, by name.
    """
    usual = inspect.signature(build_store).parameters
    every = {name: one.default for name, one in usual.items()} | dict(given)
    options = BuildOptions(**{name: every[name] for name in field_names(BuildOptions)})
    mode = BuildMode(**{name: every[name] for name in field_names(BuildMode)})
    _check_run(options, **{name: every[name] for name in ("workers", "executor", "progress")})
    plan = survey(inputs, out, options, mode).plan
    check_first_records(plan)
    found = plan.setup.inputs
    if mode.duplicates == "error":
        report_duplicates(duplicates_among(identify_equal_sizes(found)), len(found), mode)
    return plan


def _check_run(
    options: BuildOptions, *, workers: int | None, executor: str, progress: bool | None
) -> int | None:
    """The workers to use; refuses wrong settings of how a build runs."""
    one_of("progress", progress, (None, True, False))
    remote, workers = check_executor(executor, workers)
    if remote and options.stretches == 1:
        raise ConfigError(
            f"executor: found {executor!r} with stretches=1, which one task would do alone. Pass "
            "stretches=..., a few for each CPU of the cluster; it decides the shards."
        )
    return workers
