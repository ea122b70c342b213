"""Several walkthroughs, one row each: what was kept, and how often a prediction held.

    python -m scripts.bench.walkthroughs FOLDER=SECONDS … --json FILE

A folder is what `python -m recipes.gpt2 --out FOLDER` left, and the seconds are what it took.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recipes.gpt2.outcomes import OUTCOME, StageOutcome, read
from scripts.bench.harness import arguments, machine_line, table, write_json


FASTER, KEPT, INSIDE, SECONDS = 2.5, 5, 0.8, 360.0
"""Targets: the product of the gains kept, their number, the share of predictions, the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One stage of a walkthrough."""

    stage: str
    status: str
    expected: tuple[float | None, float | None]
    gain: tuple[float, float, float] | None
    """With the ends of its 95 % interval."""
    inside: bool | None
    """Whether the gain is in the expected range."""

    @property
    def meets(self) -> bool | None:
        """Whether its interval meets the expected range."""
        low, high = self.expected
        if self.gain is None or high is None:
            return None
        return self.gain[1] <= high and (low or 0.0) <= self.gain[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkRow:
    """One walkthrough."""

    folder: str
    seconds: float
    cumulative: float
    stages: tuple[StageRow, ...]

    def all_of(self, status: str) -> int:
        """Stages that ended so."""
        return sum(stage.status == status for stage in self.stages)

    @property
    def met(self) -> bool:
        """Whether every target was."""
        judged = [stage.inside for stage in self.stages if stage.inside is not None]
        above = all(s.gain and s.gain[1] > 1 for s in self.stages if s.status == "kept")
        return (
            self.cumulative >= FASTER
            and above
            and self.all_of("kept") >= KEPT
            and self.all_of("rejected") >= 1
            and sum(judged) >= INSIDE * len(judged)
            and self.seconds <= SECONDS
        )


def walk_row(folder: Path, seconds: float) -> WalkRow:
    """From its stages, in the order in which they were predicted."""
    outcomes = [read(StageOutcome, path) for path in folder.glob(f"*/{OUTCOME}")]
    stages = [each for each in outcomes if each is not None and each.prediction is not None]
    stages.sort(key=lambda each: each.prediction.written_at if each.prediction else "")
    kept = [each.cumulative for each in stages if each.status == "kept" and each.cumulative]
    return WalkRow(
        folder=folder.name,
        seconds=seconds,
        cumulative=kept[-1] if kept else 1.0,
        stages=tuple(map(_stage_row, stages)),
    )


def _stage_row(outcome: StageOutcome) -> StageRow:
    expected, gain = outcome.prediction, outcome.speedup
    return StageRow(
        stage=outcome.stage,
        status=outcome.status,
        expected=(expected.low, expected.high) if expected else (None, None),
        gain=(gain.value, gain.low, gain.high) if gain else None,
        inside=outcome.inside,
    )


def _cells(row: WalkRow) -> Sequence[str]:
    judged = [stage for stage in row.stages if stage.inside is not None]
    outside = [stage for stage in judged if not stage.inside]
    words = "; ".join(
        f"`{stage.stage}` {_gain(stage)}, expected {_range(stage)}" for stage in outside
    )
    return (
        row.folder,
        f"{row.cumulative:.2f}×",
        f"{row.all_of('kept')} of {row.all_of('kept') + row.all_of('rejected')}",
        f"{len(judged) - len(outside)} of {len(judged)}",
        f"{sum(bool(stage.meets) for stage in judged)} of {len(judged)}",
        f"{row.seconds:.0f} s",
        "yes" if row.met else "no",
        words,
    )


def _gain(stage: StageRow) -> str:
    value, low, high = stage.gain or (0.0, 0.0, 0.0)
    return f"{value:.2f}× [{low:.2f}–{high:.2f}]"


def _range(stage: StageRow) -> str:
    low, high = stage.expected
    return f"{low or 0.0:.2f}–{high or 0.0:.2f}×"


def main() -> None:
    """Print the table, and keep the figures."""
    parser = arguments(__doc__)
    parser.add_argument("walks", nargs="+", metavar="FOLDER=SECONDS")
    given = parser.parse_args()
    pairs = [walk.rpartition("=") for walk in given.walks]
    rows = [walk_row(Path(folder), float(seconds)) for folder, _, seconds in pairs]
    head = ("run", "gain", "kept", "inside", "interval meets", "time", "targets met", "outside")
    print(f"{table(head, list(map(_cells, rows)))}\n\n{machine_line()}")
    write_json(given.json, {"walkthroughs": [{**asdict(row), "met": row.met} for row in rows]})


if __name__ == "__main__":
    main()
