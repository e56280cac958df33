"""Takes a tokenizer in any form → gives plain data that encodes and decodes anywhere.

The reference library defines the ids; accelerators are checked against it.
"""
