"""`trainperf mcp`, as the official package's own client sees it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.commands import Command
from support.runs import make_run


READS = ["findings", "report", "compare", "explain"]

SCRIPT = """
import os, sys, time
from pathlib import Path
import torch
from trainperf.loop import LoopMonitor

Path("pid").write_text(str(os.getpid()))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
monitor = LoopMonitor(report=False).watch(model, optimizer)
for batch in monitor.batches([torch.ones(8, 64)] * int(sys.argv[1])):
    with monitor.phase("forward"):
        loss = model(batch).square().mean()
        time.sleep(0.002)
    with monitor.phase("backward"):
        loss.backward()
    with monitor.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    monitor.end_step(loss)
monitor.close()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project: three runs, of which one has a slow loader, and a script."""
    place = tmp_path / "project"
    for name, wait in (("fast", 1), ("linked", 1), ("slow", 20)):
        run = place / "runs" / name / "trainperf"
        make_run(run, config={"num_workers": 0}, data_wait=wait, forward=30)
    (place / "train.py").write_text(SCRIPT)
    return place


def ask(root: Path, *calls: tuple[str, dict[str, Any]], allow_run: bool = False) -> list[Any]:
    """The tools there are, and the results of calls, through a client in this process."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from trainperf.commands._mcp_tools import server_of

    async def session() -> list[Any]:
        async with mcp.Client(server_of(root, allow_run=allow_run)) as client:
            tools = (await client.list_tools()).tools
            return [tools, *[await client.call_tool(*call) for call in calls]]

    return anyio.run(session)


def test_without_allow_run_every_tool_only_reads(root: Path) -> None:
    """Each says so, and what it is for; the list of all is short enough for a model's context."""
    (reading,) = ask(root)
    (running,) = ask(root, allow_run=True)

    assert [tool.name for tool in reading] == READS
    assert [tool.name for tool in running] == [*READS, "try", "prove"]
    assert all(tool.annotations.read_only_hint and tool.description for tool in reading)
    assert len(json.dumps([tool.model_dump(mode="json") for tool in running])) < 12_000


def test_reading_says_what_the_commands_say_and_writes_nothing(
    root: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default of the newest run below the root."""
    monkeypatch.setenv("COLUMNS", "100")
    files = sorted(root.rglob("*"))
    _, report, same, compared, explained = ask(
        root,
        ("report", {"run": "runs/slow"}),
        ("report", {}),
        ("compare", {"before": ["runs/slow"], "after": ["runs/fast"]}),
        ("explain", {"names": ["data_wait"], "run": "runs/slow"}),
    )

    printed = command("report", root / "runs" / "slow").out
    assert report.content[0].text.split() == printed.split()
    assert "reading the newest, runs/slow/trainperf" in " ".join(same.content[0].text.split())
    assert "fast against slow: faster" in compared.content[0].text
    assert "data_wait · a finding" in explained.content[0].text
    assert sorted(root.rglob("*")) == files


def test_findings_are_those_of_the_summary_as_many_as_asked_for(
    root: Path, command: Command
) -> None:
    """What is left out is counted, and a page of text is not repeated."""
    summary = json.loads(command("report", root / "runs" / "slow", "--format", "json").out)
    _, few, more = ask(
        root,
        ("findings", {"run": "runs/slow", "limit": 1}),
        ("findings", {"run": "runs/slow"}),
    )

    found = few.structured_content
    assert found["findings"] == summary["findings"][:1]
    assert found["findings"][0]["id"] == "data_wait"
    assert found["left_out"] == len(summary["findings"]) - 1
    assert more.structured_content["findings"] == summary["findings"][:5]


REFUSED = {
    "outside": ("report", {"run": "../elsewhere"}, "outside of"),
    "absolute": ("report", {"run": "/etc"}, "outside of"),
    "link": ("report", {"run": "runs/link"}, "outside of"),
    "linked file": ("report", {"run": "runs/linked"}, "outside of"),
    "comma": ("compare", {"before": ["runs/a,/etc"], "after": ["runs/fast"]}, "a list of runs"),
    "no run": ("findings", {"run": "runs/none"}, "no such file or directory; runs are below"),
    "no name": ("explain", {"names": ["data_wai"]}, "did you mean data_wait"),
    "an option": ("explain", {"names": ["--schema=summary"]}, "nothing is named so"),
    "a program": ("try", {"script": "rm -rf runs"}, "rm: no Python file"),
    "a script outside": ("prove", {"before": "train.py", "after": "../train.py"}, "outside of"),
    "half a quotation": ("try", {"script": "train.py 'a"}, "give a script"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_an_error_that_says_what_to_do(case: str, root: Path) -> None:
    """Nothing outside of the root is read or started, by no way of writing it."""
    tool, arguments, why = REFUSED[case]
    outside = root.parent / "elsewhere"
    (root / "runs").rename(root / "moved")
    (root / "runs").mkdir()
    for name in ("fast", "linked"):
        (root / "moved" / name).rename(root / "runs" / name)
    (root / "moved").rename(outside)
    (root / "runs" / "link").symlink_to(outside / "slow")
    (root / "runs" / "linked" / "trainperf" / "audit.json").symlink_to(root.parent / "secret")

    _, result = ask(root, (tool, arguments), allow_run=True)

    assert result.is_error
    assert why in result.content[0].text


@pytest.mark.slow
def test_over_stdio_a_change_is_tried_and_proved(root: Path) -> None:
    """By a client that starts the server; whoever waits is told how it goes."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    told: list[str] = []

    async def hear(_progress: float, _total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def session() -> list[str]:
        async with mcp.Client(server(mcp, root)) as client:
            calls = [
                ("try", {"script": "train.py 2000", "only": ["no_update"], "minutes": 0.2}),
                ("prove", {"before": "train.py 80", "after": "train.py 80", "pairs": 1}),
            ]
            results = [await client.call_tool(*call, progress_callback=hear) for call in calls]
            return [result.content[0].text for result in results]

    tried, proved = anyio.run(session)

    assert "no_update" in tried
    assert "trainperf: the run is runs/try" in tried
    assert any("the run is runs/try" in line for line in told)
    assert {line.split(":")[0] for line in proved.splitlines()} & {"cannot tell", "discard", "keep"}


@pytest.mark.slow
def test_a_client_that_leaves_ends_what_it_has_started(root: Path) -> None:
    """The training too."""
    mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

    async def session() -> int:
        async with mcp.Client(server(mcp, root)) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "try", {"script": "train.py 1000000"})
            await until((root / "pid").exists)
            group.cancel_scope.cancel()
        return int((root / "pid").read_text())

    training = Path("/proc") / str(anyio.run(session))

    anyio.run(until, lambda: not training.exists())


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110 it sets no event
            await anyio.sleep(0.1)


def server(mcp: Any, root: Path) -> Any:
    """How a client starts it."""
    return mcp.stdio_client(
        mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "trainperf", "mcp", "--root", str(root), "--allow-run"],
            env=dict(os.environ),
        ),
        errlog=sys.__stderr__,
    )
