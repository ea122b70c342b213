"""The check of a GPU, on machines without one: what it says, writes and returns."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


ROOT = Path(__file__).parents[2]
PARTS = [
    "first",
    "tests",
    "roofline",
    "trace",
    "overhead",
    "accuracy",
    "claims",
    "inference",
    "overlap",
    "walkthrough",
]


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


@pytest.mark.slow
@pytest.mark.beside
def test_without_cuda_it_says_what_it_skips(tmp_path: Path) -> None:
    """Nobody must take a run on a CPU for one on a GPU: nothing is written."""
    out = tmp_path / "gpu.json"
    done = gpu_check("--out", str(out))
    assert done.returncode == 0
    assert done.stderr.startswith("no CUDA device")
    assert all(part in done.stdout for part in PARTS)
    assert not out.exists()


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """Every part at a toy size, after a wheel that is none: exit code and the JSON file."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "broken-1.0-py3-none-any.whl").write_text("no archive")
    out = folder / "gpu.json"
    # Five times what a lent machine has, so that a busy one does not cut a part off.
    done = gpu_check("--out", str(out), "--allow-cpu", "--seconds", "2700", wheels=folder)
    return done.returncode, out


@pytest.mark.slow
@pytest.mark.beside
def test_a_part_that_fails_is_written_down_and_all_others_run(checked: tuple[int, Path]) -> None:
    """A wheel that is none: the exit code tells, and nothing else is lost."""
    code, out = checked
    found = written(out)
    assert (code, found["failed"]) == (1, ["wheels"])
    assert "broken" in found["parts"]["wheels"]["stderr"]
    assert list(found["parts"]) == ["wheels", "machine", *PARTS]


@pytest.mark.slow
@pytest.mark.beside
def test_on_a_cpu_that_is_allowed_what_needs_cuda_is_skipped(checked: tuple[int, Path]) -> None:
    """No test fails, and the file says that it was a CPU and which one."""
    found = written(checked[1])
    assert not found["cuda"]
    assert found["hardware"]
    assert found["versions"]["torch"]
    cases = [case for name in ("first", "tests") for case in found["parts"][name]["cases"]]
    skipped = {case["message"] for case in cases if case["outcome"] == "skipped"}
    assert len(cases) > 25
    assert "failed" not in {case["outcome"] for case in cases}
    assert "needs a CUDA device" in skipped
