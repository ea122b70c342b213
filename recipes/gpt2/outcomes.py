"""What is written down of a stage?  Its prediction before it runs, and its outcome after.

A prediction is written once, before any run of its stage, and never again: the file is opened so
that it cannot be replaced, and its time stands before those of the runs it is about.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from recipes.gpt2.stages import Settings
from trainperf.analysis.summary.loss_parity import Parity
from trainperf.comparison.results import Speedup
from trainperf.comparison.results import Verdict as Compared


PREDICTION, OUTCOME, WORK = "predictions.json", "outcome.json", "walkthrough.json"

Status = Literal["baseline", "kept", "rejected", "skipped"]
T = TypeVar("T")


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a stage was thought to gain before it was run."""

    stage: str
    change: str
    written_at: str
    """ISO 8601 in UTC, on the clock that `started_at` of a run is read from."""
    from_run: str
    """Run of the stage kept last, below the folder of the walkthrough: what this stands on."""
    report: str
    """The first sentence of its report."""
    finding: str | None
    """What the report finds about this; `None` where it finds nothing."""
    at_most: float | None
    """Times faster; `None` where no bound is known."""
    why: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a stage showed; of repeats geometric means."""

    step_s: float | None = None
    effective_tokens_per_s: float | None = None
    padded_tokens_per_s: float | None = None
    padding_fraction: float | None = None
    data_wait_fraction: float | None = None
    peak_bytes: int | None = None
    """Of the allocator, on an accelerator; on a CPU of the tensors of the audited step."""
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
    """Those that were tried."""
    changed: tuple[str, ...] = ()
    """What is other than in the settings kept before, e.g. `packed: False → True`."""
    prediction: Prediction | None = None
    verdict: Compared | None = None
    speedup: Speedup | None = None
    cumulative: float | None = None
    """Product of the gains kept up to here, this one included if it was kept."""
    noise: float | None = None
    """How far a run was from its repeat, relative."""
    parity: Parity | None = None
    measured: Measured = msgspec.field(default_factory=Measured)
    before: tuple[str, ...] = ()
    """Runs of the settings kept last, below the folder of the walkthrough, in turns with `runs`."""
    runs: tuple[str, ...] = ()
    """Those of this stage; the first was audited."""
    notes: tuple[str, ...] = ()
    """What else there is to say of this change, e.g. the overflow rate."""

    @property
    def error(self) -> float | None:
        """How far the measured gain is from the predicted bound, relative; negative is below it."""
        bound = None if self.prediction is None else self.prediction.at_most
        if bound is None or self.speedup is None:
            return None
        return self.speedup.value / bound - 1

    @property
    def bounded(self) -> bool | None:
        """Whether the bound holds: the measured interval does not lie wholly above it."""
        bound = None if self.prediction is None else self.prediction.at_most
        if bound is None or self.speedup is None:
            return None
        return self.speedup.low <= bound


def write_once(document: msgspec.Struct, path: Path) -> None:
    """Write it where nothing is yet.

    Raises:
        FileExistsError: There is something: what was predicted is not edited.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def read(kind: type[T], path: Path) -> T | None:
    """What was written there before; `None` if nothing was."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None
