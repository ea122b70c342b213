"""Inference recipe: one small model, measured as a service would be, with every tool there is.

    python -m recipes.inference --out runs/inference

Read `model.py` (what answers, and what it is asked) → `clocks.py` (how a call is timed) →
`versions.py` (the same answers, faster) → `operators.py` (where a call's time goes) → `loops.py`
(a loop of requests under trainperf, its faults, and its traces) → `waits.py` (lines that wait for
the device) → `batch_sizes.py` (how many requests a call should take) → `run.py` (all of it).
"""
