"""A change is kept only if it is proved, and nothing is foretold afterwards."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.walk import Planted, packed, sdpa, small_work, stage, workers

from recipes.gpt2 import bounds
from recipes.gpt2.outcomes import Prediction, StageOutcome
from recipes.gpt2.stages import Settings, Stage
from recipes.gpt2.time_budget import TimeBudget
from recipes.gpt2.walk import walkthrough
from trainperf.analysis.run.directory import Run
from trainperf.core.steps.records import RunInfo
from trainperf.testing import FakeClock


BASELINE = stage("baseline", lambda kept: kept)
LOADER = stage("loader", workers, bound=bounds.one_worker, findings=("data_wait",))
PACKED = stage("packed", packed, bound=bounds.packing, findings=("padding",))
SDPA = stage("sdpa", sdpa)


def walked(
    out: Path, planted: Planted, *stages: Stage, minutes: float = 60.0
) -> dict[str, StageOutcome]:
    """Outcomes by stage, after a baseline."""
    found = walkthrough(small_work(out, minutes=minutes), [BASELINE, *stages], planted)
    return {one.stage: one for one in found}


def began(out: Path, run: str) -> str:
    """When a run began, by its own word."""
    info: RunInfo = Run.open(out / run).info
    return info.started_at


def test_a_faster_stage_with_the_same_loss_is_kept(tmp_path: Path) -> None:
    """Ten milliseconds, and two of waiting that go away: 1.2 times as fast."""
    found = walked(tmp_path, Planted(), LOADER)["loader"]

    assert found.status == "kept"
    assert found.speedup.value == pytest.approx(1.2, rel=0.01)
    assert found.cumulative == found.speedup.value


@pytest.mark.parametrize(
    ("step_ms", "loss", "verdict", "why"),
    [
        (20.0, 2.0, "slower", "slower: 0.55× as fast"),
        # Twice as fast and 10 % off: the loss overrules.
        (5.0, 2.2, "loss differs", "loss differs, so speed does not count"),
    ],
)
def test_what_is_slower_or_learns_something_else_is_rejected(
    step_ms: float, loss: float, verdict: str, why: str, tmp_path: Path
) -> None:
    """With its factor, and gains nothing."""
    planted = Planted(
        step_ms=lambda settings: step_ms if settings.packed else 10.0,
        loss=lambda settings: loss if settings.packed else 2.0,
    )

    found = walked(tmp_path, planted, PACKED)["packed"]

    assert (found.status, found.verdict, found.cumulative) == ("rejected", verdict, 1.0)
    assert why in found.why


def test_each_stage_builds_on_the_last_one_that_was_kept(tmp_path: Path) -> None:
    """A rejected packing is in no later run but its own."""
    planted = Planted(step_ms=lambda settings: 20.0 if settings.packed else 10.0)

    loader, packing = stage("loader", workers), stage("packed", packed)
    found = walked(tmp_path, planted, loader, packing, SDPA)

    assert [one.status for one in found.values()] == ["baseline", "kept", "rejected", "rejected"]
    assert found["packed"].settings == Settings(workers=1, packed=True)
    assert found["sdpa"].settings == Settings(workers=1, attention="sdpa")
    beside = {name: tried for name, tried in planted.trained if name.startswith("sdpa/loader")}
    assert set(beside.values()) == {Settings(workers=1)}


def test_a_stage_is_measured_in_turns_with_what_was_kept(tmp_path: Path) -> None:
    """Pair by pair, what was kept before what is new."""
    planted = Planted(step_ms=lambda settings: 9.9 if settings.packed else 10.0)

    walked(tmp_path, planted, PACKED)

    assert [name for name, _ in planted.trained] == [
        "baseline/baseline-1",
        "packed/baseline-1",
        "packed/packed-1",
        "packed/baseline-2",
        "packed/packed-2",
        "packed/baseline-3",
        "packed/packed-3",
    ]


@pytest.mark.parametrize(("step_ms", "pairs"), [(4.0, 1), (9.9, 3)])
def test_a_stage_ends_as_soon_as_it_is_decided(step_ms: float, pairs: int, tmp_path: Path) -> None:
    """One pair for a large gain, all three for next to nothing."""
    planted = Planted(step_ms=lambda settings: step_ms if settings.packed else 10.0)

    assert len(walked(tmp_path, planted, PACKED)["packed"].runs) == pairs


def test_a_prediction_is_written_before_the_first_run_of_its_stage(tmp_path: Path) -> None:
    """Its time is not after that of any run it is about, and after that of what it stands on."""
    found = walked(tmp_path, Planted(), LOADER)["loader"]

    written = msgspec.json.decode(
        (tmp_path / "loader/predictions.json").read_bytes(), type=Prediction
    )
    assert written == found.prediction
    assert began(tmp_path, written.from_run) <= written.written_at
    assert all(written.written_at <= began(tmp_path, run) for run in (*found.before, *found.runs))


def test_a_prediction_says_what_the_report_found_and_bounds_what_is_measured(
    tmp_path: Path,
) -> None:
    """2 of 12 ms are waited, a quarter of 10 is padding: all that, and 2 ms for warm caches."""
    planted = Planted(step_ms=lambda settings: 8.5 if settings.packed else 10.0)

    waiting = walked(tmp_path / "loader", planted, LOADER)["loader"]
    padded = walked(tmp_path / "packed", planted, PACKED)["packed"]

    assert waiting.prediction.at_most == pytest.approx(1.5, rel=0.005)
    assert "waiting for data" in waiting.prediction.finding
    assert padded.prediction.at_most == pytest.approx(12 / (12 - 2.5 - 2), rel=0.01)
    assert padded.prediction.expected[0] == pytest.approx(1 / (1 - 10 / 12 * 0.25 / 3), rel=0.01)
    assert [each.inside for each in (waiting, padded)] == [True, True]
    assert [each.bounded for each in (waiting, padded)] == [True, True]


def test_a_gain_beyond_its_bound_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four times as fast where a quarter was to be saved: the bound was wrong, and it shows."""
    planted = Planted(step_ms=lambda settings: 2.5 if settings.packed else 10.0)

    found = walked(tmp_path, planted, PACKED)["packed"]

    assert found.bounded is False
    assert found.inside is False
    printed = " ".join(capsys.readouterr().out.split())
    assert "outside the range predicted" in printed
    assert "and beyond its bound of 1.60×" in printed


