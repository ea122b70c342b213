"""Trace files read into columns: bytes, cuts, events, columns, one table."""
