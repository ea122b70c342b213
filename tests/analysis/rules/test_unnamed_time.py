"""Time in no phase: whose it is, and what a loop that brackets only a part of its work is told."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.runs import RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.fit.noisy_run import noisy_run
from trainperf.analysis.rules.host.unnamed_time import unnamed_time
from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.findings import Finding
from trainperf.core.phases import Tag
from trainperf.core.steps.records import RunInfo, Scalar, StepRecord


def plain(*missing: str) -> RunInfo:
    """Of a plain loop that brackets all its work but this."""
    reasons = {f"phase_{label}_s": "not measured" for label in missing}
    return make_info(config={"loop": "plain"}, reasons=reasons)


def finding_of(path: Path, info: RunInfo, **ms: float) -> Finding | None:
    """About two hundred steps of so many milliseconds per phase."""
    spec = RankSpec(steps=make_steps(200, **ms), info=info)
    return unnamed_time(Evidence(summary=summary_of(path, [spec])))


@pytest.mark.parametrize(
    "missing", [("backward",), ("forward", "backward"), ("forward", "backward", "optimizer")]
)
def test_a_loop_that_does_not_bracket_all_its_work_is_told_what_to_bracket(
    missing: tuple[str, ...], tmp_path: Path
) -> None:
    """More than half of the step is in no phase: it may well be the work itself."""
    bracketed = {} if "optimizer" in missing else {"optimizer": 9.0}
    finding = finding_of(tmp_path, plain(*missing), **bracketed, other=11)

    assert finding is not None
    assert "of the step is outside every phase; not bracketed: " in finding.title
    assert finding.advice == f"Bracket {', '.join(missing)}"
    assert finding.gain_upper_bound is None
    assert finding.fraction is None
    assert finding.severity == "low"
    assert 'monitor.phase("backward")' in finding.action


def test_a_loop_with_all_its_work_in_phases_has_a_bound_for_the_rest(tmp_path: Path) -> None:
    """What has to stay goes into a phase of its own."""
    finding = finding_of(tmp_path, plain(), forward=4, backward=4, optimizer=1, other=11)

    assert finding is not None
    assert finding.fraction == pytest.approx(11 / 20)
    assert 'monitor.phase("callbacks")' in finding.action


def test_a_trainers_user_is_told_where_that_code_is(tmp_path: Path) -> None:
    """Without a line it can only be what runs between the fetch and the model's call."""
    info = make_info(config={"loop": "huggingface"})
    finding = finding_of(tmp_path, info, forward=4, backward=4, optimizer=1, other=11)

    assert finding is not None
    assert "training_step, compute_loss and _prepare_inputs" in finding.action
    assert "every n-th step" not in finding.action


def test_little_in_no_phase_needs_no_brackets(tmp_path: Path) -> None:
    """Backward in phase("forward") is split where it matters only."""
    assert finding_of(tmp_path, plain("backward"), forward=19, optimizer=1, other=1) is None


def test_steps_after_validation_are_not_subtracted_from_a_mean_that_lacks_them(
    tmp_path: Path,
) -> None:
    """15 of 35 ms in no phase, and steps after validation spend a second there too."""
    after = {40, 97, 150, 222, 301}
    steps = [
        make_step(
            i,
            tags=int(Tag.WARMUP) * (i < 12) | int(Tag.AFTER_VALIDATION) * (i in after),
            forward=20,
            other=1000 if i in after else 15,
        )
        for i in range(400)
    ]
    summary = summary_of(tmp_path, [RankSpec(steps=steps)])
    finding = unnamed_time(Evidence(summary=summary))

    assert summary.slow_steps is not None
    assert summary.slow_steps.tag == "after_validation"
    assert finding is not None
    assert finding.fraction == pytest.approx(15 / 35)


