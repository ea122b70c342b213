"""Copies from pageable and from pinned memory, and how much of the link each of them reaches."""

from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.reports import report_lines
from recipes.cases.verdicts import needs_cuda, verdict
from recipes.claims.bench import ClaimBench, same
from recipes.claims.published import PINNED
from trainperf.core.machine.chips import chip_of
from trainperf.loop import LoopMonitor


STEPS = 60


def pinned_copies(bench: ClaimBench) -> Case:
    """The same batch from both kinds of memory."""
    claim = "A batch in pinned memory is copied to the device faster than a pageable one."
    if bench.device == "cpu":
        why = "on a CPU nothing is copied to a device"
        return Case(
            name="pinned_copies",
            claim=claim,
            before_note="the finding `transfer` is about this, where batches go to a device.",
            published=PINNED,
            **needs_cuda(why),
        )
    pageable = torch.randn(bench.pick(1 << 20, 1 << 26))
    pinned = pageable.pin_memory()
    rows = paired(
        {
            "pageable": lambda _: pageable.to("cuda")[:8],
            "pinned": lambda _: pinned.to("cuda", non_blocking=True)[:8],
        },
        None,
        seconds=bench.seconds,
    )
    return Case(
        name="pinned_copies",
        claim=claim,
        before=report_lines(_fit(bench, pageable)),
        change=(
            "- DataLoader(data)",
            "+ DataLoader(data, pin_memory=True)  # batch.to(device, non_blocking=True)",
        ),
        measured=(*rows, *_rates(rows, pageable.numel() * pageable.element_size())),
        published=PINNED,
        **verdict(rows[1], "faster"),
    )


def _rates(rows: tuple[MeasuredRow, ...], size: int) -> list[MeasuredRow]:
    """Bytes per second, and their share of what the link carries by the chip's data sheet."""
    chip = chip_of(torch.cuda.get_device_name())
    link = chip.link_bytes_per_s if chip is not None else None
    rates: list[MeasuredRow] = []
    for row in rows:
        rate = size / row.value if row.value else None
        rates.append(MeasuredRow(what=f"{row.what}, rate", value=rate, unit="B/s"))
        if rate and link:
            rates.append(MeasuredRow(what=f"{row.what}, of the link", value=rate / link, unit="%"))
    return rates


def _fit(bench: ClaimBench, rows: Tensor) -> Path:
    """A loop that copies pageable batches, measured."""
    batch = rows[: 1 << 20].view(1024, -1)
    model = same(lambda: nn.Linear(batch.shape[1], 256)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    monitor = LoopMonitor(bench.out / "pinned_copies", report=False, machine=False)
    monitor.watch(model, optimizer, device="cuda")
    with monitor:
        for host in monitor.batches([batch] * STEPS):
            with monitor.phase("h2d"):
                values = host.to("cuda")
            with monitor.phase("forward"):
                loss = model(values).square().mean()
            with monitor.phase("backward"):
                loss.backward()
            with monitor.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            monitor.end_step(loss)
    if monitor.run is None:
        raise RuntimeError("pinned_copies: the fit left no run directory; see the warning above")
    return monitor.run
