"""An inference loop: what it records, what is found in it, and that nothing is where nothing is."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from support.loops import quiet, stepped, written
from torch import Tensor, nn
from torch.nn import functional

from trainperf.analysis.doctor import Case, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError
from trainperf.core.loop_kind import NO_TRAINING
from trainperf.loop import LoopMonitor
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.page import load_page_data
from trainperf.reports.run.page import render as page
from trainperf.reports.run.text import render
from trainperf.testing import FakeClock
from trainperf.trials import Trial


STEPS, BATCH = 120, 8
WAIT_NS, ANSWER_NS, REST_NS = 2_000_000, 10_000_000, 1_000_000


class Plain(nn.Module):
    """Two layers with normalisation and dropout between them; the answer takes ten milliseconds."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.first, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
        self.drop, self.last = nn.Dropout(0.1), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """The answer."""
        self.clock.advance(ns=ANSWER_NS)
        hidden: Tensor = self.drop(self.norm(self.first(x)).relu())
        return self.last(self.between(hidden))

    def between(self, hidden: Tensor) -> Tensor:
        """Nothing, where nothing is planted."""
        return hidden


class Dropping(nn.Module):
    """A part that drops whatever the mode is."""

    def forward(self, x: Tensor) -> Tensor:
        """As `F.dropout` is called most often."""
        return functional.dropout(x, 0.1)


