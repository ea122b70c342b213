"""Healthy scripts just below a threshold: what looks like a fault there is none."""
