"""One trace through the reader and the analysis, as a process of its own: prints JSON."""

import json
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    """Read, analyse, print what it took."""
    begun = time.perf_counter()
    from trainperf.traces.rank_report import analyse
    from trainperf.traces.reader import read

    imported = time.perf_counter()
    table = read(Path(sys.argv[1]))
    after_read, read_mb = time.perf_counter(), _peak_mb()
    analyse(table, "trace")
    done = time.perf_counter()
    figures = {
        "rows": len(table),
        "import_s": imported - begun,
        "read_s": after_read - imported,
        "analyse_s": done - after_read,
        "total_s": done - imported,
        "cpu_s": time.process_time(),
        "read_peak_mb": read_mb,
        "peak_mb": _peak_mb(),
    }
    print(json.dumps(figures))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
