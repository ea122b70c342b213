"""What event marks would have read on the devices of recorded traces, beside the kernels.

    PYTHONPATH=tests python -m scripts.bench.replayed FOLDER [--json FILE]

The real probe records its marks at the moments that the host of a trace went through, on a device
that replays it (`tests/support/replayed.py`); the truth is of the trace's kernels and copies alone.
Milliseconds of all whole steps of a trace together.
"""

from pathlib import Path

from support.replayed import ReplayedFit

from scripts.bench.harness import arguments, publish
from trainperf.traces.rank_report import analyse
from trainperf.traces.reader import read


TRUTHS = {
    "data_stall_ns": "data_wait_exposed_s",
    "h2d_device_ns": "h2d_s",
    "tail_ns": "allreduce_tail_s",
}
"""Fact of the probe to what the trace says of the same."""

SUFFIX = ".pt.trace.json.gz"


def figures(path: Path) -> dict[str, float]:
    """Of one trace: each fact, its truth, the wait for data and the largest lead."""
    table = read(path)
    fit, steps = ReplayedFit(table), analyse(table, path.name, lanes=False).steps
    values = {"steps": float(len(steps)), "lead": max(fit.leads(), default=0.0)}
    for fact, truth in (*TRUTHS.items(), (None, "data_wait_s")):
        if fact is not None:
            values[fact] = sum(each or 0.0 for each in fit.ms(fact))
        values[truth] = 1e3 * sum(getattr(step, truth) or 0.0 for step in steps)
    return values


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, help="of traces, each with a device")
    options = parser.parse_args()
    names = {
        str(path.relative_to(options.folder)).removesuffix(SUFFIX): path
        for path in sorted(options.folder.rglob(f"*{SUFFIX}"))
        if not path.name.startswith("cpu_only")
    }
    result = {name: figures(path) for name, path in names.items()}
    head = ["trace", *next(iter(result.values()))]
    rows = [[name, *(f"{each:.3f}" for each in own.values())] for name, own in result.items()]
    publish(options.json, head, rows, {"traces": result})


if __name__ == "__main__":
    main()
