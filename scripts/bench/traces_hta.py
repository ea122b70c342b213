"""One trace through HolisticTraceAnalysis, as a process of its own: prints JSON.

Runs in an environment of HTA's, so it imports nothing of ours.
"""

import contextlib
import io
import json
import logging
import resource
import sys
import time


def main() -> None:
    """Read, compute the two breakdowns that we compute as well, print what it took."""
    begun = time.perf_counter()
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    imported = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=".")
        after_read = time.perf_counter()
        analysis.get_temporal_breakdown(visualize=False)
        analysis.get_comm_comp_overlap(visualize=False)
    done = time.perf_counter()
    figures = {
        "import_s": imported - begun,
        "read_s": after_read - imported,
        "analyse_s": done - after_read,
        "total_s": done - imported,
        "cpu_s": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
