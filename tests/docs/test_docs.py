"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from scripts.render_docs import pages
from trainperf.analysis.doctor import CHECKS
from trainperf.analysis.rules import RULES
from trainperf.commands import COMMANDS
from trainperf.meters import METERS


ROOT = Path(__file__).parents[2]


def test_the_generated_parts_are_up_to_date() -> None:
    """A definition that changed in a meter changed in the document."""
    result = subprocess.run(
        [sys.executable, "-m", "scripts.render_docs", "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert result.returncode == 0, result.stderr


def test_every_member_of_a_family_has_its_row() -> None:
    """Nothing is measured, claimed, checked or offered that is not described."""
    made = pages()
    listed = {
        "readings.md": [meter.name for meter in METERS],
        "findings.md": [rule.__name__ for rule in RULES],
        "checks.md": [check.__name__ for check in CHECKS],
    }
    for page, names in listed.items():
        text = made[Path("reference", page)]
        assert [name for name in names if f"| `{name}` |" not in text] == [], page
    commands = made[Path("reference", "cli.md")]
    assert [name for name in COMMANDS if f"## trainperf {name}\n" not in commands] == []


def test_every_callback_is_in_the_one_table() -> None:
    """With the readings it logs."""
    from trainperf import lightning

    text = (ROOT / "docs" / "reference" / "callbacks.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}

    assert set(rows) == set(lightning.__all__)
    assert "`overflow_rate`" in rows["GradScalerMonitor"]


def test_a_renderer_writes_every_generated_page_elsewhere(tmp_path: Path) -> None:
    """`--out` leaves `docs/` alone, and writes the same pages."""
    subprocess.run(
        [sys.executable, "-m", "scripts.render_docs", "--out", str(tmp_path)], check=True, cwd=ROOT
    )

    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(pages())


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
