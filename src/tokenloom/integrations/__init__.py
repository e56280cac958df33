"""Takes batches and settings of other libraries → gives tokenloom's, and vice versa."""
