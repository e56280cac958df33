"""Takes batches and settings of other libraries → gives ours, and the other way round."""
