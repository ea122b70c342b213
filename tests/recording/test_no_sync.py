"""Nothing in the loop waits for the device, reads from it, or asks the clock on the wall."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.live import HostFit
from torch.utils._python_dispatch import TorchDispatchMode

import trainperf
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.batches import SamplesProbe, TransferProbe
from trainperf.recording.probes.loss import LossProbe
from trainperf.recording.probes.tokens import TokensProbe


PACKAGE = Path(trainperf.__file__).parent
ROOMS = ("recording", "loop", "lightning", "huggingface")
OUTSIDE_THE_LOOP = {
    "loop/report.py",
    "recording/machine/process.py",
    "recording/profiling/background_reader.py",
    "recording/shared_run.py",
}
"""Run before the first step, after the last one or in another process, or wait only there."""

WAITS = {"item", "get_scale", "cpu", "nonzero", "is_nonzero", "wait_stream", "sleep", "comes_true"}
"""Methods that read a value from the device or wait."""

ALLOWED = {
    ("schedule.py", "time.sleep"),
    ("monitor.py", "comes_true"),
    ("trackers.py", "comes_true"),
    ("frozen.py", "torch.cat(prints).cpu"),
}
"""A wait; who waits between two questions to the device, and who reads, when the fit is over."""


def files() -> list[Path]:
    """The modules of the live tower that run in the loop."""
    found = [
        path
        for room in ROOMS
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if path.relative_to(PACKAGE).as_posix() not in OUTSIDE_THE_LOOP
    ]
    assert len(found) > 40
    return found


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that is called or passed on to be called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) or (
            isinstance(node, ast.Name) and node.id == "comes_true"
        ):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_of_the_loop_reads_from_the_device(path: Path) -> None:
    """`.item()`, `get_scale()` and the like stall the device that is measured."""
    for line, name in calls(path):
        if (path.name, name) in ALLOWED:
            continue
        assert name.rpartition(".")[2] not in WAITS, f"line {line}: {name}"
        assert name != "time.time", f"line {line}"
        if name.endswith(".synchronize"):
            # The drain, the event it asks, and a turn that is over: what is queued belongs to it.
            waits = {"recording/probes/interleaving.py"}
            assert path.relative_to(PACKAGE).as_posix() in waits, f"line {line}: only an end waits"


class Reads(TorchDispatchMode):
    """Counts the operators that were run."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.ops[str(func)] += 1
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


def train(monitor: LoopMonitor | None, steps: int) -> Counter[str]:
    """A small loop under a scaler; the operators it ran."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, fused=True)]
    scaler = torch.amp.GradScaler("cpu")
    batch = {"x": torch.ones(4, 8), "attention_mask": torch.ones(4, 8, dtype=torch.int64)}
    loader = [batch] * steps
    if monitor is not None:
        monitor.watch(model, optimizers, scaler)
    with Reads() as reads:
        for taken in loader if monitor is None else monitor.batches(loader):
            loss = model(taken["x"]).square().mean()
            scaler.scale(loss).backward()
            if monitor is None:
                scaler.step(optimizers[0])
            else:
                with monitor.phase("optimizer"):
                    scaler.step(optimizers[0])
            scaler.update()
            optimizers[0].zero_grad()
            if monitor is not None:
                monitor.end_step(loss)
        if monitor is not None:
            monitor.close()
    return reads.ops


def test_measuring_reads_no_value_more() -> None:
    """Loss, tokens, overflows and scale of 200 steps: not one read from a tensor."""
    bare = train(None, 200)
    monitor = LoopMonitor(dirpath=None, log_every_n_steps=10)
    measured = train(monitor, 200)

    reading = "aten._local_scalar_dense.default"
    assert bare[reading] >= 0
    assert measured[reading] == bare[reading]
    assert monitor.monitor.guard.faults == {}
    assert monitor.monitor.progress == {"steps": 200, "samples": 800, "tokens_effective": 6400}


def test_values_on_a_device_are_left_there() -> None:
    """On `meta` there is nothing to read: whoever tries, fails."""
    batch = {"attention_mask": torch.ones(2, 8, device="meta", dtype=torch.int64)}
    loss = torch.ones((), device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        loss.item()

    fit = HostFit(LossProbe(), TokensProbe(), SamplesProbe(), TransferProbe())
    for _ in range(40):
        fit.micro_batch(batch, loss)

    assert fit.monitor.guard.faults == {}
