"""Each check passes where it should, fails where it should, and says when it cannot tell."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.doctor import HEALTHY_MS, NAMES, Planted, checked, make_capture
from support.light import CHIP, COMPUTE, MEMORY, make_audit, make_use
from support.runs import make_step, make_steps

from trainperf.core.artifacts.audit import MeasuredChip, OperatorUse
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep
from trainperf.core.artifacts.memory import Holder, MemoryLedger
from trainperf.core.artifacts.trials import TrialResult, Trials, TrialVerdict
from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar
from trainperf.traces.results import TraceTotals


PLAIN = Planted()
GPU = Planted(
    device="cuda",
    config={"pin_memory": True, "num_workers": 4},
    facts={
        "data_stall_ns": 50_000,
        "h2d_device_ns": 600_000,
        "h2d_bytes": 8 << 20,
        "h2d_tensors": 3,
        "lead_forward": 6,
        "lead_backward": 9,
        "peak_bytes": 30 << 30,
    },
)
"""Nothing wrong, every fact recorded."""


def audited(*uses: OperatorUse, planted: Planted = PLAIN, device: str = "cpu") -> Planted:
    """The same with an audited step of these operators, which ran for as long as the work."""
    audit = make_audit(*uses, device=device, step=20)
    return replace(planted, documents=(audit, MeasuredChip(chip=CHIP)))


def ran(use: OperatorUse, seconds: float, line: str | None = None) -> OperatorUse:
    """An operator that took so long."""
    return msgspec.structs.replace(use, host_s=seconds, line=line)


HEALTHY = audited(ran(COMPUTE, 0.045), ran(MEMORY, 0.004))
READS = msgspec.structs.replace(
    make_use(name="aten._local_scalar_dense.default", memory=4), line="train.py:31", host_s=1e-6
)
COPIES = msgspec.structs.replace(
    make_use(name="aten.clone.default", memory=10**7, kind="copy"), line="model.py:9"
)
LEDGER = MemoryLedger(
    device="cpu", parameters_bytes=400, gradients_bytes=400, optimizer_state_bytes={"exp_avg": 800}
)
GROWING = [
    make_step(
        index,
        tags=int(Tag.WARMUP) if index < 12 else 0,
        facts={"resident_bytes": (1 << 30) + index * (64 << 20)},
        forward=15.0,
        backward=30.0,
    )
    for index in range(200)
]
HOLDER = Holder(
    kind="list", name="Model.losses", where="model.py:5", count=200, graphs=200, size_bytes=800
)
COMPILED = Compilation(graphs=2, compile_s=3.0)
TRACED = TraceTotals(
    steps=3,
    step_s=0.050,
    gpu_busy_fraction=0.9,
    gpu_busy_s=0.045,
    compute_fraction=0.9,
    idle_data_wait_fraction=0.02,
    idle_host_bound_fraction=0.05,
    data_wait_exposed_s=0.001,
    item_calls=0.0,
    sync_calls=1.0,
)
WAITING = replace(PLAIN, phases_ms={**HEALTHY_MS, "data_wait": 25.0}, config={"num_workers": 0})


def tried(planted: Planted, *trials: TrialResult) -> Planted:
    """The same with what was tried in it."""
    return replace(planted, documents=(*planted.documents, Trials(baseline=None, trials=trials)))


def trial(id_: str, verdict: TrialVerdict, speedup: float, *rules: str) -> TrialResult:
    """A change that was measured to five per cent either way."""
    return TrialResult(
        id=id_,
        kind="change",
        title=id_,
        verdict=verdict,
        speedup=speedup,
        low=speedup * 0.95,
        high=speedup * 1.05,
        loss_before=2.5,
        loss_after=2.5,
        apply=f"{id_}=True",
        rules=rules,
    )


AMP = {
    verdict: trial("autocast_bf16", verdict, speedup, "matmul_precision")
    for verdict, speedup in (("faster", 1.4), ("slower", 0.7), ("equal", 1.0), ("undecided", 1.0))
}
FULL = Planted(config={"precision": "32-true"})
AUTOCAST = Planted(config={"precision": "bf16-mixed"})
LOSS = make_use(name="aten._log_softmax.default")


def losing(level: float, noise: float = 0.0, batch: int = 8) -> Planted:
    """A loss that falls to *level* and has every second step *noise* higher."""
    steps = [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < 12 else 0,
            facts={"loss": level + 5.0 / (1 + index * batch) + noise * (index % 2)},
            forward=15.0,
            backward=30.0,
        )
        for index in range(200)
    ]
    return Planted(
        steps=[msgspec.structs.replace(s, facts={**s.facts, "samples": batch}) for s in steps]
    )


ANSWERS: dict[str, Scalar] = {
    "loop": "inference",
    "answers_looked_at": 3,
    "train_mode": "",
    "grad_mode": "inference_mode",
}

PASSES: dict[str, Planted] = {
    "warmed_up": PLAIN,
    "steady_state": PLAIN,
    "answers": Planted(config=ANSWERS),
    "hot_path": HEALTHY,
    "loader": PLAIN,
    "pinned_transfer": GPU,
    "batch_tensors": GPU,
    "layouts": HEALTHY,
    "small_operators": GPU,
    "tensor_cores": audited(
        msgspec.structs.replace(COMPUTE, precision="bf16"), planted=GPU, device="cuda"
    ),
    "mixed_precision": AUTOCAST,
    "overflows": Planted(facts={"attempts": 1, "overflows": 0, "loss_scale": 65536.0}),
    "peak_memory": replace(GPU, number=900, facts={**GPU.facts, "allocated_bytes": 20 << 30}),
    "accumulation": Planted(
        facts={"samples": 32}, config={"batch_size": 8, "accumulate_grad_batches": 4}
    ),
    "profiler_evidence": replace(GPU, capture=make_capture(TRACED)),
    "compile_split": replace(PLAIN, facts={"recompiles": 0}, documents=(COMPILED,)),
    "dynamic_shapes": Planted(facts={"tokens_effective": 950, "tokens_padded": 1000}),
    "throughput_unit": Planted(facts={"tokens_effective": 950, "tokens_padded": 1000}),
    "loss_parity": losing(2.0),
}
"""A run that passes each check."""

FAILS: dict[str, Planted] = {
    "warmed_up": replace(PLAIN, number=15),
    "steady_state": replace(PLAIN, number=11),
    "answers": Planted(config={**ANSWERS, "answer_graph_nodes": 40}),
    "hot_path": audited(ran(COMPUTE, 0.045), READS),
    "loader": WAITING,
    "pinned_transfer": replace(GPU, config={"pin_memory": False}),
    "batch_tensors": replace(
        GPU,
        phases_ms={**HEALTHY_MS, "h2d": 10.0},
        facts={**GPU.facts, "h2d_tensors": 400, "h2d_bytes": 400_000, "h2d_device_ns": 9_000_000},
    ),
    "layouts": audited(ran(COMPUTE, 0.025), ran(COPIES, 0.020, "model.py:9")),
    "small_operators": replace(GPU, facts={**GPU.facts, "lead_forward": 0, "lead_backward": 0}),
    "tensor_cores": audited(
        ran(msgspec.structs.replace(COMPUTE, precision="fp64", dtypes=("fp64",)), 0.045)
    ),
    "mixed_precision": audited(
        ran(COMPUTE, 0.045), msgspec.structs.replace(LOSS, dtypes=("bf16",)), planted=AUTOCAST
    ),
    "overflows": Planted(facts={"attempts": 1, "overflows": 1, "loss_scale": 2.0}),
    "peak_memory": replace(
        PLAIN,
        steps=GROWING,
        hardware={"device_memory_bytes": 64 << 30},
        documents=(msgspec.structs.replace(LEDGER, held=(HOLDER,)),),
    ),
    "accumulation": Planted(
        facts={"samples": 8}, config={"batch_size": 8, "accumulate_grad_batches": 4}
    ),
    "profiler_evidence": replace(
        GPU,
        phases_ms={**HEALTHY_MS, "data_wait": 25.0},
        facts={**GPU.facts, "data_stall_ns": 24_000_000},
        capture=make_capture(TRACED),
    ),
    "compile_split": replace(
        PLAIN,
        documents=(COMPILED,),
        steps=make_steps(9, facts={"recompiles": 1}, forward=20.0),
    ),
    "dynamic_shapes": Planted(facts={"tokens_effective": 500, "tokens_padded": 1000}),
    "throughput_unit": Planted(facts={"samples": 8}, config={"sequence_length": 512}),
    "loss_parity": losing(2.2),
}
"""A run that fails each check."""

BASELINES: dict[str, Planted] = {
    "mixed_precision": tried(FULL, AMP["faster"]),
    "loss_parity": losing(2.0, batch=16),
}

ELSE: dict[str, tuple[str, str, Planted]] = {
    "still running": ("warmed_up", "unknown", replace(PLAIN, number=15, end=None)),
    "no step yet": ("steady_state", "unknown", replace(PLAIN, number=0)),
    "nothing is answered": ("answers", "not_applicable", PLAIN),
    "a compiled model was not looked at": (
        "answers",
        "unknown",
        Planted(config={"loop": "inference", "compiled": True}),
    ),
    "requests are waited for": (
        "loader",
        "pass",
        replace(WAITING, config={"loop": "inference"}),
    ),
    "nobody looked at operators": ("hot_path", "unknown", PLAIN),
    "too short to see a wait": ("loader", "unknown", replace(PLAIN, number=15)),
    "no copy on a CPU": ("pinned_transfer", "not_applicable", PLAIN),
    "nothing to pin in the host's memory": (
        "pinned_transfer",
        "not_applicable",
        replace(GPU, device="mps", config={"pin_memory": False}),
    ),
    "another loader": ("pinned_transfer", "unknown", replace(GPU, config={})),
    "no batch to move": ("batch_tensors", "not_applicable", PLAIN),
    "no layout was seen": ("layouts", "unknown", PLAIN),
    "no operator was seen": ("small_operators", "unknown", PLAIN),
    "no tensor cores in a CPU": ("tensor_cores", "not_applicable", PLAIN),
    "no contraction": (
        "tensor_cores",
        "not_applicable",
        audited(MEMORY, planted=GPU, device="cuda"),
    ),
    "no contraction was seen": ("tensor_cores", "unknown", GPU),
    "fp32": ("mixed_precision", "not_applicable", Planted(config={"precision": "32-true"})),
    "AMP was slower when it was tried": (
        "mixed_precision",
        "not_applicable",
        tried(FULL, AMP["slower"]),
    ),
    "AMP was tried for too short": ("mixed_precision", "unknown", tried(FULL, AMP["undecided"])),
    "only the optimizer was tried": (
        "small_operators",
        "unknown",
        tried(PLAIN, trial("optimizer_fused", "equal", 1.0, "optimizer_not_fused")),
    ),
    "nothing to compare with": ("mixed_precision", "unknown", PASSES["mixed_precision"]),
    "no scaler": (
        "overflows",
        "not_applicable",
        Planted(reasons={"overflows": "not applicable: precision 32-true uses no GradScaler"}),
    ),
    "no memory was measured": ("peak_memory", "unknown", PLAIN),
    "memory was counted once": ("peak_memory", "unknown", replace(PLAIN, documents=(LEDGER,))),
    "a chip that nobody knows": (
        "layouts",
        "unknown",
        replace(PLAIN, documents=HEALTHY.documents[:1]),
    ),
    "an audit of too few steps": ("layouts", "unknown", replace(HEALTHY, number=15)),
    "samples not counted": ("accumulation", "unknown", PLAIN),
    "no trace": ("profiler_evidence", "unknown", WAITING),
    "not compiled": ("compile_split", "not_applicable", Planted(facts={"recompiles": 0})),
    "neither graphs nor padding": ("dynamic_shapes", "unknown", PLAIN),
    "no baseline": ("loss_parity", "unknown", losing(2.0)),
}


def test_every_check_is_tested_both_ways() -> None:
    """A check that never says anything else than *unknown* counts as missing."""
    assert set(PASSES) == set(FAILS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_in_order_passes(name: str, tmp_path: Path) -> None:
    """With numbers, and nothing to do."""
    found = checked(name, tmp_path, PASSES[name], BASELINES.get(name))

    assert (found.status, found.action) == ("pass", ""), found.evidence
    assert found.evidence


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_the_fault_fails(name: str, tmp_path: Path) -> None:
    """With numbers, and what to do."""
    found = checked(name, tmp_path, FAILS[name], BASELINES.get(name))

    assert found.status == "fail", found.evidence
    assert found.evidence
    assert found.action


@pytest.mark.parametrize("what", ELSE)
def test_what_cannot_be_told_is_not_claimed(what: str, tmp_path: Path) -> None:
    """Not applicable says why; unknown also says how to find out."""
    name, status, planted = ELSE[what]
    found = checked(name, tmp_path, planted)

    assert found.status == status, found.evidence
    assert found.evidence
    assert bool(found.action) == (status == "unknown")


CHANGED = msgspec.structs.replace(AMP["faster"], verdict="loss differs", loss_after=3.5)


def peaking(after_gib: int) -> TrialResult:
    """Autocast that was faster, with a peak of three GiB without it."""
    peaks = {"memory_before": 3 << 30, "memory_after": after_gib << 30}
    return msgspec.structs.replace(AMP["faster"], **peaks)


def fusing(verdict: TrialVerdict, speedup: float) -> Planted:
    """A step that is bound by launches, in which compiling was tried."""
    compiled = trial("compile", verdict, speedup, "launch_bound")
    return tried(FAILS["small_operators"], compiled)


def recompiling(times: int) -> Planted:
    """A fit that spends half its time compiling again: once, or four times."""
    entries = [
        Compiled(function="f", where="m.py:1", step=step, seconds=1.0, reason=reason)
        for step, reason in [(0, None), *((50 + 10 * again, "size") for again in range(times))]
    ]
    walls = [CompiledStep(step=0, wall_s=0.05)]
    walls += [CompiledStep(step=each.step or 0, wall_s=9.0 / times) for each in entries[1:]]
    document = Compilation(graphs=1 + times, compiled=tuple(entries), steps=tuple(walls))
    return replace(PLAIN, documents=(document,))


LONGER = make_capture(TRACED, steps_s=(0.080,) * 3)
"""A step of 50 ms by the records, and of 80 in the trace."""

HALF = "mixed_precision"
SAYS: dict[str, tuple[str, str, Planted, Planted | None, str]] = {
    # Nothing is decided twice: the numbers, the line and the remedy are the finding's.
    "the finding of its rule": (
        "layouts",
        "fail",
        FAILS["layouts"],
        None,
        "% of the step (model.py:9)",
    ),
    # Also where it is one recompilation, which is no finding in a longer fit.
    **{
        f"{times} recompilations that take half of the fit": (
            "compile_split",
            "fail",
            recompiling(times),
            None,
            "recompilation takes ",
        )
        for times in (1, 4)
    },
    "a trace that contradicts the records": (
        "profiler_evidence",
        "fail",
        replace(GPU, steps=make_steps(200, **HEALTHY_MS), capture=LONGER),
        None,
        "in the records and 80.0 ms in the trace",
    ),
    # Nothing was tagged as warm-up: compilation and allocation are in the figures.
    "a first step among the steady ones": (
        "steady_state",
        "fail",
        replace(PLAIN, steps=make_steps(200, warmup=0, **HEALTHY_MS)),
        None,
        "all 200 steps count, the first one too",
    ),
    "host times alone on a GPU": (
        "warmed_up",
        "fail",
        Planted(device="cuda"),
        None,
        "no timing event was read on cuda: only the host's clock is known",
    ),
    "pinned, and the host waits for the copy": (
        "pinned_transfer",
        "fail",
        replace(GPU, phases_ms={**HEALTHY_MS, "h2d": 0.6}),
        None,
        "its call 600 µs",
    ),
    "a trial in the baseline, faster": (
        HALF,
        "pass",
        AUTOCAST,
        tried(FULL, AMP["faster"]),
        "autocast_bf16 was tried: faster, ",
    ),
    "a trial in the baseline, slower": (
        HALF,
        "fail",
        AUTOCAST,
        tried(FULL, AMP["slower"]),
        "autocast_bf16 was tried: slower, ",
    ),
    "two runs and no trial": (HALF, "unknown", AUTOCAST, FULL, "was not tried"),
    "fp32 where AMP was faster": (
        HALF,
        "pass",
        tried(FULL, AMP["faster"]),
        None,
        "peak memory not measured\nto keep it: autocast_bf16=True",
    ),
    "AMP that was faster and took less": (
        HALF,
        "pass",
        tried(FULL, peaking(2)),
        None,
        "peak memory 3.00 GiB without and 2.00 GiB with it",
    ),
    "AMP that was faster and took more": (
        HALF,
        "not_applicable",
        tried(FULL, peaking(4)),
        None,
        "peak memory 3.00 GiB without and 4.00 GiB with it",
    ),
    "AMP that changes the loss": (
        HALF,
        "not_applicable",
        tried(FULL, CHANGED),
        None,
        "loss 2.5 without and 3.5 with it",
    ),
    # A finding about launches gives way to what was measured of its advice.
    "fusing was faster": (
        "small_operators",
        "fail",
        fusing("faster", 1.3),
        None,
        "compile was tried: faster, ",
    ),
    "fusing was equal": (
        "small_operators",
        "pass",
        fusing("equal", 1.0),
        None,
        "compile was tried: equal, ",
    ),
    "fusing was slower": (
        "small_operators",
        "pass",
        fusing("slower", 0.8),
        None,
        "compile was tried: slower, ",
    ),
    # Padding looks like work, and marks of a host-bound device do not say what that costs.
    "a direction that no trace shows": (
        "profiler_evidence",
        "not_applicable",
        replace(
            GPU,
            facts={**GPU.facts, "tokens_effective": 500, "tokens_padded": 1000},
            capture=make_capture(TRACED),
        ),
        None,
        "a trace has no share to hold against that",
    ),
    "a direction that claims no share": (
        "profiler_evidence",
        "not_applicable",
        replace(
            GPU,
            facts={**GPU.facts, "lead_forward": 0, "lead_backward": 0},
            capture=make_capture(TRACED),
        ),
        None,
        "a trace has no share to hold against that",
    ),
}


@pytest.mark.parametrize("what", SAYS)
def test_a_check_says_what_it_stands_on(what: str, tmp_path: Path) -> None:
    """The first question that has an answer decides."""
    name, status, planted, baseline, words = SAYS[what]
    found = checked(name, tmp_path, planted, baseline)

    assert found.status == status, found.evidence
    assert words in "\n".join(found.evidence)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_a_step_is_no_error(name: str, tmp_path: Path) -> None:
    """The first batch raised."""
    found = checked(name, tmp_path, replace(PLAIN, number=0, end="ValueError"))

    assert found.status in {"fail", "unknown", "not_applicable"} or name in {
        "dynamic_shapes",
        "throughput_unit",
    }


def test_the_way_to_look_is_that_of_the_loop(tmp_path: Path) -> None:
    """Lightning's callback is no help in a loop of one's own."""
    plain = replace(PLAIN, config={"loop": "plain"})

    assert checked("hot_path", tmp_path / "a", PLAIN).action.startswith("TrainPerf(audit_at=20)")
    assert checked("hot_path", tmp_path / "b", plain).action.startswith("LoopMonitor(audit_at=20)")
