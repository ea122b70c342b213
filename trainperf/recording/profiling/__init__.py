"""Scheduled `torch.profiler` captures: when to take one, how, and who reads it."""
