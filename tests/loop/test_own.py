"""A user's own meters, probes and sinks in a plain loop, up to every report."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.loops import quiet, stepped
from support.memory_sink import MemorySink
from support.own import BrokenMeter, BrokenProbe, BrokenSink, ForwardShare, LineProbe, Lines

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.errors import ConfigError
from trainperf.core.stats.reductions import Maximum
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import Row
from trainperf.loop import LoopMonitor
from trainperf.meters.fold import Reading
from trainperf.recording.probes.base import Probe
from trainperf.recording.sinks.base import Sink
from trainperf.reports.run.rows import phase_rows
from trainperf.testing import FakeClock


def trained(path: Path | None, **own: object) -> LoopMonitor:
    """Ten steps of 4 ms, of which 3 in forward; batches of 10, 20, 10, 20, … lines."""
    clock = FakeClock()
    monitor = quiet(path, clock=clock, log_every_n_steps=5, **own)

    def act(_: object) -> None:
        with monitor.phase("forward"):
            clock.advance(ms=3)
        clock.advance(ms=1)

    return stepped(monitor, [{"lines": 10 + 10 * (place % 2)} for place in range(10)], act)


def summary(monitor: LoopMonitor) -> dict[str, dict[str, object]]:
    """The readings in `summary.json`."""
    return json.loads((monitor.run / "summary.json").read_text(encoding="utf-8"))["readings"]


def test_a_meter_on_known_facts_reaches_the_writer_and_the_summary(tmp_path: Path) -> None:
    """With the planted value, to the digit."""
    scalars: dict[str, float] = {}

    class Writer:
        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            scalars[tag] = scalar_value

    monitor = trained(tmp_path, meters=[ForwardShare()], writer=Writer())

    assert scalars["trainperf/forward_fraction"] == 0.75
    assert summary(monitor)["forward_fraction"]["value"] == 0.75


def test_a_probe_feeds_a_new_column_and_a_meter_reads_it(tmp_path: Path) -> None:
    """Mean of 10 and 20; the column is in every step."""
    keeper = MemorySink()
    monitor = trained(tmp_path, meters=[Lines()], probes=[LineProbe()], sinks=[keeper])

    assert keeper.info.columns[-1] == "lines"
    assert [row[-1] for row in keeper.step_rows] == [10.0, 20.0] * 5
    found = summary(monitor)["lines_of_batch"]
    assert (found["value"], found["unit"], found["n"]) == (15.0, "1", 10)
    assert (found["title"], found["better"]) == ("lines per batch", "higher")


SHOWN = {
    "text": ("lines per batch", "lines_of_batch"),
    "html": ('<td class="text">lines_of_batch</td><td>15</td>',),
}
"""Where a format has the reading."""


@pytest.mark.parametrize("format_", SHOWN)
def test_a_report_made_later_without_the_users_code_shows_the_reading(
    format_: str, tmp_path: Path
) -> None:
    """`trainperf report RUN` imports nothing that a run names."""
    monitor = trained(tmp_path, meters=[Lines()], probes=[LineProbe()])
    command = [sys.executable, "-m", "trainperf", "report", str(monitor.run), "--format", format_]

    report = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout

    assert any(shown in report for shown in SHOWN[format_])


def test_a_meter_whose_fact_was_never_there_says_so(tmp_path: Path) -> None:
    """Not measured, with the reason; never 0."""

    class Silent(LineProbe):
        def micro_batch(self, batch: object, loss: object) -> None:
            """Feed nothing."""

    found = summary(trained(tmp_path, meters=[Lines()], probes=[Silent()]))["lines_of_batch"]

    assert found["value"] is None
    assert found["reason"]


@pytest.mark.parametrize(
    ("own", "part"),
    [
        (
            {"meters": [BrokenMeter(), ForwardShare()], "probes": [LineProbe()]},
            "meter broken_meter",
        ),
        ({"meters": [ForwardShare()], "sinks": [BrokenSink()]}, "broken sink"),
        ({"meters": [ForwardShare(), Lines()], "probes": [BrokenProbe()]}, "broken probe"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_fault_switches_off_that_part_only_and_is_reported(
    own: dict[str, object], part: str, tmp_path: Path
) -> None:
    """All ten steps are there, and so are the other readings."""
    keeper = MemorySink()
    monitor = trained(tmp_path, **{**own, "sinks": [*own.get("sinks", []), keeper]})  # type: ignore[misc]

    assert list(monitor.monitor.guard.faults) == [part]
    assert len(keeper.step_rows) == 10
    assert keeper.shown[-1][1]["forward_fraction"].value == 0.75
    found = summary(monitor)
    assert found["forward_fraction"]["value"] == 0.75
    for name in {"broken_meter", "lines_of_batch"} & found.keys():
        assert part in str(found[name]["reason"])
    assert part in (monitor.run / "report.html").read_text(encoding="utf-8")


class Feeds(LineProbe):
    """Feeds whatever it is given."""

    def __init__(self, value: object) -> None:
        self.value = value

    def micro_batch(self, batch: object, loss: object) -> None:
        """Feed it."""
        self.recorder.draft.facts["lines"] = self.value  # type: ignore[assignment]


class Gives(ForwardShare):
    """A meter whose amount is whatever it is given."""

    name = "given"

    def __init__(self, value: object) -> None:
        self.value = value

    def observe(self, block: StepBlock) -> Maximum:  # type: ignore[override]
        """As it is."""
        return Maximum(self.value, np.int64(len(block)))  # type: ignore[arg-type]


class Says(LineProbe):
    """A probe of which one hook returns whatever it is given."""

    def __init__(self, hook: str, value: object) -> None:
        setattr(self, hook, lambda: value)


@pytest.mark.parametrize("number", [np.float64(3), np.float32(3), np.int64(3), 3])
def test_numbers_of_numpy_are_numbers(number: object, tmp_path: Path) -> None:
    """Which is what a sum over a column is; the record file cannot take them as they are."""
    monitor = trained(tmp_path, meters=[Lines(), Gives(number)], probes=[Feeds(number)])

    readings = summary(monitor)
    assert monitor.monitor.guard.faults == {}
    assert (readings["lines_of_batch"]["value"], readings["lines_of_batch"]["n"]) == (3, 10)
    assert (readings["given"]["value"], readings["given"]["n"]) == (3, 10)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_not_measured(number: float, tmp_path: Path) -> None:
    """JSON has none; a line with one could not be read back, and all it says would be lost."""
    readings = summary(trained(tmp_path, meters=[Lines(), Gives(number)], probes=[Feeds(number)]))
    assert readings["lines_of_batch"]["value"] is None
    assert readings["given"]["value"] is None
    assert str(number) in str(readings["given"]["reason"])


@pytest.mark.parametrize(
    ("own", "part"),
    [
        ({"probes": [Feeds("12")]}, "line counter"),
        ({"probes": [Feeds([1])]}, "line counter"),
        ({"probes": [Feeds(torch.tensor(2.0))]}, "line counter"),
        ({"meters": [Gives("12")]}, "meter given"),
        ({"meters": [Gives(torch.tensor(2.0))]}, "meter given"),
        ({"probes": [Says("reasons", "text")]}, "line counter"),
        ({"probes": [Says("notes", "text")]}, "line counter"),
        ({"probes": [Says("config", "text")]}, "line counter"),
        ({"probes": [Says("dropped", "many")]}, "line counter"),
        ({"probes": [Says("seal", 7)]}, "line counter"),
    ],
)
def test_what_is_no_number_or_text_costs_that_part_only(
    own: dict[str, object], part: str, tmp_path: Path
) -> None:
    """The steps are written and read back, and closing the monitor raises nothing."""
    monitor = trained(tmp_path, **own)

    assert list(monitor.monitor.guard.faults) == [part]
    assert summary(monitor)["first_step_s"]["value"] == pytest.approx(0.004, rel=0.01)
    assert part in (monitor.run / "report.html").read_text(encoding="utf-8")


def test_objects_that_a_probe_notes_are_written_as_texts(tmp_path: Path) -> None:
    """And cost nobody the record file."""
    monitor = trained(tmp_path, probes=[Says("config", {"lines_of": Path("a"), "n": np.int64(2)})])

    assert monitor.monitor.guard.faults == {}
    text = (monitor.run / "steps-rank0.jsonl").read_text(encoding="utf-8")
    assert '"lines_of":"a"' in text


def test_a_sink_cannot_change_what_the_meters_see(tmp_path: Path) -> None:
    """It gets a sequence that refuses."""

    class Clears(MemorySink):
        name = "clears"

        def rows(self, rows: Sequence[Row]) -> None:
            rows.clear()  # type: ignore[attr-defined]

    monitor = trained(tmp_path, meters=[ForwardShare()], sinks=[Clears()])

    assert list(monitor.monitor.guard.faults) == ["clears"]
    assert summary(monitor)["forward_fraction"]["n"] == 10


def test_members_may_come_from_a_generator_and_a_sink_from_trainperf(tmp_path: Path) -> None:
    """Checked and used, not checked and gone."""
    sink = MemorySink()
    monitor = trained(tmp_path, meters=(kind() for kind in (ForwardShare,)), sinks=[sink])

    assert len(sink.step_rows) == 10
    assert summary(monitor)["forward_fraction"]["value"] == 0.75


def changed(kind: type[Any], **attributes: object) -> Any:
    """A user's own, with a mistake in its attributes."""
    return type(kind.__name__, (kind,), attributes)()


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"meters": [ForwardShare]}, r"a class; pass an instance: ForwardShare\(\)"),
        ({"meters": [3]}, "not a Meter"),
        ({"meters": ForwardShare()}, "must be a list of Meter objects"),
        ({"meters": [ForwardShare(), ForwardShare()]}, "'forward_fraction' is taken"),
        ({"meters": [changed(ForwardShare, name="step_s")]}, "'step_s' is taken"),
        ({"meters": [changed(ForwardShare, unit="miles")]}, "unit 'miles'.*must be one of"),
        ({"meters": [Lines()]}, "needs 'lines', which no probe feeds"),
        ({"probes": [changed(Probe)]}, "it has no name"),
        ({"probes": [changed(LineProbe, facts=("samples",))]}, "'samples'.*has a probe already"),
        ({"probes": [LineProbe(), LineProbe()]}, "'line counter' is taken"),
        ({"sinks": [print]}, "not a Sink"),
        ({"sinks": [changed(Sink, name="loss")]}, "'loss' is taken"),
        (
            {"sinks": [changed(Sink, name="line counter")], "probes": [LineProbe()]},
            "'line counter' is taken",
        ),
        (
            {"probes": [changed(LineProbe, facts=("forward_ns",))]},
            "'forward_ns'.*has a probe",
        ),
        (
            {"probes": [changed(LineProbe, facts="lines")]},
            "facts='lines'.*a tuple of names",
        ),
        (
            {"meters": [changed(ForwardShare, scope="all")]},
            "scope='all'.*must be Scope.STEADY",
        ),
        ({"meters": [changed(ForwardShare, title=None)]}, "title=None.*must be a text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_work_is_refused_at_construction(own: dict[str, object], sentence: str) -> None:
    """With the value, the rule and the remedy."""
    with pytest.raises(ConfigError, match=sentence):
        quiet(None, **own)


def test_readings_of_ranks_are_combined_as_ours_are() -> None:
    """A quotient of sums stays one; a statistic of a user's own class becomes a mean."""
    from trainperf.core.steps.records import OwnReading
    from trainperf.meters.own import across

    def of(value: float, *state: float, kind: str = "Ratio") -> OwnReading:
        return OwnReading(value=value, unit="1", title="t", n=4, reduction=kind, state=state)

    assert across([of(0.5, 1, 2, 4), of(0.25, 2, 8, 4)]) == Reading(
        value=0.3, unit="1", n=4, per_rank=(0.5, 0.25), title="t"
    )
    assert across([of(1.0, kind=""), of(3.0, kind="")]).value == 2.0
    assert across([of(1.0, 1, 1, 1), None]).per_rank == (1.0, None)


def test_a_phase_has_a_name_of_the_loops_own(tmp_path: Path) -> None:
    """Its share comes back to the digit, nested ones pause it, and `other` is what is left."""
    clock = FakeClock()
    monitor = quiet(tmp_path, clock=clock)

    def act(_: object) -> None:
        with monitor.phase("rollout"):
            clock.advance(ms=3)
            with monitor.phase("search the tree"):
                clock.advance(ms=2)
            with monitor.phase("forward"):
                clock.advance(ms=1)
        clock.advance(ms=4)

    stepped(monitor, [torch.ones(1)] * 60, act)
    found = summarize(Run.open(monitor.run))

    spent_ms = {name: round(spent_s * 1e3, 6) for name, spent_s in found.phases_s().items()}
    assert {name: ms for name, ms in spent_ms.items() if ms} == {
        "forward": 1.0,
        "other": 4.0,
        "rollout": 3.0,
        "search the tree": 2.0,
    }
    shown = {row.label: row.share for row in phase_rows(found)}
    assert (shown["rollout"], shown["search the tree"], shown["other"]) == (
        "30.0 %",
        "20.0 %",
        "40.0 %",
    )


def test_a_phase_of_ones_own_in_a_step_that_was_none_is_the_gaps(tmp_path: Path) -> None:
    """The loop was left before its batch was trained: all of the fit is accounted for."""
    clock = FakeClock()
    monitor = quiet(tmp_path, clock=clock)
    for _ in monitor.batches([torch.ones(1)]):
        with monitor.phase("rollout"):
            clock.advance(ms=3)
        break
    monitor.close()

    found = summarize(Run.open(monitor.run))
    assert sum(found.ledger_s.values()) == pytest.approx(found.run.fit_s)
    assert found.named_phases == {}
    assert found.answers is None


def test_a_phase_of_ones_own_on_another_thread_is_none_of_the_loops(tmp_path: Path) -> None:
    """One that prefetches may run at any moment of the loop's phases."""
    clock = FakeClock()
    monitor = quiet(tmp_path, clock=clock)

    def prefetch() -> None:
        with monitor.phase("prefetch"):
            clock.advance(ms=2)

    def act(_: object) -> None:
        with monitor.phase("forward"):
            thread = threading.Thread(target=prefetch)
            thread.start()
            thread.join()
            clock.advance(ms=1)

    stepped(monitor, [torch.ones(1)] * 60, act)
    found = summarize(Run.open(monitor.run))

    assert found.phases_s()["forward"] == pytest.approx(0.003)
    assert found.named_phases == {}


@pytest.mark.parametrize("name", ["forward", "update"])
def test_a_phase_around_a_whole_epoch_takes_none_of_its_steps(tmp_path: Path, name: str) -> None:
    """It began while the fit rested between two epochs: that is no validation."""
    monitor = quiet(tmp_path, clock=FakeClock())
    for _ in range(2):
        with monitor.phase(name):
            for _ in monitor.batches([torch.ones(1)] * 3):
                monitor.end_step()
    monitor.close()

    assert summarize(Run.open(monitor.run)).run.steps == 6


def test_a_rank_without_phases_of_its_own_tells_its_steps() -> None:
    """The mean over ranks of what another one has is over the steps of both."""
    monitor = stepped(quiet(None, clock=FakeClock()), [torch.ones(1)] * 60)

    assert set(monitor.monitor.totals().own) == {"steps"}


def test_answers_are_numbers_of_python(tmp_path: Path) -> None:
    """A tensor would be waited for; a share that is no number is not counted."""
    monitor = quiet(tmp_path)

    def act(_: object) -> None:
        monitor.answers([1, 2, 6], useless=math.nan)

    stepped(monitor, [torch.ones(1)] * 60, act)
    with pytest.raises(ConfigError, match="tolist"):
        monitor.answers(torch.ones(1))  # type: ignore[arg-type]
    found = summarize(Run.open(monitor.run)).answers

    assert (found.tokens, found.longest, found.useless) == (9, 6, None)
