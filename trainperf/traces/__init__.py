"""Kineto traces: read into columns, cut into steps, summed up.  Offline: no torch."""
