"""Overlap at work: streams, copies, CUDA graphs; on a CPU threads, prefetching, compilation.

`python -m recipes.overlap` prints what each gains, next to a case in which it gains nothing.  Read
`cpu_threads.py`, `prefetching.py` and `launches.py` for what any machine shows, `cuda_streams.py`,
`cuda_copies.py` and `cuda_graphs.py` for what needs CUDA, `watched.py` for the always-on figures
and the timelines next to them, and `measure.py` for the whole.
"""