def test_a_resumed_walkthrough_repeats_nothing_and_edits_no_file(tmp_path: Path) -> None:
    """Predictions and outcomes are the same bytes; only the stage that is new is run."""
    walked(tmp_path, Planted(), LOADER)
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    again = Planted()

    assert walked(tmp_path, again, LOADER, SDPA)["loader"].status == "kept"
    assert {name.partition("/")[0] for name, _ in again.trained} == {"sdpa"}
    assert {path: path.read_bytes() for path in written} == written


def test_a_stage_that_cannot_run_here_says_why_and_is_not_predicted(tmp_path: Path) -> None:
    """Nothing is written for it: on another machine it may run."""
    found = walked(tmp_path, Planted(), stage("tf32", lambda kept: replace(kept, tf32=True)), SDPA)

    assert (found["tf32"].status, found["tf32"].why) == (
        "skipped",
        "TF32 is a format of NVIDIA's tensor cores: not available on a CPU",
    )
    assert not (tmp_path / "tf32").exists()
    assert found["sdpa"].settings == Settings(attention="sdpa")


def test_a_stage_that_fails_is_rejected_with_the_first_line_of_the_error(tmp_path: Path) -> None:
    """Out of memory, or a compiler that gives up, ends a stage and not the walkthrough."""

    def fails(settings: Settings) -> float:
        if settings.packed:
            raise RuntimeError("out of memory\nand where")
        return 10.0

    found = walked(tmp_path, Planted(step_ms=fails), PACKED, LOADER)

    assert (found["packed"].status, found["packed"].why) == ("rejected", "failed: out of memory")
    assert found["loader"].status == "kept"


@pytest.mark.parametrize(
    ("spent_s", "stages", "turns"), [(0, 2, 3), (30, 2, 3), (60, 3, 2), (85, 4, 2), (110, 1, 0)]
)
def test_time_is_shared_out_among_the_stages_that_are_left(
    spent_s: int, stages: int, turns: int
) -> None:
    """Of 120 s and runs of 8: at most three pairs a stage, at least two, none in the last 16 s."""
    clock = FakeClock()
    pace = TimeBudget(2.0, 2, 3, clock)
    with pace.measured(runs=1, counts=False):
        clock.advance(ms=8_000)
    clock.advance(ms=max(0, spent_s - 8) * 1000)

    assert pace.turns(1 / stages) == turns
