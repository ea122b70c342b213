"""Sweeps: a step over batch sizes, a loader over its workers.

`batches` and `loaders` measure; their results are plain data that knows what follows from it.
"""
