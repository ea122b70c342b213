"""Every option of a fit does the same in every door: each is shown by what it causes."""

import io
import logging
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from support.conformance.doors import DOORS, Door, Outside
from support.conformance.planted import Planted
from support.conformance.process_state import of_process, replaced
from support.conformance.story import ROWS, TOKENS, Story
from support.loops import Written
from support.memory_sink import MemorySink
from support.own import ForwardShare

from trainperf.core.errors import ConfigError
from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Tag
from trainperf.huggingface import TrainPerfCallback
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor
from trainperf.loop.options import NOTHING_TRIED, FitOptions
from trainperf.recording import line_sampler as sampler
from trainperf.recording.machine.probe import SAMPLER
from trainperf.recording.probes.base import Probe
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.testing import FakeClock
from trainperf.trials import Trial


AUDITED, EVERY = 8, 3
OPTIONS = tuple(option.name for option in fields(FitOptions))


def mask(batch: object) -> torch.Tensor:
    """One token of each row counts, whatever the batch says of itself."""
    whole = torch.zeros(ROWS, TOKENS)
    whole[:, 0] = 1
    return whole


class Counter(Probe):
    """Feeds a fact of its own."""

    name = "counter"
    facts = ("ones",)
    counts = ("ones",)


@dataclass
class Shown:
    """What a fit has left that was given every option."""

    door: Door
    run: Written
    folder: Path
    keeper: MemorySink
    printed: str = ""
    messages: list[str] = field(default_factory=list)
    children: set[str] = field(default_factory=set)
    """Modules that ran in processes beside it, and its own threads."""

    def has(self, pattern: str) -> bool:
        """Whether a file of that name was written."""
        return any(self.folder.rglob(pattern))


def everything(keeper: MemorySink) -> dict[str, Any]:
    """Each option, but for the directory."""
    return {
        "tokens": mask,
        "log_every_n_steps": EVERY,
        "report": True,
        "lines": True,
        "machine": True,
        "audit_at": AUDITED,
        "profile": ScheduledProfile(wait=2, warmup=1, active=1, analyse=False),
        "meters": [ForwardShare()],
        "probes": [Counter()],
        "sinks": [keeper],
        "trials": [Trial("mine", on=int, off=int)],
        "hang_after_s": None,
    }


LAUNCHED = {"dirpath", "audit_at"}
"""Options that a command gives to whatever it launches; with those of `trainperf try`, all."""


@pytest.fixture(scope="module", params=DOORS, ids=lambda door: door.name)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """One fit on the machine's clock, which lines and the machine are sampled by."""
    kind, path, keeper = request.param, tmp_path_factory.mktemp("options"), MemorySink()
    options = everything(keeper)
    if kind is Outside:
        options = {name: value for name, value in options.items() if name in LAUNCHED}
    before, handler = of_process(), Messages()
    children: set[str] = set()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setenv("TRAINPERF_MACHINE", "1")
        patch.setattr(sampler, "BUDGET", 0.05)
        logging.getLogger("trainperf").addHandler(handler)
        door = kind(path, monotonic_ns, options)
        planted = Planted(Story(name="options", epochs=1, batches=24), FakeClock())
        planted.look = lambda: busy(children)
        with door.open(patch):
            door.train(planted)
        logging.getLogger("trainperf").removeHandler(handler)
    assert not replaced(before, of_process())
    (run,) = door.runs()
    (folder,) = {file.parent for file in path.rglob("steps-rank0.jsonl")}
    return Shown(door, run, folder, keeper, printed.getvalue(), handler.messages, children)


class Messages(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        self.messages.append(record.getMessage())


def busy(children: set[str]) -> None:
    """Runs Python for a while, and sees which processes and threads run beside it."""
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        sum(range(50))
    children.update(thread.name for thread in threading.enumerate())
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            children.update(child.cmdline())


EVIDENCE: dict[str, Callable[[Shown], bool]] = {
    "tokens": lambda shown: {s.facts["tokens_effective"] for s in shown.run.steps} == {ROWS},
    "dirpath": lambda shown: shown.folder.parent == shown.door.path,
    "log_every_n_steps": lambda shown: shown.keeper.shown[0][0] == EVERY,
    "report": lambda shown: "steady steps" in shown.printed,
    "lines": lambda shown: shown.has("lines*.json"),
    "machine": lambda shown: SAMPLER in shown.children,
    "hang_after_s": lambda shown: (
        "trainperf lines" in shown.children and "trainperf standstill" not in shown.children
    ),
    "audit_at": lambda shown: (
        shown.has("audit.json")
        and [s.index for s in shown.run.steps if s.tags & Tag.AUDITED] == [AUDITED]
    ),
    "profile": lambda shown: shown.has("traces/*"),
    "meters": lambda shown: ForwardShare.name in shown.run.totals.readings,
    "probes": lambda shown: "ones" in shown.run.info.columns,
    "sinks": lambda shown: shown.keeper.closed and len(shown.keeper.step_rows) == 24,
    "trials": lambda shown: any(NOTHING_TRIED in message for message in shown.messages),
}
"""The record, file, process or line that an option causes."""


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_does_in_this_door_what_it_does_in_every(option: str, shown: Shown) -> None:
    """Or nobody is there who could give it."""
    if shown.door.name == Outside.name and option not in LAUNCHED:
        given = {each.name for each in fields(LaunchOptions)}
        assert option not in given - {"trials"}, "a command gives it: show what it does"
        return
    assert EVIDENCE[option](shown), shown.messages


REFUSED: dict[str, object] = {
    "tokens": 3,
    "dirpath": "nowhere://runs",
    "log_every_n_steps": 0,
    "audit_at": -1,
    "meters": [ForwardShare],
    "probes": "mine",
    "sinks": [object()],
    "trials": [object()],
}


@pytest.mark.parametrize("option", REFUSED)
def test_a_value_is_refused_with_the_same_words_everywhere(option: str) -> None:
    """Where the monitor or the callback is made, before anything trains."""
    words = set()
    for made in (FitOptions, LoopMonitor, TrainPerf, TrainPerfCallback):
        with pytest.raises(ConfigError) as refused:
            made(**{option: REFUSED[option]})
        words.add(str(refused.value))
    assert len(words) == 1
