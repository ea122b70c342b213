"""What was tried ranks the findings, and is shown in place of bounds."""

from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_steps
from support.tried import AUTOCAST, FREE_LOADER, TOGETHER, tried

from trainperf.analysis.rules.measured import with_measured_gain
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.trials_beside import trials_beside
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.findings import Finding, amdahl, ranked
from trainperf.reports.layout.finding_view import finding_view, to_act_on
from trainperf.reports.run.run_view import headline


WORKERS = TrialResult(
    id="workers_2",
    kind="change",
    title="2 workers",
    verdict="faster",
    speedup=1.2,
    low=1.15,
    high=1.25,
    apply="DataLoader(…, num_workers=2)",
    rules=("data_wait",),
    pairs=16,
)


def finding(id_: str, lost: float, action: str = "do it") -> Finding:
    """A finding with Amdahl's bound."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action=action,
        fraction=lost,
        gain_upper_bound=amdahl(lost),
    )


def changed(trial: TrialResult, **fields: object) -> TrialResult:
    """The trial with other fields."""
    return msgspec.structs.replace(trial, **fields)


def summary(path: Path, trials: Trials | None, config: dict[str, int] | None = None) -> Summary:
    """Of steps of 50 ms that wait 20 ms for data, with these trials."""
    return summarize(run(path, trials, config))


def run(path: Path, trials: Trials | None, config: dict[str, int] | None = None) -> Run:
    """The run itself."""
    info = make_info(device="cpu", config=config or {"num_workers": 0})
    steps = make_steps(200, data_wait=20, forward=30)
    directory = make_run_dir(path, [RankSpec(steps=steps, info=info)])
    if trials is not None:
        write_document(trials, directory)
    return Run.open(directory)


def test_a_measured_gain_is_shown_in_place_of_the_bound_with_its_line() -> None:
    """And it says what it stands on."""
    shown = finding_view(with_measured_gain(finding("matmul_precision", 0.5), [AUTOCAST]))

    assert shown.gain == "measured 1.38× [1.33–1.43]"
    assert shown.text("next") == 'precision="bf16-mixed" (Trainer(…))'
    assert "AMP in bf16 was tried: faster, 1.38× as fast" in shown.evidence[0]


def test_the_advice_is_the_change_that_was_measured() -> None:
    """A number that belongs to workers never stands behind a cheaper dataset, nor at its line."""
    advice = msgspec.structs.replace(
        finding("data_wait", 0.4, "cache what is decoded"), where="data.py:7", effort="hours"
    )

    measured = with_measured_gain(advice, [WORKERS])

    assert (measured.advice, measured.action) == ("Switch to 2 workers", WORKERS.apply)
    assert (measured.where, measured.effort, measured.confidence) == ("", "minutes", "high")


def test_what_gained_nothing_is_never_what_to_do_first() -> None:
    """Though half of the step might have been gained, and the other is only a twentieth."""
    slower = changed(AUTOCAST, verdict="slower", speedup=0.9, low=0.88, high=0.92)
    findings = [finding("matmul_precision", 0.5, "bf16-mixed"), finding("other", 0.05)]

    order = ranked([with_measured_gain(each, [slower]) for each in findings])

    assert [each.id for each in order] == ["other", "matmul_precision"]
    assert [each.id for each in to_act_on(order)] == ["other"]
    slower = changed(AUTOCAST, apply='precision="bf16-mixed"', verdict="slower", speedup=0.9)
    only = with_measured_gain(findings[0], [slower])
    assert to_act_on([only]) == []
    assert finding_view(only).gain.startswith("tried: 0.90× ")


def test_measured_gains_rank_by_what_was_measured() -> None:
    """The larger bound comes second."""
    findings = [finding("data_wait", 0.6), finding("matmul_precision", 0.3)]

    order = ranked([with_measured_gain(each, [AUTOCAST, WORKERS]) for each in findings])

    assert [each.id for each in order] == ["matmul_precision", "data_wait"]


def test_a_trial_of_another_kind_of_change_refutes_nothing() -> None:
    """That workers are slower says nothing of a cheaper dataset; the evidence still has it."""
    slower = changed(WORKERS, verdict="slower", speedup=0.9, low=0.88, high=0.92)

    cheaper = with_measured_gain(finding("data_wait", 0.4, "cache what is decoded"), [slower])

    assert cheaper.measured_gain is None
    assert "2 workers was tried: slower" in cheaper.evidence[0]


ONE_SLOWER = changed(
    WORKERS,
    id="workers_1",
    title="1 worker",
    verdict="slower",
    speedup=0.9,
    low=0.88,
    high=0.92,
    apply="DataLoader(…, num_workers=1)",
)


def test_workers_that_gained_nothing_are_not_advised(tmp_path: Path) -> None:
    """The loader still costs what it costs: its samples must get cheaper, and it stays on top."""
    before = summary(tmp_path / "before" / "trainperf", None).findings[0]
    useless = changed(WORKERS, verdict="undecided", speedup=1.0, low=0.97, high=1.03)

    after = summary(tmp_path / "after" / "trainperf", tried(ONE_SLOWER, useless)).findings[0]

    assert "num_workers=" in before.action
    assert (before.id, after.id) == ("data_wait", "data_wait")
    assert "worker" not in after.action
    assert after.advice == "Make a sample cheaper"
    assert any("1 worker was tried: slower" in each for each in after.evidence)
    assert "; ".join(after.evidence).count("was tried") == 2, "each is said once"
    assert after.measured_gain is None


def test_one_number_of_workers_that_is_slower_refutes_no_other(tmp_path: Path) -> None:
    """Two may still gain a tenth, so they stay the advice."""
    open_ = changed(WORKERS, verdict="undecided", speedup=1.04, low=0.98, high=1.1)

    read = summary(tmp_path / "trainperf", tried(ONE_SLOWER, open_)).findings[0]

    assert "num_workers=" in read.action


def test_a_change_of_the_loss_or_a_vague_interval_is_no_gain() -> None:
    """The one goes to the end, the other decides nothing."""
    differs = changed(AUTOCAST, verdict="loss differs")
    vague = changed(AUTOCAST, verdict="undecided", low=0.5, high=2.0)
    advice = finding("matmul_precision", 0.5, 'precision="bf16-mixed"')

    assert finding_view(with_measured_gain(advice, [differs])).gain.endswith("here, loss differs")
    assert with_measured_gain(advice, [vague]).measured_gain is None


def test_a_ceiling_bounds_the_findings_of_its_family_and_a_set_none() -> None:
    """Where it is tighter than Amdahl's law."""
    bounded = with_measured_gain(finding("data_wait", 0.5), [FREE_LOADER])
    loose = with_measured_gain(finding("data_wait", 0.1), [FREE_LOADER])

    assert bounded.gain_upper_bound == FREE_LOADER.high
    assert bounded.fraction == pytest.approx(1 - 1 / 1.31)
    assert loose.gain_upper_bound == amdahl(0.1)
    assert with_measured_gain(finding("matmul_precision", 0.5), [TOGETHER]).measured_gain is None


