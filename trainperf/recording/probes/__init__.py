"""Probes: each attaches to one torch or framework object, feeds facts, and detaches cleanly."""
