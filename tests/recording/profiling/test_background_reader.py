"""Traces are read by a process of low priority, one at a time, and the loop never waits for it."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.profiler import Captured, schedule
from support.waiting import until

from trainperf.core.phases import Gap
from trainperf.recording.profiling.background_reader import PATIENCE_NS, TraceWorker
from trainperf.traces.capture_files import (
    CaptureFacts,
    analysis_file,
    groups,
    read_all,
)


def patient() -> TraceWorker:
    """A reader that is waited for on a loaded machine too."""
    return TraceWorker(10 * PATIENCE_NS)


def captured(run: Path, analyst: TraceWorker | None, *, rank: int = 0, repeat: int = 1) -> Captured:
    """A fit whose traces go into *run*, offset by a checkpoint at step 1000."""
    plan = schedule(repeat=repeat, wait=2, warmup=1, active=2)
    return Captured(run, plan, offset=1000, rank=rank, reader=analyst).train(5 * repeat + 3)


def children() -> list[psutil.Process]:
    """Processes that read traces for this one; of one that has ended nothing can be asked."""
    reading = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "trainperf.traces.background_process" in child.cmdline():
                reading.append(child)
    return reading


@pytest.fixture(autouse=True)
def none_of_another_test() -> Iterator[None]:
    """A reader that a failed test left behind would fail those after it."""
    _end_all()
    yield
    _end_all()


def _end_all() -> None:
    for child in (left := children()):
        child.kill()
    psutil.wait_procs(left, timeout=5)


def test_a_trace_is_read_and_its_answer_lies_beside_it(tmp_path: Path) -> None:
    """With the steps it is of, by both their numbers."""
    timeline = captured(tmp_path, patient())
    timeline.finish()

    (report,) = read_all(tmp_path)
    (trace,) = (tmp_path / "traces").glob("*.trace.json.gz")
    assert (report.ranks[0].file, analysis_file([trace]).exists()) == (trace.name, True)
    assert report.capture == CaptureFacts(first_step=1003, first_index=3, complete_steps=2)
    assert [step.step for step in report.ranks[0].steps] == [1003, 1004]
    assert (tmp_path / "traces" / "rank0-step001003-2steps.analysis.json").exists()
    assert timeline.guard.faults == {}
    assert "captures_unread" not in timeline.probe.notes()


def test_one_process_at_a_time_reads_them_all(tmp_path: Path) -> None:
    """The others wait for their turn; the end of the fit waits for all, on a loaded machine too."""
    analyst = patient()
    timeline = captured(tmp_path, analyst, repeat=3)

    assert len(children()) <= 1
    timeline.finish()
    assert children() == []
    assert [report.capture.first_step for report in read_all(tmp_path)] == [1003, 1008, 1013]


def test_steps_are_tagged_while_a_trace_is_being_read(tmp_path: Path) -> None:
    """They are slower for it; to start it and to hear it is in none of them, but the gap."""
    analyst = patient()
    timeline = captured(tmp_path, analyst)
    timeline.train(10)
    assert analyst.child
    last = timeline.recorder.index
    while analyst.child:
        psutil.wait_procs(children(), timeout=0.1)
        timeline.train(100)
    until = timeline.recorder.index
    dumps = len([gap for gap in timeline.recorder.gaps if gap.gap == Gap.PROFILER_DUMP.label])
    timeline.train(5).finish()

    profiled = timeline.profiled()
    assert dumps == 4
    assert timeline.attributed_ns() == timeline.fit_ns
    assert set(range(2, last)) <= set(profiled)
    assert max(profiled) <= until


EVENT = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
THEIRS = gzip.compress(json.dumps({"traceEvents": [EVENT]}).encode())


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"hello", "TraceError"), (THEIRS, "does not say which steps of a run it is of")],
    ids=["no trace", "of another program"],
)
def test_a_trace_that_cannot_be_read_is_said(
    content: bytes, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With what is wrong with it: it is none, or none of this run; the fit does not care."""
    trace = tmp_path / "traces" / "rank0-step000007-3steps.trace.json.gz"
    trace.parent.mkdir()
    trace.write_bytes(content)
    analyst = patient()
    analyst.send(trace)
    said = analyst.finish()["captures_unread"]

    assert said in caplog.text
    assert trace.name in said
    assert problem in said
    assert read_all(tmp_path) == []


def test_the_end_of_a_fit_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    """What is still being read is killed; on rank 0 that is said."""
    timeline = captured(tmp_path, None)
    (trace,) = (tmp_path / "traces").iterdir()
    for patience_ns, said in ((1, True), (0, False)):
        analyst = TraceWorker(patience_ns)
        analyst.send(trace)
        until(children, "no process was started")  # it has a name once it runs
        assert bool(analyst.finish()) == said
        assert children() == []
    timeline.finish()

    assert read_all(tmp_path) == []


def test_traces_of_several_ranks_become_one_answer(tmp_path: Path) -> None:
    """In place of those of each; the ranks are told apart by the files' names."""
    for rank in (0, 1):
        captured(tmp_path, patient(), rank=rank).finish()
    assert len(read_all(tmp_path)) == 2
    (traces,) = groups(tmp_path)

    analyst = patient()
    analyst.send(*traces)
    assert analyst.finish() == {}

    (report,) = read_all(tmp_path)
    assert [rank.file for rank in report.ranks] == [
        "rank0-step001003-2steps.trace.json.gz",
        "rank1-step001003-2steps.trace.json.gz",
    ]
    assert [path.name for path in (tmp_path / "traces").glob("*.analysis.json")] == [
        "step001003-2steps.analysis.json"
    ]


def test_the_process_is_nice_and_loads_no_torch(tmp_path: Path) -> None:
    """It must not take from the loop what the loop needs."""
    captured(tmp_path, None).finish()
    (trace,) = (tmp_path / "traces").iterdir()
    program = (
        "import os, sys; from trainperf.traces.background_process import main; main(sys.argv[1:]); "
        "print(os.nice(0), 'torch' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, trace], capture_output=True, text=True, check=True
    )

    answer, facts = ran.stdout.splitlines()
    assert facts == "19 False"
    assert json.loads(answer) == {}


def test_a_directory_of_the_user_cannot_stand_in_for_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file `json.py` beside the training script is common."""
    (tmp_path / "json.py").write_text("raise SystemExit('theirs')")
    (tmp_path / "numpy.py").write_text("raise SystemExit('theirs')")
    monkeypatch.chdir(tmp_path)
    captured(Path("run"), patient()).finish()

    assert len(read_all(Path("run"))) == 1
