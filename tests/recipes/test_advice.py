"""The tool chooses what comes next: measured before guessed, then by the report's order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.runs import make_run
from support.walk import Planted, packed, sdpa, small_work, stage, workers

from recipes.gpt2.advice import Advice, MeasuredTrial, next_change
from recipes.gpt2.processes import Planned
from recipes.gpt2.stages import STAGES, Stage
from recipes.gpt2.text import DocumentSpan
from recipes.gpt2.train import Recipe
from recipes.gpt2.walk import directory, walkthrough
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.trials import TrialResult, Trials


LOADER = stage("loader", workers, findings=("data_wait",), words="num_workers=")
PACKED = stage("packed", packed, findings=("padding",))
SDPA = stage("sdpa", sdpa, trials=("attention_sdpa",))
BF16 = stage("bf16", packed, tempting=True)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Three fifths of the step are waited, and a fifth of the tokens are padding."""
    run = make_run(
        tmp_path_factory.mktemp("run"),
        config={"num_workers": 0},
        hardware={"cpu_count": 4},
        facts={"tokens_effective": 80, "tokens_padded": 100},
        data_wait=30,
        forward=20,
    )
    return examine(Run.open(run))


def chosen(evidence: Facts, *stages: Stage, **options: object) -> Advice | None:
    """What comes next among these stages."""
    return next_change(evidence, (), stages, every=False, **options)  # type: ignore[arg-type]


def test_the_first_finding_that_applies_comes_next(evidence: Facts) -> None:
    """In the order of the report, in its words, whatever the order of the stages."""
    first = evidence.summary.findings[0]

    advice = chosen(evidence, SDPA, PACKED, LOADER)

    assert advice.stage == LOADER
    assert first.title in advice.words
    assert first.action in advice.words
    assert advice.source == "report"


def test_from_a_third_of_what_is_lost_to_the_bound_is_expected(evidence: Facts) -> None:
    """As much as 19 of 20 changes of the corpus saved, to the most that the report says."""
    padding = next(each for each in evidence.summary.findings if each.id == "padding")

    advice = chosen(evidence, PACKED)

    assert advice.low == pytest.approx(1 / (1 - padding.fraction / 3))
    assert advice.high == padding.gain_upper_bound


FUSED = MeasuredTrial(id="attention_sdpa", speedup=1.1, low=1.08, high=1.12)
VAIN = MeasuredTrial(id="packing", speedup=1.01, low=1.0, high=1.02)
TRIED_PACKED = stage("packed", packed, findings=("padding",), trials=("packing",))


@pytest.mark.parametrize(
    ("trials", "stages", "options", "stage_", "expected"),
    [
        # What was measured is expected, however much a finding promises.
        ([FUSED], [LOADER, SDPA], {}, SDPA, {"low": 1.08, "high": 1.12}),
        # The change was measured here, and brought 1 %: that silences the finding.
        ([VAIN], [TRIED_PACKED], {}, None, {}),
        # What a noisy machine could not show is not tried.
        ((), [LOADER, PACKED], {"least": 3.0}, None, {}),
        # With no gain expected beyond the limit of the rules.
        ((), [BF16, SDPA], {}, BF16, {"low": None, "source": "silence", "high": 1 / 0.9}),
        # Where the preset wants all, in the order of the table.
        ((), [SDPA, BF16], {"every": True}, SDPA, {}),
    ],
    ids=[
        "a trial outranks every finding",
        "a trial that gained nothing",
        "less than three per cent",
        "a tempting change when nothing is left to advise",
        "all stages after those with advice",
    ],
)
def test_what_comes_next_is_measured_before_it_is_guessed(
    trials: Sequence[MeasuredTrial],
    stages: Sequence[Stage],
    options: dict[str, Any],
    stage_: Stage | None,
    expected: dict[str, Any],
    evidence: Facts,
) -> None:
    """And with what is expected of it."""
    advice = next_change(evidence, trials, stages, **{"every": False, **options})

    assert (advice and advice.stage) == stage_
    assert {name: getattr(advice, name) for name in expected} == pytest.approx(expected)


def test_a_walkthrough_takes_stages_in_the_order_of_the_advice(tmp_path: Path) -> None:
    """Whatever their order in the table."""
    orders = []
    for name, stages in (("one", (LOADER, PACKED)), ("other", (PACKED, LOADER))):
        found = walkthrough(small_work(tmp_path / name), [STAGES[0], *stages], Planted())
        orders.append([each.stage for each in found])
    report = examine(Run.open(tmp_path / "one" / found[0].runs[0])).summary.findings

    assert orders[0] == orders[1]
    assert report[0].id in (LOADER if orders[0][1] == "loader" else PACKED).findings


@dataclass(kw_only=True)
class Tried(Planted):
    """Where trials are asked for, fused attention is measured to gain a fifth."""

    def alone(self, work: Recipe, order: list[DocumentSpan], run: Planned) -> None:
        """Leave `trials.json` too."""
        super().alone(work, order, run)
        if run.also == "trials":
            gain = TrialResult(
                id="attention_sdpa",
                kind="change",
                title="",
                verdict="faster",
                speedup=1.2,
                low=1.15,
                high=1.25,
            )
            write_document(Trials(baseline=None, trials=(gain,)), work.out / directory(run))


def test_trials_are_run_where_no_finding_is_left(tmp_path: Path) -> None:
    """In the settings kept last, and what they measure is what is expected, but for the scatter."""
    planted = Tried(step_ms=lambda settings: 10.0 if settings.attention == "eager" else 8.3)
    work = replace(small_work(tmp_path), trial_minutes=1.0)
    work = replace(work, preset=replace(work.preset, every=False))

    outcomes = walkthrough(work, [STAGES[0], SDPA, LOADER], planted)

    assert [each.stage for each in outcomes] == ["baseline", "loader", "sdpa"]
    assert "trials/loader" in [name for name, _ in planted.trained]
    prediction = outcomes[-1].prediction
    assert (prediction.source, prediction.expected) == ("trial", (1.15, 1.25))
    assert prediction.low < 1.15
    assert outcomes[-1].inside is True
