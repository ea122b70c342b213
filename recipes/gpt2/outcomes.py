"""Records of a stage: its prediction, written before it runs, and its outcome, written after.

A prediction is written once, before any run of its stage.  The file is opened so that it cannot be
replaced, and its timestamp precedes those of the runs it is about.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from recipes.gpt2.advice import Source
from recipes.gpt2.stages import Settings
from trainperf.analysis.summary.loss_parity import Parity
from trainperf.comparison.results import Speedup
from trainperf.comparison.results import Verdict as Compared


PREDICTION, OUTCOME, WORK = "predictions.json", "outcome.json", "walkthrough.json"
AFTER = "after"
"""Folder of the traced run of the settings kept last."""

Status = Literal["baseline", "kept", "rejected", "skipped"]
T = TypeVar("T")


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted gain of a stage, written before it runs."""

    stage: str
    change: str
    written_at: str
    """ISO 8601 in UTC, on the clock that `started_at` of a run is read from."""
    from_run: str
    """Run of the stage kept last, relative to the walkthrough's folder: the basis."""
    report: str
    """The first sentence of its report."""
    finding: str
    """The finding's words about this change, or that there is none."""
    where: str = ""
    """`file:line` of the code that the finding is about."""
    expected: tuple[float | None, float | None] = (None, None)
    """Least and largest gain expected; `None` where it may as well slow the training, and where no
    bound is known."""
    spread: float | None = None
    """Standard deviation of the log ratio of a pair of runs, as known then."""
    low: float | None = None
    """Least gain that is expected to be measured: the least one, less what runs scatter."""
    high: float | None = None
    """Largest gain that is expected to be measured."""
    source: Source
    """Where the expectation comes from."""
    at_most: float | None = None
    """Times faster at most; `None` where no bound is known."""
    why: str = ""
    """Basis of the bound, or why there is none."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a stage measured; geometric means over repeats."""

    step_s: float | None = None
    effective_tokens_per_s: float | None = None
    padded_tokens_per_s: float | None = None
    padding_fraction: float | None = None
    data_wait_fraction: float | None = None
    peak_bytes: int | None = None
    """On an accelerator the allocator's; on a CPU that of the audited step's tensors."""
    mfu: float | None = None
    loss: float | None = None
    """Mean over the last fifth."""


class StageOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ended."""

    stage: str
    change: str
    status: Status
    why: str
    """The verdict in a sentence, or why it was skipped."""
    settings: Settings
    """The settings tried."""
    changed: tuple[str, ...] = ()
    """How they differ from the settings kept last, e.g. `packed: False → True`."""
    prediction: Prediction | None = None
    verdict: Compared | None = None
    speedup: Speedup | None = None
    cumulative: float | None = None
    """Product of all gains kept so far, this one included if it was kept."""
    noise: float | None = None
    """Relative difference between repeats of a run."""
    parity: Parity | None = None
    measured: Measured = msgspec.field(default_factory=Measured)
    before: tuple[str, ...] = ()
    """Runs of the settings kept last, in turns with `runs`, below the walkthrough's folder."""
    runs: tuple[str, ...] = ()
    """Runs of this stage; the first was audited."""
    notes: tuple[str, ...] = ()
    """Other measurements of this change, e.g. the overflow rate."""

    @property
    def inside(self) -> bool | None:
        """Whether the measured gain is in the expected range; `None` where either is missing."""
        expected = self.prediction
        if expected is None or self.speedup is None or expected.high is None:
            return None
        return (expected.low or 0.0) <= self.speedup.value <= expected.high

    @property
    def bounded(self) -> bool | None:
        """Whether the bound holds: the measured interval does not lie wholly above it."""
        bound = None if self.prediction is None else self.prediction.at_most
        if bound is None or self.speedup is None:
            return None
        return self.speedup.low <= bound


def write_once(document: msgspec.Struct, path: Path) -> None:
    """Write a new file.

    Raises:
        FileExistsError: It exists; a prediction is never edited.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def read(kind: type[T], path: Path) -> T | None:
    """The document in that file; `None` if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None
