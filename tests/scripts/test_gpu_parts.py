"""What becomes of a part that fails, overruns or is cut short: nothing else is lost."""

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

from scripts.gpu.check import check
from scripts.gpu.parts import CheckSetup, Outcome, Part, case_results
from scripts.gpu.runs import FinishedRun, run
from scripts.gpu.trim import trimmed


DONE = FinishedRun(code=0, took_s=1.0, limit_s=9.0, printed="", complained="")


def place(scratch: Path, *, cuda: bool = False) -> CheckSetup:
    """A part's surroundings."""
    return CheckSetup(scratch=scratch, cuda=cuda, trace=scratch / "trace.json.gz")


def nothing(place: CheckSetup, done: FinishedRun) -> Outcome:
    """Results of a part that writes none."""
    return {"ok": True}


def part(name: str, code: str, limit_s: float = 60.0, least_s: float = 1.0) -> Part:
    """One that runs some Python."""
    return Part(
        name=name,
        limit_s=limit_s,
        command=lambda place: ("-c", code),
        results=nothing,
        least_s=least_s,
    )


def checked(scratch: Path, left_s: float, *parts: Part) -> tuple[dict[str, Any], list[list[str]]]:
    """What was found, and which parts had been written each time."""
    found: dict[str, Any] = {}
    written: list[list[str]] = []
    check(
        parts,
        place(scratch),
        os.environ,
        lambda: left_s,
        found,
        lambda: written.append(list(found)),
    )
    return found, written


def test_a_part_that_fails_loses_neither_its_words_nor_the_next_part(tmp_path: Path) -> None:
    """Everything is written again after each."""
    found, written = checked(
        tmp_path, float("inf"), part("bad", "raise SystemExit('no memory')"), part("good", "")
    )

    assert (found["bad"]["ok"], found["bad"]["exit_code"]) == (False, 1)
    assert found["bad"]["stderr"] == "no memory\n"
    assert found["good"]["ok"]
    assert written == [[], ["bad"], ["bad", "good"]]


def test_a_part_that_overruns_is_interrupted_and_keeps_what_it_wrote(tmp_path: Path) -> None:
    """It is told in time to write down what it has; its children end with it."""
    kept = tmp_path / "kept"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"kept = pathlib.Path({str(kept)!r})\n"
        "try:\n    time.sleep(600)\nfinally:\n    kept.write_text(str(child.pid))\n"
    )

    done = run(["-c", code], os.environ, limit_s=4.0)

    assert done.code is None
    assert done.outcome()["timed_out"] is True
    assert has_ended(int(kept.read_text()))


def has_ended(process: int) -> bool:
    """Whether it has, within some seconds; one that nobody has asked for its end counts, too."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        if state.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_part_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    """It says so, and a later one that needs less still runs."""
    found, _ = checked(tmp_path, 20.0, part("long", "", least_s=45.0), part("short", ""))

    assert found["long"] == {"ok": False, "not_run": "no time left: 20 s"}
    assert found["short"]["ok"]
    assert found["short"]["limit_s"] == 20.0


def test_with_cuda_a_skipped_test_is_a_failure(tmp_path: Path) -> None:
    """Tests that skip themselves on the machine they are for say nothing."""
    read_tests = case_results("tests")
    (tmp_path / "tests.xml").write_text(
        '<testsuite><testcase classname="a" name="b" time="1"><skipped message="no"/></testcase>'
        "</testsuite>"
    )

    assert read_tests(place(tmp_path), DONE)["ok"] is True
    assert read_tests(place(tmp_path, cuda=True), DONE)["ok"] is False
    (tmp_path / "tests.xml").unlink()
    assert read_tests(place(tmp_path), DONE)["ok"] is False


def event(name: str, start: float, cat: str = "cpu_op", **arguments: object) -> dict[str, object]:
    """A complete event of a microsecond."""
    return {"ph": "X", "name": name, "cat": cat, "ts": start, "dur": 1, "args": arguments}


def planted() -> dict[str, object]:
    """Two steps: what the first launches runs when the host is at the second."""
    return {
        "schemaVersion": 1,
        "traceEvents": [
            {"ph": "M", "name": "process_name", "args": {"name": "python"}},
            event("ProfilerStep#7", 0, "user_annotation"),
            event("launch", 5, "cuda_runtime", correlation=1),
            event("frame", 6, "python_function"),
            event("ProfilerStep#8", 10, "user_annotation"),
            event("launch", 11, "cuda_runtime", correlation=2),
            event("ProfilerStep#7", 12, "gpu_user_annotation"),
            event("first", 12, "kernel", correlation=1),
            event("second", 13, "kernel", correlation=2),
        ],
    }


def names(packed: bytes) -> list[str]:
    """Of the events in a trimmed trace."""
    trace = json.loads(gzip.decompress(packed))
    assert trace["schemaVersion"] == 1
    return [one["name"] for one in trace["traceEvents"]]


def test_a_trace_that_is_small_loses_only_what_no_figure_stands_on() -> None:
    """Python frames go, every operator and kernel stays."""
    everything = [str(one["name"]) for one in planted()["traceEvents"]]  # type: ignore[attr-defined]

    assert names(trimmed(planted())) == [name for name in everything if name != "frame"]


def test_a_trace_that_is_too_large_loses_its_last_step_with_what_that_launched() -> None:
    """And keeps what the first one launched, however late it ran."""
    whole = len(trimmed(planted()))

    kept = names(trimmed(planted(), most_bytes=whole - 1))

    assert kept == ["process_name", "ProfilerStep#7", "launch", "first"]
