"""Rules about Python code in the step, on a planted audit of a CPU step."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.audits import USE
from support.light import make_audit
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.host.base import host_lines
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.launch_bound import named_fraction
from trainperf.analysis.rules.host.logging import logging
from trainperf.analysis.rules.host.loop import loop
from trainperf.analysis.rules.host.metrics_every_batch import metrics_every_batch
from trainperf.core.artifacts.audit import OperatorUse, Part
from trainperf.core.artifacts.folder import Documents
from trainperf.core.steps.records import Scalar
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.results import RankTrace, SyncSite, TraceStep, TraceTotals


def use(  # noqa: PLR0913 one operator has as many facts
    name: str,
    line: str,
    host_ms: float,
    *,
    before_ms: float = 0.0,
    calls: int = 1,
    part: Part = "forward",
    logs: bool = False,
    flops: int = 0,
) -> OperatorUse:
    """An operator called from a line."""
    return msgspec.structs.replace(
        USE,
        name=f"aten.{name}.default",
        part=part,
        module=None,
        line=line,
        calls=calls,
        flops=flops,
        matmul_flops=flops,
        host_s=host_ms / 1e3,
        before_s=before_ms / 1e3,
        logs=logs,
    )


MODEL = (
    use("addmm", "net.py:10", 20, flops=10**6),
    use("relu", "net.py:11", 0, before_ms=1e-9),
    use("relu_backward", "net.py:11", 0, part="backward"),
    use("mm", "net.py:10", 40, part="backward", flops=10**6),
)
"""Twenty milliseconds forward, forty backward."""


def evidence(
    path: Path,
    *uses: OperatorUse,
    device: str = "cpu",
    config: dict[str, Scalar] | None = None,
    **phases_ms: float,
) -> Evidence:
    """Two hundred steps, by default as long as the operators and what passes before them."""
    spent = {"forward": 0.0, "backward": 0.0}
    for one in uses:
        spent[one.part] += 1e3 * (one.host_s + one.before_s)
    info = make_info(device=device, config=config)
    steps = make_steps(200, **{**spent, "other": 1, **phases_ms})
    summary = summary_of(path, [RankSpec(steps=steps, info=info)])
    audit = make_audit(*uses, device=device, step=20)
    return Evidence(summary=summary, documents=Documents(audit=audit))


LOOP = (
    use("max", "train.py:20", 5, before_ms=5, calls=100),
    use("_local_scalar_dense", "train.py:21", 1, before_ms=9, calls=100),
    use("add", "train.py:22", 10, before_ms=10, calls=60),
)
"""Forty milliseconds of a Python loop over a hundred values."""


def test_shares_are_of_the_steady_step_python_included(tmp_path: Path) -> None:
    """Of 100 ms forward and backward take 60, a line of theirs 20 and what passes before it 20."""
    line = use("exp", "train.py:5", 20, before_ms=20)

    known = host_lines(evidence(tmp_path, *MODEL, line, other=0))

    assert known is not None
    assert known.share([line]) == pytest.approx(0.4)
    assert known.before([line]) == pytest.approx(0.2)


def test_a_phase_that_is_shorter_without_the_audit_scales_its_lines(tmp_path: Path) -> None:
    """Under the audit forward took 60 ms, in the steady steps 30."""
    line = use("exp", "train.py:5", 40)

    known = host_lines(evidence(tmp_path, *MODEL, line, forward=30, other=0))

    assert known is not None
    assert known.share([line]) == pytest.approx(20 / 70)


def test_a_loop_over_values_is_named_with_all_that_runs_in_it(tmp_path: Path) -> None:
    """40 of 101 ms, at the line that reads."""
    finding = hidden_syncs(evidence(tmp_path, *MODEL, *LOOP))

    assert finding is not None
    assert finding.where == "train.py:21"
    assert finding.fraction == pytest.approx(40 / 101)
    assert finding.evidence[0].startswith("100 values read one by one per step")


def test_a_single_value_costs_nothing_on_a_cpu(tmp_path: Path) -> None:
    """There is no device to wait for."""
    one = use("_local_scalar_dense", "train.py:21", 30)

    assert hidden_syncs(evidence(tmp_path, *MODEL, one)) is None


def test_a_loop_elsewhere_is_not_the_reads_loop(tmp_path: Path) -> None:
    """Another file, and the same file far away."""
    others = (use("add", "other.py:22", 20, calls=100), use("add", "train.py:90", 20, calls=100))
    finding = hidden_syncs(evidence(tmp_path, *MODEL, *LOOP, *others))

    assert finding is not None
    assert finding.fraction == pytest.approx(40 / 141)


def test_on_a_device_each_read_is_named_and_costs_what_only_a_trace_can_say(
    tmp_path: Path,
) -> None:
    """No trace, no bound."""
    one = use("_local_scalar_dense", "train.py:21", 0.1)

    finding = hidden_syncs(evidence(tmp_path, *MODEL, one, device="cuda"))

    assert finding is not None
    assert (finding.where, finding.gain_upper_bound) == ("train.py:21", None)


def test_owners_beside_the_user_are_known_by_the_settings(tmp_path: Path) -> None:
    """Progress bar, monitor and scaler, each in a line."""
    config: dict[str, Scalar] = {
        "prog_bar_metrics": "train_loss",
        "callbacks": "ThroughputMonitor, TrainPerf",
        "grad_scaler": "GradScaler",
        "optimizer_fused": False,
    }

    finding = hidden_syncs(evidence(tmp_path, *MODEL, device="cuda", config=config))

    assert finding is not None
    assert [line.split(" ")[0] for line in finding.evidence] == [
        "prog_bar=True",
        "ThroughputMonitor",
        "GradScaler",
    ]
    assert finding.action.startswith("self.log(…, prog_bar=False)")


def test_a_fused_optimizer_skips_on_the_device(tmp_path: Path) -> None:
    """Nothing is read then."""
    config: dict[str, Scalar] = {"grad_scaler": "GradScaler", "optimizer_fused": True}

    assert hidden_syncs(evidence(tmp_path, *MODEL, device="cuda", config=config)) is None


def traced(made: Evidence, *, idle: float, sync_s: float) -> Evidence:
    """The same with a trace of two steps of 100 ms."""
    step = TraceStep(step=0, step_s=0.1, sync_s=sync_s)
    site = SyncSite(call="aten::item", count=4, total_s=2 * sync_s, stack=("train.py(21): step",))
    rank = RankTrace(
        file="rank0",
        steps=(step, step),
        totals=TraceTotals(steps=2, step_s=0.1, idle_sync_fraction=idle),
        sync_sites=(site,),
    )
    facts = CaptureFacts(first_step=30, first_index=30, complete_steps=2)
    return replace(made, captures=(CaptureReport(capture=facts, ranks=(rank,)),))


@pytest.mark.parametrize(("idle", "sync_s", "lost"), [(0.3, 0.02, 0.2), (0.1, 0.05, 0.1)])
def test_waiting_gains_no_more_than_the_smaller_slack(
    tmp_path: Path, idle: float, sync_s: float, lost: float
) -> None:
    """Of the host's waiting and the device's idling: without it the other one remains."""
    one = use("_local_scalar_dense", "train.py:21", 0.1)
    made = evidence(tmp_path, *MODEL, one, device="cuda")

    finding = hidden_syncs(traced(made, idle=idle, sync_s=sync_s))

    assert finding is not None
    assert finding.fraction == pytest.approx(lost)
    assert finding.gain_upper_bound == pytest.approx(1 / (1 - lost))


def test_a_trace_names_what_no_audit_has_seen(tmp_path: Path) -> None:
    """Its innermost frame is the place."""
    made = evidence(tmp_path, *MODEL, device="cuda")

    finding = hidden_syncs(traced(made, idle=0.3, sync_s=0.02))

    assert finding is not None
    assert any("train.py(21)" in line for line in finding.evidence)
    assert hidden_syncs(traced(made, idle=0.01, sync_s=0.02)) is None


def test_on_several_ranks_the_frameworks_own_wait_is_said_to_be_its_own(tmp_path: Path) -> None:
    """Lightning's flag, beside what can be changed."""
    one = use("_local_scalar_dense", "train.py:21", 0.1)
    made = evidence(tmp_path, *MODEL, one, device="cuda")
    run = msgspec.structs.replace(made.summary.run, world_size=2)

    finding = hidden_syncs(replace(made, summary=msgspec.structs.replace(made.summary, run=run)))

    assert finding is not None
    assert "Lightning reads a broadcast flag before every fetch: not yours" in finding.evidence


