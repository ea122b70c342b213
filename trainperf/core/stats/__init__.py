"""Statistics that merge: the same code folds blocks, runs and ranks."""
