"""Benches, one module each: `python -m scripts.bench.overhead --help`."""
