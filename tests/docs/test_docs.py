"""The documentation says what the code does."""

import re
import sys
from pathlib import Path

import pytest
from support.docs import PAGES, blocks

from scripts.render_docs import main, pages
from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.doctor import CHECKS
from trainperf.commands import COMMANDS
from trainperf.meters import METERS


ROOT = Path(__file__).parents[2]


def test_the_generated_parts_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A definition that changed in a meter changed in its page."""
    monkeypatch.setattr(sys, "argv", ["render_docs", "--check"])

    assert main() == 0, capsys.readouterr().err


def test_every_member_of_a_family_has_its_row() -> None:
    """Nothing is measured, claimed, checked or offered that is not described."""
    generated = pages()
    listed = {
        "readings.md": [meter.name for meter in METERS],
        "findings.md": [detector.__name__ for detector in DETECTORS],
        "checks.md": [check.id for check in CHECKS],
    }
    for page, names in listed.items():
        text = generated[Path("reference", page)]
        assert [name for name in names if f"| `{name}` |" not in text] == [], page
    commands = generated[Path("reference", "cli.md")]
    assert [name for name in COMMANDS if f"## trainperf {name}\n" not in commands] == []


def test_every_callback_is_in_the_one_table() -> None:
    """With the readings it logs."""
    from trainperf import lightning

    text = (ROOT / "docs" / "reference" / "callbacks.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}

    assert set(rows) == set(lightning.__all__)
    assert "`overflow_rate`" in rows["GradScalerMonitor"]


SHAPE = re.compile(
    r"Step time [\d.,]+ (s|ms|µs)( \(95 % CI [\d.,]+–[\d.,]+\))?(, mean [\d.,]+ (s|ms|µs))?"
    r"(; \d+ % of it is [^.;%]*?( and \d+ % (?!is )[^.;]+)?)?\. "
    r"(No waste was seen( in what the log holds)?|Too few steady steps to say what to change: [^.]+"
    r"|\d+ % of the step is ordinary computing( at \d+ % of this machine's speed of light)?; "
    r"no waste was seen in it|First: [^.—]+"
    r"|First: .+? — (the fit )?(about [\d.]+×(, at most [\d.]+×)?|at most [\d.]+×"
    r"|[\d.]+× \[[\d.]+–[\d.]+\], tried))\."
)
"""First sentences of a report; what is urgent may have no gain."""


def test_the_reports_that_are_shown_begin_as_reports_do() -> None:
    """What an earlier version printed is replaced when the sentence changes."""
    golden = [
        path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "golden").glob("*.txt")
    ]
    shown = [block.text for page in PAGES for block in blocks(page)]
    for text in (" ".join(text.split()) for text in golden + shown):
        assert len(SHAPE.findall(text)) == len(re.findall(r"Step time \d", text)), text

    assert any(map(SHAPE.search, (" ".join(text.split()) for text in golden)))


def test_every_picture_is_shown_by_a_page() -> None:
    """One that is shown nowhere is drawn, kept and looked at for nothing."""
    pages_ = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in pages_)
    pictures = sorted(path.name for path in (ROOT / "docs" / "images").iterdir())

    assert pictures
    assert [name for name in pictures if f"images/{name})" not in text] == []


def test_every_environment_variable_of_ours_is_explained() -> None:
    """In Python as in the shell scripts, by their common beginning."""
    text = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    folders = [ROOT / "trainperf", ROOT / "scripts", ROOT / "tests"]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in {"", ".py"}]
    used = {
        name
        for file in files
        if file.is_file()
        for name in re.findall(r"\bTRAINPERF_[A-Z]+\b", file.read_text(encoding="utf-8"))
    }

    assert "TRAINPERF_VENVS" in used
    assert sorted(name for name in used if f"`{name}`" not in text) == []
