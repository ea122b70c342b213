"""The check of a GPU, on machines without one: what it says, writes and returns."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


ROOT = Path(__file__).parents[2]


def gpu_check(*arguments: str, wheels: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it where no CUDA device can be seen."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TRAINPERF_WHEELS", None)
    if wheels is not None:
        environment["TRAINPERF_WHEELS"] = str(wheels)
    return subprocess.run(
        [ROOT / "scripts/gpu_check", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def written(path: Path) -> Any:
    """The file it wrote."""
    return json.loads(path.read_text())


def test_without_cuda_it_says_so_and_fails(tmp_path: Path) -> None:
    """Nobody must take a run on a CPU for one on a GPU: nothing is written either."""
    out = tmp_path / "gpu.json"
    done = gpu_check("--out", str(out))
    assert done.returncode == 1
    assert done.stderr.startswith("no CUDA device")
    assert not out.exists()


@pytest.mark.slow
def test_on_a_cpu_that_is_allowed_every_test_is_skipped(tmp_path: Path) -> None:
    """Skipped is right there, and the file says that it was a CPU and which one."""
    out = tmp_path / "gpu.json"
    done = gpu_check("--out", str(out), "--allow-cpu", "--no-benches")
    found = written(out)
    tests = found["parts"]["tests"]
    assert (done.returncode, found["cuda"], found["failed"]) == (0, False, [])
    assert found["hardware"]
    assert found["versions"]["torch"]
    assert sorted(found["parts"]) == ["machine", "tests"]
    assert tests["counts"] == {"passed": 0, "failed": 0, "skipped": len(tests["cases"])}
    assert len(tests["cases"]) > 15
    assert {case["message"] for case in tests["cases"]} == {"needs a CUDA device"}


@pytest.mark.slow
def test_a_part_that_fails_is_written_down_and_the_next_one_runs(tmp_path: Path) -> None:
    """A wheel that is none: the tests run all the same, and the exit code tells."""
    (tmp_path / "broken-1.0-py3-none-any.whl").write_text("no archive")
    out = tmp_path / "gpu.json"
    done = gpu_check("--out", str(out), "--allow-cpu", "--no-benches", wheels=tmp_path)
    found = written(out)
    assert (done.returncode, found["failed"]) == (1, ["wheels"])
    assert "broken" in found["parts"]["wheels"]["stderr"]
    assert found["parts"]["tests"]["ok"]
