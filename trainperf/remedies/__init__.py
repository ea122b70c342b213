"""Remedies that findings ask for and no maintained library offers; one file each.

Each changes when, or together with what, data is computed, never the data.
"""

from trainperf.remedies.buckets import BucketedBatches
from trainperf.remedies.packing import first_fit, pack, same_document
from trainperf.remedies.prefetch import DevicePrefetcher


__all__ = [
    "BucketedBatches",
    "DevicePrefetcher",
    "first_fit",
    "pack",
    "same_document",
]
