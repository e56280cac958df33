"""Text to training batches for language models; every example is a pure function of its index."""
