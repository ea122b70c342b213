"""Rules about memory: leaks, fragmentation, limits."""
