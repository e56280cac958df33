"""Takes a batch → gives what others want of it: names, contracts, rows, micro-batches, digests."""
