"""Takes what a user calls a tokenizer → gives plain data that encodes and decodes anywhere.

The reference library defines the ids; accelerators are checked against it.
"""
