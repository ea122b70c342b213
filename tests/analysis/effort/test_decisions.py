"""Return on effort: planted shares come back as Amdahl's gains, ranked by what they return."""

import math
from collections.abc import Sequence

import msgspec
import pytest
from support.runs import RankSpec, make_gap, make_info, make_steps, summary_of
from support.tried import AUTOCAST

from trainperf.analysis.effort.decisions import decisions, with_estimates
from trainperf.analysis.effort.estimates import Estimates, PartEstimate
from trainperf.analysis.rules.measured import with_measured_gain
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError
from trainperf.core.findings import DAYS, Decision, Effort, Finding, Scope, amdahl, ranked
from trainperf.core.phases import Gap


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """Steps of 50 ms, of which 20 are data wait and 30 forward; a fifth of the fit is a gap."""
    steps = make_steps(200, data_wait=20, forward=30)
    gap = make_gap(Gap.VALIDATION, 2500, after_step=150)
    info = make_info(config={"num_workers": 0})
    spec = RankSpec(steps=steps, gaps=[gap], info=info)
    return summary_of(tmp_path_factory.mktemp("planted"), [spec])


def finding(
    id_: str,
    fraction: float | None,
    effort: Effort = "hours",
    *,
    scope: Scope = "step",
    urgent: bool = False,
) -> Finding:
    """A finding with Amdahl's bound."""
    return Finding(
        id=id_,
        title=id_,
        advice="Do it",
        evidence=(),
        action="do it",
        fraction=fraction,
        gain_upper_bound=None if fraction is None else amdahl(fraction),
        effort=effort,
        scope=scope,
        urgent=urgent,
    )


def table(
    summary: Summary, findings: Sequence[Finding], **parts: PartEstimate
) -> dict[str, Decision]:
    """The decision table of the run as if it had those findings, by part, in its order."""
    own = msgspec.structs.replace(summary, findings=tuple(findings))
    rows = decisions(own, Estimates(file="effort.toml", parts=parts))
    return {row.part: row for row in rows}


@pytest.mark.parametrize(
    ("fraction", "speedup", "gain"),
    [(0.4, 4.0, 1 / 0.7), (0.4, math.inf, 1 / 0.6), (0.4, 1.0, 1.0), (1.0, 2.0, 2.0)],
)
def test_amdahls_law_takes_a_finite_speed_up(fraction: float, speedup: float, gain: float) -> None:
    """1 / ((1 - p) + p / s)."""
    assert amdahl(fraction, speedup) == pytest.approx(gain)
    assert amdahl(1.0) is None


def test_planted_shares_come_back_as_gains_and_returns(planted: Summary) -> None:
    """Two fifths of a step wait for data; steps are four fifths of the fit."""
    row = {each.part: each for each in planted.decisions}["data_wait"]
    own = next(each for each in planted.findings if each.id == "data_wait")

    assert row.fraction == own.fraction == pytest.approx(0.4)
    assert row.ceiling == own.gain_upper_bound
    assert row.gain is not None
    assert row.speedup is not None
    assert row.gain == pytest.approx(1 / (1 - 0.4 + 0.4 / row.speedup))
    assert row.saved_fraction == pytest.approx((1 - 1 / row.gain) * 0.8)
    assert row.return_per_day == pytest.approx((row.saved_fraction or 0.0) / row.days)


def test_the_belief_is_the_one_that_findings_are_ranked_by(planted: Summary) -> None:
    """In the middle of the usual range, so that one report has one expected gain."""
    own = next(each for each in planted.findings if each.id == "data_wait")
    row = next(each for each in planted.decisions if each.part == "data_wait")

    assert own.expected_gain is not None
    assert row.basis == "scripts"
    low, high = own.expected_gain
    assert low < (row.gain or 0.0) < high


def test_no_belief_is_above_the_bound_of_its_finding(planted: Summary) -> None:
    """One fact, one number: what is believed and what is possible do not contradict."""
    rows = [each for each in planted.decisions if each.ceiling is not None]

    assert rows
    assert all((row.gain or 0.0) <= (row.ceiling or 0.0) for row in rows)


def test_a_guess_is_half_of_the_part_gone(planted: Summary) -> None:
    """Where neither a trial nor scripts say more."""
    row = table(planted, [finding("x", 0.3)])["x"]

    assert (row.basis, row.speedup) == ("guess", pytest.approx(2.0))
    assert row.gain == pytest.approx(1 / 0.85)


