"""Detectors, by subject: each finds one cause in an account."""
