"""What is kept of a trace that a GPU has really made says what all of it said."""

import gzip
import json
from pathlib import Path

import pytest
from support.traces import TRACES

from scripts.gpu.trim import trimmed
from trainperf.traces.job_report import report
from trainperf.traces.results import AnalysisOptions, TraceStep


RECORDED = TRACES / "ddp_v100_world1.pt.trace.json.gz"


def steps(path: Path) -> list[TraceStep]:
    """Of its only rank."""
    (rank,) = report([path], AnalysisOptions(lanes=False)).ranks
    return list(rank.steps)


@pytest.mark.slow
def test_the_steps_that_are_kept_have_the_figures_that_they_had(tmp_path: Path) -> None:
    """All but the idle time of the last one, which ended where the next one's work began."""
    if not RECORDED.exists():
        pytest.skip("no recorded traces: set TRAINPERF_TRACES")
    kept = tmp_path / RECORDED.name
    trace = json.loads(gzip.decompress(RECORDED.read_bytes()))

    kept.write_bytes(trimmed(trace, most_bytes=750_000))

    before, after = steps(RECORDED), steps(kept)
    assert (len(before), len(after)) == (5, 4)
    assert after[:3] == before[:3]
    assert after[3].kernels == before[3].kernels
    assert after[3].gpu_busy_s == before[3].gpu_busy_s
