"""Tools of `trainperf mcp`: each runs one of our commands on what is below one folder.

What a command prints is the tool's answer, and what it refuses with is the tool's error.  It runs
in a process of its own, so nothing that it prints or loads is in the way of the protocol.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from trainperf import __version__
from trainperf.analysis.run.directory import Run
from trainperf.commands._trainings import sigterm_as_interrupt
from trainperf.core.errors import TrainPerfError
from trainperf.core.readings import STEP_S


INSTRUCTIONS = """\
Measured facts about PyTorch trainings.  First `findings` of a run: its first finding is what to
change first.  Then `explain` it, make that one change, and `compare` the runs before and after it.
Advise nothing that no finding says.  {trains}"""

_TRAINS = {
    True: "`try` measures a change before it is made, and `prove` decides whether it stays.",
    False: "Started with --allow-run, this server can also try changes and prove them.",
}

RunPath = Annotated[
    str, Field(description="Run directory, or a folder above it for its newest run; from the root.")
]
Script = Annotated[
    str,
    Field(description='Training script below the root with its arguments: "train.py --lr 3e-4".'),
]
Ranks = Annotated[int, Field(ge=1, description="Processes on this machine, under torchrun if > 1.")]


def serve(root: Path, *, allow_run: bool) -> None:
    """Answer on stdin and stdout until stdin ends; nothing that was started runs on."""
    with sigterm_as_interrupt():
        server_of(root, allow_run=allow_run).run("stdio")


def server_of(root: Path, *, allow_run: bool) -> MCPServer[object]:
    """The server: its tools read below *root*, and start trainings only where that is allowed."""
    tools = Tools(root.resolve())
    server: MCPServer[object] = MCPServer(
        "trainperf",
        version=__version__,
        instructions=INSTRUCTIONS.format(trains=_TRAINS[allow_run]),
        log_level="WARNING",
    )
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    server.add_tool(tools.findings, annotations=reads)
    for tool in (tools.report, tools.compare, tools.explain):
        server.add_tool(tool, annotations=reads, structured_output=False)
    if allow_run:
        server.add_tool(tools.try_, name="try", structured_output=False)
        server.add_tool(tools.prove, structured_output=False)
    return server


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools; their signatures and docstrings are what an assistant is told of them."""

    root: Path
    """Resolved: nothing outside of it is read or started."""

    async def report(self, run: RunPath = ".", *, full: bool = False) -> str:
        """Where a training run's time went, and what to change first, as a page of text.

        With full, every section: loader, memory, operators, ranks, machine.  Works while the run
        is training.
        """
        return await self._command("report", *["--full"] * full, self._run(run))

    async def findings(
        self, run: RunPath = ".", *, limit: Annotated[int, Field(ge=1)] = 5
    ) -> dict[str, object]:
        """What slows a run down, in the order in which to act, as JSON.

        Of each finding: `gain`, times faster that its change probably makes it (null: nobody knows
        before it is tried), `gain_upper_bound`, `where` in the user's code, `action`, and `trials`
        that measure it.  Leave alone what has a `fraction` of 0.  Without findings `ordinary` says
        how much of the step is computing in which no waste was seen.
        """
        summary = json.loads(await self._command("report", "--format", "json", self._run(run)))
        ordered = summary["findings"]
        return {
            "run": summary["run"]["path"],
            STEP_S: summary["readings"].get(STEP_S),
            "findings": ordered[:limit],
            "left_out": len(ordered[limit:]),
            "ordinary": summary["ordinary"],
        }

    async def compare(self, before: Sequence[RunPath], after: Sequence[RunPath]) -> str:
        """Whether the run after a change is faster than the one before it, and learns the same.

        Each side is one run, or repeats of it.  Says faster, slower, equal, undecided, loss differs
        or not comparable, with intervals.
        """
        sides = [",".join(map(self._run, side)) for side in (before, after)]
        return await self._command("compare", *sides)

    async def explain(self, names: Sequence[str] = (), run: RunPath | None = None) -> str:
        """What findings, readings, phases, checks or trials mean, and when not to believe them.

        With a run, what a finding's change gains there.  Without names, all names there are.
        """
        of_run = [] if run is None else ["--run", self._run(run)]
        return await self._command("explain", *of_run, "--", *names)

    async def try_(
        self,
        script: Script,
        context: Context,
        *,
        only: Annotated[Sequence[str], Field(description="Trials, as findings name them.")] = (),
        minutes: Annotated[float, Field(gt=0, description="For all trials together.")] = 2.0,
        ranks: Ranks = 1,
    ) -> str:
        """Measure what changes would bring, in a training that is thrown away.  Takes minutes.

        Without *only* all that apply are tried; each has its verdict, and the line to write.
        """
        trials = [f"--only={trial}" for trial in only]
        training = self._training(script, ranks)
        return await self._command("try", *trials, f"--minutes={minutes}", *training, tell=context)

    async def prove(
        self,
        before: Script,
        after: Script,
        context: Context,
        *,
        pairs: Annotated[int, Field(ge=1, description="Of trainings, at most.")] = 10,
        ranks: Ranks = 1,
    ) -> str:
        """Decide whether a change stays: both trainings in turns, until it is clear.

        After is the same training with one change, made in a copy of the script.  Ends with keep,
        discard or cannot tell.  Takes minutes; start nothing else meanwhile.
        """
        sides = [shlex.join(self._training(script, ranks)) for script in (before, after)]
        return await self._command("prove", "--decide", f"--pairs={pairs}", *sides, tell=context)

    # -- inside -------------------------------------------------------------------------------

    def _inside(self, path: str) -> Path:
        """A path below the root, links followed."""
        inside = (self.root / path).resolve()
        if not inside.is_relative_to(self.root):
            raise ToolError(f"{path}: outside of {self.root}; give a path below that folder")
        return inside

    def _run(self, path: str) -> str:
        """A run below the root, all of whose files are."""
        if "," in path:  # joins repeats on the command line
            raise ToolError(f"{path}: a comma; give a list of runs, one path each")
        inside = self._inside(path)
        try:
            run = Run.open(inside).path
        except TrainPerfError as error:
            raise ToolError(f"{error}; runs are below {self.root}, the newest is .") from None
        for file in (run, *run.rglob("*")):
            self._inside(str(file))
        return str(inside)

    def _training(self, script: str, ranks: int) -> list[str]:
        try:
            name, *arguments = shlex.split(script)
        except ValueError:
            raise ToolError(f'"{script}": give a script, as in "train.py --lr 3e-4"') from None
        file = self._inside(name)
        if file.suffix != ".py" or not file.is_file():
            raise ToolError(f"{name}: no Python file in {self.root}; give the script that trains")
        launcher = f"-m torch.distributed.run --standalone --nproc-per-node={ranks}".split()
        return [*(launcher if ranks > 1 else []), str(file), *arguments]

    async def _command(self, *words: str, tell: Context | None = None) -> str:
        """What a command prints; of one that trains also what it says while it does.

        Raises:
            ToolError: It prints nothing, but says why.
        """
        line = [sys.executable, "-X", "utf8", "-m", "trainperf", *words]
        printed: list[str] = []
        notes: list[str] = []
        process = await anyio.open_process(line, cwd=self.root, stdin=subprocess.DEVNULL)
        try:
            async with anyio.create_task_group() as reading:
                reading.start_soon(_read, process.stdout, printed, None)
                reading.start_soon(_read, process.stderr, notes, tell)
            await process.wait()
        finally:
            await _end(process)
        if not printed:
            raise ToolError("".join(notes).strip())
        return "".join([*printed, *(notes if tell else [])])


async def _read(stream: ByteReceiveStream | None, parts: list[str], tell: Context | None) -> None:
    """All that comes, part by part; whoever waits is told of it."""
    assert stream is not None  # noqa: S101 all are pipes
    async for part in TextReceiveStream(stream):
        parts.append(part)
        if tell is not None:
            await tell.report_progress(len(parts), message=part.strip())


async def _end(process: Process) -> None:
    """Of a call that was given up: it ends its trainings, however long that takes."""
    if process.returncode is None:
        process.terminate()
    with anyio.CancelScope(shield=True):
        await process.wait()
        await process.aclose()
