"""Rules about memory: leaks and who holds them, limits, holes, the allocation that failed."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.audits import evidence_of, product
from support.runs import RankSpec, make_gap, make_info, make_step, make_steps, summary_of

from trainperf.analysis.rules import diagnose
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.memory.alloc_retries import alloc_retries
from trainperf.analysis.rules.memory.fragmentation import fragmentation
from trainperf.analysis.rules.memory.graph_held import graph_held
from trainperf.analysis.rules.memory.leak import leak
from trainperf.analysis.rules.memory.memory_limit import memory_limit
from trainperf.analysis.rules.memory.out_of_memory import out_of_memory
from trainperf.analysis.rules.memory.recompute import recompute
from trainperf.analysis.rules.training.validation_grad import validation_grad
from trainperf.analysis.rules.training.zero_grad import zero_grad
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.folder import Documents
from trainperf.core.artifacts.memory import Holder, MemoryLedger, OutOfMemory
from trainperf.core.phases import Gap
from trainperf.core.steps.records import Scalar


MIB, GIB = 2**20, 2**30
CPU: dict[str, Scalar] = {"device_memory_bytes": 64 * GIB}
GPU: dict[str, Scalar] = {"device_memory_bytes": 80 * GIB}

LEDGER = MemoryLedger(
    device="cuda",
    parameters_bytes=4 * GIB,
    gradients_bytes=4 * GIB,
    optimizer_state_bytes={"exp_avg": 4 * GIB, "exp_avg_sq": 4 * GIB},
    activations_bytes=20 * GIB,
    capacity_bytes=80 * GIB,
)


def growing(
    path: Path,
    per_step: float,
    *,
    steps: int = 400,
    memory: MemoryLedger | None = None,
    step_ms: int = 100,
    noise: float = 0.0,
) -> Evidence:
    """A CPU run of 40 s whose own memory grows by so much a step, give or take the noise."""
    rng = np.random.default_rng(0)
    owned = [round(per_step * index + rng.normal(0, noise)) for index in range(steps)]
    made = [
        make_step(
            index,
            tags=int(index < 12),
            forward=step_ms,
            facts={
                "owned_bytes": 2 * GIB + owned[index],
                "resident_bytes": 3 * GIB + owned[index],
            },
        )
        for index in range(steps)
    ]
    summary = summary_of(path, [RankSpec(steps=made, info=make_info(hardware=CPU))])
    return Evidence(summary=summary, documents=Documents(memory=memory))


def on_a_gpu(
    path: Path, *, peak: int, reserved: int, memory: MemoryLedger | None = None
) -> Evidence:
    """A run of 80 GiB that came to these peaks."""
    facts = {"peak_bytes": peak, "reserved_peak_bytes": reserved, "allocated_bytes": GIB}
    steps = [make_step(i, tags=int(i < 12), forward=10, facts=facts) for i in range(60)]
    info = make_info(device="cuda", hardware=GPU)
    summary = summary_of(path, [RankSpec(steps=steps, info=info)])
    return Evidence(summary=summary, documents=Documents(memory=memory))


def holding(count: int, graphs: int, size_bytes: int) -> MemoryLedger:
    """A list has gathered so much."""
    held = Holder(
        kind="list",
        name="Model.kept",
        where="train.py:7",
        count=count,
        graphs=graphs,
        size_bytes=size_bytes,
    )
    return msgspec.structs.replace(LEDGER, held=(held,))


def test_memory_that_will_be_full_in_some_thousand_steps_is_a_leak(tmp_path: Path) -> None:
    """One MiB per step with 61 GiB left: 62,000 steps; it comes before what is merely slow."""
    evidence = growing(tmp_path, MIB)
    finding = leak(evidence)

    assert finding is not None
    assert finding.evidence[0].startswith("1.00 MiB per step (95 % CI 1.00 MiB–1.00 MiB)")
    assert "memory is full in 62,100 steps (62,100–62,100)" in finding.evidence[0]
    assert finding.urgent
    assert finding.confidence == "medium"
    assert diagnose(evidence)[0].id == "leak"


def test_when_memory_is_full_has_an_interval_as_wide_as_the_noise(tmp_path: Path) -> None:
    """A MiB per step give or take 20, with 61 GiB left: the planted 62,000 steps are within."""
    finding = leak(growing(tmp_path, MIB, noise=20 * MIB))

    assert finding is not None
    steps = re.search(r"full in ([\d,]+) steps \(([\d,]+)–([\d,]+)\)", finding.evidence[0])
    assert steps is not None
    left, soonest, latest = (int(number.replace(",", "")) for number in steps.groups())
    assert soonest < left < latest
    assert soonest < 61 * 1024 - 400 < latest


def test_a_leak_names_who_gathers_and_the_line_that_fills_it(tmp_path: Path) -> None:
    """If it has something of each step and enough to explain the growth."""
    finding = leak(growing(tmp_path, MIB, memory=holding(400, 0, 400 * MIB)))

    assert finding is not None
    assert finding.title == "memory grows with every step in Model.kept"
    assert finding.where == "train.py:7"
    assert finding.confidence == "high"


@pytest.mark.parametrize("held", [holding(400, 0, 40 * MIB), holding(80, 0, 400 * MIB)])
def test_a_container_that_cannot_explain_the_growth_is_not_accused(
    held: MemoryLedger, tmp_path: Path
) -> None:
    """Too small, or with too few things in it; the leak is there all the same."""
    finding = leak(growing(tmp_path, MIB, memory=held))

    assert finding is not None
    assert finding.where == ""
    assert "no container" in finding.evidence[1]


@pytest.mark.parametrize("per_step", [0.0, -MIB, 10_000.0])
def test_growth_that_does_not_matter_is_no_leak(per_step: float, tmp_path: Path) -> None:
    """None, shrinking, and so slow that no ordinary fit feels it."""
    assert leak(growing(tmp_path, per_step)) is None


@pytest.mark.parametrize(("steps", "step_ms"), [(311, 1000), (400, 70)])
def test_no_leak_is_claimed_from_fewer_than_300_steps_or_30_s(
    steps: int, step_ms: int, tmp_path: Path
) -> None:
    """299 steady steps, or 27 s of them, though each adds 10 MiB: a cache does so too."""
    assert leak(growing(tmp_path, 10 * MIB, steps=steps, step_ms=step_ms)) is None
    assert leak(growing(tmp_path, 10 * MIB, steps=312, step_ms=101)) is not None


def test_a_held_graph_takes_the_leak_upon_itself(tmp_path: Path) -> None:
    """One cause, one finding: the one that names it."""
    evidence = growing(tmp_path, MIB, memory=holding(400, 400, MIB))
    finding = graph_held(evidence)

    assert leak(evidence) is None
    assert finding is not None
    assert finding.title == "Model.kept keeps the autograd graph of every step"
    assert finding.where == "train.py:7"
    assert finding.urgent
    assert any("per step" in line for line in finding.evidence)


def test_a_held_graph_that_hardly_grows_is_told_quietly(tmp_path: Path) -> None:
    """A list of losses: some kilobytes a step are not urgent."""
    finding = graph_held(growing(tmp_path, 4096, memory=holding(400, 400, 1600)))

    assert finding is not None
    assert finding.severity == "low"
    assert not finding.urgent


def test_a_held_graph_that_fills_the_memory_is_urgent_in_a_short_run(tmp_path: Path) -> None:
    """100 MB in each of 200 steps: a warm-up is no question where the list is found."""
    memory = holding(200, 200, MIB)
    finding = graph_held(growing(tmp_path, 100e6, steps=200, step_ms=100, memory=memory))

    assert finding is not None
    assert finding.urgent
    assert finding.severity == "high"
    assert "memory is full in" in finding.evidence[1]


def test_what_a_held_graph_takes_is_open_where_memory_was_not_measured(tmp_path: Path) -> None:
    """Neither urgent nor harmless."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(200, forward=100))])
    documents = Documents(memory=holding(200, 200, 1600))
    finding = graph_held(Evidence(summary=summary, documents=documents))

    assert finding is not None
    assert finding.severity == "medium"
    assert not finding.urgent


