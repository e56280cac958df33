"""Takes settings and orders of Levanter → gives the runs that they mean, and their rows.

::

    from tokenloom.integrations.levanter import (
        LMMixtureDatasetConfig,
        SpliceMultiDocumentLMConfig,
        TextLmDatasetFormat,
        UrlDatasetSourceConfig,
        recommended,
    )

    wiki = UrlDatasetSourceConfig(
        cache_dir="stores/wiki",
        train_urls=["corpus/wiki-*.jsonl.gz"],
        format=TextLmDatasetFormat(text_key="text"),
    )
    base = LMMixtureDatasetConfig(tokenizer="tokenizer.json", configs={"wiki": wiki})
    data = SpliceMultiDocumentLMConfig(base=base, seq_len=4096, **recommended(4096))

or the YAML unchanged, with local paths::

    data = splice_from_config(load_yaml("multi.yaml"))

The constructors return a `tokenloom.Dataset` directly; there is no `train_set` to call. Its batches
have `tokens`, `loss_mask` and `segment_ids`, the parts of an `LmExample` with a causal mask. Unlike
in Levanter, `epochs` has an effect, a pad token of 0 is respected, and
`restrict_to_training_subset` does restrict.

`continue_run` goes on with a run of Levanter at a step, over its caches as they are.
`async_dataset` is the way back: any run as a dataset that Levanter's loader asks for indices.
"""

from __future__ import annotations

from tokenloom.integrations.levanter.async_rows import async_dataset
from tokenloom.integrations.levanter.lm_data import ContinuedRun, continue_run
from tokenloom.integrations.levanter.mapping import (
    SpliceMultiDocumentLMConfig,
    SpliceSingleDocumentLMConfig,
    recommended,
    splice_from_config,
)
from tokenloom.integrations.levanter.sources import (
    LMMixtureDatasetConfig,
    TextLmDatasetFormat,
    UrlDatasetSourceConfig,
    UrlSingleDatasetLMConfig,
    build_caches,
)
from tokenloom.runfiles.text import load_yaml

__all__ = [
    "ContinuedRun",
    "LMMixtureDatasetConfig",
    "SpliceMultiDocumentLMConfig",
    "SpliceSingleDocumentLMConfig",
    "TextLmDatasetFormat",
    "UrlDatasetSourceConfig",
    "UrlSingleDatasetLMConfig",
    "async_dataset",
    "build_caches",
    "continue_run",
    "load_yaml",
    "recommended",
    "splice_from_config",
]
