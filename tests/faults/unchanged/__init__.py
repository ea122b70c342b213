"""Scripts as people post them, none of which names trainperf, under `trainperf run`."""
