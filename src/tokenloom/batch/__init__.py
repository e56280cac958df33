"""Takes spans and what reads their tokens → gives batches: tokens, labels, masks, positions.

`tokenloom.batch.attention` and `tokenloom.batch.boundaries` are for users, too.
"""
