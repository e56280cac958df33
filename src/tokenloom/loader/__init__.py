"""Takes a run, a batch size and a rank → gives that rank's batches, and a state of one integer.

The only place with a thread.
"""
