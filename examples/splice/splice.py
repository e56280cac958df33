"""Documents spliced into frames, configured as for Levanter: from YAML, then in Python.

Run it with `python examples/splice/splice.py`. The text is part of every Python installation;
nothing is downloaded, and all files are temporary.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import sysconfig
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.integrations.levanter import (
    LMMixtureDatasetConfig,
    SpliceMultiDocumentLMConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    load_yaml,
    splice_from_config,
)

HERE = Path(__file__).resolve().parent
MODULES = ("argparse", "bisect", "calendar", "cmd", "copy", "decimal", "difflib", "doctest", "glob")
MODULES += ("heapq", "inspect", "pickle", "pprint", "random", "statistics", "string", "textwrap")


def corpus() -> Iterator[dict[str, str]]:
    """The Zen of Python, and the docstrings of some modules of the standard library."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        import this  # noqa: F401 - it prints itself
    yield {"id": "zen", "text": printed.getvalue()}
    for name in MODULES:
        path = Path(sysconfig.get_path("stdlib"), f"{name}.py")
        if path.is_file():
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            yield {"id": name, "text": text or name}


def show(data: tl.Dataset, indices: list[int]) -> None:
    """Frames as text: · is filler; the line below marks tokens whose successor is predicted."""
    batch = data.batch(indices)
    spans = batch.spans
    for row in range(len(indices)):
        cells = ["·"] * data.seq_len
        for one in range(spans.frame[row], spans.frame[row + 1]):
            for cell in range(spans.at[one], spans.at[one] + spans.length[one]):
                letter = chr(batch.tokens[row, cell])  # tokens are bytes here
                cells[cell] = letter if letter.isprintable() else "⏎"
        print(f"  example {indices[row]:>3}  |{''.join(cells)}|")
        print(f"{'':16}{''.join('^' if one else ' ' for one in batch.loss_mask[row])}")


def counts(data: tl.Dataset, store: tl.Store) -> None:
    """How often each document is shown in one epoch."""
    found = data.spans(np.arange(data.run.rows)).document
    for document, examples in zip(*np.unique(found, return_counts=True), strict=True):
        name, length = store.metadata(document)["id"], store.lengths[document]
        print(
            f"  {name:<12} {length:>6,} tokens {examples:>6,} examples {examples / len(found):.0%}"
        )


def main() -> None:
    """Run everything in the current directory, which is temporary."""
    print("1. The text")
    documents = list(corpus())
    Path("corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    print(f"  corpus.jsonl: {len(documents)} documents")

    print("\n2. single.yaml: one document, each window of it at several offsets s")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        single = splice_from_config(load_yaml(HERE / "single.yaml"))
    print(
        f"  {len(single)} examples of {single.seq_len} tokens; · is filler, below what has a loss"
    )
    show(single, [0, 1, 2, 3, 4, 5])

    print("\n3. What s does for a model: tokenloom warns, and the warning is right")
    for one in said:
        print(textwrap.fill(str(one.message), 96, initial_indent="  ", subsequent_indent="  "))
    store = tl.open("stores/texts")
    zen = store.select(doc_key="id==zen")
    relative = zen.splice(64, position_scheme="relative", content_length=32)
    print(f"  So use position_scheme='relative' for them: {len(relative)} frames without filler,")
    print("  with windows from every start, train every token equally often.")
    show(relative, [len(relative) // 2])

    print("\n4. multi.yaml: several documents, balanced; endless, shuffled in every epoch")
    multi = splice_from_config(load_yaml(HERE / "multi.yaml"))
    show(multi, [0, 1, 2])
    counts(multi, store)

    print(
        "\n5. The same in Python: new import, explicit seq_len; here every document equally often"
    )
    texts = UrlDatasetSourceConfig(
        cache_dir="stores/texts",
        train_urls=["corpus.jsonl"],
        format=TextLmDatasetFormat(text_key="text"),
    )
    base_mixture = LMMixtureDatasetConfig(
        tokenizer="bytes",
        configs={"python/texts": texts},
        train_weights={"python/texts": 1.0},
        shuffle=False,
        shuffle_per_epoch=True,
    )
    data = SpliceMultiDocumentLMConfig(
        tokenizer="bytes",
        base=base_mixture,
        dataset_name="python/texts",
        num_docs=5,
        min_doc_length=200,
        max_doc_length=20_000,
        doc_select_mode="longest",
        balance_mode="by_document",
        content_length=64,
        content_stride=1,
        content_start_mode="coverage_balanced",
        min_copy_len=8,
        alpha=0.8,
        shuffle_per_epoch=True,
        seq_len=64,
    )
    counts(data, store)
    batch = next(tl.Loader(data, batch_size=8))
    print(f"  a batch: tokens {batch.tokens.shape}, {batch.loss_mask.sum()} of them trained on")


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a terminal without · shows ? instead
        stream.reconfigure(errors="replace")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main()