@pytest.mark.parametrize(("together_ms", "is_named"), [(3.0, False), (30.0, True)])
def test_a_wait_for_a_late_rank_is_not_work_without_a_name(
    tmp_path: Path, *, together_ms: float, is_named: bool
) -> None:
    """Rank 0 is 33 ms in no phase, as a Trainer that gathers its token counts before forward.

    Where the late rank is there for 3 ms, the other 30 are its wait; for 30, it is work of both.
    """
    specs = []
    for rank, other in enumerate((33.0, together_ms)):
        steps = make_steps(200, forward=20, backward=20, data_wait=36 - other, other=other)
        info = make_info(rank=rank, world_size=2, config={"loop": "huggingface"})
        specs.append(RankSpec(steps=steps, info=info))
    meeting = SyncPoint(
        point="other",
        n=188,
        wait_s=(0.033, together_ms / 1e3),
        transfer_s=together_ms / 1e3,
        skew_s=0.033 - together_ms / 1e3,
        lost_s=0.033 - together_ms / 1e3,
        straggler=None,
        late_fraction=0.0,
        late_s=None,
        cause=None,
        cause_s=None,
    )
    summary = replace(summary_of(tmp_path, specs), synchronisation=(meeting,))
    finding = unnamed_time(Evidence(summary=summary))

    assert (finding is not None) is is_named
    if finding is not None:
        assert finding.fraction == pytest.approx(30 / 76)


def varying(path: Path, info: RunInfo, *, slow_every: int = 1000, other: float = 0) -> Summary:
    """Steps of 10 to 18 ms, and slow ones of 100."""

    def step(index: int) -> StepRecord:
        forward = 100 if index % slow_every == 0 else 10 + 2 * (index % 7 * 3 % 5)
        return make_step(index, tags=int(index < 12), forward=forward, other=other)

    return summary_of(path, [RankSpec(steps=[step(index) for index in range(800)], info=info)])


@pytest.mark.parametrize("slow_every", [100, 20, 4])
def test_slow_steps_explain_noise_only_where_they_are_many(slow_every: int, tmp_path: Path) -> None:
    """One in a hundred leaves the middle half as wide as it is; one in four widens it."""
    summary = varying(tmp_path, plain(), slow_every=slow_every)

    assert summary.slow_steps is not None
    assert (noisy_run(Evidence(summary=summary)) is not None) == (slow_every > 5)


def test_a_loop_without_brackets_may_be_noisy(tmp_path: Path) -> None:
    """Nobody can tell there what is unnamed; what to bracket comes first."""
    summary = varying(tmp_path, plain("forward", "backward", "optimizer"), other=5)

    assert [finding.id for finding in summary.findings] == ["unnamed_time", "noisy_run"]


def test_unnamed_time_in_a_noisy_run_comes_alone_and_is_less_certain(tmp_path: Path) -> None:
    """The steps vary all the same."""
    (finding,) = varying(tmp_path, plain(), other=6).findings

    assert finding.id == "unnamed_time"
    assert finding.confidence == "low"


def from_outside(path: Path, config: dict[str, Scalar], **ms: float) -> dict[str, Finding]:
    """What is said of two hundred steps of a loop that was recorded from outside."""
    spec = RankSpec(
        steps=make_steps(200, **ms), info=make_info(config={"loop": "outside", **config})
    )
    return {finding.id: finding for finding in summary_of(path, [spec]).findings}


def test_where_nobody_saw_a_loader_the_time_before_forward_is_the_loops_own(tmp_path: Path) -> None:
    """An average of weights after the update is no data to wait for, and needs no workers."""
    findings = from_outside(tmp_path, {"loader": "NoneType"}, data_wait=10, forward=20, backward=10)

    assert "data_wait" not in findings
    finding = findings["unnamed_time"]
    assert finding.fraction == pytest.approx(10 / 40)
    assert "between the update and the next forward" in finding.title
    assert "phase_data_wait_s" in finding.confirm


def test_where_a_loader_was_seen_it_may_be_waited_for(tmp_path: Path) -> None:
    """What else is there is part of an upper bound."""
    loader: dict[str, Scalar] = {"loader": "DataLoader", "num_workers": 0}
    findings = from_outside(tmp_path, loader, data_wait=10, forward=20, backward=10)

    assert "unnamed_time" not in findings
    assert findings["data_wait"].title.startswith("up to ")


def test_work_on_gradients_is_not_to_be_left_out(tmp_path: Path) -> None:
    """Clipping in every n-th step would be another training; nothing tells it from a log."""
    finding = finding_of(tmp_path, plain(), forward=4, backward=4, optimizer=1, other=11)

    assert finding is not None
    assert "if it changes gradients or weights, one call for all of them" in finding.action
    assert "if it only watches, every n-th step" in finding.action
