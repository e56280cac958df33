"""Takes tokens, columns and metadata → gives what a shard keeps about them to answer without them.

Hashes of documents and the digest of a store, counts of loss columns, the index of ids, checksums
of pages. All of it can be worked out again from the rest of the shard, and `verify` does so.
"""
