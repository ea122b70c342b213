"""Fits on the asynchronous device: what is planted there comes back, and nothing waits for it.

Each of these was a wrong number, or a training that waited, when the device half was first run on
a device that works while the host goes on.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from support.device.frontend import (
    NAME,
    current_device,
    empty_cache,
    memory_reserved,
    memory_stats,
    stream,
)
from support.device.plants import (
    Graph,
    counted_synchronisations,
    memory_limit,
    no_synchronisation,
    unplant,
    work,
)
from support.loops import update
from support.memory_sink import MemorySink
from torch import nn

from trainperf.accelerators import accelerator_of
from trainperf.audit import chip_cache
from trainperf.audit.chip_benchmark import fastest_s
from trainperf.audit.step import Audit
from trainperf.benchmark.calls import seconds_of
from trainperf.core.machine.chips import Chip
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Phase
from trainperf.core.steps.records import Totals
from trainperf.loop import LoopMonitor
from trainperf.recording.device_clock import DeviceClock
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Recorder
from trainperf.trials.probe import TrialsProbe
from trainperf.trials.results import Ran


STEPS = 60
TRUE_LOSS = 7.0


class Fit:
    """A small training on the device, step by step."""

    def __init__(
        self,
        device: torch.device,
        model: nn.Module | None = None,
        *,
        scaler: torch.amp.GradScaler | None = None,
        watched_on: torch.device | str | None = None,
        fused: bool = False,
    ) -> None:
        self.device = device
        self.model = model or nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 1)).to(device)
        self.scaler = scaler
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.0, fused=fused)
        self.sink = MemorySink()
        self.monitor = LoopMonitor(
            None, report=False, machine=False, lines=False, sinks=[self.sink], log_every_n_steps=10
        )
        self.monitor.watch(self.model, self.optimizer, scaler, device=watched_on)

    def batches(self, steps: int = STEPS) -> Iterator[torch.Tensor]:
        """What the loader yields."""
        return self.monitor.batches([torch.ones(4, 16) for _ in range(steps)])

    def step(self, batch: torch.Tensor, *, ms: float = 1.0, poison: bool = False) -> None:
        """Forward, backward and update; the device has *ms* to do in forward."""
        with self.monitor.phase(Phase.H2D.label):
            batch = batch.to(self.device, non_blocking=True)
        with self.monitor.phase(Phase.FORWARD.label):
            output = self.model(batch)
            work(ms, self.device)
            loss = (output * 0).mean() + TRUE_LOSS
        with self.monitor.phase(Phase.BACKWARD.label):
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if poison:
            for parameter in self.model.parameters():
                parameter.grad.fill_(float("inf"))
        with self.monitor.phase(Phase.OPTIMIZER.label):
            update(self.optimizer, self.scaler)
        self.monitor.end_step(loss)

    def close(self) -> None:
        """The fit is over, and nothing of ours has failed."""
        self.monitor.close()
        assert self.monitor.monitor.guard.faults == {}

    def facts(self, name: str) -> list[int | float | None]:
        """One fact of all steps."""
        return [record.facts.get(name) for record in self.sink.records]


class Embedded(nn.Module):
    """A model whose first parameter is on the host."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 16)
        self.head = nn.Linear(16, 1).to(device)
        self.device = device

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """From a batch that is used as numbers of rows."""
        rows = self.table(batch.cpu().long()).mean(1)
        return self.head(rows.to(self.device, non_blocking=True))  # type: ignore[no-any-return]


def embedded(device: torch.device) -> Fit:
    """A model whose first parameter is on the host."""
    return Fit(device, Embedded(device))


def moved_later(device: torch.device) -> Fit:
    """A model that is moved to the device when it is watched already."""
    fit = Fit(device, nn.Linear(16, 1))
    fit.model.to(device)
    return fit


def watched_elsewhere(device: torch.device) -> Fit:
    """A model of which we are told a wrong device."""
    return Fit(device, watched_on="cpu")


@pytest.mark.parametrize("make", [Fit, embedded, moved_later, watched_elsewhere])
def test_the_loss_is_the_true_one(device: torch.device, make: Callable[..., Fit]) -> None:
    """Wherever the model's first parameter was, and when it was moved."""
    fit = make(device)
    for batch in fit.batches():
        fit.step(batch)
    fit.close()

    assert fit.facts("loss") == [TRUE_LOSS] * STEPS
    if make is not watched_elsewhere:
        assert None not in fit.facts("data_stall_ns")


