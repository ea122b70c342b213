"""Rules about compiled code, on planted compilations."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.compiler.compile_latency import COMPILED_GAIN, compile_latency
from trainperf.analysis.rules.compiler.first_step import first_step
from trainperf.analysis.rules.compiler.graph_breaks import graph_breaks
from trainperf.analysis.rules.compiler.recompiles import recompiles
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep, GraphBreak
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import ranked


SIZE = "tensor 'rows' size mismatch at index 1. expected 128, actual 136"
STEP_S = 0.05


def evidence(
    path: Path,
    document: Compilation | None,
    *,
    steps: int = 200,
    fit_s: float = 20.0,
    end: str | None = "finished",
    first_ms: float = 50,
) -> Evidence:
    """A fit of steps of 50 ms, in which this was compiled."""
    made = make_steps(steps, forward=50)
    made[0] = make_steps(1, forward=first_ms)[0]
    spec = RankSpec(steps=made, info=make_info(), fit_ns=round(fit_s * 1e9), end=end)
    return Evidence(summary=summary_of(path, [spec]), documents=Documents(compilation=document))


def again(step: int | None, reason: str | None = SIZE, *, gave_up: bool = False) -> Compiled:
    """The same function, once more."""
    return Compiled(
        function="forward",
        where="model.py:12",
        step=step,
        seconds=1.0,
        reason=reason,
        gave_up=gave_up,
    )


def compiled(*ones: Compiled, walls_s: dict[int, float] | None = None) -> Compilation:
    """What was compiled, in steps that took so long."""
    walls_s = walls_s or {one.step: 1.05 for one in ones if one.step is not None}
    steps = tuple(CompiledStep(step=step, wall_s=wall_s) for step, wall_s in walls_s.items())
    return Compilation(graphs=len(ones), compile_s=float(len(ones)), compiled=ones, steps=steps)


def test_recompilations_cost_what_their_steps_took_beyond_a_steady_one(tmp_path: Path) -> None:
    """Four steps of 1.05 s instead of 0.05 in a fit of 20 s: a fifth of it."""
    document = compiled(again(0, None), *(again(step) for step in (3, 50, 90, 120)))

    finding = recompiles(evidence(tmp_path, document))

    assert finding is not None
    assert finding.fraction == pytest.approx(4.0 / 20, rel=1e-4)
    assert finding.scope == "fit"
    assert finding.gain_upper_bound == pytest.approx(1.25, rel=1e-4)
    assert finding.where == "model.py:12"


def test_a_changing_dimension_is_said_how_to_mark(tmp_path: Path) -> None:
    """The guard names the tensor and the dimension."""
    finding = recompiles(evidence(tmp_path, compiled(again(0, None), again(3), again(9))))

    assert finding is not None
    assert finding.action.startswith("torch._dynamo.mark_dynamic(rows, 1)")
    assert SIZE in finding.evidence[1]


def test_variables_are_named_as_in_the_code(tmp_path: Path) -> None:
    """Older releases of torch name them as they find them in a frame."""
    reason = "L['level'] == 3  # return scores * level  # model.py:14 in forward"
    document = compiled(again(0, None), again(3, reason), again(9, reason))

    finding = recompiles(evidence(tmp_path, document))

    assert finding is not None
    assert finding.evidence[1] == "forward: level == 3"
    assert "as a tensor" in finding.action


def test_one_recompilation_is_ordinary(tmp_path: Path) -> None:
    """Torch sees that a shape changes, and compiles for all lengths."""
    assert recompiles(evidence(tmp_path, compiled(again(0, None), again(3)))) is None


def test_modules_of_one_class_are_compiled_once_each(tmp_path: Path) -> None:
    """A guard fails for each of them in the first step; one recompilation later is ordinary."""
    document = compiled(again(0, None), again(0), again(0), again(3))

    assert recompiles(evidence(tmp_path, document)) is None


def test_recompilations_that_cost_little_are_no_finding(tmp_path: Path) -> None:
    """Two steps of 0.1 s more in 20 s."""
    document = compiled(again(0, None), again(3), again(9), walls_s={0: 1.0, 3: 0.15, 9: 0.15})

    assert recompiles(evidence(tmp_path, document)) is None


def test_where_torch_gave_up_no_bound_is_honest(tmp_path: Path) -> None:
    """Later steps run uncompiled, and nobody knows what that costs."""
    document = compiled(again(0, None), again(3), again(9), again(12, gave_up=True))

    finding = recompiles(evidence(tmp_path, document))

    assert finding is not None
    assert finding.gain_upper_bound is None
    assert any("gave up" in line for line in finding.evidence)


def test_a_break_is_named_with_its_line_and_without_a_bound(tmp_path: Path) -> None:
    """What one graph would gain is not known before there is one."""
    broken = GraphBreak(reason="cannot trace builtin `print`", where="model.py:15", times=3)
    document = Compilation(graphs=2, breaks=(broken,))

    finding = graph_breaks(evidence(tmp_path, document))

    assert finding is not None
    assert (finding.fraction, finding.gain_upper_bound) == (None, None)
    assert finding.where == "model.py:15"
    assert finding.action.startswith("take the print out")


LIBRARY = "/x/lib/python3.11/site-packages/transformers/modeling_utils.py:4769"


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("logging.Logger methods are not supported", "ignore_logging_functions"),
        ("step_unsupported", "another version or setting of transformers"),
    ],
)
def test_a_break_inside_a_package_is_not_the_users_to_take_out(
    tmp_path: Path, reason: str, action: str
) -> None:
    """It is named by its line in the package, with what can be done without touching that."""
    document = Compilation(graphs=2, breaks=(GraphBreak(reason=reason, where=LIBRARY, times=2),))

    finding = graph_breaks(evidence(tmp_path, document))

    assert finding is not None
    assert finding.title == "compiled code breaks at 1 place, all inside transformers"
    assert finding.evidence[0] == f"transformers/modeling_utils.py:4769: {reason}"
    assert action in finding.action
    assert "layer.compile()" in finding.action
    assert "print" not in finding.action
    assert finding.severity == "low"
    assert ranked([finding, replace(finding, id="other", severity="medium")])[1] == finding


def test_a_break_of_the_users_own_comes_before_those_of_packages(tmp_path: Path) -> None:
    """It is the one that can be removed."""
    own = GraphBreak(reason="cannot trace builtin `print`", where="/home/me/model.py:15", times=1)
    theirs = GraphBreak(reason="step_unsupported", where=LIBRARY, times=9)

    finding = graph_breaks(evidence(tmp_path, Compilation(graphs=3, breaks=(theirs, own))))

    assert finding is not None
    assert finding.title == "compiled code breaks at 2 places"
    assert finding.where == "/home/me/model.py:15"
    assert (finding.severity, finding.action[:18]) == ("medium", "take the print out")


def test_a_first_batch_that_takes_long_is_not_blamed_on_compiling(tmp_path: Path) -> None:
    """A sampler that sorts by length: keep its result, and nothing about compilation."""
    made = make_steps(200, data_wait=2, forward=48)
    made[0] = make_steps(1, data_wait=30_000, forward=48)[0]
    summary = summary_of(tmp_path, [RankSpec(steps=made, info=make_info())])

    finding = first_step(Evidence(summary=summary))

    assert finding is not None
    assert finding.advice == "Have the first batch sooner"
    assert finding.evidence[0].startswith("30.0 s of waiting for it")
    assert "sampler" in finding.action
    assert "compil" not in finding.action
    assert finding.fraction == pytest.approx(30.0 / 40.0, rel=0.01)


def test_whole_graphs_are_no_finding(tmp_path: Path) -> None:
    """Compiled, and nothing broke."""
    assert graph_breaks(evidence(tmp_path, compiled(again(0, None)))) is None


def test_compiling_that_has_not_paid_back_is_said_when_it_would(tmp_path: Path) -> None:
    """12 s for steps of 50 ms, which save 21.5 ms each at best known: after 559 steps."""
    document = compiled(again(0, None), walls_s={0: 12.0 + STEP_S})

    finding = compile_latency(evidence(tmp_path, document, fit_s=24.0))

    assert finding is not None
    assert finding.fraction == pytest.approx(0.5, rel=1e-4)
    assert COMPILED_GAIN == 1.43
    assert "after 559 steps; this fit had 200" in finding.evidence[1]


def test_compiling_that_has_paid_back_is_no_finding(tmp_path: Path) -> None:
    """200 steps have saved 4.3 s, and it took 4."""
    document = compiled(again(0, None), walls_s={0: 4.0 + STEP_S})

    assert compile_latency(evidence(tmp_path, document)) is None


def test_a_running_fit_may_yet_pay_back(tmp_path: Path) -> None:
    """It will be longer than it is now."""
    document = compiled(again(0, None), walls_s={0: 12.0 + STEP_S})

    assert compile_latency(evidence(tmp_path, document, end=None)) is None


def test_recompilations_are_not_counted_twice(tmp_path: Path) -> None:
    """They have a finding; what remains is the first compilation."""
    document = compiled(
        again(0, None), again(3), again(9), walls_s={0: 6.0 + STEP_S, 3: 9.0, 9: 9.0}
    )

    finding = compile_latency(evidence(tmp_path, document, fit_s=30.0))

    assert finding is not None
    assert finding.fraction == pytest.approx(6.0 / 30, rel=1e-4)


def test_a_long_first_step_that_was_compiling_is_said_once(tmp_path: Path) -> None:
    """By the rule that knows it was; without a record the other one speaks."""
    document = compiled(again(0, None), walls_s={0: 15.0 + STEP_S})
    known = evidence(tmp_path / "a", document, fit_s=30.0, first_ms=15050)
    unknown = evidence(tmp_path / "b", None, fit_s=30.0, first_ms=15050)

    assert (first_step(known) is None, compile_latency(known) is None) == (True, False)
    assert (first_step(unknown) is None, compile_latency(unknown) is None) == (False, True)