class LeftOn(Plain):
    """The same with such a part."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.part = Dropping()

    def between(self, hidden: Tensor) -> Tensor:
        """Drop."""
        return self.part(hidden)


def answered(
    path: Path,
    model: type[Plain] = Plain,
    *,
    train: bool = False,
    around: AbstractContextManager[object] | None = None,
    audit: bool = False,
) -> LoopMonitor:
    """A finished loop of equal requests on a planted clock."""
    clock = FakeClock()
    net = model(clock).train(train)

    def requests() -> Iterator[Tensor]:
        for _ in range(STEPS):
            clock.advance(ns=WAIT_NS)
            yield torch.ones(BATCH, 16)

    audited = 40 if audit else None
    monitor = LoopMonitor(path, kind="inference", report=False, clock=clock, audit_at=audited)
    monitor.watch(net)
    with monitor, around or torch.inference_mode():
        for batch in monitor.batches(requests()):
            with monitor.phase("forward"):
                net(batch)
            monitor.end_step()
            clock.advance(ns=REST_NS)
    return monitor


def summary_of(monitor: LoopMonitor) -> Summary:
    """What is said of it."""
    return examine(Run.open(monitor.run)).summary


def ids(monitor: LoopMonitor) -> set[str]:
    """Findings."""
    return {finding.id for finding in summary_of(monitor).findings}


def test_latency_is_from_the_batch_having_come_to_the_end_of_its_step(tmp_path: Path) -> None:
    """Neither the wait for it nor what follows the step is in it; the step has all three."""
    summary = summary_of(answered(tmp_path))

    assert summary.run.config["loop"] == "inference"
    for name in ("latency_s", "latency_p95_s", "latency_p99_s"):
        assert summary.value(name) == pytest.approx(ANSWER_NS / 1e9, rel=2e-3), name
    whole_s = (WAIT_NS + ANSWER_NS + REST_NS) / 1e9
    assert summary.value("step_s") == pytest.approx(whole_s, rel=2e-3)
    assert summary.value("samples_per_s") == pytest.approx(BATCH / whole_s, rel=2e-3)


def test_what_only_training_has_is_not_applicable(tmp_path: Path) -> None:
    """With a reason; a training loop says the same of the latency."""
    readings = summary_of(answered(tmp_path)).readings
    for name in (
        "loss",
        "overflow_rate",
        "loss_scale",
        "phase_backward_s",
        "optimizer_steps_per_s",
    ):
        assert (readings[name].value, readings[name].reason) == (None, NO_TRAINING), name

    monitor = stepped(quiet(tmp_path / "trains"), [torch.ones(1)] * 3)
    assert "trains" in (summary_of(monitor).readings["latency_s"].reason or "")


WORDS = ("loss", "optimizer", "overflow", "backward", "gradient", "training", "update")


def test_no_report_of_an_inference_loop_speaks_of_training(tmp_path: Path) -> None:
    """Terminal, its tables, markdown, and the doctor."""
    monitor = answered(tmp_path, audit=True)
    evidence = examine(Run.open(monitor.run))
    summary = evidence.summary
    parts = run_document(summary)
    shown = [render(summary), as_markdown(parts), as_text(parts)]
    checks = examined(Case(facts=evidence)).checks
    shown += [" ".join((check.title, *check.evidence, check.action)) for check in checks]
    found = {word for words in shown for word in WORDS if word in words.lower()}

    assert found == set()
    assert " · inference · " in render(summary).splitlines()[0]
    assert "615 requests/s · 76.9 batches/s" in shown[0]
    assert "latency p50 10.0 ms · p95 10.0 ms · p99 10.0 ms" in shown[0]
    assert "inference" in page(load_page_data(Run.open(monitor.run)))


def test_a_healthy_loop_has_no_finding_about_its_answers(tmp_path: Path) -> None:
    """In eval mode under inference_mode; and under no_grad."""
    wrong = {"train_mode", "dropout_left_on", "gradients_on", "data_wait", "unnamed_time"}
    healthy = answered(tmp_path)
    assert not wrong & ids(healthy)
    assert not wrong & ids(answered(tmp_path / "no_grad", around=torch.no_grad()))

    checks = examined(Case(facts=examine(Run.open(healthy.run)))).checks
    (answers,) = [check for check in checks if check.id == "answers"]
    assert answers.status == "pass"
    assert any("inference_mode" in fact for fact in answers.evidence)


def test_train_mode_is_found_with_what_it_changes(tmp_path: Path) -> None:
    """Urgent: it spoils answers; dropout says that it drew, and no other finding repeats it."""
    monitor = answered(tmp_path, train=True)
    summary = summary_of(monitor)
    finding = next(each for each in summary.findings if each.id == "train_mode")

    assert summary.findings[0] is finding
    assert finding.urgent
    assert finding.evidence[0] == "in train mode: 1 BatchNorm1d, 1 Dropout"
    assert any("random" in fact for fact in finding.evidence)
    assert "dropout_left_on" not in ids(monitor)


def test_dropout_left_on_is_found_with_its_place(tmp_path: Path) -> None:
    """eval() does not reach it."""
    summary = summary_of(answered(tmp_path, LeftOn, audit=True))
    finding = next(each for each in summary.findings if each.id == "dropout_left_on")

    assert "part (Dropping)" in finding.title
    assert "test_inference.py:" in finding.where
    assert "train_mode" not in {each.id for each in summary.findings}


def test_gradients_left_on_are_found_with_what_they_keep(tmp_path: Path) -> None:
    """Counted on the graph itself: the operators of forward, and their inputs but no weight."""
    monitor = answered(tmp_path, around=nullcontext())
    config = written(monitor).totals.config
    finding = next(each for each in summary_of(monitor).findings if each.id == "gradients_on")

    # addmm, batch norm, relu, addmm; t() of both weights
    assert config["answer_graph_nodes"] == 6
    floats = BATCH * 16 + 3 * BATCH * 16  # the request; what norm, relu and the last layer keep
    kept = config["answer_graph_bytes"]
    assert BATCH * 16 * 4 <= kept <= 2 * floats * 4
    assert "6 nodes per batch" in finding.evidence[0]
    assert finding.gain_upper_bound is None


def looped(
    path: Path,
    models: nn.Module | list[nn.Module],
    step: Callable[[Tensor], object],
    around: AbstractContextManager[object] | None = None,
) -> LoopMonitor:
    """A finished loop whose steps are *step*."""
    monitor = quiet(path, kind="inference", clock=FakeClock()).watch(models, [])
    with around or torch.inference_mode():
        return stepped(monitor, [torch.ones(BATCH, 16)] * 60, step)


def test_a_request_that_raised_draws_nothing(tmp_path: Path) -> None:
    """What the loop draws before it goes on is not the model's."""
    net = Plain(FakeClock()).eval()
    refused = iter([True])

    def step(batch: Tensor) -> None:
        if next(refused, False):
            with pytest.raises(RuntimeError):
                net(batch[:, :3])
            torch.rand(3)
        net(batch)

    monitor = looped(tmp_path, net, step)

    assert "answers_drawn" not in written(monitor).totals.config
    assert not {"dropout_left_on", "train_mode"} & ids(monitor)
    assert not net._forward_hooks