@pytest.mark.parametrize("effort", ["minutes", "hours", "days"])
def test_a_label_counts_as_so_many_days(planted: Summary, effort: Effort) -> None:
    """By round figures."""
    row = table(planted, [finding("x", 0.3, effort)])["x"]

    assert row.days == DAYS[effort]
    assert row.return_per_day == pytest.approx(0.15 * 0.8 / DAYS[effort])


def test_the_order_is_by_return_and_not_by_gain(planted: Summary) -> None:
    """Three days for the larger gain come after minutes for the smaller one."""
    findings = ranked([finding("large", 0.4, "days"), finding("small", 0.1, "minutes")])

    assert [each.id for each in findings] == ["large", "small"]
    assert list(table(planted, findings)) == ["small", "large"]


def test_gains_of_the_fit_and_of_a_step_are_compared_over_the_fit(planted: Summary) -> None:
    """A fifth of the fit is more than a fifth of its steps."""
    rows = table(planted, [finding("step", 0.2), finding("fit", 0.2, scope="fit")])

    assert list(rows) == ["fit", "step"]
    assert rows["fit"].saved_fraction == pytest.approx(0.1)
    assert rows["step"].saved_fraction == pytest.approx(0.08)


def test_what_is_urgent_comes_first_and_what_is_not_known_last(planted: Summary) -> None:
    """A leak returns nothing that can be divided by days."""
    rows = table(
        planted,
        [finding("unknown", None), finding("known", 0.1), finding("leak", None, urgent=True)],
    )

    assert list(rows) == ["leak", "known", "unknown"]
    assert rows["unknown"].gain is rows["unknown"].return_per_day is None


def test_a_finding_that_only_explains_has_no_row(planted: Summary) -> None:
    """There is nothing to decide."""
    assert table(planted, [finding("data_hidden", 0.0)]) == {}


def test_a_measured_gain_says_how_much_faster_the_part_got(planted: Summary) -> None:
    """Of half the step 1.38 times faster as a whole: the half takes 0.4493 of what it took."""
    tried = with_measured_gain(finding("matmul_precision", 0.5), [AUTOCAST])
    row = table(planted, [tried])["matmul_precision"]

    assert tried.measured_gain is not None
    assert (row.basis, row.gain) == ("measured", tried.measured_gain.speedup)
    assert amdahl(0.5, row.speedup or math.inf) == pytest.approx(row.gain)


def test_a_change_that_learns_otherwise_returns_nothing(planted: Summary) -> None:
    """However fast it is."""
    differs = msgspec.structs.replace(AUTOCAST, verdict="loss differs")
    advised = msgspec.structs.replace(finding("matmul_precision", 0.5), action=AUTOCAST.apply)
    row = table(planted, [with_measured_gain(advised, [differs])])["matmul_precision"]

    assert row.basis == "measured"
    assert row.gain is row.return_per_day is None


def test_estimates_take_the_place_of_defaults(planted: Summary) -> None:
    """And only they: the share stays measured."""
    own = PartEstimate(speedup=4.0, days=2.0)
    row = table(planted, [finding("x", 0.4)], x=own)["x"]

    assert (row.speedup, row.days, row.basis, row.days_estimated) == (4.0, 2.0, "estimate", True)
    assert row.gain == pytest.approx(1 / 0.7)
    assert row.return_per_day == pytest.approx(0.3 * 0.8 / 2)


def test_a_part_of_ones_own_has_the_share_of_its_phase(planted: Summary) -> None:
    """Forward takes three fifths of the planted step."""
    own = PartEstimate(phase="forward", speedup=math.inf, days=5.0)
    row = table(planted, [], my_kernel=own)["my_kernel"]

    assert row.fraction == pytest.approx(0.6)
    assert row.speedup is None
    assert row.gain == row.ceiling == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("name", "estimate", "why"),
    [
        ("data_wiat", PartEstimate(speedup=2.0), "did you mean data_wait"),
        ("mine", PartEstimate(share=0.2, days=1.0), "needs speedup and days"),
        ("mine", PartEstimate(phase="fwd", speedup=2.0, days=1.0), "no phase that was measured"),
        ("x", PartEstimate(share=0.2), "the run says 40 % of the step"),
    ],
)
def test_an_estimate_of_nothing_is_refused(
    planted: Summary, name: str, estimate: PartEstimate, why: str
) -> None:
    """With what to do instead."""
    with pytest.raises(ConfigError, match=why):
        table(planted, [finding("x", 0.4)], **{name: estimate})


def test_an_estimate_of_a_finding_that_the_run_does_not_have_is_named(planted: Summary) -> None:
    """The file may be of another run."""
    own = Estimates(file="effort.toml", parts={"attention": PartEstimate(days=1.0)})

    (warning,) = with_estimates(planted, own).warnings
    assert "attention" in warning