def test_the_graphs_of_one_step_are_no_leak(tmp_path: Path) -> None:
    """A dozen attention maps that each step replaces."""
    assert graph_held(growing(tmp_path, 0, memory=holding(12, 12, MIB))) is None


@pytest.mark.parametrize(
    ("peak", "severity"), [(64, None), (73, None), (74, "medium"), (78, "high")]
)
def test_the_limit_is_near_from_92_percent_on(
    peak: int, severity: str | None, tmp_path: Path
) -> None:
    """Of 80 GiB; a peak at 80 % is nothing to speak of."""
    finding = memory_limit(on_a_gpu(tmp_path, peak=peak * GIB, reserved=79 * GIB))

    assert (finding.severity if finding else None) == severity


def test_near_the_limit_the_ledger_says_what_would_save(tmp_path: Path) -> None:
    """The largest first: half of 20 GiB of activations."""
    finding = memory_limit(on_a_gpu(tmp_path, peak=76 * GIB, reserved=79 * GIB, memory=LEDGER))

    assert finding is not None
    assert finding.evidence[1].startswith("half the micro-batch, twice as many of them saves up to")
    assert "10.0 GiB" in finding.evidence[1]


def test_holes_matter_only_where_memory_is_nearly_full(tmp_path: Path) -> None:
    """30 GiB of 70 unused of 80 is; the same of 60 is not, and 10 of 70 are few."""
    found = fragmentation(on_a_gpu(tmp_path / "a", peak=40 * GIB, reserved=70 * GIB))
    roomy = fragmentation(on_a_gpu(tmp_path / "b", peak=30 * GIB, reserved=60 * GIB))
    dense = fragmentation(on_a_gpu(tmp_path / "c", peak=60 * GIB, reserved=70 * GIB))

    assert found is not None
    assert found.title == "43 % of the reserved memory is fragmented"
    assert roomy is None
    assert dense is None


