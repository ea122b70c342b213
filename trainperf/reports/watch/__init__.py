"""The view of a run while it is written, for a terminal: `trainperf watch`."""
