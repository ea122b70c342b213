"""Changes that a finding asks for and no kept library makes.  One file each, in no loop by itself.

Each changes when or in what company data is computed, never the data.
"""

from trainperf.remedies.buckets import BucketedBatches
from trainperf.remedies.packing import first_fit, pack, same_document
from trainperf.remedies.prefetch import DevicePrefetcher


__all__ = ["BucketedBatches", "DevicePrefetcher", "first_fit", "pack", "same_document"]
