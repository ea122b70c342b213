"""Traces read back, and a timeline whose steps are captured."""

import gzip
import json
from pathlib import Path
from typing import Any

import torch
from support.live import Timeline, micro_batch_done

from trainperf.core.phases import Gap, Phase, Tag
from trainperf.recording.guard import Guard
from trainperf.recording.profiling.background_reader import TraceWorker
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.profiler_probe import ProfilerProbe


def schedule(**options: Any) -> ScheduledProfile:
    """One cycle of five steps to wait, two to warm up and three to trace, or otherwise.

    Nobody reads the traces, and nobody asks for more, but by option.
    """
    usual = {"on_demand": False, "analyse": False, "max_traces": 100}
    return ScheduledProfile(**{**usual, **options})


NEVER: dict[str, Any] = {"skip_first": 1_000_000}


def torch_profiles() -> bool:
    """Whether any torch profiler is recording."""
    return bool(torch._C._autograd._profiler_enabled())


class Trace:
    """A trace file, read with the standard library alone."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path) as file:
            self.content: dict[str, Any] = json.load(file)
        complete = [event for event in self.content["traceEvents"] if event.get("ph") == "X"]
        spans = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in complete]
        self.spans: list[tuple[str, float, float]] = sorted(spans, key=lambda s: (s[1], -s[2]))
        """Name, begin and end of everything that has a length, in order."""

    @property
    def names(self) -> list[str]:
        """Names of everything that has a length."""
        return [name for name, _, _ in self.spans]

    @property
    def facts(self) -> dict[str, Any]:
        """What we wrote into it about itself."""
        return self.content["trainperf"]

    def steps(self) -> list[int]:
        """Numbers of the step marks, in order."""
        marks = [name for name in self.names if name.startswith("ProfilerStep#")]
        return [int(name.partition("#")[2]) for name in marks]

    def phases(self, step: int) -> list[str]:
        """Our marks inside a step's, in order."""
        ours = [span for span in self.spans if span[0].startswith("trainperf::")]
        ((_, begin, end),) = [s for s in self.spans if s[0] == f"ProfilerStep#{step}"]
        inside = [name for name, t0, t1 in ours if begin <= t0 and t1 <= end]
        return [name.removeprefix("trainperf::") for name in inside]


def traces_of(run: Path) -> dict[str, Trace]:
    """The traces of a run directory, by name."""
    files = sorted((run / "traces").glob("*.trace.json.gz"))
    return {path.name: Trace(path) for path in files}


class Captured(Timeline):
    """A timeline under a profiler: each step fetches 2 ms, forwards 3, and loops 1."""

    def __init__(
        self,
        run: Path,
        profile: ScheduledProfile,
        *,
        offset: int = 0,
        rank: int = 0,
        reader: TraceWorker | None = None,
    ) -> None:
        super().__init__()
        self.guard = Guard()
        size = max(rank, *profile.ranks) + 1
        place = CaptureRank(run=run, rank=rank, world_size=size, device="cpu", offset=offset)
        self.probe = ProfilerProbe(profile, place, run, self.guard)
        self.probe.reader = reader
        self.recorder.on_close = self.guard.each([("profiler", self.probe.close)])
        self.guard.wrap("profiler", self.probe.attach)(self.recorder)

    def train(self, steps: int, *, micro_batches: int = 1, slower_ms: int = 0) -> "Captured":
        """So many optimizer steps, each longer by so much."""
        for _ in range(steps):
            for left in reversed(range(micro_batches)):
                self.micro_batch(complete=left == 0, slower_ms=slower_ms)
        return self

    def micro_batch(self, *, complete: bool, slower_ms: int = 0) -> None:
        """One forward pass of real operators."""
        self.recorder.boundary()
        self.spend(Phase.DATA_WAIT, 2)
        self.recorder.enter(Phase.FORWARD)
        torch.ones(2, 2).mm(torch.ones(2, 2))
        self.wait(3 + slower_ms)
        self.recorder.leave()
        micro_batch_done(self.recorder, complete=complete)
        self.recorder.last_hook_done()
        self.wait(1)

    def validate(self) -> None:
        """Validation with an operator of its own, announced late."""
        self.wait(4)
        self.recorder.rest(Gap.VALIDATION, since_last=True)
        torch.zeros(3).cumsum(0)
        self.wait(5)

    def finish(self) -> "Captured":
        """The fit ends, as the monitor ends it."""
        self.end()
        self.guard.run("profiler", self.probe.detach)
        return self

    def traces(self) -> list[Trace]:
        """What was written, oldest first."""
        return [Trace(path) for path in self.probe.traces]

    def names(self) -> list[str]:
        """Names of what was written, oldest first."""
        return [path.name for path in self.probe.traces]

    def profiled(self) -> list[int]:
        """Numbers of the tagged steps."""
        return [step.index for step in self.steps if step.tags & Tag.PROFILED]

    def attributed_ns(self) -> int:
        """All steps and gaps together."""
        steps = sum(sum(step.host_ns) for step in self.steps)
        return steps + sum(gap.duration_ns for gap in self.gaps)
