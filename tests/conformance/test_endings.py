"""However a process ends that trains, its run is closed or can be read, in every door alike."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.conformance.doors import DOORS, Door, Outside, tell
from support.conformance.endings import AT, DIFFERENT, ENDINGS, OPEN, REASONS, STEPS
from support.conformance.planted import Planted
from support.conformance.records import differences, of_run
from support.conformance.stories import expected
from support.conformance.story import Story
from support.loops import read

from trainperf.core.steps.records import EndMark


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what goes on for its run."""

    path: Path
    code: int
    beside: list[str]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ended]:
    """Every ending in every door, by the names of both."""
    folder = tmp_path_factory.mktemp("ends")
    tests = Path(__file__).parents[1]
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "support.conformance.endings", folder, *ENDINGS],
        env={
            **os.environ,
            "TRAINPERF_MACHINE": "1",
            "PYTHONPATH": os.pathsep.join((str(tests), str(tests.parent))),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in told.stdout.splitlines() if line.startswith('["')]
    return {
        (door, ending): Ended(folder / door / ending, code, beside)
        for door, ending, code, beside in lines
    }


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)
def test_a_run_is_closed_or_can_be_read(
    kind: type[Door], ending: str, ended: dict[tuple[str, str], Ended]
) -> None:
    """Its lines are whole, no step is there twice, and no process of ours goes on."""
    end = ended[kind.name, ending]
    (file,) = end.path.rglob("steps-rank0.jsonl")
    run = read(file)
    reason = DIFFERENT.get((kind.name, ending), (REASONS[ending],))[0]
    marks = [entry.reason for entry in run.entries if isinstance(entry, EndMark)]

    assert marks == ([] if reason is OPEN else [reason])
    assert [step.index for step in run.steps] == list(range(len(run.steps)))
    steps = STEPS if reason == "finished" and end.code == 0 else AT
    assert reason is OPEN or len(run.steps) == steps - (kind is Outside)
    assert not end.beside


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)
def test_a_child_that_inherits_a_fit_writes_nothing_of_it(
    kind: type[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as it ends, nor while it goes on: the records are its parent's alone."""

    def forks(planted: Planted, door: Door) -> None:
        if planted.steps == AT and (child := os.fork()) == 0:
            for fit in door.fits:
                fit.monitor.flush()
                fit.end("SystemExit")
            os._exit(0)
        elif planted.steps == AT:
            os.waitpid(child, 0)

    story = Story(name="a fork", epochs=1, batches=STEPS)
    (run,) = tell(story, kind, tmp_path, monkeypatch, look=forks).runs()
    assert not differences(of_run(run), expected(story, kind)[0])