METRIC = (
    use("sort", "train.py:31", 15, before_ms=1, calls=4),
    use("sum", "train.py:32", 4),
)
"""Twenty milliseconds of counting, without a gradient."""


def test_a_metric_is_what_counts_after_the_model_without_a_gradient(tmp_path: Path) -> None:
    """20 of 81 ms."""
    finding = metrics_every_batch(evidence(tmp_path, *MODEL, *METRIC))

    assert finding is not None
    assert finding.where == "train.py:31"
    assert finding.fraction == pytest.approx(20 / 81)


def test_what_comes_before_the_model_is_no_metric(tmp_path: Path) -> None:
    """Augmentation sorts and compares too."""
    assert metrics_every_batch(evidence(tmp_path, *METRIC, *MODEL)) is None


def test_what_a_gradient_flows_through_is_no_metric(tmp_path: Path) -> None:
    """A loss may sort."""
    backward = use("gather", "train.py:31", 5, part="backward")
    far = use("sum", "train.py:32", 4)

    assert metrics_every_batch(evidence(tmp_path, *MODEL, METRIC[0], far, backward)) is None


def test_a_teacher_is_no_metric(tmp_path: Path) -> None:
    """Products without gradients are a model's, whatever decides beside them."""
    teacher = use("addmm", "train.py:31", 20, flops=10**6)

    assert metrics_every_batch(evidence(tmp_path, *MODEL, teacher, METRIC[0])) is None