def ended(path: Path, memory: MemoryLedger | None, reason: str = "OutOfMemoryError") -> Evidence:
    """A fit that an exception ended after three steps."""
    steps = [make_step(index, tags=1, forward=10) for index in range(3)]
    info = make_info(device="cuda", hardware=GPU)
    summary = summary_of(path, [RankSpec(steps=steps, info=info, end=reason)])
    return Evidence(summary=summary, documents=Documents(memory=memory))


def failed(during: str, requested: int, **changes: object) -> MemoryLedger:
    """A ledger that ends with an allocation that failed."""
    last = OutOfMemory(
        during=during,  # type: ignore[arg-type]
        workspace=bool(changes.pop("workspace", False)),
        requested_bytes=requested,
        allocated_bytes=changes.pop("allocated", None),  # type: ignore[arg-type]
        where="model.py:31",
    )
    return msgspec.structs.replace(LEDGER, out_of_memory=last, **changes)


@pytest.mark.parametrize(
    ("memory", "blamed"),
    [
        (failed("forward", 2 * GIB), "activations"),
        (failed("backward", 2 * GIB, activations_bytes=None, allocated=70 * GIB), "activations"),
        (failed("optimizer", 60 * GIB), "optimizer state"),
        (failed("forward", GIB, activations_bytes=None), "optimizer state"),
        (
            failed("forward", GIB, activations_bytes=None, parameters_bytes=40 * GIB),
            "parameters",
        ),
        (failed("forward", GIB, workspace=True), "workspace"),
    ],
)
def test_the_last_report_says_what_filled_the_memory(
    memory: MemoryLedger, blamed: str, tmp_path: Path
) -> None:
    """What is largest, with the failed request where it belongs; even after three steps."""
    evidence = ended(tmp_path, memory)
    finding = out_of_memory(evidence)

    assert finding is not None
    assert finding.title.endswith(f": {blamed} filled it")
    assert finding.where == "model.py:31"
    assert diagnose(evidence)[0].id == "out_of_memory"