def test_what_fills_the_device_is_in_use_from_that_step_on(device: torch.device) -> None:
    """Planted 64 MiB come back as what the device holds more, without an error."""
    fit, planted = Fit(device), 64 << 20
    kept = []
    for place, batch in enumerate(fit.batches()):
        if place == STEPS // 2:
            kept.append(torch.empty(planted, dtype=torch.uint8, device=device))
        fit.step(batch, ms=12.0)  # it is read every ten milliseconds at most
    fit.close()

    used = [each for each in fit.facts("device_used_bytes") if each is not None]
    assert used[-1] - used[0] == planted


def test_a_device_that_is_not_the_current_one_keeps_its_marks(device: torch.device) -> None:
    """The training thread and autograd's use events of one kind, on the streams they work on."""
    fit = Fit(torch.device(NAME, 1))
    for batch in fit.batches():
        fit.step(batch)
    fit.close()

    assert current_device() == 0
    assert None not in fit.facts("data_stall_ns")
    assert fit.facts("loss") == [TRUE_LOSS] * STEPS


def test_a_stuck_device_does_not_keep_the_users_error_back(device: torch.device) -> None:
    """With 30 s queued it comes after two, and the steps on the host are written."""
    fit = Fit(device)
    for number, batch in enumerate(fit.batches()):
        fit.step(batch, ms=0.1)
        if number == 20:
            torch.accelerator.synchronize()
            fit.monitor.monitor.flush()
        if number == 30:
            work(30_000, device)
            break
    raised_at = time.perf_counter()
    fit.monitor.__exit__(ValueError, ValueError("theirs"), None)
    waited_s = time.perf_counter() - raised_at

    assert 1.5 < waited_s < 15.0
    assert len(fit.sink.records) == 31
    assert fit.facts("loss")[:20] == [TRUE_LOSS] * 20
    totals = [entry for entry in fit.sink.all_entries if isinstance(entry, Totals)]
    assert "still at work" in totals[-1].reasons["loss"]
    assert "still at work" in str(fit.monitor.monitor.guard.faults)


@pytest.mark.parametrize("closed_inside", [True, False])
def test_a_loop_in_inference_mode_has_its_tokens(device: torch.device, closed_inside: bool) -> None:  # noqa: FBT001 a parameter
    """Wherever it is closed: rows that are written in the mode are zeroed outside of it."""
    sink = MemorySink()
    monitor = LoopMonitor(
        None, report=False, machine=False, sinks=[sink], log_every_n_steps=10, kind="inference"
    )
    model = nn.Linear(16, 1).to(device)
    monitor.watch(model)
    mask = torch.ones(4, 16, dtype=torch.int64, device=device)
    with torch.inference_mode():
        for batch in monitor.batches([{"attention_mask": mask}] * 30):
            model(batch["attention_mask"].float())
            monitor.end_step()
        if closed_inside:
            monitor.close()
    monitor.close()

    assert monitor.monitor.guard.faults == {}
    assert [record.facts["tokens_effective"] for record in sink.records] == [64] * 30


@pytest.mark.parametrize("fused", [False, True])
def test_planted_overflows_are_counted(device: torch.device, fused: bool) -> None:  # noqa: FBT001 a parameter
    """Three of sixty, under a device that nobody has heard of, fused update or not."""
    fit = Fit(device, scaler=torch.amp.GradScaler(NAME), fused=fused)
    for number, batch in enumerate(fit.batches()):
        fit.step(batch, ms=0.1, poison=number in (10, 30, 50))
    fit.close()

    assert [at for at, count in enumerate(fit.facts("overflows")) if count] == [10, 30, 50]
    assert sum(fit.facts("attempts")) == STEPS  # type: ignore[arg-type]


def test_a_step_in_a_side_stream_keeps_its_marks(device: torch.device) -> None:
    """The batch is fetched outside of it, and events of two streams come in any order."""
    fit = Fit(device)
    side = torch.Stream(device=device)
    main = torch.accelerator.current_stream(device)
    for batch in fit.batches():
        torch.accelerator.set_stream(side)
        fit.step(batch.pin_memory(), ms=30.0)
        torch.accelerator.set_stream(main)
    fit.close()

    assert fit.facts("loss") == [TRUE_LOSS] * STEPS
    assert None not in fit.facts("lead_backward")
    assert None not in fit.facts("h2d_device_ns")


