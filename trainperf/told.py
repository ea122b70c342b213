"""How does `trainperf run` tell the process that it starts what it wants?"""

ASKED = "TRAINPERF_RUN"
"""Environment variable that holds it, as JSON."""

SEEN = "seen"
"""In that: a file that is made when a Trainer was built."""
