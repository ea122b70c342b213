"""Results of the walkthrough: printed tables, two files next to the runs, and TensorBoard."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict

from lightning.pytorch.loggers import TensorBoardLogger

from recipes.gpt2 import table
from recipes.gpt2.outcomes import StageOutcome
from recipes.gpt2.page import page_of
from recipes.gpt2.published import next_to_ours
from recipes.gpt2.train import Recipe


def save(outcomes: Sequence[StageOutcome], work: Recipe) -> None:
    """Write the results so far as markdown and HTML, so that an interruption loses none."""
    (work.out / "walkthrough.md").write_text(table.markdown(outcomes), encoding="utf-8")
    (work.out / "walkthrough.html").write_text(page_of(outcomes, work), encoding="utf-8")


def show(outcomes: Sequence[StageOutcome], work: Recipe) -> None:
    """Print the tables, and write each stage's row into TensorBoard."""
    print()
    width = shutil.get_terminal_size((98, 24)).columns
    print(table.text(outcomes, width))
    print(next_to_ours(outcomes, width))
    for outcome in outcomes:
        if outcome.status != "skipped":
            log(outcome, work)


def log(outcome: StageOutcome, work: Recipe) -> None:
    """One row of TensorBoard's HParams: the settings tried, and their results."""
    numbers = {
        "speedup": None if outcome.speedup is None else outcome.speedup.value,
        "predicted_low": None if outcome.prediction is None else outcome.prediction.low,
        "predicted_high": None if outcome.prediction is None else outcome.prediction.high,
        "cumulative": outcome.cumulative,
        "step_s": outcome.measured.step_s,
        "effective_tokens_per_s": outcome.measured.effective_tokens_per_s,
        "loss": outcome.measured.loss,
        "kept": float(outcome.status in ("baseline", "kept")),
    }
    metrics = {f"walkthrough/{name}": x for name, x in numbers.items() if x is not None}
    logger = TensorBoardLogger(work.out, name="", version=outcome.stage, default_hp_metric=False)
    logger.log_hyperparams({"stage": outcome.stage, **asdict(outcome.settings)}, metrics)
    logger.experiment.close()
