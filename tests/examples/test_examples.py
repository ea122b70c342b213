"""Every example runs as it is and leaves a run with a report."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.loops import read
from support.stand_ins import put_in
from support.threads import one_thread

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


__all__ = ["one_thread"]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
OTHERS = ("benchmark_step", "ddp_digits", "ray_digits")
"""Those that leave no run in the process that starts them; Ray's is in `tests/loop/test_ray.py`."""

TRAININGS = [script for script in EXAMPLES if script.stem not in OTHERS]


@pytest.mark.filterwarnings("ignore")  # of the frameworks, about small data
@pytest.mark.parametrize("script", TRAININGS, ids=lambda script: script.stem)
def test_an_example_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In an empty folder, on a CPU; two frameworks have stand-ins, see `test_real_frameworks`."""
    if script.stem.startswith("ignite"):
        pytest.importorskip("ignite")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    put_in(script.stem.split("_")[0], monkeypatch, always=True)

    runpy.run_path(str(script), run_name="__main__")

    runs = {file.parent for file in tmp_path.rglob("steps-rank0.jsonl")}
    assert runs
    for run in runs:
        summary = summarize(Run.open(run))
        assert summary.run.steps >= 16
        assert summary.run.faults == {}
        assert sum(read(run / "steps-rank0.jsonl").phase_s("data_wait")) > 0
    assert answer(capsys.readouterr().out)


def test_the_benchmark_prints_its_verdict_and_the_table_of_the_sweep(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever they come to."""
    (script,) = (script for script in EXAMPLES if script.stem == "benchmark_step")

    runpy.run_path(str(script), run_name="__main__")

    printed = capsys.readouterr().out
    assert "gelu, tanh against gelu: " in printed
    assert "samples/s" in printed


@pytest.mark.slow
@pytest.mark.ddp
def test_two_ranks_leave_one_run(tmp_path: Path) -> None:
    """As `torchrun` starts them."""
    (script,) = (script for script in EXAMPLES if script.stem == "ddp_digits")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

    ended = subprocess.run(
        [sys.executable, *launcher, str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert ended.returncode == 0, ended.stderr
    assert answer(ended.stdout)
    (run,) = {file.parent for file in tmp_path.rglob("steps-rank1.jsonl")}
    summary = summarize(Run.open(run))
    assert summary.run.world_size == 2
    assert summary.run.steps == 60


def answer(printed: str) -> str:
    """The first line of a printed report below its head, whatever it says."""
    _, _, report = printed.partition("trainperf · ")
    return report.partition("\n\n  ")[2].partition("\n")[0].strip()


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_the_readme_names_every_example(script: Path) -> None:
    """And what it measures."""
    assert f"`{script.name}`" in (script.parent / "README.md").read_text(encoding="utf-8")
