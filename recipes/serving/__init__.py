"""Dynamic batching of a small model's requests, measured under an open-loop load.

`python -m recipes.serving` prints when batching pays, when it only adds a wait, and what a client
that waits for its answers does not see.  Read `model.py` (what is served) → `load.py` (arrivals,
and latencies from the intended arrival) → `points.py` (ways to serve, at several rates) →
`claims.py` (the cases) → `__main__.py`.
"""