def test_an_end_by_lack_of_memory_that_nobody_looked_at_is_still_said(tmp_path: Path) -> None:
    """By the exception's name; another exception says nothing about memory."""
    finding = out_of_memory(ended(tmp_path / "a", None))

    assert finding is not None
    assert finding.confidence == "medium"
    assert out_of_memory(ended(tmp_path / "b", None, reason="ValueError")) is None
    assert out_of_memory(ended(tmp_path / "c", LEDGER, reason="ValueError")) is None


def test_who_ran_out_of_memory_is_not_also_told_that_it_is_scarce(tmp_path: Path) -> None:
    """One cause, one finding."""
    evidence = on_a_gpu(
        tmp_path, peak=79 * GIB, reserved=79 * GIB, memory=failed("forward", 2 * GIB)
    )

    assert out_of_memory(evidence) is not None
    assert memory_limit(evidence) is None


def configured(path: Path, validation_ms: float = 0.0, **config: Scalar) -> Evidence:
    """A fit in which this was learned."""
    steps = [make_step(index, tags=int(index < 12), forward=10) for index in range(60)]
    gaps = [make_gap(Gap.VALIDATION, validation_ms)] if validation_ms else []
    info = make_info(config=config)
    return Evidence(summary=summary_of(path, [RankSpec(steps=steps, info=info, gaps=gaps)]))


def test_gradients_that_add_up_come_before_what_is_slow(tmp_path: Path) -> None:
    """They spoil what is learned."""
    evidence = configured(tmp_path / "a", validation_ms=600, gradients_zeroed=False)

    assert [finding.id for finding in diagnose(evidence)] == ["zero_grad", "validation"]
    assert zero_grad(configured(tmp_path / "b")) is None


def test_validation_with_autograd_on_is_bounded_by_all_of_it(tmp_path: Path) -> None:
    """100 ms of 700."""
    finding = validation_grad(configured(tmp_path / "a", validation_ms=100, validation_grad=True))

    assert finding is not None
    assert finding.scope == "fit"
    assert finding.fraction == pytest.approx(1 / 7)
    assert validation_grad(configured(tmp_path / "b", 100, validation_grad=False)) is None
    assert validation_grad(configured(tmp_path / "c", 100)) is None
    assert validation_grad(configured(tmp_path / "d", validation_grad=True)) is None


@pytest.mark.parametrize(
    ("per_step", "steps", "fires"),
    [
        (1.0 * MIB, 400, True),
        # 31 MiB in all.
        (0.08 * MIB, 400, False),
        # 20 kB a step: 41 MiB in all, and full in 4 days.
        (20_000, 2164, True),
        # 35 MiB in all, and full in 9 days.
        (8_000, 4600, False),
    ],
)
def test_growth_is_a_leak_when_it_is_large_and_fills_the_memory_in_time(
    tmp_path: Path, per_step: float, steps: int, *, fires: bool
) -> None:
    """On a machine of 64 GiB, of which three are taken."""
    assert (leak(growing(tmp_path, per_step, steps=steps)) is not None) is fires


def retrying(path: Path, every: int, *, steps: int = 400, failures: int = 0) -> Evidence:
    """A run on a full GPU whose allocator starts over in every so many-th step."""
    made = [
        make_step(
            index,
            tags=int(index < 12),
            forward=50,
            facts={
                "peak_bytes": 78 * GIB,
                "reserved_peak_bytes": 79 * GIB,
                "alloc_retries": int(index % every == 0),
                "alloc_failures": failures if index == 300 else 0,
            },
        )
        for index in range(steps)
    ]
    info = make_info(device="cuda", hardware=GPU)
    return Evidence(summary=summary_of(path, [RankSpec(steps=made, info=info)]))


