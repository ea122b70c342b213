"""One fault twice: large enough to be told, and just too small, too rare or too far away."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.audits import evidence_of, product, use
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.compiler.compile_latency import compile_latency
from trainperf.analysis.rules.compiler.first_step import first_step
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_bound import host_bound
from trainperf.analysis.rules.host.launch_bound import launch_bound
from trainperf.analysis.rules.operators.autocast_casts import autocast_casts
from trainperf.analysis.rules.operators.channels_last import channels_last
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep
from trainperf.core.artifacts.folder import Documents


H100 = "NVIDIA H100 80GB HBM3"
BACKWARD = product("mm", 30.0, part="backward", line="net.py:9")
UPDATE = use("_fused_adamw_", 10.0, part="optimizer", line="fit.py:3")


def tiny(ms: float, calls: int) -> OperatorUse:
    """Operators that compute next to nothing."""
    return use("add", ms, calls=calls, shapes=((4, 16),))


@pytest.mark.parametrize(
    ("uses", "forward", "fires"),
    [
        ((tiny(25.0, 1500),), 25.0, True),
        # A fifth of the step: many, and not what it waits for.
        ((tiny(10.0, 1500),), 10.0, False),
        # A quarter of a millisecond each is no launch, whatever their sizes.
        ((tiny(25.0, 90),), 25.0, False),
        # Large operators are more.
        ((tiny(25.0, 1500), product("addmm", 0.001, calls=2000, flops=3 * 10**10)), 25.0, False),
    ],
)
def test_launching_is_told_from_a_third_of_the_step_in_many_operators_on(
    tmp_path: Path, uses: tuple[OperatorUse, ...], forward: float, *, fires: bool
) -> None:
    """Beside a backward of one product and a fused update."""
    known = evidence_of(
        tmp_path, [*uses, BACKWARD, UPDATE], forward=forward, backward=30.0, optimizer=10.0
    )

    assert (launch_bound(known) is not None) is fires


@pytest.mark.parametrize(("stalled_ms", "fires"), [(0.0, True), (3.0, False)])
def test_a_device_that_starves_in_the_loader_is_not_called_host_bound(
    tmp_path: Path, stalled_ms: float, *, fires: bool
) -> None:
    """It has caught up with the host for a reason of its own: 12 % of the step."""
    facts = {
        "lead_forward": 0,
        "lead_backward": 0,
        "data_stall_ns": round(stalled_ms * 1e6),
    }
    steps = make_steps(200, facts=facts, data_wait=3, forward=22)
    spec = RankSpec(steps=steps, info=make_info(device="cuda"))

    assert (host_bound(Evidence(summary=summary_of(tmp_path, [spec]))) is not None) is fires


def compiling(path: Path, cost_s: float, fit_s: float, *, steps: int = 60) -> Evidence:
    """A fit that compiles for so long in its first step; later ones take 50 ms."""
    first = Compiled(function="f", where="a.py:3", step=0, seconds=cost_s, reason=None)
    walls = (CompiledStep(step=0, wall_s=cost_s + 0.05),)
    document = Compilation(graphs=1, compile_s=cost_s, compiled=(first,), steps=walls)
    spec = RankSpec(steps=make_steps(steps, forward=50), fit_ns=round(fit_s * 1e9))
    summary = summary_of(path, [spec])
    return Evidence(summary=summary, documents=Documents(compilation=document))


@pytest.mark.parametrize(
    ("cost_s", "fit_s", "fires"),
    [(12.0, 24.0, True), (0.9, 4.0, False), (12.0, 200.0, False)],
)
def test_compiling_is_told_from_a_second_and_a_tenth_of_the_fit_on(
    tmp_path: Path, cost_s: float, fit_s: float, *, fires: bool
) -> None:
    """None of the three has paid back."""
    assert (compile_latency(compiling(tmp_path, cost_s, fit_s)) is not None) is fires


@pytest.mark.parametrize(
    ("first_s", "fit_s", "fires"), [(15.0, 30.0, True), (9.0, 30.0, False), (15.0, 200.0, False)]
)
def test_a_first_step_is_told_from_ten_seconds_and_a_tenth_of_the_fit_on(
    tmp_path: Path, first_s: float, fit_s: float, *, fires: bool
) -> None:
    """Nothing was recorded of a compiler."""
    steps = make_steps(60, forward=50)
    steps[0] = make_steps(1, forward=first_s * 1e3)[0]
    spec = RankSpec(steps=steps, fit_ns=round(fit_s * 1e9))

    assert (first_step(Evidence(summary=summary_of(tmp_path, [spec]))) is not None) is fires


def test_a_compilation_that_explains_little_of_a_first_step_does_not_silence_it(
    tmp_path: Path,
) -> None:
    """Two of fifteen seconds."""
    steps = make_steps(60, forward=50)
    steps[0] = make_steps(1, forward=15_000)[0]
    summary = summary_of(tmp_path / "a", [RankSpec(steps=steps, fit_ns=30 * 10**9)])
    little = compiling(tmp_path / "b", 2.0, 30.0).documents

    assert first_step(Evidence(summary=summary, documents=little)) is not None


@pytest.mark.parametrize(("share_of_work", "fires"), [(0.2, True), (0.05, False)])
def test_convolutions_are_told_from_a_tenth_of_the_step_on(
    tmp_path: Path, share_of_work: float, *, fires: bool
) -> None:
    """By their floors: a gigabyte moved by them, and so many times more by others."""
    image = product(
        "convolution", channels_last=False, precision="bf16", memory_bytes=10**9, line="net.py:3"
    )
    others = product("mm", precision="bf16", memory_bytes=round(10**9 * (1 / share_of_work - 1)))
    known = evidence_of(tmp_path, [image, others], device="cuda", chip=H100)

    assert (channels_last(known) is not None) is fires


@pytest.mark.parametrize(
    ("calls", "micro_batches", "words"),
    [
        (4, 4, "in every micro-batch"),
        (4, 1, "where it is made"),
        (1, 4, "where it is made"),
    ],
)
def test_casts_are_the_micro_batches_only_where_each_of_them_repeats_them(
    tmp_path: Path, calls: int, micro_batches: int, words: str
) -> None:
    """Not in a step of one, nor a cast that is made once."""
    casts = use("_to_copy", 15.0, kind="copy", calls=calls, result_dtype="bf16")
    known = evidence_of(tmp_path, [casts, BACKWARD, UPDATE], micro_batches=micro_batches)

    finding = autocast_casts(known)

    assert finding is not None
    assert words in finding.action


def reading(path: Path, *, device: str, read_ms: float = 0.0) -> Evidence:
    """A loop of sixty reads and sixty sums in a step of sixty milliseconds."""
    read = use("_local_scalar_dense", read_ms / 2, calls=60, line="train.py:21")
    added = use("add", read_ms / 2, calls=60, line="train.py:22")
    rest = product("addmm", 20.0 - read_ms, flops=10**6, line="net.py:5")
    return evidence_of(path, [rest, read, added, BACKWARD, UPDATE], device=device)


def test_a_loop_over_values_that_takes_little_is_left_alone(tmp_path: Path) -> None:
    """Ten of sixty milliseconds are told, three are not."""
    assert hidden_syncs(reading(tmp_path / "a", device="cpu", read_ms=10.0)) is not None
    assert hidden_syncs(reading(tmp_path / "b", device="cpu", read_ms=3.0)) is None


def test_reads_on_a_device_are_counted_in_the_title_and_told_what_to_do(tmp_path: Path) -> None:
    """Without a trace nobody knows what they cost."""
    finding = hidden_syncs(reading(tmp_path, device="cuda"))

    assert finding is not None
    assert finding.title == "60 reads per step make the host wait"
    assert finding.action.startswith("keep it a tensor")
    assert finding.evidence[0] == "train.py:21: _local_scalar_dense, 60 times per step"


def test_a_wait_that_only_settings_tell_of_has_no_count(tmp_path: Path) -> None:
    """The title then says no more than that."""
    known = evidence_of(tmp_path, [BACKWARD], device="cuda")
    steps = make_steps(60, forward=20)
    info = make_info(device="cuda", config={"prog_bar_metrics": "loss"})
    summary = summary_of(tmp_path / "again", [RankSpec(steps=steps, info=info)])

    finding = hidden_syncs(replace(known, summary=summary))

    assert finding is not None
    assert finding.title == "the host waits for the device in every step"
