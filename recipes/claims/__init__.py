"""Claims of the field, each run and measured here: `python -m recipes.claims [NAME…]`.

A claim is one file with one function of the same name, from `ClaimBench` to `Case`, and one line
below.  It may turn out not to hold on this machine: then the case says so, and why.

Read `bench.py` (what a claim is given), then any claim; `recipes/cases` holds verdicts and pages.
"""

NAMES = (
    "fused_chain",
    "fusing_hurts",
    "small_kernels",
    "padded_matmul",
    "channels_last",
    "library_sort",
    "im2col",
    "batch_size",
    "item_every_step",
    "metrics_every_batch",
    "checkpointing",
    "data_parallel",
    "pinned_copies",
    "fragmentation",
    "empty_cache",
    "occupancy",
)
"""Files of this package, in the order in which they run: first what needs no training."""
