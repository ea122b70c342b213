"""Epochs that are dear to start, and what only looks like it."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from support.batches import Batch
from support.runs import RankSpec, make_gap, make_info, make_run_dir, make_step, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.artifacts import write_document
from trainperf.core.findings import Finding
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import Scalar


def found(
    path: Path,
    *,
    between_ms: float = 500,
    epochs: int = 10,
    config: Mapping[str, Scalar] | None = None,
    start_s: float | None = None,
) -> Finding | None:
    """The finding about ten seconds of steps, with so long a gap after each epoch."""
    gaps = [make_gap(Gap.EPOCH_BOUNDARY, between_ms) for _ in range(epochs)]
    info = make_info(config={"num_workers": 4, **(config or {})})
    spec = RankSpec(steps=make_steps(200, forward=50), gaps=gaps, info=info)
    run = make_run_dir(path, [spec])
    if start_s is not None:
        anatomy = Batch(workers=4).anatomy()
        write_document(msgspec.structs.replace(anatomy, start_s=start_s), run)
    findings = summarize(Run.open(run)).findings
    return next((finding for finding in findings if finding.id == "epoch_start"), None)


def test_the_gaps_in_which_workers_start_anew_are_counted(tmp_path: Path) -> None:
    """Ten of half a second, beside ten seconds of steps: a third of the fit."""
    finding = found(tmp_path)

    assert finding is not None
    assert (finding.scope, finding.fraction) == ("fit", pytest.approx(1 / 3))
    assert finding.fraction == pytest.approx(1 / 3)
    assert finding.evidence == (
        "500 ms in each of 10 epochs: 5.00 s between epochs and 0 s for their first batches",
    )
    assert finding.action == "DataLoader(persistent_workers=True)"


@pytest.mark.parametrize(
    ("between_ms", "epochs", "config"),
    [
        (40, 10, {}),
        (5000, 1, {}),
        (500, 10, {"persistent_workers": True}),
        (500, 10, {"num_workers": 0}),
        (500, 10, {"loop": "plain"}),
    ],
    ids=["short", "one epoch", "kept", "no workers", "the user's own code"],
)
def test_gaps_that_are_short_or_not_the_workers_are_none(
    tmp_path: Path, between_ms: float, epochs: int, config: dict[str, Scalar]
) -> None:
    """In a plain loop nobody knows what the user does between epochs."""
    assert found(tmp_path, between_ms=between_ms, epochs=epochs, config=config) is None


@pytest.mark.parametrize(("start_s", "blamed"), [(0.4, True), (0.2, False)])
@pytest.mark.parametrize("loop", ["plain", "lightning"])
def test_a_look_into_the_loader_tells_whether_it_is_the_workers(
    tmp_path: Path, loop: str, start_s: float, *, blamed: bool
) -> None:
    """Of the 500 ms between epochs they need 400, or only 200."""
    finding = found(tmp_path, config={"loop": loop}, start_s=start_s)

    assert (finding is not None) is blamed
    if finding is not None:
        assert finding.evidence[1] == "400 ms to start 4 workers and have a batch"


def outside(path: Path, **config: Scalar) -> dict[str, Finding]:
    """What is said of 400 steps of 10 ms from outside, every 20th of which waits for 200 ms more.

    Nobody tells a loop's epochs from outside; 640 samples are 20 batches of 32.
    """
    loader = {"num_workers": 2, "dataset_samples": 640, "batch_size": 32}
    info = make_info(config={"loop": "outside", "persistent_workers": False, **loader, **config})
    steps = [
        make_step(
            index,
            start_ns=index * 10_000_000,
            tags=int(Tag.WARMUP) * (index < 12),
            data_wait=1.0 + 200.0 * (index % 20 == 0 and index > 0),
            forward=5.0,
            backward=4.0,
        )
        for index in range(400)
    ]
    run = make_run_dir(path, [RankSpec(steps=steps, info=info)])
    return {finding.id: finding for finding in summarize(Run.open(run)).findings}


def test_from_outside_workers_start_where_slow_steps_come_with_the_loaders_epoch(
    tmp_path: Path,
) -> None:
    """And a sample is not to get cheaper, nor is it a slow step that nobody knows."""
    findings = outside(tmp_path)

    finding = findings["epoch_start"]
    assert finding.fraction == pytest.approx(19 * 0.2 / (4.0 + 19 * 0.2), rel=0.03)
    assert finding.action == (
        "DataLoader(persistent_workers=True); make it once, before the first epoch"
    )
    assert "data_wait" not in findings
    assert "slow_steps" not in findings


@pytest.mark.parametrize(
    "config",
    [
        {"batch_size": 16},
        {"persistent_workers": True},
        {"num_workers": 0},
        {"dataset_samples": None},
    ],
    ids=["another distance", "kept", "no workers", "a stream"],
)
def test_slow_steps_of_another_kind_start_no_epoch(
    tmp_path: Path, config: dict[str, Scalar]
) -> None:
    """They stay slow steps, and what is waited for."""
    findings = outside(tmp_path, **config)

    assert "epoch_start" not in findings
    assert {"slow_steps", "data_wait"} <= findings.keys()
