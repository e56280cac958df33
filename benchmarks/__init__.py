"""Benchmarks: `python -m benchmarks` prints a table per job, with the command that makes it."""
