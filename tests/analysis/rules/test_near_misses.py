"""Faults that are too small to matter, and the words for rarer causes."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.audits import capture_of, evidence_of, product, use
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.compiler.graph_breaks import graph_breaks
from trainperf.analysis.rules.compiler.recompiles import recompiles
from trainperf.analysis.rules.host.debug_modes import debug_modes
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.own_cost import own_cost
from trainperf.analysis.rules.input.transfer import transfer
from trainperf.analysis.rules.operators.attention import attention
from trainperf.analysis.rules.operators.layout_copies import layout_copies
from trainperf.analysis.rules.operators.matmul_precision import matmul_precision
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep, GraphBreak
from trainperf.core.artifacts.folder import Documents
from trainperf.core.steps.records import Scalar


MB = 10**6
SCORES = (2, 4, 128, 128)
BACKWARD = product("mm", 30.0, part="backward", line="net.py:9")
UPDATE = use("_fused_adamw_", 10.0, part="optimizer", line="fit.py:3")


def plain(
    path: Path, *, device: str = "cpu", config: dict[str, Scalar] | None = None, **ms: float
) -> Evidence:
    """Two hundred equal steps."""
    spec = RankSpec(steps=make_steps(200, **ms), info=make_info(device=device, config=config))
    return Evidence(summary=summary_of(path, [spec]))


def test_attention_that_keeps_its_scores_for_little_is_left_alone(tmp_path: Path) -> None:
    """Five of sixty milliseconds, one of which is arithmetic."""
    eager = (
        product("bmm", 0.5, shapes=((8, 128, 16), (8, 16, 128)), flops=10**9 // 2),
        use("_softmax", 4.0, shapes=(SCORES,), kind="reduction"),
        product("bmm", 0.5, shapes=((8, 128, 128), (8, 128, 16)), flops=10**9 // 2),
    )
    rest = product("addmm", 15.0)

    assert attention(evidence_of(tmp_path, [*eager, rest, BACKWARD, UPDATE])) is None


def test_fp64_products_that_take_little_are_left_alone(tmp_path: Path) -> None:
    """Five of sixty milliseconds."""
    few = product("mm", 5.0, precision="fp64", flops=10**6)
    rest = product("addmm", 15.0)

    assert matmul_precision(evidence_of(tmp_path, [few, rest, BACKWARD, UPDATE])) is None


@pytest.mark.parametrize(("took_us", "fires"), [(500, False), (700, True)])
def test_our_own_cost_is_told_from_three_percent_on(
    tmp_path: Path, took_us: int, *, fires: bool
) -> None:
    """Of twenty milliseconds."""
    steps = make_steps(200, facts={"overhead_ns": took_us * 1000}, forward=20)
    evidence = Evidence(summary=summary_of(tmp_path, [RankSpec(steps=steps)]))

    assert (own_cost(evidence) is not None) is fires


def test_times_of_a_trace_are_said_to_be_from_it(tmp_path: Path) -> None:
    """And bound what can be gained, as a model does not."""
    copy = use("clone", kind="copy", memory_bytes=MB, line="net.py:3")
    known = evidence_of(tmp_path, [copy], device="cuda")

    finding = layout_copies(
        replace(known, captures=(capture_of({"copy_": (1, 20.0), "addmm": (1, 20.0)}),))
    )

    assert finding is not None
    assert "device times from the trace, operators from step 30" in finding.evidence
    assert finding.fraction == pytest.approx(20 / 60, rel=0.01)
    assert finding.gain_upper_bound == pytest.approx(1.5, rel=0.01)


def test_a_profiler_left_on_is_named(tmp_path: Path) -> None:
    """With what to do instead."""
    finding = debug_modes(plain(tmp_path, config={"autograd_profiler": True}, forward=20))

    assert finding is not None
    assert "ScheduledProfiler" in finding.action


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("Call to `print` is not supported", "take the print out"),
        ("Tensor.item() with capture_scalar_outputs=False", "keep the value a tensor"),
        ("data-dependent branching", "torch.where or torch.cond"),
        ("something new", "move that line out"),
    ],
)
def test_each_reason_of_a_graph_break_has_its_own_way_out(
    tmp_path: Path, reason: str, action: str
) -> None:
    """In torch's words, and in code."""
    document = Compilation(graphs=2, breaks=(GraphBreak(reason=reason, where="a.py:3", times=1),))
    known = replace(plain(tmp_path, forward=20), documents=Documents(compilation=document))

    finding = graph_breaks(known)

    assert finding is not None
    assert finding.action.startswith(action)
    assert finding.where == "a.py:3"


def test_recompiling_for_another_grad_mode_wants_one_of_them(tmp_path: Path) -> None:
    """Not a dimension, and no number."""
    again = [
        Compiled(
            function="forward",
            where="a.py:3",
            step=step,
            seconds=1.0,
            reason="GLOBAL_STATE changed: grad_mode" if step else None,
        )
        for step in (0, 30, 60, 90)
    ]
    steps = tuple(CompiledStep(step=one.step or 0, wall_s=1.0) for one in again)
    document = Compilation(graphs=4, compile_s=4.0, compiled=tuple(again), steps=steps)

    known = replace(plain(tmp_path, forward=20), documents=Documents(compilation=document))
    finding = recompiles(known)

    assert finding is not None
    assert finding.action.startswith("call it under one grad mode")


def test_a_transfer_on_a_cpu_is_the_hooks(tmp_path: Path) -> None:
    """Nothing is copied there."""
    finding = transfer(plain(tmp_path, h2d=5, forward=20))

    assert finding is not None
    assert finding.action.startswith("nothing is copied on a CPU")


def waiting(path: Path, *uses: OperatorUse, config: dict[str, Scalar] | None = None) -> Evidence:
    """A step on a GPU with these operators."""
    known = evidence_of(path, [product("addmm", flops=10**9), *uses], device="cuda")
    run = msgspec.structs.replace(known.summary.run, config=config or {})
    return replace(known, summary=msgspec.structs.replace(known.summary, run=run))


def test_a_copy_to_the_host_in_forward_is_a_wait(tmp_path: Path) -> None:
    """`tensor.cpu()` is called so; a copy of the batch is made elsewhere."""
    back = use("_to_copy", place="link", kind="copy", line="train.py:8", calls=3)
    made = use("_to_copy", place="link", kind="copy", line=None)

    finding = hidden_syncs(waiting(tmp_path / "a", back, made))

    assert finding is not None
    assert finding.where == "train.py:8"
    assert finding.evidence[0] == "train.py:8: a copy between host and device, 3 times per step"
    assert hidden_syncs(waiting(tmp_path / "b", made)) is None


def test_a_scaler_alone_wants_a_fused_optimizer(tmp_path: Path) -> None:
    """Nobody else waits."""
    config: dict[str, Scalar] = {"grad_scaler": "GradScaler", "optimizer_fused": False}

    finding = hidden_syncs(waiting(tmp_path, config=config))

    assert finding is not None
    assert finding.action.startswith("an optimizer with fused=True")
    assert finding.gain_upper_bound is None
