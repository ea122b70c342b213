"""Claims of the field, each run and measured here: `python -m recipes.claims [NAME…]`.

A claim is one file with one function of the same name, from `ClaimBench` to `Case`, and one line
below.  It may turn out not to hold on this machine: then the case says so, and why.

Read `bench.py` (what a claim is given), then any claim; `recipes/cases` holds verdicts and pages.
"""

NAMES = {
    "fused_chain": "Fused elementwise chain",
    "fusing_hurts": "Fusing hurts small tensors",
    "small_kernels": "Many small kernels, or one",
    "padded_matmul": "Padded matrix product",
    "channels_last": "Channels last",
    "library_sort": "A library's sort",
    "im2col": "im2col and a product",
    "batch_size": "Larger batches",
    "item_every_step": ".item() in every step",
    "metrics_every_batch": "Metrics in every batch",
    "checkpointing": "Checkpointing, larger batch",
    "data_parallel": "DDP against DataParallel",
    "pinned_copies": "Pinned copies",
    "fragmentation": "Fragmented memory",
    "empty_cache": "empty_cache() in every step",
    "occupancy": "Lower occupancy",
}
"""Files of this package to titles, in the order in which they run: first what needs no training."""
