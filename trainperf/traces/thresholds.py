"""From where on something in a trace is short, large, many or late, and how much is listed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceThresholds:
    """What the figures and lists of a trace are cut by; no finding depends on these."""

    short_kernel_ns: int = 10_000
    """A kernel below this takes about as long to launch as to run."""
    large_kernel_ns: int = 50_000
    """A kernel from here on is large: many times what its launch takes."""
    many_collectives: int = 32
    """Collectives of one kind in a step from which on small ones are many."""
    small_collective_bytes: int = 2**20
    small_collective_ns: int = 100_000
    """Where bytes are not given: a collective below this is mostly latency."""
    as_late: float = 0.8
    """A rank with so much of the largest lateness is named too."""
    unlaunched: float = 0.001
    """Share of device events without a launch below which nothing is said."""
    rows: int = 20
    """Operators and places of a kind that are kept."""
    points: int = 500
    """Of a curve over the trace, about: a point for two pixels."""
    frames: int = 8
    """Python frames that are kept of a stack."""
    named: int = 8
    """Ranks or files that are named in a sentence; of more it says how many."""


THRESHOLDS = TraceThresholds()