PRINT = use("log_softmax", "train.py:41", 2, before_ms=30)
"""Thirty milliseconds in which no operator runs."""


def test_python_in_forward_is_named_at_the_operator_after_it(tmp_path: Path) -> None:
    """30 of 93 ms."""
    finding = host_code(evidence(tmp_path, *MODEL, PRINT))

    assert finding is not None
    assert finding.where == "train.py:41"
    assert finding.fraction == pytest.approx(30 / 93)


def test_an_interruption_of_the_audited_step_is_not_the_users_code(tmp_path: Path) -> None:
    """The steady steps have no such time: forward takes what its operators take."""
    assert host_code(evidence(tmp_path, *MODEL, PRINT, forward=23)) is None


def test_in_a_noisy_run_one_interruption_proves_nothing(tmp_path: Path) -> None:
    """The steps differ by a third of themselves, and a fifth is not enough to tell."""
    less = use("log_softmax", "train.py:41", 2, before_ms=20)
    made = evidence(tmp_path, *MODEL, less)
    readings = {**made.summary.readings}
    readings["step_iqr_s"] = msgspec.structs.replace(readings["step_iqr_s"], value=0.03)
    noisy = replace(made, summary=msgspec.structs.replace(made.summary, readings=readings))

    assert host_code(made) is not None
    assert host_code(noisy) is None


def test_python_around_many_operators_is_launching(tmp_path: Path) -> None:
    """Half a millisecond before each of a hundred."""
    many = use("add", "net.py:12", 5, before_ms=50, calls=100)

    assert host_code(evidence(tmp_path, *MODEL, many)) is None


LOGGED = use("clone", "train.py:50", 2, before_ms=28, calls=40, logs=True)
"""Thirty milliseconds of `self.log`."""


def test_logging_is_what_it_costs_in_the_step_and_after_it(tmp_path: Path) -> None:
    """30 ms in forward and 9 in the loop, of 100."""
    config: dict[str, Scalar] = {"log_every_n_steps": 1}
    made = evidence(tmp_path, *MODEL, LOGGED, config=config, loop=9)

    finding = logging(made)

    assert finding is not None
    assert finding.fraction == pytest.approx(39 / 100)
    assert finding.where == "train.py:50"
    assert finding.evidence == (
        "30.0 ms per step in the 40 operators that it calls",
        "9.00 ms after the last hook, log_every_n_steps=1",
    )


def test_a_loop_that_logs_is_said_once(tmp_path: Path) -> None:
    """By the rule that knows it is logging."""
    config: dict[str, Scalar] = {"log_every_n_steps": 1}
    made = evidence(tmp_path, *MODEL, LOGGED, config=config, loop=30)

    assert logging(made) is not None
    assert loop(made) is None


def test_a_value_logged_now_and_then_is_no_finding(tmp_path: Path) -> None:
    """One millisecond of sixty."""
    one = use("clone", "train.py:50", 0.5, before_ms=0.5, logs=True)

    assert logging(evidence(tmp_path, *MODEL, one)) is None


def test_what_is_named_by_line_is_summed_for_other_rules(tmp_path: Path) -> None:
    """A metric and logging together, and neither of them twice."""
    made = evidence(tmp_path, *MODEL, *METRIC, LOGGED, other=0)

    assert named_fraction(made) == pytest.approx(50 / 110)


@pytest.mark.parametrize("rule", [metrics_every_batch, host_code, logging])
def test_without_the_host_times_of_a_cpu_nothing_is_said(tmp_path: Path, rule: object) -> None:
    """On another device the audit has seen launches only."""
    made = evidence(tmp_path, *MODEL, *METRIC, PRINT, LOGGED, device="cuda")

    assert rule(made) is None  # type: ignore[operator]
