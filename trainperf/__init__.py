"""Where every millisecond of a training step goes, what to change first, and whether it helped.

Import what you attach: `trainperf.lightning` for a Lightning `Trainer`, `trainperf.loop` for a
plain PyTorch loop.  This package itself imports nothing heavy.
"""

__version__ = "0.1.0"