def test_the_report_takes_trials_of_the_run_itself(tmp_path: Path) -> None:
    """A change that no rule advises has a finding of its own, and leads where it gains most."""
    read = summary(tmp_path / "trainperf", tried(AUTOCAST, WORKERS, FREE_LOADER))

    findings = {each.id: each for each in read.findings}
    assert read.findings[0].id == "measured_change"
    assert "First: switch to AMP in bf16 — measured 1.38× [1.33–1.43]." in headline(read)
    assert findings["data_wait"].measured_gain is not None
    assert findings["data_wait"].action == "DataLoader(…, num_workers=2)"
    assert findings["data_wait"].gain_upper_bound == FREE_LOADER.high


@pytest.mark.parametrize("place", ["trainperf-1", "try/trainperf", "runs/try-1/trainperf"])
def test_trials_of_the_same_training_in_another_run_count_too(place: str, tmp_path: Path) -> None:
    """And where they are from is said."""
    run(tmp_path / place, tried(WORKERS))

    read = summary(tmp_path / "trainperf", None)

    found = next(each for each in read.findings if each.id == "data_wait")
    assert found.measured_gain is not None
    assert read.trials_from == str(tmp_path / place)
    assert any(f"2 workers was tried in {tmp_path / place}: faster" in it for it in found.evidence)


def test_trials_of_another_training_do_not_count(tmp_path: Path) -> None:
    """Other settings, or steps that take another time; of several trials the newest."""
    run(tmp_path / "try" / "trainperf", tried(WORKERS), {"num_workers": 4})
    slow = msgspec.structs.replace(tried(WORKERS).baseline, step_s=0.2)
    run(tmp_path / "try" / "trainperf-1", msgspec.structs.replace(tried(), baseline=slow))

    assert trials_beside(run(tmp_path / "trainperf", None), 0.05) is None
