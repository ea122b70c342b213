"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from support.docs import PAGES, blocks
from trainperf.analysis.rules import RULES

from scripts.render_docs import pages
from trainperf.analysis.doctor import CHECKS
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


SHAPE = re.compile(
    r"Step time [\d.,]+ (s|ms|µs)( \(95 % CI [\d.,]+–[\d.,]+\))?(, mean [\d.,]+ (s|ms|µs))?"
    r"(; \d+ % of it is [^.;%]*?( and \d+ % (?!is )[^.;]+)?)?\. "
    r"(No clear bottleneck|First: [^.—]+|First: .+? — (the fit )?at most [\d.]+× faster"
    r"(, usually (about )?[\d.]+(–[\d.]+)?× \((\d+ scripts|corpus)\))?)\."
)
"""First sentences of a report; what is urgent may have no gain.  That a range is of the *corpus*
is in records of earlier runs."""


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
