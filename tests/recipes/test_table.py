"""The table at the end is read from the runs' own summaries."""

import json
from pathlib import Path

from recipes.gpt2.stages import STAGES
from recipes.gpt2.table import COLUMNS, markdown, print_table, read_summary, row


READINGS = {
    "step_s": {"value": 0.0621, "unit": "s", "n": 180, "low": 0.0618, "high": 0.0625},
    "effective_tokens_per_s": {"value": 20934.2, "unit": "1/s", "n": 180},
    "padding_fraction": {"value": 0.0, "unit": "1", "n": 180},
    "data_wait_fraction": {"value": None, "unit": "1", "reason": "no steady state"},
    "loss": {"value": 2.94441, "unit": "1", "n": 200},
}


def write(folder: Path, readings: dict) -> Path:
    """A run directory with a summary that holds more than the table needs."""
    folder.mkdir(parents=True)
    summary = {"schema": 1, "run": {}, "readings": readings, "ledger_s": {}, "findings": []}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_cells_are_the_summarys_readings_in_readable_units(tmp_path: Path) -> None:
    """Seconds become milliseconds with their interval; 0 is shown, *not measured* is a dash."""
    summary = read_summary(write(tmp_path / "run", READINGS))

    cells = row(STAGES[0], summary)

    expected = [STAGES[0].name, STAGES[0].change]
    expected += ["62.1 [61.8–62.5]", "20,934", "0.0%", "–", "2.9444"]
    assert expected == cells


def test_a_step_time_without_an_interval_says_on_how_many_steps_it_stands(tmp_path: Path) -> None:
    """Every number has a spread or a count."""
    readings = {"step_s": {"value": 0.05, "unit": "s", "n": 4}}

    cells = row(STAGES[0], read_summary(write(tmp_path / "run", readings)))

    assert cells[2] == "50.0 (n=4)"


def test_a_run_without_a_summary_has_a_row_of_dashes(tmp_path: Path) -> None:
    """The other stages' numbers are not lost with it."""
    cells = row(STAGES[0], read_summary(tmp_path))

    assert cells == [STAGES[0].name, STAGES[0].change, "–", "–", "–", "–", "–"]


def test_the_table_is_printed_and_left_as_markdown(tmp_path: Path, capsys: object) -> None:
    """One row per stage under the same columns."""
    runs = [(stage, write(tmp_path / stage.name, READINGS)) for stage in STAGES[:2]]

    print_table(runs, tmp_path)

    lines = (tmp_path / "walkthrough.md").read_text().splitlines()
    assert f"| {' | '.join(COLUMNS)} |" == lines[0]
    assert [stage.name for stage in STAGES[:2]] == [line.split(" | ")[0][2:] for line in lines[2:]]
    assert {len(COLUMNS) + 1} == {line.count("|") for line in lines}


def test_markdown_of_no_rows_is_a_header() -> None:
    """Two lines, and nothing that is not a table."""
    assert len(markdown([]).splitlines()) == 2
