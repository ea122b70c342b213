"""A full training through each door on the device, and what its report says."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.device.frontend import NAME, empty_cache
from support.device.plants import (
    counted_synchronisations,
    memory_limit,
    recorded_spans,
    slow_copies,
    slow_launches,
    slow_operator,
    work,
)
from support.device.trainings import DOORS, INIT_SCALE, STEPS
from support.device.two_ranks import run_of
from support.fits import Ran, read
from support.loops import learn
from torch import nn

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import read_documents
from trainperf.core.phases import Gap
from trainperf.core.readings import DATA_STALL_FRACTION, HOST_BOUND_FRACTION, OVERFLOW_RATE
from trainperf.loop import LoopMonitor
from trainperf.remedies import DevicePrefetcher
from trainperf.reports.layout.text import as_text
from trainperf.reports.run.document import run_document


@pytest.fixture
def known_to_accelerate(device: torch.device) -> Iterator[None]:
    """The variable by which Accelerate is told of a device."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
    yield
    del os.environ["ACCELERATE_TORCH_DEVICE"]


def report_of(run: Path) -> tuple[Summary, str]:
    """What was measured, and the text that a user sees."""
    summary = summarize(Run.open(run))
    return summary, as_text(run_document(summary))


def assert_whole(ran: Ran) -> None:
    """Every step has its loss, its marks and both of its batches; nothing was switched off."""
    assert ran.totals.faults == {}
    assert len(ran.steps) == STEPS
    assert set(ran.micro_batches()) == {2}
    for fact in ("data_stall_ns", "lead_backward", "attempts", "loss"):
        assert None not in ran.fact(fact), fact
    assert ran.gap_ns(Gap.VALIDATION) > 0
    assert ran.gap_ns(Gap.CHECKPOINT) > 0


@pytest.mark.usefixtures("known_to_accelerate", "fresh_compiler")
@pytest.mark.parametrize("door", DOORS)
def test_a_full_training_is_measured_and_waits_no_more_than_without_us(
    door: str, tmp_path: Path
) -> None:
    """Overflows are those of the scale, the report is whole, and no synchronisation is ours.

    The model is compiled, and every batch is copied in a side stream.
    """
    slow_operator("aten::addmm", 3.0)
    slow_operator("aten::nll_loss_backward", 20.0)  # so that it is behind as a backward ends
    waits, ahead = {}, {}
    for measured in (True, False):
        torch.manual_seed(0)
        root = tmp_path / str(measured)
        root.mkdir()
        with counted_synchronisations() as counts, recorded_spans() as spans:
            scale = DOORS[door](root, measured=measured)
        waits[measured] = counts
        copies = [span for span in spans if span.name == "memcpy_to_device" and span.stream]
        ahead[measured] = len(copies)

    ran_in = run_of(tmp_path / "True")
    ran = read(ran_in)
    assert_whole(ran)
    assert waits[True] == waits[False]
    assert ahead[True] == ahead[False] >= 2 * 2 * STEPS
    assert read_documents(ran_in).compilation.graphs > 0
    skipped = math.log2(INIT_SCALE / scale)
    assert sum(ran.fact("overflows")) == skipped > 0  # type: ignore[arg-type]
    assert skipped < STEPS / 2
    summary, text = report_of(ran_in)
    assert summary.value(OVERFLOW_RATE) == pytest.approx(skipped / STEPS)
    assert summary.value(HOST_BOUND_FRACTION) < 0.5
    for part in ("forward", "backward", "optimizer", "device idle for", "overflow", "peak memory"):
        assert part in text, part


def loop(root: Path, loader: object, *, ms: float, **options: object) -> Path:
    """A plain loop of small steps, each with so much work on the device."""
    model = nn.Linear(4, 1).to(NAME)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    monitor = LoopMonitor(root, report=False, **options)  # type: ignore[arg-type]
    with monitor.watch(model, optimizer):
        for rows in monitor.batches(loader):  # type: ignore[var-annotated,arg-type]
            with monitor.phase("h2d"):
                rows = rows.to(NAME, non_blocking=True)  # noqa: PLW2901 as loops do
            with monitor.phase("forward"):
                loss = model(rows).mean()
                work(ms)
            learn(monitor, optimizer, loss)
    return monitor.run


@pytest.mark.parametrize(("copy_ms", "work_ms", "exposed"), [(20.0, 0.0, True), (2.0, 60.0, False)])
def test_copies_ahead_stall_the_device_where_they_take_longer_than_its_work(
    device: torch.device,
    tmp_path: Path,
    copy_ms: float,
    work_ms: float,
    exposed: bool,  # noqa: FBT001 a parameter
) -> None:
    """They run in a side stream: what is not hidden is waited for between two batches."""
    slow_copies(latency_ms=copy_ms)
    batches = [torch.ones(8, 4).pin_memory() for _ in range(40)]
    summary, text = report_of(loop(tmp_path, DevicePrefetcher(batches, device), ms=work_ms))
    stalled = summary.value(DATA_STALL_FRACTION)
    assert stalled > 0.5 if exposed else stalled < 0.1
    assert "device idle for" in text


def test_copies_in_the_compute_stream_are_named_and_their_change_is_pinning(
    device: torch.device, tmp_path: Path
) -> None:
    """From memory that is not pinned the host waits for each of them as well."""
    del device
    slow_copies(latency_ms=20.0)
    slow_launches(queue_depth=20)
    loader = torch.utils.data.DataLoader(torch.ones(800, 4), batch_size=8, pin_memory=False)
    summary, _ = report_of(loop(tmp_path, loader, ms=1.0))
    (found,) = (finding for finding in summary.findings if finding.id == "transfer")
    assert summary.value("h2d_s") >= 0.02
    assert [change.id for change in found.changes] == ["pin_memory"]


def test_a_fit_that_runs_out_of_memory_says_what_asked_for_how_much(
    device: torch.device, tmp_path: Path
) -> None:
    """The ledger of the audited step, and the allocation that ended the fit."""
    empty_cache()
    memory_limit(64 << 20)
    batches = [torch.ones(8, 4)] * 12 + [torch.ones(8 << 20, 4)]
    with pytest.raises(torch.OutOfMemoryError):
        loop(tmp_path, batches, ms=1.0, audit_at=4)
    run = run_of(tmp_path)
    ledger = read_documents(run).memory
    assert ledger.parameters_bytes == 5 * 4
    assert ledger.activations_bytes is not None
    assert ledger.capacity_bytes == 64 << 20
    assert ledger.out_of_memory.requested_bytes == 128 << 20
    assert Path(__file__).name in ledger.out_of_memory.where
    _, text = report_of(run)
    assert "128 MiB" in text
