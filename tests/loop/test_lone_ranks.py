"""One of four real gloo ranks is killed or stopped: the others train as if we were not there."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support import lone_ranks
from support.lone_ranks import FATAL, STEPS, trained

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


pytestmark = [pytest.mark.slow, pytest.mark.ddp]

RANKS = 4
PATIENCE_S = 120.0
SURVIVORS = range(RANKS - 1)

Left = dict[str, object]
Launch = Callable[..., list[Left]]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts the ranks and waits for all but the last; what the others left, in their order."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(name: str, *arguments: str, ranks: int = RANKS) -> list[Left]:
        base = tmp_path / name
        base.mkdir()
        for rank in range(ranks):
            command = [sys.executable, lone_ranks.__file__, str(rank), str(ranks), str(base)]
            with (base / f"log-{rank}").open("wb") as log:
                processes.append(
                    subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)
                )
        others = range(ranks - 1)
        codes = [process.wait(PATIENCE_S) for process in processes[-ranks:-1]]
        assert not any(codes), [(base / f"log-{rank}").read_text() for rank in others]
        return [json.loads((base / f"left-{rank}.json").read_text()) for rank in others]

    yield run
    for process in processes:  # a stopped one does not end by itself
        process.kill()
        process.wait()


def parameters_without_us(rank: int) -> list[object]:
    """Of a rank that trains alone, in this process."""
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 4)
    trained(model, None, "")
    return [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize(("strike", "state"), [("killed", "killed"), ("stopped", "silent")])
def test_survivors_take_all_their_steps_and_end_with_the_same_parameters(
    launch: Launch, tmp_path: Path, strike: str, state: str
) -> None:
    """Nobody waits for the fourth, and the report says what became of it."""
    survivors = launch(strike, strike)

    assert [left["steps"] for left in survivors] == [STEPS] * len(SURVIVORS)
    assert [left["parameters"] for left in survivors] == [
        parameters_without_us(rank) for rank in SURVIVORS
    ]
    (run,) = (tmp_path / strike / "runs").iterdir()
    [struck] = [
        end
        for end in summarize(Run.open(run), now_s=time.time() + 1000).run.ended_otherwise
        if end.rank not in SURVIVORS
    ]
    assert struck.state == state
    assert struck.steps < STEPS


def test_under_ddp_torch_gives_up_at_the_same_step_with_us_as_without(launch: Launch) -> None:
    """Its own time-out ends the training of the others; we neither hide nor add anything."""
    [ours] = launch("ours", "stopped", "ddp", ranks=2)
    [alone] = launch("alone", "stopped", "ddp", "alone", ranks=2)

    assert ours["steps"] == alone["steps"] == FATAL
    assert ours["parameters"] == alone["parameters"]
