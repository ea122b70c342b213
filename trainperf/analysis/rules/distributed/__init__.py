"""Rules about several ranks: all-reduce, stragglers, parallelism."""
