"""What does a process that `trainperf run` launched find?  Both ends of it read these names."""

ASKED = "TRAINPERF_RUN"
"""Environment variable that holds what is wanted, as JSON: options of `TrainPerf`, and `SEEN`."""

SEEN = "seen"
"""In that: a file that is made when a Trainer was built."""
