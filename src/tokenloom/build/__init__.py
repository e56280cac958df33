"""From text to a store: inputs, records, tokenizers, and the pipeline that joins them."""