def test_each_of_several_models_is_looked_at(tmp_path: Path) -> None:
    """One after the other."""
    first, second = Plain(FakeClock()).eval(), Plain(FakeClock()).train()
    monitor = looped(tmp_path, [first, second], lambda batch: (first(batch), second(batch)))

    assert written(monitor).totals.config["train_mode"] == "1 BatchNorm1d, 1 Dropout"


def test_the_mode_is_that_of_the_step_where_forward_is_not_what_is_called(tmp_path: Path) -> None:
    """Another method of the model, or compiled code; and not that of before the first answer."""
    net = Plain(FakeClock()).train()
    monitor = looped(tmp_path / "other", net, net.drop)
    assert "train_mode" in ids(monitor)

    late = Plain(FakeClock()).train()
    late.compile(backend="eager")

    def step(batch: Tensor) -> None:
        late.eval()
        late(batch)

    monitor = looped(tmp_path / "compiled", late, step)
    assert written(monitor).totals.config["train_mode"] == ""


def test_nodes_are_those_of_all_calls_of_a_step(tmp_path: Path) -> None:
    """As an ensemble or a sliding window makes them."""
    net = Plain(FakeClock()).eval()
    monitor = looped(
        tmp_path, net, lambda batch: [net(batch) for _ in range(3)], around=nullcontext()
    )
    finding = next(each for each in summary_of(monitor).findings if each.id == "gradients_on")

    assert written(monitor).totals.config["answer_calls"] == 3
    assert "6 nodes per call of the model, 3 calls per batch" in finding.evidence[0]
    assert not net._forward_hooks


def test_an_inference_loop_is_given_nothing_that_trains(tmp_path: Path) -> None:
    """Neither to watch nor as a phase; and no other kind is known."""
    net = nn.Linear(1, 1)
    monitor = LoopMonitor(None, kind="inference", report=False)
    with pytest.raises(ConfigError, match="nothing is trained"):
        monitor.watch(net, torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match="try no changes"):
        LoopMonitor(None, kind="inference", trials=[Trial("nothing", on=print, off=print)])
    with pytest.raises(ConfigError, match="'backward': no such phase; use one of h2d, forward"):
        monitor.phase("backward")
    with pytest.raises(ConfigError, match="kind='serving': must be one of"):
        LoopMonitor(None, kind="serving", report=False)  # type: ignore[arg-type]
    monitor.close()


def test_looks_become_rare_and_leave_no_hook(tmp_path: Path) -> None:
    """A hook is there for one forward at a time; the model is the user's again at the end."""
    clock = FakeClock()
    net = Plain(clock).eval()
    hooked = 0
    with LoopMonitor(tmp_path, kind="inference", report=False, clock=clock) as monitor:
        monitor.watch(net)
        for batch in monitor.batches([torch.ones(BATCH, 16)] * 600):
            hooked += bool(net._forward_hooks)
            with torch.inference_mode():
                net(batch)
            monitor.end_step()

    assert 2 <= hooked <= 8
    assert written(monitor).totals.config["answers_looked_at"] == hooked
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def test_flops_of_an_answer_are_those_of_forward_alone(tmp_path: Path) -> None:
    """Two per weight and request, under inference_mode too, where torch decomposes nothing."""
    for name, around in (("no_grad", torch.no_grad()), ("inference", torch.inference_mode())):
        monitor = answered(tmp_path / name, around=around, audit=True)
        audit = examine(Run.open(monitor.run)).documents.audit
        products = sum(use.matmul_flops for use in audit.operators)
        assert products == 2 * BATCH * (16 * 16 + 16 * 4), name
        assert {use.part for use in audit.operators} <= {"forward", "other"}, name
