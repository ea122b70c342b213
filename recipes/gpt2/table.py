"""What did each stage change?  The end of the walkthrough, read from the run directories."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console, JustifyMethod
from rich.table import Table

from recipes.gpt2.stages import Stage
from trainperf.meters.fold import Reading


COLUMNS = (
    "stage",
    "change",
    "ms a step",
    "effective tokens/s",
    "padding",
    "data wait",
    "loss",
)
TEXT = ("stage", "change")


class Summary(msgspec.Struct, frozen=True):
    """The part of a run's `summary.json` that the table shows."""

    readings: dict[str, Reading]


def print_table(runs: Sequence[tuple[Stage, Path]], out: Path) -> None:
    """Print the table and write it to `walkthrough.md` in *out*."""
    rows = [row(stage, read_summary(run)) for stage, run in runs]
    (out / "walkthrough.md").write_text(markdown(rows), encoding="utf-8")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in COLUMNS:
        # Broken here, so that the table fits into 80 columns.
        header = name.replace("effective ", "effective\n")
        side: JustifyMethod = "left" if name in TEXT else "right"
        table.add_column(header, justify=side, no_wrap=name != "change")
    for cells in rows:
        table.add_row(*cells)
    console = Console()
    console.print()
    console.print(table)


def read_summary(run: Path) -> Summary:
    """The summary that the run left when its fit ended."""
    # trainperf never stops a training: a full disk or a fault of its own leaves no summary, and
    # the table of the other stages is still worth printing.
    if not (run / "summary.json").exists():
        return Summary(readings={})
    return msgspec.json.decode((run / "summary.json").read_bytes(), type=Summary)


def row(stage: Stage, summary: Summary) -> list[str]:
    """One stage's cells, in the order of `COLUMNS`; a dash is *not measured*."""
    readings = summary.readings
    return [
        stage.name,
        stage.change,
        _with_interval(readings.get("step_s")),
        _cell(readings.get("effective_tokens_per_s"), "{:,.0f}"),
        _cell(readings.get("padding_fraction"), "{:.1%}"),
        _cell(readings.get("data_wait_fraction"), "{:.1%}"),
        _cell(readings.get("loss"), "{:.4f}"),
    ]


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a markdown table."""
    lines = [COLUMNS, ["---" if name in TEXT else "--:" for name in COLUMNS], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _with_interval(step: Reading | None) -> str:
    if step is None or step.value is None:
        return "–"
    milliseconds = f"{step.value * 1e3:.1f}"
    if step.low is None or step.high is None:
        return f"{milliseconds} (n={step.n})"
    return f"{milliseconds} [{step.low * 1e3:.1f}–{step.high * 1e3:.1f}]"


def _cell(reading: Reading | None, form: str) -> str:
    return "–" if reading is None or reading.value is None else form.format(reading.value)