def test_an_allocator_that_starts_over_in_steady_steps_is_a_finding(tmp_path: Path) -> None:
    """With how often, how full the device was, and what failed for good."""
    finding = alloc_retries(retrying(tmp_path / "a", 8, failures=2))

    assert finding is not None
    assert "48 times in 388 steady steps" in finding.title
    assert finding.severity == "high"
    assert finding.gain_upper_bound is None
    assert "79.0 GiB of 80.0 GiB" in finding.evidence[1]
    assert "2 allocations failed for good" in finding.evidence[2]
    assert "expandable_segments:True" in finding.action


def test_retries_of_the_warm_up_are_no_finding(tmp_path: Path) -> None:
    """A cache that fills up may overflow once; so may the first few steady steps."""
    assert alloc_retries(retrying(tmp_path / "a", 200)) is None
    assert alloc_retries(retrying(tmp_path / "b", 1000)) is None


def checkpointed(path: Path, peak_bytes: int, config: dict[str, Scalar] | None = None) -> Evidence:
    """Steps of 100 ms, a third of them forward, of a model of 1 GiB that recomputes."""
    info = make_info(
        config={"gradient_checkpointing": True, "gradient_bytes": GIB, **(config or {})},
        hardware=CPU,
    )
    steps = make_steps(200, facts={"resident_bytes": peak_bytes}, forward=30, backward=70)
    return Evidence(summary=summary_of(path, [RankSpec(steps=steps, info=info)]))


def test_activations_that_would_fit_are_not_to_be_computed_twice(tmp_path: Path) -> None:
    """4 GiB of model and update, and 2 GiB of all else: twenty times that is 44 of 64 GiB."""
    finding = recompute(checkpointed(tmp_path / "a", 6 * GIB, {"loop": "huggingface"}))
    plain = recompute(checkpointed(tmp_path / "b", 6 * GIB, {"loop": "outside"}))

    assert finding is not None
    assert plain is not None
    assert finding.fraction == pytest.approx(0.30)
    # It keeps what the first forward does not: a fifth more, and 2 ms of Python around it.
    assert finding.gain_upper_bound == pytest.approx(1 / 0.62)
    assert finding.action.startswith("TrainingArguments(gradient_checkpointing=False)")
    assert finding.evidence == (
        "up to 30.0 ms of 100 ms per step",
        "6.00 GiB of 64.0 GiB at the peak",
    )
    assert plain.action == "model.gradient_checkpointing_disable()"


@pytest.mark.parametrize(
    ("peak_gib", "config"),
    [
        (7, {}),  # 3 GiB might become 60
        (6, {"gradient_checkpointing": False}),
        (6, {"attention": "eager"}),  # scores grow with the square of the length
        (6, {"gradient_bytes": None}),  # all of it might grow
    ],
)
def test_activations_that_might_not_fit_are_left_alone(
    tmp_path: Path, peak_gib: int, config: dict[str, Scalar]
) -> None:
    """A finding that runs out of memory when it is followed costs more than it gains."""
    assert recompute(checkpointed(tmp_path, peak_gib * GIB, config)) is None


def test_an_audit_knows_what_is_computed_twice_and_where(tmp_path: Path) -> None:
    """Ten of thirty milliseconds of backward, in a model of one's own."""
    rows = [
        product("addmm", 20.0, line="net.py:5"),
        product("addmm", 10.0, part="recompute", line="net.py:5"),
        product("mm", 20.0, part="backward", line="net.py:9"),
    ]
    finding = recompute(roomy(tmp_path / "a", rows))

    assert finding is not None
    assert finding.fraction == pytest.approx(10 / 60, rel=0.02)
    assert finding.where == "net.py:5"
    assert recompute(roomy(tmp_path / "b", [rows[0], rows[2]])) is None


def roomy(path: Path, rows: list[OperatorUse]) -> Evidence:
    """An audited step that leaves 63 of 64 GiB."""
    evidence = evidence_of(path, rows, facts={"resident_bytes": GIB})
    run = msgspec.structs.replace(evidence.summary.run, hardware=CPU)
    return replace(evidence, summary=msgspec.structs.replace(evidence.summary, run=run))
