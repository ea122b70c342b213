"""What the phases of a plain loop tell the device: marks around copies, at ends of passes."""

from support.live import MS, DeviceFit

from trainperf.core.phases import Phase
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import ProbeSet


def on_device() -> tuple[DeviceFit, PhaseContexts]:
    """A fit on a simulated device, and the brackets of its loop."""
    fit = DeviceFit()
    chosen = ProbeSet(marks=fit.marks)
    return fit, PhaseContexts(fit.monitor.recorder, fit.monitor.guard, chosen)


def marked(fit: DeviceFit) -> list[Mark]:
    """Marks in the open step."""
    draft = fit.monitor.recorder.draft
    return [Mark(mark) for mark, _ in draft.marks]


def test_phases_put_their_marks_into_the_queue() -> None:
    """Around the copy, and at the ends of forward and backward."""
    fit, brackets = on_device()
    fit.monitor.recorder.boundary()
    for name in ("h2d", "forward", "backward", "optimizer", "callbacks"):
        with brackets[name]:
            pass

    assert marked(fit) == [
        Mark.COPY_BEGINS,
        Mark.COPY_ENDS,
        Mark.FORWARD_ENDS,
        Mark.BACKWARD_ENDS,
    ]


def test_the_copy_is_measured_on_the_device() -> None:
    """The host went on after a tenth of it."""
    fit, brackets = on_device()
    for _ in range(3):
        fit.fetch()
        with brackets["h2d"]:
            fit.device.work(5)
            fit.clock.advance(ms=0.5)
        fit.end_step()
    records = fit.finish()

    assert fit.facts("h2d_device_ns") == [5 * MS] * 3
    assert {record.host_ns[Phase.H2D] for record in records} == {MS // 2}


def test_a_broken_device_leaves_the_phases_balanced() -> None:
    """The marks are switched off; host times stay right."""
    fit, brackets = on_device()
    fit.device.broken = True
    fit.monitor.recorder.boundary()
    with brackets["optimizer"]:
        for name in ("h2d", "forward", "backward"):
            with brackets[name]:
                fit.clock.advance(ms=1)
        fit.clock.advance(ms=4)

    spent = [fit.monitor.recorder._spent[slot] // MS for slot in range(8)]
    assert spent == [0, 1, 1, 1, 4, 0, 0, 0]
    assert list(fit.monitor.guard.faults) == ["device marks"]