def test_the_device_that_is_measured_is_waited_for(device: torch.device) -> None:
    """Not the current one: work of 20 ms on the second is not done in none."""
    second = torch.device(NAME, 1)
    held = torch.ones(1, device=second)

    assert fastest_s(lambda: work(20.0, second), second, 0.05) >= 0.02
    assert seconds_of(lambda: work(20.0, held.device)) >= 0.02


def test_the_audit_is_of_the_device_that_the_model_is_on(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its name, and the chip that is measured for it is that one, whichever is current."""
    asked: list[torch.device] = []
    backend = torch.get_device_module(device)
    monkeypatch.setattr(backend, "get_device_name", lambda at: f"board {at.index}", raising=False)
    monkeypatch.setenv(chip_cache.CACHE, str(tmp_path))
    chip = Chip(
        name="board 1",
        flops_per_s={},
        memory_bytes_per_s=1.0,
        link_bytes_per_s=None,
        source="none",
    )
    monkeypatch.setattr(chip_cache, "probe", lambda at, **_: asked.append(at) or chip)
    second = torch.device(NAME, 1)
    with Audit(model := nn.Linear(4, 1).to(second)) as audit:
        model(torch.ones(2, 4, device=second)).sum().backward()
    step = audit.result()
    chip_cache.chip_for(step, measure=True)

    assert (step.device, step.device_index, step.device_name) == (NAME, 1, "board 1")
    assert asked == [second]
    assert current_device() == 0


def test_a_block_of_a_trial_ends_when_the_device_has_done_it(device: torch.device) -> None:
    """What is still queued there is part of it, and not of the next one."""
    blocks: list[list[Ran]] = []

    def plan() -> Iterator[int]:
        while True:
            blocks.append((yield 2))

    conductor = Mock(untouched=True, reads_loss=False, plan=plan)
    recorder, probe = Recorder(monotonic_ns), TrialsProbe(conductor, Mock(device=device))
    probe.attach(recorder)
    recorder.on_close = probe.close
    probe.begin()
    for _ in range(7):
        recorder.boundary()
        recorder.draft.complete = True
        work(30.0, device)

    assert len(blocks) == 3
    for block in blocks:
        assert sum(ran.ns for ran in block) >= 2 * 30e6


def test_a_device_without_a_number_is_the_current_one(device: torch.device) -> None:
    """Values on it have the number, and go to the same memory: none is taken in later steps."""
    fit = Fit(device, scaler=torch.amp.GradScaler(NAME), watched_on=NAME)
    loss, taken = torch.full((), TRUE_LOSS, device=device), []
    for _ in fit.batches(600):
        fit.monitor.end_step(loss)
        torch.accelerator.synchronize()  # one that falls behind needs more buffers
        taken.append(memory_stats()["allocation.all.allocated"])
    fit.close()

    assert fit.monitor._objects.device == torch.device(NAME, 0)
    assert fit.facts("loss") == [TRUE_LOSS] * 600
    assert taken[-1] - taken[300] <= 3


PRESSURE: dict[str, tuple[str, int, int]] = {
    "the cache is in the way": ("34 -0 36 -1 38", 2, 0),
    "more than there is": ("80 80", 2, 2),
    "enough is free, in pieces": ("9 9 9 9 9 9 -0 -2 -4 18", 1, 1),
}
"""MiB that are taken, or given back by their number, a step each; retries and failures."""


@pytest.mark.parametrize("case", PRESSURE)
def test_what_a_full_allocator_does_is_counted(device: torch.device, case: str) -> None:
    """And what it holds and nobody uses stays to be seen."""
    script, retries, failures = PRESSURE[case]
    gc.collect()  # what other tests have left is not this one's
    empty_cache()
    memory_limit(memory_reserved() + (64 << 20))
    fit, held, numbers = Fit(device), dict[int, torch.Tensor](), count()
    for word, batch in zip(script.split(), fit.batches(), strict=False):
        with suppress(torch.OutOfMemoryError):
            if word.startswith("-"):
                del held[int(word[1:])]
            else:
                size = int(word) << 20
                held[next(numbers)] = torch.empty(size, dtype=torch.uint8, device=device)
        fit.step(batch)
    fit.close()

    counted = [
        sum(value or 0 for value in fit.facts(name)) for name in ("alloc_retries", "alloc_failures")
    ]
    assert counted == [retries, failures]
    stats, last = memory_stats(), fit.sink.records[-1].facts
    assert last["reserved_bytes"] == stats["reserved_bytes.all.current"]
    if "pieces" in case:
        assert last["reserved_bytes"] - last["allocated_bytes"] > 27 << 20  # type: ignore[operator]


def test_a_graph_can_be_captured_in_the_loop(device: torch.device) -> None:
    """Nothing of ours is asked meanwhile: a query would end the capture."""
    fit = Fit(device)
    graph, static = Graph(), torch.ones(4, 16, device=device)
    for number, batch in enumerate(fit.batches()):
        if number == 20:
            with graph.capture(), fit.monitor.phase(Phase.FORWARD.label):
                fit.model(static)
        elif number > 20:
            graph.replay(device)
        fit.step(batch)
    fit.close()

    assert fit.facts("loss") == [TRUE_LOSS] * STEPS


def test_nothing_of_ours_waits_for_the_device(device: torch.device) -> None:
    """A wait of ours would raise; and with us there are no more of them than without."""
    fit = Fit(device)
    with no_synchronisation():
        for batch in fit.batches():
            fit.step(batch.pin_memory())
    with counted_synchronisations() as counts:
        fit.close()

    assert sum(counts.values()) == 0
    assert fit.facts("loss") == [TRUE_LOSS] * STEPS


def test_the_lead_grows_while_the_device_is_behind(device: torch.device) -> None:
    """By the marks of a step, step by step, once it is behind all that came before long work."""
    fit = Fit(device)
    for number, batch in enumerate(fit.batches(8)):
        fit.step(batch, ms=0.0 if number else 60_000.0)
    unplant()
    fit.close()

    leads = [lead or 0 for lead in fit.facts("lead_backward")]
    assert len({after - before for before, after in pairwise(leads[2:])}) == 1
    assert leads[-1] > 7 * 4


def test_a_mark_of_an_idle_stream_is_passed_whatever_another_stream_does(
    device: torch.device,
) -> None:
    """A step may be queued on a side stream and its fetch on the current one."""
    clock = DeviceClock(accelerator_of(device))
    with stream(torch.Stream(device=device)):
        work(60_000.0)
        clock.mark()
    clock.mark()
    torch.accelerator.current_stream(device).synchronize()
    assert clock.lead() == 1


def test_a_loss_on_its_way_to_the_host_is_not_read_before_it_is_there(
    device: torch.device,
) -> None:
    """It lies on the host when it is handed over, and holds something else."""
    fit = Fit(device)
    mirrors = torch.zeros(STEPS).pin_memory()
    for number, _ in enumerate(fit.batches()):
        work(5.0)
        mirrors[number].copy_(torch.full((), TRUE_LOSS, device=device), non_blocking=True)
        fit.monitor.end_step(mirrors[number])
    fit.close()

    assert fit.facts("loss") == [TRUE_LOSS] * STEPS


def test_a_value_cannot_be_read_before_its_own_event(device: torch.device) -> None:
    """Whichever stream is current as the group ends, and whatever else has been reached."""
    ring = Ring(torch.float32)
    with stream(torch.Stream(device=device)):
        work(60_000.0)
        ring.row(0, device).fill_(TRUE_LOSS)
    (copied,) = ring.seal()
    torch.accelerator.current_stream(device).synchronize()

    assert not copied.query()
    with pytest.raises(RuntimeError, match="before the device had written"):
        ring.resolve()
    unplant()
    assert copied.query()


def test_rows_of_two_streams_come_in_the_order_they_were_written(device: torch.device) -> None:
    """Each stream has a buffer: the loss of a step is that of its last micro-batch, in either."""
    ring = Ring(torch.float32)
    main, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    for step, queues in enumerate([(main, side), (side, main)]):
        for number, queue in enumerate(queues):
            with stream(queue):
                ring.row(step, device).fill_(number)
    ring.seal()
    torch.accelerator.synchronize()
    ring.resolve()

    assert [ring.take(step) for step in range(2)] == [[[0], [1]]] * 2


def test_a_step_that_was_captured_in_part_has_no_sum(device: torch.device) -> None:
    """A row that a capture would write again at each replay is not written, so part is missing."""
    ring, graph = Ring(torch.int64), Graph()
    row = ring.row(0, device)
    assert row is not None
    with graph.capture():
        assert ring.row(0, device) is None
    copies = ring.seal()
    torch.accelerator.synchronize()

    assert all(event.query() for event in copies)
    ring.resolve()
    assert ring.take(0) == []
